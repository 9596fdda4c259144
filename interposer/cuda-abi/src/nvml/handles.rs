//! Handles NVML gives out.

use crate::abi::handles;

handles! {
    /// A device, or a MIG device.
    nvmlDevice_t;
    /// A GPU instance of a device in MIG mode.
    nvmlGpuInstance_t;
    /// A compute instance of a GPU instance.
    nvmlComputeInstance_t;
    /// An S-class unit.
    nvmlUnit_t;
    /// A set of events to wait for.
    nvmlEventSet_t;
    /// A set of system events to wait for.
    nvmlSystemEventSet_t;
    /// A sample of the performance monitors.
    nvmlGpmSample_t;
}
