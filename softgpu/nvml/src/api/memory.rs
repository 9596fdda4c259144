//! Memory of a device.

use gpushare_cuda_abi::nvml::{
    nvmlBAR1Memory_t, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlReturn_t, struct_version,
};

use crate::abi::{input, out, required};
use crate::library::{device as look, monitor};

nvml! {
    fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) {
        required(memory)?;
        let now = look(device)?;
        let (reserved, free) = (monitor()?.spec().reserved, now.capacity - now.used_physical);
        out(memory, nvmlMemory_t { total: now.capacity + reserved, free, used: now.used_physical + reserved })
    }
    fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) {
        let version = input(memory.cast::<u32>())?;
        if version != struct_version::<nvmlMemory_v2_t>(2) {
            return Err(nvmlReturn_t::ARGUMENT_VERSION_MISMATCH);
        }
        let now = look(device)?;
        let (reserved, used) = (monitor()?.spec().reserved, now.used_physical);
        let (total, free) = (now.capacity + reserved, now.capacity - used);
        out(memory, nvmlMemory_v2_t { version, total, reserved, free, used })
    }
    /// The BAR1 window has the size of the memory, rounded up to a power of two, and no memory is
    /// mapped in it.
    fn nvmlDeviceGetBAR1MemoryInfo(device: nvmlDevice_t, memory: *mut nvmlBAR1Memory_t) {
        required(memory)?;
        let total = look(device)?.capacity.next_power_of_two();
        out(memory, nvmlBAR1Memory_t { bar1Total: total, bar1Free: total, bar1Used: 0 })
    }
}
