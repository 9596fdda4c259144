//! The last changes of tenants' leases, for traces. Bounded: one ring for the node, so that a
//! device on which much changes shortens how far back it reaches and takes no more memory.

use std::collections::{BTreeMap, VecDeque};

use gpushare_core::{LeaseKind, Nanos};
use gpushare_protocol::wire::{LeaseChange, LeaseWas, LeasesRow};

use super::history::Key;

/// Changes that are kept: with 40 bytes each, 1.3 MiB.
const MOST: usize = 32_768;
/// Changes in one row: far fewer bytes than a frame may have.
const ROW_MOST: usize = 4_096;

#[derive(Debug)]
struct Change {
    at: Nanos,
    key: Key,
    was: LeaseWas,
}

/// A tenant on a device with changes in the ring.
#[derive(Debug)]
struct Owner {
    name: String,
    device: [u8; 16],
    /// Its changes in the ring.
    many: usize,
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
            last: LeaseWas::Gone,
        });
        self.push(at, key, shown(kind));
    }

    /// A tenant has no process on a device from now on, and so no lease.
    pub(super) fn end(&mut self, at: Nanos, key: Key) {
        self.push(at, key, LeaseWas::Gone);
    }

    /// An owner without changes in the ring is none: before its first one it had no lease.
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
            owner.many -= 1;
            if owner.many == 0 {
                self.owners.remove(&old.key);
            }
        }
    }

    /// The rows from this one on, each with its key: a tenant's newest changes, oldest first.
    pub(super) fn rows(
        &self,
        now: Nanos,
        from: Key,
    ) -> impl Iterator<Item = (Key, LeasesRow)> + use<'_> {
        // One pass over the ring, whatever the number of tenants.
        let mut changes: BTreeMap<Key, Vec<LeaseChange>> = BTreeMap::new();
        for change in self.changes.iter().filter(|change| change.key >= from) {
            changes.entry(change.key).or_default().push(LeaseChange {
                ago_us: (now - change.at).0 / 1_000,
                was: change.was,
            });
        }
        changes.into_iter().filter_map(|(key, mut changes)| {
            changes.drain(..changes.len().saturating_sub(ROW_MOST));
            let owner = self.owners.get(&key)?;
            let row = LeasesRow {
                name: owner.name.clone(),
                device: owner.device,
                changes,
            };
            Some((key, row))
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

    #[test]
    fn the_ring_forgets_the_oldest_and_tenants_without_changes() {
        let mut log = LeaseLog::default();
        note(&mut log, 0, 1, OPEN);
        for at in 0..MOST as u64 {
            let kind = match at % 2 {
                0 => OPEN,
                _ => CLOSED,
            };
            note(&mut log, at, 2, kind);
        }
        assert_eq!(log.changes.len(), MOST);
        assert_eq!(log.owners.len(), 1, "the first tenant is forgotten");
        let rows = rows(&log, MOST as u64);
        assert_eq!(rows[0].changes.len(), ROW_MOST);
        let newest = rows[0].changes.last().expect("changes");
        assert_eq!((newest.ago_us, newest.was), (1, LeaseWas::Closed));
    }
}
