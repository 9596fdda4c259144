//! Each tenant's last hour, a value every ten seconds, for the report page. Bounded: so many
//! series, each of so many values. A tenant that has ended stays until an hour has passed, or until
//! its place is needed.

use std::collections::{BTreeMap, VecDeque};

use gpushare_core::{Nanos, TenantId};
use gpushare_protocol::wire::{GrantsRow, SeriesRow};

/// The time between two values.
pub(super) const STEP: Nanos = Nanos::secs(10);
/// Values of a series: an hour.
pub(super) const LENGTH: usize = 360;
/// Series at most: with full ones 9 MiB.
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
    /// Billed and waited at the last step, in nanoseconds.
    read: (u64, u64),
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

    /// A value of this step: bytes charged and granted, and the billed and the waited time, in
    /// nanoseconds, each since the tenant's registration.
    pub(super) fn note(
        &mut self,
        key: Key,
        (name, device): (&str, [u8; 16]),
        (charged, granted): (u64, u64),
        (held, waited): (u64, u64),
    ) {
        if !self.series.contains_key(&key) && !self.make_room() {
            return;
        }
        let steps = self.steps;
        let series = self.series.entry(key).or_insert_with(|| Series {
            name: name.to_owned(),
            device,
            points: VecDeque::new(),
            last: steps,
            read: (held, waited),
        });
        let part = |now: u64, before: u64| {
            let part = now.saturating_sub(before) / (STEP.0 / 1000);
            u16::try_from(part.min(1000)).unwrap_or(1000)
        };
        series.points.push_back(Point {
            charged_mib: mib(charged),
            grant_mib: mib(granted),
            held: part(held, series.read.0),
            waited: part(waited, series.read.1),
        });
        if series.points.len() > LENGTH {
            series.points.pop_front();
        }
        (series.last, series.read) = (steps, (held, waited));
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
            let row = SeriesRow {
                name: series.name.clone(),
                device: series.device,
                step_ms: STEP.0 / 1_000_000,
                age_ms: self.age_ms(now, series),
                charged_mib: series
                    .points
                    .iter()
                    .map(|point| point.charged_mib)
                    .collect(),
                held: series.points.iter().map(|point| point.held).collect(),
                waited: series.points.iter().map(|point| point.waited).collect(),
            };
            (*key, row)
        })
    }

    /// The grants from this series on, each with its key.
    pub(super) fn grants(
        &self,
        now: Nanos,
        from: Key,
    ) -> impl Iterator<Item = (Key, GrantsRow)> + use<'_> {
        self.series.range(from..).map(move |(key, series)| {
            let row = GrantsRow {
                name: series.name.clone(),
                device: series.device,
                step_ms: STEP.0 / 1_000_000,
                age_ms: self.age_ms(now, series),
                grant_mib: series.points.iter().map(|point| point.grant_mib).collect(),
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
        let bytes = (charged, charged + (4 << 20));
        history.note(key, (&format!("t{tenant}"), [7; 16]), bytes, times);
    }

    fn rows(history: &History, now: Nanos) -> Vec<SeriesRow> {
        let all = history.rows(now, (TenantId(0), 0));
        all.map(|(_, row)| row).collect()
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
        let later = at(1) + Nanos::secs(2);
        let (_, grants) = history.grants(later, (TenantId(0), 0)).next().expect("one");
        assert_eq!((grants.step_ms, grants.age_ms), (10_000, 2_000));
        assert_eq!(grants.grant_mib, [5, 7]);
        assert_eq!(
            (&rows[0].held[..], &rows[0].waited[..]),
            (&[0, 500][..], &[0, 10][..])
        );
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
