//! Freed memory of the layer above that is still charged, by device: bytes, from the free until the
//! charge is released, whichever thread does what is between. A charge that does not fit waits for
//! them ([`reclaim`](super::reclaim)).

use std::sync::atomic::{AtomicU64, Ordering};

use gpushare_protocol::page::MAX_DEVICES;

use crate::account::{self, Units};
use crate::driver::device::DeviceKey;
use crate::guest::fork::ForkLocal;

type Bytes = [AtomicU64; MAX_DEVICES];

static BYTES: ForkLocal<Bytes> = ForkLocal::new();

/// Memory is freed, and given back later.
pub(crate) fn begins(device: DeviceKey, bytes: u64) {
    let all = BYTES.get_or(|| [const { AtomicU64::new(0) }; MAX_DEVICES]);
    all[device.index()].fetch_add(bytes, Ordering::AcqRel);
}

/// It is given back, and so is its charge. It counts for as long as it is charged: otherwise a
/// charge that does not fit meanwhile would not wait.
pub(crate) fn back(device: DeviceKey, charge: Units) {
    account::release(device, charge);
    ends(device, charge.bytes());
}

/// It is charged no more, or stays charged: the driver does not take it back.
pub(crate) fn ends(device: DeviceKey, bytes: u64) {
    if let Some(all) = BYTES.get() {
        all[device.index()].fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// Bytes that will come back on a device.
pub(crate) fn on(device: DeviceKey) -> u64 {
    let bytes = BYTES.get();
    bytes.map_or(0, |bytes| bytes[device.index()].load(Ordering::Acquire))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_memory_counts_on_its_device_until_it_is_back_or_stays() {
        let device = |index| DeviceKey::of_index(index).expect("a device");
        let (here, there) = (device(MAX_DEVICES - 1), device(MAX_DEVICES - 2));
        begins(here, Units(3).bytes());
        begins(here, Units(2).bytes());
        assert_eq!((on(here), on(there)), (Units(5).bytes(), 0));
        back(here, Units(3));
        assert_eq!(on(here), Units(2).bytes());
        ends(here, Units(2).bytes());
        assert_eq!(on(here), 0);
    }
}
