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
    let header = fs::read(source.with_file_name("cuda_names.h")).unwrap_or_default();
    let mut hash = DefaultHasher::new();
    (text, header, flags).hash(&mut hash);
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

/// Compiles under a temporary name and renames the program, because several tests may need one
/// client at the same time.
fn build(source: &Path, program: &Path, flags: &[&str]) {
    let fresh = tempfile::Builder::new()
        .tempfile_in(artefacts::cache())
        .expect("the cache is writable")
        .into_temp_path();
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-Wall", "-Werror", "-pthread", "-o"])
        .arg(&fresh)
        .arg(source)
        .args(flags)
        .arg("-ldl");
    let output = cc.output().expect("cc is installed");
    assert!(
        output.status.success(),
        "{}: {}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    fs::rename(&fresh, program).expect("a rename within one folder");
}
