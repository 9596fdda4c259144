//! The kept inputs of the parsers' fuzzer (`scripts/fuzz_parsers.sh`) hold in every run.

use std::path::PathBuf;

use gpushare_tests::artefacts;

#[path = "../../fuzz/src/targets.rs"]
mod targets;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = artefacts::repository().join("fuzz/corpus").join(target);
    let files = std::fs::read_dir(folder).expect("a corpus").flatten();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("a readable file");
        (path, bytes)
    };
    files.map(|file| read(file.path())).collect()
}

#[test]
fn kept_inputs_hold_and_each_parser_accepts_one_and_refuses_one() {
    for (name, target) in targets::ALL {
        let accepted = corpus(name).into_iter().map(|(path, bytes)| {
            eprintln!("{}", path.display());
            target(&bytes)
        });
        let accepted: Vec<bool> = accepted.collect();
        assert!(accepted.contains(&true), "{name}: none is accepted");
        assert!(accepted.contains(&false), "{name}: none is refused");
    }
}

#[test]
fn each_folder_of_the_corpus_has_a_target() {
    let folders = std::fs::read_dir(artefacts::repository().join("fuzz/corpus"));
    let folders = folders.expect("the corpora are there").flatten();
    for folder in folders {
        let name = folder.file_name();
        assert!(
            targets::ALL.iter().any(|(known, _)| name == *known),
            "{}",
            folder.path().display()
        );
    }
}
