//! The daemon's counters: how many turns each tenant had, and how often it overran them; on a
//! shared device, how often it was held, and how often the device's mode changed.

use crate::daemon;
use gpushare_protocol::wire::{Regime, ShareRow, SharingRow};
use serde::Serialize;

/// The difference between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Turns {
    pub(crate) turns: u64,
    pub(crate) overruns: u64,
}

/// The answers of all reachable daemons.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    pub(crate) shares: Vec<ShareRow>,
    pub(crate) devices: Vec<SharingRow>,
}

/// Their answers now.
pub(crate) fn look() -> Books {
    let mut books = Books::default();
    for mut daemon in daemon::all().serving {
        books.shares.extend(daemon.shares().unwrap_or_default());
        books.devices.extend(daemon.sharing().unwrap_or_default());
    }
    books
}

/// How tenants had a device between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Had {
    /// One after the other, at both readings.
    InTurns,
    /// At the same time; the device's mode changed so often.
    Together(u64),
}

/// How tenants had the device; `None` where the daemon's answers do not say it: without one, after
/// a reading that failed, or where it was shared at first and had in turns later.
pub(crate) fn had(before: &Books, after: &Books, device: [u8; 16]) -> Option<Had> {
    let row = |books: &Books| {
        let mut rows = books.devices.iter();
        rows.find(|row| row.device == device).cloned()
    };
    let (before, after) = (row(before), row(after)?);
    if after.regime == Regime::Turns {
        let in_turns = before.is_some_and(|before| before.regime == Regime::Turns);
        return in_turns.then_some(Had::InTurns);
    }
    let before = before.map_or(0, |row| row.changes);
    Some(Had::Together(after.changes.saturating_sub(before)))
}

/// A tenant's turns on a device between two readings; `None` if the daemon did not know it at both.
pub(crate) fn between(
    before: &Books,
    after: &Books,
    tenant: &str,
    device: [u8; 16],
) -> Option<Turns> {
    let find = |books: &Books| {
        let mut rows = books.shares.iter();
        let row = rows.find(|row| (row.name.as_str(), row.device) == (tenant, device))?;
        Some((row.turns, row.overruns))
    };
    let (before, after) = (find(before)?, find(after)?);
    Some(Turns {
        turns: after.0.saturating_sub(before.0),
        overruns: after.1.saturating_sub(before.1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_protocol::wire::ShareState;

    fn row(name: &str, device: u8, turns: u64, overruns: u64) -> ShareRow {
        ShareRow {
            name: name.to_owned(),
            device: [device; 16],
            weight: 500,
            request: None,
            cap: None,
            held: 0,
            over_ms: 0,
            state: ShareState::Idle,
            turns,
            overruns,
            ungated: 0,
            alone: None,
            steered: None,
        }
    }

    #[test]
    fn turns_are_of_one_tenant_on_one_device_and_only_between_the_looks() {
        let books = |shares: Vec<ShareRow>| Books {
            shares,
            devices: Vec::new(),
        };
        let before = books(vec![
            row("a", 1, 5, 1),
            row("a", 2, 7, 0),
            row("b", 1, 2, 0),
        ]);
        let after = books(vec![row("a", 1, 9, 2), row("a", 2, 8, 0)]);
        let had = |name, device| between(&before, &after, name, [device; 16]);
        assert_eq!(
            had("a", 1).map(|had| (had.turns, had.overruns)),
            Some((4, 1))
        );
        assert_eq!(
            had("a", 2).map(|had| (had.turns, had.overruns)),
            Some((1, 0))
        );
        assert_eq!(had("b", 1), None);
    }

    #[test]
    fn a_device_is_had_as_the_daemon_says_at_both_looks() {
        let books = |regime, changes| Books {
            shares: Vec::new(),
            devices: vec![SharingRow {
                device: [1; 16],
                regime,
                changes,
                lately: 0,
                off: None,
            }],
        };
        let (before, held) = (books(Regime::Together, 3), books(Regime::Held, 5));
        let (none, turns) = (Books::default(), books(Regime::Turns, 0));
        assert_eq!(had(&before, &held, [1; 16]), Some(Had::Together(2)));
        assert_eq!(had(&none, &held, [1; 16]), Some(Had::Together(5)));
        assert_eq!(had(&turns, &turns, [1; 16]), Some(Had::InTurns));
        // Of another device, without an answer, and where it was shared at first.
        assert_eq!(had(&before, &held, [2; 16]), None);
        assert_eq!(had(&turns, &none, [1; 16]), None);
        assert_eq!(had(&none, &turns, [1; 16]), None);
        assert_eq!(had(&before, &turns, [1; 16]), None);
    }
}
