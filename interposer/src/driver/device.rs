//! Devices: the driver's ordinal, the UUID, and the index in the usage page.
//!
//! A device is identified by its UUID. The ordinal depends on `CUDA_VISIBLE_DEVICES`, so it never
//! leaves the process.

use core::ffi::c_char;

use gpushare_cuda_abi::cuda::{CUdevice, CUmemLocation, CUmemLocationType, CUresult};
use gpushare_protocol::page::MAX_DEVICES;

use crate::driver::calls;
use crate::driver::contexts;
use crate::guest::fork::ForkLocal;

/// A device of the tenant: its index in the usage page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceKey(u8);

impl DeviceKey {
    /// The key of an index below [`MAX_DEVICES`].
    pub(crate) fn of_index(device_index: usize) -> Option<Self> {
        u8::try_from(device_index)
            .ok()
            .filter(|_| device_index < MAX_DEVICES)
            .map(Self)
    }

    /// The index.
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The key of each device that the program sees, by ordinal; empty until the account is open.
static KEYS: ForkLocal<Vec<Option<DeviceKey>>> = ForkLocal::new();

/// The account is open: `device_indices` has the index of each device, by ordinal.
pub(crate) fn know(device_indices: &[usize]) {
    let keys = device_indices
        .iter()
        .map(|device_index| DeviceKey::of_index(*device_index));
    KEYS.set(keys.collect());
}

/// The device the program knows by `ordinal`.
pub(crate) fn of_ordinal(ordinal: CUdevice) -> Option<DeviceKey> {
    *KEYS.get()?.get(usize::try_from(ordinal).ok()?)?
}

/// The device that memory at `location` is on; none for the host's.
pub(crate) fn of_location(location: CUmemLocation) -> Option<DeviceKey> {
    match location.type_ {
        CUmemLocationType::DEVICE => of_ordinal(location.id),
        // The device is in the low byte, which part of it in the next.
        CUmemLocationType::DEVICE_LOCALITY_DOMAIN => of_ordinal(location.id & 0xff),
        _ => None,
    }
}

/// Whether a location of this type is the host's.
pub(crate) fn is_host(kind: CUmemLocationType) -> bool {
    matches!(
        kind,
        CUmemLocationType::HOST
            | CUmemLocationType::HOST_NUMA
            | CUmemLocationType::HOST_NUMA_CURRENT
    )
}

/// The device that memory made at `location` is charged to: none for the host's, or where there is
/// no such device. A type that is not known may be on a device: it counts as the current context's.
pub(crate) fn charged_at(location: CUmemLocation) -> Option<DeviceKey> {
    match location.type_ {
        CUmemLocationType::DEVICE | CUmemLocationType::DEVICE_LOCALITY_DOMAIN => {
            of_location(location)
        }
        host if is_host(host) => None,
        _ => contexts::here().map(|here| here.device),
    }
}

/// The ordinal the program knows a device by.
pub(crate) fn ordinal_of(device: DeviceKey) -> Option<CUdevice> {
    let mut keys = KEYS.get()?.iter();
    CUdevice::try_from(keys.position(|key| *key == Some(device))?).ok()
}

/// One device the program sees, in the order it sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visible {
    /// UUID in memory order.
    pub(crate) uuid: [u8; 16],
    /// Physical bytes.
    pub(crate) capacity: u64,
}

/// Why the devices are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// There are more of them than a tenant has room for.
    Many(usize),
    /// The driver's function failed with this code.
    Driver(&'static str, u32),
}

/// All devices the driver shows this process, in its order.
///
/// # Errors
/// [`Unknown`].
pub(crate) fn enumerate() -> Result<Vec<Visible>, Unknown> {
    let count = said("cuDeviceGetCount", calls::device_count())?;
    let count = usize::try_from(count).unwrap_or(0);
    if count > MAX_DEVICES {
        return Err(Unknown::Many(count));
    }
    (0..).take(count).map(visible).collect()
}

fn visible(ordinal: i32) -> Result<Visible, Unknown> {
    let device = said("cuDeviceGet", calls::device(ordinal))?;
    let capacity = said("cuDeviceTotalMem_v2", calls::total_memory(device))?;
    Ok(Visible {
        uuid: uuid(device)?,
        capacity: capacity as u64,
    })
}

/// The UUID. `_v2`, where the driver has it, names the MIG instance rather than the card it is part
/// of.
fn uuid(device: CUdevice) -> Result<[u8; 16], Unknown> {
    let uuid = match calls::device_uuid(device) {
        Err(CUresult::NOT_FOUND) => calls::card_uuid(device),
        answer => answer,
    };
    let uuid = said("cuDeviceGetUuid", uuid)?;
    Ok(uuid.bytes.map(c_char::cast_unsigned))
}

fn said<T>(function: &'static str, answer: Result<T, CUresult>) -> Result<T, Unknown> {
    answer.map_err(|code| Unknown::Driver(function, code.0))
}
