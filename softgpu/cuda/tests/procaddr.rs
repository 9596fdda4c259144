//! `cuGetProcAddress` against the symbol table, which a second, simple implementation resolves
//! here: for every name, at every version where the answer may change, with every flag, on several
//! drivers.

#![allow(clippy::unwrap_used, reason = "a test fails on any error")]

use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::{env, fs};

/// One row of the table: symbol, base name, minimum version, twin.
struct Row {
    symbol: String,
    base: String,
    version: i32,
    twin: Option<String>,
    is_twin: bool,
}

fn table() -> Vec<Row> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interposer/cuda-abi/symbols/cuda.tsv");
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("cu"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            Row {
                symbol: cells[0].into(),
                base: cells[1].into(),
                version: cells[2].parse().unwrap(),
                twin: cells[3].strip_prefix("twin:").map(str::to_owned),
                is_twin: cells[3] == "is-twin",
            }
        })
        .collect()
}

/// The names that `src/api` defines, found by a search of its text.
fn implemented() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let code: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        let words: Vec<&str> = code
            .iter()
            .flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'))
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words
            .windows(2)
            .filter(|pair| pair[0] == "fn" || pair[0] == "twin")
        {
            if pair[1].starts_with("cu") {
                found.insert(pair[1].to_owned());
            }
        }
    }
    found
}

/// The symbol that a lookup must find, by reading the rows in order.
fn meant<'a>(rows: &[&'a Row], version: i32, flags: u64) -> Option<&'a str> {
    let mut best: Option<&Row> = None;
    for row in rows
        .iter()
        .filter(|row| !row.is_twin && row.version <= version)
    {
        if best.is_none_or(|best| row.version > best.version) {
            best = Some(row);
        }
    }
    let best = best?;
    let Some(twin) = best.twin.as_ref().filter(|_| flags == 2) else {
        return Some(&best.symbol);
    };
    let reached = |row: &&&Row| row.symbol == *twin && row.version <= version;
    rows.iter().find(reached).map(|row| row.symbol.as_str())
}

/// The expected result, status and symbol.
fn expected(
    rows: &[&Row],
    implemented: &BTreeSet<String>,
    driver: i32,
    version: i32,
    flags: u64,
) -> String {
    if version > driver || flags > 2 {
        return "1 -1 -".to_owned();
    }
    let known =
        |version| meant(rows, version, flags).filter(|symbol| implemented.contains(*symbol));
    match (known(version), known(driver)) {
        (Some(symbol), _) => format!("0 0 {symbol}"),
        (None, Some(_)) => "0 2 -".to_owned(),
        (None, None) => "0 1 -".to_owned(),
    }
}

fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().unwrap().join("libsoftgpu_cuda.so")
}

/// The C client, compiled once for all tests.
static CLIENT: LazyLock<PathBuf> = LazyLock::new(|| common::client("gpa.c"));

/// Sends every query to one driver; returns the answers in order.
fn answers(driver: i32, questions: &str) -> Vec<String> {
    let mut command = Command::new(&*CLIENT);
    command
        .arg(library())
        .env("SOFTGPU", format!("driver={driver}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = questions.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_name_version_and_flag_resolves_as_the_table_says() {
    let (table, implemented) = (table(), implemented());
    let mut by_base: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in &table {
        by_base.entry(&row.base).or_default().push(row);
    }
    for driver in [11040, 12080, 13050] {
        let mut questions = String::new();
        let mut wanted = Vec::new();
        for (base, rows) in &by_base {
            let edges = rows
                .iter()
                .flat_map(|row| [row.version - 1, row.version, row.version + 1]);
            let versions: BTreeSet<i32> = edges
                .chain([0, 7000, driver - 1, driver, driver + 10])
                .collect();
            for (version, flags) in versions
                .iter()
                .flat_map(|version| [(*version, 0), (*version, 1), (*version, 2), (*version, 3)])
            {
                writeln!(questions, "{base} {version} {flags}").unwrap();
                wanted.push((
                    format!("{base} {version} {flags}"),
                    expected(rows, &implemented, driver, version, flags),
                ));
            }
        }
        let answers = answers(driver, &questions);
        assert_eq!(answers.len(), wanted.len());
        for ((question, wanted), answer) in wanted.iter().zip(&answers) {
            assert_eq!(answer, wanted, "driver {driver}: {question}");
        }
    }
}

#[test]
fn unknown_names_are_not_found_without_an_error() {
    let answers = answers(
        12080,
        "- 0 0\n- 12080 2\ncuMemAlloc_v2 12080 0\ncuNoSuchFunction 12080 0\nmain 12080 0\n",
    );
    assert_eq!(answers, ["0 1 -"; 5]);
}
