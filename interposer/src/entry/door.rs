//! The door: the expansion of a row by the [`hooks`] macro, and nothing else.
//!
//! # Safety
//! The exported functions have the C types of the functions they stand for, so a program's call
//! brings with it the C function's contract, kept by the program. Two kinds of `unsafe` follow.
//! - The program's call is passed on: the driver's function gets the same arguments, with the same
//!   bits, in the same call. Its contract is the one that the program keeps.
//! - A body asks the driver itself (`real(..)`), with arguments of its choice. These are
//!   [`Passed`](super::args::Passed): numbers, handles, and pointers that keep the promise of
//!   [`args`](super::args), whoever made them.
//!
//! A row's body is safe code: it gets the door's closures, and may write no `unsafe` itself.
#![allow(
    unsafe_code,
    reason = "exported C functions, and calls of the driver's through pointers"
)]

use core::ffi::c_void;

use crate::driver::real::Row;

/// A hooked function, as its family declares it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hook {
    /// The function it stands for.
    pub(crate) row: Row,
    /// Our function of that name.
    pub(crate) ours: Ours,
    /// It passes the gate.
    #[cfg(test)]
    pub(crate) gated: bool,
}

/// The address of a function of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Ours(pub(crate) *const c_void);

// SAFETY: the address of a function, which lies where it is as long as the library does, and which
// any thread may call. Nothing is read or written through it.
unsafe impl Sync for Ours {}
// SAFETY: an address is the same in every thread.
unsafe impl Send for Ours {}

/// Whether a function of this name takes stream 0 for the calling thread's own: a twin does.
pub(crate) const fn is_twin(name: &str) -> bool {
    let name = name.as_bytes();
    matches!(
        name,
        [.., b'_', b'p', b't', b's', b'z'] | [.., b'_', b'p', b't', b'd', b's']
    )
}

/// Declares hooks, a row each:
///
/// `fn cuMemAlloc_v2(dptr: Out<'_, CUdeviceptr>, bytesize: usize) -> CUresult
///     = |call| alloc(dptr, bytesize, call);`
///
/// A row makes the exported C function, a type of the same name (the driver's function type) and an
/// entry in the family's `HOOKS`. Pointers that the body dereferences are declared with the types
/// of [`args`](crate::entry::args) and [`lists`](crate::entry::lists), which are the C pointers
/// themselves. The body is safe. It has the arguments, and
/// - `|call|`: `call()` is the driver's function with the program's arguments as they came;
/// - `|real(..)|`: `real(dptr, bytesize)` is the same with arguments of the body's choice, where it
///   must ask with others too;
/// - `, of` behind either: `of(stream)` is a stream as this function understands it, the twin's
///   stream 0 being the thread's own.
///
/// Both call the driver [away](crate::guest::frames::Away) from our own code.
///
/// Functions that differ in nothing but their name and in what stream 0 is share a row:
/// `fn cuMemFreeAsync | cuMemFreeAsync_ptsz(..) -> CUresult = |call, of| ..;`.
///
/// An attribute of a row selects how the exported function begins:
/// - nothing: the body runs where the library is at work;
/// - `#[always]`: a hook of lookups ([`enter_always`](crate::entry::enter_always));
/// - `#[first]`: `cuInit` ([`enter_first`](crate::entry::enter_first));
/// - `#[gate]`: a launch. While everything is free the driver is called from the exported function
///   itself, where nothing of ours can panic, and the arguments stay where they are;
/// - `#[kernel]`: that for the most frequent one, which also tries the short path beside other
///   tenants ([`gate::beside`](crate::gate::beside));
/// - `#[graph]`: that while no graph allocates, else as without;
/// - `#[wait]`: a wait of the program's. The driver is called from the exported function where
///   nothing is to be learnt from it;
/// - `#[seen]`: only tracked by the gate. While everything is free the exported function jumps to
///   the driver's; with `#[seen(condition)]`, where the condition holds besides;
/// - `#[small(condition)]`: jumps where the condition holds besides; otherwise as a launch. Where
///   the process's memory may move, the call is seen by a seal instead, and where that may be on
///   another device than the current context's, its body runs;
/// - `#[held]`: held by a seal and by nothing else. Jumps where the process's memory cannot move.
macro_rules! hooks {
    ($(
        $(#[$mode:ident $(($($when:tt)*))?])?
        fn $first:ident $(| $twin:ident)* ($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty
            = |$call:ident $(($typed:tt))? $(, $of:ident)?| $body:expr;
    )*) => {
        $($crate::entry::hooks!(@each [$($mode $(($($when)*))?)?] [$($arg: $ty),*] [$ret]
            [$call $(($typed))? $(, $of)?] [$body] $first $($twin)*);)*
        /// The rows of this family.
        pub(crate) const HOOKS: &[&[$crate::entry::Hook]] =
            &[$($crate::entry::hooks!(@row [$($mode)?] $first $($twin)*)),*];
    };
    (@gates [gate]) => { true };
    (@gates [graph]) => { true };
    (@gates [kernel]) => { true };
    (@gates $other:tt) => { false };
    (@row $mode:tt $($name:ident)*) => {
        &[$($crate::entry::Hook {
            #[cfg(test)]
            gated: $crate::entry::hooks!(@gates $mode),
            row: $crate::driver::real::Row::of($crate::entry::c_name(concat!(stringify!($name), "\0"))),
            ours: $crate::entry::Ours($name as *const core::ffi::c_void),
        }),*]
    };
    (@each $mode:tt $args:tt $ret:tt $how:tt $body:tt $($name:ident)*) => {$(
        #[doc = concat!("The driver's `", stringify!($name), "`.")]
        #[allow(non_camel_case_types, reason = "the C function's name")]
        pub(crate) type $name = $crate::entry::hooks!(@type $args $ret);

        $crate::entry::hooks!(@export $mode $args $ret $how $body $name);
    )*};
    (@type [$($arg:ident: $ty:ty),*] [$ret:ty]) => { unsafe extern "C" fn($($ty),*) -> $ret };

    // The exported function around its first step.
    (@export [] [$($arg:ident: $ty:ty),*] [$ret:ty] $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@entered enter [$($arg: $ty),*] [$ret] $how $body $name);
    };
    (@export [first] [$($arg:ident: $ty:ty),*] [$ret:ty] $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@entered enter_first [$($arg: $ty),*] [$ret] $how $body $name);
    };
    (@export [always] [$($arg:ident: $ty:ty),*] [$ret:ty] $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@entered enter_always [$($arg: $ty),*] [$ret] $how $body $name);
    };
    (@entered $enter:ident [$($arg:ident: $ty:ty),*] [$ret:ty] $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@function [$($arg: $ty),*] [$ret] $name {
            $crate::entry::hooks!(@slot $name);
            $crate::entry::hooks!(@body [$($arg: $ty),*] [$ret] $how $body $name);
            $crate::entry::hooks!(@inside $enter [$($arg: $ty),*] $how)
        });
    };
    (@export [gate] [$($arg:ident: $ty:ty),*] [$ret:ty] $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@gated true, [$($arg: $ty),*] [$ret] $how $body $name);
    };
    (@export [graph] [$($arg:ident: $ty:ty),*] [$ret:ty] $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@gated !may_allocate(), [$($arg: $ty),*] [$ret] $how $body $name);
    };
    (@gated $fast:expr, [$($arg:ident: $ty:ty),*] [$ret:ty] $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@function [$($arg: $ty),*] [$ret] $name {
            $crate::entry::hooks!(@slot $name);
            $crate::entry::hooks!(@slowly [$($arg: $ty),*] [$ret] $how $body $name);
            $crate::entry::hooks!(@fast $fast, [$($arg),*])
        });
    };
    (@export [kernel] [$($arg:ident: $ty:ty),*] [$ret:ty] $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@function [$($arg: $ty),*] [$ret] $name {
            $crate::entry::hooks!(@slot $name);

            // Two functions, so that the registers of each cost nothing in the other. Which of
            // them is tried first changes no answer: each leads to the other where it is the wrong
            // one.
            static FIRST: $crate::driver::real::Jump<$name> =
                // SAFETY: a function of this type.
                unsafe { $crate::driver::real::Jump::new(beside as *const core::ffi::c_void) };

            // SAFETY: as the exported function.
            #[inline(never)]
            unsafe extern "C" fn alone($($arg: $ty),*) -> $ret {
                let frame = $crate::guest::frames::Frame::new();
                if let Some(inside) = $crate::gate::fast(&frame) {
                    // SAFETY: `FIRST` leads here only since the address is known, and it stays so.
                    // The program's call, passed on as it came.
                    let answer = unsafe { (SLOT.known().unwrap_unchecked())($($arg),*) };
                    inside.leave();
                    return answer;
                }
                FIRST.set(beside);
                // SAFETY: the same call.
                unsafe { beside($($arg),*) }
            }

            // SAFETY: as the exported function.
            #[inline(never)]
            unsafe extern "C" fn beside($($arg: $ty),*) -> $ret {
                $crate::entry::hooks!(@slowly [$($arg: $ty),*] [$ret] $how $body $name);
                $crate::entry::hooks!(@beside [$($arg),*] $name);
                if SLOT.known().is_some() && $crate::gate::is_free() {
                    FIRST.set(alone);
                }
                // SAFETY: the same call.
                unsafe { slowly($($arg),*) }
            }

            // SAFETY: the same call.
            unsafe { (FIRST.get())($($arg),*) }
        });
    };
    (@export [seen] $args:tt $ret:tt $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@export [seen(true)] $args $ret $how $body $name);
    };
    (@export [seen($($when:tt)*)] [$($arg:ident: $ty:ty),*] [$ret:ty] $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@function [$($arg: $ty),*] [$ret] $name {
            $crate::entry::hooks!(@slot $name);
            $crate::entry::hooks!(@slowly [$($arg: $ty),*] [$ret] $how $body $name);
            if let Some(real) = SLOT.known()
                && $crate::gate::is_free()
                && $($when)*
            {
                // SAFETY: the program's call, passed on as it came.
                return unsafe { real($($arg),*) };
            }
            // SAFETY: the same call.
            unsafe { slowly($($arg),*) }
        });
    };
    (@export [small($($when:tt)*)] [$($arg:ident: $ty:ty),*] [$ret:ty] $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@function [$($arg: $ty),*] [$ret] $name {
            $crate::entry::hooks!(@slot $name);
            $crate::entry::hooks!(@slowly [$($arg: $ty),*] [$ret] $how $body $name);

            // SAFETY: as the exported function.
            #[inline(never)]
            unsafe extern "C" fn largely($($arg: $ty),*) -> $ret {
                $crate::entry::hooks!(@fast !$crate::gate::seal::is_spread(), [$($arg),*])
            }

            // SAFETY: as the exported function.
            #[inline(never)]
            unsafe extern "C" fn seen($($arg: $ty),*) -> $ret {
                let frame = $crate::guest::frames::Frame::new();
                if let Some(real) = SLOT.known()
                    && !$crate::gate::seal::is_spread()
                    && let Some(touching) = $crate::gate::seal::fast(&frame)
                {
                    // SAFETY: the program's call, passed on as it came.
                    let answer = unsafe { real($($arg),*) };
                    touching.leave();
                    return answer;
                }
                // SAFETY: the same call.
                unsafe { largely($($arg),*) }
            }

            if let Some(real) = SLOT.known()
                && $crate::gate::is_free()
                && $($when)*
            {
                if $crate::gate::seal::may_move() {
                    // SAFETY: the same call.
                    return unsafe { seen($($arg),*) };
                }
                // SAFETY: the program's call, passed on as it came.
                return unsafe { real($($arg),*) };
            }
            // SAFETY: the same call.
            unsafe { largely($($arg),*) }
        });
    };
    (@export [held] [$($arg:ident: $ty:ty),*] [$ret:ty] $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@function [$($arg: $ty),*] [$ret] $name {
            $crate::entry::hooks!(@slot $name);
            $crate::entry::hooks!(@slowly [$($arg: $ty),*] [$ret] $how $body $name);
            if let Some(real) = SLOT.known()
                && !$crate::gate::seal::may_move()
            {
                // SAFETY: the program's call, passed on as it came.
                return unsafe { real($($arg),*) };
            }
            // SAFETY: the same call.
            unsafe { slowly($($arg),*) }
        });
    };
    (@export [wait] [$($arg:ident: $ty:ty),*] [$ret:ty] $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@function [$($arg: $ty),*] [$ret] $name {
            $crate::entry::hooks!(@slot $name);
            $crate::entry::hooks!(@slowly [$($arg: $ty),*] [$ret] $how $body $name);
            if let Some(real) = SLOT.known()
                && $crate::entry::waits::is_plain()
            {
                // SAFETY: the program's call, passed on as it came.
                let answer = unsafe { real($($arg),*) };
                $crate::entry::waits::over();
                return answer;
            }
            // SAFETY: the same call.
            unsafe { slowly($($arg),*) }
        });
    };

    (@function [$($arg:ident: $ty:ty),*] [$ret:ty] $name:ident { $($inside:tt)* }) => {
        #[doc = concat!("`", stringify!($name), "` as programs see it.")]
        ///
        /// # Safety
        /// As the C function.
        #[allow(non_snake_case, reason = "the C function's name")]
        #[allow(unsafe_code, reason = "each expansion is justified at its declaration")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $($inside)*
        }
    };
    // Through the gate while everything is free.
    (@fast $fast:expr, [$($arg:ident),*]) => {{
        let frame = $crate::guest::frames::Frame::new();
        if let Some(real) = SLOT.known()
            && $fast
            && let Some(inside) = $crate::gate::fast(&frame)
        {
            // SAFETY: the program's call, passed on as it came.
            let answer = unsafe { real($($arg),*) };
            inside.leave();
            return answer;
        }
        // SAFETY: the same call.
        unsafe { slowly($($arg),*) }
    }};
    // Through the gate beside other tenants: a kernel, its shape, its stream, and two more.
    (@beside [$kernel:ident, $gx:ident, $gy:ident, $gz:ident, $bx:ident, $by:ident, $bz:ident, $shared:ident,
        $stream:ident, $params:ident, $extra:ident] $name:ident) => {{
        let frame = $crate::guest::frames::Frame::new();
        let key = $crate::gate::Key::kernel($kernel, [$gx, $gy, $gz, $bx, $by, $bz, $shared]);
        let stream = if const { $crate::entry::is_twin(stringify!($name)) } {
            $crate::driver::streams::own_is_used();
            $crate::driver::stream_ref::StreamRef::per_thread($stream)
        } else {
            $crate::driver::stream_ref::StreamRef::legacy($stream)
        };
        if let Some(real) = SLOT.known()
            && let Some(going) = $crate::gate::beside(&frame, stream, key)
        {
            // SAFETY: the program's call, passed on as it came.
            let answer = unsafe { real($kernel, $gx, $gy, $gz, $bx, $by, $bz, $shared, $stream, $params, $extra) };
            going.ended(answer);
            return answer;
        }
    }};
    // Of the exported function's type, so that its call is a jump.
    (@slowly [$($arg:ident: $ty:ty),*] [$ret:ty] $how:tt $body:tt $name:ident) => {
        $crate::entry::hooks!(@body [$($arg: $ty),*] [$ret] $how $body $name);

        // SAFETY: as the exported function.
        #[cold]
        #[inline(never)]
        unsafe extern "C" fn slowly($($arg: $ty),*) -> $ret {
            $crate::entry::hooks!(@inside enter [$($arg: $ty),*] $how)
        }
    };
    // The closures share one copy of the arguments: they go through several hands, and a launch has
    // eleven.
    (@inside $enter:ident [$($arg:ident: $ty:ty),*] $how:tt) => {{
        let given = &($($arg,)*);
        $crate::entry::$enter(
            &SLOT,
            move |_| {
                let ($($arg,)*) = *given;
                body($crate::entry::hooks!(@calls given $how [$($arg: $ty),*]), $($arg),*)
            },
            move |real| {
                let ($($arg,)*) = *given;
                // SAFETY: the program's call, passed on as it came.
                unsafe { real($($arg),*) }
            },
        )
    }};
    (@slot $name:ident) => {
        static SLOT: $crate::driver::real::Slot<$name> =
            // SAFETY: the type is the C function's, spelled next to its name; a test compares them.
            unsafe { $crate::driver::real::Slot::new($crate::entry::c_name(concat!(stringify!($name), "\0"))) };
    };
    // The row's body, and the driver's function as it calls it: outside of our own code.
    (@body [$($arg:ident: $ty:ty),*] [$ret:ty] [$call:ident $(($typed:tt))? $(, $of:ident)?] [$body:expr] $name:ident) => {
        // SAFETY: as the exported function.
        unsafe extern "C" fn out($($arg: $ty),*) -> $ret {
            let _away = $crate::guest::frames::Away::begin();
            match SLOT.known() {
                // SAFETY: the caller keeps the C function's contract.
                Some(real) => unsafe { real($($arg),*) },
                None => <$ret as $crate::entry::Status>::MISSING,
            }
        }

        #[deny(unsafe_code)]
        #[inline(always)]
        #[allow(unused_variables, reason = "a body need not look at every argument")]
        #[allow(clippy::too_many_arguments, reason = "as many as the C function has")]
        fn body($call: $crate::entry::hooks!(@callable [$(($typed))?] [$($ty),*] [$ret]), $($arg: $ty),*) -> $ret {
            $(let $of: fn(gpushare_cuda_abi::cuda::CUstream) -> $crate::driver::stream_ref::StreamRef =
                if const { $crate::entry::is_twin(stringify!($name)) } {
                    $crate::driver::stream_ref::StreamRef::per_thread
                } else {
                    $crate::driver::stream_ref::StreamRef::legacy
                };)?
            $body
        }
    };
    (@callable [] [$($ty:ty),*] [$ret:ty]) => { impl Fn() -> $ret + Copy };
    (@callable [($typed:tt)] [$($ty:ty),*] [$ret:ty]) => { impl Fn($($ty),*) -> $ret + Copy };
    (@calls $given:ident [$call:ident $(, $of:ident)?] [$($arg:ident: $ty:ty),*]) => {
        move || {
            let ($($arg,)*) = *$given;
            // SAFETY: the program's own arguments, as they came, while its call lasts.
            unsafe { out($($arg),*) }
        }
    };
    (@calls $given:ident [$call:ident ($typed:tt) $(, $of:ident)?] [$($arg:ident: $ty:ty),*]) => {{
        const { $($crate::entry::args::passed::<$ty>();)* }
        // SAFETY: freely chosen arguments: their types guarantee the requirements of the C
        // function.
        move |$($arg: $ty),*| unsafe { out($($arg),*) }
    }};
}
pub(crate) use hooks;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twin_is_known_by_its_name() {
        for twin in ["cuLaunchKernel_ptsz", "cuMemcpy_ptds"] {
            assert!(is_twin(twin), "{twin}");
        }
        for name in ["cuLaunchKernel", "cuMemcpyHtoD_v2", "_pts", ""] {
            assert!(!is_twin(name), "{name}");
        }
    }
}
