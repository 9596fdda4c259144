//! glibc before 2.34 keeps threads and the dynamic linker's functions in libraries of their own.
//! The shipped library has neither loaded into programs, and works where a program has none of
//! them, or both for the driver alone.

use gpushare_tests::runnable::{not_runnable_here, prepared};
use gpushare_tests::{Gpu, artefacts};
use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIMIT: u64 = 64 << 20;

/// The output of every program under its quota, whatever it has loaded.
const STEPS: &str = "init 0\nretain 0\ncurrent 0\nhalf and more 0\nagain 2\nfree 0\nonce more 0\n\
                     total 0 1\nwait 0\n";

/// Programs built against glibc 2.17 by the linker that packages are built with.
struct Old {
    python: PathBuf,
    folder: tempfile::TempDir,
    library: PathBuf,
    gpu: Gpu,
}

impl Old {
    /// `None`, noted under `test`, where nothing was packaged.
    fn new(test: &str) -> Option<Self> {
        let library = artefacts::repository().join("dist/lib/libgpushare.so");
        let target = artefacts::folder().parent().expect("a profile is in it");
        let python = target.join("venv/package/bin/python");
        if !library.exists() || !python.exists() {
            not_runnable_here(test, "there is no dist/; scripts/package.sh makes it");
            return None;
        }
        Some(Self {
            python,
            folder: tempfile::tempdir().expect("a temporary folder"),
            library: library.canonicalize().expect("it exists"),
            // A destructor of a client calls the driver after its teardown.
            gpu: Gpu::new("mem=1GiB,exit=refuse"),
        })
    }

    fn compile(&self, source: &str, to: &str, flags: &[&str]) -> PathBuf {
        self.compile_for("2.17", source, to, flags)
    }

    fn compile_for(&self, glibc: &str, source: &str, to: &str, flags: &[&str]) -> PathBuf {
        let output = self.folder.path().join(to);
        let target = format!("{}-linux-gnu.{glibc}", std::env::consts::ARCH);
        let made = Command::new(&self.python)
            .args(["-m", "ziglang", "cc", "-target", &target, "-O1", "-o"])
            .args([&output, &artefacts::repository().join("tests").join(source)])
            .args(flags)
            .output()
            .expect("the linker of packages runs");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{source}: {said}");
        output
    }

    /// A driver of which nothing is needed but libc.
    fn stub_driver(&self) {
        let flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
        self.compile("bench/stub_driver.c", "libcuda.so.1", &flags);
    }

    /// The output of the client under a quota, in a Debian release's dynamic linker and C library.
    fn in_root(&self, root: &Path, client: &Path, driver: &Path) -> String {
        let limit = LIMIT.to_string();
        let limits = [("GPUSHARE_MEM_LIMIT", &*limit)];
        self.run(root, &[client.as_os_str(), limit.as_ref()], driver, &limits)
    }

    /// The output of a command there, which must succeed in silence; with the library if there are
    /// `limits`.
    fn run(
        &self,
        root: &Path,
        command: &[&OsStr],
        driver: &Path,
        limits: &[(&str, &str)],
    ) -> String {
        let preloads: &[&Path] = if limits.is_empty() {
            &[]
        } else {
            &[&self.library]
        };
        self.run_under(preloads, root, command, driver, limits)
    }

    /// The same under these libraries, in this order.
    fn run_under(
        &self,
        preloads: &[&Path],
        root: &Path,
        command: &[&OsStr],
        driver: &Path,
        limits: &[(&str, &str)],
    ) -> String {
        let runtime = tempfile::tempdir().expect("a temporary folder");
        let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
        let mut path: Vec<PathBuf> = ["lib", "usr/lib"]
            .map(|lib| root.join(lib).join(&multiarch))
            .into();
        let linker = path.iter().find_map(|folder| linker_in(folder));
        path.insert(0, driver.to_owned());
        let path: Vec<_> = path.iter().map(|path| path.display().to_string()).collect();
        let mut run = Command::new(linker.expect("a C library has a dynamic linker"));
        run.args(["--library-path", &path.join(":")])
            .args(command)
            .env_clear()
            .env("SOFTGPU", self.gpu.spec())
            .env("XDG_RUNTIME_DIR", runtime.path())
            .envs(limits.iter().copied());
        if !preloads.is_empty() {
            let preloads: Vec<_> = preloads.iter().map(|path| path.as_os_str()).collect();
            run.env("LD_PRELOAD", preloads.join(OsStr::new(":")));
        }
        let output = run.output().expect("the linker runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn linker_in(folder: &Path) -> Option<PathBuf> {
    let is_linker = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
    };
    let files = std::fs::read_dir(folder).ok()?;
    let mut files = files.filter_map(|entry| Some(entry.ok()?.path()));
    files.find(is_linker)?.canonicalize().ok()
}

/// The client's whole output: (libpthread, libdl) before and after, and the steps between.
fn output(before: (u8, u8), after: (u8, u8)) -> String {
    let loaded = |when: &str, (threads, linker): (u8, u8)| {
        format!("{when}: libpthread {threads}, libdl {linker}, libgpushare 1\n")
    };
    format!(
        "{}{STEPS}{}child 2\n",
        loaded("before", before),
        loaded("after", after)
    )
}

#[test]
fn a_program_that_needs_only_libc_meets_its_quota_in_debian_11_and_13() {
    let name = "a_program_that_needs_only_libc_meets_its_quota_in_debian_11_and_13";
    let Some(old) = Old::new(name) else { return };
    old.stub_driver();
    let driver = old.folder.path();
    let flags = [
        "-DDIRECT",
        &format!("-L{}", driver.display()),
        "-l:libcuda.so.1",
    ];
    let client = old.compile("clients/oldlinks.c", "direct", &flags);
    for (suite, after) in [("bullseye", (1, 1)), ("trixie", (0, 0))] {
        let Some(root) = prepared(name, "debian_root.sh", &[suite]) else {
            return;
        };
        let seen = old.in_root(&root, &client, driver);
        assert_eq!(seen, output((0, 0), after), "{suite}");
    }
}

#[test]
fn a_program_that_opens_the_driver_meets_its_quota_in_debian_11_and_13() {
    let name = "a_program_that_opens_the_driver_meets_its_quota_in_debian_11_and_13";
    let Some(old) = Old::new(name) else { return };
    old.stub_driver();
    let client = old.compile("clients/oldlinks.c", "opens", &[]);
    for (suite, before, after) in [("bullseye", (0, 1), (1, 1)), ("trixie", (0, 1), (0, 1))] {
        let Some(root) = prepared(name, "debian_root.sh", &[suite]) else {
            return;
        };
        let seen = old.in_root(&root, &client, old.folder.path());
        assert_eq!(seen, output(before, after), "{suite}");
    }
}

#[test]
fn a_malloc_that_looks_for_the_next_one_works_before_and_behind_us() {
    let name = "a_malloc_that_looks_for_the_next_one_works_before_and_behind_us";
    let Some(old) = Old::new(name) else { return };
    old.stub_driver();
    let driver = old.folder.path();
    let client = old.compile("clients/oldlinks.c", "opens", &[]);
    let flags = ["-shared", "-fPIC", "-ldl"];
    let wrapper = &*old.compile("clients/mallocs.c", "mallocs.so", &flags);
    let (ours, limit) = (&*old.library, LIMIT.to_string());
    let limits = [("GPUSHARE_MEM_LIMIT", &*limit)];
    for (suite, after) in [("bullseye", (1, 1)), ("trixie", (0, 1))] {
        let Some(root) = prepared(name, "debian_root.sh", &[suite]) else {
            return;
        };
        let shell = ["bin/dash", "usr/bin/dash"].map(|path| root.join(path));
        let shell = shell.iter().find(|path| path.exists()).expect("a shell");
        let without_cuda: [&OsStr; 3] = [shell.as_ref(), "-c".as_ref(), "echo works".as_ref()];
        let under = |preloads: &[&Path]| old.run_under(preloads, &root, &without_cuda, driver, &[]);
        assert_eq!(under(&[wrapper]), "works\n", "{suite}: the wrapper alone");
        for preloads in [[wrapper, ours], [ours, wrapper]] {
            assert_eq!(under(&preloads), "works\n", "{suite}: {preloads:?}");
            let command = [client.as_os_str(), limit.as_ref()];
            let seen = old.run_under(&preloads, &root, &command, driver, &limits);
            assert_eq!(seen, output((0, 1), after), "{suite}: {preloads:?}");
        }
    }
}

/// A folder with the packaged software GPU under the driver's names. Its libcuda needs libpthread
/// and libdl, as NVIDIA's does.
fn soft_driver(name: &str, old: &Old) -> Option<PathBuf> {
    let folder = old.folder.path().join("soft");
    std::fs::create_dir(&folder).expect("writable");
    for (link, file) in [
        ("libcuda.so.1", "libsoftgpu_cuda.so"),
        ("libnvidia-ml.so.1", "libsoftgpu_nvml.so"),
    ] {
        let file = old.library.with_file_name(file);
        if !file.exists() {
            not_runnable_here(name, "dist/ was made by scripts/package.sh --core");
            return None;
        }
        symlink(file, folder.join(link)).expect("a link can be made");
    }
    Some(folder)
}

#[test]
#[ignore = "long tier: needs all of scripts/package.sh"]
fn programs_on_the_software_gpu_work_in_debian_11_as_without_the_library() {
    let name = "programs_on_the_software_gpu_work_in_debian_11_as_without_the_library";
    let Some(old) = Old::new(name) else { return };
    let Some(soft) = soft_driver(name, &old) else {
        return;
    };
    let Some(root) = prepared(name, "debian_root.sh", &["bullseye"]) else {
        return;
    };
    let limit = LIMIT.to_string();
    // A cap has the library start a thread of its own.
    let limits = [("GPUSHARE_MEM_LIMIT", &*limit), ("GPUSHARE_SM_LIMIT", "50")];

    let client = old.compile("clients/oldlinks.c", "opens", &[]);
    let command = [client.as_os_str(), limit.as_ref()];
    let seen = old.run(&root, &command, &soft, &limits);
    // This driver refuses the child of a fork by itself.
    let expected = output((0, 1), (1, 1)).replace("child 2", "child 3");
    assert_eq!(seen, expected);

    // The client defines a thread-local with a destructor, which came with glibc 2.18.
    let client = old.compile_for("2.31", "clients/lifecycle.c", "lifecycle", &["-lpthread"]);
    for moment in ["destructors", "fork-before", "race", "closed"] {
        let command = [client.as_os_str(), moment.as_ref()];
        let bare = old.run(&root, &command, &soft, &[]);
        assert_eq!(old.run(&root, &command, &soft, &limits), bare, "{moment}");
    }

    let client = old.compile("clients/gate.c", "gate", &["-lpthread"]);
    for part in [
        "churn",
        "destructors",
        "forks",
        "streams",
        "captures",
        "contexts",
    ] {
        let command = [client.as_os_str(), part.as_ref()];
        let seen = old.run(&root, &command, &soft, &limits);
        assert!(
            seen.starts_with(part) && seen.ends_with(" 0 refused\n"),
            "{seen}"
        );
    }
}

/// The answer of the script that makes the library light, for a library of this C text.
fn lightened(old: &Old, text: &str) -> (Option<i32>, String) {
    let source = old.folder.path().join("library.c");
    std::fs::write(&source, text).expect("writable");
    let source = source.to_str().expect("text");
    let library = old.compile(source, "library.so", &["-shared", "-fPIC"]);
    let script = artefacts::repository().join("scripts/lighten.py");
    let output = Command::new("python3").arg(script).arg(library).output();
    let output = output.expect("python3 is installed");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn a_library_that_needs_libpthread_or_runs_code_at_loading_is_refused() {
    let name = "a_library_that_needs_libpthread_or_runs_code_at_loading_is_refused";
    let Some(old) = Old::new(name) else { return };
    let reads = "#include <unistd.h>\nlong f(void) { return read(0, 0, 0) + getpid(); }\n";
    assert_eq!(lightened(&old, reads), (Some(0), String::new()));
    let threads =
        format!("#include <pthread.h>\n{reads}void *g(void) {{ return pthread_create; }}");
    let (status, said) = lightened(&old, &threads);
    assert!(
        status == Some(1) && said.contains("pthread_create"),
        "{said}"
    );
    let begins = format!("{reads}__attribute__((constructor)) static void begins(void) {{ f(); }}");
    let (status, said) = lightened(&old, &begins);
    assert!(status == Some(1) && said.contains("begins"), "{said}");
}
