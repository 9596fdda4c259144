//! A tenant that starts and stops: one process after the other in the same tenant. Each pause is as
//! long as a process lives.

use super::clock;
use super::lines::{END, Process, START};
use super::log::{Log, Piece, Visit};
use super::tenant::{Tenant, ns};
use super::worker::Moments;
use crate::artefacts;
use std::process::Command;
use std::time::{Duration, Instant};

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
        let process = start(&each, device)?;
        let from = clock::now();
        let end = (from + stay).min(moments.end);
        let mut log = worked(process, Moments { end, ..moments })?;
        log.visits.push(visit(&each, &log, from, end));
        logs.push(log);
        begin = clock::now() + stay;
    }
    Ok(logs)
}

/// For a process that starts work at `from`: the device time that it requested in its first [`NEW`]
/// and in its second, and its service by their ends. Its first request comes at once, so a period
/// longer than that counts whole; more than all of the time is not to be had.
fn visit(tenant: &Tenant, log: &Log, from: u64, end: u64) -> Visit {
    let (first, second) = (from + ns(NEW), from + 2 * ns(NEW));
    let until = first.min(end);
    let had = |since: u64, until: u64| -> u64 {
        let inside = |piece: &&Piece| since < piece.end && piece.end <= until;
        log.pieces.iter().filter(inside).map(|piece| piece.ns).sum()
    };
    let alone = Tenant {
        procs: 1,
        ..tenant.clone()
    };
    let span = until.saturating_sub(from);
    let part = alone.asks().unwrap_or(1.0);
    let asked = part * span.max(ns(tenant.every)) as f64;
    let is_whole = second <= end && tenant.every <= NEW;
    Visit {
        from,
        asked: asked.min(span as f64),
        got_ns: had(from, until),
        second: is_whole.then(|| (part * ns(NEW) as f64, had(first, second))),
    }
}

/// Starts a process, which is this program's worker too.
fn start(tenant: &Tenant, device: u32) -> Result<Process, String> {
    let own = artefacts::own_executable().map_err(|failure| failure.message)?;
    let mut command = Command::new(own);
    command.args(["bench", "worker", &tenant.to_string(), "--device"]);
    command.arg(device.to_string());
    let process = Process::start(command)?;
    process.is_ready(Instant::now() + START)?;
    Ok(process)
}

/// Lets it work, and returns its log.
fn worked(mut process: Process, moments: Moments) -> Result<Log, String> {
    let Moments { from, to, end } = moments;
    process.say(&format!("{from} {to} {end}"))?;
    let rest = Duration::from_nanos(end.saturating_sub(clock::now()));
    let line = process.line(Instant::now() + rest + END)?;
    let logs: Vec<Log> = serde_json::from_str(&line).map_err(|error| error.to_string())?;
    let ended = process.ended()?;
    match logs.into_iter().next() {
        Some(log) if ended.success() => Ok(log),
        _ => Err(ended.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_is_judged_by_its_first_100_ms() {
        let tenant: Tenant = "name=a,kernel=300us,mode=sync,every=1ms".parse().unwrap();
        let piece = |end| Piece {
            sent: end,
            submitted: end,
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
        assert_eq!(seen.second, Some((30e6, 300_000)));
        // It ended before its second 100 ms had.
        assert_eq!(visit(&tenant, &log, from, from + 199_999_999).second, None);
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
        let seen = visit(&seldom, &log, from, u64::MAX);
        assert_eq!((seen.asked.round(), seen.second), (20e6, None));
        let long: Tenant = "name=a,kernel=150ms,mode=sync,every=2s".parse().unwrap();
        assert_eq!(visit(&long, &log, from, u64::MAX).asked.round(), 100e6);
    }
}
