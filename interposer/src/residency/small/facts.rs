//! What is known of a small allocation, and of its slab.

use super::{Slab, Small, Smalls};
use crate::driver::contexts::ContextId;
use crate::driver::device::DeviceKey;

impl Smalls {
    /// Whose slab this is. `None`: it is none.
    pub(in crate::residency) fn owner(&self, slab: u64) -> Option<ContextId> {
        let index = self.places.get(&slab)?;
        self.slab(*index).map(|slab| slab.owner)
    }

    /// The allocation that holds an address, and where it begins.
    pub(in crate::residency) fn find(&self, address: u64) -> Option<(u64, Small)> {
        self.slab(self.at(address)?)?.find(address)
    }

    /// The slab in which an address lies, and its device.
    pub(in crate::residency) fn place_of(&self, address: u64) -> Option<(u64, DeviceKey)> {
        let slab = self.slab(self.at(address)?)?;
        Some((slab.base, slab.device))
    }

    /// The device and the serial of the allocation that begins here.
    pub(in crate::residency) fn begins(&self, at: u64) -> Option<(DeviceKey, u64)> {
        let slab = self.slab(self.at(at)?)?;
        let (begin, small) = slab.find(at)?;
        (begin == at).then_some((slab.device, small.serial))
    }

    fn named(&self, slab: u64) -> Option<&Slab> {
        self.slab(*self.places.get(&slab)?)
    }

    /// How far a slab is in use.
    pub(in crate::residency) fn used(&self, slab: u64) -> u64 {
        self.named(slab).map_or(0, Slab::used)
    }
}
