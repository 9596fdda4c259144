//! A tenant's turn on a device, as its processes read it from the control page.
//!
//! The daemon alone writes, in one order ([`ControlDevice::publish`]): what bounds the turn, then
//! the word that names it, and afterwards, for all devices it touched,
//! [`changes`](super::control::ControlHeader::changes) rises and its waiters are woken. A process
//! waits on `changes` with a shared `FUTEX_WAIT`, which a read-only mapping may do, and reads
//! [`ControlDevice::turn`]. All-zero memory, and so a page of a daemon that knows no turns, reads
//! as free and uncapped.

use std::sync::atomic::{Ordering, fence};

use super::control::ControlDevice;

/// Silence of the daemon, in nanoseconds, after which processes consider it gone: gates open, and
/// each tenant keeps its own [`cap`](Turn::cap). The daemon beats once a second. A process whose
/// connection ended need not wait that long.
pub const HEARTBEAT_STALE: u64 = 3_000_000_000;

/// No deadline: launches go on until the word changes.
pub const NO_DEADLINE: u64 = u64::MAX;

/// Times [`ControlDevice::turn`] reads again when the daemon wrote meanwhile.
const RETRIES: usize = 8;

/// The state of a tenant's lease on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LeaseState {
    /// No other tenant is registered there and no cap binds: no bounds, no completion events.
    Free = 0,
    /// It holds the device until the deadline, with bounded work in flight.
    Open = 1,
    /// It closes, finishes its submitted work, and reports it (`Drained` with this epoch).
    Closed = 2,
}

/// The lease in one word: `epoch << 2 | state`.
///
/// The epoch rises with every grant and whenever a deadline moves later, so that a report about an
/// earlier turn is recognised; a deadline that moves earlier keeps it. `Closed` carries the epoch
/// it closes, 0 before the first grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseWord(u64);

impl LeaseWord {
    /// The highest epoch that fits.
    pub const MAX_EPOCH: u64 = u64::MAX >> 2;

    /// The word for `state` in `epoch`; epochs above [`LeaseWord::MAX_EPOCH`] stay there.
    pub const fn new(epoch: u64, state: LeaseState) -> Self {
        let epoch = if epoch > Self::MAX_EPOCH {
            Self::MAX_EPOCH
        } else {
            epoch
        };
        Self(epoch << 2 | state as u64)
    }

    /// The word with these bits. Any bits are one.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Which grant it is about.
    pub const fn epoch(self) -> u64 {
        self.0 >> 2
    }

    /// The state. A state of a later minor reads as `Open`, never as `Closed`: a library never
    /// stops its program for a word it does not understand, and the bounds beside the word still
    /// hold.
    pub const fn state(self) -> LeaseState {
        match self.0 & 3 {
            0 => LeaseState::Free,
            2 => LeaseState::Closed,
            _ => LeaseState::Open,
        }
    }
}

/// A turn: the lease and what bounds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The lease.
    pub word: LeaseWord,
    /// `CLOCK_MONOTONIC` in nanoseconds at which launches stop by themselves; [`NO_DEADLINE`] for
    /// none. Means nothing unless the state is `Open`.
    pub deadline: u64,
    /// Most work in flight, in nanoseconds by estimate; 0 leaves it to the library. Means nothing
    /// unless the state is `Open`.
    pub window: u64,
    /// Exclusive turns: another tenant wants the device now. Shared device: work of another tenant
    /// may run on it now, or did within the last 5 ms; a closed and drained tenant does not count.
    /// The same of a `Closed` state: whether another's work may run beside what was submitted; in
    /// exclusive turns another tenant counts there while it is on the device.
    /// It may change while the word stays, without
    /// [`changes`](super::control::ControlHeader::changes) rising.
    pub contended: bool,
    /// The tenant's hard cap in thousandths of the device's time, 0 for none. The daemon keeps
    /// it by its leases; a process keeps it by itself when the daemon is silent for
    /// [`HEARTBEAT_STALE`].
    pub cap: u32,
    /// How long a holder has nothing in flight before it says `Idle`, in nanoseconds; 0
    /// leaves it to the library.
    pub idle_after: u64,
    /// Yielding, in nanoseconds by estimate: the most that is submitted before all that was
    /// submitted is complete, on all streams; one longer operation goes all the same. 0: no
    /// yielding. Only while [`contended`](Self::contended). Means nothing unless the state is
    /// `Open`.
    pub slice: u64,
}

impl Turn {
    /// Whether tenants work on the device at the same time under this turn, if it is open.
    pub fn is_shared(&self) -> bool {
        self.deadline == NO_DEADLINE && self.idle_after > 0
    }
}

impl ControlDevice {
    /// The tenant's turn now. The bounds are those of the word read with them or, where the daemon
    /// is just storing the next turn, of that one: it stores the bounds before the word. The
    /// wake-up that follows puts that right.
    pub fn turn(&self) -> Turn {
        let mut word = self.lease.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        for _ in 0..RETRIES {
            let turn = self.bounds(word);
            fence(Ordering::Acquire);
            let after = self.lease.load(Ordering::Relaxed);
            if after == word {
                return turn;
            }
            word = after;
            fence(Ordering::Acquire);
        }
        self.bounds(word)
    }

    fn bounds(&self, word: u64) -> Turn {
        Turn {
            word: LeaseWord::from_bits(word),
            deadline: self.deadline.load(Ordering::Relaxed),
            window: self.window.load(Ordering::Relaxed),
            contended: self.contended.load(Ordering::Relaxed) != 0,
            cap: self.cap.load(Ordering::Relaxed),
            idle_after: self.idle_after.load(Ordering::Relaxed),
            slice: self.slice.load(Ordering::Relaxed),
        }
    }

    /// Stores a turn: the bounds, then the word. For the daemon, which raises `changes` and wakes
    /// afterwards. A `Closed` turn leaves deadline, window and slice unchanged, so that no reader
    /// takes a close for an extension.
    pub fn publish(&self, turn: &Turn) {
        if turn.word.state() != LeaseState::Closed {
            self.deadline.store(turn.deadline, Ordering::Relaxed);
            self.window.store(turn.window, Ordering::Relaxed);
            self.slice.store(turn.slice, Ordering::Relaxed);
        }
        self.contended
            .store(u32::from(turn.contended), Ordering::Relaxed);
        self.cap.store(turn.cap, Ordering::Relaxed);
        self.idle_after.store(turn.idle_after, Ordering::Relaxed);
        self.lease.store(turn.word.bits(), Ordering::Release);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::page::control::tests::blank;

    #[test]
    fn a_word_comes_back_as_it_was_packed() {
        for state in [LeaseState::Free, LeaseState::Open, LeaseState::Closed] {
            for epoch in [0, 1, 77, LeaseWord::MAX_EPOCH] {
                let word = LeaseWord::new(epoch, state);
                assert_eq!((word.epoch(), word.state()), (epoch, state));
                assert_eq!(LeaseWord::from_bits(word.bits()), word);
            }
        }
        let beyond = LeaseWord::new(u64::MAX, LeaseState::Closed);
        assert_eq!(
            (beyond.epoch(), beyond.state()),
            (LeaseWord::MAX_EPOCH, LeaseState::Closed)
        );
    }

    #[test]
    fn zero_is_free_and_an_unknown_state_does_not_close() {
        assert_eq!(LeaseWord::default().state(), LeaseState::Free);
        assert_eq!(LeaseWord::from_bits(9 << 2 | 3).state(), LeaseState::Open);
        assert_eq!(LeaseWord::from_bits(9 << 2 | 3).epoch(), 9);
    }

    #[test]
    fn a_blank_page_reads_as_free_and_uncapped() {
        assert_eq!(blank().devices[0].turn(), Turn::default());
    }

    #[test]
    fn a_turn_is_read_as_it_was_published_and_a_close_moves_no_deadline() {
        let device = &blank().devices[3];
        let open = Turn {
            word: LeaseWord::new(4, LeaseState::Open),
            deadline: 1_000,
            window: 200,
            contended: true,
            cap: 300,
            idle_after: 500_000,
            slice: 400_000,
        };
        device.publish(&open);
        assert_eq!(device.turn(), open);
        let closed = Turn {
            word: LeaseWord::new(4, LeaseState::Closed),
            deadline: NO_DEADLINE,
            window: 0,
            slice: 0,
            ..open
        };
        device.publish(&closed);
        assert_eq!(
            device.turn(),
            Turn {
                word: closed.word,
                ..open
            }
        );
    }
}
