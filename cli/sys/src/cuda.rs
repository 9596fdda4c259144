//! One GPU put to work: kernels that take a given time, streams, events and graphs, by the driver
//! API. For benchmarks.
//!
//! # Safety
//! It loads `libcuda.so.1` and calls the functions of `Api` by their public signatures.
//! Invariants: every handle comes from the driver, lives in a type of this file that borrows the
//! [`Gpu`], and is used on the thread that made the `Gpu` (none of the types is `Send`), where its
//! context is current. Handles are not destroyed: the process ends with them.
#![allow(unsafe_code, reason = "calling a C library needs it")]

mod copy;
mod meet;
mod memory;

pub use copy::Cargo;
pub use meet::{Board, Meeting};
pub use memory::Memory;

use crate::devices::DRIVER;
use libloading::Library;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::{null_mut, without_provenance_mut};
use std::time::Duration;

/// `spin(uint64 ns)`. The driver compiles it for the device; softgpu knows the kernel by its name.
const SPIN: &str = concat!(include_str!("spin.ptx"), "\0");
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSORS: c_int = 16;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_BLOCKING_SYNC`: a waiting thread sleeps.
const BLOCKING_SYNC: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const THREAD_LOCAL: c_int = 1;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: c_int = 600;
/// Threads of a block: one warp, so that the kernel needs next to nothing of the multiprocessor it
/// holds.
const WARP: c_uint = 32;

type Handle = *mut c_void;

macro_rules! api {
    ($($field:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// The driver's functions.
        #[derive(Debug)]
        struct Api {
            $($field: extern "C" fn($($argument),*) -> c_int,)*
            /// Keeps them loaded.
            _library: Library,
        }

        impl Api {
            fn load() -> Result<Self, String> {
                // SAFETY: loading the driver runs its initialisers, which is what any CUDA program
                // does.
                let library = unsafe { Library::new(DRIVER) }.map_err(|error| format!("{DRIVER} cannot be loaded: {error}"))?;
                $(
                    // SAFETY: the name and the signature are those of the public driver API.
                    let $field = *unsafe { library.get::<extern "C" fn($($argument),*) -> c_int>($symbol) }
                        .map_err(|_| format!("{DRIVER} has no {}", $symbol))?;
                )*
                Ok(Self { $($field,)* _library: library })
            }
        }
    };
}

api! {
    init = "cuInit" (c_uint);
    device = "cuDeviceGet" (*mut c_int, c_int);
    attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    retain = "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    set_current = "cuCtxSetCurrent" (Handle);
    load = "cuModuleLoadData" (*mut Handle, *const c_void);
    function = "cuModuleGetFunction" (*mut Handle, Handle, *const i8);
    register = "cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    device_pointer = "cuMemHostGetDevicePointer_v2" (*mut u64, *mut c_void, c_uint);
    pinned = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    memory = "cuMemAlloc_v2" (*mut u64, usize);
    free = "cuMemFree_v2" (u64);
    to_device = "cuMemcpyHtoD_v2" (u64, *const c_void, usize);
    to_host = "cuMemcpyDtoH_v2" (*mut c_void, u64, usize);
    copy = "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, Handle);
    copy_within = "cuMemcpyDtoDAsync_v2" (u64, u64, usize, Handle);
    set = "cuMemsetD8Async" (u64, u8, usize, Handle);
    stream = "cuStreamCreate" (*mut Handle, c_uint);
    synchronize = "cuStreamSynchronize" (Handle);
    launch = "cuLaunchKernel" (Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut Handle, *mut Handle);
    event = "cuEventCreate" (*mut Handle, c_uint);
    record = "cuEventRecord" (Handle, Handle);
    wait = "cuEventSynchronize" (Handle);
    query = "cuEventQuery" (Handle);
    elapsed = "cuEventElapsedTime" (*mut f32, Handle, Handle);
    begin_capture = "cuStreamBeginCapture_v2" (Handle, c_int);
    end_capture = "cuStreamEndCapture" (Handle, *mut Handle);
    instantiate = "cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
    launch_graph = "cuGraphLaunch" (Handle, Handle);
}

impl Api {
    /// Compiles `image`, PTX with a NUL behind it, for the device whose context is current, and
    /// finds a kernel in it.
    fn kernel(&self, image: &str, name: &CStr) -> Result<Handle, String> {
        debug_assert!(image.ends_with('\0'), "the driver reads up to a NUL");
        let (mut module, mut kernel) = (null_mut(), null_mut());
        check(
            "cuModuleLoadData",
            (self.load)(&raw mut module, image.as_ptr().cast()),
        )?;
        let found = (self.function)(&raw mut kernel, module, name.as_ptr().cast());
        check("cuModuleGetFunction", found)?;
        Ok(kernel)
    }
}

fn check(what: &str, result: c_int) -> Result<(), String> {
    match result {
        0 => Ok(()),
        error => Err(crate::devices::failed(what, error)),
    }
}

/// A device with its primary context current on this thread.
#[derive(Debug)]
pub struct Gpu {
    api: Api,
    spin: Handle,
    blocks: c_uint,
}

/// A queue of work.
#[derive(Debug)]
pub struct Stream<'gpu> {
    gpu: &'gpu Gpu,
    handle: Handle,
}

/// A moment in a stream.
#[derive(Debug)]
pub struct Event<'gpu> {
    gpu: &'gpu Gpu,
    handle: Handle,
}

/// Kernels that are launched as one, in a row.
#[derive(Debug)]
pub struct Graph<'gpu> {
    handle: Handle,
    gpu: PhantomData<&'gpu Gpu>,
}

impl Gpu {
    /// Starts CUDA on the device with this ordinal.
    ///
    /// # Errors
    /// One sentence, with the function that failed and CUDA's number; so for everything in this
    /// file.
    pub fn open(ordinal: u32) -> Result<Self, String> {
        let api = Api::load()?;
        check("cuInit", (api.init)(0))?;
        let ordinal = c_int::try_from(ordinal).map_err(|_| format!("no device {ordinal}"))?;
        let (mut device, mut blocks, mut context) = (0, 0, null_mut());
        check("cuDeviceGet", (api.device)(&raw mut device, ordinal))?;
        let asked = (api.attribute)(&raw mut blocks, MULTIPROCESSORS, device);
        check("cuDeviceGetAttribute", asked)?;
        check(
            "cuDevicePrimaryCtxRetain",
            (api.retain)(&raw mut context, device),
        )?;
        check("cuCtxSetCurrent", (api.set_current)(context))?;
        let spin = api.kernel(SPIN, c"spin")?;
        let blocks = c_uint::try_from(blocks).unwrap_or(1).max(1);
        Ok(Self { api, spin, blocks })
    }

    /// A new stream that does not wait for the default one.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn stream(&self) -> Result<Stream<'_>, String> {
        let mut handle = null_mut();
        check(
            "cuStreamCreate",
            (self.api.stream)(&raw mut handle, NON_BLOCKING),
        )?;
        Ok(Stream { gpu: self, handle })
    }

    /// A new event, with time.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn event(&self) -> Result<Event<'_>, String> {
        let mut handle = null_mut();
        check(
            "cuEventCreate",
            (self.api.event)(&raw mut handle, BLOCKING_SYNC),
        )?;
        Ok(Event { gpu: self, handle })
    }
}

impl<'gpu> Stream<'gpu> {
    /// Submits a kernel that takes the device for `ns`.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn spin(&self, mut ns: u64) -> Result<(), String> {
        self.start(self.gpu.spin, &mut [(&raw mut ns).cast()])
    }

    /// Launches a kernel with a block for each multiprocessor. The parameters are copied before the
    /// call returns.
    fn start(&self, kernel: Handle, parameters: &mut [Handle]) -> Result<(), String> {
        let (none, gpu) = (null_mut(), self.gpu);
        let launched = (gpu.api.launch)(
            kernel,
            gpu.blocks,
            1,
            1,
            WARP,
            1,
            1,
            0,
            self.handle,
            parameters.as_mut_ptr(),
            none,
        );
        check("cuLaunchKernel", launched)
    }

    /// Makes a graph of `nodes` kernels of `ns` each, by capturing them here.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn graph(&self, ns: u64, nodes: u32) -> Result<Graph<'gpu>, String> {
        let api = &self.gpu.api;
        check(
            "cuStreamBeginCapture",
            (api.begin_capture)(self.handle, THREAD_LOCAL),
        )?;
        let launched = (0..nodes).try_for_each(|_| self.spin(ns));
        let mut graph = without_provenance_mut(0);
        check(
            "cuStreamEndCapture",
            (api.end_capture)(self.handle, &raw mut graph),
        )?;
        launched?;
        let mut handle = null_mut();
        check(
            "cuGraphInstantiate",
            (api.instantiate)(&raw mut handle, graph, 0),
        )?;
        Ok(Graph {
            handle,
            gpu: PhantomData,
        })
    }

    /// Submits a graph.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn launch(&self, graph: &Graph<'gpu>) -> Result<(), String> {
        check(
            "cuGraphLaunch",
            (self.gpu.api.launch_graph)(graph.handle, self.handle),
        )
    }

    /// Puts the event behind everything submitted so far.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn record(&self, event: &Event<'gpu>) -> Result<(), String> {
        check(
            "cuEventRecord",
            (self.gpu.api.record)(event.handle, self.handle),
        )
    }

    /// Waits until everything submitted is complete.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn synchronize(&self) -> Result<(), String> {
        check(
            "cuStreamSynchronize",
            (self.gpu.api.synchronize)(self.handle),
        )
    }
}

impl Event<'_> {
    /// Waits until the device has passed it, asleep.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn wait(&self) -> Result<(), String> {
        check("cuEventSynchronize", (self.gpu.api.wait)(self.handle))
    }

    /// Whether the device has passed it.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn is_done(&self) -> Result<bool, String> {
        match (self.gpu.api.query)(self.handle) {
            NOT_READY => Ok(false),
            result => check("cuEventQuery", result).map(|()| true),
        }
    }

    /// Device time from `earlier` to this event, both passed; zero if it came first.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn since(&self, earlier: &Event<'_>) -> Result<Duration, String> {
        let mut milliseconds = 0.0;
        let asked = (self.gpu.api.elapsed)(&raw mut milliseconds, earlier.handle, self.handle);
        check("cuEventElapsedTime", asked)?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }
}
