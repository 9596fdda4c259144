//! How a program's call enters the library: the [`hooks`] macro and the boundary every hook passes.
//!
//! # Safety
//! The exported functions have the C types of the functions they stand for; what they may be called with is the driver's contract
//! with the program, which they pass on.
#![allow(
    unsafe_code,
    reason = "exported C functions, and calls of the driver through pointers"
)]

pub(crate) mod state;

use core::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gpushare_cuda_abi::cuda::CUresult;
use gpushare_cuda_abi::nvml::nvmlReturn_t;

pub(crate) use crate::driver::real::c_name;
use crate::driver::real::{Row, Slot};
use crate::entry::state::{Aside, Need};
use crate::gate;
use crate::guest::frames::Frame;

/// A hooked function: the row from which lookups are answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hook {
    /// The function it stands for.
    pub(crate) row: Row,
    /// Our function of that name.
    pub(crate) ours: *const c_void,
    /// It passes the gate.
    #[cfg(test)]
    pub(crate) gated: bool,
}

// SAFETY: `ours` is the address of a function, the same for every thread.
unsafe impl Sync for Hook {}
// SAFETY: as above.
unsafe impl Send for Hook {}

/// A C status code: what a hook answers when the driver is not asked.
pub(crate) trait Status: Copy {
    /// How far the library must be for a body that answers with this type.
    const NEEDS: Need;
    /// The driver has no such function.
    const MISSING: Self;
    /// The library's own start-up did not come to an end in time.
    const NOT_READY: Self;
    /// The container's limits cannot be had: nothing is given rather than given without a limit.
    const REFUSED: Self;
    /// A defect in this library. The driver may or may not have been called.
    const BROKEN: Self;
}

impl Status for CUresult {
    const NEEDS: Need = Need::Account;
    const MISSING: Self = Self::NOT_FOUND;
    const NOT_READY: Self = Self::SYSTEM_NOT_READY;
    const REFUSED: Self = Self::INVALID_VALUE;
    const BROKEN: Self = Self::UNKNOWN;
}

impl Status for nvmlReturn_t {
    const NEEDS: Need = Need::Limits;
    const MISSING: Self = Self::FUNCTION_NOT_FOUND;
    const NOT_READY: Self = Self::NOT_READY;
    const REFUSED: Self = Self::INVALID_ARGUMENT;
    const BROKEN: Self = Self::UNKNOWN;
}

/// Runs one hooked call: `body` where the library is at work, `straight` (the bare driver call) where it steps aside.
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
    let Some(real) = slot.get() else {
        return R::MISSING;
    };
    let frame = Frame::new();
    match state::admit(need, &frame) {
        Ok(_inside) => walled(|| body(real)),
        Err(Aside::Nested) => {
            gate::stepped_aside();
            straight(real)
        }
        Err(Aside::Inactive | Aside::NoDriverYet) => straight(real),
        Err(Aside::Refused) => R::REFUSED,
        Err(Aside::StartTimedOut) => R::NOT_READY,
    }
}

/// As [`enter`] for hooks that answer lookups: they neither start the library nor wait for it, and hand out hooks in any state.
#[inline]
pub(crate) fn enter_always<F: Copy, R: Status>(
    slot: &Slot<F>,
    body: impl FnOnce(F) -> R,
    straight: impl FnOnce(F) -> R,
) -> R {
    match slot.get() {
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

/// Declares hooks: `fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult = alloc;`
///
/// Each item makes the exported C function, a type of the same name (`unsafe extern "C" fn(..)`, what the driver's function is),
/// and a row in the family's `HOOKS`. `alloc` is a function of the family's file that takes the driver's function and the
/// arguments: `fn alloc(real: cuMemAlloc_v2, dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult`. Symbols that differ in nothing
/// but their name (per-thread twins) share an item: `fn cuMemFreeAsync | cuMemFreeAsync_ptsz(..) -> CUresult = free_async;`
/// `#[always]` in front makes a hook of lookups ([`enter_always`]), `#[first]` is for `cuInit` ([`enter_first`]). `#[gate]` is for
/// launches: while everything is free the driver is called from the exported function itself, where nothing of ours can panic, and
/// arguments stay where they are; `$body` is the slow way. `#[kernel]` and `#[kernel_ptsz]` are that for the two most frequent ones, of
/// which the exported function also tries the short way beside other tenants ([`gate::beside`]). `#[wait]` is for the program's waits, in the same way: the driver is called
/// from the exported function where nothing is to be learnt from the wait. `#[seen]` is for what the gate only follows: while everything is
/// free the exported function jumps to the driver's. `#[graph]` is that where no graph allocates, else as
/// without. What a body gets as `real` calls the driver's function [away](crate::guest::frames::Away) from our own code.
macro_rules! hooks {
    ($($(#[$mode:ident])? fn $first:ident $(| $twin:ident)* ($($args:tt)*) -> $ret:ty = $body:path;)*) => {
        $($crate::entry::hooks!(@each [$($mode)?] ($($args)*) [$ret] [$body] $first $($twin)*);)*
        /// The rows of this family.
        pub(crate) const HOOKS: &[$crate::entry::Hook] = &[$(
            $crate::entry::hooks!(@row [$($mode)?] $first),
            $($crate::entry::hooks!(@row [] $twin),)*
        )*];
    };
    (@gates []) => { false };
    (@gates [gate]) => { true };
    (@gates [graph]) => { true };
    (@gates [kernel]) => { true };
    (@gates [kernel_ptsz]) => { true };
    (@gates $other:tt) => { false };
    (@row $mode:tt $name:ident) => {
        $crate::entry::Hook {
            #[cfg(test)]
            gated: $crate::entry::hooks!(@gates $mode),
            row: $crate::driver::real::Row::of($crate::entry::c_name(concat!(stringify!($name), "\0"))),
            ours: $name as *const core::ffi::c_void,
        }
    };
    (@each $mode:tt $args:tt $ret:tt $body:tt $($name:ident)*) => {
        $($crate::entry::hooks!(@export $mode $args $ret $body $name);)*
    };
    (@enter [] $($call:tt)*) => { $crate::entry::enter($($call)*) };
    (@enter [first] $($call:tt)*) => { $crate::entry::enter_first($($call)*) };
    (@enter [always] $($call:tt)*) => { $crate::entry::enter_always($($call)*) };
    (@export [gate] $args:tt $ret:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@gated true, [] $args $ret $body $name);
    };
    (@export [kernel] $args:tt $ret:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@kernel legacy, $args $args $ret $body $name);
    };
    (@export [kernel_ptsz] $args:tt $ret:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@kernel per_thread, $args $args $ret $body $name);
    };
    (@kernel $of:ident, ($function:ident: $t0:ty, $gx:ident: $t1:ty, $gy:ident: $t2:ty, $gz:ident: $t3:ty, $bx:ident: $t4:ty,
        $by:ident: $t5:ty, $bz:ident: $t6:ty, $shared:ident: $t7:ty, $stream:ident: $t8:ty, $($rest:tt)*)
        $args:tt $ret:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@gated true, [
            $crate::driver::ordered::Ordered::$of($stream),
            $crate::gate::Key::kernel($function, [$gx, $gy, $gz, $bx, $by, $bz, $shared])
        ] $args $ret $body $name);
    };
    (@export [graph] $args:tt $ret:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@gated !may_allocate(), [] $args $ret $body $name);
    };
    (@export [seen] ($($arg:ident: $ty:ty),* $(,)?) [$ret:ty] [$body:path] $name:ident) => {
        $crate::entry::hooks!(@type ($($ty),*) [$ret] $name);

        #[doc = concat!("`", stringify!($name), "` as programs see it.")]
        ///
        /// # Safety
        /// As the C function.
        #[allow(non_snake_case, reason = "the C function's name")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $crate::entry::hooks!(@slot $name);
            $crate::entry::hooks!(@slowly ($($arg: $ty),*) [$ret] [$body]);

            if let Some(real) = SLOT.known()
                && $crate::gate::is_free()
            {
                // SAFETY: the program's arguments, passed on as they came.
                return unsafe { real($($arg),*) };
            }
            slowly($($arg),*)
        }
    };
    // Of the exported function's type, so that its call is a jump.
    (@slowly ($($arg:ident: $ty:ty),*) [$ret:ty] [$body:path]) => {
        #[cold]
        #[inline(never)]
        extern "C" fn slowly($($arg: $ty),*) -> $ret {
            $crate::entry::hooks!(@out ($($arg: $ty),*) [$ret]);
            $crate::entry::enter(
                &SLOT,
                move |_| $body(out, $($arg),*),
                // SAFETY: the program's arguments, passed on as they came.
                move |real| unsafe { real($($arg),*) },
            )
        }
    };
    (@export [wait] ($($arg:ident: $ty:ty),* $(,)?) [$ret:ty] [$body:path] $name:ident) => {
        $crate::entry::hooks!(@type ($($ty),*) [$ret] $name);

        #[doc = concat!("`", stringify!($name), "` as programs see it.")]
        ///
        /// # Safety
        /// As the C function.
        #[allow(non_snake_case, reason = "the C function's name")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $crate::entry::hooks!(@slot $name);

            // Of the same type, so that the call is a jump.
            #[cold]
            #[inline(never)]
            extern "C" fn slowly($($arg: $ty),*) -> $ret {
                $crate::entry::hooks!(@out ($($arg: $ty),*) [$ret]);
                $crate::entry::enter(
                    &SLOT,
                    move |_| $body(out, $($arg),*),
                    // SAFETY: the program's arguments, passed on as they came.
                    move |real| unsafe { real($($arg),*) },
                )
            }

            if let Some(real) = SLOT.known()
                && $crate::hooks::sync::is_plain()
            {
                // SAFETY: the program's arguments, passed on as they came.
                let answer = unsafe { real($($arg),*) };
                $crate::hooks::sync::over();
                return answer;
            }
            slowly($($arg),*)
        }
    };
    (@gated $fast:expr, [$($of:expr, $key:expr)?] ($($arg:ident: $ty:ty),* $(,)?) [$ret:ty] [$body:path] $name:ident) => {
        $crate::entry::hooks!(@type ($($ty),*) [$ret] $name);

        #[doc = concat!("`", stringify!($name), "` as programs see it.")]
        ///
        /// # Safety
        /// As the C function.
        #[allow(non_snake_case, reason = "the C function's name")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $crate::entry::hooks!(@slot $name);

            // Of the same type, so that the call is a jump.
            #[cold]
            #[inline(never)]
            extern "C" fn slowly($($arg: $ty),*) -> $ret {
                $crate::entry::hooks!(@out ($($arg: $ty),*) [$ret]);
                $crate::entry::enter(
                    &SLOT,
                    move |_| $body(out, $($arg),*),
                    // SAFETY: the program's arguments, passed on as they came.
                    move |real| unsafe { real($($arg),*) },
                )
            }

            // By itself, and of the same type: what it keeps costs a launch that is alone nothing.
            #[inline(never)]
            extern "C" fn beside($($arg: $ty),*) -> $ret {
                let frame = $crate::guest::frames::Frame::new();
                if let Some(real) = SLOT.known()
                    && let Some(going) = $crate::entry::hooks!(@beside &frame, $($of, $key)?)
                {
                    // SAFETY: the program's arguments, passed on as they came.
                    let answer = unsafe { real($($arg),*) };
                    going.ended(answer);
                    return answer;
                }
                slowly($($arg),*)
            }

            let frame = $crate::guest::frames::Frame::new();
            if let Some(real) = SLOT.known()
                && $fast
                && let Some(inside) = $crate::gate::fast(&frame)
            {
                // SAFETY: the program's arguments, passed on as they came.
                let answer = unsafe { real($($arg),*) };
                inside.leave();
                return answer;
            }
            beside($($arg),*)
        }
    };
    (@beside $frame:expr,) => {{
        let _ = $frame;
        None::<$crate::gate::Going>
    }};
    (@beside $frame:expr, $of:expr, $key:expr) => { $crate::gate::beside($frame, $of, $key) };
    (@type ($($ty:ty),*) [$ret:ty] $name:ident) => {
        #[doc = concat!("The driver's `", stringify!($name), "`.")]
        #[allow(non_camel_case_types, reason = "the C function's name")]
        pub(crate) type $name = unsafe extern "C" fn($($ty),*) -> $ret;
    };
    (@slot $name:ident) => {
        static SLOT: $crate::driver::real::Slot<$name> =
            // SAFETY: the type is the C function's, spelled next to its name.
            unsafe { $crate::driver::real::Slot::new($crate::entry::c_name(concat!(stringify!($name), "\0"))) };
    };
    // What a body calls as the driver's function: that, outside of our own code.
    (@out ($($arg:ident: $ty:ty),*) [$ret:ty]) => {
        unsafe extern "C" fn out($($arg: $ty),*) -> $ret {
            let _away = $crate::guest::frames::Away::begin();
            match SLOT.known() {
                // SAFETY: the caller keeps the C function's contract.
                Some(real) => unsafe { real($($arg),*) },
                None => <$ret as $crate::entry::Status>::MISSING,
            }
        }
    };
    (@export $mode:tt ($($arg:ident: $ty:ty),* $(,)?) [$ret:ty] [$body:path] $name:ident) => {
        $crate::entry::hooks!(@type ($($ty),*) [$ret] $name);

        #[doc = concat!("`", stringify!($name), "` as programs see it.")]
        ///
        /// # Safety
        /// As the C function.
        #[allow(non_snake_case, reason = "the C function's name")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $crate::entry::hooks!(@slot $name);
            $crate::entry::hooks!(@out ($($arg: $ty),*) [$ret]);
            $crate::entry::hooks!(@enter $mode
                &SLOT,
                move |_| $body(out, $($arg),*),
                // SAFETY: the program's arguments, passed on as they came.
                move |real| unsafe { real($($arg),*) },
            )
        }
    };
}
pub(crate) use hooks;
