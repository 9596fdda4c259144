//! Memory for the contexts of this process, which the daemon sets aside.

use super::backend::Backend;
use super::{Refused, member, room};
use crate::driver::device::DeviceKey;
use crate::session::{Deadline, Opening, Session, Waiting};

fn session() -> Option<&'static Session> {
    match member()?.backend {
        Backend::Daemon(session) => Some(session),
        Backend::File(_) => None,
    }
}

/// Has the daemon set memory aside for a context on `device`, until the answer is dropped: for its
/// primary one, which serves all calls that need it meanwhile, or for one of the call's own. The
/// thread waits for room as `waiting` says. No effect without a daemon. The gate follows the leases
/// from then on (`gate::follow_leases`, which the caller calls).
///
/// # Errors
/// [`Refused`] if there is no room, now or within the tenant's time to wait.
pub(crate) fn open(
    device: DeviceKey,
    is_primary: bool,
    waiting: Waiting,
    call: &Deadline,
) -> Result<Opening, Refused> {
    let Some(session) = session() else {
        return Ok(Opening::nothing());
    };
    let opening = session.open(device.index(), is_primary, room::here(waiting), call);
    opening.ok_or(Refused)
}

/// Whether a context on `device` was asked for, and there is one.
pub(crate) fn is_open(device: DeviceKey) -> bool {
    session().is_some_and(|session| session.is_open(device.index()))
}

/// The process has no context on `device`, if that `is_so`.
pub(crate) fn no_context(device: DeviceKey, is_so: impl Fn() -> bool) {
    if let Some(session) = session() {
        session.no_context(device.index(), is_so);
    }
}
