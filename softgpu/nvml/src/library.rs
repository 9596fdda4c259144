//! `nvml!`, which defines every NVML function, and the code around every call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use gpushare_cuda_abi::nvml::{nvmlDevice_t, nvmlReturn_t};
use softgpu::inspect::DeviceTruth;
use softgpu::spec::Spec;
use softgpu::watch::Monitor;
use softgpu::{fail, fallen, hold, trace};

/// The result of an NVML function.
pub(crate) type Result<T = ()> = std::result::Result<T, nvmlReturn_t>;

/// The number of initialisations without a shutdown, and the library's view of the machine.
static OPEN: Mutex<(u32, Option<Arc<Monitor>>)> = Mutex::new((0, None));

/// Initialises the library; calls are counted.
///
/// # Errors
/// `DRIVER_NOT_LOADED`, with a line on stderr, if SPEC is not accepted or contradicts the machine
/// of its name.
pub(crate) fn open() -> Result {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if open.1.is_none() {
        let monitor = Spec::from_env()
            .map_err(std::io::Error::other)
            .and_then(Monitor::new)
            .map_err(|error| {
                eprintln!("softgpu: {error}");
                nvmlReturn_t::DRIVER_NOT_LOADED
            })?;
        open.1 = Some(Arc::new(monitor));
    }
    open.0 += 1;
    Ok(())
}

/// Reverts one [`open`].
///
/// # Errors
/// `UNINITIALIZED` if the library is not initialised.
pub(crate) fn close() -> Result {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.0 = open.0.checked_sub(1).ok_or(nvmlReturn_t::UNINITIALIZED)?;
    if open.0 == 0 {
        open.1 = None;
    }
    Ok(())
}

/// The library's view of the machine.
///
/// # Errors
/// `UNINITIALIZED` before [`open`].
pub(crate) fn monitor() -> Result<Arc<Monitor>> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.1.clone().ok_or(nvmlReturn_t::UNINITIALIZED)
}

/// The handle of the device with this index.
pub(crate) fn handle(index: u32) -> nvmlDevice_t {
    nvmlDevice_t(std::ptr::without_provenance_mut(
        FIRST_HANDLE + index as usize * HANDLE_STEP,
    ))
}

const FIRST_HANDLE: usize = 0x5d01_0000_0000;
const HANDLE_STEP: usize = 0x1000;

/// The index of a handle's device.
///
/// # Errors
/// `INVALID_ARGUMENT` if no device has this handle; `GPU_IS_LOST` if it is off the bus.
pub(crate) fn index(device: nvmlDevice_t) -> Result<u32> {
    let count = monitor()?.spec().count;
    let index = (0..count)
        .find(|index| handle(*index) == device)
        .ok_or(nvmlReturn_t::INVALID_ARGUMENT)?;
    reachable(|fallen| fallen == index).map(|()| index)
}

/// Whether a call can be answered that needs certain devices.
///
/// # Errors
/// `GPU_IS_LOST` if one of them is off the bus.
pub(crate) fn reachable(needs: impl Fn(u32) -> bool) -> Result {
    match fallen::ordinal() {
        Some(fallen) if needs(fallen) => Err(nvmlReturn_t::GPU_IS_LOST),
        _ => Ok(()),
    }
}

/// The current state of a device.
///
/// # Errors
/// As [`index`], and `UNKNOWN` if the shared state cannot be read.
pub(crate) fn device(device: nvmlDevice_t) -> Result<DeviceTruth> {
    let index = index(device)?;
    let mut look = monitor()?.look().map_err(|_| nvmlReturn_t::UNKNOWN)?;
    Ok(look.devices.swap_remove(index as usize))
}

/// Runs one call: waits for `SOFTGPU_HOLD`, injects faults, checks that the library is initialised,
/// runs the body, turns a panic into `UNKNOWN`, and writes the trace.
pub(crate) fn enter(
    symbol: &'static str,
    early: bool,
    body: impl FnOnce() -> Result,
) -> nvmlReturn_t {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        hold::pass(symbol);
        if let Some(error) = fail::injected_number(symbol) {
            return nvmlReturn_t(error).ok();
        }
        if !early {
            monitor()?;
        }
        body()
    }));
    let result = match outcome {
        Ok(Ok(())) => nvmlReturn_t::SUCCESS,
        Ok(Err(error)) => error,
        // A panic is a bug of the simulator, and its message is on stderr already. It must not
        // unwind into C.
        Err(_) => nvmlReturn_t::UNKNOWN,
    };
    trace::note(symbol, result.0);
    result
}

/// The result of a function that is not implemented.
pub(crate) fn not_supported(symbol: &'static str) -> nvmlReturn_t {
    enter(symbol, false, || Err(nvmlReturn_t::NOT_SUPPORTED))
}

/// Defines exported NVML functions. The body is a `Result<(), nvmlReturn_t>`. `early` marks
/// functions that work before `nvmlInit`. The build script reads these items to find the
/// implemented functions, so no other function in `api/` may be named `nvml…`.
macro_rules! nvml {
    () => {};
    ($(#[$meta:meta])* early fn $($rest:tt)*) => { nvml! { @one true [$(#[$meta])*] $($rest)* } };
    ($(#[$meta:meta])* fn $($rest:tt)*) => { nvml! { @one false [$(#[$meta])*] $($rest)* } };
    (@one $early:literal [$(#[$meta:meta])*] $name:ident ($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        const _: () = {
            $(#[$meta])*
            fn body($($arg: $ty),*) -> $crate::library::Result { $body }

            #[allow(unsafe_code, reason = "the symbol is the C function of this name and signature")]
            // SAFETY: the name is NVML's, and nothing else in this library defines it.
            #[unsafe(no_mangle)]
            extern "C" fn $name($($arg: $ty),*) -> ::gpushare_cuda_abi::nvml::nvmlReturn_t {
                $crate::library::enter(stringify!($name), $early, move || body($($arg),*))
            }
        };
        nvml! { $($rest)* }
    };
}
