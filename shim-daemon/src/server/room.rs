//! The room that a daemon's settings leave on its devices.

use crate::devices::Device;
use crate::node::Settings;

/// Reports devices without memory left for tenants.
///
/// # Errors
/// If that holds for all devices: no tenant could ever run.
pub(super) fn left(devices: &[Device], settings: &Settings) -> Result<(), String> {
    let capacity = |device: &Device| device.capacity_under(settings.capacity);
    let none_left = |device: &&Device| capacity(device) <= settings.reserve;
    let empty: Vec<String> = devices
        .iter()
        .filter(none_left)
        .map(|device| {
            let (had, reserve) = (capacity(device).human(), settings.reserve.human());
            let uuid = device.text();
            format!(
                "reserve = {reserve} leaves nothing of the {had} of {uuid} ({})",
                device.name
            )
        })
        .collect();
    if !empty.is_empty() && empty.len() == devices.len() {
        return Err(format!("{}; give a smaller reserve", empty.join("; ")));
    }
    for text in empty {
        tracing::warn!("{text}: nothing can run there");
    }
    Ok(())
}
