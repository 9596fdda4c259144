//! Places, orders and reports.

use gpushare_protocol::units::Bytes;

/// Where a tenant's movable memory is on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// On the card.
    In,
    /// Leaving: its processes are being sealed. All memory is still on the card.
    Sealing,
    /// Leaving: its processes are sealed and copy their memory to the host.
    Leaving,
    /// Leaving: its processes report their memory gone, and no look at the device shows it yet.
    Confirming,
    /// On the host. Its processes stay sealed.
    Out,
    /// Memory is set aside for it and its processes bring theirs back.
    Entering,
}

/// An order to a tenant's processes on one device, given in the control page. Each order has a new
/// epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing is asked: run as always.
    In,
    /// Stop and drain; keep the memory.
    Seal,
    /// Move all movable memory to the host.
    Leave,
    /// Bring all of it back, then run.
    Return,
    /// Stay sealed.
    Out,
    /// The device is lost, with what is away: run. No order about it comes later.
    Lost,
}

/// A process's report about an order on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is sealed and drained.
    Sealed,
    /// It could not be sealed and runs again. It asks not to be asked again so soon.
    Busy {
        /// For how long, in milliseconds.
        retry: u32,
        /// Work or a call that it had begun did not end in the time given: more time may help.
        late: bool,
    },
    /// Progress: so many bytes are on the host.
    Moved {
        /// How many.
        away: Bytes,
    },
    /// All that can move is on the host. Believed no further than the device shows.
    Away {
        /// How much that is.
        away: Bytes,
        /// The memory that could not move.
        residue: Bytes,
    },
    /// All is on the card again, and the process runs.
    Back,
    /// The driver gave too little memory to return: all is on the host as before.
    NoRoom {
        /// How much was missing.
        bytes: Bytes,
    },
}

/// The state in which a process of the previous daemon comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// It runs.
    In,
    /// It is sealed, with all its memory on the card.
    Sealed,
    /// Its memory is on the host, or is on its way there or back.
    Out {
        /// How much of it is there.
        away: Bytes,
        /// Whether it rests there: nothing of it moves, and none that could is left on the card.
        rests: bool,
    },
}
