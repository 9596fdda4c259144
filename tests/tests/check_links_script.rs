//! `scripts/check_links.py`: what it says of documents that are wrong.

use gpushare_tests::artefacts::repository;
use std::process::Command;

/// A decision's page of this number, with this status.
fn page(number: u32, status: &str) -> String {
    format!("{number}: '# A title\\n\\n**Status.** Accepted. {status}\\n\\n**Decision.** Yes.\\n'")
}

/// The lines that a function of the script makes of these arguments, which are Python.
fn said(call: &str) -> Vec<String> {
    let program = format!("import check_links as it\nprint(*it.{call}, sep='\\n')");
    let output = Command::new("python3")
        .args(["-B", "-c", &program])
        .env("PYTHONPATH", repository().join("scripts"))
        .output()
        .expect("python3 starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

/// The faults told of decision 1, which says this of itself and has this row in the index, beside
/// 2, which amends it.
fn of_amended(status: &str, row: &str) -> Vec<String> {
    let pages = [page(1, status), page(2, "Amends [1](0001-a.md) (a part).")].join(", ");
    let index = format!("| [1](0001-a.md) | A | {row} |\\n| [2](0002-b.md) | B | accepted |");
    said(&format!("one_sided({{{pages}}}, '{index}')"))
}

#[test]
fn a_decision_has_to_name_the_one_that_amends_it() {
    assert_eq!(
        of_amended("", "amended by 2"),
        ["1: its status does not name 2, which changes it"]
    );
    let named = "Amended by [2](0002-b.md): a part.";
    assert_eq!(
        of_amended(named, "accepted"),
        ["README.md: the row of 1 does not name 2, which changes it"]
    );
    assert_eq!(of_amended(named, "amended by 2"), [] as [&str; 0]);
}

#[test]
fn a_decision_that_is_only_mentioned_need_not_name_the_other() {
    let pages = [page(1, ""), page(2, "As in [1](0001-a.md).")].join(", ");
    let index = "| [1](0001-a.md) | A | accepted |\\n| [2](0002-b.md) | B | accepted |";
    assert_eq!(
        said(&format!("one_sided({{{pages}}}, '{index}')")),
        [] as [&str; 0]
    );
}

/// The faults told of a walk with these names of files, where `b.rs` is in two folders.
fn of_walk(names: &str) -> Vec<String> {
    said(&format!(
        "strays('### A walk\\n\\n1. {names}\\n', ['x/a.rs', 'x/b.rs', 'y/b.rs'])"
    ))
}

#[test]
fn a_file_that_may_be_one_of_several_has_to_be_told_apart() {
    assert_eq!(of_walk("`b.rs`"), ["A walk: b.rs may be one of 2 files"]);
    assert_eq!(of_walk("`a.rs`, `b.rs`"), [] as [&str; 0], "beside a file");
    assert_eq!(of_walk("`y/b.rs`"), [] as [&str; 0], "by its folder");
}

#[test]
fn a_file_that_is_not_there_or_named_twice_is_told() {
    assert_eq!(of_walk("`c.rs`"), ["A walk: c.rs: no such file"]);
    assert_eq!(
        of_walk("`a.rs`, `a.rs`"),
        ["A walk: a.rs is named 2 times in one walk"]
    );
}
