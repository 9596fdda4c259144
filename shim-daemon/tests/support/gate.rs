//! A process with a gate, driven by the test: it maps the control page, sees its turns, and sends
//! the reports that the test orders.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpushare_protocol::page::control::{CONTROL_BYTES, ControlPage};
use gpushare_protocol::page::lease::{LeaseState, Turn};
use gpushare_protocol::wire::*;
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::time::{ClockId, clock_gettime};

use super::{Client, PATIENCE};

/// Longest one sleep, so that an end is noticed.
const SLICE: Duration = Duration::from_millis(20);

pub struct Gated {
    pub client: Client,
    page: &'static ControlPage,
}

/// `CLOCK_MONOTONIC` in nanoseconds, as deadlines are.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    u64::try_from(time.tv_sec() * 1_000_000_000 + time.tv_nsec()).unwrap()
}

/// The control page of a registration.
pub fn control(file: OwnedFd) -> &'static ControlPage {
    let (length, access) = (
        NonZeroUsize::new(CONTROL_BYTES).unwrap(),
        ProtFlags::PROT_READ,
    );
    // SAFETY: a new read-only mapping of a page that is sealed against shrinking, never unmapped.
    let page = unsafe {
        let base = mmap(None, length, access, MapFlags::MAP_SHARED, file, 0).unwrap();
        ControlPage::from_mapping(base.cast())
    };
    page.check().unwrap();
    page
}

impl Gated {
    /// Joins and opens a context on the device.
    pub fn join(socket: &Path) -> Self {
        let mut gated = Self::map(Client::register_with(socket, Hello::GATED));
        assert!(matches!(gated.client.open(), Reply::Granted { .. }));
        gated
    }

    /// Joins once the daemon has recovered the processes of its predecessor.
    pub fn join_after_recovery(socket: &Path) -> Self {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut wire = super::Wire::connect(socket);
            let register = Register {
                pid: std::process::id(),
                presents_page: false,
                slot: None,
            };
            match wire.call(&Request::Register(register)) {
                Reply::Registered(_) => return Self::join(socket),
                Reply::Error(error) if error.can_retry => {
                    assert!(Instant::now() < end, "{error:?}")
                }
                other => panic!("{other:?}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// With the control page that came with a client's registration.
    pub fn map(mut client: Client) -> Self {
        let page = control(client.wire.descriptors.pop().unwrap());
        Self { client, page }
    }

    pub fn page(&self) -> &'static ControlPage {
        self.page
    }

    pub fn turn(&self) -> Turn {
        self.page.devices[0].turn()
    }

    pub fn heartbeat(&self) -> u64 {
        self.page.header.heartbeat.load(Ordering::Relaxed)
    }

    /// Waits until the page shows a turn that fits.
    pub fn until(&self, fits: impl Fn(&Turn) -> bool) -> Turn {
        let end = Instant::now() + PATIENCE;
        loop {
            let changes = self.page.header.changes.load(Ordering::Acquire);
            let turn = self.turn();
            if fits(&turn) {
                return turn;
            }
            assert!(Instant::now() < end, "nothing came after {turn:?}");
            self.sleep(changes, SLICE);
        }
    }

    /// Waits until the page is not as it was at `changes`, for a time at most.
    fn sleep(&self, changes: u32, at_most: Duration) {
        let time = libc::timespec {
            tv_sec: at_most.as_secs().try_into().unwrap(),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        let word = self.page.header.changes.as_ptr();
        // SAFETY: the word stays mapped; the wait is bounded.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word,
                libc::FUTEX_WAIT,
                changes,
                &raw const time,
            )
        };
    }

    /// Gets the next turn after epoch `after`, as a program does that has a call waiting: at each
    /// close it says that it has drained, and that it wants. Nothing once `ends`.
    pub fn get_turn(&mut self, after: u64, ends: &AtomicBool) -> Option<Turn> {
        let mut said = None;
        loop {
            let ended = || ends.load(Ordering::Relaxed);
            let turn = self.until(|turn| {
                ended() || is_open(turn, after) || is_closed(turn) && said != Some(turn.word)
            });
            if ended() {
                return None;
            }
            if !is_closed(&turn) {
                return Some(turn);
            }
            said = Some(turn.word);
            let epoch = turn.word.epoch();
            self.drained(epoch);
            self.want(epoch);
        }
    }

    /// Makes way: says at the next close that it has drained.
    pub fn make_way(&mut self) {
        let turn = self.until(is_closed);
        self.drained(turn.word.epoch());
    }

    /// Works until the deadline of `turn`, until it is closed, or until `ends`.
    fn work(&self, turn: &Turn, ends: &AtomicBool) {
        let end = Instant::now() + PATIENCE;
        while !ends.load(Ordering::Relaxed) {
            assert!(Instant::now() < end, "no other tenant wants the device");
            let changes = self.page.header.changes.load(Ordering::Acquire);
            let seen = self.turn();
            if seen.word != turn.word || now() >= seen.deadline {
                return;
            }
            let left = Duration::from_nanos(seen.deadline.saturating_sub(now()));
            self.sleep(changes, left.min(SLICE));
        }
    }

    pub fn say(&mut self, request: &Request) {
        self.client.wire.send(0, request);
    }

    /// Says that a call waits under a turn that is over.
    pub fn want(&mut self, epoch: u64) {
        self.say(&Request::Wanted {
            device_index: 0,
            epoch,
        });
    }

    pub fn drained(&mut self, epoch: u64) {
        self.say(&Request::Drained {
            device_index: 0,
            epoch,
        });
    }

    /// One turn of a program that always has work: gets it, works, drains, wants the next. Returns
    /// its epoch, and from when to when it held the device; nothing once `ends`.
    pub fn take_turn(&mut self, after: u64, ends: &AtomicBool) -> Option<(u64, u64, u64)> {
        let turn = self.get_turn(after, ends)?;
        let from = now();
        self.work(&turn, ends);
        let (epoch, to) = (turn.word.epoch(), now());
        self.drained(epoch);
        self.want(epoch);
        Some((epoch, from, to))
    }
}

pub fn is_open(turn: &Turn, after: u64) -> bool {
    turn.word.state() == LeaseState::Open && turn.word.epoch() > after
}

pub fn is_closed(turn: &Turn) -> bool {
    turn.word.state() == LeaseState::Closed
}
