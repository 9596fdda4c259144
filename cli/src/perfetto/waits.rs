//! Tenants' waits for memory: each from its begin to its answer. Events name no allocation, so an
//! answer is matched with the begin that it tells; several allocations of one tenant may wait at a
//! time. Spans of one track must not cross (Perfetto leaves one of them out), so that a wait is on
//! the first of the tenant's tracks where none is at that time (docs/adr/0224).

use super::{Kept, LIFE, MEMORY, Trace};
use gpushare_protocol::wire::{EventRecord, ProcessState, TenantRow};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Further tracks of a tenant's waits begin here.
const LANES: u32 = 500;
/// How far an event's time may be from the begin that another source tells for the same wait.
const CLOSE_MS: u64 = 1_000;

type Device = Option<[u8; 16]>;

/// Waits that were told, of all tenants.
#[derive(Default)]
pub(super) struct Waits {
    /// Those without an answer until now, by tenant, oldest first.
    open: BTreeMap<String, Vec<Open>>,
    over: Vec<Over>,
    arrows: usize,
    /// The tracks beyond the first one, with the tenant's group.
    pub(super) lanes: BTreeSet<(u32, u32)>,
}

struct Open {
    from: u64,
    device: Device,
    /// The arrow that leads from it to the tenant that is ended for it.
    arrow: Option<usize>,
}

struct Over {
    pid: u32,
    from: u64,
    to: u64,
    arrow: Option<usize>,
    end: End,
}

enum End {
    Served,
    /// With these words; not by memory.
    Other(String),
    /// It goes on.
    Now,
    /// Nothing is known of it after the last event.
    Unknown,
}

/// A process whose allocation waits now.
pub(super) struct WaitsNow {
    name: String,
    device: Device,
    since_ms: u64,
}

impl WaitsNow {
    /// Those of this tenant.
    pub(super) fn of(row: &TenantRow) -> impl Iterator<Item = Self> {
        row.processes.iter().filter_map(|process| {
            let ProcessState::Waiting(want) = &process.state else {
                return None;
            };
            Some(Self {
                name: row.name.clone(),
                device: Some(row.device),
                since_ms: want.since_ms,
            })
        })
    }
}

/// Whether a wait of one of these devices may be that of the other.
fn same(one: Device, other: Device) -> bool {
    one.is_none() || other.is_none() || one == other
}

impl Waits {
    /// The tenant's wait that began closest to that.
    fn near(&self, name: &str, device: Device, since: u64) -> Option<usize> {
        let open = self.open.get(name)?;
        let all = (0..open.len()).filter(|at| same(open[*at].device, device));
        let at = all.min_by_key(|at| open[*at].from.abs_diff(since))?;
        (open[at].from.abs_diff(since) <= CLOSE_MS).then_some(at)
    }

    /// A tenant's allocation waits. That is told again when something else lets it wait, with how
    /// long it has waited: it is a wait of its own only if its begin is not known.
    fn begins(&mut self, name: &str, device: Device, at: u64, waited: Option<u64>) {
        let from = at.saturating_sub(waited.unwrap_or(0));
        if waited.is_some() && self.near(name, device, from).is_some() {
            return;
        }
        let open = self.open.entry(name.to_owned()).or_default();
        let place = open.partition_point(|wait| wait.from <= from);
        let wait = Open {
            from,
            device,
            arrow: None,
        };
        open.insert(place, wait);
    }

    /// Takes out the tenant's wait that began closest to that.
    fn take(&mut self, name: &str, device: Device, since: u64) -> Option<Open> {
        let at = self.near(name, device, since)?;
        Some(self.open.get_mut(name)?.remove(at))
    }

    /// Takes out so many of the tenant's waits for this device: of those that began last, and of
    /// those that began first.
    fn take_some(&mut self, name: &str, device: Device, last: u64, first: u64) -> Vec<Open> {
        let open = self.open.remove(name).unwrap_or_default();
        let (of, others): (Vec<_>, Vec<_>) =
            (open.into_iter()).partition(|wait| same(wait.device, device));
        let least = |count: u64, len: usize| usize::try_from(count).unwrap_or(len).min(len);
        let mut kept = of;
        let mut taken = kept.split_off(kept.len() - least(last, kept.len()));
        taken.extend(kept.drain(..least(first, kept.len())));
        kept.extend(others);
        kept.sort_by_key(|wait| wait.from);
        if !kept.is_empty() {
            self.open.insert(name.to_owned(), kept);
        }
        taken
    }
}

impl Trace {
    /// Shows an event of a wait. False for any other.
    pub(super) fn tell_wait(&mut self, record: &EventRecord, name: &str, pid: u32) -> bool {
        let at = record.at_ms;
        let device = record.device.map(|device| device.uuid);
        match record.kind.as_str() {
            "waiting" => {
                self.waits
                    .begins(name, device, at, record.number_of("waited_ms"));
                self.instant(record, pid, MEMORY);
            }
            "served" => {
                let waited = record.number_of("waited_ms").unwrap_or(0);
                let from = at.saturating_sub(waited);
                let known = self.waits.take(name, device, from);
                self.waits.over.push(Over {
                    pid,
                    from,
                    to: at,
                    arrow: known.and_then(|known| known.arrow),
                    end: End::Served,
                });
            }
            "refused" => {
                // Those that had waited; an older daemon's event says it of two kinds alone. A
                // cycle refuses the youngest. It may have been up to ten seconds before the event.
                let [cycle, timed_out] =
                    ["cycle", "timed_out"].map(|why| record.number_of(why).unwrap_or(0));
                let waited = record.number_of("waited");
                let waited = waited.unwrap_or_else(|| cycle.saturating_add(timed_out));
                let last = cycle.min(waited);
                for wait in self.waits.take_some(name, device, last, waited - last) {
                    self.is_over(wait, pid, at, End::Other(record.text.clone()));
                }
                self.instant(record, pid, MEMORY);
            }
            _ => return false,
        }
        true
    }

    /// The tenant has ended, and what waited for memory with it.
    pub(super) fn waits_end(&mut self, name: &str, pid: u32, at: u64) {
        for wait in self.waits.open.remove(name).unwrap_or_default() {
            let end = End::Other("no answer before its tenant ended".to_owned());
            self.is_over(wait, pid, at, end);
        }
    }

    fn is_over(&mut self, wait: Open, pid: u32, to: u64, end: End) {
        let Open { from, arrow, .. } = wait;
        self.waits.over.push(Over {
            pid,
            from,
            to,
            arrow,
            end,
        });
    }

    /// An arrow from the waiting allocation of the tenant that wants the memory to its victim.
    pub(super) fn ended_for(&mut self, record: &EventRecord, victim: u32) {
        let Some(asker) = record.word_of("wanted_by") else {
            return;
        };
        let device = record.device.map(|device| device.uuid);
        let open = self.waits.open.get_mut(asker).into_iter().flatten();
        let mut latest = open.rev().filter(|wait| same(wait.device, device));
        let Some(wait) = latest.next().filter(|wait| wait.arrow.is_none()) else {
            return;
        };
        self.waits.arrows += 1;
        wait.arrow = Some(self.waits.arrows);
        let arrow = self.waits.arrows;
        self.arrow("t", arrow, victim, LIFE, record.at_ms);
    }

    /// Ends the waits that no event has ended, and shows all. A tenant's process may have ended
    /// while it waited, which no event says: where a daemon has the tenant, its processes' states
    /// say which waits go on, and of the others no end is known.
    pub(super) fn show_waits(&mut self, kept: &Kept, last: u64, now_ms: u64) {
        for wait in &kept.waiting {
            let from = now_ms.saturating_sub(wait.since_ms);
            let known = self.waits.take(&wait.name, wait.device, from);
            let open = known.unwrap_or(Open {
                from,
                device: wait.device,
                arrow: None,
            });
            let pid = self.tenant(&wait.name);
            self.is_over(open, pid, now_ms, End::Now);
        }
        for (name, open) in std::mem::take(&mut self.waits.open) {
            let pid = self.tenant(&name);
            for wait in open {
                match (
                    kept.lives.end_from(&name, wait.from),
                    kept.lives.until(&name, wait.from, now_ms),
                ) {
                    (Some(end), _) => {
                        let how = End::Other("no answer before its tenant ended".to_owned());
                        self.is_over(wait, pid, end, how);
                    }
                    (None, None) if !self.is_told(&name) => {}
                    (None, None) => self.is_over(wait, pid, last, End::Unknown),
                    (None, Some(_)) => {
                        if let Some(arrow) = wait.arrow {
                            self.arrow("s", arrow, pid, MEMORY, wait.from);
                        }
                    }
                }
            }
        }
        let mut over = std::mem::take(&mut self.waits.over);
        over.retain(|wait| wait.to > self.window.from_ms);
        over.sort_by_key(|wait| (wait.pid, wait.from, wait.to));
        let mut lanes: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for wait in over {
            let ends = lanes.entry(wait.pid).or_default();
            let free = ends.iter().position(|end| *end <= wait.from);
            let lane = free.unwrap_or(ends.len());
            if lane == ends.len() {
                ends.push(0);
            }
            ends[lane] = wait.to.max(wait.from + 1);
            let track = match u32::try_from(lane).unwrap_or(0) {
                0 => MEMORY,
                more => LANES + more,
            };
            if track != MEMORY {
                self.waits.lanes.insert((wait.pid, track));
            }
            self.show_wait(&wait, track);
        }
    }

    fn show_wait(&mut self, wait: &Over, track: u32) {
        let Over { pid, from, to, .. } = *wait;
        let said = match &wait.end {
            End::Served => "it has its memory",
            End::Other(text) => text,
            End::Now => "it waits now",
            End::Unknown => "no answer is known",
        };
        self.events.push(json!({
            "ph": "X", "pid": pid, "tid": track, "ts": from * 1000,
            "dur": to.saturating_sub(from).max(1) * 1000, "name": "waits for memory",
            "args": {"text": said},
        }));
        if let Some(arrow) = wait.arrow {
            self.arrow("s", arrow, pid, track, from);
            if matches!(wait.end, End::Served) {
                self.arrow("f", arrow, pid, track, to);
            }
        }
    }
}

/// The name of a track of waits.
pub(super) fn title(track: u32) -> String {
    format!("memory, {}", track.saturating_sub(LANES) + 1)
}

#[cfg(test)]
mod tests;
