//! A set of devices.

use gpushare_protocol::page::MAX_DEVICES;

/// Devices by index, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Devices(u32);

impl Devices {
    pub(super) const ALL: Self = Self(u32::MAX);

    pub(super) fn one(device_index: usize) -> Self {
        Self(1 << device_index)
    }

    pub(super) fn and(self, device_index: usize) -> Self {
        Self(self.0 | 1 << device_index)
    }

    pub(super) fn has(self, device_index: usize) -> bool {
        self.0 & 1 << device_index != 0
    }

    pub(super) fn each(self) -> impl Iterator<Item = usize> {
        (0..MAX_DEVICES).filter(move |device_index| self.has(*device_index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let two = Devices::one(3).and(0);
        assert_eq!(two.each().collect::<Vec<_>>(), [0, 3]);
        assert!(two.has(3) && !two.has(1));
        assert_eq!(Devices::ALL.each().count(), MAX_DEVICES);
    }
}
