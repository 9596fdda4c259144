//! Calls that are forbidden during a stream capture: one table, with the source of each row.
//!
//! *Potentially unsafe* calls ([`Unsafe`]) are refused with `STREAM_CAPTURE_UNSUPPORTED` and
//! invalidate the captures that they disturb. Which captures these are depends on the calling
//! thread's mode and on each capture's mode (`cuThreadExchangeStreamCaptureMode`, [`disturbs`]).
//! The documentation gives the rule and one example, `cudaMalloc`; it has no list. So each row
//! names a source that calls its functions potentially unsafe. [`Says::Recorded`] is what a real
//! driver did when the family `forbidden` of the conformance program ran on it. [`Says::Kin`] is a
//! function without a source: it does the same as a function with a source, and softgpu refuses it
//! because softgpu is the strictest legal driver.
//!
//! The Programming Guide calls synchronous copies unsafe. A real driver accepts them, memsets, and
//! calls about graph memory in a global capture of the same thread, and so does softgpu.
//!
//! A call that conflicts with a capture through its handle is refused in every mode. The code that
//! resolves the handle refuses it:
//!
//! | call | answer | where | source |
//! |---|---|---|---|
//! | query or wait for an event last recorded in a capture | `CAPTURED_EVENT` | `rules::check_event` | `ExchangeMode`, `ProhibitedOperations` |
//! | query or wait for a stream that captures | `STREAM_CAPTURE_UNSUPPORTED` | `rules::check_wait` | `ProhibitedOperations` |
//! | wait for a context with a stream that captures | `STREAM_CAPTURE_UNSUPPORTED` | `rules::check_drain` | `ProhibitedOperations` |
//! | use the legacy stream while a blocking stream captures | `STREAM_CAPTURE_IMPLICIT` | `session::refuse_legacy` | `ProhibitedOperations` |
//! | ask whether that legacy stream captures | the same; the capture stays valid | `capture::info` | `cuStreamIsCapturing` |
//! | wait in one capture for an event of another capture | `STREAM_CAPTURE_MERGE` | `captured::wait_event` | `ProhibitedOperations` |
//! | wait in a capture for work outside it | `STREAM_CAPTURE_ISOLATION` | `captured::wait_event` | `ProhibitedOperations` |
//! | ask for the number of a stream that captures | `STREAM_CAPTURE_UNSUPPORTED` | `rules::check_number` | a real driver, in every mode; the number of another stream it gives |
//! | ask for the device of a stream that captures | the same | `rules::check_number` | NVIDIA/cccl, pull request 9119: not allowed in a capture; the code is that of the row above |
//! | ask for the time between events of which one was last recorded in a capture | `INVALID_VALUE` | `rules::check_elapsed` | NVIDIA/warp, issues 556 and 983; what becomes of the capture they do not say: it stays valid |
//! | submit work that a graph cannot hold: `cuStreamAddCallback`, `cuStreamAttachMemAsync` | `STREAM_CAPTURE_UNSUPPORTED` | `captured::record` | `ProhibitedOperations` |
//! | end a capture in another thread, unless it is relaxed | `STREAM_CAPTURE_WRONG_THREAD` | `capture::end` | `cuStreamEndCapture` |
//! | end a capture with a stream that was not joined back | `STREAM_CAPTURE_UNJOINED` | `capture::end` | `cuStreamEndCapture` |

use gpushare_cuda_abi::cuda::CUstreamCaptureMode;

/// The source that calls a function potentially unsafe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// CUDA Driver API, Stream Management, `cuThreadExchangeStreamCaptureMode`: the rule, and
    /// `cudaMalloc` as its example.
    ExchangeMode,
    /// CUDA Programming Guide, CUDA Graphs, Creating a Graph Using Stream Capture, Prohibited and
    /// Unhandled Operations.
    ProhibitedOperations,
    /// NVIDIA Warp, API reference, `CaptureMode`: `cudaFree(0)` requires relaxed mode.
    Warp,
    /// NVIDIA/cccl, pull request 11360: pool attributes are read and set only in relaxed mode.
    Cccl,
    /// pytorch/pytorch, pull requests 104555 and 105182: a watchdog thread's query of an event that
    /// was recorded before the capture ends the capture.
    PyTorch,
    /// ROCm/rocm-systems, issue 11698: unloading a module ends the capture of its thread; CUDA does
    /// the same.
    Rocm,
    /// The transcript of the conformance program: a real driver refuses a call of this row.
    Recorded,
    /// No source; the call does the same as the calls of this row.
    Kin(Unsafe),
}

macro_rules! unsafe_calls {
    ($($(#[$doc:meta])* $name:ident: $says:expr, [$($call:literal),* $(,)?];)*) => {
        /// A kind of potentially unsafe call.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Unsafe {
            $($(#[$doc])* $name,)*
        }

        /// All rows: the kind, the source, and the calls without version and default-stream
        /// suffixes.
        pub const TABLE: &[(Unsafe, Says, &[&str])] = &[$((Unsafe::$name, $says, &[$($call),*]),)*];
    };
}

unsafe_calls! {
    /// Allocation of device memory outside stream order.
    Allocate: Says::ExchangeMode, ["cuMemAlloc", "cuMemAllocPitch"];
    /// Allocation of managed memory.
    AllocateManaged: Says::Kin(Unsafe::Allocate), ["cuMemAllocManaged"];
    /// Allocation of arrays.
    AllocateArray: Says::Kin(Unsafe::Allocate), ["cuArrayCreate", "cuArray3DCreate", "cuMipmappedArrayCreate"];
    /// Allocation of pinned host memory.
    AllocateHost: Says::Kin(Unsafe::Allocate), ["cuMemAllocHost", "cuMemHostAlloc", "cuMemHostRegister"];
    /// Free of device memory, which waits for the device.
    Free: Says::Warp, ["cuMemFree"];
    /// Free of arrays.
    FreeArray: Says::Kin(Unsafe::Free), ["cuArrayDestroy", "cuMipmappedArrayDestroy"];
    /// Free of pinned host memory.
    FreeHost: Says::Kin(Unsafe::Free), ["cuMemFreeHost", "cuMemHostUnregister"];
    /// Allocation and free in the order of a stream that does not capture.
    Ordered: Says::Recorded, ["cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemFreeAsync"];
    /// Query of, and wait for, an event that was not recorded in a capture.
    Event: Says::PyTorch, ["cuEventQuery", "cuEventSynchronize"];
    /// Query of, and wait for, a stream that does not capture.
    Stream: Says::Kin(Unsafe::Event), ["cuStreamQuery", "cuStreamSynchronize"];
    /// Pool attributes.
    PoolAttribute: Says::Cccl, ["cuMemPoolGetAttribute", "cuMemPoolSetAttribute"];
    /// Creation, destruction, trimming, access and sharing of pools.
    Pool: Says::Kin(Unsafe::PoolAttribute), [
        "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolTrimTo", "cuMemPoolSetAccess", "cuMemPoolGetAccess",
        "cuMemPoolExportToShareableHandle", "cuMemPoolImportFromShareableHandle", "cuMemPoolExportPointer", "cuMemPoolImportPointer",
    ];
    /// Unloading of modules. A driver may wait for the device there; no source says so.
    Unload: Says::Rocm, ["cuModuleUnload", "cuLibraryUnload"];
}

/// Whether a potentially unsafe call of a thread in mode `caller` disturbs a capture in mode
/// `capture`, begun by the same thread (`own`) or by another thread.
pub(super) fn disturbs(
    caller: CUstreamCaptureMode,
    own: bool,
    capture: CUstreamCaptureMode,
) -> bool {
    match caller {
        CUstreamCaptureMode::RELAXED => false,
        _ if own => capture != CUstreamCaptureMode::RELAXED,
        CUstreamCaptureMode::GLOBAL => capture == CUstreamCaptureMode::GLOBAL,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use gpushare_cuda_abi::symbols;

    use super::*;

    #[test]
    fn disturbed_captures_follow_the_documented_modes() {
        use CUstreamCaptureMode as Mode;
        let modes = [Mode::GLOBAL, Mode::THREAD_LOCAL, Mode::RELAXED];
        for (caller, own, expected) in [
            (Mode::GLOBAL, true, [true, true, false]),
            (Mode::GLOBAL, false, [true, false, false]),
            (Mode::THREAD_LOCAL, true, [true, true, false]),
            (Mode::THREAD_LOCAL, false, [false, false, false]),
            (Mode::RELAXED, true, [false, false, false]),
            (Mode::RELAXED, false, [false, false, false]),
        ] {
            let told = modes.map(|capture| disturbs(caller, own, capture));
            assert_eq!(told, expected, "{caller:?}, own: {own}");
        }
    }

    #[test]
    fn every_call_of_the_table_is_a_driver_function() {
        let known = |call: &str| symbols::CUDA.iter().any(|row| row.base == call);
        let unknown = TABLE
            .iter()
            .flat_map(|row| row.2)
            .filter(|call| !known(call));
        assert_eq!(unknown.count(), 0);
    }

    #[test]
    fn each_call_has_one_row_and_each_kin_refers_to_a_row_with_a_source() {
        let mut calls: Vec<&str> = TABLE.iter().flat_map(|row| row.2).copied().collect();
        let count = calls.len();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls.len(), count);
        for (kind, says, _) in TABLE {
            if let Says::Kin(of) = says {
                let row = TABLE.iter().find(|row| row.0 == *of);
                let named = row.is_some_and(|row| !matches!(row.1, Says::Kin(_)));
                assert!(named, "{kind:?} is kin of {of:?}");
            }
        }
    }
}
