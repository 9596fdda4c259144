//! The answer to a call that makes a context, where the daemon has no room for one.
//!
//! Such a call may be wrong as well, and the driver would say so before it looks for memory. No
//! call asks it without making the context. So what cuda.h documents of the arguments is looked at
//! here, and whether the thread's context has failed. A call that is wrong by that is put to the
//! driver. A context that comes of it all the same is taken back. Why: ADR 57.

use gpushare_cuda_abi::cuda::{
    CUctx_flags as Flags, CUctxCreateParams, CUdevice, CUdevice_attribute as Attribute,
    CUexecAffinityType, CUgreenCtxCreate_flags as GreenFlags, CUresult, CUstream,
};

use crate::account;
use crate::driver::calls;
use crate::driver::contexts;
use crate::driver::device::DeviceKey;
use crate::driver::stream_ref::StreamRef;

/// A call of the program that makes a context.
#[derive(Clone, Copy)]
pub(super) struct Making<'a> {
    /// Makes it.
    pub(super) makes: &'a dyn Fn() -> CUresult,
    /// Takes back what it has made.
    pub(super) undoes: &'a dyn Fn(),
    /// Whether the driver should refuse its arguments.
    pub(super) is_wrong: bool,
}

impl Making<'_> {
    /// Whether the driver should refuse it, for its arguments or because the context is lost.
    pub(super) fn is_doubtful(&self, device: DeviceKey) -> bool {
        self.is_wrong || is_lost(device)
    }

    /// Its answer where there is no room on `device`.
    #[cold]
    pub(super) fn refused(&self, device: DeviceKey) -> CUresult {
        let wrong = self.is_doubtful(device).then(|| self.tried());
        let wrong = wrong.filter(|answer| *answer != CUresult::OUT_OF_MEMORY);
        wrong.unwrap_or_else(|| without_room(device))
    }

    /// What the driver says of it without room. `OUT_OF_MEMORY`: nothing else is wrong.
    #[cold]
    pub(super) fn tried(&self) -> CUresult {
        match (self.makes)() {
            CUresult::SUCCESS => {
                (self.undoes)();
                CUresult::OUT_OF_MEMORY
            }
            wrong => wrong,
        }
    }
}

/// The answer to a call that is right, where there is no room on `device`: a refusal, which is
/// counted. The process does not know how much its context would have taken.
#[cold]
pub(super) fn without_room(device: DeviceKey) -> CUresult {
    account::count_refusal(device, 0);
    CUresult::OUT_OF_MEMORY
}

/// Whether the thread's current context is on `device` and has failed: new ones of the process do,
/// too.
fn is_lost(device: DeviceKey) -> bool {
    let here = contexts::here().filter(|here| here.device.index() == device.index());
    here.is_some() && StreamRef::legacy(CUstream::NULL).fault().is_some()
}

/// Whether the flags of a context are not all known, or name two ways to wait.
pub(super) fn flags_are_wrong(flags: u32) -> bool {
    let ways = flags & Flags::SCHED_MASK.0;
    flags & !Flags::FLAGS_MASK.0 != 0 || ways.count_ones() > 1
}

/// The first driver that makes green contexts without a default stream: 13.3 (cuda.h of 13.3,
/// `CU_GREEN_CTX_NONE`). Those before it require the flag for one.
const NEEDS_NO_STREAM: i32 = 13_030;

/// Whether those of a green context are not what they must be for the driver.
pub(super) fn green_flags_are_wrong(flags: u32) -> bool {
    green_flags_are_wrong_for(flags, || calls::driver_version().unwrap_or(i32::MAX))
}

fn green_flags_are_wrong_for(flags: u32, driver: impl FnOnce() -> i32) -> bool {
    match GreenFlags(flags) {
        GreenFlags::DEFAULT_STREAM => false,
        GreenFlags::NONE => driver() < NEEDS_NO_STREAM,
        _ => true,
    }
}

/// Whether contexts of a device have no execution affinity.
pub(super) fn has_no_affinity(device: CUdevice) -> bool {
    !matches!(calls::has_affinity(CUexecAffinityType::SM_COUNT, device), Ok(has) if has != 0)
}

/// Whether the parameters of `cuCtxCreate_v4` are for what the device does not have.
pub(super) fn params_are_wrong(params: Option<CUctxCreateParams>, device: CUdevice) -> bool {
    let shares = |how| matches!(calls::device_attribute(how, device), Ok(has) if has != 0);
    let is_wrong = |params: CUctxCreateParams| {
        let affinity = !params.execAffinityParams.is_null() || params.numExecAffinityParams != 0;
        let graphics = !params.cigParams.is_null();
        affinity && has_no_affinity(device)
            || graphics
                && !shares(Attribute::D3D12_CIG_SUPPORTED)
                && !shares(Attribute::VULKAN_CIG_SUPPORTED)
    };
    params.is_some_and(is_wrong)
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    #[test]
    fn known_flags_with_one_way_to_wait_are_right() {
        let right = [0, Flags::SCHED_SPIN.0, Flags::SCHED_YIELD.0, 0xf8, 0xfc];
        assert!(!right.into_iter().any(flags_are_wrong));
        for wrong in [0x100, 0x4000, 0x3, 0x6, 0x7, u32::MAX] {
            assert!(flags_are_wrong(wrong), "{wrong:#x}");
        }
    }

    #[test]
    fn a_green_contexts_stream_is_required_before_cuda_13_3() {
        for driver in [13_020, 13_030] {
            let are_wrong = |flags| green_flags_are_wrong_for(flags, || driver);
            assert!(!are_wrong(1));
            assert_eq!(are_wrong(0), driver < 13_030);
            assert!(are_wrong(2) && are_wrong(3));
        }
    }

    #[test]
    fn the_drivers_fault_is_the_answer_and_a_context_is_taken_back() {
        let undone = Cell::new(0);
        for (says, answer, undoes) in [
            (CUresult::INVALID_VALUE, CUresult::INVALID_VALUE, 0),
            (CUresult::OUT_OF_MEMORY, CUresult::OUT_OF_MEMORY, 0),
            (CUresult::SUCCESS, CUresult::OUT_OF_MEMORY, 1),
        ] {
            let making = Making {
                makes: &|| says,
                undoes: &|| undone.set(undone.get() + 1),
                is_wrong: true,
            };
            assert_eq!(making.tried(), answer);
            assert_eq!(undone.take(), undoes);
        }
    }
}
