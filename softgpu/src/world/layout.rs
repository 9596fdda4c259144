//! What lies in the state file of a machine: a header, then one record per physical page of each
//! device.
//!
//! Everything here is plain integers, valid for any bytes, and only touched under the lock in the
//! header.

use crate::exec::turns::WORDS as TURN_WORDS;
use crate::spec::{MAX_DEVICES, PAGE, Spec};

/// Processes at a time, dead ones whose memory has not returned included.
pub(crate) const SLOTS: usize = 512;
/// Kinds of memory ([`Kind::ALL`](super::Kind::ALL)).
pub(crate) const KINDS: usize = 8;
/// First bytes of a state file that was made completely.
pub(crate) const MAGIC: u64 = 0x736f_6674_6770_7533;
/// Room for the SPEC's canonical text (its longest form is shorter).
pub(crate) const SPEC_TEXT: usize = 320;

/// The page can be taken.
pub(crate) const FREE: u8 = 0;
/// A process has it.
pub(crate) const HELD: u8 = 1;
/// It was given back, or its process is dead; it becomes free when it is due.
pub(crate) const LATE: u8 = 2;
/// Several processes may have it, through a share.
pub(crate) const SHARED: u8 = 3;

/// One physical page.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Page {
    /// [`LATE`]: the operation at which it becomes free. [`SHARED`]: the share.
    pub(crate) due: u64,
    /// The process whose bytes are in it, by its unique number; 0 when it holds zeroes.
    pub(crate) number: u32,
    /// The slot of the process it is counted for.
    pub(crate) slot: u16,
    pub(crate) kind: u8,
    pub(crate) state: u8,
}

/// What one process has on one device.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Use {
    /// Bytes asked for, by kind.
    pub(crate) requested: [u64; KINDS],
    /// Pages counted for it, by kind.
    pub(crate) pages: [u64; KINDS],
}

/// One process.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Slot {
    /// Its unique number, 0 for a slot that is free.
    pub(crate) number: u32,
    pub(crate) pid: i32,
    /// It is gone, but not all of its memory has returned.
    pub(crate) dead: u32,
    /// It only watches.
    pub(crate) observer: u32,
    /// The inode of the pid namespace that `pid` is of.
    pub(crate) namespace: u64,
    pub(crate) uses: [Use; MAX_DEVICES as usize],
}

/// One device.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct DeviceState {
    /// Pages that are not free.
    pub(crate) taken: u64,
    /// Pages on their way back, among those.
    pub(crate) late: u64,
    /// No late page is due before this operation.
    pub(crate) next_due: u64,
    /// All late pages are in `late_from..late_to`.
    pub(crate) late_from: u64,
    pub(crate) late_to: u64,
    /// Where the next search for free pages starts.
    pub(crate) cursor: u64,
    /// Bytes all processes have asked for, and the most that ever was.
    pub(crate) requested_now: u64,
    pub(crate) requested_peak: u64,
    /// The most pages ever taken at once.
    pub(crate) taken_peak: u64,
}

/// The head of the file.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: u64,
    pub(crate) mutex: libc::pthread_mutex_t,
    pub(crate) spec_len: u32,
    pub(crate) next_number: u32,
    pub(crate) spec: [u8; SPEC_TEXT],
    /// Operations so far: the machine's clock for what is late.
    pub(crate) tick: u64,
    pub(crate) next_share: u64,
    /// Shares that have pages.
    pub(crate) shares: u64,
    /// Slots of dead processes.
    pub(crate) dead: u64,
    pub(crate) devices: [DeviceState; MAX_DEVICES as usize],
    pub(crate) slots: [Slot; SLOTS],
}

/// Engines of a device that have shared words: compute, copies to the device, copies to the host.
pub(crate) const LANES: usize = 3;
/// Where the words start that are used without the lock: for each slot, device and lane, how long
/// the process has had the engine (ns); then for each device and lane its
/// [turns](crate::exec::turns).
pub(crate) const LANES_AT: usize = size_of::<Header>().next_multiple_of(4096);
const ENGINES: usize = MAX_DEVICES as usize * LANES;
const LANE_WORDS: usize = (SLOTS + TURN_WORDS) * ENGINES;
/// Where the page records start.
pub(crate) const PAGES_AT: usize =
    (LANES_AT + LANE_WORDS * size_of::<u64>()).next_multiple_of(4096);

/// Which word is *served* of a lane, for the process in `slot`.
pub(crate) fn served_word(slot: usize, device: usize, lane: usize) -> usize {
    (slot * MAX_DEVICES as usize + device) * LANES + lane
}

/// Which is the first word of the turns on a lane.
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
