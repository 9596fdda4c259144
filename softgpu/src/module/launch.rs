//! Launches: the limits of a launch, and the operation it becomes.

use std::sync::{Arc, OnceLock};

use gpushare_cuda_abi::cuda::CUresult;

use super::function::Function;
use super::kernels::LAUNCH_NS;
use super::params::Params;
use super::program::Program;
use crate::error::Result;
use crate::exec::{self, Cost, Job, Kind, Op, StreamRef, ValueWait};
use crate::memory;
use crate::memory::managed::Accessed;

/// The maximum number of threads in a block.
const BLOCK_THREADS: u32 = 1024;
/// The maximum dimensions of a block.
const BLOCK: [u32; 3] = [1024, 1024, 64];
/// The maximum dimensions of a grid.
const GRID: [u32; 3] = [0x7fff_ffff, 65_535, 65_535];

/// The launch configuration of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads of a block in each dimension.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block (bytes).
    pub shared: u32,
    /// Blocks of a cluster in each dimension, for a launch with clusters.
    pub cluster: Option<[u32; 3]>,
    /// Whether all blocks must be resident at once.
    pub cooperative: bool,
}

impl Shape {
    /// A plain launch.
    pub const fn new(grid: [u32; 3], block: [u32; 3], shared: u32) -> Self {
        Self {
            grid,
            block,
            shared,
            cluster: None,
            cooperative: false,
        }
    }

    /// Threads of the whole grid.
    pub fn threads(&self) -> u64 {
        self.blocks().saturating_mul(
            self.block
                .iter()
                .map(|&threads| u64::from(threads))
                .product(),
        )
    }

    fn blocks(&self) -> u64 {
        self.grid.iter().fold(1, |blocks: u64, &side| {
            blocks.saturating_mul(u64::from(side))
        })
    }

    /// Whether `function` can be launched with this configuration on a device with `sm`
    /// multiprocessors.
    ///
    /// # Errors
    /// `INVALID_VALUE` for dimensions or shared memory beyond the device's limits,
    /// `INVALID_CLUSTER_SIZE`, `COOPERATIVE_LAUNCH_TOO_LARGE`.
    pub fn check(&self, function: &Function, sm: u32) -> Result {
        let within = |dims: [u32; 3], most: [u32; 3]| {
            dims.iter()
                .zip(most)
                .all(|(&side, most)| (1..=most).contains(&side))
        };
        let threads: u32 = if within(self.block, BLOCK) {
            self.block.iter().product()
        } else {
            0
        };
        let (most_shared, most_threads) = {
            let attributes = function.attributes();
            (attributes.dynamic_shared(), attributes.max_threads())
        };
        if !within(self.grid, GRID)
            || !(1..=most_threads.min(BLOCK_THREADS)).contains(&threads)
            || self.shared > most_shared
        {
            return Err(CUresult::INVALID_VALUE);
        }
        if let Some(cluster) = self.cluster {
            let size: u64 = cluster.iter().map(|&side| u64::from(side)).product();
            // Eight is the portable maximum (compute capability 9.0).
            if size == 0
                || size > 8
                || self
                    .grid
                    .iter()
                    .zip(cluster)
                    .any(|(side, part)| side % part != 0)
            {
                return Err(CUresult::INVALID_CLUSTER_SIZE);
            }
        }
        let resident =
            u64::from(sm) * u64::from(super::occupancy::blocks_per_sm(threads, self.shared));
        if self.cooperative && self.blocks() > resident {
            return Err(CUresult::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        Ok(())
    }
}

/// A self-contained launch: it can run any number of times.
#[derive(Debug)]
pub struct Launch {
    /// The function to launch.
    pub function: Arc<Function>,
    /// The launch configuration.
    pub shape: Shape,
    /// The parameters, copied when the launch was made.
    pub params: Params,
    /// The program, for a kernel of a PTX text.
    program: Option<Program>,
    /// The addresses of the parameters' values, made at first use.
    pointers: OnceLock<Box<[usize]>>,
}

impl Launch {
    /// A checked launch; loads the function's code if it is not loaded.
    ///
    /// # Errors
    /// As [`Shape::check`]; `OUT_OF_MEMORY` if the code does not fit; as [`Program::new`].
    pub fn new(function: Arc<Function>, shape: Shape, params: Params) -> Result<Arc<Self>> {
        shape.check(&function, function.context().device().spec().sm)?;
        function.module().make_resident()?;
        let program = Program::new(&function, &shape, &params)?;
        Ok(Arc::new(Self {
            function,
            shape,
            params,
            program,
            pointers: OnceLock::new(),
        }))
    }

    /// The address of an array of pointers to the parameters' values, in the form of
    /// `kernelParams`; both live as long as this launch. 0 if the layout of the parameters is
    /// unknown.
    pub fn param_pointers(&self) -> usize {
        let places = self.function.copied();
        if places.is_empty() {
            return 0;
        }
        let pointers = self.pointers.get_or_init(|| {
            let base = self.params.bytes().as_ptr().expose_provenance();
            places.iter().map(|(offset, _)| base + offset).collect()
        });
        pointers.as_ptr().expose_provenance()
    }

    /// The value that its kernel waits for after its time, if it is a spinning kernel.
    pub(crate) fn spins(self: &Arc<Self>) -> Option<ValueWait> {
        let builtin = self.function.builtin().filter(|builtin| builtin.spins())?;
        let launch = Arc::clone(self);
        Some(ValueWait::new(move || {
            let _still = memory::still();
            builtin.has_come(&launch.params, launch.function.context())
        }))
    }

    /// Its run, if it has a kernel of a PTX text.
    pub(crate) fn job(self: &Arc<Self>) -> Option<Job> {
        self.program.as_ref()?;
        let launch = Arc::clone(self);
        Some(Job::new(move || match &launch.program {
            Some(program) => program.run(launch.function.context()),
            None => (0, Ok(())),
        }))
    }

    /// The ranges of memory that its kernel accesses; none if the kernel is not built in.
    pub(crate) fn accesses(&self) -> Vec<Accessed> {
        let builtin = self.function.builtin();
        builtin.map_or_else(Vec::new, |builtin| builtin.accesses(&self.params))
    }

    /// The operation of this launch.
    pub fn op(self: &Arc<Self>) -> Op {
        let spec = self.function.context().device().spec();
        let blocks = self.shape.blocks();
        let ns = self.function.builtin().map_or(LAUNCH_NS, |builtin| {
            builtin.duration(&self.params, blocks, spec.bw)
        });
        let launch = Arc::clone(self);
        Op::new(
            Kind::Kernel(Arc::clone(self)),
            Cost::Compute {
                ns,
                threads: self.shape.threads(),
            },
            move || match launch.function.builtin() {
                Some(builtin) => {
                    let _still = memory::still();
                    builtin.run(&launch.params, launch.function.context())
                }
                None => Ok(()),
            },
        )
    }
}

/// Launches in `stream`.
///
/// # Errors
/// `INVALID_HANDLE` if function and stream belong to different contexts; as [`Launch::new`] and
/// [`exec::submit`].
pub fn launch(stream: &StreamRef, function: Arc<Function>, shape: Shape, params: Params) -> Result {
    if function.context().id() != stream.context().id() {
        return Err(CUresult::INVALID_HANDLE);
    }
    exec::host_takes(stream.context().device().spec().launch);
    let launch = Launch::new(function, shape, params)?;
    exec::submit(stream.context(), stream, launch.op())
}
