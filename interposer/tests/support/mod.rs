//! Shared helpers of the tests of interposition: C programs compiled on demand, run with and
//! without the library.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The library under test: the one `GPUTEST_LIBRARY` names, such as a packaged one, else that
/// of the test's own build.
pub(crate) fn library() -> PathBuf {
    if let Some(packaged) = std::env::var_os("GPUTEST_LIBRARY") {
        return packaged.into();
    }
    let deps = std::env::current_exe().expect("a running test has a path");
    let deps = deps.parent().expect("tests lie in a folder");
    let library = deps.join("libgpushare.so");
    assert!(
        library.exists(),
        "cargo builds {} before this test",
        library.display()
    );
    library
}

/// A fresh folder for one test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the build folder is writable");
    folder
}

/// Compiles `tests/clients/<source>` with `cc` into `output`.
pub(crate) fn compile<A: AsRef<OsStr>>(source: &str, output: &Path, arguments: &[A]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(source);
    let made = Command::new("cc")
        .args([
            "-O1",
            "-Wall",
            "-Werror",
            "-Wno-unused-command-line-argument",
            "-o",
        ])
        .args([output, &source])
        .args(arguments)
        .output()
        .expect("cc can be run");
    assert!(
        made.status.success(),
        "{}: {}",
        source.display(),
        String::from_utf8_lossy(&made.stderr)
    );
}

/// A stand-in for the driver with a few functions, under its real name in `folder`.
pub(crate) fn driver_in(folder: &Path) -> PathBuf {
    let driver = folder.join("libcuda.so.1");
    compile(
        "driver.c",
        &driver,
        &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"],
    );
    let link = folder.join("libcuda.so");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink("libcuda.so.1", link).expect("a link can be made");
    driver
}

/// Runs `program` under `preload` (empty for none) and returns its standard output; anything else
/// than success is a failure.
pub(crate) fn run(program: &Path, arguments: &[&str], preload: &[&Path]) -> String {
    let mut command = Command::new(program);
    command.args(arguments);
    succeed(with_preload(&mut command, preload))
}

/// Adds an `LD_PRELOAD` of these libraries in this order.
pub(crate) fn with_preload<'a>(command: &'a mut Command, preload: &[&Path]) -> &'a mut Command {
    let list: Vec<_> = preload
        .iter()
        .map(|path| path.to_str().expect("paths of tests are text"))
        .collect();
    if list.is_empty() {
        command.env_remove("LD_PRELOAD")
    } else {
        command.env("LD_PRELOAD", list.join(":"))
    }
}

/// Runs to the end, which must be a success, and returns the standard output.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("the program can be run");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        text(&output)
    );
    String::from_utf8(output.stdout).expect("the program prints text")
}

/// Both streams of a finished program, for messages.
pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Notes a test that cannot run here, and why: `scripts/test.sh` counts the file's lines.
pub(crate) fn skipped(test: &str, why: &str) {
    eprintln!("{test}: not runnable here: {why}");
    if let Some(list) = std::env::var_os("GPUTEST_NOT_RUNNABLE") {
        let list = File::options().append(true).create(true).open(list);
        writeln!(list.expect("the list is writable"), "{test}: {why}").expect("it can be written");
    }
}
