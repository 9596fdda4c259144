//! How busy a device is, its power and its temperature, for people. Nothing is decided by them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nvml_wrapper::enum_wrappers::device::TemperatureSensor;

/// The shortest time between two questions about a device: looks may follow each other within
/// milliseconds, and a board may take one to read its sensors.
const APART: Duration = Duration::from_millis(900);

/// A device as NVML shows it. `None` where it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The part of the last sample's time in which kernels ran, in percent.
    pub busy: Option<u32>,
    /// The power that the board draws, in watts.
    pub watts: Option<u32>,
    /// Its temperature, in degrees Celsius.
    pub celsius: Option<u32>,
}

/// The last question about each device, by the device's number.
#[derive(Debug, Default)]
pub(super) struct Asked(BTreeMap<usize, Instant>);

impl Asked {
    /// Asks about a device, if that was not done lately.
    pub(super) fn look(
        &mut self,
        index: usize,
        device: &nvml_wrapper::Device<'_>,
    ) -> Option<Health> {
        let now = Instant::now();
        let last = self.0.get(&index);
        if last.is_some_and(|at| now.duration_since(*at) < APART) {
            return None;
        }
        self.0.insert(index, now);
        let milliwatts = device.power_usage().ok();
        Some(Health {
            busy: device.utilization_rates().ok().map(|rates| rates.gpu),
            watts: milliwatts.map(|milliwatts| (milliwatts + 500) / 1000),
            celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        })
    }
}
