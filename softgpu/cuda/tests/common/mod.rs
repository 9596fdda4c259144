//! Code shared by tests of the C library.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `tests/clients/SOURCE`. Tests are separate processes and may compile a client at the
/// same time. So the program is renamed into place: no process overwrites a program that another
/// process executes.
pub(crate) fn client(source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source.replace(".c", "-client"));
    let fresh = program.with_extension(std::process::id().to_string());
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-pthread", "-o"]).arg(&fresh);
    let built = cc.arg(folder.join(source)).arg("-ldl").status();
    assert!(built.expect("a C compiler").success());
    std::fs::rename(fresh, &program).expect("a rename within one folder");
    program
}
