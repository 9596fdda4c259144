//! `driver!`, the one way a driver function is written, and what every call passes through.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gpushare_cuda_abi::cuda::CUresult;
use softgpu::{Result, exec, fail, lock, trace, world};

/// When a function may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Before `cuInit`, too.
    Early,
    /// Only in an initialised process that is no forked child of one.
    Ready,
}

/// Runs one call: injected faults, the state of the driver, the body, a panic as
/// `CUDA_ERROR_UNKNOWN`, the trace.
pub(crate) fn enter(symbol: &'static str, entry: Entry, body: impl FnOnce() -> Result) -> CUresult {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        lock::pass();
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
        // A panic is a bug of the simulator; the message is on stderr already. It must not unwind
        // into C.
        Err(_) => CUresult::UNKNOWN,
    };
    trace::note(symbol, result.0);
    result
}

/// The answer of a function that is not implemented.
pub(crate) fn not_supported(symbol: &'static str) -> CUresult {
    enter(symbol, Entry::Ready, || Err(CUresult::NOT_SUPPORTED))
}

/// Defines exported driver functions. The body is a `Result<(), CUresult>`; what it need not care
/// about is in [`enter`].
///
/// `twin` names the per-thread variant of a function: it shares the body, which learns which one it
/// is by its first parameter. `early` marks the few functions that work before `cuInit`. The build
/// reads these items to know what is implemented, so no other function in `api/` may be called
/// `cu…`, and name and `twin` stand on one line with `fn`.
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
        // SAFETY: the name is the driver's, defined nowhere else in this library.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $ty),*) -> ::gpushare_cuda_abi::cuda::CUresult {
            let call = move || body($($which,)? $($arg),*);
            $crate::driver::enter(stringify!($name), $crate::driver::Entry::$entry, call)
        }
    };
}
