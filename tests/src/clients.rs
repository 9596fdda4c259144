//! C clients, compiled once per content and kept.

use crate::artefacts;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `tests/clients/<name>.c` with `cc -O1 -Wall -Werror -pthread` and the `flags`, unless
/// the same source was compiled before with these flags.
pub fn compile(name: &str, flags: &[&str]) -> PathBuf {
    let source = artefacts::repository()
        .join("tests/clients")
        .join(name)
        .with_extension("c");
    let text = fs::read(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
    let folder = source.with_extension("");
    let parts = [parts(&folder), parts(&folder.with_file_name("common"))];
    let mut hash = DefaultHasher::new();
    (text, parts, flags).hash(&mut hash);
    let stem = source
        .file_stem()
        .expect("it names a file")
        .to_string_lossy();
    let program = artefacts::cache().join(format!("{stem}-{:016x}", hash.finish()));
    if !program.exists() {
        build(&source, &program, flags);
    }
    program
}

/// A folder for the library path with the driver `tests/clients/<name>.c` as `libcuda.so.1`.
pub fn driver(name: &str) -> PathBuf {
    let built = compile(name, &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
    let folder = built.with_extension("folder");
    fs::create_dir_all(&folder).expect("the target folder is writable");
    let fresh = tempfile::NamedTempFile::new_in(&folder).expect("a writable folder");
    fs::copy(&built, fresh.path()).expect("a copy");
    let named = fresh.into_temp_path().persist(folder.join("libcuda.so.1"));
    named.expect("a rename");
    folder
}

/// The program of driver facts (`softgpu/conformance`), compiled once per content and kept. It is
/// not optimised: that would take longer than the program runs.
pub fn facts() -> PathBuf {
    let folder = artefacts::repository().join("softgpu/conformance");
    let mut hash = DefaultHasher::new();
    parts(&folder).hash(&mut hash);
    let program = artefacts::cache().join(format!("facts-{:016x}", hash.finish()));
    if !program.exists() {
        let files = fs::read_dir(&folder).expect("the facts are there");
        let files = files.map(|file| file.expect("the folder is readable").path());
        let sources = files.filter(|path| path.extension().is_some_and(|name| name == "c"));
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O0"]).args(sources);
        cc.args(["-ldl", "-lpthread"]);
        compiled(cc, &program);
    }
    program
}

/// The files in a folder: of a client's name, which only that client includes, or of all.
fn parts(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let read = |path: &PathBuf| fs::read(path).expect("a readable file");
    paths.iter().map(read).collect()
}

fn build(source: &Path, program: &Path, flags: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-Wall", "-Werror", "-pthread"])
        .arg(source)
        .args(flags)
        .arg("-ldl");
    compiled(cc, program);
}

/// Compiles under a temporary name and renames the program, because several tests may need one
/// client at the same time.
fn compiled(mut cc: Command, program: &Path) {
    let fresh = tempfile::Builder::new()
        .tempfile_in(artefacts::cache())
        .expect("the cache is writable")
        .into_temp_path();
    let output = cc.arg("-o").arg(&fresh).output().expect("cc is installed");
    assert!(
        output.status.success(),
        "{}: {}",
        program.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    fs::rename(&fresh, program).expect("a rename within one folder");
}
