//! What comes of a driver's call.

use gpushare_cuda_abi::cuda::CUresult;

/// The driver's answer to a query: a value, or an error.
pub(crate) type Asked<T> = Result<T, CUresult>;

/// Conversion of a call's result.
pub(super) trait Outcome {
    fn of(answer: CUresult) -> Self;
}

impl Outcome for CUresult {
    #[inline]
    fn of(answer: CUresult) -> Self {
        answer
    }
}

impl Outcome for Asked<()> {
    #[inline]
    fn of(answer: CUresult) -> Self {
        answer.ok()
    }
}
