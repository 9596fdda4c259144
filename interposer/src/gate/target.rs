//! The target of a launch: its device, and what is known about the operation before it is
//! submitted.

use gpushare_cuda_abi::cuda::{CUDA_LAUNCH_PARAMS, CUcontext, CUfunction, CUgraphExec, CUresult};

use crate::driver::stream_ref::StreamRef;
use crate::driver::{captures, streams};

/// The kind of a launch, for estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Hardly ever 0. A kernel's is a hash, a graph's has bit 63 set, and that of other work is
    /// small.
    pub(super) number: u64,
    /// A launch may load something: that of a kernel or a graph.
    pub(super) loads: bool,
}

/// An odd number without a pattern, longer than the sizes of grids that drivers take in y and z and
/// of blocks.
const MIX: u64 = 0x5851_F42D;

impl Key {
    /// A kernel of this shape: grid, block, bytes of shared memory; and its function's address.
    #[inline]
    pub(crate) fn kernel(function: CUfunction, shape: [u32; 7]) -> Self {
        let digits = |sum: u64, digit: u32| sum.wrapping_mul(MIX).wrapping_add(digit.into());
        let hash = shape.into_iter().fold(0, digits).wrapping_mul(MIX);
        Self {
            number: hash.wrapping_add(function.0.addr() as u64),
            loads: true,
        }
    }

    /// Anything but a kernel or a graph, by a number of the hook's own.
    #[inline]
    pub(crate) fn other(number: u32) -> Self {
        Self {
            number: u64::from(number) << 1 | 1,
            loads: false,
        }
    }
}

/// A kernel whose shape is unknown here.
impl From<CUfunction> for Key {
    fn from(function: CUfunction) -> Self {
        Self::kernel(function, [0; 7])
    }
}

/// A graph, by the address of its executable.
impl From<CUgraphExec> for Key {
    fn from(exec: CUgraphExec) -> Self {
        Self {
            number: exec.0.addr() as u64 | 1 << 63,
            loads: true,
        }
    }
}

/// One launch on one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchTarget {
    /// The stream's context.
    pub(crate) context: CUcontext,
    /// The stream as the program named it.
    pub(crate) stream: StreamRef,
    /// The device's index.
    pub(crate) device_index: usize,
    /// The kind of the launch.
    pub(crate) key: Key,
}

/// A launch as its hook sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work<'a> {
    /// In one stream.
    One(StreamRef, Key),
    /// The parts of a cooperative launch on several devices.
    Several(&'a [CUDA_LAUNCH_PARAMS]),
}

/// Calls `body` with the targets of a launch: none if nothing of it may be held back.
pub(super) fn with(work: &Work<'_>, body: &mut dyn FnMut(&[LaunchTarget]) -> CUresult) -> CUresult {
    match work {
        Work::One(stream, key) => match target(*stream, *key) {
            Some(target) => body(&[target]),
            None => body(&[]),
        },
        Work::Several(parts) => {
            let target = |part: &CUDA_LAUNCH_PARAMS| {
                let shape = [
                    part.gridDimX,
                    part.gridDimY,
                    part.gridDimZ,
                    part.blockDimX,
                    part.blockDimY,
                    part.blockDimZ,
                    part.sharedMemBytes,
                ];
                target(
                    StreamRef::legacy(part.hStream),
                    Key::kernel(part.function, shape),
                )
            };
            let targets: Vec<_> = parts.iter().filter_map(target).collect();
            body(&targets)
        }
    }
}

/// `None` if the stream records the launch instead of running it, and where the driver will refuse
/// it: the stream is invalid, or the call comes from inside a host callback, which must not wait.
fn target(stream: StreamRef, key: Key) -> Option<LaunchTarget> {
    if !stream.runs() {
        return None;
    }
    let here = streams::locate(stream)?;
    if stream.is_own() {
        captures::own_stream_runs();
    }
    Some(LaunchTarget {
        context: here.handle,
        stream,
        device_index: here.device.index(),
        key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_and_graphs_may_load_something_and_other_work_does_not() {
        let function = CUfunction(core::ptr::without_provenance_mut(0x7000_1000));
        let exec = CUgraphExec(core::ptr::without_provenance_mut(0x7000_1000));
        assert!(Key::from(function).loads && Key::from(exec).loads);
        assert!(!Key::other(5).loads);
        assert_ne!(Key::other(5), Key::other(6));
    }

    #[test]
    fn each_shape_of_a_function_has_a_key_of_its_own() {
        let function = |at: usize| CUfunction(core::ptr::without_provenance_mut(at));
        let mut keys = std::collections::HashSet::new();
        for at in [0x7000_1000, 0x7000_1040] {
            for axis in 0..7 {
                for number in [2, 3, 64, 128, 65_535] {
                    let mut shape = [1; 7];
                    shape[axis] = number;
                    assert!(keys.insert(Key::kernel(function(at), shape)), "{shape:?}");
                }
            }
        }
        let again = Key::kernel(function(0x7000_1000), [2, 1, 1, 1, 1, 1, 1]);
        assert!(!keys.insert(again), "the same one is the same one");
    }
}
