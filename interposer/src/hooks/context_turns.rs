//! Turns at the primary context of each device.

use core::time::Duration;

use gpushare_cuda_abi::cuda::CUdevice;
use gpushare_protocol::page::MAX_DEVICES;

use crate::driver::device;
use crate::gate::seal;
use crate::guest::fork::ForkLocal;
use crate::guest::frames::Place;
use crate::guest::left;
use crate::guest::sys;
use crate::guest::timed_lock::{Holder, TimedLock, TimedLockGuard};

/// How long a call waits for its turn at a primary context: a call that was left by a jump does not
/// give its turn back. Three times as long for one that may come back: the driver makes the others
/// wait too.
const TURN: Duration = Duration::from_secs(10);
/// How often a call gives its turn back because a seal is set.
const ROUNDS: usize = 3;

/// A thread's turn at retaining or releasing the primary context of a device. Whether a release
/// ended it is known only afterwards, and a retain in between would make another one of the same
/// handle: so nothing comes between the driver's answer and what follows from it. `abandoned` is
/// called where the call that had the turn has left it. Why: ADR 183.
pub(super) fn turn(
    ordinal: CUdevice,
    place: &Place,
    abandoned: fn(CUdevice),
) -> Option<TimedLockGuard<'static>> {
    static TURNS: ForkLocal<[TimedLock; MAX_DEVICES]> = ForkLocal::new();
    let device = device::of_ordinal(ordinal)?;
    let turns = TURNS.get_or(|| [const { TimedLock::new() }; MAX_DEVICES]);
    let me = Holder {
        thread: sys::this_thread(),
        at: place.address(),
    };
    let is_left = |call| left::has_left(call, me);
    let turn = turns.get(device.index())?.seize(TURN, me, is_left);
    if turn.is_seized() {
        tracing::warn!("a call for the primary context did not return: not waited for");
        abandoned(ordinal);
    }
    Some(turn)
}

/// The same for a call that a seal holds. No seal waits for a call that waits for its turn: the one
/// that has it may wait for memory that only a move of this process's frees. And none waits at a
/// seal with its turn: calls that make a context need the turn, and pass no seal.
pub(super) fn unsealed_turn(
    ordinal: CUdevice,
    place: &Place,
    abandoned: fn(CUdevice),
) -> Option<TimedLockGuard<'static>> {
    for _ in 0..ROUNDS {
        let turn = turn(ordinal, place, abandoned);
        if !seal::is_set() {
            return turn;
        }
        drop(turn);
        if !seal::waits() {
            break;
        }
    }
    turn(ordinal, place, abandoned)
}
