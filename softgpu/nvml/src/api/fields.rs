//! Field values: one number each, asked for by number (`nvmlDeviceGetFieldValues`).
//!
//! A field that an H200 answers and softgpu has no model of is `NOT_SUPPORTED`: links (there are
//! none), counted bytes of the bus, temperatures relative to a limit.

use gpushare_cuda_abi::nvml::{
    nvmlDevice_t, nvmlFieldValue_t, nvmlReturn_t, nvmlValue_t, nvmlValueType_t,
};

use super::health::energy_mj;
use super::state::{POWER, POWER_LEAST, POWER_MOST, TEMPERATURE};
use crate::abi::{inputs, outputs};
use crate::library::{Result, index, monitor};

/// The first number that is no field (CUDA 12.9).
const MAX: u32 = 274;
/// From this CUDA version on the driver counts why clocks were slow under the second numbers below
/// (releases from 580.82 on; of the releases in `facts` the first is 590).
const RENUMBERED: u32 = 13_010;
const SLOWED: [std::ops::RangeInclusive<u32>; 2] = [251..=253, 269..=271];

/// A field's number.
enum Value {
    Int(u32),
    Long(u64),
}

nvml! {
    fn nvmlDeviceGetFieldValues(device: nvmlDevice_t, count: i32, values: *mut nvmlFieldValue_t) {
        let index = index(device)?;
        let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(nvmlReturn_t::INVALID_ARGUMENT)?;
        let driver = monitor()?.spec().driver;
        let now = softgpu::watch::epoch_us();
        let mut fields = inputs(values, count)?;
        for field in &mut fields {
            field.timestamp = i64::try_from(now).unwrap_or(i64::MAX);
            field.latencyUsec = 0;
            field.nvmlReturn = nvmlReturn_t::SUCCESS;
            match value(index, field.fieldId, driver) {
                Ok(Value::Int(number)) => {
                    (field.valueType, field.value) = (nvmlValueType_t::UNSIGNED_INT, nvmlValue_t { ullVal: u64::from(number) });
                }
                Ok(Value::Long(number)) => {
                    (field.valueType, field.value) = (nvmlValueType_t::UNSIGNED_LONG_LONG, nvmlValue_t { ullVal: number });
                }
                Err(error) => field.nvmlReturn = error,
            }
        }
        outputs(values, &fields)
    }
}

/// The value of one field.
///
/// # Errors
/// `INVALID_ARGUMENT` for a number that is no field, `NOT_SUPPORTED`.
fn value(index: u32, field: u32, driver: u32) -> Result<Value> {
    let slowed = &SLOWED[usize::from(driver >= RENUMBERED)];
    Ok(match field {
        // The modes of error correction, now and after the next reset.
        1 | 2 => Value::Int(1),
        // Errors in all memory and in device memory, since the start and ever.
        3..=6 | 11 | 12 | 22 | 23 => Value::Long(0),
        // Times for which clocks were held down.
        74..=81 => Value::Long(0),
        82 => Value::Int(TEMPERATURE),
        83 | 191 => Value::Long(energy_mj(index)?),
        // Errors on the bus.
        94 | 95 | 169 | 173..=183 => Value::Int(0),
        // Remapped rows: corrected, uncorrected, pending, failed.
        142..=145 => Value::Int(0),
        185 | 186 => Value::Int(POWER),
        187 => Value::Int(POWER_LEAST),
        188..=190 | 192 => Value::Int(POWER_MOST),
        // No reset is due, and no recovery.
        226 | 227 | 230 => Value::Int(0),
        _ if slowed.contains(&field) => Value::Long(0),
        MAX.. => return Err(nvmlReturn_t::INVALID_ARGUMENT),
        _ => return Err(nvmlReturn_t::NOT_SUPPORTED),
    })
}
