//! Each tenant's last hour, a value every ten seconds, for the report page. Bounded: so many
//! series, each of so many values. A series begins once its tenant has used the device: by default
//! a tenant may use all of a node's, and mostly uses one. A tenant that has ended stays until an
//! hour has passed, or until its place is needed.

use std::collections::{BTreeMap, VecDeque};

use gpushare_core::{Nanos, TenantId};
use gpushare_protocol::wire::SeriesRow;

/// The time between two values.
pub(super) const STEP: Nanos = Nanos::secs(10);
/// Values of a series: an hour.
pub(super) const LENGTH: usize = 360;
/// Series at most: with full ones 14 MiB.
const MOST: usize = 2048;

/// A tenant on a device in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Point {
    /// Bytes charged, in MiB, rounded up.
    pub(super) charged_mib: u32,
    /// Bytes granted, in MiB, rounded up.
    pub(super) grant_mib: u32,
    /// Device time that it was billed for, in thousandths.
    pub(super) held: u16,
    /// Time that it waited at its gate, in thousandths.
    pub(super) waited: u16,
    /// Device time that it was billed for or had while it was alone, in thousandths.
    pub(super) had: u16,
    /// Bytes charged and off the device, in MiB, rounded up.
    pub(super) away_mib: u32,
}

/// A tenant on a device at a step: bytes now, and nanoseconds since the tenant's registration.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Now {
    /// Bytes charged.
    pub(super) charged: u64,
    /// Bytes granted.
    pub(super) granted: u64,
    /// Bytes of the charged ones that are off the device.
    pub(super) away: u64,
    /// Device time that it was billed for.
    pub(super) held: u64,
    /// Time that it waited at its gate.
    pub(super) waited: u64,
    /// Time in which its kernels ran while it was alone there.
    pub(super) alone: u64,
}

impl Now {
    /// Whether it has used the device.
    fn is_used(&self) -> bool {
        (self.charged, self.held, self.waited, self.alone) != (0, 0, 0, 0)
    }
}

/// A tenant on the device of an index of its pages.
pub(super) type Key = (TenantId, usize);

#[derive(Debug)]
struct Series {
    name: String,
    device: [u8; 16],
    points: VecDeque<Point>,
    /// The step of the last point.
    last: u64,
    /// The values at the last step.
    read: Now,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct History {
    series: BTreeMap<Key, Series>,
    /// How many steps were taken.
    steps: u64,
    taken: Option<Nanos>,
}

impl History {
    /// Whether a step is due; then it begins.
    pub(super) fn begin(&mut self, now: Nanos) -> bool {
        // The node looks once a second: a step is due a little early rather than a second late.
        let half = Nanos(500_000_000);
        if self.taken.is_some_and(|taken| now + half < taken + STEP) {
            return false;
        }
        self.taken = Some(now);
        self.steps += 1;
        let steps = self.steps;
        self.series
            .retain(|_, series| series.last + LENGTH as u64 > steps);
        true
    }

    /// The values of this step. Before the first use of the device there is nothing to keep.
    pub(super) fn note(&mut self, key: Key, (name, device): (&str, [u8; 16]), now: Now) {
        let is_kept = self.series.contains_key(&key) || now.is_used() && self.make_room();
        if !is_kept {
            return;
        }
        let steps = self.steps;
        let series = self.series.entry(key).or_insert_with(|| Series {
            name: name.to_owned(),
            device,
            // Grown step by step it would have room for 512.
            points: VecDeque::with_capacity(LENGTH + 1),
            last: steps,
            // Its times so far are of this step: before it there were none.
            read: Now::default(),
        });
        let before = series.read;
        let part = |time: fn(&Now) -> u64| {
            let part = time(&now).saturating_sub(time(&before)) / (STEP.0 / 1000);
            u16::try_from(part.min(1000)).unwrap_or(1000)
        };
        let held = part(|now| now.held);
        series.points.push_back(Point {
            charged_mib: mib(now.charged),
            grant_mib: mib(now.granted),
            held,
            waited: part(|now| now.waited),
            had: (held + part(|now| now.alone)).min(1000),
            away_mib: mib(now.away.min(now.charged)),
        });
        if series.points.len() > LENGTH {
            series.points.pop_front();
        }
        (series.last, series.read) = (steps, now);
    }

    /// Whether there is room for another series: in place of the tenant that ended the longest ago,
    /// if need be.
    fn make_room(&mut self) -> bool {
        if self.series.len() < MOST {
            return true;
        }
        let ended = self.series.iter();
        let ended = ended.filter(|(_, series)| series.last + 1 < self.steps);
        let oldest = ended.min_by_key(|(_, series)| series.last);
        let oldest = oldest.map(|(key, _)| *key);
        oldest.is_some_and(|key| self.series.remove(&key).is_some())
    }

    /// The series from this one on, each with its key.
    pub(super) fn rows(
        &self,
        now: Nanos,
        from: Key,
    ) -> impl Iterator<Item = (Key, SeriesRow)> + use<'_> {
        self.series.range(from..).map(move |(key, series)| {
            let points = series.points.iter();
            let on = |point: &Point| point.charged_mib.saturating_sub(point.away_mib);
            let row = SeriesRow {
                name: series.name.clone(),
                device: series.device,
                step_ms: STEP.0 / 1_000_000,
                age_ms: self.age_ms(now, series),
                charged_mib: points.clone().map(|point| point.charged_mib).collect(),
                held: points.clone().map(|point| point.held).collect(),
                waited: points.clone().map(|point| point.waited).collect(),
                grant_mib: points.clone().map(|point| point.grant_mib).collect(),
                had: points.clone().map(|point| point.had).collect(),
                on_mib: points.clone().map(on).collect(),
                away_mib: points.map(|point| point.away_mib).collect(),
            };
            (*key, row)
        })
    }

    /// Milliseconds since the last value.
    fn age_ms(&self, now: Nanos, series: &Series) -> u64 {
        let missed = Nanos(STEP.0 * (self.steps - series.last));
        (missed + (now - self.taken.unwrap_or(now))).0 / 1_000_000
    }
}

fn mib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(step: u64) -> Nanos {
        Nanos::secs(10 * step + 100)
    }

    fn note(history: &mut History, tenant: u64, charged: u64, times: (u64, u64)) {
        let key = (TenantId(tenant), 0);
        let now = Now {
            charged,
            granted: charged + (4 << 20),
            held: times.0,
            waited: times.1,
            ..Now::default()
        };
        history.note(key, (&format!("t{tenant}"), [7; 16]), now);
    }

    fn rows(history: &History, now: Nanos) -> Vec<SeriesRow> {
        let all = history.rows(now, (TenantId(0), 0));
        all.map(|(_, row)| row).collect()
    }

    /// As docs/OPERATIONS.md says of all of them.
    #[test]
    fn a_series_has_room_for_an_hour_and_no_more_however_long_it_goes_on() {
        let mut history = History::default();
        for step in 0..2 * LENGTH as u64 {
            assert!(history.begin(at(step)));
            note(&mut history, 1, 1 << 20, (0, 0));
        }
        let series = history.series.values().next().expect("one");
        assert_eq!(series.points.len(), LENGTH);
        let bytes = series.points.capacity() * size_of::<Point>();
        assert_eq!((MOST * bytes) >> 20, 14);
    }

    #[test]
    fn a_step_is_every_ten_seconds_and_times_are_parts_of_it() {
        let mut history = History::default();
        assert!(history.begin(at(0)));
        note(&mut history, 1, 1, (5_000_000_000, 0));
        assert!(!history.begin(at(0) + Nanos::secs(9)));
        assert!(history.begin(at(1)));
        note(&mut history, 1, 3 << 20, (10_000_000_000, 100_000_000));
        let rows = rows(&history, at(1) + Nanos::secs(2));
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].step_ms, rows[0].age_ms), (10_000, 2_000));
        assert_eq!(rows[0].charged_mib, [1, 3]);
        assert_eq!(rows[0].grant_mib, [5, 7]);
        assert_eq!(
            (&rows[0].held[..], &rows[0].waited[..]),
            (&[500, 500][..], &[0, 10][..])
        );
    }

    #[test]
    fn what_one_had_alone_is_added_to_its_bills_and_what_is_away_is_apart() {
        let mut history = History::default();
        let key = (TenantId(1), 0);
        let mib = 1 << 20;
        for (step, alone, held, away) in [(0, 0, 0, 0), (1, 9_000, 0, 5), (2, 9_500, 9_700, 99)] {
            assert!(history.begin(at(step)));
            let now = Now {
                charged: 8 * mib,
                away: away * mib,
                held: held * 1_000_000,
                alone: alone * 1_000_000,
                ..Now::default()
            };
            history.note(key, ("t1", [7; 16]), now);
        }
        let uses = &rows(&history, at(2))[0];
        assert_eq!(uses.had, [0, 900, 1000], "all of a step at most");
        assert_eq!(
            (&uses.on_mib[..], &uses.away_mib[..]),
            (&[8, 3, 0][..], &[0, 5, 8][..])
        );
        assert_eq!(uses.held, [0, 0, 970]);
    }

    #[test]
    fn a_series_begins_with_the_first_use_of_the_device() {
        let mut history = History::default();
        assert!(history.begin(at(0)));
        note(&mut history, 1, 0, (0, 0));
        note(&mut history, 2, 1, (0, 0));
        note(&mut history, 3, 0, (0, 1));
        let names = |history: &History| -> Vec<String> {
            let rows = rows(history, at(1)).into_iter();
            rows.map(|row| row.name).collect()
        };
        assert_eq!(names(&history), ["t2", "t3"]);
        // One that has begun goes on where nothing is used any more.
        assert!(history.begin(at(1)));
        note(&mut history, 1, 0, (1, 0));
        note(&mut history, 2, 0, (0, 0));
        assert_eq!(names(&history), ["t1", "t2", "t3"]);
        assert_eq!(rows(&history, at(1))[1].charged_mib, [1, 0]);
    }

    #[test]
    fn an_ended_tenant_stays_for_an_hour_and_then_goes() {
        let mut history = History::default();
        for step in 0..=LENGTH as u64 + 1 {
            assert!(history.begin(at(step)));
            note(&mut history, 2, 1, (0, 0));
            if step == 0 {
                note(&mut history, 1, 1, (0, 0));
            }
            let there = rows(&history, at(step)).iter().any(|row| row.name == "t1");
            assert_eq!(there, step < LENGTH as u64, "step {step}");
        }
        let kept = &rows(&history, at(LENGTH as u64 + 1))[0];
        assert_eq!(kept.charged_mib.len(), LENGTH);
    }

    #[test]
    fn there_is_a_most_and_the_ended_make_room_first() {
        let mut history = History::default();
        history.begin(at(0));
        (0..MOST as u64).for_each(|tenant| note(&mut history, tenant, 1, (0, 0)));
        note(&mut history, 9_999, 1, (0, 0));
        assert_eq!(history.series.len(), MOST, "no room for another");
        for step in 1..=2 {
            history.begin(at(step));
            (1..MOST as u64).for_each(|tenant| note(&mut history, tenant, 1, (0, 0)));
        }
        note(&mut history, 9_999, 1, (0, 0));
        assert_eq!(history.series.len(), MOST);
        assert!(history.series.contains_key(&(TenantId(9_999), 0)));
        assert!(
            !history.series.contains_key(&(TenantId(0), 0)),
            "it had ended"
        );
    }
}
