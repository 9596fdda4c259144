//! A tenant that starts and stops: one process after the other in the same tenant. Each pause is as
//! long as a process lives.

use super::clock;
use super::log::{Log, Visit};
use super::tenant::{Tenant, ns};
use super::worker::Moments;
use crate::artefacts;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The time within which a new process should be served.
const NEW: Duration = Duration::from_millis(100);

/// Runs one process after the other until the end. Returns their logs.
pub(crate) fn work(tenant: &Tenant, device: u32, moments: Moments) -> Result<Vec<Log>, String> {
    let each = Tenant {
        churn: Duration::ZERO,
        ..tenant.clone()
    };
    let (stay, mut logs) = (ns(tenant.churn), Vec::new());
    let mut begin = clock::now();
    while begin < moments.to {
        clock::sleep_until(begin);
        let mut process = Process::start(&each, device)?;
        let from = clock::now();
        let end = (from + stay).min(moments.end);
        let mut log = process.work(Moments { end, ..moments })?;
        log.visits.push(visit(&each, &log, from, end));
        logs.push(log);
        begin = clock::now() + stay;
    }
    Ok(logs)
}

/// For a process that starts work at `from`: the device time that it requested in its first
/// [`NEW`], and its service by then. Its first request comes at once, so a period longer than that
/// counts whole; more than all of the time is not to be had.
fn visit(tenant: &Tenant, log: &Log, from: u64, end: u64) -> Visit {
    let until = (from + ns(NEW)).min(end);
    let had = log.pieces.iter().filter(|piece| piece.end <= until);
    let alone = Tenant {
        procs: 1,
        ..tenant.clone()
    };
    let span = until.saturating_sub(from);
    let asked = alone.asks().unwrap_or(1.0) * span.max(ns(tenant.every)) as f64;
    Visit {
        from,
        asked: asked.min(span as f64),
        got_ns: had.map(|piece| piece.ns).sum(),
    }
}

/// One process, which is this program's worker too.
struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(tenant: &Tenant, device: u32) -> Result<Self, String> {
        let own = artefacts::own_executable().map_err(|failure| failure.message)?;
        let mut command = Command::new(own);
        command.args(["bench", "worker", &tenant.to_string(), "--device"]);
        command.arg(device.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let lines = child.stdout.take().map(BufReader::new);
        let lines = lines.ok_or("a process without output")?;
        let mut process = Self { child, lines };
        match process.line()?.as_str() {
            "ready" => Ok(process),
            other => Err(format!("it said {other:?}")),
        }
    }

    fn work(&mut self, moments: Moments) -> Result<Log, String> {
        let Moments { from, to, end } = moments;
        let told = match &mut self.child.stdin {
            Some(stdin) => writeln!(stdin, "{from} {to} {end}"),
            None => Ok(()),
        };
        told.map_err(|error| error.to_string())?;
        let logs: Vec<Log> =
            serde_json::from_str(&self.line()?).map_err(|error| error.to_string())?;
        let ended = self.child.wait().map_err(|error| error.to_string())?;
        match logs.into_iter().next() {
            Some(log) if ended.success() => Ok(log),
            _ => Err(ended.to_string()),
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) => Err("it ended; why is said above".to_owned()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// After an error, closing the input ends a remaining process.
impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::Piece;
    use super::*;

    #[test]
    fn a_newcomer_is_judged_by_its_first_100_ms() {
        let tenant: Tenant = "name=a,kernel=300us,mode=sync,every=1ms".parse().unwrap();
        let piece = |end| Piece {
            sent: end,
            end,
            known: end,
            ns: 300_000,
        };
        let from = 1_000_000_000;
        let log = Log {
            pieces: vec![
                piece(from + 5_000_000),
                piece(from + 100_000_000),
                piece(from + 100_000_001),
            ],
            ..Log::default()
        };
        let seen = visit(&tenant, &log, from, u64::MAX);
        assert_eq!((seen.asked.round(), seen.got_ns), (30e6, 600_000));
        // A short visit requests less.
        let seen = visit(&tenant, &log, from, from + 10_000_000);
        assert_eq!((seen.asked.round(), seen.got_ns), (3e6, 300_000));
        // Each process of several requests for itself.
        let two: Tenant = "name=a,kernel=300us,mode=sync,every=1ms,procs=2"
            .parse()
            .unwrap();
        assert_eq!(visit(&two, &log, from, u64::MAX).asked.round(), 30e6);
        // The first request of a long period is whole; a longer one than the visit is cut.
        let seldom: Tenant = "name=a,kernel=20ms,mode=sync,every=2s".parse().unwrap();
        assert_eq!(visit(&seldom, &log, from, u64::MAX).asked.round(), 20e6);
        let long: Tenant = "name=a,kernel=150ms,mode=sync,every=2s".parse().unwrap();
        assert_eq!(visit(&long, &log, from, u64::MAX).asked.round(), 100e6);
    }
}
