//! The waits of a launch on a device whose lease may bind, and the records of the launch.
//!
//! While the gate is open but bound, a launch asks for room in the window; where its work would not
//! be complete by the deadline, the gate closes early. While it is closed, launches wait for the
//! next turn, and the daemon is told once per close that one waits. Every wait is bounded: a
//! waiting thread checks ten times a second, and continues if the gate thread shows no sign of life
//! ([`Stillness`]), or if the window or the slices have had no room for it for [`PATIENCE`].

use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};

use gpushare_cuda_abi::cuda::{
    CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUcontext, CUresult, CUstream,
};

use super::{GateGuard, LaunchTarget, apart, awaited, ledger, thread};
use crate::driver::contexts::{self, Here};
use crate::driver::green::{self, Green};
use crate::driver::stream_ref::StreamRef;
use crate::driver::streams;
pub(crate) use crate::gate::device_gate::NewName;
use crate::gate::device_gate::{self, DeviceGate, Timing, Told};
use crate::gate::ledger::Named;
use crate::gate::stillness::Stillness;
use crate::guest::clock;
use crate::guest::futex::FutexWaiter;
use gpushare_pacing::estimate::Expected;
use gpushare_pacing::window::{Op, StreamKey};
use gpushare_protocol::report::Report;

/// How long an open device may have no room for a launch (ns), before it continues.
const PATIENCE: u64 = 10_000_000_000;

/// One admitted launch.
#[derive(Debug)]
pub(super) struct Admitted {
    gate: &'static DeviceGate,
    stream_key: StreamKey,
    key: u64,
    /// It was the first of its function or graph.
    first: bool,
    expected: Expected,
    timing: Option<Timing>,
    /// The launch as the program named it.
    named: Option<Named>,
}

thread_local! {
    // Const and without a destructor. 0: the thread has no number yet.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// A number of the calling thread's own, never 0 and never another thread's: work in the default
/// stream of a thread's own may outlive the thread, and is no later thread's.
pub(crate) fn thread_number() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        number.get()
    })
}

/// Waits until a launch may go to the driver. Called inside the gate ([`GateGuard`]), for a gate
/// that is not free; may step out to wait, and returns inside. `None`: there is nothing to note.
pub(super) fn admit(target: &LaunchTarget, guard: &mut GateGuard) -> Option<Admitted> {
    let Some(gate) = device_gate::of(target.device_index) else {
        guard.wait_while_closed(target.device_index, &mut || None);
        return None;
    };
    let stream_key = stream_key_of(target.context, target.stream);
    let era = ledger::era();
    // Endless work may wait for this launch.
    let mut end = None;
    let mut stillness = Stillness::default();
    loop {
        guard.wait_while_closed(target.device_index, &mut || {
            announce_waiter(gate, target.device_index, &mut stillness)
        });
        if guard.is_at_its_end() {
            return None;
        }
        let insists = end.is_some_and(|end| clock::now() >= end);
        match gate.ask(stream_key, target.key, insists) {
            Told::Free => return None,
            Told::Go {
                expected,
                was_idle,
                timed,
                first,
            } => {
                if let Some(epoch) = was_idle {
                    thread::tell(target.device_index, Report::Busy, epoch);
                    thread::wake();
                }
                return Some(Admitted {
                    gate,
                    stream_key,
                    key: target.key.number,
                    first,
                    expected,
                    timing: timed.then(|| gate.time(stream_key)).flatten(),
                    named: Named::of(target.stream, target.key.number, era),
                });
            }
            Told::Wait(pause) => {
                end.get_or_insert_with(|| clock::now().saturating_add(PATIENCE));
                guard.step_out();
                gate.pause(pause);
                gate.make_room(thread_number());
                guard.step_in();
            }
            Told::Full(full) => {
                // Other threads may fill each slice before this one asks.
                end.get_or_insert_with(|| clock::now().saturating_add(PATIENCE));
                guard.step_out();
                gate.rest(full, thread_number());
                guard.step_in();
            }
            Told::Taken(taken) => {
                end.get_or_insert_with(|| clock::now().saturating_add(PATIENCE));
                guard.step_out();
                gate.wait_for_token(taken);
                guard.step_in();
            }
            Told::Closed => {
                end = None;
                guard.step_out();
                // First that more is wanted, then that all is done: the daemon must not think for
                // an instant that it is not.
                let _ = announce_waiter(gate, target.device_index, &mut stillness);
                thread::wake();
                guard.step_in();
            }
        }
    }
}

/// Launches will not happen now: another device that they need has closed meanwhile. They will be
/// admitted again.
pub(super) fn withdrawn(launches: impl IntoIterator<Item = Admitted>) {
    launches.into_iter().for_each(Admitted::taken_back);
}

/// The driver has answered. Called inside the gate; must not wait.
pub(super) fn submitted(launches: impl IntoIterator<Item = Admitted>, answer: CUresult) {
    for launch in launches {
        if answer.is_success() {
            launch.made();
        } else {
            launch.taken_back();
        }
    }
}

impl Admitted {
    fn made(self) {
        device_gate::only(self.gate);
        let op = Op {
            count: 1,
            key: self.key,
            expected: self.expected,
            waits: apart::launched(&self.stream_key),
            first: self.first,
        };
        self.gate
            .note(self.stream_key, op, self.timing, self.named, self.first);
    }

    fn taken_back(self) {
        self.gate.refused(self.expected.ns, self.first);
        if let Some(timing) = &self.timing {
            self.gate.untimed(timing);
        }
    }
}

/// A context is about to be destroyed, reset or released; nothing marks in it any more, and it is
/// still whole.
pub(crate) fn context_going(context: CUcontext) {
    ledger::changed();
    for gate in device_gate::all() {
        gate.context_going(context);
    }
}

/// The calls that may end a context, and that have not come back, never will.
pub(crate) fn nothing_ends(context: CUcontext) {
    for gate in device_gate::all() {
        gate.nothing_ends(context);
    }
}

/// The announced destruction has happened, or not.
pub(crate) fn context_went(context: CUcontext, gone: bool) {
    for gate in device_gate::all() {
        gate.context_went(context, gone);
    }
    ledger::changed();
    if gone {
        awaited::context_gone(context);
        // Its functions and streams have gone too, and their handles may be others'.
        apart::forget();
    }
}

/// A stream is about to be destroyed: the driver finishes its work in its own time.
pub(crate) fn stream_going(here: Here, stream: CUstream) {
    ledger::changed();
    if let Some(gate) = device_gate::of(here.device.index()) {
        gate.stream_going(stream_key_of(here.handle, StreamRef::legacy(stream)));
    }
}

/// Nothing marks the stream any more; its handle may soon be another's. Under which names its work
/// is known from now on.
pub(crate) fn stream_gone(stream: CUstream) -> Vec<NewName> {
    ledger::changed();
    let gates = device_gate::all().iter();
    gates.flat_map(|gate| gate.stream_gone(stream)).collect()
}

/// The stream was not destroyed after all.
pub(crate) fn stream_stays(names: &[NewName]) {
    for gate in device_gate::all() {
        gate.stream_stays(names);
    }
}

/// A green context is about to be destroyed: the driver finishes the work of its default stream in
/// its own time.
pub(crate) fn green_going(green: &Green) {
    ledger::changed();
    let primary = contexts::of(green.primary);
    if let Some(gate) = primary.and_then(|here| device_gate::of(here.device.index())) {
        gate.stream_going(stream_key_of_green(green));
    }
}

/// A stream is about to capture.
pub(crate) fn capture_begins(here: Here, stream: StreamRef) {
    ledger::changed();
    if let Some(gate) = device_gate::of(here.device.index()) {
        gate.capture_begins(stream_key_of(here.handle, stream));
    }
}

/// Whether anything may ever bind in this process.
pub(crate) fn may_bind() -> bool {
    !device_gate::all().is_empty()
}

/// A thread waits at a closed gate: reports it, opens the gate if the turn has come, and returns
/// the futex to sleep on.
fn announce_waiter(
    gate: &DeviceGate,
    index: usize,
    stillness: &mut Stillness,
) -> Option<FutexWaiter> {
    let wanted = gate.waits();
    if let Some(epoch) = wanted {
        thread::tell(index, Report::Wanted, epoch);
    }
    if stillness.look(clock::now(), thread::stirred()) {
        tracing::warn!(index, "the gate thread does not stir; going on without it");
        gate.give_up();
    }
    thread::wake_again();
    thread::follow(index, gate)
}

/// The default stream of a green context, as the window knows it.
pub(super) fn stream_key_of_green(green: &Green) -> StreamKey {
    StreamKey::of_green(green.primary.0.addr(), green.converted.0.addr())
}

/// The key of a stream as the program names it.
pub(super) fn stream_key_of(context: CUcontext, stream: StreamRef) -> StreamKey {
    if streams::is_default(stream.handle())
        && let Some(green) = green::current()
        && green.primary == context
    {
        return stream_key_of_green(&green);
    }
    let (handle, thread) = if stream.is_own() {
        streams::own_is_used();
        (CU_STREAM_PER_THREAD, thread_number())
    } else if stream.is_legacy() {
        (CU_STREAM_LEGACY, 0)
    } else {
        (stream.handle(), 0)
    };
    StreamKey {
        context: context.0.addr(),
        stream: handle.0.addr(),
        thread,
    }
}
