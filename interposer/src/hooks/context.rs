//! Contexts: their memory is measured as overhead; when a context is destroyed, everything in it is
//! credited.

use core::ffi::c_int;

use gpushare_cuda_abi::cuda::*;

use crate::account::{self, Deadline, Opening, Waiting};
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::contexts;
use crate::driver::device::{self, DeviceKey};
use crate::driver::green;
use crate::driver::stream_ref::StreamRef;
use crate::driver::streams;
use crate::entry::args::{In, Out};
use crate::entry::hooks;
use crate::gate::{self, drain, seal};
use crate::guest::frames::Place;
use crate::guest::timed_lock::TimedLockGuard;
use crate::holdings::frees;
use crate::holdings::objects::{self, Map};
use crate::holdings::overhead;
use crate::holdings::reclaim;
use crate::holdings::table;
use crate::holdings::torch;
use crate::hooks::context_refusal::{
    Making, flags_are_wrong, green_flags_are_wrong, has_no_affinity, params_are_wrong, without_room,
};
use crate::hooks::context_turns::{turn, unsealed_turn};
use crate::hooks::early::Call;
use crate::hooks::{array, vmm};
use crate::residency::{kept_marks, memory};

hooks! {
    fn cuCtxCreate | cuCtxCreate_v2(context: Out<'_, CUcontext>, flags: u32, device: CUdevice) -> CUresult
        = |call| creating(context, device, flags_are_wrong(flags), call);
    fn cuCtxCreate_v3(context: Out<'_, CUcontext>, affinity: *mut CUexecAffinityParam, count: c_int, flags: u32,
        device: CUdevice) -> CUresult = |call| {
            let is_given = !affinity.is_null() || count != 0;
            creating(context, device, flags_are_wrong(flags) || is_given && has_no_affinity(device), call)
        };
    fn cuCtxCreate_v4(context: Out<'_, CUcontext>, params: In<'_, CUctxCreateParams>, flags: u32, device: CUdevice) -> CUresult
        = |call| creating(context, device, flags_are_wrong(flags) || params_are_wrong(params.read(), device), call);
    fn cuCtxDestroy | cuCtxDestroy_v2(context: CUcontext) -> CUresult = |call| ending(context, call, CUresult::is_success);
    fn cuCtxDetach(context: CUcontext) -> CUresult = |call| detach(context, call);
    fn cuCtxSetLimit(limit: CUlimit, value: usize) -> CUresult = |call| set_limit(call);
    fn cuDevicePrimaryCtxRetain(context: Out<'_, CUcontext>, device: CUdevice) -> CUresult = |call| retain(context, device, call);
    fn cuDevicePrimaryCtxRelease | cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult
        = |call| ending_primary(device, call, || !is_active(device));
    // A reset empties the primary context, even if it is still retained.
    fn cuDevicePrimaryCtxReset | cuDevicePrimaryCtxReset_v2(device: CUdevice) -> CUresult
        = |call| ending_primary(device, call, || true);
    fn cuGreenCtxCreate(context: Out<'_, CUgreenCtx>, resources: CUdevResourceDesc, device: CUdevice, flags: u32) -> CUresult
        = |call| create_green(context, device, resources.is_null() || green_flags_are_wrong(flags), call);
    fn cuGreenCtxDestroy(context: CUgreenCtx) -> CUresult = |call| destroy_green(context, call);
}

/// Primary contexts by device ordinal.
static PRIMARY: Map<CUcontext> = Map::new();

/// A call that may have been about to end the primary context never comes back to say so.
fn abandoned(ordinal: CUdevice) {
    let number = u64::from(ordinal.cast_unsigned());
    if let Some(context) = PRIMARY.with(number, |context| *context) {
        contexts::nothing_ends(context);
        frees::nothing_ends(context);
        drain::nothing_ends(context);
    }
}

/// The number a handle is known by in our maps.
fn key(handle: CUcontext) -> u64 {
    handle.0.addr() as u64
}

/// Makes a context by `call` and measures its memory. `is_wrong`: the driver should refuse it.
fn creating(
    context: Out<'_, CUcontext>,
    ordinal: CUdevice,
    is_wrong: bool,
    call: impl Fn() -> CUresult,
) -> CUresult {
    if context.is_null() {
        return call();
    }
    let undoes = || {
        let _ = context.read_back().map(calls::destroy_context);
    };
    let making = Making {
        makes: &call,
        undoes: &undoes,
        is_wrong,
    };
    creating_in(
        context,
        ordinal,
        Opening::nothing(),
        &Deadline::new(),
        making,
    )
}

/// The same where memory may have been set aside for it already.
fn creating_in(
    context: Out<'_, CUcontext>,
    ordinal: CUdevice,
    opening: Opening,
    patience: &Deadline,
    making: Making<'_>,
) -> CUresult {
    let device = device::of_ordinal(ordinal);
    let (answer, took, opening) = match begun(device, opening, patience, making) {
        Ok(begun) => begun,
        Err(refused) => return refused,
    };
    if let (Some(made), Some(device)) = (context.after(answer), device) {
        torch::read_settings();
        // Noticed now, so that the gate thread knows it.
        contexts::made(made);
        overhead::book_context(made, device, took);
        opening.is_made();
    }
    returned(device, opening);
    answer
}

/// No room for a context on a device.
struct NoRoom(DeviceKey);

/// Has the daemon make room for a context on `device`; the gate follows the leases from then on.
fn opened(
    device: DeviceKey,
    is_primary: bool,
    waiting: Waiting,
    patience: &Deadline,
) -> Result<Opening, NoRoom> {
    let Ok(opening) = account::open(device, is_primary, waiting, patience) else {
        none_left(device);
        return Err(NoRoom(device));
    };
    gate::follow_leases();
    gate::joins(device.index());
    Ok(opening)
}

/// Has the daemon make room for a context of the call's own. `Err`: what the call answers. No call
/// waits for room that the driver refuses.
fn room(device: DeviceKey, patience: &Deadline, making: Making<'_>) -> Result<Opening, CUresult> {
    if making.is_doubtful(device) {
        if let Ok(opening) = opened(device, false, Waiting::Not, patience) {
            return Ok(opening);
        }
        match making.tried() {
            CUresult::OUT_OF_MEMORY => (),
            wrong => return Err(wrong),
        }
    }
    let opening = opened(device, false, Waiting::Guaranteed, patience);
    opening.map_err(|NoRoom(device)| without_room(device))
}

/// Makes a context, for which room is made unless it was. Returns the driver's result and the
/// context's memory. `Err`: what the call answers if the device has no room for one.
fn begun(
    device: Option<DeviceKey>,
    opening: Opening,
    patience: &Deadline,
    call: Making<'_>,
) -> Result<(CUresult, i64, Opening), CUresult> {
    let opening = match device.filter(|_| opening.is_nothing()) {
        Some(device) => room(device, patience, call)?,
        None => opening,
    };
    let (answer, took) = making(device, patience, call.makes);
    Ok((answer, took, opening))
}

/// Makes a context by `call`. Returns the driver's result and the context's memory.
fn making(
    device: Option<DeviceKey>,
    patience: &Deadline,
    call: &dyn Fn() -> CUresult,
) -> (CUresult, i64) {
    overhead::measured(device, || match device {
        // Only the daemon knows the cost of a context.
        Some(device) => reclaim::insist(device, 0, Call::Other, patience, call),
        None => call(),
    })
}

/// The call is over for which memory was set aside.
fn returned(device: Option<DeviceKey>, opening: Opening) {
    drop(opening);
    if let Some(device) = device {
        none_left(device);
    }
}

/// Tells the daemon if no context is left on `device`.
fn none_left(device: DeviceKey) {
    account::no_context(device, || contexts::alive_on(device.index()).is_empty());
}

/// The last user's detaching destroys the context, which is then no longer the thread's current
/// one.
fn detach(context: CUcontext, call: impl FnOnce() -> CUresult) -> CUresult {
    let ended = |answer: CUresult| {
        let current = calls::current_context();
        answer.is_success() && current.is_ok_and(|current| current != context)
    };
    ending(context, call, ended)
}

/// Makes a call that may end a context, and credits its memory if `ended` returns true.
fn ending(
    context: CUcontext,
    call: impl FnOnce() -> CUresult,
    ended: impl FnOnce(CUresult) -> bool,
) -> CUresult {
    // Memory that ends with the context may be off the device while the process is sealed.
    seal::pass(|| ending_unsealed(context, None, call, ended))
}

/// The handle may be another context's as soon as the turn or the tracker has it back: what is
/// known by the handle ends before. What is known by the context's number may take its time.
fn ending_unsealed(
    context: CUcontext,
    turn: Option<TimedLockGuard<'static>>,
    call: impl FnOnce() -> CUresult,
    ended: impl FnOnce(CUresult) -> bool,
) -> CUresult {
    let known = contexts::known(context);
    let going = contexts::going(context);
    drain::context_going(context);
    frees::context_going(context);
    let tiles = known.map_or_else(Vec::new, |here| array::ending(here.context));
    let answer = call();
    let ended = ended(answer);
    drain::context_went(context, ended);
    tiles
        .into_iter()
        .for_each(|tiles| vmm::settle(tiles, ended));
    if !ended {
        frees::context_stays(context);
        going.stays();
        return answer;
    }
    frees::context_gone(context);
    overhead::context_gone(context);
    memory::context_ends(context);
    let gone = going.ended();
    drop(turn);
    if let Some(number) = gone.number() {
        // The driver leaves movable memory alone: it is given back here, and credited then.
        memory::context_gone(number);
        table::drain_context(number);
        objects::drain_context(number);
    }
    known.into_iter().for_each(|here| none_left(here.device));
    answer
}

/// Heap and print buffer are device memory; the change counts as the context's.
fn set_limit(call: impl FnOnce() -> CUresult) -> CUresult {
    let here = contexts::here();
    let (answer, took) = overhead::measured(here.map(|here| here.device), call);
    if let (true, Some(here)) = (answer.is_success(), here) {
        overhead::book(key(here.handle), here.handle, here.device, took);
    }
    answer
}

fn retain(context: Out<'_, CUcontext>, device: CUdevice, call: impl Fn() -> CUresult) -> CUresult {
    if context.is_null() {
        return call();
    }
    // Also where no hook saw it made: a tool may call the driver while it starts.
    let patience = Deadline::new();
    let expected = expected(device, &patience);
    let place = Place::new();
    let _turn = turn(device, &place, abandoned);
    // Another thread may have made it meanwhile, with the room that this one was refused.
    if is_active(device) {
        let answer = remembered(device, context, call());
        if let (true, Ok(opening)) = (answer.is_success(), &expected) {
            opening.is_made();
        }
        return answer;
    }
    let undoes = || {
        let _ = calls::release_primary(device);
    };
    let making = Making {
        makes: &call,
        undoes: &undoes,
        is_wrong: false,
    };
    let opening = match expected {
        Ok(opening) => opening,
        Err(NoRoom(device)) => return making.refused(device),
    };
    let answer = creating_in(context, device, opening, &patience, making);
    remembered(device, context, answer)
}

/// Remembers the primary context that a retain answered, for the release that names only the
/// device.
fn remembered(device: CUdevice, context: Out<'_, CUcontext>, answer: CUresult) -> CUresult {
    if let Some(made) = context.after(answer) {
        PRIMARY.insert(u64::from(device.cast_unsigned()), made);
        contexts::of(made);
    }
    answer
}

/// Has the daemon make room for a device's primary context where none is known: before the turn,
/// because that may take long, and once for all calls that need it at the same time. Where others
/// are known, it may be there already.
fn expected(ordinal: CUdevice, patience: &Deadline) -> Result<Opening, NoRoom> {
    let is_known = PRIMARY.with(u64::from(ordinal.cast_unsigned()), |_| ());
    match device::of_ordinal(ordinal).filter(|_| is_known.is_none()) {
        Some(device) if account::is_open(device) && is_active(ordinal) => Ok(Opening::nothing()),
        Some(device) => opened(device, true, Waiting::Guaranteed, patience),
        None => Ok(Opening::nothing()),
    }
}

fn is_active(device: CUdevice) -> bool {
    unnoticed(|| calls::primary_is_active(device)).unwrap_or(false)
}

/// Makes a call that may end a device's primary context.
fn ending_primary(
    device: CUdevice,
    call: impl FnOnce() -> CUresult,
    ended: impl FnOnce() -> bool,
) -> CUresult {
    let number = u64::from(device.cast_unsigned());
    let place = Place::new();
    let turn = unsealed_turn(device, &place, abandoned);
    seal::pass(|| {
        let Some(context) = PRIMARY.with(number, |context| *context) else {
            return call();
        };
        ending_unsealed(context, turn, call, |answer| {
            answer.is_success() && ended() && PRIMARY.take(number).is_some()
        })
    })
}

/// A green context retains the primary one, and is perhaps the first to. `is_wrong`: the driver
/// should refuse it.
fn create_green(
    context: Out<'_, CUgreenCtx>,
    ordinal: CUdevice,
    is_wrong: bool,
    call: impl Fn() -> CUresult,
) -> CUresult {
    if context.is_null() {
        return call();
    }
    let device: Option<DeviceKey> = device::of_ordinal(ordinal);
    let patience = Deadline::new();
    let expected = expected(ordinal, &patience);
    let place = Place::new();
    let _turn = turn(ordinal, &place, abandoned);
    let begins = !is_active(ordinal);
    let undoes = || {
        let _ = context.read_back().map(calls::destroy_green);
    };
    let green = Making {
        makes: &call,
        undoes: &undoes,
        is_wrong,
    };
    let opening = match expected {
        Ok(opening) => opening,
        // Another thread has made the primary one meanwhile.
        Err(_) if !begins => Opening::nothing(),
        Err(NoRoom(device)) => return green.refused(device),
    };
    let begun = match begins {
        true => begun(device, opening, &patience, green),
        // It takes next to nothing beside the primary one.
        false => {
            let (answer, took) = making(device, &patience, green.makes);
            Ok((answer, took, opening))
        }
    };
    let (answer, took, opening) = match begun {
        Ok(begun) => begun,
        Err(refused) => return refused,
    };
    if let (Some(made), Some(device)) = (context.after(answer), device) {
        let primary = note_green(made, ordinal, device, begins.then_some(took));
        let took = if begins { 0 } else { took };
        overhead::book(number(made), primary, device, took.max(1));
        // The primary one that it brings.
        opening.is_made();
    }
    returned(device, opening);
    answer
}

/// Records the primary context of a green context, and returns it; `took` is its memory if the call
/// created it.
fn note_green(
    made: CUgreenCtx,
    ordinal: CUdevice,
    device: DeviceKey,
    took: Option<i64>,
) -> CUcontext {
    let Some(green) = green::made(made, ordinal) else {
        return CUcontext(made.0);
    };
    PRIMARY.insert(u64::from(ordinal.cast_unsigned()), green.primary);
    contexts::of(green.primary);
    if let Some(took) = took {
        overhead::book_context(green.primary, device, took);
    }
    green.primary
}

/// It releases the primary context, perhaps as its last owner. Its streams stay, detached: they
/// accept no more work, and their submitted work is still executed.
fn destroy_green(context: CUgreenCtx, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(green) = green::of(context) else {
        return call();
    };
    // Before the primary context may go: from then on no event is put behind frees in it.
    let own = streams::of_green(&green);
    own.iter()
        .for_each(|(stream, _)| frees::stream_going(*stream));
    let destroyed = || {
        let (going, names) = green_going(&green);
        let memory = overhead::going(number(context));
        let answer = call();
        if answer.is_success() {
            own.iter()
                .for_each(|(stream, _)| frees::stream_gone(*stream));
            memory.into_iter().for_each(overhead::Going::gone);
            contexts::green_gone(&green);
        } else {
            memory.into_iter().for_each(overhead::Going::stays);
            going.stay();
            drain::stream_stays(&names);
        }
        answer
    };
    ending_primary(green.ordinal, destroyed, || !is_active(green.ordinal))
}

/// A green context is about to be destroyed. From then on its streams accept no work, but the
/// driver finishes the work they hold: a mark is recorded first. With the names of that work.
fn green_going(green: &green::Green) -> (streams::Going, Vec<drain::NewName>) {
    let own = streams::of_green(green);
    for (stream, here) in &own {
        drain::stream_going(*here, *stream);
        kept_marks::stream_going(*here, StreamRef::legacy(*stream));
    }
    drain::green_going(green);
    kept_marks::green_going(green);
    let own: Vec<CUstream> = own.into_iter().map(|(stream, _)| stream).collect();
    let going = streams::going(&own);
    let converted = CUstream(green.converted.0.cast());
    let streams = own.into_iter().chain([converted]);
    (going, streams.flat_map(drain::stream_gone).collect())
}

/// The number a green context is known by in our maps.
fn number(handle: CUgreenCtx) -> u64 {
    handle.0.addr() as u64
}
