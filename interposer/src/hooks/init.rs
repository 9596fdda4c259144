//! `cuInit`: returns `CUDA_ERROR_INVALID_VALUE` where the program's limits are not valid, and
//! `CUDA_ERROR_SYSTEM_NOT_READY` where another thread's start takes too long.

use gpushare_cuda_abi::cuda::CUresult;

use crate::entry::state::{self, Bypass};
use crate::entry::{Status as _, hooks};
use crate::hooks::lookup;

hooks! {
    #[first]
    fn cuInit(flags: u32) -> CUresult = |call| init(call);
}

fn init(call: impl FnOnce() -> CUresult) -> CUresult {
    // The driver may let a tool in, which calls it as the program does: those calls are hooked like
    // any.
    let answer = call();
    if !answer.is_success() {
        return answer;
    }
    let started = state::driver_started();
    lookup::started();
    answered(answer, started)
}

/// The answer of a call that the driver has `answered` with success.
fn answered(answer: CUresult, started: Result<(), Bypass>) -> CUresult {
    match started {
        // Inactive: the operator lets programs start without limits while no daemon answers.
        Ok(()) | Err(Bypass::Inactive) => answer,
        // As every other call's: the program may ask again.
        Err(Bypass::StartTimedOut) => CUresult::SYSTEM_NOT_READY,
        Err(_) => CUresult::REFUSED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_takes_too_long_can_be_asked_for_again() {
        let answer = |started| answered(CUresult::SUCCESS, started);
        assert_eq!(answer(Ok(())), CUresult::SUCCESS);
        assert_eq!(answer(Err(Bypass::Inactive)), CUresult::SUCCESS);
        assert_eq!(
            answer(Err(Bypass::StartTimedOut)),
            CUresult::SYSTEM_NOT_READY
        );
        assert_eq!(answer(Err(Bypass::Refused)), CUresult::INVALID_VALUE);
    }
}
