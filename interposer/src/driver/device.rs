//! Devices: the driver's ordinal, the UUID, and the column of the usage page.
//!
//! A device is what its UUID says. The ordinal depends on `CUDA_VISIBLE_DEVICES`, so it never leaves the process.
//!
//! # Safety
//! `unsafe` calls the driver with out parameters that outlive the calls.
#![allow(unsafe_code, reason = "asks the driver for its devices")]

use core::ffi::c_char;

use gpushare_cuda_abi::cuda::{CUdevice, CUresult, CUuuid};
use gpushare_protocol::page::MAX_DEVICES;

use crate::account::{self, StartError, Visible};
use crate::driver::calls;

/// A device of the container: its column in the usage page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceKey(u8);

impl DeviceKey {
    /// The key of a column below [`MAX_DEVICES`].
    pub(crate) fn of_column(column: usize) -> Option<Self> {
        u8::try_from(column)
            .ok()
            .filter(|_| column < MAX_DEVICES)
            .map(Self)
    }

    /// The column.
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The device the program knows by `ordinal`.
pub(crate) fn of_ordinal(ordinal: CUdevice) -> Option<DeviceKey> {
    account::column(usize::try_from(ordinal).ok()?).and_then(DeviceKey::of_column)
}

/// The ordinal the program knows a device by.
pub(crate) fn ordinal_of(device: DeviceKey) -> Option<CUdevice> {
    CUdevice::try_from(account::ordinal(device.index())?).ok()
}

/// All devices the driver shows this process, in its order.
pub(crate) fn enumerate() -> Result<Vec<Visible>, StartError> {
    let mut count = 0;
    // SAFETY: an out parameter that outlives the call.
    said("cuDeviceGetCount", unsafe {
        calls::cuDeviceGetCount(&raw mut count)
    })?;
    let count = usize::try_from(count).unwrap_or(0);
    if count > MAX_DEVICES {
        return Err(StartError::Devices(count));
    }
    (0..).take(count).map(visible).collect()
}

fn visible(ordinal: i32) -> Result<Visible, StartError> {
    let (mut device, mut capacity) = (0, 0);
    // SAFETY: out parameters that outlive the calls; the device is one the driver has just named.
    unsafe {
        said("cuDeviceGet", calls::cuDeviceGet(&raw mut device, ordinal))?;
        said(
            "cuDeviceTotalMem_v2",
            calls::cuDeviceTotalMem_v2(&raw mut capacity, device),
        )?;
    }
    Ok(Visible {
        uuid: uuid(device)?,
        capacity: capacity as u64,
    })
}

/// The UUID. `_v2`, where the driver has it, names the MIG instance rather than the card it is part of.
fn uuid(device: CUdevice) -> Result<[u8; 16], StartError> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: out parameters that outlive the calls.
    let answer = unsafe {
        match calls::cuDeviceGetUuid_v2(&raw mut uuid, device) {
            CUresult::NOT_FOUND => calls::cuDeviceGetUuid(&raw mut uuid, device),
            answer => answer,
        }
    };
    said("cuDeviceGetUuid", answer)?;
    Ok(uuid.bytes.map(c_char::cast_unsigned))
}

fn said(function: &'static str, answer: CUresult) -> Result<(), StartError> {
    answer
        .ok()
        .map_err(|code| StartError::Driver(function, code.0))
}
