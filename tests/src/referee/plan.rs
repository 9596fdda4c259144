//! A sequence of calls, and its text form, which `tests/clients/fuzz.c` writes and reads.

use std::fmt::{self, Write};
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The thread that makes it.
    pub thread: usize,
    /// Its place in the seed's sequence of that thread.
    pub index: usize,
    /// Its name in the program's table.
    pub name: String,
    /// The number that its arguments derive from.
    pub choices: u64,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            thread,
            index,
            name,
            choices,
        } = self;
        write!(f, "{thread}.{index} {name} {choices:016x}")
    }
}

impl FromStr for Call {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let call = || {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [place, name, choices] = words[..] else {
                return None;
            };
            let (thread, index) = place.split_once('.')?;
            Some(Self {
                thread: thread.parse().ok()?,
                index: index.parse().ok()?,
                name: name.to_owned(),
                choices: u64::from_str_radix(choices, 16).ok()?,
            })
        };
        call().ok_or_else(|| format!("not THREAD.INDEX NAME CHOICES: {line}"))
    }
}

/// The calls of all threads, each thread's in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Threads of the program; some may have no calls.
    pub threads: usize,
    /// The calls.
    pub calls: Vec<Call>,
}

impl Plan {
    /// `calls` calls for each of `threads` threads, as `program` derives them from `seed`.
    #[must_use]
    pub fn of_seed(program: &Path, seed: u64, calls: usize, threads: usize) -> Self {
        let numbers = [seed.to_string(), calls.to_string(), threads.to_string()];
        let output = Command::new(program).arg("plan").args(numbers).output();
        let output = output.expect("the program starts");
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).expect("it writes text");
        let calls = lines
            .lines()
            .map(|line| line.parse().expect("a call a line"));
        Self {
            threads,
            calls: calls.collect(),
        }
    }

    /// The program's input. `refused` are the places of calls that get no memory.
    #[must_use]
    pub fn script(&self, refused: &[(usize, usize)]) -> String {
        let mut text = format!("threads {}\n", self.threads);
        for call in &self.calls {
            let mark = if refused.contains(&(call.thread, call.index)) {
                " refused"
            } else {
                ""
            };
            writeln!(text, "{call}{mark}").expect("memory");
        }
        text
    }
}

/// As a script without refusals.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.script(&[]))
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let threads = first
            .strip_prefix("threads ")
            .and_then(|word| word.parse().ok());
        let threads = threads.ok_or_else(|| format!("not threads THREADS: {first}"))?;
        let calls: Vec<Call> = lines.map(str::parse).collect::<Result<_, _>>()?;
        if calls.iter().any(|call| call.thread >= threads) {
            return Err(format!("a call of no thread among {threads}"));
        }
        Ok(Self { threads, calls })
    }
}
