//! Facts of a trace beside the events: those that daemons have in memory, and the ends of tenants.
//! The part of all that which is shown.

use super::waits::WaitsNow;
use super::{Lives, Trace};
use crate::daemon::{self, Talk};
use crate::failure::Failure;
use crate::select::Wanted;
use gpushare_protocol::wire::{LeasesRow, Place, SeriesRow, SwapRow};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The part that is shown. States that began before it are shown from its begin on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// Events, and what they tell, from then on, in milliseconds since 1970.
    pub(crate) from_ms: u64,
    /// Also what daemons have in memory; 0: all of it.
    pub(crate) all_from_ms: u64,
    /// Kinds of events that are marks; empty: all.
    pub(crate) kinds: Vec<String>,
    /// Not all tenants are shown: then nothing is said of how a GPU is shared.
    pub(crate) has_some: bool,
}

/// See the module's page.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) window: Window,
    pub(super) lives: Lives,
    pub(super) waiting: Vec<WaitsNow>,
    pub(super) series: Vec<SeriesRow>,
    pub(super) leases: Vec<LeasesRow>,
    /// Tenants whose memory of a device can move and is there.
    pub(super) inside: BTreeSet<(String, [u8; 16])>,
    /// Tenants whose memory can move, with none of it in files.
    pub(super) without_files: BTreeSet<String>,
}

impl Kept {
    /// That of the tenants and the GPU that are asked for.
    pub(super) fn of(
        (lives, window): (Lives, Window),
        wanted: &Wanted,
        daemons: &mut Vec<Talk>,
    ) -> Result<Self, Failure> {
        let mut kept = Self {
            window,
            lives,
            ..Self::default()
        };
        daemon::those_that_answer(daemons, |daemon| kept.add(wanted, daemon))?;
        Ok(kept)
    }

    /// Adds the facts of a daemon. If it leaves meanwhile, the facts that it has told stay.
    fn add(&mut self, wanted: &Wanted, daemon: &mut Talk) -> Result<(), Failure> {
        for row in daemon.status()? {
            self.lives.is_present(row.name);
        }
        self.lives.names.add(&daemon.pods()?);
        let gpus = wanted.gpus(daemon)?;
        let has = |name: &str, gpu: [u8; 16]| {
            wanted.is_of_tenant(Some(name)) && gpus.as_ref().is_none_or(|gpus| gpus.contains(&gpu))
        };
        let rows = daemon.tenants()?.into_iter();
        let rows = rows.filter(|row| has(&row.name, row.device));
        for row in rows {
            self.waiting.extend(WaitsNow::of(&row));
        }
        let rows = daemon.residency()?.into_iter();
        let rows = rows.filter(|row| row.place == Place::In && has(&row.name, row.device));
        self.inside.extend(rows.map(|row| (row.name, row.device)));
        // A tenant has the same figure on each of its devices.
        for row in daemon.swaps()? {
            if let SwapRow::Tenant(row) = row
                && row.in_files == 0
                && has(&row.name, row.device)
            {
                self.without_files.insert(row.name);
            }
        }
        let rows = daemon.history()?.into_iter();
        self.series
            .extend(rows.filter(|row| has(&row.name, row.device)));
        let rows = daemon.leases()?.into_iter();
        self.leases
            .extend(rows.filter(|row| has(&row.name, row.device)));
        Ok(())
    }
}

impl Trace {
    /// Leaves out what is before that moment. A span that goes on then begins there, and so does an
    /// arrow that ends after it.
    pub(super) fn clip(&mut self, from_ms: u64) {
        let from = from_ms * 1000;
        let number = |event: &Value, name: &str| event[name].as_u64().unwrap_or(0);
        let is_arrow = |event: &Value| event["id"].is_u64();
        let mut arrows: BTreeMap<u64, u64> = BTreeMap::new();
        for event in self.events.iter().filter(|event| is_arrow(event)) {
            let last = arrows.entry(number(event, "id")).or_default();
            *last = (*last).max(number(event, "ts"));
        }
        self.events.retain_mut(|event| {
            let begin = number(event, "ts");
            if begin >= from {
                return true;
            }
            let end = match is_arrow(event) {
                true => arrows[&number(event, "id")],
                false => begin + number(event, "dur"),
            };
            if event["dur"].is_u64() {
                event["dur"] = json!(end.saturating_sub(from));
            }
            event["ts"] = json!(from);
            end > from
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{group, of, record};
    use super::super::trace;
    use super::*;
    use gpushare_protocol::wire::{LeaseChange, LeaseWas};

    fn shown(window: Window, leases: Vec<LeasesRow>) -> Value {
        let records = [
            record(1_000, "admitted", "lost", &[]),
            record(2_000, "admitted", "web", &[]),
            record(3_000, "left", "web", &[]),
            record(4_000, "admitted", "job", &[]),
            record(5_000, "gone", "job", &[]),
            record(8_000, "idle", "web", &[]),
        ];
        let mut lives = Lives::of(&records);
        lives.is_present("web".to_owned());
        let kept = Kept {
            window,
            lives,
            leases,
            ..Kept::default()
        };
        trace(&records, &kept, 20_000)
    }

    /// Spans in seconds, and marks, by name.
    fn spans(trace: &Value) -> Vec<(&str, u64, u64)> {
        let number = |event: &Value, name: &str| event[name].as_u64().expect("one") / 1_000_000;
        let mut all: Vec<_> = of(trace, "X")
            .into_iter()
            .map(|event| {
                let from = number(event, "ts");
                let name = event["name"].as_str().expect("a name");
                (name, from, from + number(event, "dur"))
            })
            .collect();
        all.sort_unstable();
        all
    }

    fn marks(trace: &Value) -> usize {
        of(trace, "i").len()
    }

    #[test]
    fn what_began_before_the_window_is_shown_from_its_begin_on() {
        let whole = shown(Window::default(), vec![]);
        assert!(spans(&whole).contains(&("off the GPU", 3, 20)), "{whole}");
        assert!(spans(&whole).contains(&("runs", 4, 5)));
        let window = Window {
            from_ms: 7_000,
            ..Window::default()
        };
        let part = shown(window, vec![]);
        let wanted = [("idle", 8, 20), ("off the GPU", 7, 20), ("runs", 7, 20)];
        assert_eq!(spans(&part), wanted);
        assert_eq!((marks(&whole) > 0, marks(&part)), (true, 0));
        // Of tenants that had ended there is no group; of one whose end is not known neither.
        let groups = |trace: &Value| {
            let names = of(trace, "M");
            let named = |name: &str| names.iter().any(|event| event["args"]["name"] == name);
            ["tenant web", "tenant job", "tenant lost"].map(named)
        };
        assert_eq!(groups(&whole), [true, true, true]);
        assert_eq!(groups(&part), [true, false, false]);
    }

    #[test]
    fn a_kind_chooses_marks_and_no_states() {
        let window = |kind: &str| Window {
            kinds: vec![kind.to_owned()],
            ..Window::default()
        };
        let [gone, refused] = ["gone", "refused"].map(|kind| shown(window(kind), vec![]));
        assert_eq!((marks(&gone), marks(&refused)), (1, 0));
        assert_eq!(spans(&gone), spans(&shown(Window::default(), vec![])));
    }

    #[test]
    fn how_a_gpu_is_shared_is_shown_only_with_all_of_its_tenants() {
        let change = LeaseChange {
            ago_us: 1_000_000,
            was: LeaseWas::Turn,
        };
        let row = LeasesRow {
            name: "web".to_owned(),
            device: [7; 16],
            changes: vec![change],
        };
        for has_some in [false, true] {
            let window = Window {
                has_some,
                all_from_ms: 19_500,
                ..Window::default()
            };
            let trace = shown(window, vec![row.clone()]);
            let names: Vec<_> = spans(&trace).into_iter().map(|(name, ..)| name).collect();
            assert!(names.contains(&"has the turn"), "{names:?}");
            assert_eq!(names.contains(&"turn of web"), !has_some, "{names:?}");
            assert_eq!(names.len(), 4 + usize::from(!has_some), "{names:?}");
            let _ = group(&trace, "tenant web");
        }
    }
}
