//! Memory operations in stream order.
//!
//! # Safety
//! `unsafe` reads a batch entry through the union member that its operation selects.
#![allow(unsafe_code, reason = "batch entries are a C union")]

use gpushare_cuda_abi::cuda::{
    CUdeviceptr, CUresult, CUstream, CUstreamBatchMemOpParams, CUstreamBatchMemOpType,
};
use softgpu::Result;
use softgpu::exec::DefaultStream;
use softgpu::exec::memop::{self, MemOp, Width};

use super::stream::here;
use crate::abi::inputs;

fn one(default: DefaultStream, stream: CUstream, op: MemOp) -> Result {
    memop::batch(&here(default, stream)?, &[op])
}

/// A batch as the caller passes it.
pub(super) fn read(
    count: u32,
    ops: *mut CUstreamBatchMemOpParams,
    flags: u32,
) -> Result<Vec<MemOp>> {
    let count = usize::try_from(count).map_err(|_| CUresult::INVALID_VALUE)?;
    if flags != 0 || count > memop::MOST {
        return Err(CUresult::INVALID_VALUE);
    }
    inputs(ops.cast_const(), count)?
        .iter()
        .map(decode)
        .collect()
}

fn many(
    default: DefaultStream,
    stream: CUstream,
    count: u32,
    ops: *mut CUstreamBatchMemOpParams,
    flags: u32,
) -> Result {
    let stream = here(default, stream)?;
    memop::batch(&stream, &read(count, ops, flags)?)
}

fn decode(op: &CUstreamBatchMemOpParams) -> Result<MemOp> {
    // SAFETY: `operation` is the first field of every member, and selects the member that the
    // caller filled in.
    unsafe {
        Ok(match op.operation {
            CUstreamBatchMemOpType::WAIT_VALUE_32 => {
                let wait = op.waitValue;
                MemOp::Wait {
                    addr: wait.address,
                    value: wait.anon.value.into(),
                    width: Width::Four,
                    flags: wait.flags,
                }
            }
            CUstreamBatchMemOpType::WAIT_VALUE_64 => {
                let wait = op.waitValue;
                MemOp::Wait {
                    addr: wait.address,
                    value: wait.anon.value64,
                    width: Width::Eight,
                    flags: wait.flags,
                }
            }
            CUstreamBatchMemOpType::WRITE_VALUE_32 => MemOp::Write {
                addr: op.writeValue.address,
                value: op.writeValue.anon.value.into(),
                width: Width::Four,
            },
            CUstreamBatchMemOpType::WRITE_VALUE_64 => MemOp::Write {
                addr: op.writeValue.address,
                value: op.writeValue.anon.value64,
                width: Width::Eight,
            },
            CUstreamBatchMemOpType::ATOMIC_REDUCTION => {
                let reduce = op.atomicReduction;
                let width = MemOp::width_of(reduce.dataType)?;
                MemOp::Reduce {
                    addr: reduce.address,
                    value: reduce.value,
                    width,
                    with: reduce.reductionOp,
                }
            }
            CUstreamBatchMemOpType::BARRIER => MemOp::Barrier,
            // The attribute `CAN_FLUSH_REMOTE_WRITES` is 0.
            CUstreamBatchMemOpType::FLUSH_REMOTE_WRITES => return Err(CUresult::NOT_SUPPORTED),
            _ => return Err(CUresult::INVALID_VALUE),
        })
    }
}

driver! {
    fn cuStreamWaitValue32 twin cuStreamWaitValue32_ptsz (d: DefaultStream; stream: CUstream, addr: CUdeviceptr, value: u32, flags: u32) {
        one(d, stream, MemOp::Wait { addr, value: value.into(), width: Width::Four, flags })
    }

    fn cuStreamWaitValue32_v2 twin cuStreamWaitValue32_v2_ptsz (d: DefaultStream; stream: CUstream, addr: CUdeviceptr, value: u32, flags: u32) {
        one(d, stream, MemOp::Wait { addr, value: value.into(), width: Width::Four, flags })
    }

    fn cuStreamWaitValue64 twin cuStreamWaitValue64_ptsz (d: DefaultStream; stream: CUstream, addr: CUdeviceptr, value: u64, flags: u32) {
        one(d, stream, MemOp::Wait { addr, value, width: Width::Eight, flags })
    }

    fn cuStreamWaitValue64_v2 twin cuStreamWaitValue64_v2_ptsz (d: DefaultStream; stream: CUstream, addr: CUdeviceptr, value: u64, flags: u32) {
        one(d, stream, MemOp::Wait { addr, value, width: Width::Eight, flags })
    }

    fn cuStreamWriteValue32 twin cuStreamWriteValue32_ptsz (d: DefaultStream; stream: CUstream, addr: CUdeviceptr, value: u32, _flags: u32) {
        one(d, stream, MemOp::Write { addr, value: value.into(), width: Width::Four })
    }

    fn cuStreamWriteValue32_v2 twin cuStreamWriteValue32_v2_ptsz (d: DefaultStream; stream: CUstream, addr: CUdeviceptr, value: u32, _flags: u32) {
        one(d, stream, MemOp::Write { addr, value: value.into(), width: Width::Four })
    }

    fn cuStreamWriteValue64 twin cuStreamWriteValue64_ptsz (d: DefaultStream; stream: CUstream, addr: CUdeviceptr, value: u64, _flags: u32) {
        one(d, stream, MemOp::Write { addr, value, width: Width::Eight })
    }

    fn cuStreamWriteValue64_v2 twin cuStreamWriteValue64_v2_ptsz (d: DefaultStream; stream: CUstream, addr: CUdeviceptr, value: u64, _flags: u32) {
        one(d, stream, MemOp::Write { addr, value, width: Width::Eight })
    }

    fn cuStreamBatchMemOp twin cuStreamBatchMemOp_ptsz (d: DefaultStream; stream: CUstream, count: u32, ops: *mut CUstreamBatchMemOpParams, flags: u32) {
        many(d, stream, count, ops, flags)
    }

    fn cuStreamBatchMemOp_v2 twin cuStreamBatchMemOp_v2_ptsz (d: DefaultStream; stream: CUstream, count: u32, ops: *mut CUstreamBatchMemOpParams, flags: u32) {
        many(d, stream, count, ops, flags)
    }
}
