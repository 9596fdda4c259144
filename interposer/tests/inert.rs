//! Programs that have nothing to do with CUDA run as if the library were not there: same output,
//! status, threads, descriptors.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{compile, driver_in, folder, library, skipped, text, with_preload};

/// Further runs of each kind before a difference is the library's.
const MORE: u32 = 5;

/// Runs the same command without and with the library and compares everything that can be seen;
/// nothing of ours may appear in the runtime folder.
fn unchanged(program: &str, arguments: &[&str]) {
    let runtime = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runtime");
    fs::create_dir_all(&runtime).expect("writable");
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).expect("ours");
    let run = |preload: &[&Path]| {
        let mut command = Command::new(program);
        command.args(arguments).env("XDG_RUNTIME_DIR", &runtime);
        with_preload(&mut command, preload).output()
    };
    let Ok(bare) = run(&[]) else {
        skipped(&format!("{program} is unchanged"), "it is not installed");
        return;
    };
    let preloaded = run(&[&library()]).expect("it ran a moment ago");
    // Some programs vary by themselves, such as counting a descriptor that a busy machine closes
    // late. The check is that runs with the library are like runs without it.
    let (mut bare, mut preloaded) = (vec![bare], vec![preloaded]);
    let mut more = 0..MORE;
    while !are_alike(&bare, &preloaded) {
        if more.next().is_none() {
            same(&bare[0], &preloaded[0], program);
        }
        preloaded.extend(run(&[&library()]));
        bare.extend(run(&[]));
    }
    assert!(
        !runtime.join("gpushare").exists(),
        "{program} has nothing to account for"
    );
}

/// Whether one of these runs is like one of those.
fn are_alike(bare: &[Output], preloaded: &[Output]) -> bool {
    let is_like =
        |one: &Output, other: &Output| one.status == other.status && text(one) == text(other);
    let among = |one: &Output| preloaded.iter().any(|other| is_like(one, other));
    bare.iter().any(among)
}

fn same(bare: &Output, preloaded: &Output, what: &str) {
    assert_eq!(bare.status, preloaded.status, "{what}\n{}", text(preloaded));
    assert_eq!(text(bare), text(preloaded), "{what}");
}

#[test]
fn a_shell_and_its_children_are_unchanged() {
    unchanged(
        "bash",
        &[
            "-c",
            "echo out; echo err >&2; fds=(/proc/$$/fd/*); tasks=(/proc/$$/task/*); echo ${#fds[@]} ${#tasks[@]}; (exit 3) | cat; true & wait; exit 5",
        ],
    );
    unchanged("sh", &["-c", "ls /proc/self/fd; kill -TERM $$"]);
}

#[test]
fn curl_is_unchanged_though_its_names_begin_like_the_drivers() {
    let page = folder("curl").join("page");
    fs::write(&page, "a page\n").expect("writable");
    unchanged("curl", &["-sS", &format!("file://{}", page.display())]);
    unchanged("curl", &["-sS", "file:///nowhere/at/all"]);
}

#[test]
fn git_is_unchanged() {
    unchanged("git", &["--version"]);
    unchanged("git", &["-c", "core.pager=cat", "log", "-3", "--stat"]);
}

#[test]
fn python_with_every_way_of_starting_workers_is_unchanged() {
    for method in ["fork", "spawn", "forkserver"] {
        let script = folder(&format!("python-{method}")).join("main.py");
        let body = format!(
            "import multiprocessing, os\n\
             def work(n): return n * n, len(os.listdir('/proc/self/task'))\n\
             if __name__ == '__main__':\n\
             \x20   with multiprocessing.get_context('{method}').Pool(3) as pool: print(pool.map(work, range(6), 1))\n\
             \x20   print(sorted(os.listdir('/proc/self/fd')))\n\
             \x20   import ctypes; print(ctypes.CDLL(None).getpid() == os.getpid(), hasattr(ctypes.CDLL(None), 'cuInit'))\n"
        );
        fs::write(&script, body).expect("writable");
        unchanged("python3", &[script.to_str().expect("text")]);
    }
}

#[test]
fn node_is_unchanged() {
    let script = "const fs = require('fs'); console.log(fs.readdirSync('/proc/self/fd').length, \
        fs.readdirSync('/proc/self/task').length); new (require('worker_threads').Worker)('console.log(1)', {eval: true})\
        .on('exit', code => process.exit(code + 4))";
    unchanged("node", &["-e", script]);
}

#[test]
fn a_java_machine_is_unchanged() {
    let source = folder("java").join("Main.java");
    let body = "public class Main { public static void main(String[] a) throws Exception {\n\
        Thread t = new Thread(() -> System.out.println(\"thread\")); t.start(); t.join();\n\
        System.out.println(new ProcessBuilder(\"sh\", \"-c\", \"ls /proc/self/fd | wc -l\").inheritIO().start().waitFor());\n\
        System.exit(9); } }";
    fs::write(&source, body).expect("writable");
    unchanged(
        "java",
        &["-XX:TieredStopAtLevel=1", source.to_str().expect("text")],
    );
}

#[test]
fn a_small_program_keeps_its_output_status_threads_and_descriptors() {
    let client = folder("hello").join("hello");
    compile("hello.c", &client, &["-ldl"]);
    unchanged(client.to_str().expect("text"), &[]);
}

#[test]
fn a_static_program_does_not_see_us() {
    let client = folder("static").join("hello");
    compile("hello.c", &client, &["-static"]);
    unchanged(client.to_str().expect("text"), &[]);
}

/// musl refuses to start a program whose preload needs glibc, but passes over a preload that does
/// not exist. `$LIB` in the path is such a preload there, and the library's folder under glibc: the
/// form in which programs of unknown kind get the preload.
#[test]
fn a_musl_program_is_unchanged_by_a_preload_path_that_only_glibc_can_read() {
    let folder = folder("musl");
    let client = folder.join("hello");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/hello.c");
    let Ok(made) = Command::new("musl-gcc")
        .arg("-o")
        .args([&client, &source])
        .output()
    else {
        skipped(
            "a_musl_program_is_unchanged_by_a_preload_path_that_only_glibc_can_read",
            "musl-gcc is not installed",
        );
        return;
    };
    assert!(made.status.success(), "{}", text(&made));
    let preload = for_glibc_only(&folder);
    let bare = Command::new(&client)
        .env_remove("LD_PRELOAD")
        .output()
        .expect("runs");
    let preloaded = Command::new(&client)
        .env("LD_PRELOAD", &preload)
        .output()
        .expect("runs");
    same(&bare, &preloaded, "musl");

    let maps = Command::new("cat")
        .arg("/proc/self/maps")
        .env("LD_PRELOAD", &preload)
        .output()
        .expect("runs");
    assert!(
        text(&maps).contains("libgpushare.so"),
        "under glibc the same path loads the library: {}",
        text(&maps)
    );
}

/// The library under the names glibc's `$LIB` can stand for.
fn for_glibc_only(folder: &Path) -> PathBuf {
    for lib in [
        "lib",
        "lib64",
        "lib/x86_64-linux-gnu",
        "lib/aarch64-linux-gnu",
    ] {
        fs::create_dir_all(folder.join(lib)).expect("writable");
        symlink(library(), folder.join(lib).join("libgpushare.so")).expect("a link can be made");
    }
    folder.join("$LIB/libgpushare.so")
}

/// In a privileged program (here one with a file capability, run by an ordinary user) the dynamic
/// linker ignores `LD_PRELOAD`, but not a library that the program needs or that /etc/ld.so.preload
/// names.
#[test]
fn a_privileged_program_gets_the_drivers_own_functions() {
    let folder = folder("secure");
    let driver = driver_in(&folder);
    let client = folder.join("secure");
    let library = library();
    let path = format!(
        "-Wl,--no-as-needed,-rpath,{}",
        library.parent().expect("a folder").display()
    );
    compile(
        "secure.c",
        &client,
        &[path.as_str(), library.to_str().expect("text"), "-ldl"],
    );
    let as_user = || {
        let mut command = Command::new(&client);
        command.arg(&driver).uid(65534).gid(65534);
        command
    };
    let answer = |mut command: Command| command.output().map(|output| text(&output));
    let Ok(plain) = answer(as_user()) else {
        skipped(
            "a_privileged_program_gets_the_drivers_own_functions",
            "needs root to become another user",
        );
        return;
    };
    assert_eq!(plain, "secure 0, cuInit in libgpushare.so\n");
    let capable = Command::new("setcap")
        .arg("cap_net_raw+ep")
        .arg(&client)
        .status();
    if !capable.is_ok_and(|status| status.success()) {
        skipped(
            "a_privileged_program_gets_the_drivers_own_functions",
            "setcap is not possible here",
        );
        return;
    }
    let secure = answer(as_user()).expect("runs");
    if secure.starts_with("secure 0") {
        skipped(
            "a_privileged_program_gets_the_drivers_own_functions",
            &format!("file capabilities have no effect on {}", folder.display()),
        );
        return;
    }
    assert_eq!(secure, "secure 1, cuInit in libcuda.so.1\n");
}

#[test]
fn a_library_that_cannot_be_written_to_is_enough() {
    let folder = folder("readonly");
    let copy = folder.join("libgpushare.so");
    fs::copy(library(), &copy).expect("writable");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o444)).expect("ours");
    let output = with_preload(Command::new("echo").arg("fine"), &[&copy])
        .output()
        .expect("runs");
    assert_eq!(text(&output), "fine\n");
}
