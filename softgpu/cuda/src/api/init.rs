//! Start and version.

use gpushare_cuda_abi::cuda::CUresult;
use softgpu::spec::Spec;
use softgpu::world;

use crate::abi::out;
use crate::injection;

driver! {
    /// Opens the machine SPEC describes.
    early fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        world::init()?;
        crate::mps::look();
        injection::inject();
        Ok(())
    }

    /// Says the version of the simulated driver, initialised or not.
    early fn cuDriverGetVersion(version: *mut i32) {
        out(version, driver_version())
    }
}

/// The CUDA version the simulated driver supports. With a SPEC that is not accepted: the default,
/// as `cuInit` will tell.
pub(crate) fn driver_version() -> i32 {
    let spec = world::process().map(|process| process.spec().clone());
    let driver = spec
        .unwrap_or_else(|_| Spec::from_env().unwrap_or_default())
        .driver;
    i32::try_from(driver).expect("SPEC bounds the version")
}
