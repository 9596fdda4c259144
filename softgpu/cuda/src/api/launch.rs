//! Launches: kernels through every launch function of the driver, and host functions.
//!
//! # Safety
//! `unsafe` passes the caller's parameter pointers on under the contract of `cuLaunchKernel`, and
//! reads a launch attribute through the union member that its id selects.
#![allow(unsafe_code, reason = "kernel parameters and attribute unions are C")]

use std::ffi::c_void;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::{
    CUDA_LAUNCH_PARAMS, CUevent, CUfunction, CUhostFn, CUlaunchAttribute, CUlaunchAttributeID,
    CUlaunchConfig, CUresult, CUstream, CUtexref,
};
use softgpu::Result;
use softgpu::context;
use softgpu::exec::event::{self, Event};
use softgpu::exec::{self, Cost, DefaultStream, HostCall, Kind, Op};
use softgpu::module::{self, Function, Params, Shape, legacy};

use super::stream::here;
use crate::abi::{input, inputs, required};

type Pointers = *mut *mut c_void;

fn launch(
    default: DefaultStream,
    f: CUfunction,
    shape: Shape,
    stream: CUstream,
    params: Pointers,
    extra: Pointers,
) -> Result {
    let stream = here(default, stream)?;
    let function = module::function(stream.context(), f)?;
    // SAFETY: the caller of a launch function guarantees parameters that match its kernel.
    let params = unsafe { Params::read(&function.copied(), params, extra) }?;
    module::launch(&stream, function, shape, params)
}

/// An event for a launch to record; `EXTERNAL` is not accepted.
fn launch_event(event: CUevent, flags: i32) -> Result<Arc<Event>> {
    if flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    event::lookup(event)
}

/// Applies launch attributes: changes the shape, and returns the events to record after the launch.
fn attributes(shape: &mut Shape, given: &[CUlaunchAttribute]) -> Result<Vec<Arc<Event>>> {
    let mut events = Vec::new();
    for attribute in given {
        // SAFETY: the id selects the member of the union that the caller filled in.
        unsafe {
            match attribute.id {
                CUlaunchAttributeID::COOPERATIVE => {
                    shape.cooperative = attribute.value.cooperative != 0
                }
                CUlaunchAttributeID::CLUSTER_DIMENSION => {
                    let dim = attribute.value.clusterDim;
                    shape.cluster = Some([dim.x, dim.y, dim.z]);
                }
                CUlaunchAttributeID::PROGRAMMATIC_EVENT => {
                    let given = attribute.value.programmaticEvent;
                    events.push(launch_event(given.event, given.flags)?);
                }
                CUlaunchAttributeID::LAUNCH_COMPLETION_EVENT => {
                    let given = attribute.value.launchCompletionEvent;
                    events.push(launch_event(given.event, given.flags)?);
                }
                other if other < CUlaunchAttributeID::MAX => {}
                _ => return Err(CUresult::INVALID_VALUE),
            }
        }
    }
    Ok(events)
}

fn launch_ex(
    default: DefaultStream,
    config: *const CUlaunchConfig,
    f: CUfunction,
    params: Pointers,
    extra: Pointers,
) -> Result {
    let config = input(config)?;
    let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
    let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
    let mut shape = Shape::new(grid, block, config.sharedMemBytes);
    let count = usize::try_from(config.numAttrs).map_err(|_| CUresult::INVALID_VALUE)?;
    let events = attributes(&mut shape, &inputs(config.attrs, count)?)?;
    let stream = here(default, config.hStream)?;
    // A launch that is refused launches nothing.
    events
        .iter()
        .try_for_each(|event| event::check_of_launch(event, &stream))?;
    launch(default, f, shape, config.hStream, params, extra)?;
    // Later than the launch asked for, which is legal: an event may complete late, never early.
    events
        .iter()
        .try_for_each(|event| event::record(event, &stream, false))
}

fn host_function(
    default: DefaultStream,
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
) -> Result {
    let function = function.ok_or(CUresult::INVALID_VALUE)?;
    let stream = here(default, stream)?;
    let call = HostCall::Function {
        function,
        argument: data.expose_provenance(),
    };
    exec::submit(
        stream.context(),
        &stream,
        Op {
            kind: Kind::Host(call),
            cost: Cost::Instant,
            effect: None,
            touch: None,
        },
    )
}

/// One launch of a cooperative launch on several devices.
fn launch_one_of(launch: &CUDA_LAUNCH_PARAMS) -> Result {
    let grid = [launch.gridDimX, launch.gridDimY, launch.gridDimZ];
    let block = [launch.blockDimX, launch.blockDimY, launch.blockDimZ];
    let shape = Shape {
        cooperative: true,
        ..Shape::new(grid, block, launch.sharedMemBytes)
    };
    if launch.hStream.0.addr() <= 2 {
        // Documented: only created streams are accepted.
        return Err(CUresult::INVALID_VALUE);
    }
    self::launch(
        DefaultStream::Legacy,
        launch.function,
        shape,
        launch.hStream,
        launch.kernelParams,
        std::ptr::null_mut(),
    )
}

fn set(f: CUfunction, change: impl FnOnce(&mut legacy::LegacyState) -> Result) -> Result {
    change(&mut legacy_function(f)?.legacy())
}

fn legacy_function(f: CUfunction) -> Result<Arc<Function>> {
    module::function(&context::current()?, f)
}

fn offset(given: i32) -> Result<usize> {
    usize::try_from(given).map_err(|_| CUresult::INVALID_VALUE)
}

driver! {
    fn cuLaunchKernel twin cuLaunchKernel_ptsz (d: DefaultStream; f: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) {
        launch(d, f, Shape::new([gx, gy, gz], [bx, by, bz], shared), stream, params, extra)
    }

    fn cuLaunchKernelEx twin cuLaunchKernelEx_ptsz (d: DefaultStream; config: *const CUlaunchConfig, f: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void) {
        launch_ex(d, config, f, params, extra)
    }

    fn cuLaunchCooperativeKernel twin cuLaunchCooperativeKernel_ptsz (d: DefaultStream; f: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream, params: *mut *mut c_void) {
        let shape = Shape { cooperative: true, ..Shape::new([gx, gy, gz], [bx, by, bz], shared) };
        launch(d, f, shape, stream, params, std::ptr::null_mut())
    }

    fn cuLaunchCooperativeKernelMultiDevice(list: *mut CUDA_LAUNCH_PARAMS, count: u32, flags: u32) {
        context::current()?;
        let list = inputs(list.cast_const(), usize::try_from(count).map_err(|_| CUresult::INVALID_VALUE)?)?;
        if list.is_empty() || flags > 3 {
            return Err(CUresult::INVALID_VALUE);
        }
        list.iter().try_for_each(launch_one_of)
    }

    fn cuLaunchHostFunc twin cuLaunchHostFunc_ptsz (d: DefaultStream; stream: CUstream, function: CUhostFn, data: *mut c_void) {
        host_function(d, stream, function, data)
    }

    fn cuLaunchHostFunc_v2 twin cuLaunchHostFunc_v2_ptsz (d: DefaultStream; stream: CUstream, function: CUhostFn, data: *mut c_void, mode: u32) {
        if mode > 1 {
            return Err(CUresult::INVALID_VALUE);
        }
        host_function(d, stream, function, data)
    }

    fn cuFuncSetBlockShape(f: CUfunction, x: i32, y: i32, z: i32) {
        set(f, |state| state.set_block([x, y, z]))
    }

    fn cuFuncSetSharedSize(f: CUfunction, bytes: u32) {
        set(f, |state| { state.set_shared(bytes); Ok(()) })
    }

    fn cuParamSetSize(f: CUfunction, bytes: u32) {
        set(f, |state| state.set_size(usize::try_from(bytes).unwrap_or(usize::MAX)))
    }

    fn cuParamSeti(f: CUfunction, at: i32, value: u32) {
        set(f, |state| state.set_param(offset(at)?, &value.to_ne_bytes()))
    }

    fn cuParamSetf(f: CUfunction, at: i32, value: f32) {
        set(f, |state| state.set_param(offset(at)?, &value.to_ne_bytes()))
    }

    fn cuParamSetv(f: CUfunction, at: i32, from: *mut c_void, bytes: u32) {
        required(from)?;
        let bytes = inputs(from.cast::<u8>().cast_const(), usize::try_from(bytes).map_err(|_| CUresult::INVALID_VALUE)?)?;
        set(f, |state| state.set_param(offset(at)?, &bytes))
    }

    /// Texture references were removed with CUDA 12; only the unit that was always legal is
    /// accepted.
    fn cuParamSetTexRef(f: CUfunction, unit: i32, _texture: CUtexref) {
        legacy_function(f)?;
        if unit == -1 { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
    }

    fn cuLaunch(f: CUfunction) {
        legacy::launch_set(&here(DefaultStream::Legacy, CUstream::NULL)?, legacy_function(f)?, 1, 1)
    }

    fn cuLaunchGrid(f: CUfunction, width: i32, height: i32) {
        legacy::launch_set(&here(DefaultStream::Legacy, CUstream::NULL)?, legacy_function(f)?, width, height)
    }

    fn cuLaunchGridAsync(f: CUfunction, width: i32, height: i32, stream: CUstream) {
        legacy::launch_set(&here(DefaultStream::Legacy, stream)?, legacy_function(f)?, width, height)
    }
}
