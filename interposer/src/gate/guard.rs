//! The slow way through the gate.

use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use gpushare_cuda_abi::cuda::CUresult;

use crate::gate::word::{self, ANY_SEALED, ANY_SLOW, OUT, Record, SOMEWHERE};
use crate::guest::background::Uncancelled;
use crate::guest::exit;
use crate::guest::frames::{self, Frame};
use crate::guest::futex::FutexWaiter;

use super::{Gate, LaunchTarget, Work, drain, seal, target};
use crate::gate::tls;
use crate::guest::clock;

/// How long one sleep at a closed gate lasts at most before the word is read again.
pub(super) const NAP: Duration = Duration::from_millis(100);
/// For how long it is known that a thread waits which has said so (ns): it says so again before
/// each nap.
const WAITS: u64 = 200_000_000;

/// Called outside a closed gate, before each sleep.
pub(super) type AnnounceWaiter<'a> = &'a mut dyn FnMut() -> Option<FutexWaiter>;

/// Where it shows that a thread is inside.
#[derive(Clone, Copy, Debug)]
enum Seat {
    Own(&'static Record),
    /// The system has no page for one more record: the launch is counted here with others.
    Shared(&'static AtomicU32),
}

/// A launch on its way: inside, or stepped out to wait. Inside, no closing of its devices comes to
/// an end.
#[derive(Debug)]
pub(crate) struct GateGuard {
    gate: &'static Gate,
    seat: Seat,
    /// Where it may submit while inside.
    place: u64,
    /// Where the call is.
    at: u64,
    inside: bool,
    /// The record's content of a call that this one interrupted, and of calls that touch memory:
    /// it shows that again afterwards.
    outer: (u64, u64),
}

impl GateGuard {
    /// Steps inside, by the call at `frame`.
    pub(super) fn begin(gate: &'static Gate, frame: &Frame) -> Self {
        let seat = match tls::get().or_else(|| gate.records.claim()) {
            Some(record) => Seat::Own(record),
            None => Seat::Shared(gate.records.crowd()),
        };
        let at = frame.address();
        let mut outer = (OUT, OUT);
        if let Seat::Own(record) = seat {
            tls::set(Some(record));
            // While this call waits, so does the interrupted one, and no thread needs to wait for
            // that. It continues after this one.
            let seen_from = record.found.swap(0, Ordering::Relaxed).max(at);
            if record.is_inside() && !super::was_left(record, seen_from) {
                let shown = record.shown();
                // A turn may end meanwhile. A seal may not: the other call is in the driver.
                outer = (shown, seal::interrupts(record, shown));
            }
        }
        let mut guard = Self {
            gate,
            seat,
            place: SOMEWHERE,
            at,
            inside: false,
            outer,
        };
        guard.step_in();
        guard
    }

    /// Steps inside. Only what [`GateGuard::is_closed`] says after this counts.
    pub(crate) fn step_in(&mut self) {
        if self.inside {
            return;
        }
        match self.seat {
            Seat::Own(record) => {
                let _ = record.step_in(self.at, self.place, &self.gate.word);
            }
            Seat::Shared(crowd) => {
                crowd.fetch_add(1, Ordering::SeqCst);
            }
        }
        // Where the system has no `membarrier` this is all there is before the word is read.
        fence(Ordering::SeqCst);
        self.inside = true;
    }

    /// Steps out, to wait.
    pub(crate) fn step_out(&mut self) {
        if !self.inside {
            return;
        }
        self.inside = false;
        match self.seat {
            Seat::Own(record) => record.step_out(),
            Seat::Shared(crowd) => {
                crowd.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Whether nothing may be launched on `device_index`. Inside, `false` holds until the next step
    /// out.
    pub(crate) fn is_closed(&self, device_index: usize) -> bool {
        self.gate.word.load() & (word::closed(device_index) | ANY_SEALED) != 0
    }

    /// Whether it is sealed, and will stay so.
    fn is_lost(&self) -> bool {
        seal::is_lost() && self.is_sealed()
    }

    /// Whether no launch is made any more: the process leaves, or memory of it is lost.
    pub(super) fn is_at_its_end(&self) -> bool {
        exit::is_leaving() || self.is_lost()
    }

    /// Whether a launch on `device_index` waits.
    fn is_held(&self, device_index: usize) -> bool {
        self.is_closed(device_index) && !self.is_at_its_end()
    }

    fn is_sealed(&self) -> bool {
        self.gate.word.load() & ANY_SEALED != 0
    }

    /// Returns inside, with `device_index` not closed; steps out and sleeps until that is so.
    /// Outside, before each sleep, it calls `announce_waiter`, which may open the gate and returns
    /// what else to sleep on.
    pub(super) fn wait_while_closed(
        &mut self,
        device_index: usize,
        announce_waiter: AnnounceWaiter<'_>,
    ) {
        self.step_in();
        while self.is_held(device_index) {
            self.step_out();
            if self.is_sealed() {
                self.gate.sleep_sealed(ANY_SEALED);
            } else {
                self.gate.sleep(device_index, announce_waiter);
            }
            self.step_in();
        }
    }

    /// The process has begun to exit while a launch waited: the driver is or will soon be torn
    /// down, and is not called. The thread is held for a moment, in which most processes end: a
    /// late launch would violate the order of the program's calls. Or memory of the process is
    /// lost. `None` otherwise.
    fn is_over(&mut self) -> Option<CUresult> {
        if self.is_lost() {
            self.step_out();
            return Some(seal::LOST);
        }
        if !exit::is_leaving() {
            return None;
        }
        self.step_out();
        exit::hold();
        Some(CUresult::DEINITIALIZED)
    }

    fn is_slow(&self, device_index: usize) -> bool {
        self.gate.word.load() & word::slow(device_index) != 0
    }

    /// From now on inside means these devices.
    fn narrow(&mut self, targets: &[LaunchTarget]) {
        self.step_out();
        let devices = targets
            .iter()
            .fold(0, |bits, place| bits | 1 << place.device_index);
        self.place = word::to(devices);
        self.step_in();
    }

    fn count(&self) {
        match self.seat {
            Seat::Own(record) => record.count(),
            Seat::Shared(_) => self.gate.records.count(),
        }
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        match self.seat {
            // In this order: the other call is in the driver all the time.
            Seat::Own(record) if self.outer.0 != OUT => {
                record.step_back(self.outer.0);
                record.touches_again(self.outer.1);
                self.inside = false;
            }
            _ => self.step_out(),
        }
    }
}

impl Gate {
    /// One nap at a closed gate.
    fn sleep(&'static self, device_index: usize, announce_waiter: AnnounceWaiter<'_>) {
        let opening = FutexWaiter::own(&self.turn);
        let waiting = &self.waiting[device_index];
        let until = clock::now().saturating_add(WAITS);
        waiting.store(until, Ordering::Release);
        let waiter = announce_waiter().unwrap_or(opening);
        if self.word.load() & word::closed(device_index) != 0 {
            frames::away(|| waiter.sleep(NAP));
        } else {
            // It opened before this was said.
            let _ = waiting.compare_exchange(until, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Makes a launch by `call` when its devices let it.
pub(super) fn pass(
    gate: &'static Gate,
    work: &Work<'_>,
    call: &mut dyn FnMut() -> CUresult,
) -> CUresult {
    let _uncancelled = Uncancelled::begin();
    gate.stirs();
    let frame = Frame::new();
    let mut guard = GateGuard::begin(gate, &frame);
    let answer = if gate.word.load() & (ANY_SLOW | ANY_SEALED) == 0 {
        call()
    } else {
        target::with(work, &mut |targets| submit(&mut guard, targets, call))
    };
    guard.count();
    answer
}

fn submit(
    guard: &mut GateGuard,
    targets: &[LaunchTarget],
    call: &mut dyn FnMut() -> CUresult,
) -> CUresult {
    if targets.is_empty() {
        // Nothing runs that a turn at a device could hold back.
        guard.step_out();
        return seal::pass(call);
    }
    guard.narrow(targets);
    match targets {
        [target] if !guard.is_slow(target.device_index) && !guard.is_sealed() => call(),
        [target] => {
            let admitted = drain::admit(target, guard);
            if let Some(over) = guard.is_over() {
                drain::withdrawn(admitted);
                return over;
            }
            let answer = call();
            drain::submitted(admitted, answer);
            answer
        }
        _ => submit_to_several(guard, targets, call),
    }
}

/// All devices must let the launch through at once: while one is waited for, another may close
/// again.
fn submit_to_several(
    guard: &mut GateGuard,
    targets: &[LaunchTarget],
    call: &mut dyn FnMut() -> CUresult,
) -> CUresult {
    let mut admitted = Vec::with_capacity(targets.len());
    loop {
        for target in targets {
            if guard.is_slow(target.device_index) || guard.is_sealed() {
                admitted.extend(drain::admit(target, guard));
            }
        }
        guard.step_in();
        let mut devices = targets.iter().map(|target| target.device_index);
        if !devices.any(|device_index| guard.is_held(device_index)) {
            break;
        }
        drain::withdrawn(admitted.drain(..));
    }
    if let Some(over) = guard.is_over() {
        drain::withdrawn(admitted);
        return over;
    }
    let answer = call();
    drain::submitted(admitted, answer);
    answer
}
