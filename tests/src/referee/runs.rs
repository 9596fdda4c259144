//! One run of the program, and what it said.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Mode;
use crate::waiting::PATIENCE;

/// Calls that a quota may refuse: those that take memory.
const TAKES_MEMORY: [&str; 20] = [
    "alloc",
    "alloc_pitch",
    "alloc_managed",
    "create",
    "map_twice",
    "alloc_async",
    "alloc_from_pool",
    "ordered_burst",
    "other_pool",
    "array_create",
    "array_plain",
    "mipmap_create",
    "graph_launch",
    "graph_upload",
    "graph_whole",
    "context_create",
    "context_use",
    "context_fill",
    "green",
    "reset",
];

/// The output of a run.
#[derive(Debug)]
pub struct Said {
    /// A line a call, sorted by thread.
    pub calls: Vec<String>,
    /// Free memory before the first call, and after everything was given back; both 0 if the
    /// context was lost.
    pub left: (u64, u64),
}

impl Said {
    /// Places of the calls that take memory and ran out of it.
    #[must_use]
    pub fn refused(&self) -> Vec<(usize, usize)> {
        let mut refused = Vec::new();
        for line in &self.calls {
            let words: Vec<&str> = line.split(' ').collect();
            let [place, name, "2", ..] = words[..] else {
                continue;
            };
            // A call that takes no memory has its answer from the driver: the bare run must get the
            // same.
            if !TAKES_MEMORY.contains(&name) {
                continue;
            }
            let numbers = place.split_once('.').expect("a thread and an index");
            let number = |word: &str| word.parse().expect("a number");
            refused.push((number(numbers.0), number(numbers.1)));
        }
        refused
    }

    /// How often each call was made, and how often it succeeded.
    #[must_use]
    pub fn tally(&self) -> BTreeMap<String, (u64, u64)> {
        let mut tally = BTreeMap::new();
        for line in &self.calls {
            let mut words = line.split(' ').skip(1);
            let (Some(name), Some(result)) = (words.next(), words.next()) else {
                continue;
            };
            if result == "-" {
                continue;
            }
            let entry: &mut (u64, u64) = tally.entry(name.to_owned()).or_default();
            entry.0 += 1;
            entry.1 += u64::from(result == "0");
        }
        tally
    }
}

/// Whether two runs said the same, but for what the mode answers otherwise by design.
///
/// # Errors
/// The first call that they answered differently.
pub fn same(hooked: &Said, bare: &Said, mode: Mode) -> Result<(), String> {
    let mut both = hooked.calls.iter().zip(&bare.calls);
    match both.find(|(hooked, bare)| hooked != bare && !mode.excuses(hooked, bare)) {
        Some((hooked, bare)) => Err(format!("hooked: {hooked}\n  bare: {bare}")),
        None if hooked.calls.len() == bare.calls.len() => Ok(()),
        None => Err(format!(
            "{} calls hooked, {} bare",
            hooked.calls.len(),
            bare.calls.len()
        )),
    }
}

/// Runs a command, whose last argument will be the file with `script`, to its end.
///
/// # Errors
/// It hangs, fails, or says something on standard error.
pub fn run(which: &str, command: Command, script: &str) -> Result<Said, String> {
    counted(which, command, script, &AtomicUsize::new(0))
}

/// As [`run`]. While it runs, `lines` tells how many lines it has printed.
///
/// # Errors
/// As [`run`].
pub fn counted(
    which: &str,
    mut command: Command,
    script: &str,
    lines: &AtomicUsize,
) -> Result<Said, String> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(script.as_bytes()).expect("it is writable");
    command.arg("run").arg(file.path());
    let pipes = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().expect("it starts");
    let stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut stderr = child.stderr.take().expect("piped");
    let out = std::thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let mut out = String::new();
            for line in stdout.lines() {
                out.push_str(&line.expect("it says text"));
                out.push('\n');
                lines.fetch_add(1, Ordering::Relaxed);
            }
            out
        });
        let ended = until_it_ends(which, &mut child, lines);
        let out = reads.join().expect("it reads");
        let last = || out.lines().last().unwrap_or("nothing").to_owned();
        ended.map_err(|why| format!("{which}: {why} after {}", last()))?;
        Ok::<String, String>(out)
    })?;
    let status = child.wait().expect("a child");
    let mut errors = String::new();
    stderr.read_to_string(&mut errors).expect("it says text");
    parse(&out)
        .filter(|_| status.success() && errors.is_empty())
        .ok_or_else(|| {
            let last = out.lines().last().unwrap_or("nothing");
            format!("{which}: {status} after {last}: {errors}")
        })
}

/// Waits for its end; kills it if it prints no line for too long. A call waits for a few seconds at
/// most, even for a daemon that is gone.
fn until_it_ends(which: &str, child: &mut Child, lines: &AtomicUsize) -> Result<(), &'static str> {
    let (mut seen, mut since) = (0, Instant::now());
    while child.try_wait().expect("a child").is_none() {
        let now = lines.load(Ordering::Relaxed);
        if now > seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() > PATIENCE {
            eprintln!("{which} hangs:\n{}", stacks(child.id()));
            child.kill().expect("a child");
            child.wait().expect("a child");
            return Err("hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The stacks of all threads of a process, where a debugger is installed.
fn stacks(pid: u32) -> String {
    let mut gdb = Command::new("gdb");
    let every = ["-batch", "-ex", "thread apply all backtrace 24", "-p"];
    let output = gdb.args(every).arg(pid.to_string()).output();
    output.map_or_else(
        |_| "no debugger is installed".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// The output of a run that reached its end.
fn parse(out: &str) -> Option<Said> {
    let mut calls: Vec<String> = out.lines().map(ToOwned::to_owned).collect();
    if calls.pop()? != "end" {
        return None;
    }
    let left = calls.pop()?;
    let (before, after) = left.strip_prefix("left ")?.split_once(' ')?;
    let left = (before.parse().ok()?, after.parse().ok()?);
    // Each thread's own lines stay in order.
    calls.sort_by_key(|line| {
        let thread = line.split('.').next();
        thread.and_then(|word| word.parse::<u32>().ok())
    });
    Some(Said { calls, left })
}

#[cfg(test)]
mod tests {
    use super::{Mode, Said, parse, same};

    fn said(calls: &str) -> Said {
        parse(&format!("{calls}left 9 9\nend\n")).expect("whole")
    }

    #[test]
    fn a_run_that_did_not_reach_its_end_is_none() {
        assert!(parse("0.0 alloc 0\n").is_none());
        assert!(parse("0.0 alloc 0\nend\n").is_none());
        assert_eq!(said("0.0 alloc 0\n").left, (9, 9));
    }

    #[test]
    fn only_calls_that_take_memory_are_refused() {
        let said = said("1.0 alloc 2\n0.3 stream_create 2\n0.4 create 2\n0.5 alloc 0\n");
        assert_eq!(said.refused(), [(0, 4), (1, 0)]);
    }

    #[test]
    fn another_answer_and_a_missing_one_are_differences() {
        let whole = said("0.0 alloc 0\n0.1 free 0\n");
        let is_same = |one: &Said, other: &str| same(one, &said(other), Mode::Moves).is_ok();
        assert!(is_same(&whole, "0.0 alloc 0\n0.1 free 0\n"));
        assert!(!is_same(&whole, "0.0 alloc 0\n0.1 free 1\n"));
        assert!(!is_same(&whole, "0.0 alloc 0\n"));
        assert!(!is_same(&said(""), "0.0 alloc 0\n0.1 free 0\n"));
    }

    #[test]
    fn only_memory_that_moves_may_refuse_sync_memops() {
        let answer = |result: u32| said(&format!("0.0 set_pointer_attribute {result}\n"));
        let is_same = |hooked, bare, mode| same(&answer(hooked), &answer(bare), mode).is_ok();
        assert!(is_same(801, 0, Mode::Moves));
        assert!(!is_same(801, 0, Mode::Quota) && !is_same(801, 0, Mode::Managed));
        assert!(!is_same(801, 1, Mode::Moves) && !is_same(1, 0, Mode::Moves));
    }
}
