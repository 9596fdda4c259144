//! The moves between the devices and the host, for metrics and commands. Nothing is decided by
//! it.

use gpushare_core::{DeviceId, Nanos, Notice, TenantId};
use gpushare_protocol::histogram::Histogram;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{SwapRoom, SwapRow, TenantSwaps};

use super::Node;
use super::measures::Measures;
use super::tenant::{Tenant, index};

/// Moves of a tenant's memory from a device, and those back to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Swaps {
    out: Way,
    back: Way,
    /// The bytes on the host since a move was given up: these come back, not all of its memory.
    partly: Option<Bytes>,
    /// What was counted when all of it left, until it comes back: a later look may show that less
    /// did.
    whole: Option<Bytes>,
}

/// Moves in one direction.
#[derive(Clone, Debug, Default)]
struct Way {
    bytes: Bytes,
    times: Histogram,
}

impl Way {
    fn moved(&mut self, bytes: Bytes, took: Nanos) {
        self.bytes += bytes;
        self.times.record(took.0);
    }
}

impl Swaps {
    /// All memory has left the device. The part that stayed on the host when an earlier move was
    /// given up is counted already.
    fn left(&mut self, bytes: Bytes, took: Nanos) {
        let before = self.partly.take().unwrap_or_default();
        self.out.moved(bytes - before, took);
        self.whole = Some(bytes);
    }

    /// A move was given up, or for nothing. So much is on the host, and comes back unless the rest
    /// follows it.
    fn left_partly(&mut self, bytes: Bytes) {
        if !bytes.is_zero() {
            let whole = self.whole.take();
            let before = self.partly.replace(bytes).or(whole).unwrap_or_default();
            self.out.bytes += bytes - before;
        }
    }

    /// The processes have ended, and what they had on the host with them.
    pub(super) fn ended(&mut self) {
        (self.partly, self.whole) = (None, None);
    }

    /// Memory is back: all that was on the host, or the part that had left. Returns how much.
    fn returned(&mut self, all: Bytes, took: Nanos) -> Bytes {
        self.whole = None;
        let bytes = self.partly.take().unwrap_or(all);
        self.back.moved(bytes, took);
        bytes
    }

    /// Bytes that left, and that came back.
    pub(super) fn bytes(&self) -> (Bytes, Bytes) {
        (self.out.bytes, self.back.bytes)
    }
}

impl Node {
    /// Counts a move that is over, or that was not to be. Returns the bytes that came back with it,
    /// if some did.
    pub(super) fn count_move(&mut self, notice: &Notice) -> Option<Bytes> {
        match *notice {
            Notice::Left {
                tenant,
                device,
                bytes,
                took,
                ..
            } => self.swaps_of(tenant, device)?.left(bytes, took),
            Notice::Returned {
                tenant,
                device,
                bytes,
                took,
            } => return Some(self.swaps_of(tenant, device)?.returned(bytes, took)),
            Notice::DidNotLeave {
                tenant,
                device,
                moved: bytes,
                ..
            }
            | Notice::LeftLess {
                tenant,
                device,
                seen: bytes,
                ..
            } => self.swaps_of(tenant, device)?.left_partly(bytes),
            Notice::HostFull { device, .. } => self.counted.host_was_full(device),
            _ => (),
        }
        None
    }

    fn swaps_of(&mut self, tenant: TenantId, device: DeviceId) -> Option<&mut Swaps> {
        let known = self.tenants.get_mut(&tenant)?;
        let device_index = known.device_index(device)?;
        known.measures_mut(device_index).map(Measures::swaps_mut)
    }

    /// The node's room for memory that is away, if it has any.
    pub(super) fn swap_room(&self) -> Option<SwapRow> {
        let (host, storing) = (&self.residency.host, &self.residency.storing);
        let files = match storing.folder.is_some() {
            true => storing.limit(),
            false => Bytes::ZERO,
        };
        let held = self.world.host().held;
        (!host.budget().is_zero()).then(|| {
            SwapRow::Room(SwapRoom {
                host: host.budget().0,
                host_used: held.memory.0,
                files: files.0,
                files_used: held.files.0,
            })
        })
    }

    /// A tenant's moves on a device. `None`: its memory does not move.
    pub(super) fn swap_row(
        &self,
        (id, known): (TenantId, &Tenant),
        device_index: usize,
    ) -> Option<SwapRow> {
        let device = *known.device_ids().get(device_index)?;
        self.world.residence(id, device)?;
        let swaps = known.measures().get(device_index)?.swaps();
        Some(SwapRow::Tenant(TenantSwaps {
            name: known.name().to_owned(),
            device: index(device).and_then(|at| self.devices.get(at))?.uuid,
            out_bytes: swaps.out.bytes.0,
            in_bytes: swaps.back.bytes.0,
            out_times: swaps.out.times,
            in_times: swaps.back.times,
            in_files: self.stored_of(id).0,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Nanos = Nanos::millis(250);

    #[test]
    fn bytes_out_and_in_are_counted_apart_and_each_move_once() {
        let mut swaps = Swaps::default();
        swaps.left(Bytes::mib(64), TOOK);
        assert_eq!(swaps.returned(Bytes::mib(64), TOOK), Bytes::mib(64));
        swaps.left(Bytes::mib(32), TOOK);
        assert_eq!(swaps.bytes(), (Bytes::mib(96), Bytes::mib(64)));
        assert_eq!((swaps.out.times.count(), swaps.back.times.count()), (2, 1));
        assert_eq!(swaps.out.times.sum_ns, 2 * TOOK.0);
    }

    #[test]
    fn of_a_move_that_was_given_up_only_the_part_that_left_comes_back() {
        let mut swaps = Swaps::default();
        swaps.left_partly(Bytes::mib(16));
        assert_eq!(swaps.returned(Bytes::mib(64), TOOK), Bytes::mib(16));
        assert_eq!(swaps.bytes(), (Bytes::mib(16), Bytes::mib(16)));
        assert_eq!(swaps.out.times.count(), 0, "it never left");
        swaps.left_partly(Bytes::ZERO);
        swaps.left(Bytes::mib(64), TOOK);
        assert_eq!(swaps.returned(Bytes::mib(64), TOOK), Bytes::mib(64));
    }

    /// It left by its own report, and the look that came later shows less.
    #[test]
    fn what_left_is_not_counted_again_where_a_look_shows_less() {
        let mut swaps = Swaps::default();
        swaps.left(Bytes::mib(64), TOOK);
        swaps.left_partly(Bytes::mib(24));
        assert_eq!(swaps.returned(Bytes::mib(64), TOOK), Bytes::mib(24));
        assert_eq!(swaps.bytes(), (Bytes::mib(64), Bytes::mib(24)));
        // The next move is one of its own.
        swaps.left_partly(Bytes::mib(8));
        assert_eq!(swaps.bytes().0, Bytes::mib(72));
    }

    #[test]
    fn a_part_that_left_counts_no_more_once_all_has_left() {
        let mut swaps = Swaps::default();
        swaps.left_partly(Bytes::mib(16));
        swaps.left_partly(Bytes::mib(24));
        assert_eq!(swaps.bytes().0, Bytes::mib(24), "16 of them before");
        swaps.left(Bytes::mib(64), TOOK);
        assert_eq!(swaps.returned(Bytes::mib(64), TOOK), Bytes::mib(64));
        assert_eq!(swaps.bytes(), (Bytes::mib(64), Bytes::mib(64)));
    }
}
