//! Parameters of graph nodes: conversion between the API's structs and a node's work.
//!
//! # Safety
//! `unsafe` passes kernel parameters on under the contract of `cuLaunchKernel`, and reads the
//! generic parameters through the union member that their type selects.
#![allow(
    unsafe_code,
    reason = "kernel parameters and node parameters are C unions and pointers"
)]

use std::ffi::c_char;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUDA_HOST_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEM_ALLOC_NODE_PARAMS_v1, CUDA_MEMCPY3D_v2,
    CUDA_MEMSET_NODE_PARAMS_v1, CUDA_MEMSET_NODE_PARAMS_v2, CUcontext, CUevent, CUfunction,
    CUgraph, CUgraphChildGraphNodeOwnership, CUgraphNodeParams, CUgraphNodeType, CUkernel,
    CUlaunchAttributeValue, CUresult, CUstreamBatchMemOpParams,
};
use softgpu::Result;
use softgpu::context::Context;
use softgpu::exec::{Cost, HostCall, Kind, Op, event, memop};
use softgpu::graph::store::NodeWork;
use softgpu::memory;
use softgpu::module::{self, Launch, Params, Shape};

use super::graph::context_of;

/// A node's work and its context.
pub(super) type Placed = (NodeWork, Option<Arc<Context>>);

pub(super) fn kernel_v1(params: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    let CUDA_KERNEL_NODE_PARAMS_v1 {
        func,
        gridDimX,
        gridDimY,
        gridDimZ,
        blockDimX,
        blockDimY,
        blockDimZ,
        sharedMemBytes,
        kernelParams,
        extra,
    } = *params;
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func,
        gridDimX,
        gridDimY,
        gridDimZ,
        blockDimX,
        blockDimY,
        blockDimZ,
        sharedMemBytes,
        kernelParams,
        extra,
        kern: CUkernel::NULL,
        ctx: CUcontext::NULL,
    }
}

pub(super) fn kernel(params: &CUDA_KERNEL_NODE_PARAMS_v2) -> Result<Placed> {
    let context = context_of(params.ctx)?;
    let handle = if params.func.is_null() {
        CUfunction(params.kern.0)
    } else {
        params.func
    };
    let function = module::function(&context, handle)?;
    let grid = [params.gridDimX, params.gridDimY, params.gridDimZ];
    let block = [params.blockDimX, params.blockDimY, params.blockDimZ];
    // SAFETY: by the contract of the node functions the parameters match this kernel.
    let read = unsafe { Params::read(&function.copied(), params.kernelParams, params.extra) }?;
    let context = Arc::clone(function.context());
    let launch = Launch::new(
        function,
        Shape::new(grid, block, params.sharedMemBytes),
        read,
    )?;
    Ok((NodeWork::Op(Arc::new(launch.op())), Some(context)))
}

pub(super) fn kernel_back(launch: &Launch) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    let Shape {
        grid,
        block,
        shared,
        ..
    } = launch.shape;
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func: launch.function.handle(),
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: block[0],
        blockDimY: block[1],
        blockDimZ: block[2],
        sharedMemBytes: shared,
        kernelParams: std::ptr::with_exposed_provenance_mut(launch.param_pointers()),
        extra: std::ptr::null_mut(),
        kern: CUkernel::NULL,
        ctx: launch.function.context().handle(),
    }
}

pub(super) fn kernel_back_v1(launch: &Launch) -> CUDA_KERNEL_NODE_PARAMS_v1 {
    let CUDA_KERNEL_NODE_PARAMS_v2 {
        func,
        gridDimX,
        gridDimY,
        gridDimZ,
        blockDimX,
        blockDimY,
        blockDimZ,
        sharedMemBytes,
        kernelParams,
        extra,
        ..
    } = kernel_back(launch);
    CUDA_KERNEL_NODE_PARAMS_v1 {
        func,
        gridDimX,
        gridDimY,
        gridDimZ,
        blockDimX,
        blockDimY,
        blockDimZ,
        sharedMemBytes,
        kernelParams,
        extra,
    }
}

pub(super) fn copy(params: &CUDA_MEMCPY3D_v2, context: CUcontext) -> Result<Placed> {
    let context = context_of(context)?;
    Ok((
        NodeWork::Op(Arc::new(memory::copy::op(&context, params)?)),
        Some(context),
    ))
}

pub(super) fn memset(params: &CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext) -> Result<Placed> {
    let CUDA_MEMSET_NODE_PARAMS_v1 {
        dst,
        pitch,
        value,
        elementSize,
        width,
        height,
    } = *params;
    memset_v2(&CUDA_MEMSET_NODE_PARAMS_v2 {
        dst,
        pitch,
        value,
        elementSize,
        width,
        height,
        ctx: context,
    })
}

fn memset_v2(params: &CUDA_MEMSET_NODE_PARAMS_v2) -> Result<Placed> {
    let context = context_of(params.ctx)?;
    Ok((
        NodeWork::Op(Arc::new(memory::memset::op(&context, params)?)),
        Some(context),
    ))
}

pub(super) fn memset_back(params: &CUDA_MEMSET_NODE_PARAMS_v2) -> CUDA_MEMSET_NODE_PARAMS_v1 {
    let CUDA_MEMSET_NODE_PARAMS_v2 {
        dst,
        pitch,
        value,
        elementSize,
        width,
        height,
        ..
    } = *params;
    CUDA_MEMSET_NODE_PARAMS_v1 {
        dst,
        pitch,
        value,
        elementSize,
        width,
        height,
    }
}

pub(super) fn host(params: &CUDA_HOST_NODE_PARAMS_v1) -> Result<Placed> {
    let function = params.fn_.ok_or(CUresult::INVALID_VALUE)?;
    let call = HostCall::Function {
        function,
        argument: params.userData.expose_provenance(),
    };
    Ok((
        NodeWork::Op(Arc::new(Op {
            kind: Kind::Host(call),
            cost: Cost::Instant,
            effect: None,
            touch: None,
        })),
        None,
    ))
}

pub(super) fn host_back(call: HostCall) -> Result<CUDA_HOST_NODE_PARAMS_v1> {
    match call {
        HostCall::Function { function, argument } => Ok(CUDA_HOST_NODE_PARAMS_v1 {
            fn_: Some(function),
            userData: std::ptr::with_exposed_provenance_mut(argument),
        }),
        HostCall::Callback { .. } => Err(CUresult::INVALID_VALUE),
    }
}

pub(super) fn event_record(event: CUevent) -> Result<Placed> {
    Ok((NodeWork::EventRecord(event::lookup(event)?), None))
}

pub(super) fn event_wait(event: CUevent) -> Result<Placed> {
    Ok((NodeWork::EventWait(event::lookup(event)?), None))
}

pub(super) fn mem_ops(
    context: CUcontext,
    count: u32,
    ops: *mut CUstreamBatchMemOpParams,
    flags: u32,
) -> Result<Placed> {
    let context = context_of(context)?;
    let ops = super::batchmem::read(count, ops, flags)?;
    memop::check(&context, &ops)?;
    Ok((NodeWork::MemOps(ops.into()), Some(context)))
}

/// An attribute's value as bytes; every member of the union is plain bytes.
pub(super) fn attribute_bytes(value: &CUlaunchAttributeValue) -> [c_char; 64] {
    // SAFETY: the union is plain bytes from end to end, and the caller passed a whole one.
    unsafe { value.pad }
}

/// The work of generic parameters, for node types that need no other arguments.
pub(super) fn generic(params: &CUgraphNodeParams) -> Result<Placed> {
    // SAFETY: the type selects the member that the caller filled in; all members are plain data.
    unsafe {
        let member = &params.anon;
        match params.type_ {
            CUgraphNodeType::KERNEL => kernel(&kernel_v3(params)),
            CUgraphNodeType::MEMCPY => copy(&member.memcpy.copyParams, member.memcpy.copyCtx),
            CUgraphNodeType::MEMSET => memset_v2(&member.memset),
            CUgraphNodeType::HOST => host(&CUDA_HOST_NODE_PARAMS_v1 {
                fn_: member.host.fn_,
                userData: member.host.userData,
            }),
            CUgraphNodeType::BATCH_MEM_OP => mem_ops(
                member.memOp.ctx,
                member.memOp.count,
                member.memOp.paramArray,
                member.memOp.flags,
            ),
            CUgraphNodeType::EMPTY => Ok((NodeWork::Empty, None)),
            CUgraphNodeType::WAIT_EVENT => event_wait(member.eventWait.event),
            CUgraphNodeType::EVENT_RECORD => event_record(member.eventRecord.event),
            _ => Err(CUresult::NOT_SUPPORTED),
        }
    }
}

/// The kernel member; its third version has the fields of the second.
///
/// # Safety
/// The type is `KERNEL`.
unsafe fn kernel_v3(params: &CUgraphNodeParams) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    // SAFETY: the caller guarantees it.
    let kernel = unsafe { params.anon.kernel };
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func: kernel.func,
        gridDimX: kernel.gridDimX,
        gridDimY: kernel.gridDimY,
        gridDimZ: kernel.gridDimZ,
        blockDimX: kernel.blockDimX,
        blockDimY: kernel.blockDimY,
        blockDimZ: kernel.blockDimZ,
        sharedMemBytes: kernel.sharedMemBytes,
        kernelParams: kernel.kernelParams,
        extra: kernel.extra,
        kern: kernel.kern,
        ctx: kernel.ctx,
    }
}

/// The allocation member of generic parameters, in the form of the dedicated function.
pub(super) fn alloc_member(params: &CUgraphNodeParams) -> CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
    // SAFETY: the caller of this function has checked the type `MEM_ALLOC`.
    let alloc = unsafe { params.anon.alloc };
    CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
        poolProps: alloc.poolProps,
        accessDescs: alloc.accessDescs,
        accessDescCount: alloc.accessDescCount,
        bytesize: alloc.bytesize,
        dptr: alloc.dptr,
    }
}

/// The conditional member of generic parameters.
pub(super) fn conditional_member(params: &CUgraphNodeParams) -> CUDA_CONDITIONAL_NODE_PARAMS {
    // SAFETY: the caller of this function has checked the type `CONDITIONAL`.
    unsafe { params.anon.conditional }
}

/// Writes where the bodies of a new conditional node are into generic parameters. Callers only read
/// there.
pub(super) fn set_bodies(params: &mut CUgraphNodeParams, bodies: &[CUgraph]) {
    params.anon.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
        phGraph_out: bodies.as_ptr().cast_mut(),
        ..conditional_member(params)
    };
}

/// Writes the address of a new allocation into generic parameters.
pub(super) fn set_alloc_address(params: &mut CUgraphNodeParams, address: u64) {
    params.anon.alloc.dptr = address;
}

/// The address in generic parameters of type `MEM_FREE`.
pub(super) fn free_member(params: &CUgraphNodeParams) -> u64 {
    // SAFETY: the caller of this function has checked the type `MEM_FREE`.
    unsafe { params.anon.free.dptr }
}

/// The graph in generic parameters of type `GRAPH`.
pub(super) fn child_member(params: &CUgraphNodeParams) -> usize {
    // SAFETY: the caller of this function has checked the type `GRAPH`.
    unsafe { params.anon.graph.graph.0.addr() }
}

/// Whether generic parameters of type `GRAPH` transfer ownership of the child graph.
pub(super) fn is_child_moved(params: &CUgraphNodeParams) -> Result<bool> {
    // SAFETY: the caller of this function has checked the type `GRAPH`.
    match unsafe { params.anon.graph.ownership } {
        CUgraphChildGraphNodeOwnership::CLONE => Ok(false),
        CUgraphChildGraphNodeOwnership::MOVE => Ok(true),
        _ => Err(CUresult::INVALID_VALUE),
    }
}
