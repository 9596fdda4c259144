//! A program asks to share memory that can move, with another process or a device on the bus: what
//! would refer to it cannot follow a move, so it is refused. The daemon is told once, by the
//! mover's thread, so that an operator learns of it.
//!
//! In a forked child there is no such memory, and no such thread.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::thread;
use crate::account;
use crate::driver::device::DeviceKey;
use crate::session::Session;

/// The device of the first such memory, and one more; 0 for none.
static FIRST: AtomicU32 = AtomicU32::new(0);
/// The daemon was told.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Such a call was refused. Neither waits nor calls the driver.
#[cold]
pub(crate) fn refused(device: DeviceKey) {
    let place = u32::try_from(device.index()).unwrap_or(0) + 1;
    let first = FIRST.compare_exchange(0, place, Ordering::AcqRel, Ordering::Relaxed);
    if first.is_err() {
        return;
    }
    tracing::warn!("memory that can move is not shared with other processes");
    if let Some(session) = account::compute().and_then(|compute| compute.session) {
        thread::wake(session);
    }
}

/// Tells the daemon, if there is something to tell and one that hears it. For the mover's thread.
pub(super) fn tell(session: &Session) {
    let device = FIRST.load(Ordering::Acquire).checked_sub(1);
    let device = device.and_then(|index| u8::try_from(index).ok());
    if let Some(device_index) = device
        && !TOLD.load(Ordering::Relaxed)
        && session.says_unshared(device_index)
    {
        TOLD.store(true, Ordering::Relaxed);
    }
}
