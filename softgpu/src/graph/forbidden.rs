//! Calls that are forbidden while streams capture: one table, with the source of each row.
//!
//! *Potentially unsafe* calls ([`Unsafe`]) are refused with `STREAM_CAPTURE_UNSUPPORTED` and
//! invalidate the captures that they disturb. Which captures these are depends on the calling
//! thread's mode and on each capture's own (`cuThreadExchangeStreamCaptureMode`, [`disturbs`]). The
//! documentation gives the rule and one example, `cudaMalloc`; it has no list. So each row names
//! the source that counts its calls among them. [`Says::Kin`] is a call without a source: it does
//! what a named one does, and is refused because softgpu is the strictest driver that is legal.
//!
//! What conflicts with a capture by the handle it is given is refused in every mode, and belongs to
//! the code that knows the handle:
//!
//! | what | answer | where | source |
//! |---|---|---|---|
//! | to ask about or wait for an event last recorded in a capture | `CAPTURED_EVENT` | `rules::check_event` | `ExchangeMode`, `ProhibitedOperations` |
//! | to ask about or wait for a stream that captures | `STREAM_CAPTURE_UNSUPPORTED` | `rules::check_wait` | `ProhibitedOperations` |
//! | to wait for a context with such a stream | `STREAM_CAPTURE_UNSUPPORTED` | `rules::check_drain` | `ProhibitedOperations` |
//! | to use the legacy stream beside a blocking stream that captures | `STREAM_CAPTURE_IMPLICIT` | `session::refuse_legacy` | `ProhibitedOperations` |
//! | to ask whether that legacy stream captures | the same; the capture stays valid | `capture::info` | `cuStreamIsCapturing` |
//! | to wait in one capture for an event of another | `STREAM_CAPTURE_MERGE` | `captured::wait_event` | `ProhibitedOperations` |
//! | to wait in a capture for work outside it | `STREAM_CAPTURE_ISOLATION` | `captured::wait_event` | `ProhibitedOperations` |
//! | what no graph can hold: `cuStreamAddCallback`, `cuStreamAttachMemAsync` | `STREAM_CAPTURE_UNSUPPORTED` | `captured::record` | `ProhibitedOperations` |
//! | to end a capture in another thread, unless it is relaxed | `STREAM_CAPTURE_WRONG_THREAD` | `capture::end` | `cuStreamEndCapture` |
//! | to end one with a stream that was not joined back | `STREAM_CAPTURE_UNJOINED` | `capture::end` | `cuStreamEndCapture` |

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
    /// NVIDIA Warp, API reference, `CaptureMode`: `cudaFree(0)` wants relaxed mode.
    Warp,
    /// NVIDIA/cccl, pull request 11360: attributes of a pool are neither read nor set outside
    /// relaxed mode.
    Cccl,
    /// pytorch/pytorch, pull requests 104555 and 105182: a watchdog's query of an event recorded
    /// before the capture ends it.
    PyTorch,
    /// ROCm/rocm-systems, issue 11698: unloading a module ends the capture of its thread, under
    /// CUDA too.
    Rocm,
    /// No source, but it does what a call of this row does.
    Kin(Unsafe),
}

macro_rules! unsafe_calls {
    ($($(#[$doc:meta])* $name:ident: $says:expr, [$($call:literal),* $(,)?];)*) => {
        /// A kind of potentially unsafe call.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Unsafe {
            $($(#[$doc])* $name,)*
        }

        /// Every row: the kind, the source, the calls without their versions and twins.
        pub const TABLE: &[(Unsafe, Says, &[&str])] = &[$((Unsafe::$name, $says, &[$($call),*]),)*];
    };
}

unsafe_calls! {
    /// Device memory now, in no stream.
    Allocate: Says::ExchangeMode, ["cuMemAlloc", "cuMemAllocPitch"];
    /// Managed memory now.
    AllocateManaged: Says::Kin(Unsafe::Allocate), ["cuMemAllocManaged"];
    /// Arrays now.
    AllocateArray: Says::Kin(Unsafe::Allocate), ["cuArrayCreate", "cuArray3DCreate", "cuMipmappedArrayCreate"];
    /// Pinned host memory now.
    AllocateHost: Says::Kin(Unsafe::Allocate), ["cuMemAllocHost", "cuMemHostAlloc", "cuMemHostRegister"];
    /// Device memory back now, which waits for the device.
    Free: Says::Warp, ["cuMemFree"];
    /// Arrays back now.
    FreeArray: Says::Kin(Unsafe::Free), ["cuArrayDestroy", "cuMipmappedArrayDestroy"];
    /// Pinned host memory back now.
    FreeHost: Says::Kin(Unsafe::Free), ["cuMemFreeHost", "cuMemHostUnregister"];
    /// Copies that belong to no stream of the caller's, and wait.
    Copy: Says::ProhibitedOperations, [
        "cuMemcpy", "cuMemcpyPeer", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD", "cuMemcpyDtoA", "cuMemcpyAtoD", "cuMemcpyHtoA",
        "cuMemcpyAtoH", "cuMemcpyAtoA", "cuMemcpy2D", "cuMemcpy2DUnaligned", "cuMemcpy3D", "cuMemcpy3DPeer",
    ];
    /// Fills that belong to no stream of the caller's.
    Fill: Says::Kin(Unsafe::Copy), [
        "cuMemsetD8", "cuMemsetD16", "cuMemsetD32", "cuMemsetD2D8", "cuMemsetD2D16", "cuMemsetD2D32",
    ];
    /// To ask about or wait for an event that no capture has recorded.
    Event: Says::PyTorch, ["cuEventQuery", "cuEventSynchronize"];
    /// To ask about or wait for a stream that does not capture.
    Stream: Says::Kin(Unsafe::Event), ["cuStreamQuery", "cuStreamSynchronize"];
    /// Attributes of a pool.
    PoolAttribute: Says::Cccl, ["cuMemPoolGetAttribute", "cuMemPoolSetAttribute"];
    /// Pools made and destroyed, trimmed, shared, and the devices that may use them.
    Pool: Says::Kin(Unsafe::PoolAttribute), [
        "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolTrimTo", "cuMemPoolSetAccess", "cuMemPoolGetAccess",
        "cuMemPoolExportToShareableHandle", "cuMemPoolImportFromShareableHandle", "cuMemPoolExportPointer", "cuMemPoolImportPointer",
    ];
    /// Attributes of the memory of graphs, and giving back what is not used of it.
    GraphMemory: Says::Kin(Unsafe::PoolAttribute), [
        "cuDeviceGetGraphMemAttribute", "cuDeviceSetGraphMemAttribute", "cuDeviceGraphMemTrim",
    ];
    /// Modules that go, which waits for the device.
    Unload: Says::Rocm, ["cuModuleUnload", "cuLibraryUnload"];
}

/// Whether a potentially unsafe call of a thread in mode `caller` disturbs a capture that was begun
/// in mode `capture`, by the same thread (`own`) or another.
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
    fn a_thread_disturbs_what_the_documentation_says_it_does() {
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
    fn every_call_is_one_that_the_driver_has() {
        let known = |call: &str| symbols::CUDA.iter().any(|row| row.base == call);
        let unknown = TABLE
            .iter()
            .flat_map(|row| row.2)
            .filter(|call| !known(call));
        assert_eq!(unknown.count(), 0);
    }

    #[test]
    fn every_call_stands_in_one_row_and_every_kin_is_of_a_row_that_is_named() {
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
