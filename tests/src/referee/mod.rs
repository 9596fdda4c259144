//! The differential fuzzer: runs one sequence of driver calls without gpushare and with it. The
//! answers must be the same, except for the effects of a quota.
//!
//! `tests/clients/fuzz.c` makes the sequence from a seed, as a list of calls that can be cut. Where
//! memory may be refused, the hooked run goes first. Its calls that ran out of memory are passed to
//! the bare run. The bare run makes these calls, undoes their allocations, and reports out of
//! memory too, or reports the call's other error. After that the two transcripts must be equal: a
//! quota may turn a success into out of memory, and nothing else. Where no quota binds they must be
//! equal at once. A run that does not end is a difference. So is a quota that is exceeded, or that
//! is not whole again once everything was given back.

pub mod modes;
pub mod plan;
pub mod runs;
mod shrink;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use modes::Mode;
pub use plan::Plan;
use runs::{Said, run, same};

use crate::guest::plain;
use crate::{Gpu, artefacts, clients};

/// Where failed cases are kept, a file each.
const KEPT: &str = "tests/data/fuzz";

/// One sequence of calls, and the conditions of its hooked run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The conditions.
    pub mode: Mode,
    /// The calls.
    pub plan: Plan,
}

/// The counts of two runs without a difference.
#[derive(Debug, Default)]
pub struct Shown {
    /// How often each call was made, and how often it succeeded.
    pub calls: BTreeMap<String, (u64, u64)>,
    /// Calls that a quota refused.
    pub refused: usize,
}

/// Why two runs differ, in one text.
type Difference = String;

impl Case {
    /// As a seed gives it.
    #[must_use]
    pub fn of_seed(mode: Mode, seed: u64, calls: usize, threads: usize) -> Self {
        Self {
            mode,
            plan: mode.plan(Plan::of_seed(&program(), seed, calls, threads)),
        }
    }

    /// Runs it both ways.
    ///
    /// # Errors
    /// How they differ.
    pub fn check(&self) -> Result<Shown, Difference> {
        let hooked = self.mode.run(&program(), &self.plan.script(&[]))?;
        let refused = if self.mode.may_refuse() {
            hooked.refused()
        } else {
            Vec::new()
        };
        same(&hooked, &self.bare(&refused)?, self.mode)?;
        Ok(Shown {
            calls: hooked.tally(),
            refused: refused.len(),
        })
    }

    /// Runs it both ways without the quota model: every effect of a quota counts as a difference.
    ///
    /// # Errors
    /// How they differ.
    pub fn check_without_model(&self) -> Result<(), Difference> {
        let hooked = self.mode.run(&program(), &self.plan.script(&[]))?;
        same(&hooked, &self.bare(&[])?, self.mode)
    }

    fn bare(&self, refused: &[(usize, usize)]) -> Result<Said, Difference> {
        let command = plain(&Gpu::new(modes::DEVICE), &program());
        run("bare", command, &self.plan.script(refused))
    }

    /// With as few calls as still show a difference of this kind.
    #[must_use]
    pub fn shrunk(&self, difference: &str) -> Self {
        let kind = kind_of(difference);
        let same_kind = |case: &Self| {
            let found = case.check().err();
            found.is_some_and(|found| kind_of(&found) == kind)
        };
        shrink::shrunk(self, same_kind)
    }

    /// Writes it where failed cases are kept, with `why` above it. Returns the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, name: &str, why: &str) -> std::io::Result<PathBuf> {
        let file = folder().join(name).with_extension("txt");
        let why: String = why.lines().map(|line| format!("# {line}\n")).collect();
        std::fs::write(&file, format!("{why}{self}"))?;
        Ok(file)
    }
}

/// A difference without its numbers, and without what the bare run said.
fn kind_of(difference: &str) -> String {
    let first = difference.lines().next().unwrap_or_default();
    first.replace(|letter: char| letter.is_ascii_digit(), "")
}

/// The cases that are kept, by name.
#[must_use]
pub fn kept() -> Vec<(String, Case)> {
    let files = std::fs::read_dir(folder()).expect("the kept cases are there");
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path).expect("a readable file");
        let case = text
            .parse()
            .unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let name = path.file_stem().expect("a file").to_string_lossy();
        (name.into_owned(), case)
    };
    let mut cases: Vec<_> = files.flatten().map(|file| read(&file.path())).collect();
    cases.sort_by(|a: &(String, Case), b| a.0.cmp(&b.0));
    cases
}

/// The names of all calls.
#[must_use]
pub fn calls() -> Vec<String> {
    let output = std::process::Command::new(program()).arg("calls").output();
    let output = output.expect("the program starts");
    let names = String::from_utf8(output.stdout).expect("it writes text");
    names.lines().map(ToOwned::to_owned).collect()
}

fn program() -> PathBuf {
    clients::compile("fuzz", &[])
}

fn folder() -> PathBuf {
    artefacts::repository().join(KEPT)
}

/// The text of a kept case.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mode {}\n{}", self.mode, self.plan)
    }
}

/// Lines that begin with `#` say what was wrong.
impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .collect();
        let first = lines.first().copied().unwrap_or_default();
        let mode = first.strip_prefix("mode ");
        let mode = mode.ok_or_else(|| format!("not mode MODE: {first}"))?;
        Ok(Self {
            mode: mode.parse()?,
            plan: lines[1..].join("\n").parse()?,
        })
    }
}
