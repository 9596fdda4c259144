//! The client `turns` under turns that the test publishes, while its tenant yields: it submits
//! slices, and the software GPU's turns show them.

use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE, Turn};
use softgpu::inspect::Observer;

use crate::{Dealer, Gpu, Guest, until};

/// A microsecond (ns).
pub const US: u64 = 1_000;
/// A millisecond (ns).
pub const MS: u64 = 1_000_000;
/// The work submitted at a time (ns).
pub const SLICE: u64 = 500 * US;
/// The duration of one kernel: two of them fit.
pub const KERNEL: u64 = 200 * US;
/// The device's clock may add this to a kernel, including the time of a launch.
pub const SLIGHTLY: u64 = 50 * US;

/// A turn of a device that tenants share.
pub fn shared(epoch: u64, contended: bool, slice: u64) -> Turn {
    Turn {
        word: LeaseWord::new(epoch, LeaseState::Open),
        deadline: NO_DEADLINE,
        window: 2 * MS,
        idle_after: 20 * MS,
        contended,
        slice,
        ..Turn::default()
    }
}

/// A gap this short (ns) does not count: the device continues with queued work.
const GAP: u64 = 2 * US;

/// The software GPU's turns of the device: the spans in which it worked without a pause.
#[derive(Debug)]
pub struct Books {
    observer: Observer,
    place: u64,
    /// The span of the last spell, which may continue.
    last: Option<(u64, u64)>,
    /// How long the device was empty between stretches.
    pub gaps: Vec<u64>,
}

impl Books {
    /// They begin now.
    pub fn of(gpu: &Gpu) -> Self {
        let observer = Observer::open(&gpu.spec().parse().expect("a SPEC")).expect("a machine");
        let (_, place) = observer.spells(0, u64::MAX).expect("readable");
        Self {
            observer,
            place,
            last: None,
            gaps: Vec::new(),
        }
    }

    /// The lengths of the spans that have ended since the last call (ns).
    pub fn ended(&mut self) -> Vec<u64> {
        let (spells, place) = self.observer.spells(0, self.place).expect("readable");
        self.place = place;
        let mut ended = Vec::new();
        for spell in spells {
            match &mut self.last {
                Some((_, to)) if spell.from <= *to + GAP => *to = spell.to,
                last => {
                    let before = last.replace((spell.from, spell.to));
                    let gap = before.map(|(_, to)| spell.from.saturating_sub(to));
                    self.gaps.extend(gap);
                    ended.extend(before.map(|(from, to)| to - from));
                }
            }
        }
        ended
    }

    /// The current length of the span that may continue (ns).
    pub fn so_far(&self) -> u64 {
        self.last.map_or(0, |(from, to)| to - from)
    }

    /// The lengths of the next `count` spans (ns).
    #[track_caller]
    pub fn stretches(&mut self, count: usize) -> Vec<u64> {
        self.ended();
        let mut seen = Vec::new();
        until("the device works", || {
            seen.extend(self.ended());
            seen.len() > count
        });
        // The first span may have begun before.
        seen.split_off(1)
    }

    /// Waits for a span longer than `ns`.
    #[track_caller]
    pub fn until_longer_than(&mut self, ns: u64) {
        self.ended();
        until("there is a long stretch", || {
            self.ended().iter().any(|length| *length > ns) || self.so_far() > ns
        });
    }

    /// Waits until `count` spans in a row are at most `ns` long.
    #[track_caller]
    pub fn until_shorter_than(&mut self, ns: u64, count: usize) {
        let mut row = 0;
        until("stretches are short", || {
            for length in self.ended() {
                row = if length <= ns { row + 1 } else { 0 };
            }
            row >= count
        });
    }
}

/// A program of the tenant, with its context.
#[track_caller]
pub fn started(dealer: &Dealer) -> Guest {
    dealer.client("turns").started()
}

/// It launches such kernels from now on.
#[track_caller]
pub fn works(guest: &mut Guest, kernel: u64) {
    assert_eq!(guest.ask(&format!("work {kernel}")), "work 0");
}

/// It launches no more, and all is complete.
#[track_caller]
pub fn rests(guest: &mut Guest) {
    assert_eq!(guest.ask("stop"), "stop 0");
    assert_eq!(guest.ask("sync 1"), "sync 0");
}
