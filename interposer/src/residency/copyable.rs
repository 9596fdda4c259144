//! Which memory can be copied. Physical memory and pools can be made on a device without a context,
//! and every copy is made in one.

use gpushare_protocol::page::MAX_DEVICES;

use super::blocks::Blocks;
use super::managed;
use crate::driver::streams;

/// The devices on which the process had a context at the last look. None ends while memory is away.
#[derive(Debug, Default)]
pub(super) struct Copyable([bool; MAX_DEVICES]);

impl Copyable {
    /// A look. No lock is held.
    pub(super) fn look(&mut self) {
        for (device_index, is_copyable) in self.0.iter_mut().enumerate() {
            *is_copyable = managed::is_on() || !streams::contexts_on(device_index).is_empty();
        }
    }

    /// Bytes of a device that can move.
    pub(super) fn movable(&self, blocks: &Blocks, device_index: usize) -> u64 {
        match self.0[device_index] {
            true => blocks.movable[device_index],
            false => blocks.away[device_index],
        }
    }

    /// Those of them that are on it, with all of their mappings or not.
    pub(super) fn resident(&self, blocks: &Blocks, device_index: usize) -> u64 {
        self.movable(blocks, device_index) - blocks.away[device_index]
    }
}
