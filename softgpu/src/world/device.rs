//! One device as this process sees it: its physical pages, and the counters of true use.

use std::any::Any;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gpushare_cuda_abi::cuda::CUresult;

use super::ext::Ext;
use super::machine::Machine;
use super::resident::Resident;
use super::share::Share;
use super::state::Facts as _;
use super::state::mix;
use crate::error::Result;
use crate::exec;
use crate::spec::{PAGE, Spec};

/// The use of memory. The driver takes `Context` and `Module` memory unasked; the application
/// requested all other kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `cuMemAlloc` and `cuMemAllocPitch`.
    Linear = 0,
    /// CUDA arrays and mipmapped arrays.
    Array = 1,
    /// `cuMemCreate`.
    Vmm = 2,
    /// Memory pools: the memory they have reserved.
    Pool = 3,
    /// Graph memory: the memory reserved for graphs.
    Graph = 4,
    /// `cuMemAllocManaged`; physical only while it is resident.
    Managed = 5,
    /// Memory that a context takes.
    Context = 6,
    /// Memory that modules and lazy loading take.
    Module = 7,
}

impl Kind {
    /// All kinds, in numeric order.
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

    /// Whether the driver takes it unasked.
    pub const fn is_overhead(self) -> bool {
        matches!(self, Self::Context | Self::Module)
    }
}

/// A run of adjacent physical pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageRun {
    /// Number of the first page.
    pub first: u32,
    /// The number of pages.
    pub pages: u32,
}

impl PageRun {
    /// The size in bytes.
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
    machine: Arc<Machine>,
    ext: Ext,
}

impl Device {
    pub(super) fn new(machine: Arc<Machine>, ordinal: u32, index: u32) -> Self {
        let uuid = uuid(machine.spec(), index);
        Self {
            ordinal,
            index,
            uuid,
            machine,
            ext: Ext::default(),
        }
    }

    /// Its number in this process (`CUDA_VISIBLE_DEVICES` applied).
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Its number in the machine, in NVML's order.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The bytes of its UUID, in printed order.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The machine's description (sizes and rates of the device).
    pub fn spec(&self) -> &Spec {
        self.machine.spec()
    }

    /// Bytes of memory, used or not.
    pub fn capacity(&self) -> u64 {
        self.spec().mem
    }

    /// Free bytes as `cuMemGetInfo` reports them: freed memory that has not returned is not
    /// counted. Counts as an operation.
    ///
    /// # Errors
    /// `OPERATING_SYSTEM` if the shared state is lost.
    pub fn free_bytes(&self) -> Result<u64> {
        self.machine.locked(|view, facts| {
            view.tick(facts);
            view.free(self.at()) * PAGE
        })
    }

    /// Counts one operation on the machine: freed memory comes one operation closer to being free.
    pub fn tick(&self) {
        // If the state is lost, the next call that needs it reports the error.
        let _ = self.machine.locked(|view, facts| view.tick(facts));
    }

    /// Takes `pages` physical pages for this process. If too few are free, freed memory returns at
    /// once first, and then managed pages of any process are evicted. The call lasts as long as
    /// their transfer to the host.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the pages are not available even then; nothing is taken.
    pub fn take(&self, kind: Kind, pages: u64) -> Result<Vec<PageRun>> {
        let slot = self.machine.slot()?;
        let taken = self
            .machine
            .locked(|view, facts| view.take(facts, slot, self.at(), kind, pages))?;
        let (runs, evicted) = taken.ok_or(CUresult::OUT_OF_MEMORY)?;
        exec::host_waits(exec::nanoseconds(evicted * PAGE, self.spec().link));
        Ok(runs)
    }

    /// Takes pages for managed memory of this process, which may be evicted from now on. Returns
    /// them, and how many pages were moved to the host for them; waits for nothing.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_managed(&self, pages: u64) -> Result<(Vec<Resident>, u64)> {
        let slot = self.machine.slot()?;
        let taken = self.machine.locked(|view, facts| {
            let (runs, evicted) = view.take(facts, slot, self.at(), Kind::Managed, pages)?;
            let numbers = runs.iter().flat_map(|run| run.first..run.first + run.pages);
            Some((view.stamp(self.at(), numbers), evicted))
        })?;
        taken.ok_or(CUresult::OUT_OF_MEMORY)
    }

    /// Which of these managed pages this process still has.
    ///
    /// # Errors
    /// `OPERATING_SYSTEM` if the shared state is lost.
    pub fn has(&self, pages: &[Resident]) -> Result<Vec<bool>> {
        let slot = self.machine.slot()?;
        self.machine.locked(|view, _| {
            let pages = pages.iter();
            pages.map(|page| view.has(slot, self.at(), *page)).collect()
        })
    }

    /// The bytes of these managed pages are on the host now. Their memory stays taken until other
    /// memory needs it.
    pub fn keep_managed(&self, pages: &[Resident]) {
        if let Ok(slot) = self.machine.slot() {
            let _ = self
                .machine
                .locked(|view, _| view.keep(slot, self.at(), pages));
        }
    }

    /// The bytes of these managed pages come back to the memory that was kept of them: those for
    /// which this process still has it. Counts as an operation.
    ///
    /// # Errors
    /// `OPERATING_SYSTEM` if the shared state is lost.
    pub fn use_managed_again(&self, pages: &[Resident]) -> Result<Vec<Option<Resident>>> {
        let slot = self.machine.slot()?;
        self.machine.locked(|view, facts| {
            view.tick(facts);
            view.use_again(slot, self.at(), pages)
        })
    }

    /// Frees managed pages; those that were evicted are left alone.
    pub fn give_managed(&self, pages: &[Resident]) {
        if let Ok(slot) = self.machine.slot() {
            let _ = self
                .machine
                .locked(|view, _| view.give_managed(slot, self.at(), pages));
        }
    }

    /// Frees pages. They return after a delay.
    pub fn give(&self, runs: &[PageRun]) {
        if let Ok(slot) = self.machine.slot() {
            let _ = self
                .machine
                .locked(|view, _| view.give(slot, self.at(), runs));
        }
    }

    /// Records that the application requested `delta` bytes more (or fewer). It never refuses.
    pub fn note(&self, kind: Kind, delta: i64) {
        if let Ok(slot) = self.machine.slot() {
            let _ = self
                .machine
                .locked(|view, _| view.note(slot, self.at(), kind, delta));
        }
    }

    /// Makes pages of this process shareable between processes. The pages live until the last
    /// [`Share`] of them is dropped, in any process, and must no longer be freed with
    /// [`give`](Self::give). `tag` is stored with them.
    ///
    /// # Errors
    /// `OPERATING_SYSTEM` if the shared state is lost or full.
    pub fn share(self: &Arc<Self>, runs: &[PageRun], tag: &[u8]) -> Result<Share> {
        Share::make(self, runs, tag)
    }

    /// Another hold on shared pages of this device, by the number that the other process reported.
    ///
    /// # Errors
    /// `INVALID_VALUE` if no process holds the pages any more.
    pub fn join(self: &Arc<Self>, id: u64) -> Result<Share> {
        Share::join(self, id)
    }

    /// A descriptor of the bytes of this device's memory (for [`va::map`](crate::va::map)). It
    /// keeps no pages alive.
    pub fn data_fd(&self) -> RawFd {
        self.machine.data_fd(self.at())
    }

    /// The words that hold the turns of engine `lane` (0 to 2). All processes of the machine share
    /// them; they are 0 in a new machine.
    pub(crate) fn turns(&self, lane: usize) -> &[AtomicU64] {
        self.machine.turns(self.at(), lane)
    }

    /// This process's number as an owner of seats; not 0.
    ///
    /// # Errors
    /// `DEINITIALIZED` in a process without a slot.
    pub(crate) fn owner(&self) -> Result<u64> {
        Ok(self.machine.slot()? as u64 + 1)
    }

    /// Whether the process in `slot`, or a forked child of it, lives.
    pub(crate) fn process_lives(&self, slot: usize) -> bool {
        self.machine.process_lives(slot)
    }

    /// Time that this process has had the engine `lane`, in ns. A process adds the length of each
    /// turn it takes. Tests compare with it, and NVML's utilisation is computed from it.
    ///
    /// # Errors
    /// `DEINITIALIZED` in a process without a slot.
    pub fn served(&self, lane: usize) -> Result<&AtomicU64> {
        Ok(self.machine.served(self.machine.slot()?, self.at(), lane))
    }

    /// Storage for other modules' state of this device in this process.
    pub fn ext<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        self.ext.get()
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Its index in the machine's tables.
    fn at(&self) -> usize {
        self.index as usize
    }
}

/// The UUID of a device: the same for every process and library that opens the same machine.
pub fn uuid(spec: &Spec, index: u32) -> [u8; 16] {
    let identity = Machine::identity(spec);
    let start = identity.bytes().fold(mix(u64::from(index)), |hash, byte| {
        mix(hash ^ u64::from(byte))
    });
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&start.to_be_bytes());
    uuid[8..].copy_from_slice(&mix(start).to_be_bytes());
    // The version and variant bits of a random UUID, as real devices have them.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// A UUID as tools print it: `GPU-` and five groups of hexadecimal digits.
pub fn uuid_text(uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "GPU-{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}
