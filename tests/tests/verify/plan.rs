//! The order of the rows, and the words of `verify.sh`.

use super::run;
use gpushare_tests::artefacts;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// The longest time in which rows with open questions end (s): so much is left of a lease of a
/// machine for its start and for one more try.
const OPEN: u32 = 350;

fn listed(flags: &[&str]) -> String {
    let mut command = Command::new("python3");
    command
        .arg(artefacts::repository().join("scripts/gpu/verify.py"))
        .arg("--list")
        .args(flags)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    String::from_utf8(command.output().expect("it runs").stdout).expect("ASCII")
}

#[test]
fn rows_with_open_questions_come_first_and_leave_time_of_a_lease() {
    let listed = listed(&[]);
    let open = listed.lines().take_while(|line| line.ends_with(" (open)"));
    let last = open.last().expect("an open question");
    let end = last.split_whitespace().next().expect("seconds");
    assert!(end.parse::<u32>().expect("a number") <= OPEN, "{last}");
    let behind = listed.split_once(last).expect("it has the line").1;
    assert!(!behind.contains("(open)"), "{listed}");
}

/// Writes a report of that name with these rows and their verdicts.
fn report(folder: &TempDir, name: &str, moment: &str, rows: &[(&str, &str)]) {
    let mut text = format!("# What a real GPU showed, {moment} UTC, at v0\n");
    for (row, verdict) in rows {
        text += &format!("| {row} | **{verdict}** | x | 1 s |\n");
    }
    fs::write(folder.path().join(name), text).expect("it is written");
}

/// The rows of the list in which there is no open question, by these reports.
fn settled(folder: &TempDir) -> Vec<String> {
    let folder = folder.path().to_str().expect("UTF-8");
    let listed = listed(&["--reports", folder]);
    let rest = listed.lines().filter(|line| !line.ends_with(" (open)"));
    let name = |line: &str| line.split_once(" s  ").expect("a row").1.to_owned();
    rest.map(name).collect()
}

#[test]
fn a_row_that_failed_when_it_last_ran_comes_before_those_that_passed() {
    let folder = TempDir::new().expect("a folder");
    let passed = |row| (row, "PASS");
    let names = settled(&folder);
    let all: Vec<_> = names.iter().map(|name| passed(name.as_str())).collect();
    let row = "quota: mipmap";
    let first = || settled(&folder).remove(0);
    // By their names the second one is the older one.
    report(&folder, "1-verify-H-2.md", "2026-11-02 09:00", &all);
    report(
        &folder,
        "1-verify-H.md",
        "2026-11-02 08:00",
        &[(row, "FAIL")],
    );
    assert_ne!(first(), row);
    report(
        &folder,
        "0-verify-H.md",
        "2026-11-02 10:00",
        &[(row, "FAIL")],
    );
    assert_eq!(first(), row);
    // There was no time for it.
    report(
        &folder,
        "2-verify-H.md",
        "2026-11-02 11:00",
        &[(row, "not available")],
    );
    assert_eq!(first(), row);
    report(&folder, "3-verify-H.md", "2026-11-02 12:00", &[passed(row)]);
    assert_ne!(first(), row);
}

#[test]
fn of_rows_that_passed_the_short_ones_come_first() {
    let folder = TempDir::new().expect("a folder");
    let place = |names: &[String], row: &str| names.iter().position(|name| name == row);
    let (short, long) = ("time: cap50", "PyTorch time: caps alone");
    let unknown = settled(&folder);
    assert!(place(&unknown, long) < place(&unknown, short));
    let all: Vec<_> = unknown.iter().map(|name| (name.as_str(), "PASS")).collect();
    report(&folder, "1-verify-H.md", "2026-11-02 09:00", &all);
    let known = settled(&folder);
    assert!(place(&known, short) < place(&known, long));
}

/// `verify.sh` with these words, and `--list`.
fn script(words: &[&str]) -> Output {
    let mut command = Command::new(artefacts::repository().join("scripts/gpu/verify.sh"));
    command.args(words).arg("--list");
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.output().expect("it runs")
}

#[test]
fn the_script_takes_the_longest_time_of_a_row() {
    assert!(script(&["--row", "8"]).status.success());
    let refused = script(&["--rows", "8"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("unknown option --rows"), "{said}");
}

/// `verify.sh` alone in a folder with what `package.sh` and `carry_runc.sh` would leave.
fn packaged(commit: &str, left_out: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let from = artefacts::repository();
    let copies = ["scripts/common.sh", "scripts/gpu/verify.sh"];
    let of_dist = "COMMIT gpushare gpushared gpushare-oci-hook gpushare-runtime lib/libgpushare.so carried/runc";
    for name in copies {
        let text = fs::read(from.join(name)).expect("it is there");
        script_at(&folder.path().join(name), &text);
    }
    for name in of_dist.split(' ').filter(|name| *name != left_out) {
        script_at(&folder.path().join("dist").join(name), commit.as_bytes());
    }
    folder
}

fn script_at(path: &Path, text: &[u8]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
    fs::write(path, text).expect("it is written");
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("it is ours");
}

fn lacks(folder: &TempDir) -> (bool, String) {
    let mut command = Command::new(folder.path().join("scripts/gpu/verify.sh"));
    let output = command
        .args(["--dist", "--check"])
        .env("PATH", "/usr/bin:/bin");
    let output = output.output().expect("it runs");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    (output.status.success(), said)
}

#[test]
fn what_a_run_of_packaged_programs_lacks_is_said_before_it() {
    assert_eq!(lacks(&packaged("v1", "")), (true, String::new()));
    let (is_whole, said) = lacks(&packaged("v1", "gpushare-runtime"));
    assert!(
        !is_whole && said.contains("no dist/gpushare-runtime"),
        "{said}"
    );
    // They are of another commit than the scripts.
    let other = packaged("v1", "");
    let git = "git init -q && git -c user.name=a -c user.email=a commit -q --allow-empty -m a";
    let mut commit = Command::new("sh");
    commit.args(["-c", git]).current_dir(other.path());
    assert!(commit.status().expect("it runs").success());
    let (is_whole, said) = lacks(&other);
    assert!(
        !is_whole && said.contains("dist/ is of the commit v1, and"),
        "{said}"
    );
}

/// Rows that need another machine, engine or library than tests have; and those that a stand-in
/// for PyTorch has in tests of their own.
const NOT_HERE: &str = "^(PyTorch|a container by |the driver's limits for cgroups$\
                        |swap: 16 GiB out and back$|limits of memory beside MPS$)";

#[test]
#[ignore = "long tier: takes seven minutes"]
fn every_row_that_the_software_gpu_can_show_passes() {
    let holder = artefacts::repository().join("tests/clients/holder.py");
    let holder = holder.to_str().expect("UTF-8");
    let only = NOT_HERE.replacen('^', "^(?!", 1) + ")";
    let flags = ["--holder", holder, "--seconds", "1800", "--only", &only];
    let run = run(&artefacts::gpushare(), &flags, &[]);
    let last = run.last_line();
    let passed = |line: &str| !line.contains("FAIL") && !line.contains("not available");
    assert!(
        run.output.status.success() && passed(last),
        "{}",
        run.report
    );
}
