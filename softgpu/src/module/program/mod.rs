//! Kernels of PTX texts: what a module says of them, and their runs.

mod memory;

use gpushare_cuda_abi::cuda::{CUfunction_attribute as Attribute, CUresult};
use softgpu_ptx::{Fault, Kernel, Module, Progress, Run, TrapKind};

use super::attributes::DEFAULT_SHARED;
use super::function::Function;
use super::launch::Shape;
use super::occupancy::blocks_per_sm;
use super::params::Params;
use super::variables::{Patch, Variable};
use crate::context::Context;
use crate::error::Result;
use crate::memory::{managed, still};
use memory::DeviceMemory;

/// Instructions that run before calls that remove mappings have their turn.
const SLICE: u64 = 50_000;

/// The attributes of a kernel.
pub(super) fn attributes(module: &Module, kernel: &Kernel<'_>) -> Vec<(Attribute, u64)> {
    let shared = kernel.static_shared();
    let mut known = vec![
        (Attribute::SHARED_SIZE_BYTES, shared.into()),
        (Attribute::LOCAL_SIZE_BYTES, kernel.local_bytes().into()),
        (Attribute::CONST_SIZE_BYTES, kernel.const_bytes()),
        (Attribute::NUM_REGS, kernel.registers().into()),
        (
            Attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES,
            DEFAULT_SHARED.saturating_sub(shared).into(),
        ),
    ];
    if module.target() > 0 {
        known.push((Attribute::PTX_VERSION, module.target().into()));
    }
    if let Some(sides) = kernel.exact_threads().or_else(|| kernel.max_threads()) {
        let threads = sides.iter().map(|side| u64::from(*side)).product();
        known.push((Attribute::MAX_THREADS_PER_BLOCK, threads));
    }
    known
}

/// The variables of a module that get memory: not those that are defined elsewhere, and not managed
/// ones.
pub(super) fn variables(module: &Module) -> Vec<Variable> {
    let all = module.variables();
    let own = all
        .iter()
        .filter(|variable| variable.size > 0 && !variable.managed);
    let wide = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    own.map(|variable| Variable {
        name: variable.name.clone(),
        size: wide(variable.size),
        align: wide(variable.align),
        initial: variable.init.clone(),
        patches: variable
            .patches
            .iter()
            .map(|patch| Patch {
                offset: patch.offset,
                name: all[patch.variable].name.clone(),
                addend: patch.addend,
            })
            .collect(),
    })
    .collect()
}

/// The reason for which a kernel cannot be launched, with its name and the lines, if there is one.
pub(super) fn lacks(module: &Module, name: &str) -> Option<String> {
    let kernel = module.kernel(name)?;
    let mut lacks: Vec<String> = kernel
        .unknown()
        .into_iter()
        .map(|(line, what)| format!("kernel {name}, line {line}: {what}"))
        .collect();
    let all = module.variables();
    for variable in kernel.variables().into_iter().filter_map(|at| all.get(at)) {
        if variable.managed {
            lacks.push(format!(
                "kernel {name}: `{}` is managed memory",
                variable.name
            ));
        } else if variable.size == 0 {
            lacks.push(format!("kernel {name}: `{}` is not defined", variable.name));
        }
    }
    (!lacks.is_empty()).then(|| lacks.join("\n"))
}

/// One launch of a kernel.
#[derive(Debug)]
pub(super) struct Program(softgpu_ptx::Launch);

impl Program {
    /// The run of a launch; `None` if the function is no kernel of a PTX text.
    ///
    /// # Errors
    /// `NOT_SUPPORTED`, with lines on stderr, if the kernel has instructions that are not known;
    /// `INVALID_VALUE` if it requires blocks of another shape, or more parameters.
    pub(super) fn new(function: &Function, shape: &Shape, params: &Params) -> Result<Option<Self>> {
        if !function.is_program() {
            return Ok(None);
        }
        let image = function.module().image();
        let Some(module) = image.ptx() else {
            return Ok(None);
        };
        let Some(kernel) = module.kernel(function.name()) else {
            return Ok(None);
        };
        if let Some(lacks) = lacks(module, function.name()) {
            eprintln!("softgpu: {lacks}");
            return Err(CUresult::NOT_SUPPORTED);
        }
        let exact = kernel.exact_threads();
        if exact.is_some_and(|exact| exact != shape.block) {
            return Err(CUresult::INVALID_VALUE);
        }
        let spec = function.context().device().spec();
        let threads: u32 = shape.block.iter().product();
        let shared = shape.shared.saturating_add(kernel.static_shared());
        let place = |variable: &softgpu_ptx::Variable| {
            let found = function.module().variable(&variable.name);
            found.map_or(0, |(address, _)| address)
        };
        Ok(Some(Self(softgpu_ptx::Launch {
            module: module.clone(),
            kernel: function.name().to_owned(),
            params: params.bytes().to_vec(),
            grid: shape.grid,
            block: shape.block,
            dynamic_shared: shape.shared,
            addresses: module.variables().iter().map(place).collect(),
            resident: spec.sm.saturating_mul(blocks_per_sm(threads, shared)),
            multiprocessors: spec.sm,
            watchdog: spec.watchdog,
        })))
    }

    /// Runs it to its end. Returns the time it takes on the engine (ns), and its fault.
    pub(super) fn run(&self, context: &Context) -> (u64, Result) {
        let Some(mut run) = Run::new(self.0.clone()) else {
            return (0, Err(CUresult::INVALID_HANDLE));
        };
        let mut moved = 0_u64;
        loop {
            let (step, touched) = {
                let still = still();
                let mut memory = DeviceMemory::new(context, &still);
                let step = run.step(&mut memory, SLICE);
                (step, memory.touched())
            };
            // Without the guard: memory that goes takes the lock.
            if let Some(touch) = managed::touch(&touched) {
                moved = moved.saturating_add(touch.ns(context.device()));
            }
            let ns = run.executed().saturating_mul(context.device().spec().inst);
            let ns = ns
                .saturating_add(moved)
                .saturating_add(super::kernels::LAUNCH_NS);
            match step {
                Ok(Progress::Ended) => return (ns, Ok(())),
                // Another kernel's fault ends the context, and all its kernels.
                Ok(Progress::Running) if context.check().is_err() => return (ns, Ok(())),
                Ok(Progress::Running) => {}
                Err(trap) => {
                    let result = fault(&trap.kind);
                    if is_ours(&trap.kind) {
                        eprintln!("softgpu: {trap}");
                    }
                    return (ns, Err(result));
                }
            }
        }
    }
}

/// Whether the reason is the software GPU's own, so that a line on stderr says it.
fn is_ours(kind: &TrapKind) -> bool {
    use TrapKind as T;
    matches!(
        kind,
        T::Missing(_) | T::Unknown(_) | T::Deadlock | T::Watchdog | T::Stack
    )
}

/// The result of a context that is lost for this reason.
fn fault(kind: &TrapKind) -> CUresult {
    match kind {
        TrapKind::Global(Fault::Illegal, _) => CUresult::ILLEGAL_ADDRESS,
        TrapKind::Global(Fault::Misaligned, _) | TrapKind::Inside(Fault::Misaligned, _) => {
            CUresult::MISALIGNED_ADDRESS
        }
        TrapKind::Assertion => CUresult::ASSERT,
        TrapKind::NoFunction(_) => CUresult::INVALID_PC,
        // A device would wait for ever, or until its watchdog ends the kernel.
        TrapKind::Deadlock | TrapKind::Watchdog => CUresult::LAUNCH_TIMEOUT,
        // Out-of-range shared and local memory, and `trap`: the documentation of LAUNCH_FAILED.
        TrapKind::Inside(Fault::Illegal, _)
        | TrapKind::Trap
        | TrapKind::Missing(_)
        | TrapKind::Unknown(_)
        | TrapKind::Stack => CUresult::LAUNCH_FAILED,
    }
}
