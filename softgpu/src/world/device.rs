//! One device as this process sees it: its memory by the page, its truth counters.

use std::any::Any;
use std::os::fd::RawFd;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

use super::ext::Ext;
use crate::error::Result;
use crate::spec::{PAGE, Spec};

/// What memory is for. `Context` and `Module` are what the driver takes behind the application's back; the rest was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `cuMemAlloc` and `cuMemAllocPitch`.
    Linear = 0,
    /// CUDA arrays and mipmapped arrays.
    Array = 1,
    /// `cuMemCreate`.
    Vmm = 2,
    /// Memory pools, by what they have reserved.
    Pool = 3,
    /// Memory of graphs, by what is reserved for them.
    Graph = 4,
    /// `cuMemAllocManaged`; physical only while it is resident.
    Managed = 5,
    /// What a context takes.
    Context = 6,
    /// What modules and lazy loading take.
    Module = 7,
}

impl Kind {
    /// Every kind, in the order of its number.
    pub const ALL: [Self; 8] = [
        Self::Linear,
        Self::Array,
        Self::Vmm,
        Self::Pool,
        Self::Graph,
        Self::Managed,
        Self::Context,
        Self::Module,
    ];

    /// Taken by the driver, not asked for by the application.
    pub const fn is_overhead(self) -> bool {
        matches!(self, Self::Context | Self::Module)
    }
}

/// Neighbouring physical pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageRun {
    /// Number of the first page.
    pub first: u32,
    /// How many.
    pub pages: u32,
}

impl PageRun {
    /// Their size.
    pub fn bytes(&self) -> u64 {
        u64::from(self.pages) * PAGE
    }
}

/// One device of the machine.
#[derive(Debug)]
pub struct Device {
    ordinal: u32,
    index: u32,
    uuid: [u8; 16],
    spec: Spec,
    data: RawFd,
    ext: Ext,
}

impl Device {
    /// Its number in this process (`CUDA_VISIBLE_DEVICES` applied).
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Its number in the machine, as NVML counts.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its UUID, in the order it is written.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The machine's description (sizes and rates of the device).
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Bytes of memory, used or not.
    pub fn capacity(&self) -> u64 {
        self.spec.mem
    }

    /// Bytes that are free as `cuMemGetInfo` tells: what was freed late is not yet counted. Counts as an operation.
    ///
    /// # Errors
    /// `OPERATING_SYSTEM` if the shared state is lost.
    pub fn free_bytes(&self) -> Result<u64> {
        Err(CUresult::NOT_SUPPORTED)
    }

    /// Takes `pages` physical pages for this process. If too few are free, everything that may legally return is collected first.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the pages are not there even then; nothing is taken.
    pub fn take(&self, kind: Kind, pages: u64) -> Result<Vec<PageRun>> {
        let _ = (kind, pages);
        Err(CUresult::NOT_SUPPORTED)
    }

    /// Gives pages back. They return late.
    pub fn give(&self, runs: &[PageRun]) {
        let _ = runs;
    }

    /// Tells the truth counters that the application asked for `delta` bytes more (or less). Never fails, never refuses.
    pub fn note(&self, kind: Kind, delta: i64) {
        let _ = (kind, delta);
    }

    /// Makes pages of this process shareable between processes; they live until the last [`Share`] of them is gone, whoever holds
    /// it, and must not be given back by [`give`](Self::give) any more. `tag` travels with them.
    ///
    /// # Errors
    /// `OPERATING_SYSTEM` if the shared state is lost or full.
    pub fn share(self: &Arc<Self>, runs: Vec<PageRun>, tag: &[u8]) -> Result<Share> {
        let _ = (runs, tag);
        Err(CUresult::NOT_SUPPORTED)
    }

    /// A second hold on shared pages, by the number another process told.
    ///
    /// # Errors
    /// `INVALID_VALUE` if nobody holds them any more.
    pub fn join(self: &Arc<Self>, id: u64) -> Result<Share> {
        let _ = id;
        Err(CUresult::INVALID_VALUE)
    }

    /// A descriptor that holds nothing but names the bytes of this device's memory (for [`va::map`](crate::va::map)).
    pub fn data_fd(&self) -> RawFd {
        self.data
    }

    /// Room for what other parts keep about this device in this process.
    pub fn ext<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        self.ext.get()
    }
}

/// A hold on pages that several processes share (IPC, exported handles). Dropping it lets go.
#[derive(Debug)]
pub struct Share {
    device: Arc<Device>,
    id: u64,
    runs: Vec<PageRun>,
    tag: Vec<u8>,
}

impl Share {
    /// The number by which other processes [`join`](Device::join) it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The device the pages are on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The pages.
    pub fn runs(&self) -> &[PageRun] {
        &self.runs
    }

    /// What the maker attached.
    pub fn tag(&self) -> &[u8] {
        &self.tag
    }

    /// A descriptor that holds the pages by itself, wherever it is sent (`SCM_RIGHTS`), until its last copy is closed.
    ///
    /// # Errors
    /// `OPERATING_SYSTEM` if there are no descriptors left.
    pub fn export(&self) -> Result<std::os::fd::OwnedFd> {
        Err(CUresult::NOT_SUPPORTED)
    }

    /// The hold behind a descriptor made by [`export`](Self::export), in whatever process.
    ///
    /// # Errors
    /// `INVALID_VALUE` if the descriptor is none of ours.
    pub fn import(process: &super::Process, file: std::os::fd::BorrowedFd<'_>) -> Result<Self> {
        let _ = (process, file);
        Err(CUresult::INVALID_VALUE)
    }
}
