//! The daemon's books: how many turns each container had, and how often it had not drained when it should have.

use crate::daemon;
use gpushare_protocol::wire::ShareRow;
use serde::Serialize;

/// Between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Turns {
    pub(crate) turns: u64,
    pub(crate) overruns: u64,
}

/// What all daemons say that can be talked to now.
pub(crate) fn look() -> Vec<ShareRow> {
    let mut rows = Vec::new();
    for mut daemon in daemon::all().serving {
        if let Ok(more) = daemon.shares() {
            rows.extend(more);
        }
    }
    rows
}

/// A container's turns on a device from one look to another; `None` where a daemon did not know it both times.
pub(crate) fn between(
    before: &[ShareRow],
    after: &[ShareRow],
    container: &str,
    device: [u8; 16],
) -> Option<Turns> {
    let find = |rows: &[ShareRow]| {
        let mut rows = rows.iter();
        let row = rows.find(|row| (row.name.as_str(), row.device) == (container, device))?;
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
        }
    }

    #[test]
    fn turns_are_of_one_container_on_one_device_and_only_between_the_looks() {
        let before = [row("a", 1, 5, 1), row("a", 2, 7, 0), row("b", 1, 2, 0)];
        let after = [row("a", 1, 9, 2), row("a", 2, 8, 0)];
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
}
