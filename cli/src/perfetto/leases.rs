//! Leases as tracks: of a tenant when its gate was open, yielding or closed, of a GPU whose turn it
//! was, or how tenants shared it.

use super::{Lives, Trace};
use gpushare_protocol::wire::{LeaseWas, LeasesRow};
use std::collections::BTreeMap;

/// A GPU's track of its regimes.
pub(super) const SHARING: u32 = 2;
/// Tenants' tracks of gates begin here, one for each GPU.
pub(super) const GATES: u32 = 10;

/// The name of a turn, before its tenant's.
const TURN: &str = "turn of ";

/// A change of one tenant's lease: when, in microseconds since 1970, whose, and what it became;
/// `None` when the tenant ended, or its last process left the device.
type Step<'a> = (u64, &'a str, Option<LeaseWas>);

/// A span on a track: from and to, in microseconds since 1970.
type Span = (u64, u64);

impl Trace {
    /// The leases of all tenants until `now_ms`, each tenant's until its end.
    pub(super) fn leases(&mut self, rows: &[LeasesRow], lives: &Lives, now_ms: u64) {
        let mut devices: BTreeMap<[u8; 16], Vec<Step<'_>>> = BTreeMap::new();
        // From when on the states of all tenants of a device are known.
        let mut known: BTreeMap<[u8; 16], u64> = BTreeMap::new();
        for row in rows {
            let steps = steps(row, lives, now_ms);
            let (gpu, tenant) = (self.gpu(row.device), self.tenant(&row.name));
            let track = GATES + gpu;
            self.of_devices
                .insert((tenant, track), ("gate", row.device));
            for (span, _, was) in spans(&steps, now_ms * 1000) {
                if let Some(was) = was.filter(|_| span.1 > span.0) {
                    self.exact(tenant, track, span, said(was));
                }
            }
            let begin = steps
                .first()
                .filter(|_| row.changes.len() >= LeasesRow::MOST);
            if let Some((begin, ..)) = begin {
                let known = known.entry(row.device).or_default();
                *known = (*known).max(*begin);
            }
            devices.entry(row.device).or_default().extend(steps);
        }
        if self.window.has_some {
            return;
        }
        for (device, mut steps) in devices {
            steps.sort_by_key(|(at, ..)| *at);
            let gpu = self.gpu(device);
            let known = known.get(&device).copied().unwrap_or(0);
            let all = regimes(&steps, now_ms * 1000).into_iter();
            for ((from, to), name) in all.filter(|((_, to), _)| *to > known) {
                let name = match name.strip_prefix(TURN) {
                    Some(tenant) => format!("{TURN}{}", self.names.shown(tenant)),
                    None => name,
                };
                self.exact(gpu, SHARING, (from.max(known), to), &name);
            }
        }
    }
}

/// A tenant's changes, ended by its end if that came after the last of them.
fn steps<'a>(row: &'a LeasesRow, lives: &Lives, now_ms: u64) -> Vec<Step<'a>> {
    let name = row.name.as_str();
    let mut steps: Vec<Step<'_>> = row
        .changes
        .iter()
        .map(|change| {
            let at = (now_ms * 1000).saturating_sub(change.ago_us);
            (
                at,
                name,
                Some(change.was).filter(|was| *was != LeaseWas::Gone),
            )
        })
        .collect();
    // A newer tenant of the name goes on after the end of an older one. Ends are in whole
    // milliseconds.
    let last = steps.last().map_or(0, |(at, ..)| *at);
    if let Some(ended) = lives.end_from(name, last / 1000) {
        steps.push(((ended * 1000).max(last), name, None));
    }
    steps
}

/// Each step's state and its span: until the next step, for the last one until `end`.
fn spans<'a>(
    steps: &'a [Step<'a>],
    end: u64,
) -> impl Iterator<Item = (Span, &'a str, Option<LeaseWas>)> {
    let ends = steps.iter().skip(1).map(|(at, ..)| *at);
    let ends = ends.chain([end]);
    steps
        .iter()
        .zip(ends)
        .map(|((at, name, was), end)| ((*at, end.max(*at)), *name, *was))
}

fn said(was: LeaseWas) -> &'static str {
    match was {
        LeaseWas::Free => "alone",
        LeaseWas::Shared => "shares",
        LeaseWas::Yielding => "yields",
        LeaseWas::Turn => "has the turn",
        LeaseWas::Closed => "closed",
        _ => "unknown to this version",
    }
}

/// How a device was shared between each two steps of any of its tenants.
fn regimes(steps: &[Step<'_>], end: u64) -> Vec<(Span, String)> {
    let mut now: BTreeMap<&str, LeaseWas> = BTreeMap::new();
    let mut all: Vec<(Span, String)> = Vec::new();
    for ((from, to), name, was) in spans(steps, end) {
        match was {
            Some(was) => now.insert(name, was),
            None => now.remove(name),
        };
        let regime = regime(&now);
        match (all.last_mut(), regime) {
            (_, None) => {}
            (Some((span, last)), Some(regime)) if *last == regime && span.1 == from => span.1 = to,
            (_, Some(regime)) => all.push(((from, to), regime)),
        }
    }
    all.retain(|((from, to), _)| to > from);
    all
}

/// How tenants with these leases share a device; `None` without any.
fn regime(now: &BTreeMap<&str, LeaseWas>) -> Option<String> {
    let of = |wanted: LeaseWas| now.iter().filter(move |(_, was)| **was == wanted);
    let open = of(LeaseWas::Shared).count() + of(LeaseWas::Yielding).count();
    let closed = of(LeaseWas::Closed).count();
    if let Some((name, _)) = of(LeaseWas::Turn).next() {
        return Some(format!("{TURN}{name}"));
    }
    let text = match (open, closed) {
        (0, 0) => return (!now.is_empty()).then(|| "free".to_owned()),
        (0, _) if of(LeaseWas::Free).count() == 0 => "all closed",
        (_, 1..) => "held",
        _ if of(LeaseWas::Yielding).count() > 0 => "yielding",
        _ => "together",
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{group, of};
    use super::super::{Kept, trace};
    use super::*;
    use gpushare_protocol::wire::LeaseChange;
    use serde_json::Value;

    fn regimes_of(steps: &[(u64, &'static str, Option<LeaseWas>)]) -> Vec<(Span, String)> {
        regimes(steps, 100)
    }

    fn named(from: u64, to: u64, name: &str) -> (Span, String) {
        ((from, to), name.to_owned())
    }

    #[test]
    fn turns_are_named_after_their_tenants() {
        let (turn, closed) = (Some(LeaseWas::Turn), Some(LeaseWas::Closed));
        let told = regimes_of(&[
            (10, "a", turn),
            (10, "b", closed),
            (30, "a", closed),
            (32, "b", turn),
            (40, "b", None),
            (40, "a", None),
        ]);
        let wanted = [
            named(10, 30, "turn of a"),
            named(30, 32, "all closed"),
            named(32, 40, "turn of b"),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_shared_device_goes_from_together_to_yielding_to_held() {
        let some = Some;
        let told = regimes_of(&[
            (0, "a", some(LeaseWas::Free)),
            (10, "a", some(LeaseWas::Shared)),
            (10, "b", some(LeaseWas::Shared)),
            (20, "a", some(LeaseWas::Yielding)),
            (30, "a", some(LeaseWas::Closed)),
            (40, "a", some(LeaseWas::Shared)),
        ]);
        let wanted = [
            named(0, 10, "free"),
            named(10, 20, "together"),
            named(20, 30, "yielding"),
            named(30, 40, "held"),
            named(40, 100, "together"),
        ];
        assert_eq!(told, wanted);
    }

    /// The spans of the GPU's track, with one tenant of so many changes from a time on beside one
    /// that has none, in microseconds.
    fn shared_beside(many: usize, from: u64) -> Vec<Span> {
        let now_ms = 20_000;
        let change = |at: u64, was| LeaseChange {
            ago_us: now_ms * 1000 - at,
            was,
        };
        let toggles = [LeaseWas::Closed, LeaseWas::Shared].into_iter().cycle();
        let toggles = (from..).zip(toggles).take(many);
        let row = |name: &str, changes| LeasesRow {
            name: name.to_owned(),
            device: [7; 16],
            changes,
        };
        let leases = vec![
            row("a", toggles.map(|(at, was)| change(at, was)).collect()),
            row("b", vec![change(0, LeaseWas::Shared)]),
        ];
        let kept = Kept {
            leases,
            ..Kept::default()
        };
        let told = trace(&[], &kept, now_ms);
        let gpu = group(&told, "GPU-07070707-0707-0707-0707-070707070707");
        let all = of(&told, "X").into_iter();
        let all = all.filter(|event| event["pid"] == gpu && event["tid"] == SHARING);
        let number = |event: &Value, name: &str| event[name].as_u64().expect("a number");
        let span = |event: &Value| {
            let begin = number(event, "ts");
            (begin, begin + number(event, "dur"))
        };
        all.map(span).collect()
    }

    #[test]
    fn a_gpu_is_told_of_from_where_the_rows_of_all_its_tenants_begin() {
        // The row may be cut: whether its tenant was open before is not known.
        let cut = shared_beside(LeasesRow::MOST, 50_000);
        assert_eq!(cut.first().map(|(begin, _)| *begin), Some(50_000));
        assert_eq!(cut.last().map(|(_, end)| *end), Some(20_000_000));
        // It is whole: its tenant was not there before.
        let whole = shared_beside(LeasesRow::MOST - 1, 50_000);
        assert_eq!(whole.first(), Some(&(0, 50_000)));
    }
}
