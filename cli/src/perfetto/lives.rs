//! When tenants ended, and which are there: from all known events, whichever of them a trace shows,
//! and from the daemons.

use gpushare_exporter::Names;
use gpushare_protocol::wire::EventRecord;
use std::collections::{BTreeMap, BTreeSet};

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// Of each name, the ends of its tenants, in milliseconds since 1970.
    ended: BTreeMap<String, BTreeSet<u64>>,
    /// Tenants that daemons have now.
    present: BTreeSet<String>,
    /// The names by which tenants are shown.
    pub(super) names: Names,
}

impl Lives {
    /// The ends that these events tell.
    pub(crate) fn of(records: &[EventRecord]) -> Self {
        let mut lives = Self {
            names: Names::of(&[], records),
            ..Self::default()
        };
        for record in records.iter().filter(|record| record.kind == "gone") {
            if let Some(name) = &record.tenant {
                let ended = lives.ended.entry(name.clone()).or_default();
                ended.insert(record.at_ms);
            }
        }
        lives
    }

    /// A daemon has a tenant of this name.
    pub(super) fn is_present(&mut self, name: String) {
        self.present.insert(name);
    }

    /// When the tenant of this name ended that lived at `at_ms`. `None`: no end is known.
    pub(super) fn end_from(&self, name: &str, at_ms: u64) -> Option<u64> {
        let mut later = self.ended.get(name)?.range(at_ms..);
        later.next().copied()
    }

    /// Until when the tenant of this name lived that did at `at_ms`: until `now_ms`, where a daemon
    /// has it. `None`: that is not known.
    pub(super) fn until(&self, name: &str, at_ms: u64, now_ms: u64) -> Option<u64> {
        let here = || self.present.contains(name).then_some(now_ms);
        self.end_from(name, at_ms).or_else(here)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{group, of, record};
    use super::super::{Kept, trace};
    use super::*;
    use gpushare_protocol::wire::{LeaseChange, LeaseWas, LeasesRow};
    use serde_json::Value;

    const NOW: u64 = 20_500;
    const GPU: &str = "GPU-07070707-0707-0707-0707-070707070707";

    fn row(name: &str, changes: Vec<LeaseChange>) -> LeasesRow {
        LeasesRow {
            name: name.to_owned(),
            device: [7; 16],
            changes,
        }
    }

    /// The spans of a group: name, begin and end in milliseconds.
    fn spans(trace: &Value, group_name: &str) -> Vec<(String, u64, u64)> {
        let pid = group(trace, group_name);
        let all = of(trace, "X").into_iter();
        let span = |event: &Value| {
            let number = |name: &str| event[name].as_u64().expect("a number") / 1000;
            let name = event["name"].as_str().expect("a name").to_owned();
            (name, number("ts"), number("ts") + number("dur"))
        };
        all.filter(|event| event["pid"] == pid).map(span).collect()
    }

    fn named(name: &str, from: u64, to: u64) -> (String, u64, u64) {
        (name.to_owned(), from, to)
    }

    fn change(at_ms: u64, was: LeaseWas) -> LeaseChange {
        LeaseChange {
            ago_us: (NOW - at_ms) * 1000,
            was,
        }
    }

    #[test]
    fn a_tenant_has_ended_also_where_its_end_is_not_shown() {
        let ends = [5_500, 6_500].map(|at| record(at, "gone", "burst", &[]));
        let kept = Kept {
            lives: Lives::of(&ends),
            leases: vec![
                // An earlier tenant of the name.
                row("burst", vec![change(5_000, LeaseWas::Shared)]),
                row("burst", vec![change(6_000, LeaseWas::Turn)]),
                row("web", vec![change(8_000, LeaseWas::Turn)]),
            ],
            ..Kept::default()
        };
        let told = trace(&[], &kept, NOW);
        assert_eq!(
            spans(&told, "tenant burst"),
            [
                named("shares", 5_000, 5_500),
                named("has the turn", 6_000, 6_500)
            ]
        );
        let gpu = spans(&told, GPU);
        let turns = [
            named("together", 5_000, 5_500),
            named("turn of burst", 6_000, 6_500),
            named("turn of web", 8_000, NOW),
        ];
        assert_eq!(gpu, turns);
    }

    #[test]
    fn a_tenant_without_processes_on_a_gpu_does_not_have_it() {
        let changes = vec![
            change(1_000, LeaseWas::Turn),
            change(3_000, LeaseWas::Gone),
            change(4_000, LeaseWas::Free),
        ];
        let kept = Kept {
            leases: vec![row("burst", changes)],
            ..Kept::default()
        };
        let told = trace(&[], &kept, NOW);
        let burst = [
            named("has the turn", 1_000, 3_000),
            named("alone", 4_000, NOW),
        ];
        assert_eq!(spans(&told, "tenant burst"), burst);
        let gpu = spans(&told, GPU);
        let regimes = [
            named("turn of burst", 1_000, 3_000),
            named("free", 4_000, NOW),
        ];
        assert_eq!(gpu, regimes);
    }

    #[test]
    fn a_tenant_that_a_daemon_has_lives_until_now() {
        let admitted = |at: u64, name: &str| record(at, "admitted", name, &[]);
        let records = [
            admitted(1_000, "burst"),
            admitted(1_500, "ended"),
            admitted(2_000, "web"),
            record(3_000, "idle", "web", &[]),
        ];
        let mut lives = Lives::of(&[record(2_500, "gone", "ended", &[])]);
        lives.is_present("web".to_owned());
        let kept = Kept {
            lives,
            ..Kept::default()
        };
        let told = trace(&records, &kept, NOW);
        let of = |name| spans(&told, name);
        let web = [named("runs", 2_000, NOW), named("idle", 3_000, NOW)];
        assert_eq!(of("tenant web"), web);
        assert_eq!(of("tenant ended"), [named("runs", 1_500, 2_500)]);
        // Its daemon has left, so nothing is known of it after the last event.
        assert_eq!(of("tenant burst"), [named("runs", 1_000, 3_000)]);
    }

    /// The next daemon tells `active` and `returned` only of what it has told itself.
    #[test]
    fn a_state_that_a_daemon_told_ends_where_the_next_one_began() {
        let told = |is_there: bool, admitted: &[u64]| {
            let mut records = vec![
                record(2_000, "idle", "web", &[]),
                record(3_000, "left", "web", &[]),
                record(4_000, "spilled", "web", &[]),
            ];
            let admitted = admitted
                .iter()
                .map(|at| record(*at, "admitted", "web", &[]));
            records.extend(admitted);
            records.sort_by_key(|record| record.at_ms);
            let mut kept = Kept::default();
            kept.lives.is_present("web".to_owned());
            if is_there {
                kept.inside.insert(("web".to_owned(), [7; 16]));
                kept.without_files.insert("web".to_owned());
            }
            let mut all = spans(&trace(&records, &kept, NOW), "tenant web");
            all.retain(|(name, ..)| ["idle", "in files", "off the GPU"].contains(&&**name));
            all.sort();
            all
        };
        let there = [
            named("idle", 2_000, 5_000),
            named("in files", 4_000, 5_000),
            named("off the GPU", 3_000, 5_000),
        ];
        assert_eq!(told(true, &[1_000, 5_000]), there);
        // Its memory is still off the GPU.
        let away = [
            named("idle", 2_000, 5_000),
            named("in files", 4_000, NOW),
            named("off the GPU", 3_000, NOW),
        ];
        assert_eq!(told(false, &[1_000, 5_000]), away);
        // The same daemon has it all the time.
        let same = [
            named("idle", 2_000, NOW),
            named("in files", 4_000, NOW),
            named("off the GPU", 3_000, NOW),
        ];
        for is_there in [true, false] {
            assert_eq!(told(is_there, &[1_000]), same);
        }
    }
}
