//! Code shared by the tests of the C library: the library by its names, C clients linked against
//! it, and separate machines.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;

/// A folder with the library under test, which cargo builds next to the test, by the names that its
/// users look for.
///
/// Tests may run as separate processes, so links and programs are renamed into place and never
/// exist half made.
pub(crate) fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = env::current_exe().expect("/proc is mounted");
        let library = test.with_file_name("libsoftgpu_cuda.so");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("memory");
        fs::create_dir_all(&folder).expect("the target folder is writable");
        for name in ["libcuda.so.1", "libcuda.so"] {
            let fresh = folder.join(format!("{name}.{}", process::id()));
            symlink(&library, &fresh).expect("the target folder is writable");
            fs::rename(&fresh, folder.join(name)).expect("a rename within one folder");
        }
        folder
    })
}

/// Compiles a client, unless a test has compiled this source already.
pub(crate) fn client(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(name)
        .with_extension("c");
    let mut hash = DefaultHasher::new();
    for entry in fs::read_dir(source.parent().expect("it is in a folder")).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        if path == source || path.extension().is_some_and(|end| end == "h") {
            fs::read(path).expect("it can be read").hash(&mut hash);
        }
    }
    let program = library().join(format!("{name}-{:016x}", hash.finish()));
    if !program.exists() {
        build(&source, &program);
    }
    program
}

fn build(source: &Path, program: &Path) {
    let fresh = program.with_extension(process::id().to_string());
    let built = Command::new("cc")
        .args(["-O1", "-g", "-Wall", "-Werror", "-pthread", "-o"])
        .arg(&fresh)
        .arg(source)
        .arg("-L")
        .arg(library())
        .arg("-lcuda")
        .status()
        .expect("cc is installed");
    assert!(built.success(), "{} does not compile", source.display());
    fs::rename(&fresh, program).expect("a rename within one folder");
}

/// Runs one case on a separate machine; returns the printed text.
pub(crate) fn run(name: &str, case: &str, spec: &str) -> String {
    let program = client(name);
    let output = Command::new(program)
        .arg(case)
        .env("LD_LIBRARY_PATH", library())
        .env("SOFTGPU", spec)
        .env(
            "SOFTGPU_PRIVATE",
            format!("{}-{name}-{case}", process::id()),
        )
        .env_remove("SOFTGPU_FAIL")
        .output()
        .expect("the client starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{name} {case}: {:?}\n{said}",
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
