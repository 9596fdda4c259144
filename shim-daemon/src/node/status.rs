//! The life of a tenant, told: when it is admitted, refused, changed and gone; and its status for
//! `ps`.

use std::sync::atomic::Ordering;

use gpushare_core::{Answer, AskKey, DeviceId, Nanos, ProcessId, State, TenantId, Why};
use gpushare_protocol::page::refused::RefusedWord;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{AskedRow, TenantStatusRow};
use nix::sys::signal::Signal;

use super::events::{Told, number, word};
use super::refusals::Refusals;
use super::tally::{Counters, Largest};
use super::tenant::index;
use super::{ConnId, Node, pods};

/// A refused call that would have been charged nothing, as for a context, is told with this size
/// ([`RefusedWord::new`]).
const NOT_CHARGED: Bytes = Bytes(1);

/// The largest of so many refused allocations, and its process.
fn told_size(largest: Largest, count: u64) -> String {
    let Largest { bytes, pid } = largest;
    let size = bytes.human();
    match (count, bytes > NOT_CHARGED) {
        (1, true) => format!(" (of {size}, to process {pid})"),
        (_, true) => format!(" (the largest of {size}, to process {pid})"),
        (1, false) => format!(" (of a context or the like, to process {pid})"),
        (_, false) => format!(" (of contexts or the like, one of them to process {pid})"),
    }
}

/// Why so many allocations were refused for want of room, and the most that one of them was short
/// of.
fn without_room(short: Option<Bytes>, count: u64) -> String {
    let missing = match (short, count) {
        (None, _) => "no memory was free".to_owned(),
        (Some(short), 1) => format!("{} were missing", short.human()),
        (Some(short), _) => format!("up to {} were missing", short.human()),
    };
    format!("{missing}, and it was not to wait, or no longer")
}

impl Node {
    /// A tenant may run.
    pub(super) fn admitted(&mut self, now: Nanos, tenant: TenantId) {
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let queued = known.tally_mut().admitted(now);
        let text = match queued >= Nanos::secs(1) {
            true => format!("may run, after {} in the queue", queued.human()),
            false => "may run".to_owned(),
        };
        let mut facts = vec![number("queued_ms", millis(queued))];
        facts.extend(pods::facts_of_tenant(known));
        facts.extend(self.user_of(tenant));
        self.event_with("admitted", (Some(tenant), None), text, &facts);
    }

    /// A tenant has ended.
    pub(super) fn tell_gone(&mut self, now: Nanos, tenant: TenantId) {
        self.tell_refused(now, tenant, true);
        self.tell_left_out_of(now, tenant, true);
        let Some(known) = self.tenants.get(&tenant) else {
            return;
        };
        let totals = known.totals();
        let began = known.registration().began.map(Nanos);
        let ran = began.map_or(Nanos::ZERO, |began| now - began);
        let mut text = match began {
            Some(_) => format!("ran for {}", ran.human()),
            None => "left the queue before it was admitted".to_owned(),
        };
        if let Some(status) = totals.status {
            text.push_str(&format!("; {}", status_text(status)));
        }
        text.push_str(&format!("; charged {} at most", Bytes(totals.peak).human()));
        if totals.busy > 0 {
            let busy = Nanos(totals.busy).human();
            text.push_str(&format!("; its kernels ran for about {busy}"));
        }
        if totals.refused > 0 {
            text.push_str(&format!("; {}", allocations(totals.refused)));
        }
        if totals.waited > 0 {
            let waited = to_seconds(Nanos(totals.waited)).human();
            text.push_str(&format!("; allocations waited {waited}"));
        }
        if totals.swapped_out > 0 {
            let ways = [totals.swapped_out, totals.swapped_in];
            let [out, back] = ways.map(|bytes| Bytes(bytes).human());
            text.push_str(&format!("; {out} moved to the host and {back} back"));
        }
        let mut facts = vec![
            number("ran_ms", millis(ran)),
            number("peak_bytes", totals.peak),
            number("gpu_ms", totals.gpu / 1_000_000),
            number("busy_ms", totals.busy / 1_000_000),
            number("refused", totals.refused),
            number("waited_ms", millis(Nanos(totals.waited))),
            number("queued_ms", millis(Nanos(totals.queued))),
            number("swap_out_bytes", totals.swapped_out),
            number("swap_in_bytes", totals.swapped_in),
        ];
        let status = totals.status;
        facts.extend(status.map(|status| number("exit_status", status.into())));
        facts.extend(pods::facts_of_tenant(known));
        facts.extend(self.user_of(tenant));
        self.event_with("gone", (Some(tenant), None), text, &facts);
    }

    /// A tenant's limits have changed.
    pub(super) fn tell_set(&mut self, tenant: TenantId, changes: &[(String, String)]) {
        let changes = changes
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let changes = changes.collect::<Vec<_>>().join(", ");
        let text = format!("now has {changes}");
        let facts = [word("changes", changes)];
        self.event_with("set", (Some(tenant), None), text, &facts);
    }

    /// The numbers behind the end of a tenant.
    pub(super) fn facts_of(&self, why: &Why) -> Vec<Told> {
        let mut facts = Vec::new();
        match why {
            Why::Collision {
                device,
                wanted_by,
                charged,
                overhead,
            } => {
                facts.push(word("reason", "collision"));
                facts.push(word("wanted_by", self.name(*wanted_by)));
                facts.push(number("charged_bytes", charged.0));
                facts.push(number("overhead_bytes", overhead.0));
                facts.push(number("gpu", device.0));
            }
            Why::Idle => facts.push(word("reason", "idle_end")),
            Why::RunLimit => facts.push(word("reason", "run_limit")),
        }
        facts
    }

    /// An ask is answered. One that had to wait and is served is an event; a refusal is one when
    /// its process says that its program was refused.
    pub(super) fn settled(&mut self, now: Nanos, ask: AskKey, answer: &Answer) {
        let tenant = self.processes.get(ask.0).map(|process| process.tenant());
        let Some(known) = tenant.and_then(|tenant| self.tenants.get_mut(&tenant)) else {
            return;
        };
        let denied = match answer {
            Answer::Granted { .. } => None,
            Answer::Denied(denial) => Some(*denial),
        };
        let waited = known.tally_mut().settled(ask, now, denied);
        if let Some((device_index, waited)) = waited
            && let Some(measures) = known.measures_mut(device_index)
        {
            measures.allocation_waited(waited);
        }
        let (Some((device_index, waited)), None) = (waited, denied) else {
            return;
        };
        let device = known.device_ids().get(device_index).copied();
        let text = format!(
            "an allocation that waited {} has its memory",
            waited.human()
        );
        let facts = [number("waited_ms", millis(waited))];
        self.event_with("served", (tenant, device), text, &facts);
    }

    /// The command that runs a tenant's program says how that ended.
    pub(super) fn command_says(&mut self, from: ConnId, status: u8) {
        for known in self.tenants.values_mut() {
            if known.is_kept_by(from) {
                known.tally_mut().exited(status);
            }
        }
    }

    /// Reads the counters of a process.
    pub(super) fn read_counters(&mut self, process: ProcessId) {
        if let Some(known) = self.processes.get(process) {
            let of = (known.tenant(), known.slot(), known.peer().pid);
            self.read_line(process, of);
        }
    }

    /// Reads the counters of all processes of a tenant. What it is charged is added up once: each
    /// sum reads a line of each process.
    pub(super) fn read_all_counters(&mut self, tenant: TenantId) {
        let Some(known) = self.tenants.get(&tenant) else {
            return;
        };
        let devices = 0..known.device_ids().len();
        let charged: Vec<Bytes> = devices.map(|device| known.charged(device)).collect();
        for process in known.members().collect::<Vec<_>>() {
            if let Some(of) = self.processes.get(process) {
                let of = (tenant, of.slot(), of.peer().pid);
                self.read_line_beside(process, of, &charged);
            }
        }
    }

    /// Reads the counters of a process in its row, and what its tenant is charged.
    pub(super) fn read_line(&mut self, process: ProcessId, of: (TenantId, usize, i32)) {
        self.read_line_beside(process, of, &[]);
    }

    /// The same, where the tenant is `charged` so much of each device, as far as that is known.
    fn read_line_beside(
        &mut self,
        process: ProcessId,
        of: (TenantId, usize, i32),
        charged: &[Bytes],
    ) {
        let (tenant, slot, pid) = of;
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let page = known.usage().view();
        let lines = (0..known.device_ids().len()).filter_map(|device_index| {
            let line = page.line(slot, device_index)?;
            let counters = Counters {
                refused: line.refused.load(Ordering::Acquire),
                service: line.service.load(Ordering::Relaxed),
                largest: None,
            };
            Some((device_index, counters))
        });
        let lines: Vec<(usize, Counters)> = lines.collect();
        // After the counts: a process writes the size of an allocation before it counts it.
        let largest = page.slots.get(slot);
        let largest = largest.map_or(0, |slot| slot.largest_refused.swap(0, Ordering::Relaxed));
        let largest = RefusedWord::from_bits(largest);
        for (device_index, mut counters) in lines {
            let charged = charged.get(device_index).copied();
            let charged = charged.unwrap_or_else(|| known.charged(device_index));
            let bytes = largest.on(device_index).map(Bytes);
            let pid = pid.unsigned_abs();
            counters.largest = bytes.map(|bytes| Largest { bytes, pid });
            known.tally_mut().charged(device_index, charged);
            known.tally_mut().read(process, device_index, counters);
        }
    }

    /// Once a second: reads the counters of a tenant's processes.
    pub(super) fn count(&mut self, now: Nanos, tenant: TenantId) {
        self.read_all_counters(tenant);
        if let Some(known) = self.tenants.get_mut(&tenant) {
            known.tally_mut().second();
        }
        self.tell_refused(now, tenant, false);
    }

    /// Says which allocations were refused since that was last said. The rate is limited but at the
    /// tenant's end.
    pub(super) fn tell_refused(&mut self, now: Nanos, tenant: TenantId, end: bool) {
        let device_ids = self
            .tenants
            .get(&tenant)
            .map(|known| known.device_ids().len());
        for device_index in 0..device_ids.unwrap_or(0) {
            let Some(known) = self.tenants.get_mut(&tenant) else {
                return;
            };
            let Some(refusals) = known.tally_mut().take_untold(device_index, now, end) else {
                continue;
            };
            let Some(device) = known.device_ids().get(device_index).copied() else {
                continue;
            };
            let sizes = known.tally_mut().take_sizes(device_index);
            self.tell_refusals((tenant, device), &refusals, sizes);
        }
    }

    fn tell_refusals(
        &mut self,
        (tenant, device): (TenantId, DeviceId),
        refusals: &Refusals,
        (largest, charged): (Option<Largest>, Bytes),
    ) {
        let account = self.world.account(tenant, device);
        let limit = account.map(|account| account.quota.limit);
        let timeout = self.world.spec(tenant).map(|spec| spec.wait_timeout);
        let mut facts = vec![
            number("count", refusals.sum()),
            number("charged_bytes", charged.0),
            number("waited", refusals.waited),
        ];
        // The books of a device that is lost are gone.
        facts.extend(limit.map(|limit| number("limit_bytes", limit.0)));
        if let Some(Largest { bytes, pid }) = largest {
            let known = (bytes > NOT_CHARGED).then(|| number("largest_bytes", bytes.0));
            facts.extend(known);
            facts.push(number("pid", u64::from(pid)));
        }
        let short = (!refusals.short.is_zero()).then_some(refusals.short);
        facts.extend(short.map(|short| number("short_bytes", short.0)));
        let mut whys = Vec::new();
        for (name, count) in refusals.parts().into_iter().filter(|(_, count)| *count > 0) {
            facts.push(number(name, count));
            let why = match name {
                "over_limit" => format!(
                    "over its own limit{}, of which {} were charged",
                    limit.map_or_else(String::new, |limit| format!(" of {}", limit.human())),
                    charged.human()
                ),
                "timed_out" => format!(
                    "after waiting as long as it may ({})",
                    timeout.unwrap_or(Nanos::ZERO).human()
                ),
                "no_room" => without_room(short, count),
                "cycle" => "it waited for a tenant that waited for it".to_owned(),
                "gone" if account.is_none() => "its GPU is lost".to_owned(),
                "gone" => "it is being ended, or too many of its threads wait".to_owned(),
                _ => "the driver had no memory".to_owned(),
            };
            whys.push(match count == refusals.sum() {
                true => why,
                false => format!("{count} {why}"),
            });
        }
        let count = allocations(refusals.sum());
        let sizes = largest.map_or_else(String::new, |one| told_size(one, refusals.sum()));
        let text = format!("{count}{sizes}: {}", whys.join("; "));
        self.event_with("refused", (Some(tenant), Some(device)), text, &facts);
    }

    fn user_of(&self, tenant: TenantId) -> Option<Told> {
        let owner = self.tenants.get(&tenant)?.registration().owner?;
        Some(number("user", owner.into()))
    }

    /// The devices of a tenant that has several, by their places.
    pub(super) fn gpus_of(&self, tenant: TenantId) -> Option<Told> {
        let device_ids = self.tenants.get(&tenant)?.device_ids();
        let all = device_ids.iter().map(|device| device.0.to_string());
        (device_ids.len() > 1).then(|| word("gpus", all.collect::<Vec<_>>().join(",")))
    }

    /// A tenant's status.
    pub(super) fn status_row(&self, now: Nanos, tenant: TenantId) -> Option<TenantStatusRow> {
        let known = self.tenants.get(&tenant)?;
        let state = self.world.tenant(tenant)?.state;
        let queued = match state {
            State::Queued { .. } => Some(self.waits_for(tenant)),
            _ => None,
        };
        let since = match state {
            State::Queued { since } => since,
            _ => known.registration().began.map_or(now, Nanos),
        };
        let spec = self.world.spec(tenant);
        let asks = known.device_ids().iter().filter_map(|device| {
            let described = index(*device).and_then(|at| self.devices.get(at))?;
            let quota = spec?.quota(*device)?;
            Some(AskedRow {
                device: described.uuid,
                request: quota.request.0,
                limit: quota.limit.0,
            })
        });
        Some(TenantStatusRow {
            name: known.name().to_owned(),
            owner: self.users.told(known.registration().owner),
            for_ms: millis(now - since),
            queued,
            asks: asks.collect(),
        })
    }
}

fn millis(span: Nanos) -> u64 {
    span.0 / 1_000_000
}

/// A second or more, in whole seconds, to the nearest one: a wait of 4 s is over a moment earlier.
fn to_seconds(span: Nanos) -> Nanos {
    const SECOND: u64 = 1_000_000_000;
    match span.0 < SECOND {
        true => span,
        false => Nanos(span.0.saturating_add(SECOND / 2) / SECOND * SECOND),
    }
}

fn allocations(count: u64) -> String {
    match count {
        1 => "an allocation was refused".to_owned(),
        _ => format!("{count} allocations were refused"),
    }
}

/// An exit status as a shell gives it, in words.
fn status_text(status: u8) -> String {
    let signal = status.checked_sub(128).filter(|signal| *signal > 0);
    let signal = signal.and_then(|signal| Signal::try_from(i32::from(signal)).ok());
    match signal {
        Some(signal) => format!("exit status {status} ({signal})"),
        None => format!("exit status {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_ends_a_moment_before_its_time_is_told_as_that_time() {
        let told = |millis: u64| to_seconds(Nanos(millis * 1_000_000)).human();
        assert_eq!(told(3_999), "4 s");
        assert_eq!(told(4_000), "4 s");
        assert_eq!(told(3_400), "3 s");
        assert_eq!(told(999), "999 ms");
    }
}
