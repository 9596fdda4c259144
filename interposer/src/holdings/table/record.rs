//! The record of an allocation, in one word.

use crate::account::Units;
use crate::driver::contexts::ContextId;
use crate::driver::device::DeviceKey;

/// How an allocation was made, which decides how it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// `cuMemAlloc`.
    Linear = 0,
    /// `cuMemAllocPitch`.
    Pitched = 1,
    /// `cuMemAllocManaged`.
    Managed = 2,
    /// From a memory pool: the pool is charged, not the pointer.
    PoolMemory = 3,
    /// From a graph's memory node: the graph is charged.
    GraphMemory = 4,
    /// Another process's memory: it is charged there.
    Imported = 5,
    /// `cuMemAlloc`, of chunks that can move to the host and back.
    Movable = 6,
}

const KINDS: [Kind; 7] = [
    Kind::Linear,
    Kind::Pitched,
    Kind::Managed,
    Kind::PoolMemory,
    Kind::GraphMemory,
    Kind::Imported,
    Kind::Movable,
];

/// Units in bits 0..32, context 32..44, device 44..49, kind 49..53, exported 53; bit 63 is always
/// set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record(u64);

const PRESENT: u64 = 1 << 63;
const EXPORTED: u64 = 1 << 53;

impl Record {
    /// Of an allocation charged with `units` on `device`.
    pub(crate) fn new(device: DeviceKey, context: ContextId, kind: Kind, units: Units) -> Self {
        let context = u64::from(context.0.min(ContextId::MAX));
        Self(
            PRESENT
                | (kind as u64) << 49
                | (device.index() as u64) << 44
                | context << 32
                | u64::from(units.0),
        )
    }

    /// Its charge.
    #[expect(clippy::cast_possible_truncation, reason = "the low half of the word")]
    pub(crate) fn units(self) -> Units {
        Units(self.0 as u32)
    }

    /// Its size in bytes, rounded up to units.
    pub(crate) fn bytes(self) -> u64 {
        self.units().bytes()
    }

    /// Where it lies.
    pub(crate) fn device(self) -> DeviceKey {
        DeviceKey::of_index((self.0 >> 44 & 0x1f) as usize).unwrap_or_default()
    }

    /// In which context it was made.
    #[expect(clippy::cast_possible_truncation, reason = "masked to twelve bits")]
    pub(crate) fn context(self) -> ContextId {
        ContextId((self.0 >> 32 & u64::from(ContextId::MAX)) as u16)
    }

    /// How it was made.
    pub(crate) fn kind(self) -> Kind {
        KINDS
            .get((self.0 >> 49 & 0xf) as usize)
            .copied()
            .unwrap_or(Kind::Linear)
    }

    /// Whether other processes may have it open: such memory cannot be moved.
    pub(crate) fn is_exported(self) -> bool {
        self.0 & EXPORTED != 0
    }

    /// The same, exported.
    pub(crate) fn exported(self) -> Self {
        Self(self.0 | EXPORTED)
    }

    pub(super) fn pack(record: Option<Self>) -> u64 {
        record.map_or(0, |record| record.0)
    }

    pub(super) fn unpack(word: u64) -> Option<Self> {
        (word & PRESENT != 0).then_some(Self(word))
    }
}

impl core::fmt::Debug for Record {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Record")
            .field("units", &self.units())
            .field("device", &self.device())
            .field("context", &self.context())
            .field("kind", &self.kind())
            .field("exported", &self.is_exported())
            .finish()
    }
}
