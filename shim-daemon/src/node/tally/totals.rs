//! What was counted of a tenant over its life, for the event at its end. Each daemon stores it with
//! the registration for the next one: when it leaves, with whatever else is stored, and once a
//! minute.

use gpushare_core::{Nanos, TenantId};
use gpushare_protocol::units::Bytes;
use serde::{Deserialize, Serialize};

use super::Tally;
use crate::node::Node;
use crate::node::tenant::Tenant;

/// How often it is stored of a tenant of which nothing else changes.
pub(super) const EACH: Nanos = Nanos::secs(60);

/// See the module's page. A file of an earlier version has none of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// The most bytes that were charged at a time on one device.
    pub peak: u64,
    /// Nanoseconds of device time, where they were counted.
    pub gpu: u64,
    /// Nanoseconds in which NVML saw its kernels run.
    pub busy: u64,
    /// Refused allocations.
    pub refused: u64,
    /// Nanoseconds that its allocations waited.
    pub waited: u64,
    /// Nanoseconds that it waited for its admission.
    pub queued: u64,
    /// Bytes that moved to the host.
    pub swapped_out: u64,
    /// Bytes that came back.
    pub swapped_in: u64,
    /// The exit status of the last command that kept it.
    pub status: Option<u8>,
}

impl Totals {
    /// With what was counted later.
    fn plus(self, later: Self) -> Self {
        Self {
            peak: self.peak.max(later.peak),
            gpu: self.gpu.saturating_add(later.gpu),
            busy: self.busy.saturating_add(later.busy),
            refused: self.refused.saturating_add(later.refused),
            waited: self.waited.saturating_add(later.waited),
            queued: self.queued.saturating_add(later.queued),
            swapped_out: self.swapped_out.saturating_add(later.swapped_out),
            swapped_in: self.swapped_in.saturating_add(later.swapped_in),
            status: later.status.or(self.status),
        }
    }
}

impl Tally {
    /// Goes on from what earlier daemons counted.
    pub(in crate::node) fn after(self, before: Totals) -> Self {
        Self { before, ..self }
    }

    /// Whether it is time to store it again.
    fn is_due(&mut self, now: Nanos) -> bool {
        let due = now >= self.due;
        if due {
            // Those that a stall has made due together are not so the next time.
            let late = Nanos((now - self.due).0 % EACH.0);
            self.due = now + (EACH - late);
        }
        due
    }

    /// Its tenant was restored, as many others at this moment: they are stored in different
    /// seconds, by their ids, which follow each other.
    pub(in crate::node) fn spread(&mut self, tenant: TenantId) {
        let earlier = Nanos::secs(tenant.0 % (EACH.0 / Nanos::secs(1).0));
        self.due = Nanos(self.due.0.saturating_sub(earlier.0));
    }

    fn totals(&self, (swapped_out, swapped_in): (Bytes, Bytes)) -> Totals {
        self.before.plus(Totals {
            peak: self.peak().0,
            gpu: self.service(),
            busy: self.busy(),
            refused: self.refused(),
            waited: self.waited().0,
            queued: self.queued().0,
            swapped_out: swapped_out.0,
            swapped_in: swapped_in.0,
            status: self.status(),
        })
    }
}

impl Tenant {
    /// What was counted of it, by this daemon and those before.
    pub(in crate::node) fn totals(&self) -> Totals {
        let swaps = self.measures().iter().map(|one| one.swaps().bytes());
        let none = (Bytes::ZERO, Bytes::ZERO);
        self.tally()
            .totals(swaps.fold(none, |sum, (out, back)| (sum.0 + out, sum.1 + back)))
    }
}

impl Node {
    /// Once a second: stores what was counted of tenants for which it is time.
    pub(in crate::node) fn write_down_totals(&mut self, now: Nanos) {
        let all = self.tenants.iter_mut();
        let due = all.filter_map(|(id, known)| known.tally_mut().is_due(now).then_some(*id));
        for tenant in due.collect::<Vec<_>>() {
            self.write_down_counted(tenant);
        }
    }

    /// The daemon leaves: stores what the next one is to know.
    pub fn write_down_last(&mut self) {
        self.write_down_members();
        self.write_down_standings();
        for tenant in self.tenants.keys().copied().collect::<Vec<_>>() {
            self.write_down_counted(tenant);
        }
    }

    fn write_down_counted(&mut self, tenant: TenantId) {
        let known = self.tenants.get_mut(&tenant);
        if known.is_some_and(|known| known.note_totals() && known.is_admitted()) {
            self.write_down(tenant);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use gpushare_protocol::units::GIB;
    use gpushare_protocol::wire::Control;

    use super::*;
    use crate::devices::{Capabilities, Device};
    use crate::node::{ConnId, Effect, Registration, Settings};

    const NOW: Nanos = Nanos::secs(100);

    fn node(follows: bool) -> Node {
        let device = Device {
            uuid: *b"a GPU of 16 GiB.",
            minor: None,
            name: "a GPU".to_owned(),
            capacity: Bytes(16 * GIB),
            capabilities: Capabilities::default(),
        };
        Node::new(&Settings::default(), vec![device], 1, NOW, follows)
    }

    /// What the node has stored of its only tenant, the last time since the last question.
    fn stored(node: &mut Node) -> Option<Registration> {
        let mut last = None;
        while let Some(effect) = node.poll_effect() {
            if let Effect::Listen { registration, .. } = effect {
                last = Some(*registration);
            }
        }
        last
    }

    fn counts(node: &mut Node, bytes: u64, busy: Nanos) {
        let known = node.tenants.values_mut().next().unwrap();
        known.tally_mut().charged(0, Bytes(bytes));
        known.tally_mut().ran(0, busy.0);
    }

    /// A node with a tenant that has counted, and how that was stored first.
    fn begun() -> (Node, Registration) {
        let mut node = node(false);
        let create = Control::Create {
            name: Some("one".to_owned()),
            environment: vec![("GPUSHARE_MEM_LIMIT".to_owned(), "12GiB".to_owned())],
            devices: vec![],
        };
        node.command(NOW, ConnId(1), 1, &create);
        let first = stored(&mut node).unwrap();
        counts(&mut node, 8 * GIB, Nanos::secs(3));
        (node, first)
    }

    #[test]
    fn what_is_counted_is_stored_once_a_minute_and_only_if_there_is_more() {
        let (mut node, first) = begun();
        assert_eq!(first.so_far, Totals::default());
        node.tick(NOW + Nanos::secs(59));
        assert_eq!(stored(&mut node), None);
        node.tick(NOW + Nanos::secs(60));
        let so_far = stored(&mut node).unwrap().so_far;
        let busy = Nanos::secs(3).0;
        assert_eq!((so_far.peak, so_far.busy), (8 * GIB, busy));
        node.tick(NOW + Nanos::secs(120));
        assert_eq!(stored(&mut node), None);
    }

    #[test]
    fn each_daemon_adds_its_own_to_what_those_before_counted() {
        let (mut before, _) = begun();
        for (bytes, peak, busy) in [(GIB, 8 * GIB, 5), (9 * GIB, 9 * GIB, 7)] {
            before.write_down_last();
            let left = stored(&mut before).unwrap();
            let mut next = node(true);
            next.restore(NOW, &left).unwrap();
            assert_eq!(stored(&mut next).unwrap().so_far, left.so_far);
            counts(&mut next, bytes, Nanos::secs(2));
            let so_far = next.tenants.values().next().unwrap().totals();
            assert_eq!((so_far.peak, so_far.busy), (peak, Nanos::secs(busy).0));
            before = next;
        }
    }

    /// Each is a file, written in the loop that hands out turns.
    #[test]
    fn what_many_restored_tenants_count_is_stored_a_few_a_second() {
        const TENANTS: usize = 120;
        let (_, first) = begun();
        let mut node = node(true);
        for number in 0..TENANTS {
            let name = format!("t{number}");
            let registration = Registration {
                name,
                environment: vec![("GPUSHARE_MEM_LIMIT".to_owned(), "64MiB".to_owned())],
                ..first.clone()
            };
            node.restore(NOW, &registration).unwrap();
        }
        let mut of_second = |at: u64| {
            for known in node.tenants.values_mut() {
                known.tally_mut().ran(0, 1);
            }
            let now = NOW + Nanos::secs(at);
            node.tick(now);
            let effects = std::iter::from_fn(|| node.poll_effect());
            let stored = effects.filter(|effect| matches!(effect, Effect::Listen { .. }));
            stored.count()
        };
        of_second(0);
        let each: Vec<usize> = (1..=120).map(&mut of_second).collect();
        assert!(each.iter().all(|stored| *stored <= 4), "{each:?}");
        assert_eq!(each.iter().sum::<usize>(), 2 * TENANTS, "{each:?}");
    }

    #[test]
    fn a_file_of_an_earlier_version_has_counted_nothing() {
        let (_, first) = begun();
        let mut file = serde_json::to_value(&first).unwrap();
        file.as_object_mut().unwrap().remove("so_far").unwrap();
        let read: Registration = serde_json::from_value(file).unwrap();
        assert_eq!(read, first);
    }
}
