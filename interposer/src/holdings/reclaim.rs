//! The attempt before a charge is refused: giving back this process's unused memory.
//!
//! When a charge does not fit, completed frees are credited, and unused memory of pools and graphs
//! is trimmed, as the driver itself does when the device is full. If the charge would fit once the
//! frees under way are complete, they are waited for, [`PATIENCE`] at most, and not by a thread
//! that captures. Where memory that was freed is away, its return is waited for before, as an
//! allocation that fits does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpushare_cuda_abi::cuda::CUresult;

use crate::account::{self, Charge, Deadline, Refused};
use crate::driver::captures;
use crate::driver::device::DeviceKey;
use crate::guest::background::Uncancelled;
use crate::guest::fork::ForkLocal;
use crate::guest::frames;
use crate::holdings::arena::{self, Arena};
use crate::holdings::early::{self, Call};
use crate::holdings::frees;
use crate::holdings::graph_memory;
use crate::holdings::objects::physical;
use crate::holdings::pools;
use crate::holdings::returning;

/// The longest a charge waits for frees under way: longer than work in a stream usually takes, too
/// short to be taken for a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Books `bytes`, which the program asks for `by` a call. Before that is refused, this process's
/// unused memory on the device is given back. `refusal` gives the result of a call that does not
/// fit (`hooks::refusal`); an invalid call gets its error before memory is given back or waited
/// for.
///
/// # Errors
/// The call's error if it is invalid, or does not fit then either.
#[inline]
pub(crate) fn reserve(
    device: DeviceKey,
    bytes: u64,
    by: Call,
    call: &Deadline,
    refusal: impl Fn() -> CUresult,
) -> Result<Charge, CUresult> {
    early::begins(device, bytes, by);
    account::charge(device, bytes, call)
        .or_else(|_| reserve_slowly(device, bytes, by, call, &refusal))
}

/// Asks the driver for `bytes` that are charged, and that the program asks for `by` a call. If it
/// has none although they were granted, the daemon is asked to look. The program sees the error
/// only if the daemon cannot help.
#[inline]
pub(crate) fn insist(
    device: DeviceKey,
    bytes: u64,
    by: Call,
    call: &Deadline,
    mut ask: impl FnMut() -> CUresult,
) -> CUresult {
    match ask() {
        CUresult::OUT_OF_MEMORY => insist_and_tell(device, bytes, by, call, &mut ask),
        answer => answer,
    }
}

#[cold]
fn insist_and_tell(
    device: DeviceKey,
    bytes: u64,
    by: Call,
    call: &Deadline,
    ask: &mut dyn FnMut() -> CUresult,
) -> CUresult {
    let answer = insist_slowly(device, bytes, call, ask);
    if answer == CUresult::OUT_OF_MEMORY {
        account::count_refusal(device, bytes);
        early::ran_out(device, bytes, by, call);
    }
    answer
}

/// Times the driver is asked again.
const OOM_RETRIES: usize = 8;

/// As [`insist`] where the driver has just had none. May wait for the daemon.
#[cold]
pub(crate) fn insist_slowly(
    device: DeviceKey,
    bytes: u64,
    call: &Deadline,
    ask: &mut dyn FnMut() -> CUresult,
) -> CUresult {
    let _uncancelled = Uncancelled::begin();
    let mut answer = CUresult::OUT_OF_MEMORY;
    let Some(mut retry) = account::OomRetry::new(device, bytes, call) else {
        return answer;
    };
    for _ in 0..OOM_RETRIES {
        if !retry.again() {
            break;
        }
        answer = ask();
        if answer != CUresult::OUT_OF_MEMORY {
            break;
        }
    }
    answer
}

/// As [`reserve`] where it did not fit at first.
#[cold]
fn reserve_slowly(
    device: DeviceKey,
    bytes: u64,
    by: Call,
    call: &Deadline,
    refusal: &dyn Fn() -> CUresult,
) -> Result<Charge, CUresult> {
    match refusal() {
        CUresult::OUT_OF_MEMORY => {}
        wrong => return Err(wrong),
    }
    match reserve_or(device, bytes, Some(by), call, &mut || None::<()>) {
        Ok(Found::Booked(charge)) => Ok(charge),
        Ok(Found::Otherwise(())) | Err(Refused) => Err(Refused.into()),
    }
}

/// How a request was met.
#[derive(Debug)]
pub(crate) enum Found<T> {
    /// With a charge.
    Booked(Charge),
    /// Without one.
    Otherwise(T),
}

/// Books `bytes` that did not fit at first, by giving unused memory back and by waiting. Each time
/// they do not fit, `otherwise` may find another way. The call, `by` which a program asks, may be
/// refused before the wait ([`early`]). `None`: it is never refused so.
///
/// # Errors
/// [`Refused`] if it fits in no way.
#[cold]
pub(crate) fn reserve_or<T>(
    device: DeviceKey,
    bytes: u64,
    by: Option<Call>,
    call: &Deadline,
    otherwise: &mut dyn FnMut() -> Option<T>,
) -> Result<Found<T>, Refused> {
    let early = || by.is_some_and(|by| early::refuses(device, bytes, by, call));
    let count = || match by {
        Some(by) => early::refused(device, bytes, by),
        None => account::count_refusal(device, bytes),
    };
    let found = reserve_unless((&early, &count), device, bytes, call, otherwise);
    if let (Err(Refused), Some(by)) = (&found, by) {
        early::ran_out(device, bytes, by, call);
    }
    found
}

/// As [`reserve_or`]; before the daemon is waited for, `early` may refuse. Any other refusal goes
/// to `count`.
fn reserve_unless<T>(
    (early, count): (&dyn Fn() -> bool, &dyn Fn()),
    device: DeviceKey,
    bytes: u64,
    call: &Deadline,
    otherwise: &mut dyn FnMut() -> Option<T>,
) -> Result<Found<T>, Refused> {
    let _uncancelled = Uncancelled::begin();
    let mut began = None;
    let mut pause = Duration::from_micros(20);
    loop {
        // Looked at before the trim: a free that ends behind the trim's back is worth another
        // round.
        frees::observe();
        let coming = coming(device);
        // Where the limit allows it without them, the daemon is asked: what is free may do.
        let needs_freed = returning::on(device) > 0
            && could_fit(device, bytes, coming)
            && !could_fit(device, bytes, Some(0));
        trim(device, needs_freed);
        if needs_freed && began.is_none() {
            call.begins_anew();
        }
        let refused = match account::charge(device, bytes, call) {
            Err(refused) => refused,
            Ok(booked) => return Ok(Found::Booked(booked)),
        };
        if let Some(found) = otherwise() {
            return Ok(Found::Otherwise(found));
        }
        // Not before: the trim and the other way may have waited for memory to return.
        let began = *began.get_or_insert_with(Instant::now);
        let waits = began.elapsed() <= PATIENCE && captures::may_wait();
        if !could_fit(device, bytes, coming) || !waits {
            // The other way may have found that there was more to give back.
            if let Ok(booked) = account::charge(device, bytes, call) {
                return Ok(Found::Booked(booked));
            }
            let waited = match account::can_wait() {
                // Not counted: the process asks again, and what counts is the answer to that.
                true if early() => return Err(refused),
                true => account::charge_waiting(device, bytes, call),
                false => Err(refused),
            };
            return waited.map(Found::Booked).inspect_err(|_| count());
        }
        frames::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}

/// Gives this process's other unused memory on a device back.
static SPARE: ForkLocal<fn(DeviceKey, bool)> = ForkLocal::new();

/// From now on `give_back` is called before a charge is refused: memory that layers above keep. It
/// is told whether what they have of the program's freed memory would make room.
pub(crate) fn spare_by(give_back: fn(DeviceKey, bool)) {
    SPARE.set(give_back);
}

/// Makes pools, graphs and the layers above give back unused memory, and credits what only files
/// have held that are closed.
fn trim(device: DeviceKey, makes_room: bool) {
    physical::credit_closed();
    if let Some(give_back) = SPARE.get() {
        give_back(device, makes_room);
    }
    let trim = |arena: &dyn Arena| {
        if arena.device() == device {
            arena.trim();
            arena::follow(arena);
        }
    };
    pools::each(&trim);
    graph_memory::each(&trim);
}

/// Bytes that frees under way will give back on a device. `None`: none are under way.
fn coming(device: DeviceKey) -> Option<u64> {
    // In this order: a free that its stream comes to meanwhile counts as well.
    let pending = frees::pending_on(device).then(|| frees::coming(device));
    let above = returning::on(device);
    match (pending, above) {
        (None, 0) => None,
        _ => Some(pending.unwrap_or(0).saturating_add(above)),
    }
}

/// Whether `bytes` would fit if all frees under way were complete, which give back what is
/// `coming`. Not if there are none.
fn could_fit(device: DeviceKey, bytes: u64, coming: Option<u64>) -> bool {
    let Some(coming) = coming else {
        return false;
    };
    let Some(status) = account::quota_status(device) else {
        return false;
    };
    let Some(limit) = status.limit else {
        return true;
    };
    let unused = AtomicU64::new(0);
    let add = |arena: &dyn Arena| {
        if arena.device() == device {
            let unused_here = arena::unused(arena).unwrap_or(0);
            unused.fetch_add(unused_here, Ordering::Relaxed);
        }
    };
    pools::each(&add);
    graph_memory::each(&add);
    let left = status
        .charged
        .saturating_sub(unused.into_inner())
        .saturating_sub(coming);
    left.saturating_add(bytes) <= limit
}
