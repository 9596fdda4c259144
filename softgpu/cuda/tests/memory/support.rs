//! What the tests of the C library share: the library by its names, C clients linked against it, machines of their own.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A folder with the library under test, which cargo builds beside the test, by the names its users look for.
pub(crate) fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = env::current_exe().expect("/proc is mounted");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("memory");
        fs::create_dir_all(&folder).expect("the target folder is writable");
        for name in ["libcuda.so.1", "libcuda.so"] {
            let _ = fs::remove_file(folder.join(name));
            symlink(test.with_file_name("libsoftgpu_cuda.so"), folder.join(name))
                .expect("the target folder is writable");
        }
        folder
    })
}

/// Compiles a client, once for all cases.
pub(crate) fn client(name: &str) -> PathBuf {
    static BUILT: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let library = library();
    let program = library.join(name);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if !built.iter().any(|done| done == name) {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-g", "-Wall", "-Werror", "-pthread", "-o"])
            .arg(&program);
        cc.arg(sources.join(name).with_extension("c"))
            .arg("-L")
            .arg(library)
            .arg("-lcuda");
        assert!(
            cc.status().expect("cc is installed").success(),
            "{name}.c does not compile"
        );
        built.push(name.to_owned());
    }
    program
}

/// Runs one case on a machine of its own and returns what it printed.
pub(crate) fn run(name: &str, case: &str, spec: &str) -> String {
    let program = client(name);
    let output = Command::new(program)
        .arg(case)
        .env("LD_LIBRARY_PATH", library())
        .env("SOFTGPU", spec)
        .env(
            "SOFTGPU_PRIVATE",
            format!("{}-{name}-{case}", std::process::id()),
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
