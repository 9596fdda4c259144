//! The one symbol table: every function of the driver and of NVML, and what gpushare does about
//! each.
//!
//! The rows come from `symbols/*.tsv` in this crate. A function is hooked when its
//! [`charge`](CudaSymbol::charge) or its [`view`](CudaSymbol::view) is not `No`, or the
//! [`gate`](CudaSymbol::gate) acts on it ([`Gate::acts`]).

mod lookup;
pub mod packed;

use packed::{Base, Packed};

pub use lookup::{NEWEST_VERSION, cuda_by_name, cuda_by_version, nvml_by_name, reason};

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// A function of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaSymbol {
    /// The name the driver exports, version and twin suffixes included.
    pub name: &'static str,
    /// The name `cuGetProcAddress` knows it by: without suffixes.
    pub base: &'static str,
    /// The lowest version `cuGetProcAddress` answers this variant for: 1000 * major + 10 * minor.
    pub min_version: u32,
    /// Its relation to the per-thread default stream.
    pub thread: PerThread,
    /// The function's subject.
    pub class: Class,
    /// Its effect on a tenant's memory account.
    pub charge: Charge,
    /// The work that it submits to the device.
    pub gate: Gate,
    /// Which answer is the tenant's instead of the device's.
    pub view: View,
}

impl CudaSymbol {
    /// True where a hook stands in front of the driver's function.
    pub const fn hooked(&self) -> bool {
        !matches!((self.charge, self.view), (Charge::No(_), View::No(_))) || self.gate.acts()
    }
}

/// A function of NVML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmlSymbol {
    /// The name the library exports.
    pub name: &'static str,
    /// The name without its version.
    pub base: &'static str,
    /// The function's subject.
    pub class: NvmlClass,
    /// The symbol a program gets that writes `name` and is built with the newest header.
    pub default: &'static str,
    /// Which answer is the tenant's instead of the device's.
    pub view: View,
}

impl NvmlSymbol {
    /// True where a hook stands in front of the library's function.
    pub const fn hooked(&self) -> bool {
        !matches!(self.view, View::No(_))
    }
}

/// A function's relation to the per-thread default stream: stream 0 is the calling thread's own
/// stream in a twin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerThread {
    /// There is one function only.
    Plain,
    /// The twin (`_ptsz` or `_ptds`) of this function.
    Twin(&'static str),
    /// This is such a twin.
    IsTwin,
}

/// The subject of a driver function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Makes memory.
    Alloc,
    /// Gives memory back.
    Free,
    /// Memory and semaphores of other processes and other APIs.
    Import,
    /// Address space, mappings, access.
    Map,
    /// Copies, memsets, prefetches.
    Copy,
    /// Kernels and other work for the device, and what prepares a launch.
    Launch,
    /// Graphs.
    Graph,
    /// Streams.
    Stream,
    /// Events.
    Event,
    /// Contexts.
    Ctx,
    /// Modules, libraries, functions, the linker.
    Module,
    /// Questions, start-up, symbol lookup.
    Info,
    /// Saving and restoring whole processes.
    Checkpoint,
    /// The profiler switch of cudaProfiler.h.
    Profiler,
    /// Everything else.
    Other,
}

/// The subject of an NVML function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NvmlClass {
    /// Memory.
    Memory,
    /// Processes on a device.
    Processes,
    /// How busy a device is.
    Utilisation,
    /// Which devices there are, and their names.
    Identity,
    /// The library and the node.
    System,
    /// Virtual GPUs.
    Vgpu,
    /// Everything else.
    Other,
}

/// The effect of a function on a tenant's memory account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// Takes device memory: booked before the driver is asked.
    Alloc,
    /// Drops a reference to device memory: credited when the last one is gone.
    Free,
    /// Adds a reference to memory that exists: never booked twice, never credited too early.
    Import,
    /// Lets another process refer to memory: it may outlive this process's own free.
    Export,
    /// Changes what the driver itself takes (contexts, modules, heaps): measured and shown, not
    /// booked against the limit.
    Overhead,
    /// A synchronisation, where the driver may give pool memory back: pools are read again.
    Sync,
    /// Ends a context and everything in it.
    Release,
    /// Nothing; why, as the code of a [`Reason`].
    No(&'static str),
}

/// The work that a function submits to the device, and how the gate treats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Kernels and graphs: held back while another tenant has its turn.
    Launch,
    /// Makes or ends a stream, begins, joins or ends a capture, records or asks an event, asks a
    /// stream, or calls the host from a stream: followed, not held back.
    Follow,
    /// Memsets, and copies that may stay within one device: where they do and are large, held back
    /// as launches.
    Bulk,
    /// Copies between host and device: not held back; known, because work waits for them and they
    /// wait for work.
    Transfer,
    /// Stream memory operations, uploads, batches of copies: held while the process's memory is
    /// moved off the device, and by nothing else.
    Copy,
    /// Moves managed memory, or says where it should be: as copies.
    Prefetch,
    /// Has the driver look up or write device memory besides work: makes a graph's node, an
    /// executable graph or a texture over it, loads or unloads code: as copies.
    Touch,
    /// Nothing; why, as the code of a [`Reason`].
    No(&'static str),
}

impl Gate {
    /// True where the gate needs a hook.
    pub const fn acts(self) -> bool {
        !matches!(self, Self::No(_))
    }

    /// True where a seal holds the call: it can touch device memory.
    pub const fn touches(self) -> bool {
        !matches!(self, Self::No(_) | Self::Follow)
    }
}

/// Which answer is the tenant's instead of the device's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Total and free memory.
    Memory,
    /// The processes on the device.
    Processes,
    /// Where functions are found, and the start of the library.
    Lookup,
    /// Memory that can move is told of, and treated, as plain memory.
    Plain,
    /// The driver's own answer stands; why, as the code of a [`Reason`].
    No(&'static str),
}

/// Why functions are left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// The code the tables use.
    pub code: &'static str,
    /// The column it answers: `charge`, `gate` or `view`.
    pub column: &'static str,
    /// The defence, a whole sentence.
    pub sentence: &'static str,
}
