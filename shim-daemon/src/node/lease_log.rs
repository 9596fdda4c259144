//! The last changes of tenants' leases, for traces. Bounded: one ring for the node, so that a
//! device on which much changes shortens how far back it reaches and takes no more memory.

use std::collections::{BTreeMap, VecDeque};

use gpushare_core::{LeaseKind, Nanos};
use gpushare_protocol::wire::{LeaseChange, LeaseWas, LeasesRow};

use super::history::Key;

/// Changes that are kept: with 40 bytes each, 1.3 MiB.
const MOST: usize = 32_768;

#[derive(Debug)]
struct Change {
    at: Nanos,
    key: Key,
    was: LeaseWas,
}

/// A tenant on a device that has a lease, or changes in the ring.
#[derive(Debug)]
struct Owner {
    name: String,
    device: [u8; 16],
    /// Its changes in the ring.
    many: usize,
    /// Its state before the first of them.
    before: LeaseWas,
    last: LeaseWas,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct LeaseLog {
    changes: VecDeque<Change>,
    owners: BTreeMap<Key, Owner>,
}

/// The state of a lease as a trace shows it.
fn shown(kind: LeaseKind) -> LeaseWas {
    match kind {
        LeaseKind::Free => LeaseWas::Free,
        LeaseKind::Open { slice: None, .. } => LeaseWas::Turn,
        LeaseKind::Open { slice, .. } if slice == Some(Nanos::ZERO) => LeaseWas::Shared,
        LeaseKind::Open { .. } => LeaseWas::Yielding,
        LeaseKind::Closed { .. } => LeaseWas::Closed,
    }
}

impl LeaseLog {
    /// A tenant's lease is this one from now on. A change that looks the same in a trace is not
    /// kept.
    pub(super) fn note(
        &mut self,
        at: Nanos,
        key: Key,
        (name, device): (&str, [u8; 16]),
        kind: LeaseKind,
    ) {
        self.owners.entry(key).or_insert_with(|| Owner {
            name: name.to_owned(),
            device,
            many: 0,
            before: LeaseWas::Gone,
            last: LeaseWas::Gone,
        });
        self.push(at, key, shown(kind));
    }

    /// A tenant has no process on a device from now on, and so no lease.
    pub(super) fn end(&mut self, at: Nanos, key: Key) {
        self.push(at, key, LeaseWas::Gone);
    }

    fn push(&mut self, at: Nanos, key: Key, was: LeaseWas) {
        let Some(owner) = self.owners.get_mut(&key).filter(|owner| owner.last != was) else {
            return;
        };
        (owner.last, owner.many) = (was, owner.many + 1);
        self.changes.push_back(Change { at, key, was });
        if self.changes.len() > MOST {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some(old) = self.changes.pop_front() else {
            return;
        };
        if let Some(owner) = self.owners.get_mut(&old.key) {
            (owner.many, owner.before) = (owner.many - 1, old.was);
            // A tenant that has a lease stays, however long that does not change.
            if owner.many == 0 && owner.last == LeaseWas::Gone {
                self.owners.remove(&old.key);
            }
        }
    }

    /// The rows from this one on, each with its key: a tenant's newest changes, oldest first. They
    /// begin with the lease that it had at the ring's oldest change, but where it has changed more
    /// often than a row has room for.
    pub(super) fn rows(
        &self,
        now: Nanos,
        from: Key,
    ) -> impl Iterator<Item = (Key, LeasesRow)> + use<'_> {
        let ago_us = move |at: Nanos| (now - at).0 / 1_000;
        let oldest = self.changes.front().map(|change| ago_us(change.at));
        // One pass over the ring, whatever the number of tenants.
        let mut changes: BTreeMap<Key, Vec<LeaseChange>> = BTreeMap::new();
        for change in self.changes.iter().filter(|change| change.key >= from) {
            changes.entry(change.key).or_default().push(LeaseChange {
                ago_us: ago_us(change.at),
                was: change.was,
            });
        }
        self.owners.range(from..).map(move |(key, owner)| {
            let had = Some(owner.before).filter(|was| *was != LeaseWas::Gone);
            let had = had.zip(oldest);
            let mut all: Vec<LeaseChange> = had
                .map(|(was, ago_us)| LeaseChange { ago_us, was })
                .into_iter()
                .chain(changes.remove(key).unwrap_or_default())
                .collect();
            all.drain(..all.len().saturating_sub(LeasesRow::MOST));
            let row = LeasesRow {
                name: owner.name.clone(),
                device: owner.device,
                changes: all,
            };
            (*key, row)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_core::TenantId;

    const CLOSED: LeaseKind = LeaseKind::Closed { contended: true };
    const OPEN: LeaseKind = LeaseKind::Open {
        deadline: None,
        window: Nanos::ZERO,
        contended: true,
        slice: Some(Nanos::ZERO),
    };

    fn note(log: &mut LeaseLog, at: u64, tenant: u64, kind: LeaseKind) {
        let name = format!("t{tenant}");
        log.note(
            Nanos::micros(at),
            (TenantId(tenant), 0),
            (&name, [7; 16]),
            kind,
        );
    }

    fn rows(log: &LeaseLog, now: u64) -> Vec<LeasesRow> {
        let all = log.rows(Nanos::micros(now), (TenantId(0), 0));
        all.map(|(_, row)| row).collect()
    }

    #[test]
    fn changes_are_told_once_with_their_age() {
        let mut log = LeaseLog::default();
        let slice = LeaseKind::Open {
            deadline: None,
            window: Nanos::ZERO,
            contended: true,
            slice: Some(Nanos::micros(250)),
        };
        for (at, kind) in [(10, OPEN), (11, OPEN), (20, slice), (30, CLOSED)] {
            note(&mut log, at, 1, kind);
        }
        note(&mut log, 30, 2, LeaseKind::Free);
        let rows = rows(&log, 130);
        let told = |row: &LeasesRow| -> Vec<(u64, LeaseWas)> {
            let changes = row.changes.iter();
            changes.map(|change| (change.ago_us, change.was)).collect()
        };
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].name, "t1");
        assert_eq!(
            told(&rows[0]),
            [
                (120, LeaseWas::Shared),
                (110, LeaseWas::Yielding),
                (100, LeaseWas::Closed)
            ]
        );
        assert_eq!(told(&rows[1]), [(100, LeaseWas::Free)]);
    }

    #[test]
    fn a_lease_ends_once_and_the_next_one_begins_anew() {
        let mut log = LeaseLog::default();
        let key = (TenantId(1), 0);
        // It had none.
        log.end(Nanos::micros(5), key);
        assert_eq!(rows(&log, 9), []);
        note(&mut log, 10, 1, LeaseKind::Free);
        for at in [20, 30] {
            log.end(Nanos::micros(at), key);
        }
        note(&mut log, 40, 1, LeaseKind::Free);
        let rows = rows(&log, 100);
        let told = rows[0].changes.iter();
        let told: Vec<_> = told.map(|change| (change.ago_us, change.was)).collect();
        let all = [
            (90, LeaseWas::Free),
            (80, LeaseWas::Gone),
            (60, LeaseWas::Free),
        ];
        assert_eq!(told, all);
    }

    /// So many changes of a tenant from that time on, one a microsecond.
    fn toggles(log: &mut LeaseLog, from: u64, tenant: u64, many: u64) {
        for at in from..from + many {
            let kind = match at % 2 {
                0 => OPEN,
                _ => CLOSED,
            };
            note(log, at, tenant, kind);
        }
    }

    #[test]
    fn a_lease_that_does_not_change_is_told_as_far_as_the_ring_reaches() {
        let mut log = LeaseLog::default();
        note(&mut log, 0, 1, LeaseKind::Free);
        toggles(&mut log, 10, 2, MOST as u64 + 4);
        let (now, oldest) = (10 + MOST as u64 + 4, 14);
        let told = rows(&log, now);
        let since = |row: &LeasesRow| (row.changes[0].ago_us, row.changes[0].was);
        assert_eq!(told[0].name, "t1");
        assert_eq!(told[0].changes.len(), 1);
        assert_eq!(since(&told[0]), (now - oldest, LeaseWas::Free));
        // It goes on from there.
        note(&mut log, now, 1, OPEN);
        let told = rows(&log, now);
        let all: Vec<_> = told[0].changes.iter().map(|change| change.was).collect();
        assert_eq!(all, [LeaseWas::Free, LeaseWas::Shared]);
        // A tenant that has ended is forgotten with its end.
        log.end(Nanos::micros(now), (TenantId(1), 0));
        toggles(&mut log, now + now % 2, 2, MOST as u64 - 1);
        assert_eq!(rows(&log, 2 * now).len(), 2);
        toggles(&mut log, 3 * now + now % 2, 2, 2);
        assert_eq!(rows(&log, 4 * now).len(), 1);
        assert_eq!(log.owners.len(), 1);
    }

    #[test]
    fn the_ring_forgets_the_oldest_changes() {
        let mut log = LeaseLog::default();
        toggles(&mut log, 0, 2, MOST as u64 + 1);
        assert_eq!(log.changes.len(), MOST);
        let rows = rows(&log, MOST as u64 + 1);
        assert_eq!(rows[0].changes.len(), LeasesRow::MOST);
        let newest = rows[0].changes.last().expect("changes");
        assert_eq!((newest.ago_us, newest.was), (1, LeaseWas::Shared));
    }
}
