//! A call that may take the memory of an executable graph: held for it on each device before, and
//! followed after it.

use gpushare_cuda_abi::cuda::*;

use crate::account::{self, Charge, Deadline};
use crate::driver::device::DeviceKey;
use crate::driver::stream_ref::StreamRef;
use crate::gate::seal;
use crate::guest::timed_lock::TimedLockGuard;
use crate::holdings::arena::{self, Arena as _, Promise};
use crate::holdings::frees::{self, Freed};
use crate::holdings::graph_memory::GraphMemory;
use crate::holdings::launches::{Given, Launch};
use crate::holdings::reclaim::{self, Found};
use crate::hooks::graph_size::Sizes;

/// The memory that an executable graph's last launch was given, by device as in the sizes: as far
/// as it is certain. Its next launch waits for it and may use the same memory.
pub(super) type Last = Vec<Option<Given>>;

/// What a call passes on its way to the driver, which may hold it: the gate, or the seal. It makes
/// the call that it is given, once or not at all.
pub(super) type Passage<'a> = &'a dyn Fn(&mut dyn FnMut() -> CUresult) -> CUresult;

/// A launch's hold on one device's graph memory: its memory is booked, or it has the turn to rely
/// on existing room.
struct Hold {
    memory: GraphMemory,
    charge: Charge,
    bytes: u64,
    room: Option<(TimedLockGuard<'static>, Promise<'static>)>,
}

impl Hold {
    /// `last` is what the exec's last launch was given here.
    fn of(
        device: DeviceKey,
        bytes: u64,
        last: Option<&Given>,
        call: &Deadline,
        refusal: &dyn Fn() -> CUresult,
    ) -> Result<Self, CUresult> {
        let memory = GraphMemory::of(device);
        let found = match account::charge(device, bytes, call) {
            Ok(charge) => Found::Booked(charge),
            Err(_) => match (refusal(), memory.room(bytes, last, seal::waits)) {
                (CUresult::OUT_OF_MEMORY, Some(room)) => Found::Otherwise(room),
                (CUresult::OUT_OF_MEMORY, None) => {
                    let mut room = || memory.room(bytes, last, seal::waits);
                    reclaim::reserve_or(device, bytes, None, call, &mut room)?
                }
                (wrong, _) => return Err(wrong),
            },
        };
        let (charge, room) = match found {
            Found::Booked(charge) => (charge, None),
            Found::Otherwise(room) => (account::charge_nothing(device)?, Some(room)),
        };
        Ok(Self::entered(memory, charge, bytes, room))
    }

    /// The same where nothing has to be waited for: there is room, or the process has credit for
    /// it. Room comes first: a booking of memory that the graphs have is missing elsewhere while
    /// the driver makes the call wait.
    fn at_once(device: DeviceKey, bytes: u64, last: Option<&Given>) -> Option<Self> {
        let memory = GraphMemory::of(device);
        let (charge, room) = match memory.room_at_once(bytes, last) {
            Some(room) => (account::charge_nothing(device).ok()?, Some(room)),
            None => (account::charge_of_credit(device, bytes)?, None),
        };
        Some(Self::entered(memory, charge, bytes, room))
    }

    fn entered(
        memory: GraphMemory,
        charge: Charge,
        bytes: u64,
        room: Option<(TimedLockGuard<'static>, Promise<'static>)>,
    ) -> Self {
        memory.held().enter(&charge);
        Self {
            memory,
            charge,
            bytes,
            room,
        }
    }

    /// The launch is not made: another device has no room for it.
    fn undo(self) {
        arena::after_refusal(&self.memory, self.charge);
    }
}

/// The holds of a call on all devices of its graph, and its launches.
struct Holds {
    holds: Vec<Hold>,
    launches: Vec<Launch<'static>>,
}

impl Holds {
    fn of(holds: Vec<Hold>) -> Self {
        let launches = Vec::with_capacity(holds.len());
        Self { holds, launches }
    }

    /// Makes the call, which has passed.
    fn call(&mut self, call: &dyn Fn() -> CUresult) -> CUresult {
        // Each attempt is a launch: another graph's between two of them must not be taken for the
        // last one.
        self.launches.clear();
        self.launches
            .extend(self.holds.iter().map(|hold| hold.memory.begin()));
        call()
    }

    /// Whether some of it relies on room.
    fn rely(&self) -> bool {
        self.holds.iter().any(|hold| hold.room.is_some())
    }

    fn undo(self) {
        drop(self.launches);
        self.holds.into_iter().for_each(Hold::undo);
    }
}

/// Makes a call that may take these sizes: all are held before, and each device's graph memory is
/// followed after it. Returns what it was given too.
///
/// Room that the graphs have is looked for, and credit that the process has is taken, once the call
/// has passed: what holds it may do so for seconds, and what is booked meanwhile is missing in the
/// tenant's other calls. What has to be waited for, or asked for, is booked before: the call needs
/// it.
pub(super) fn running(
    sizes: &Sizes,
    stream: StreamRef,
    last: &[Option<Given>],
    refusal: &dyn Fn() -> CUresult,
    pass: Passage<'_>,
    call: &dyn Fn() -> CUresult,
) -> (CUresult, Last) {
    let wanted = || {
        let sizes = sizes.iter().enumerate();
        sizes.map(|(at, (device, bytes))| (*device, *bytes, last.get(at).and_then(Option::as_ref)))
    };
    let mut held = None;
    let mut short = false;
    let mut answer = pass(&mut || {
        let at_once = wanted().map(|(device, bytes, last)| {
            Hold::at_once(device, bytes, last).ok_or(CUresult::OUT_OF_MEMORY)
        });
        match arena::all_or_none(at_once, Hold::undo) {
            Ok(holds) => held.insert(Holds::of(holds)).call(call),
            Err(answer) => {
                short = true;
                answer
            }
        }
    });
    if answer == CUresult::OUT_OF_MEMORY && held.as_ref().is_some_and(Holds::rely) {
        // The room was none.
        held.take().into_iter().for_each(Holds::undo);
        short = true;
    }
    let call_time = Deadline::new();
    let mut held = match held {
        Some(held) => held,
        // It has not passed.
        None if !short => return (answer, Last::new()),
        None => {
            let booked = wanted()
                .map(|(device, bytes, last)| Hold::of(device, bytes, last, &call_time, refusal));
            let mut held = match arena::all_or_none(booked, Hold::undo) {
                Ok(holds) => Holds::of(holds),
                Err(answer) => return (answer, Last::new()),
            };
            answer = pass(&mut || held.call(call));
            held
        }
    };
    if answer == CUresult::OUT_OF_MEMORY {
        answer = insisting(&mut held, &call_time, pass, call);
    }
    over(held, sizes, stream, answer)
}

/// The call is over: each device's graph memory is followed.
fn over(held: Holds, sizes: &Sizes, stream: StreamRef, answer: CUresult) -> (CUresult, Last) {
    account::worked();
    let mut given = Last::with_capacity(sizes.len());
    let Holds { holds, launches } = held;
    let mut launches = launches.into_iter();
    for (hold, (device, bytes)) in holds.into_iter().zip(sizes) {
        let launch = launches.next();
        let reserved = hold.memory.reserved();
        given.push(
            launch
                .zip(reserved)
                .and_then(|(launch, reserved)| launch.succeeded(reserved)),
        );
        if arena::after(&hold.memory, hold.charge).is_err() {
            tracing::warn!(
                device = device.index(),
                "a graph took more memory than the limit leaves; it runs already"
            );
        }
        if answer.is_success() {
            frees::freed_in(stream, stream.place(), *device, Freed::Graph(*bytes));
        }
    }
    (answer, given)
}

/// If the driver has no memory though all was booked, the daemon is asked to look, and the call is
/// repeated: on device after device, because the driver does not say which is full. No thread waits
/// for this one meanwhile: the gate was left with the driver's answer, and a launch that relies on
/// existing room takes the answer as it is.
fn insisting(
    held: &mut Holds,
    call_time: &Deadline,
    pass: Passage<'_>,
    call: &dyn Fn() -> CUresult,
) -> CUresult {
    let mut answer = CUresult::OUT_OF_MEMORY;
    for at in 0..held.holds.len() {
        if answer != CUresult::OUT_OF_MEMORY || held.rely() {
            break;
        }
        let hold = &held.holds[at];
        let (device, bytes) = (hold.memory.device(), hold.bytes);
        let mut attempt = || pass(&mut || held.call(call));
        answer = reclaim::insist_slowly(device, bytes, call_time, &mut attempt);
    }
    answer
}
