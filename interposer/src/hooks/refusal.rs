//! The result of a call that does not fit its quota.
//!
//! Such a call may be invalid as well: by its flags, its format, its stream, or because a capture
//! forbids it. The driver checks these before it looks for memory, so that error would be its
//! result. To find it, the driver gets the program's own call with a size that no device can have.
//! The call cannot succeed, so no memory is had beyond the quota; if it does succeed, it is undone.
//! Why: ADR 57.

use gpushare_cuda_abi::cuda::CUresult;

/// Bytes that no device has, nor any address space: 2^60. A multiple of every granularity.
pub(super) const IMPOSSIBLE: usize = 1 << 60;

/// `bytes` made [`IMPOSSIBLE`], with its alignment unchanged.
pub(super) const fn impossible(bytes: usize) -> usize {
    if bytes < IMPOSSIBLE {
        bytes | IMPOSSIBLE
    } else {
        bytes
    }
}

/// The result of a call over the quota. `asked` is the driver's result at an impossible size. If
/// that is `INVALID_VALUE`, the size itself may be invalid: `control` requests as much by an
/// otherwise valid call.
#[cold]
pub(super) fn of(asked: CUresult, control: impl FnOnce() -> CUresult) -> CUresult {
    match asked {
        // The driver that lacks a function we ask by says nothing about the program's call.
        CUresult::SUCCESS | CUresult::OUT_OF_MEMORY | CUresult::NOT_FOUND => {
            CUresult::OUT_OF_MEMORY
        }
        CUresult::INVALID_VALUE if control() == CUresult::INVALID_VALUE => CUresult::OUT_OF_MEMORY,
        wrong => wrong,
    }
}

/// As [`of`] for a call that has nothing but its size that can be invalid.
#[cold]
pub(super) fn of_size_only(asked: CUresult) -> CUresult {
    of(asked, || CUresult::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_size_stays_as_odd_as_it_was() {
        assert_eq!(impossible(512) % (2 << 20), 512);
        assert_eq!(impossible(4 << 20) % (2 << 20), 0);
        assert_eq!(impossible(usize::MAX), usize::MAX);
        assert!(impossible(0) >= IMPOSSIBLE);
    }

    #[test]
    fn what_is_wrong_beside_the_size_is_said() {
        for wrong in [
            CUresult::STREAM_CAPTURE_UNSUPPORTED,
            CUresult::ILLEGAL_ADDRESS,
            CUresult::INVALID_DEVICE,
            CUresult::NOT_SUPPORTED,
        ] {
            assert_eq!(of(wrong, || CUresult::INVALID_VALUE), wrong);
            assert_eq!(of_size_only(wrong), wrong);
        }
        let wrong = CUresult::INVALID_VALUE;
        assert_eq!(of(wrong, || CUresult::OUT_OF_MEMORY), wrong);
    }

    #[test]
    fn a_driver_that_calls_the_size_invalid_has_no_memory() {
        let none = CUresult::OUT_OF_MEMORY;
        for asked in [none, CUresult::SUCCESS, CUresult::NOT_FOUND] {
            assert_eq!(of(asked, || none), none);
        }
        assert_eq!(
            of(CUresult::INVALID_VALUE, || CUresult::INVALID_VALUE),
            none
        );
        assert_eq!(of_size_only(CUresult::INVALID_VALUE), none);
    }
}
