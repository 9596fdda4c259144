//! Computes figures from the workers' logs. All times are nanoseconds of one clock.

use super::log::{Log, Piece, Visit};
use serde::Serialize;

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Span {
    /// Its length.
    pub(crate) fn ns(self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    fn cut(self, other: Self) -> Self {
        let from = self.from.max(other.from);
        Self {
            from,
            to: self.to.min(other.to).max(from),
        }
    }
}

/// The span in which a piece had the device, if there was no gap between its launches.
fn had(piece: &Piece) -> Span {
    Span {
        from: piece.end.saturating_sub(piece.ns),
        to: piece.end,
    }
}

/// Device time of these processes within `span`.
pub(crate) fn device_time<'a>(logs: impl IntoIterator<Item = &'a Log>, span: Span) -> u64 {
    let pieces = logs.into_iter().flat_map(|log| &log.pieces);
    pieces.map(|piece| had(piece).cut(span).ns()).sum()
}

/// Bytes of copies that were complete within `span`.
pub(crate) fn copied<'a>(logs: impl IntoIterator<Item = &'a Log>, span: Span) -> u64 {
    let copies = logs.into_iter().flat_map(|log| &log.copies);
    let inside = copies.filter(|(known, _)| (span.from..span.to).contains(known));
    inside.map(|(_, bytes)| bytes).sum()
}

/// The fewest values of which the 99th percentile is not the largest.
pub(crate) const OF_P99: usize = 100;
/// The same for p99.9.
pub(crate) const OF_P999: usize = 1_000;

/// For a tenant that starts and stops: the served fraction of the device time that its processes
/// requested in their first 100 ms and in their second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Newcomer {
    /// Processes that began within the span.
    pub(crate) visits: usize,
    /// The median; of an even number of processes the lower of the two in the middle.
    pub(crate) median: f64,
    /// The worst.
    pub(crate) worst: f64,
    /// The median of the second 100 ms; `None` if no process lived that long.
    pub(crate) second_median: Option<f64>,
}

/// The figures of the processes that began within `span`; `None` if there are none.
pub(crate) fn newcomer<'a>(
    logs: impl IntoIterator<Item = &'a Log>,
    span: Span,
) -> Option<Newcomer> {
    let visits = logs.into_iter().flat_map(|log| &log.visits);
    let inside = visits.filter(|visit| (span.from..span.to).contains(&visit.from));
    let inside: Vec<&Visit> = inside.collect();
    let parts = sorted(inside.iter().map(|visit| (visit.asked, visit.got_ns)));
    let seconds = sorted(inside.iter().filter_map(|visit| visit.second));
    let median = |parts: &[f64]| parts.get(parts.len().checked_sub(1)? / 2).copied();
    Some(Newcomer {
        visits: parts.len(),
        median: median(&parts)?,
        worst: *parts.first()?,
        second_median: median(&seconds),
    })
}

/// The parts that were served of what was requested, the least first.
fn sorted(visits: impl Iterator<Item = (f64, u64)>) -> Vec<f64> {
    let mut parts: Vec<f64> = visits
        .map(|(asked, got)| got as f64 / asked.max(1.0))
        .collect();
    parts.sort_by(f64::total_cmp);
    parts
}

/// Splits `span` into seconds; a remainder at the end is dropped.
pub(crate) fn seconds(span: Span) -> impl Iterator<Item = Span> {
    const SECOND: u64 = 1_000_000_000;
    let begin = move |at: u64| span.from + at * SECOND;
    (0..span.ns() / SECOND).map(move |at| Span {
        from: begin(at),
        to: begin(at + 1),
    })
}

/// The time within `span` in which no tenant had the device.
pub(crate) fn idle<'a>(logs: impl IntoIterator<Item = &'a Log>, span: Span) -> u64 {
    let mut spans: Vec<Span> = logs
        .into_iter()
        .flat_map(|log| &log.pieces)
        .map(|piece| had(piece).cut(span))
        .collect();
    spans.sort_by_key(|had| had.from);
    let (mut idle, mut until) = (0, span.from);
    for had in spans.into_iter().filter(|had| had.ns() > 0) {
        idle += had.from.saturating_sub(until);
        until = until.max(had.to);
    }
    idle + span.to.saturating_sub(until)
}

/// The device's passing from one tenant to another.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Handoffs {
    pub(crate) from: String,
    pub(crate) to: String,
    #[serde(flatten)]
    pub(crate) gap: Percentiles,
}

/// The gaps between the work of one tenant and the work of the next, by pairs of tenants. If both
/// had the device at once, no gap is counted.
pub(crate) fn handoffs(logs: &[(usize, Log)], names: &[&str], span: Span) -> Vec<Handoffs> {
    let mut turns: Vec<(Span, usize)> = logs
        .iter()
        .flat_map(|(tenant, log)| log.pieces.iter().map(|piece| (had(piece), *tenant)))
        .filter(|(had, _)| had.from >= span.from && had.to <= span.to)
        .collect();
    turns.sort_by_key(|(had, _)| had.from);
    let mut gaps: Vec<Vec<u64>> = vec![Vec::new(); names.len() * names.len()];
    for pair in turns.windows(2) {
        let [(before, a), (after, b)] = pair else {
            continue;
        };
        if a != b && after.from >= before.to {
            gaps[a * names.len() + b].push(after.from - before.to);
        }
    }
    let named = gaps.into_iter().enumerate().filter_map(|(at, gaps)| {
        let gap = Percentiles::of(gaps)?;
        let (from, to) = (
            names[at / names.len()].to_owned(),
            names[at % names.len()].to_owned(),
        );
        Some(Handoffs { from, to, gap })
    });
    named.collect()
}

/// Percentiles of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) count: usize,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
}

impl Percentiles {
    /// The percentiles of these values, by nearest rank; `None` if there are none.
    pub(crate) fn of(mut values: Vec<u64>) -> Option<Self> {
        values.sort_unstable();
        let count = values.len();
        let rank = |thousandths: usize| {
            values
                .get((count * thousandths).div_ceil(1000).max(1) - 1)
                .copied()
        };
        Some(Self {
            count,
            p50_ns: rank(500)?,
            p99_ns: rank(990)?,
            p999_ns: rank(999)?,
            max_ns: *values.last()?,
        })
    }
}

/// The time from launch to known completion, for work launched within `span`. A request that was
/// due within it and still stood in line at the end counts with the time that it had waited by
/// then: without it the longest waits would be left out (docs/adr/0223).
pub(crate) fn latency<'a>(
    logs: impl IntoIterator<Item = &'a Log>,
    span: Span,
) -> Option<Percentiles> {
    let mut all = Vec::new();
    for log in logs {
        let pieces = log.pieces.iter();
        let inside = pieces.filter(|piece| (span.from..span.to).contains(&piece.sent));
        all.extend(inside.map(|piece| piece.known.saturating_sub(piece.sent)));
        all.extend(&log.in_line);
    }
    Percentiles::of(all)
}

/// How long a process was in the calls that launch a request (ns), of the requests made within the
/// span.
pub(crate) fn launching<'a>(
    logs: impl IntoIterator<Item = &'a Log>,
    span: Span,
) -> Option<Percentiles> {
    let pieces = logs.into_iter().flat_map(|log| &log.pieces);
    let inside = pieces.filter(|piece| (span.from..span.to).contains(&piece.sent));
    let spent = inside.map(|piece| piece.submitted.saturating_sub(piece.sent));
    Percentiles::of(spent.collect())
}

/// Requests that still stood in line at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct InLine {
    pub(crate) count: usize,
    /// How long the oldest of them had waited by then.
    pub(crate) oldest_ns: u64,
}

/// Those of these processes.
pub(crate) fn in_line<'a>(logs: impl IntoIterator<Item = &'a Log>) -> InLine {
    let waited = logs.into_iter().flat_map(|log| &log.in_line);
    waited.fold(InLine::default(), |line, waited| InLine {
        count: line.count + 1,
        oldest_ns: line.oldest_ns.max(*waited),
    })
}

/// The fraction of one device that each tenant should get: by weight, never above its cap. The
/// remainder of capped tenants goes to the other tenants by weight. `tenants` are (weight, cap),
/// both fractions.
pub(crate) fn entitled(tenants: &[(f64, f64)]) -> Vec<f64> {
    let mut got: Vec<Option<f64>> = vec![None; tenants.len()];
    loop {
        let left = 1.0 - got.iter().flatten().sum::<f64>();
        let open = || {
            tenants
                .iter()
                .zip(&got)
                .filter(|(_, got)| got.is_none())
                .map(|(tenant, _)| tenant)
        };
        let weights: f64 = open().map(|(weight, _)| weight).sum();
        let full = tenants
            .iter()
            .zip(&got)
            .position(|((weight, cap), got)| got.is_none() && left * weight / weights > *cap);
        match full {
            Some(at) => got[at] = Some(tenants[at].1),
            None => {
                let by_weight = |((weight, _), got): (&(f64, f64), &Option<f64>)| {
                    got.unwrap_or(left * weight / weights)
                };
                return tenants.iter().zip(&got).map(by_weight).collect();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(pieces: &[(u64, u64)]) -> Log {
        let piece = |&(end, ns): &(u64, u64)| Piece {
            sent: end - ns,
            submitted: end - ns + 2,
            end,
            known: end + 5,
            ns,
        };
        Log {
            pieces: pieces.iter().map(piece).collect(),
            ..Log::default()
        }
    }

    const ALL: Span = Span { from: 100, to: 200 };

    #[test]
    fn work_counts_as_far_as_it_lies_within_the_span() {
        assert_eq!(
            device_time(&[log(&[(110, 20), (150, 40), (210, 20), (300, 50)])], ALL),
            10 + 40 + 10
        );
    }

    #[test]
    fn copies_and_visits_count_where_they_lie_within_the_span() {
        let visit = |from, got_ns| Visit {
            from,
            asked: 100.0,
            got_ns,
            second: (got_ns > 50).then(|| (100.0, got_ns - 40)),
        };
        let log = Log {
            copies: vec![(99, 1), (100, 10), (199, 100), (200, 1000)],
            visits: vec![
                visit(90, 5),
                visit(100, 90),
                visit(150, 50),
                visit(160, 100),
            ],
            ..Log::default()
        };
        assert_eq!(copied([&log], ALL), 110);
        let newcomer = newcomer([&log], ALL).unwrap();
        assert_eq!(
            (newcomer.visits, newcomer.median, newcomer.worst),
            (3, 0.9, 0.5)
        );
        // Two lived for as long as that, the span's first visit did not.
        assert_eq!(newcomer.second_median, Some(0.5));
        assert_eq!(super::newcomer(&[Log::default()], ALL), None);
    }

    #[test]
    fn of_two_visits_the_worse_one_is_the_median() {
        let visit = |got_ns| Visit {
            from: 100,
            asked: 100.0,
            got_ns,
            second: Some((100.0, got_ns)),
        };
        let of = |got: &[u64]| {
            let log = Log {
                visits: got.iter().map(|got| visit(*got)).collect(),
                ..Log::default()
            };
            newcomer([&log], ALL).map(|all| (all.visits, all.median, all.second_median))
        };
        assert_eq!(of(&[100, 20]), Some((2, 0.2, Some(0.2))));
        assert_eq!(of(&[20]), Some((1, 0.2, Some(0.2))));
        assert_eq!(of(&[100, 20, 50]), Some((3, 0.5, Some(0.5))));
    }

    #[test]
    fn idle_is_what_nobody_had_counted_once() {
        let logs = [log(&[(120, 20), (150, 10)]), log(&[(130, 20), (190, 10)])];
        assert_eq!(idle(&logs, ALL), 10 + 30 + 10);
        assert_eq!(idle(&[], ALL), 100);
    }

    #[test]
    fn a_handoff_is_the_gap_between_two_tenants_and_not_within_one() {
        let logs = [(0, log(&[(110, 10), (130, 10)])), (1, log(&[(145, 10)]))];
        let found = handoffs(&logs, &["a", "b"], ALL);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (
                found[0].from.as_str(),
                found[0].to.as_str(),
                found[0].gap.p50_ns
            ),
            ("a", "b", 5)
        );
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let of_hundred = Percentiles::of((1..=100).rev().collect()).unwrap();
        assert_eq!(
            (of_hundred.p50_ns, of_hundred.p99_ns, of_hundred.max_ns),
            (50, 99, 100)
        );
        let of_many = Percentiles::of((1..=5_000).collect()).unwrap();
        assert_eq!((of_many.p99_ns, of_many.p999_ns), (4_950, 4_995));
        assert_eq!(Percentiles::of(vec![7]).unwrap().p99_ns, 7);
        for (count, is_largest) in [(OF_P99 - 1, true), (OF_P99, false)] {
            let all = Percentiles::of((0..count as u64).collect()).unwrap();
            assert_eq!(all.p99_ns == all.max_ns, is_largest, "{count}");
        }
        for (count, is_largest) in [(OF_P999 - 1, true), (OF_P999, false)] {
            let all = Percentiles::of((0..count as u64).collect()).unwrap();
            assert_eq!(all.p999_ns == all.max_ns, is_largest, "{count}");
        }
        assert!(Percentiles::of(Vec::new()).is_none());
    }

    #[test]
    fn latency_is_from_launch_to_knowing() {
        assert_eq!(
            latency(&[log(&[(150, 20), (250, 10)])], ALL)
                .unwrap()
                .max_ns,
            25
        );
    }

    #[test]
    fn time_in_launch_calls_is_of_requests_within_the_span() {
        let both = [log(&[(150, 20), (250, 10)])];
        let all = Span { from: 0, to: 300 };
        let found = launching(&both, all).unwrap();
        assert_eq!((found.count, found.max_ns), (2, 2));
        let later = Span { from: 200, to: 300 };
        assert_eq!(launching(&both, later).unwrap().count, 1);
        let before = Span { from: 0, to: 10 };
        assert!(launching(&both, before).is_none());
    }

    #[test]
    fn a_request_still_in_line_counts_with_the_time_it_has_waited() {
        let served = log(&[(150, 20)]);
        let waits = Log {
            in_line: vec![70, 30],
            ..served.clone()
        };
        let found = latency([&waits], ALL).unwrap();
        assert_eq!((found.count, found.p50_ns, found.max_ns), (3, 30, 70));
        let line = in_line([&waits, &served]);
        assert_eq!((line.count, line.oldest_ns), (2, 70));
        // Where the line was empty nothing is added.
        assert_eq!(latency([&served], ALL).unwrap().count, 1);
        assert_eq!(in_line([&served]), InLine::default());
    }

    #[test]
    fn shares_go_by_weight_and_what_a_cap_leaves_goes_to_the_others() {
        assert_eq!(entitled(&[(0.7, 1.0), (0.3, 1.0)]), [0.7, 0.3]);
        assert_eq!(
            entitled(&[(0.5, 0.2), (0.25, 1.0), (0.25, 1.0)]),
            [0.2, 0.4, 0.4]
        );
        assert_eq!(entitled(&[(1.0, 0.3)]), [0.3]);
    }

    #[test]
    fn a_span_is_cut_into_whole_seconds() {
        let parts: Vec<Span> = seconds(Span {
            from: 5,
            to: 2_500_000_005,
        })
        .collect();
        assert_eq!(parts.len(), 2);
        assert_eq!(
            parts[1],
            Span {
                from: 1_000_000_005,
                to: 2_000_000_005
            }
        );
    }
}
