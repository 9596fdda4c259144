//! A tenant that starts and stops: one process after the other in the same tenant. Each pause is as
//! long as a process lives.

use super::clock;
use super::lines::{END, Process, START};
use super::log::{Log, Visit};
use super::measure::{self, Span};
use super::tenant::{Arrivals, Tenant, ns};
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
/// and in its second, and its service within each.
fn visit(tenant: &Tenant, log: &Log, from: u64, end: u64) -> Visit {
    let (first, second) = (from + ns(NEW), from + 2 * ns(NEW));
    let until = first.min(end);
    let had = |from: u64, to: u64| measure::device_time([log], Span { from, to });
    let is_whole = second <= end && tenant.every <= NEW;
    let in_second = || asked(tenant, 2 * ns(NEW)) - asked(tenant, ns(NEW));
    Visit {
        from,
        asked: asked(tenant, until.saturating_sub(from)),
        got_ns: had(from, until),
        second: is_whole.then(|| (in_second(), had(first, second))),
    }
}

/// The device time that a process of the tenant has in the first `span` of its work if each request
/// is served as soon as it is due: the first one at once. Of random arrivals the mean.
fn asked(tenant: &Tenant, span: u64) -> f64 {
    let each = tenant.launch_ns() * u64::from(tenant.launches());
    let every = ns(tenant.every).max(1);
    if tenant.arrivals == Arrivals::Poisson {
        return (each as f64 / every as f64).min(1.0) * span as f64;
    }
    // A request that takes longer than a period misses those that begin meanwhile.
    let apart = each.div_ceil(every).max(1) * every;
    let whole = span / apart;
    (whole * each + (span % apart).min(each)) as f64
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
    let ended = process.ended(Instant::now() + END)?;
    match logs.into_iter().next() {
        Some(log) if ended.success() => Ok(log),
        _ => Err(ended.to_string()),
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
                piece(from + 100_300_000),
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

    /// The time that a process requested and got (ms) in its first and second 100 ms. Its requests
    /// take 10 ms, and end at these.
    fn visited(text: &str, ends: &[u64]) -> [(f64, f64); 2] {
        const MS: u64 = 1_000_000;
        let tenant: Tenant = text.parse().unwrap();
        let piece = |end: &u64| Piece {
            sent: end * MS,
            submitted: end * MS,
            end: end * MS,
            known: end * MS,
            ns: 10 * MS,
        };
        let log = Log {
            pieces: ends.iter().map(piece).collect(),
            ..Log::default()
        };
        let seen = visit(&tenant, &log, 0, u64::MAX);
        let ms = |(asked, got): (f64, u64)| (asked / 1e6, got as f64 / 1e6);
        [
            ms((seen.asked, seen.got_ns)),
            seen.second.map_or((0.0, 0.0), ms),
        ]
    }

    #[test]
    fn one_that_is_served_at_once_has_all_that_it_asked_for() {
        let every = |ms: u32| format!("name=a,kernel=10ms,mode=sync,every={ms}ms");
        let of = |ms: u32| {
            let ends: Vec<u64> = (0..9).map(|at| u64::from(at * ms + 10)).collect();
            visited(&every(ms), &ends)
        };
        assert_eq!(of(70), [(20.0, 20.0), (10.0, 10.0)]);
        assert_eq!(of(40), [(30.0, 30.0), (20.0, 20.0)]);
        // The second request is half within the first 100 ms.
        assert_eq!(of(95), [(15.0, 15.0), (15.0, 15.0)]);
        // Late ones are not there in time.
        let late = visited(&every(70), &[10, 120, 150]);
        assert_eq!(late, [(20.0, 10.0), (10.0, 20.0)]);
        // Those of longer than a period come as fast as they are served.
        let full = visited(&every(5), &[10, 20, 30]);
        assert_eq!(full, [(100.0, 30.0), (100.0, 0.0)]);
        // Of random ones it is the mean.
        let random = format!("{},arrivals=poisson", every(40));
        assert_eq!(visited(&random, &[10]), [(25.0, 10.0), (25.0, 0.0)]);
    }
}
