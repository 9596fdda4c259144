//! The default pool and the current pool of each place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{
    CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPoolProps, CUresult,
};

use super::{Pool, get, home};
use crate::Result;
use crate::world::Device;

/// A place: allocation type, type of location, its number.
type Key = (u32, u32, i32);

/// The pools of one place.
#[derive(Debug)]
struct Slots {
    default: Arc<Pool>,
    current: Option<Arc<Pool>>,
}

static SLOTS: Mutex<BTreeMap<Key, Slots>> = Mutex::new(BTreeMap::new());

fn slots() -> MutexGuard<'static, BTreeMap<Key, Slots>> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(props: &CUmemPoolProps) -> Key {
    let place = home::plain(props.location, props.allocType).location;
    (props.allocType.0, place.type_.0, place.id)
}

/// Calls `of` with the pools of a place. The default pool is made when it is asked for first.
fn with<T>(props: &CUmemPoolProps, of: impl FnOnce(&mut Slots) -> T) -> Result<T> {
    let (device, home) = home::of(props)?;
    let mut slots = slots();
    let slots = slots.entry(key(props)).or_insert_with(|| Slots {
        default: Pool::enter(&device, home, *props, true, None),
        current: None,
    });
    Ok(of(slots))
}

/// The location of a device's own pools.
pub(super) fn on(device: &Device) -> CUmemPoolProps {
    let location = CUmemLocation {
        type_: CUmemLocationType::DEVICE,
        id: i32::try_from(device.ordinal()).unwrap_or(0),
    };
    home::plain(location, CUmemAllocationType::PINNED)
}

fn default_of(props: &CUmemPoolProps) -> Result<Arc<Pool>> {
    with(props, |slots| Arc::clone(&slots.default))
}

fn current_of(props: &CUmemPoolProps) -> Result<Arc<Pool>> {
    with(props, |slots| {
        Arc::clone(slots.current.as_ref().unwrap_or(&slots.default))
    })
}

fn set_current_of(props: &CUmemPoolProps, handle: usize) -> Result {
    let pool = get(handle)?;
    if key(&pool.props.0) != key(props) || pool.imported.is_some() {
        return Err(CUresult::INVALID_VALUE);
    }
    with(props, |slots| slots.current = Some(pool))
}

/// A device's default pool.
///
/// # Errors
/// None that a device of this process causes.
pub fn default(device: &Device) -> Result<Arc<Pool>> {
    default_of(&on(device))
}

/// A device's current pool: plain stream-ordered allocations use it.
///
/// # Errors
/// As [`default`].
pub fn current(device: &Device) -> Result<Arc<Pool>> {
    current_of(&on(device))
}

/// Sets a device's current pool.
///
/// # Errors
/// `INVALID_VALUE` for a pool that is not of this device's memory, or of another process.
pub fn set_current(device: &Device, handle: usize) -> Result {
    set_current_of(&on(device), handle)
}

/// The default pool of a location and allocation type.
///
/// # Errors
/// As [`super::create`] for a pool with these properties.
pub fn default_at(location: CUmemLocation, kind: CUmemAllocationType) -> Result<Arc<Pool>> {
    default_of(&home::plain(location, kind))
}

/// The current pool of a location and allocation type.
///
/// # Errors
/// As [`default_at`].
pub fn current_at(location: CUmemLocation, kind: CUmemAllocationType) -> Result<Arc<Pool>> {
    current_of(&home::plain(location, kind))
}

/// Sets the current pool of a location and allocation type.
///
/// # Errors
/// As [`default_at`]; `INVALID_VALUE` for a pool of another place or of another process.
pub fn set_current_at(location: CUmemLocation, kind: CUmemAllocationType, handle: usize) -> Result {
    let props = home::plain(location, kind);
    home::of(&props)?;
    set_current_of(&props, handle)
}

/// A pool is destroyed. Where it was current, the default pool is again. Of the host on no
/// particular node a real driver tells neither that nor the destroyed one, but the default pool of
/// the first device.
pub(super) fn gone(pool: &Pool) {
    let of_host = pool.props.0.location.type_ == CUmemLocationType::HOST;
    let first = CUmemLocation {
        type_: CUmemLocationType::DEVICE,
        id: 0,
    };
    let next = of_host
        .then(|| default_at(first, CUmemAllocationType::PINNED).ok())
        .flatten();
    for slots in slots().values_mut() {
        let is_it = |current: &Arc<Pool>| current.handle == pool.handle;
        if slots.current.as_ref().is_some_and(is_it) {
            slots.current.clone_from(&next);
        }
    }
}
