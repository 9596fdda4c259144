//! Errors inside the simulator are the driver's own result codes, never success.

use gpushare_cuda_abi::cuda::CUresult;

/// The result of every operation of the simulated driver. The C function returns the error to its
/// caller.
pub type Result<T = ()> = std::result::Result<T, CUresult>;
