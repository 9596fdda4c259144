//! `driver!`, which defines every driver function, and the code around every call.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gpushare_cuda_abi::cuda::CUresult;
use softgpu::{Result, exec, fail, hold, lock, trace, world};

/// The states in which a function may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Also before `cuInit`.
    Early,
    /// Only in an initialised process that is not a forked child of one.
    Ready,
}

/// Runs one call: waits for `SOFTGPU_LOCK` and `SOFTGPU_HOLD`, injects faults, checks the state of
/// the driver, runs the body, turns a panic into `CUDA_ERROR_UNKNOWN`, and writes the trace.
pub(crate) fn enter(symbol: &'static str, entry: Entry, body: impl FnOnce() -> Result) -> CUresult {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        lock::pass();
        hold::pass(symbol);
        if let Some(error) = fail::injected(symbol) {
            return error.ok();
        }
        if entry == Entry::Ready {
            world::still_there(symbol)?;
            world::process()?;
            if exec::in_host_function() {
                return Err(CUresult::NOT_PERMITTED);
            }
        }
        body()
    }));
    let result = match outcome {
        Ok(Ok(())) => CUresult::SUCCESS,
        Ok(Err(error)) => error,
        // A panic is a bug of the simulator, and its message is on stderr already. It must not
        // unwind into C.
        Err(_) => CUresult::UNKNOWN,
    };
    trace::note(symbol, result.0);
    result
}

/// The result of a function that is not implemented.
pub(crate) fn not_supported(symbol: &'static str) -> CUresult {
    enter(symbol, Entry::Ready, || Err(CUresult::NOT_SUPPORTED))
}

/// Defines exported driver functions. The body is a `Result<(), CUresult>`; [`enter`] does the rest
/// of a call.
///
/// `twin` names the per-thread variant of a function. Both variants share the body, whose first
/// parameter tells them apart. `early` marks the few functions that work before `cuInit`. The build
/// script reads these items to find the implemented functions, so no other function in `api/` may
/// be named `cu…`, and `fn`, the name and `twin` must be on one line.
///
/// ```ignore
/// driver! {
///     /// Says the version.
///     early fn cuDriverGetVersion(version: *mut i32) { out(version, 12080) }
///     fn cuMemFreeAsync twin cuMemFreeAsync_ptsz (d: DefaultStream; dptr: CUdeviceptr, stream: CUstream) { Ok(()) }
/// }
/// ```
macro_rules! driver {
    () => {};
    ($(#[$meta:meta])* early fn $($rest:tt)*) => { driver! { @one Early [$(#[$meta])*] $($rest)* } };
    ($(#[$meta:meta])* fn $($rest:tt)*) => { driver! { @one Ready [$(#[$meta])*] $($rest)* } };
    (@one $entry:ident [$(#[$meta:meta])*]
        $name:ident twin $twin:ident ($d:ident: DefaultStream $(; $($arg:ident: $ty:ty),* $(,)?)?) $body:block $($rest:tt)*) => {
        const _: () = {
            $(#[$meta])*
            fn body($d: ::softgpu::exec::DefaultStream $(, $($arg: $ty),*)?) -> ::softgpu::Result { $body }
            driver! { @export $name $entry [::softgpu::exec::DefaultStream::Legacy] ($($($arg: $ty),*)?) }
            driver! { @export $twin $entry [::softgpu::exec::DefaultStream::PerThread] ($($($arg: $ty),*)?) }
        };
        driver! { $($rest)* }
    };
    (@one $entry:ident [$(#[$meta:meta])*] $name:ident ($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        const _: () = {
            $(#[$meta])*
            fn body($($arg: $ty),*) -> ::softgpu::Result { $body }
            driver! { @export $name $entry [] ($($arg: $ty),*) }
        };
        driver! { $($rest)* }
    };
    (@export $name:ident $entry:ident [$($which:expr)?] ($($arg:ident: $ty:ty),*)) => {
        #[allow(unsafe_code, reason = "the symbol is the C function of this name and signature")]
        // SAFETY: the name is the driver's, and nothing else in this library defines it.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $ty),*) -> ::gpushare_cuda_abi::cuda::CUresult {
            let call = move || body($($which,)? $($arg),*);
            $crate::driver::enter(stringify!($name), $crate::driver::Entry::$entry, call)
        }
    };
}
