//! How failure is said inside the simulator: the driver's own result code, never success.

use gpushare_cuda_abi::cuda::CUresult;

/// What every operation of the simulated driver answers; the error is what the caller of the C
/// function gets.
pub type Result<T = ()> = std::result::Result<T, CUresult>;
