//! Initialisation and version.

use gpushare_cuda_abi::cuda::CUresult;
use softgpu::spec::Spec;
use softgpu::world;

use crate::abi::out;
use crate::injection;

driver! {
    /// Opens the machine that SPEC describes.
    early fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        world::init()?;
        crate::mps::look();
        injection::inject();
        Ok(())
    }

    /// Returns the version of the simulated driver, before initialisation too.
    early fn cuDriverGetVersion(version: *mut i32) {
        out(version, driver_version())
    }
}

/// The CUDA version that the simulated driver supports. If SPEC is not accepted it is the default
/// version; `cuInit` reports the error.
pub(crate) fn driver_version() -> i32 {
    let spec = world::process().map(|process| process.spec().clone());
    let driver = spec
        .unwrap_or_else(|_| Spec::from_env().unwrap_or_default())
        .driver;
    i32::try_from(driver).expect("SPEC bounds the version")
}
