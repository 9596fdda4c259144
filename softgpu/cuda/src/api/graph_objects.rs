//! User objects that graphs keep alive.

use std::ffi::c_void;

use gpushare_cuda_abi::cuda::{
    CUgraph, CUhostFn, CUresult, CUuserObject, CUuserObject_flags, CUuserObjectRetain_flags,
};
use softgpu::graph::objects;

use crate::abi::{out, required};

driver! {
    /// The only flag is mandatory: destructors run without waiting for the device.
    fn cuUserObjectCreate(object: *mut CUuserObject, argument: *mut c_void, destroy: CUhostFn, count: u32, flags: u32) {
        required(object.cast_const())?;
        let destructor = destroy.ok_or(CUresult::INVALID_VALUE)?;
        if flags != CUuserObject_flags::NO_DESTRUCTOR_SYNC.0 {
            return Err(CUresult::INVALID_VALUE);
        }
        out(object, objects::create(argument, destructor, count)?)
    }

    fn cuUserObjectRetain(object: CUuserObject, count: u32) {
        objects::retain(object, count)
    }

    fn cuUserObjectRelease(object: CUuserObject, count: u32) {
        objects::release(object, count)
    }

    fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: u32, flags: u32) {
        if flags > CUuserObjectRetain_flags::MOVE.0 {
            return Err(CUresult::INVALID_VALUE);
        }
        objects::retain_in_graph(graph.0.addr(), object, count, flags == CUuserObjectRetain_flags::MOVE.0)
    }

    fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: u32) {
        objects::release_from_graph(graph.0.addr(), object, count)
    }
}
