//! The room for tenants that a file of settings leaves by itself.

use crate::node::Settings;

/// Refuses settings that leave no memory for tenants on a device of any size.
pub(super) fn check(settings: &Settings) -> Result<(), String> {
    let reserve = settings.reserve;
    match settings.capacity {
        Some(capacity) if capacity <= reserve => Err(format!(
            "reserve = {} leaves nothing of capacity = {}; give a smaller reserve",
            reserve.human(),
            capacity.human()
        )),
        _ => Ok(()),
    }
}
