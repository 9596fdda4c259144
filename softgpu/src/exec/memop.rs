//! Memory operations in stream order: write a value, wait for a value, reduce a value into memory.

use std::sync::{Arc, OnceLock};

use gpushare_cuda_abi::cuda::{
    CUresult, CUstreamAtomicReductionDataType, CUstreamAtomicReductionOpType,
    CUstreamWaitValue_flags,
};

use super::{Effect, StreamRef, ValueWait, Work, enqueue, threads};
use crate::context::Context;
use crate::error::Result;
use crate::graph::capture;
use crate::memory;
use crate::module::kernels::access::{Cell, DeviceSlice};
use crate::va::{self, Access};

/// The maximum number of operations in a batch.
pub const MOST: usize = 256;

/// The width of the value in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 32 bits.
    Four,
    /// 64 bits.
    Eight,
}

impl Width {
    /// Bytes.
    const fn bytes(self) -> u64 {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

/// One operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemOp {
    /// The stream waits until the comparison with the value at the address holds.
    Wait {
        /// The address.
        addr: u64,
        /// The value to compare with.
        value: u64,
        /// The value's width.
        width: Width,
        /// The comparison: `CU_STREAM_WAIT_VALUE_*`.
        flags: u32,
    },
    /// Writes the value.
    Write {
        /// The address.
        addr: u64,
        /// The value.
        value: u64,
        /// The value's width.
        width: Width,
    },
    /// Combines the value into memory.
    Reduce {
        /// The address.
        addr: u64,
        /// The operand.
        value: u64,
        /// The value's width.
        width: Width,
        /// The operation.
        with: CUstreamAtomicReductionOpType,
    },
    /// Orders memory accesses. No effect here: accesses are always ordered.
    Barrier,
}

impl MemOp {
    /// The width of a reduction's data type.
    ///
    /// # Errors
    /// `INVALID_VALUE` for an unknown data type.
    pub fn width_of(data: CUstreamAtomicReductionDataType) -> Result<Width> {
        match data {
            CUstreamAtomicReductionDataType::UNSIGNED_32 => Ok(Width::Four),
            CUstreamAtomicReductionDataType::UNSIGNED_64 => Ok(Width::Eight),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    /// Whether the operation's address, flags and reduction are legal.
    ///
    /// # Errors
    /// `INVALID_VALUE` if not, `NOT_SUPPORTED` for a flush of remote writes.
    fn check(&self, context: &Context) -> Result {
        let (addr, width, access) = match *self {
            Self::Wait {
                addr, width, flags, ..
            } => {
                if flags & !(3 | CUstreamWaitValue_flags::FLUSH.0) != 0 {
                    return Err(CUresult::INVALID_VALUE);
                }
                // The attribute `CAN_FLUSH_REMOTE_WRITES` is 0.
                if flags & CUstreamWaitValue_flags::FLUSH.0 != 0 {
                    return Err(CUresult::NOT_SUPPORTED);
                }
                (addr, width, Access::Read)
            }
            Self::Write { addr, width, .. } => (addr, width, Access::Write),
            Self::Reduce {
                addr, width, with, ..
            } => {
                use CUstreamAtomicReductionOpType as R;
                if ![R::OR, R::AND, R::ADD].contains(&with) {
                    return Err(CUresult::INVALID_VALUE);
                }
                (addr, width, Access::Write)
            }
            Self::Barrier => return Ok(()),
        };
        let bytes = width.bytes();
        if !addr.is_multiple_of(bytes) {
            return Err(CUresult::INVALID_VALUE);
        }
        // Of memory in stream order the address is known now, and the rights when the work runs.
        if memory::comes(addr, bytes) {
            return Ok(());
        }
        va::check(context.device().ordinal(), addr, bytes, access)
            .map_err(|_| CUresult::INVALID_VALUE)
    }
}

/// Whether a batch can be submitted in `context`.
///
/// # Errors
/// `INVALID_VALUE` if there are too many operations or one is not legal, `NOT_SUPPORTED` for a
/// flush of remote writes.
pub fn check(context: &Context, ops: &[MemOp]) -> Result {
    if ops.len() > MOST {
        return Err(CUresult::INVALID_VALUE);
    }
    ops.iter().try_for_each(|op| op.check(context))
}

/// Submits a batch, or records it if the stream captures. The operations of a batch run in order.
///
/// # Errors
/// As [`check`] (then no operation is submitted); the errors of capture.
pub fn batch(stream: &StreamRef, ops: &[MemOp]) -> Result {
    let context = stream.context();
    check(context, ops)?;
    if capture::record_mem_ops(stream, ops)? {
        return Ok(());
    }
    threads::ensure()?;
    for op in ops {
        let (work, effect) = lower(context, *op);
        enqueue(stream, Vec::new(), work, effect, None);
    }
    Ok(())
}

/// The work and the effect of an operation on the timeline.
pub(crate) fn lower(context: &Arc<Context>, op: MemOp) -> (Work, Option<Effect>) {
    let context = Arc::clone(context);
    match op {
        MemOp::Barrier => (Work::Instant, None),
        MemOp::Wait {
            addr,
            value,
            width,
            flags,
        } => {
            // The wait of an address that has no memory ends, as a fault.
            let fault = Arc::new(OnceLock::new());
            let seen_by = Arc::clone(&fault);
            let come = move || match read(&context, addr, width) {
                Ok(seen) => compares(seen, value, width, flags),
                // It is allocated before in this order, and not written yet.
                Err(_) if memory::comes(addr, width.bytes()) => false,
                Err(error) => {
                    let _first = seen_by.set(error);
                    true
                }
            };
            let effect = move || fault.get().map_or(Ok(()), |error| Err(*error));
            (Work::Value(ValueWait::new(come)), Some(Arc::new(effect)))
        }
        write => (
            Work::Instant,
            Some(Arc::new(move || perform(&context, write))),
        ),
    }
}

fn read(context: &Context, addr: u64, width: Width) -> Result<u64> {
    let _still = memory::still();
    Ok(match width {
        Width::Four => u64::from(DeviceSlice::<u32>::new(context, addr, 1, Access::Read)?.get(0)),
        Width::Eight => DeviceSlice::<u64>::new(context, addr, 1, Access::Read)?.get(0),
    })
}

/// The comparisons of `CUstreamWaitValue_flags`. GEQ is cyclic, as documented.
fn compares(seen: u64, value: u64, width: Width, flags: u32) -> bool {
    let (mask, sign) = match width {
        Width::Four => (u64::from(u32::MAX), 1 << 31),
        Width::Eight => (u64::MAX, 1 << 63),
    };
    match CUstreamWaitValue_flags(flags & 3) {
        CUstreamWaitValue_flags::EQ => seen == value & mask,
        CUstreamWaitValue_flags::AND => seen & value != 0,
        CUstreamWaitValue_flags::NOR => !(seen | value) & mask != 0,
        _ => seen.wrapping_sub(value) & sign == 0,
    }
}

fn perform(context: &Context, op: MemOp) -> Result {
    let _still = memory::still();
    match op {
        MemOp::Write {
            addr,
            value,
            width: Width::Four,
        } => update::<u32>(context, addr, |_| low(value)),
        MemOp::Write {
            addr,
            value,
            width: Width::Eight,
        } => update::<u64>(context, addr, |_| value),
        MemOp::Reduce {
            addr,
            value,
            width: Width::Four,
            with,
        } => update::<u32>(context, addr, |old| {
            low(reduce(u64::from(old), value, with))
        }),
        MemOp::Reduce {
            addr,
            value,
            width: Width::Eight,
            with,
        } => update::<u64>(context, addr, |old| reduce(old, value, with)),
        MemOp::Wait { .. } | MemOp::Barrier => Ok(()),
    }
}

fn update<T: Cell>(context: &Context, addr: u64, new: impl Fn(T) -> T) -> Result {
    let cell = DeviceSlice::<T>::new(context, addr, 1, Access::Write)?;
    cell.set(0, new(cell.get(0)));
    Ok(())
}

fn reduce(old: u64, value: u64, with: CUstreamAtomicReductionOpType) -> u64 {
    match with {
        CUstreamAtomicReductionOpType::OR => old | value,
        CUstreamAtomicReductionOpType::AND => old & value,
        _ => old.wrapping_add(value),
    }
}

fn low(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_are_cyclic_bitwise_and_as_wide_as_the_value() {
        let geq = CUstreamWaitValue_flags::GEQ.0;
        assert!(compares(1, u64::from(u32::MAX), Width::Four, geq));
        assert!(!compares(u64::from(u32::MAX), 1, Width::Four, geq));
        assert!(compares(5, 5, Width::Eight, CUstreamWaitValue_flags::EQ.0));
        assert!(!compares(
            4,
            3,
            Width::Eight,
            CUstreamWaitValue_flags::AND.0
        ));
        assert!(!compares(
            u64::from(u32::MAX),
            0,
            Width::Four,
            CUstreamWaitValue_flags::NOR.0
        ));
        assert!(compares(0, 1, Width::Four, CUstreamWaitValue_flags::NOR.0));
    }
}
