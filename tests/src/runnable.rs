//! Tests that cannot run here are noted by name instead of passing silently.

use crate::{artefacts, clients};
use std::env;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// `scripts/test.sh` sets it to a file and counts the file's lines.
const LIST: &str = "GPUTEST_NOT_RUNNABLE";
/// The scripts' status for a missing prerequisite.
const NOT_HAD: i32 = 3;

/// Notes that `test` cannot run here, and the reason.
pub fn not_runnable_here(test: &str, why: &str) {
    eprintln!("{test}: not runnable here: {why}");
    if let Some(list) = env::var_os(LIST) {
        let mut list = File::options()
            .append(true)
            .create(true)
            .open(list)
            .expect("the list is writable");
        writeln!(list, "{test}: {why}").expect("the list is writable");
    }
}

/// Whether this kernel offers `membarrier`; where not, `test` is noted.
pub fn has_membarrier(test: &str) -> bool {
    let output = Command::new(clients::compile("barrier_offered", &[])).status();
    let offered = output.is_ok_and(|status| status.success());
    if !offered {
        not_runnable_here(test, "the kernel offers no membarrier");
    }
    offered
}

/// The last output line of a preparing script, usually a folder. `None`, noted under `test`, if the
/// script lacks its prerequisites.
pub fn prepared(test: &str, script: &str, arguments: &[&str]) -> Option<PathBuf> {
    let target = artefacts::folder()
        .parent()
        .expect("a profile is in a target folder")
        .to_owned();
    let path = artefacts::repository().join("scripts").join(script);
    let output = Command::new(&path)
        .args(arguments)
        .env("CARGO_TARGET_DIR", target)
        .output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let complaint = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Some(String::from_utf8_lossy(&output.stdout).trim().into()),
        Some(NOT_HAD) => {
            not_runnable_here(
                test,
                complaint
                    .trim()
                    .lines()
                    .last()
                    .unwrap_or("it did not say why"),
            );
            None
        }
        _ => panic!("{}: {}: {complaint}", path.display(), output.status),
    }
}
