//! Batches of copies, and copies with an attribute for the time at which the source may be read.

use gpushare_cuda_abi::cuda::{
    CU_STREAM_LEGACY, CUdeviceptr, CUmemcpyAttributes, CUmemcpySrcAccessOrder, CUresult, CUstream,
};
use softgpu::exec::DefaultStream;
use softgpu::memory::Place;
use softgpu::memory::copy::SourceOrder;
use softgpu::{Result, context};

use super::copy::line;
use crate::abi::{input, inputs, out_if};

driver! {
    fn cuMemcpyBatchAsync twin cuMemcpyBatchAsync_ptsz (d: DefaultStream; dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize, stream: CUstream) {
        out_if(fail_idx, usize::MAX);
        let batch = Batch::read(dsts, srcs, sizes, count, attrs, attrs_idxs, num_attrs)?;
        batch.submit(d, stream, |failed| out_if(fail_idx, failed))
    }
    /// This version has no output for the index of the failed copy.
    fn cuMemcpyBatchAsync_v2 twin cuMemcpyBatchAsync_v2_ptsz (d: DefaultStream; dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, stream: CUstream) {
        Batch::read(dsts, srcs, sizes, count, attrs, attrs_idxs, num_attrs)?.submit(d, stream, |_| {})
    }
    fn cuMemcpyWithAttributesAsync twin cuMemcpyWithAttributesAsync_ptsz (d: DefaultStream; dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: *mut CUmemcpyAttributes, stream: CUstream) {
        let order = order(&input(attr)?)?;
        line(Place::unified(dst), Place::unified(src), size).ordered(&context::current()?, stream, d, order)
    }
}

/// Copies, each with the time at which its source may be read.
struct Batch(Vec<(CUdeviceptr, CUdeviceptr, usize, SourceOrder)>);

impl Batch {
    fn read(
        dsts: *mut CUdeviceptr,
        srcs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attrs: *mut CUmemcpyAttributes,
        attrs_idxs: *mut usize,
        num_attrs: usize,
    ) -> Result<Self> {
        if count == 0 || num_attrs == 0 || num_attrs > count {
            return Err(CUresult::INVALID_VALUE);
        }
        let (dsts, srcs, sizes) = (
            inputs(dsts, count)?,
            inputs(srcs, count)?,
            inputs(sizes, count)?,
        );
        let starts = inputs(attrs_idxs, num_attrs)?;
        if starts[0] != 0 || !starts.is_sorted_by(|a, b| a < b) || starts[num_attrs - 1] >= count {
            return Err(CUresult::INVALID_VALUE);
        }
        let orders = inputs(attrs, num_attrs)?
            .iter()
            .map(order)
            .collect::<Result<Vec<_>>>()?;
        let of = |n: usize| orders[starts.partition_point(|start| *start <= n) - 1];
        Ok(Self(
            (0..count)
                .map(|n| (dsts[n], srcs[n], sizes[n], of(n)))
                .collect(),
        ))
    }

    /// Submits all copies. The copies of a batch are unordered, so the order of the array is legal.
    fn submit(self, default: DefaultStream, stream: CUstream, failed: impl Fn(usize)) -> Result {
        let context = context::current()?;
        let legacy =
            stream == CU_STREAM_LEGACY || stream.is_null() && default == DefaultStream::Legacy;
        if legacy {
            return Err(CUresult::INVALID_VALUE);
        }
        let copies: Vec<_> = self
            .0
            .into_iter()
            .map(|(dst, src, size, order)| {
                let copy = line(Place::unified(dst), Place::unified(src), size);
                (copy.of(&context), order)
            })
            .collect();
        for (n, (copy, _)) in copies.iter().enumerate() {
            copy.check().inspect_err(|_| failed(n))?;
        }
        copies
            .into_iter()
            .try_for_each(|(copy, order)| copy.ordered(&context, stream, default, order))
    }
}

fn order(attributes: &CUmemcpyAttributes) -> Result<SourceOrder> {
    match attributes.srcAccessOrder {
        CUmemcpySrcAccessOrder::STREAM => Ok(SourceOrder::Stream),
        CUmemcpySrcAccessOrder::DURING_API_CALL => Ok(SourceOrder::DuringCall),
        CUmemcpySrcAccessOrder::ANY => Ok(SourceOrder::Any),
        _ => Err(CUresult::INVALID_VALUE),
    }
}
