//! softgpu gives the answers of the conformance transcript. Prints how many of them a real driver
//! has confirmed.
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance")
}

/// The lines that the program prints on softgpu.
fn answers() -> Vec<String> {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("facts");
    let files = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "c"));
    let mut compile = Command::new("cc");
    compile
        .args(["-std=gnu11", "-O1", "-o"])
        .arg(&program)
        .args(sources)
        .args(["-ldl", "-lpthread"]);
    assert!(compile.status().expect("a C compiler").success());
    let library = env::current_exe()
        .unwrap()
        .with_file_name("libsoftgpu_cuda.so");
    let output = Command::new(program)
        .arg("--beyond")
        .arg(library)
        // Some facts are of drivers from 13.1 on.
        .env("SOFTGPU", "driver=13050")
        .env("SOFTGPU_PRIVATE", format!("facts-{}", std::process::id()))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn softgpu_gives_every_answer_of_the_transcript() {
    let transcript = fs::read_to_string(folder().join("transcript.tsv")).unwrap();
    let lines: Vec<(&str, &str)> = transcript
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once('\t').unwrap())
        .collect();
    let answers = answers();
    let unverified = lines
        .iter()
        .filter(|(_, driver)| *driver == "unverified")
        .count();
    println!(
        "{} facts recorded on a real driver, {} unverified",
        lines.len() - unverified,
        unverified
    );
    let differ = lines
        .iter()
        .map(|(fact, _)| *fact)
        .filter(|fact| !answers.iter().any(|answer| answer == fact));
    let new = answers
        .iter()
        .map(String::as_str)
        .filter(|answer| !lines.iter().any(|(fact, _)| fact == answer));
    let (differ, new): (Vec<_>, Vec<_>) = (differ.collect(), new.collect());
    assert!(
        differ.is_empty() && new.is_empty(),
        "the transcript says {differ:#?}\nsoftgpu says {new:#?}"
    );
    assert!(
        lines
            .iter()
            .map(|(fact, _)| *fact)
            .eq(answers.iter().map(String::as_str)),
        "the facts must be in the transcript's order"
    );
}
