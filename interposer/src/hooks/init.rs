//! `cuInit`: returns `CUDA_ERROR_INVALID_VALUE` where the program's limits are not valid.

use gpushare_cuda_abi::cuda::CUresult;

use crate::entry::state::{self, Bypass};
use crate::entry::{Status as _, hooks};

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
    match state::driver_started() {
        // Inactive: the operator lets programs start without limits while no daemon answers.
        Ok(()) | Err(Bypass::Inactive) => answer,
        Err(_) => CUresult::REFUSED,
    }
}
