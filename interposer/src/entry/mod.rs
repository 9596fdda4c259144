//! How a program's call enters the library: the [`hooks`] macro makes the exported function and
//! typed arguments ([`door`], [`args`], [`lists`]); the boundary that every hook passes is here.

pub(crate) mod args;
mod door;
pub(crate) mod lists;
pub(crate) mod state;
pub(crate) mod waits;

use std::panic::{AssertUnwindSafe, catch_unwind};

use gpushare_cuda_abi::cuda::CUresult;
use gpushare_cuda_abi::nvml::nvmlReturn_t;

use crate::driver::real::Slot;
pub(crate) use crate::driver::real::c_name;
pub(crate) use crate::entry::door::{Hook, Ours, hooks, is_twin};
use crate::entry::state::{Bypass, Need};
use crate::gate;
use crate::guest::frames::Frame;

/// A C status code: the result of a hook that does not call the driver.
pub(crate) trait Status: Copy {
    /// How far the library must be for a body that answers with this type.
    const NEEDS: Need;
    /// The driver has no such function.
    const MISSING: Self;
    /// The library's own start-up did not come to an end in time.
    const NOT_READY: Self;
    /// The tenant's limits cannot be had: nothing is given rather than given without a limit.
    const REFUSED: Self;
    /// A defect in this library. The driver may or may not have been called.
    const BROKEN: Self;

    /// Whether the call succeeded.
    fn succeeded(self) -> bool;
}

impl Status for CUresult {
    const NEEDS: Need = Need::Account;
    const MISSING: Self = Self::NOT_FOUND;
    const NOT_READY: Self = Self::SYSTEM_NOT_READY;
    const REFUSED: Self = Self::INVALID_VALUE;
    const BROKEN: Self = Self::UNKNOWN;

    #[inline(always)]
    fn succeeded(self) -> bool {
        self.is_success()
    }
}

impl Status for nvmlReturn_t {
    const NEEDS: Need = Need::Limits;
    const MISSING: Self = Self::FUNCTION_NOT_FOUND;
    const NOT_READY: Self = Self::NOT_READY;
    const REFUSED: Self = Self::INVALID_ARGUMENT;
    const BROKEN: Self = Self::UNKNOWN;

    #[inline(always)]
    fn succeeded(self) -> bool {
        self.is_success()
    }
}

/// Runs one hooked call: `body` where the library is at work, `straight` (the bare driver call)
/// where it steps aside.
#[inline]
pub(crate) fn enter<F: Copy, R: Status>(
    slot: &Slot<F>,
    body: impl FnOnce(F) -> R,
    straight: impl FnOnce(F) -> R,
) -> R {
    enter_with(R::NEEDS, slot, body, straight)
}

/// As [`enter`] for `cuInit`, with which the driver, and so the account, comes to life.
#[inline]
pub(crate) fn enter_first<F: Copy, R: Status>(
    slot: &Slot<F>,
    body: impl FnOnce(F) -> R,
    straight: impl FnOnce(F) -> R,
) -> R {
    enter_with(Need::Limits, slot, body, straight)
}

/// This is the only place where a reason for stepping aside becomes an answer.
#[inline]
fn enter_with<F: Copy, R: Status>(
    need: Need,
    slot: &Slot<F>,
    body: impl FnOnce(F) -> R,
    straight: impl FnOnce(F) -> R,
) -> R {
    let Some(real) = slot.called() else {
        return R::MISSING;
    };
    let frame = Frame::new();
    match state::admit(need, &frame) {
        Ok(_inside) => walled(|| body(real)),
        Err(Bypass::Nested) => {
            gate::stepped_aside();
            straight(real)
        }
        Err(Bypass::Inactive | Bypass::NoDriverYet) => straight(real),
        Err(Bypass::Refused) => R::REFUSED,
        Err(Bypass::StartTimedOut) => R::NOT_READY,
    }
}

/// As [`enter`] for hooks that answer lookups: they neither start the library nor wait for it, and
/// hand out hooks in any state.
#[inline]
pub(crate) fn enter_always<F: Copy, R: Status>(
    slot: &Slot<F>,
    body: impl FnOnce(F) -> R,
    straight: impl FnOnce(F) -> R,
) -> R {
    match slot.called() {
        None => R::MISSING,
        Some(real) if state::is_secure() => straight(real),
        Some(real) => walled(|| body(real)),
    }
}

/// The wall that no panic passes.
#[inline]
fn walled<R: Status>(body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        // The payload's own destructor could panic; its few bytes are lost instead.
        core::mem::forget(panic);
        R::BROKEN
    })
}
