//! The system around the devices: driver branch, units, interface cards, excluded devices, drains.

use std::ffi::c_char;

use gpushare_cuda_abi::nvml::{
    NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE, nvmlDevice_t, nvmlEnableState_t,
    nvmlExcludedDeviceInfo_t, nvmlPciInfo_t, nvmlReturn_t, struct_version,
};
use softgpu::facts;

use super::identity::by_place;
use crate::abi::{array, input, out, out_text};
use crate::library::{index, monitor};

/// The firmware of the board, in the form that an H100's has. The zeros show that it is none.
const VBIOS: &str = "96.00.00.00.00";

/// The driver's branch.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Branch {
    version: u32,
    branch: [c_char; NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE],
}

nvml! {
    /// The branch of a release, named as the driver's public sources name theirs: `r570_00`.
    fn nvmlSystemGetDriverBranch(info: *mut Branch, len: u32) {
        let asked = input(info)?;
        if asked.version != struct_version::<Branch>(1) {
            return Err(nvmlReturn_t::ARGUMENT_VERSION_MISMATCH);
        }
        let release = facts::driver_release(monitor()?.spec().driver);
        let text = format!("r{}_00", release.split('.').next().unwrap_or_default());
        if text.len() >= len as usize {
            return Err(nvmlReturn_t::INSUFFICIENT_SIZE);
        }
        out(info, Branch { version: asked.version, branch: array(&text) })
    }
    fn nvmlDeviceGetVbiosVersion(device: nvmlDevice_t, version: *mut c_char, len: u32) { index(device)?; out_text(version, len, VBIOS) }
    /// Interface cards and units are parts of S-class systems.
    fn nvmlSystemGetHicVersion(count: *mut u32, _cards: *mut u8) { out(count, 0) }
    fn nvmlUnitGetCount(count: *mut u32) { out(count, 0) }
    fn nvmlGetExcludedDeviceCount(count: *mut u32) { out(count, 0) }
    fn nvmlGetExcludedDeviceInfoByIndex(_index: u32, _info: *mut nvmlExcludedDeviceInfo_t) { Err(nvmlReturn_t::INVALID_ARGUMENT) }
    fn nvmlDeviceQueryDrainState(pci: *mut nvmlPciInfo_t, state: *mut nvmlEnableState_t) {
        by_place(&input(pci)?)?;
        out(state, nvmlEnableState_t::DISABLED)
    }
    /// There is no bus that the system could look through.
    fn nvmlDeviceDiscoverGpus(pci: *mut nvmlPciInfo_t) {
        input(pci)?;
        Err(nvmlReturn_t::OPERATING_SYSTEM)
    }
}
