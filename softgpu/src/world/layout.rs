//! The layout of a machine's state file: a header, the shared words of the engines, then one record
//! per physical page of each device.
//!
//! All fields are plain integers, valid for any bytes, and accessed only under the lock in the
//! header. The words of the engines are atomics and need no lock.

use super::device::Kind;
use crate::exec::turns::WORDS as TURN_WORDS;
use crate::spec::{MAX_DEVICES, PAGE, Spec};

/// The maximum number of processes, including dead ones whose memory has not returned.
pub(crate) const SLOTS: usize = 512;
/// Kinds of memory ([`Kind::ALL`](super::Kind::ALL)).
pub(crate) const KINDS: usize = 8;
/// The first bytes of a completely created state file.
pub(crate) const MAGIC: u64 = 0x736f_6674_6770_7537;
/// Space for the SPEC's canonical text (its longest form is shorter).
pub(crate) const SPEC_TEXT: usize = 1024;

/// The page is free.
pub(crate) const FREE: u8 = 0;
/// A process holds the page.
pub(crate) const HELD: u8 = 1;
/// The page was freed, or its process is dead; it becomes free at its due operation.
pub(crate) const LATE: u8 = 2;
/// A share holds the page, for one or more processes.
pub(crate) const SHARED: u8 = 3;

/// The number of a page whose bytes are of any process: no process has it.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// Set in `due` of a managed page whose bytes are there. So those whose page has gone to the host
/// are the first in the order of `due`.
pub(crate) const USED: u64 = 1 << 63;

/// One physical page.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Page {
    /// [`LATE`]: the operation at which it becomes free. [`SHARED`]: the share's number. Managed
    /// memory that is [`HELD`]: the operation at which it came, with [`USED`] unless its page has
    /// gone to the host.
    pub(crate) due: u64,
    /// The unique number of the process whose bytes are in the page, or [`UNKNOWN`]; 0 if the page
    /// is zero. It changes only once the bytes have: a process may die while it erases them.
    pub(crate) number: u32,
    /// The slot of the process that it is counted for.
    pub(crate) slot: u16,
    pub(crate) kind: u8,
    pub(crate) state: u8,
}

impl Page {
    /// Whether it is managed memory whose page has gone to the host.
    pub(crate) fn is_kept(&self) -> bool {
        self.state == HELD
            && self.kind == Kind::Managed as u8
            && self.due != 0
            && self.due & USED == 0
    }
}

/// One process's use of one device.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Use {
    /// Bytes requested, by kind.
    pub(crate) requested: [u64; KINDS],
    /// Pages counted for the process, by kind.
    pub(crate) pages: [u64; KINDS],
    /// The managed ones among them whose page has gone to the host.
    pub(crate) kept: u64,
}

/// One process.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Slot {
    /// Its unique number, 0 for a free slot.
    pub(crate) number: u32,
    pub(crate) pid: i32,
    /// Not 0: the process is dead and part of its memory has not returned.
    pub(crate) dead: u32,
    /// Not 0: the process is an observer.
    pub(crate) observer: u32,
    /// The inode of the pid namespace of `pid`.
    pub(crate) namespace: u64,
    pub(crate) uses: [Use; MAX_DEVICES as usize],
}

/// One device.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct DeviceState {
    /// Pages that are not free.
    pub(crate) taken: u64,
    /// The part of `taken` that was freed and has not returned.
    pub(crate) late: u64,
    /// No late page is due before this operation.
    pub(crate) next_due: u64,
    /// All late pages are in `late_from..late_to`.
    pub(crate) late_from: u64,
    pub(crate) late_to: u64,
    /// The page at which the next search for free pages starts.
    pub(crate) cursor: u64,
    /// Bytes that all processes requested, now and at the peak.
    pub(crate) requested_now: u64,
    pub(crate) requested_peak: u64,
    /// The peak of `taken`.
    pub(crate) taken_peak: u64,
    /// Managed pages that have left for other memory so far.
    pub(crate) evicted: u64,
}

/// The header of the file.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: u64,
    pub(crate) mutex: libc::pthread_mutex_t,
    pub(crate) spec_len: u32,
    pub(crate) next_number: u32,
    pub(crate) spec: [u8; SPEC_TEXT],
    /// Operations so far: the machine's clock for delayed returns.
    pub(crate) tick: u64,
    pub(crate) next_share: u64,
    /// Shares that have pages.
    pub(crate) shares: u64,
    /// Slots of dead processes.
    pub(crate) dead: u64,
    pub(crate) devices: [DeviceState; MAX_DEVICES as usize],
    pub(crate) slots: [Slot; SLOTS],
}

/// Engines of a device with shared words: compute, copies to the device, copies to the host.
pub(crate) const LANES: usize = 3;
/// The start of the words that are used without the lock: for each slot, device and engine the time
/// the process has had the engine (ns); then for each device and engine its
/// [turns](crate::exec::turns).
pub(crate) const LANES_AT: usize = size_of::<Header>().next_multiple_of(4096);
const ENGINES: usize = MAX_DEVICES as usize * LANES;
const LANE_WORDS: usize = (SLOTS + TURN_WORDS) * ENGINES;
/// The start of the page records.
pub(crate) const PAGES_AT: usize =
    (LANES_AT + LANE_WORDS * size_of::<u64>()).next_multiple_of(4096);

/// The index of the word *served* of an engine, for the process in `slot`.
pub(crate) fn served_word(slot: usize, device: usize, lane: usize) -> usize {
    (slot * MAX_DEVICES as usize + device) * LANES + lane
}

/// The index of the first word of an engine's turns.
pub(crate) fn turns_word(device: usize, lane: usize) -> usize {
    SLOTS * ENGINES + (device * LANES + lane) * TURN_WORDS
}

/// Pages of one device.
pub(crate) fn pages_per_device(spec: &Spec) -> usize {
    usize::try_from(spec.mem / PAGE).expect("addresses are 64 bits here")
}

/// Length of the state file.
pub(crate) fn file_len(spec: &Spec) -> usize {
    PAGES_AT + pages_per_device(spec) * spec.count as usize * size_of::<Page>()
}
