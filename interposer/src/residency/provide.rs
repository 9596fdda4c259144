//! The host store's upkeep, in the background: asks for more as there is more to move, takes what
//! was given, has the driver pin it, and gives back what is too much.
//!
//! Nothing is pinned beside a move: to pin takes long in the driver, and other tenants wait for the
//! move. While a sealed process waits for host memory, or is out, nothing moves.

use std::time::Duration;

use gpushare_cuda_abi::cuda::{CUcontext, CUresult};
use gpushare_protocol::page::MAX_DEVICES;

use super::behind::Behind;
use super::host::{Given, MOST, Pinned, STEP};
use super::managed;
use super::memory::blocks;
use crate::driver::contexts::life_of;
use crate::driver::marking::{self, Kept};
use crate::driver::streams;
use crate::driver::vmm;
use crate::guest::frames;
use crate::session::Session;

/// How long more host memory than is needed is kept (ns): a program that frees its memory may be
/// about to allocate again, and to pin is slow.
const SURPLUS: u64 = 2_000_000_000;
/// How often it is looked whether the devices are idle, and how long after each other.
const LOOKS: usize = 10;
const LOOK: Duration = Duration::from_millis(1);
/// How long an answer is waited for (ns).
const PATIENCE: u64 = 1_000_000_000;

/// A request for host memory that is not answered yet, and memory that is too much.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Another is sent then (ns).
    until: u64,
    /// An answer may come.
    pub(super) waits: bool,
    /// Since when there is too much (ns).
    surplus: Option<u64>,
}

impl Asked {
    /// The process gave its host memory back, because others lack it. It asks again later: until
    /// the daemon knows that the process is back, it would give what it had reserved for it.
    pub(super) fn later(&mut self, now: u64) {
        self.until = now.saturating_add(PATIENCE);
    }

    /// A device begins to seal. Host memory that was refused in advance is given for a move.
    pub(super) fn at_once(&mut self) {
        self.until = 0;
    }
}

/// The state of the process's memory at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The process is sealed: nothing is given back.
    pub(super) sealed: bool,
    /// Memory of it is on its way, to a file too, or its devices are being drained: nothing is
    /// pinned.
    pub(super) moves: bool,
    /// The room on the host that all devices need for what is on them.
    pub(super) needed: u64,
    /// Memory that is away is being stored in files, and unused host memory is given back: no more
    /// is asked for until a device is to move.
    pub(super) stores: bool,
}

/// One look. Whether there may be more to pin.
pub(super) fn provide(session: &Session, asked: &mut Asked, now: u64, seen: Seen) -> bool {
    if managed::is_on() {
        return false;
    }
    for (address, offset, bytes) in session.take_host_ranges() {
        blocks().store.add(Given {
            address,
            offset,
            bytes,
        });
        (asked.until, asked.waits) = (0, false);
    }
    asked.waits &= now < asked.until && !session.host_was_refused();
    if !seen.stores {
        // The daemon makes the next range while one is pinned.
        ask(session, asked, now, seen.needed);
    }
    let pinned = !seen.moves && pin();
    if !seen.sealed {
        drop_surplus(session, asked, now);
    }
    pinned
}

fn ask(session: &Session, asked: &mut Asked, now: u64, needed: u64) {
    let (device_index, wanted) = {
        let blocks = blocks();
        let (device_index, _) = blocks.moving();
        let wanted = needed.saturating_sub(blocks.store.free());
        (device_index.unwrap_or(0), wanted)
    };
    if wanted > 0 && now >= asked.until {
        asked.until = now.saturating_add(PATIENCE);
        asked.waits = true;
        session.ask_host_range(device_index, wanted.next_multiple_of(STEP).min(MOST));
    }
}

/// Contexts of the process, those on lost devices last.
fn contexts() -> impl Iterator<Item = CUcontext> {
    let lost = blocks().lost;
    let on = move |wanted| (0..MAX_DEVICES).filter(move |index| lost[*index] == wanted);
    let all = on(false).chain(on(true)).flat_map(streams::contexts_on);
    all.map(|(context, _)| context)
}

/// Pins one range. Whether there may be another one.
fn pin() -> bool {
    let Some(context) = contexts().next() else {
        return false;
    };
    let next = {
        let blocks = blocks();
        let next = blocks.store.next_to_pin();
        next.map(|(number, range)| (number, range, blocks.store.was_pinned(number)))
    };
    let Some((number, range, was_pinned)) = next else {
        return false;
    };
    // In the books before the context may end.
    let pinned = marking::keeping(context, || {
        let pinned = match registered(range, was_pinned) {
            Some(Ok(())) => Pinned::By(context),
            Some(Err(why)) => {
                tracing::warn!(?why, "host memory is not pinned: moves will be slow");
                Pinned::No
            }
            None => return false,
        };
        blocks().store.settled(number, pinned);
        true
    });
    // Else the context is being destroyed: by another one later.
    pinned == Some(true)
}

/// Has the driver pin a range. Where it keeps what a context that has ended had pinned, it knows
/// that range still. Of any other one it knows a former mapping of the address, and would copy to
/// and from the memory that was there: that is ended first. `None`: not while work goes on.
fn registered(range: Given, was_pinned: bool) -> Option<Result<(), CUresult>> {
    let length = usize::try_from(range.bytes).unwrap_or(0);
    let register = || vmm::register_host(range.address, length);
    match register() {
        Err(CUresult::HOST_MEMORY_ALREADY_REGISTERED) if was_pinned => Some(Ok(())),
        Err(CUresult::HOST_MEMORY_ALREADY_REGISTERED) => {
            is_idle().then(|| vmm::unregister_host(range.address).and_then(|()| register()))
        }
        answer => Some(answer),
    }
}

/// Gives back one range, once there has been too much for a while.
fn drop_surplus(session: &Session, asked: &mut Asked, now: u64) {
    let kept = {
        let (_, movable) = blocks().moving();
        movable.saturating_add(movable / 4).next_multiple_of(STEP)
    };
    let is_due = asked
        .surplus
        .is_some_and(|since| now >= since.saturating_add(SURPLUS));
    if !is_due {
        let is_too_much = blocks().store.has_surplus(kept);
        asked.surplus = is_too_much.then(|| asked.surplus.unwrap_or(now));
        return;
    }
    if !is_idle() {
        return;
    }
    let Some((range, pinned)) = blocks().store.surplus(kept) else {
        asked.surplus = None;
        return;
    };
    let unpinned = match pinned.is_known() {
        true => unpinned(range.address),
        false => Unpinned::Yes,
    };
    match unpinned {
        Unpinned::Yes => session.drops(range.address, range.offset, range.bytes),
        Unpinned::NotNow => blocks().store.put_back(range, pinned),
        // In no list any more: never used, never unmapped.
        Unpinned::No => tracing::warn!("host memory stays pinned"),
    }
}

/// Whether nothing runs on the devices: the driver may wait for all work before it unpins memory,
/// and this thread must never wait without a bound. No mark is passed on a lost device, and the
/// driver waits for nothing there.
pub(super) fn is_idle() -> bool {
    let lost = blocks().lost;
    (0..MAX_DEVICES).all(|device_index| lost[device_index] || rests(device_index))
}

/// Whether nothing runs on a device.
fn rests(device_index: usize) -> bool {
    let mut work = Behind::all(device_index);
    // An event without work before it is passed soon, not at once.
    let passed = (0..LOOKS).any(|_| {
        let passed = work.is_passed();
        if !passed {
            frames::sleep(LOOK);
        }
        passed
    });
    work.over();
    passed
}

/// Whether the driver knows a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unpinned {
    /// Not any more.
    Yes,
    /// It may: the contexts in which it could be asked are being destroyed, or perhaps released.
    NotNow,
    /// It does not let go of it.
    No,
}

/// Has the driver let go of a range.
pub(super) fn unpinned(address: usize) -> Unpinned {
    let living = contexts().filter_map(life_of);
    by_answers(living.map(|life| marking::keeping_life(life, || vmm::unregister_host(address))))
}

/// The answers of contexts, one after the other. Without a context nothing is pinned.
fn by_answers(answers: impl Iterator<Item = Kept<Result<(), CUresult>>>) -> Unpinned {
    let mut unpinned = Unpinned::Yes;
    for answer in answers {
        match answer {
            Kept::Done(Ok(()) | Err(CUresult::HOST_MEMORY_NOT_REGISTERED)) => {
                return Unpinned::Yes;
            }
            Kept::Done(Err(_)) => unpinned = Unpinned::No,
            Kept::Going if unpinned == Unpinned::Yes => unpinned = Unpinned::NotNow,
            Kept::Going | Kept::Gone => {}
        }
    }
    unpinned
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: Kept<Result<(), CUresult>> = Kept::Done(Err(CUresult::UNKNOWN));
    const DONE: Kept<Result<(), CUresult>> = Kept::Done(Ok(()));

    #[test]
    fn range_is_not_unpinned_by_a_context_that_may_be_going() {
        let by = |answers: &[_]| by_answers(answers.iter().copied());
        assert_eq!(by(&[Kept::Going]), Unpinned::NotNow);
        assert_eq!(by(&[Kept::Gone, Kept::Going]), Unpinned::NotNow);
        assert_eq!(by(&[Kept::Going, REFUSED]), Unpinned::No);
        assert_eq!(by(&[REFUSED, Kept::Going]), Unpinned::No);
    }

    #[test]
    fn range_is_unpinned_by_any_context_or_where_there_is_none() {
        let by = |answers: &[_]| by_answers(answers.iter().copied());
        assert_eq!(by(&[Kept::Going, DONE]), Unpinned::Yes);
        assert_eq!(by(&[REFUSED, DONE]), Unpinned::Yes);
        let unknown = Kept::Done(Err(CUresult::HOST_MEMORY_NOT_REGISTERED));
        assert_eq!(by(&[unknown]), Unpinned::Yes);
        assert_eq!((by(&[]), by(&[Kept::Gone])), (Unpinned::Yes, Unpinned::Yes));
    }
}
