//! Operations that can be submitted: a kind (which a graph node stores), a cost and an effect.

use std::fmt;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::{CUDA_MEMCPY3D_v2, CUDA_MEMSET_NODE_PARAMS_v2};

use super::engine::Work;
use super::host::HostCall;
use super::lane::Lane;
use super::needs::Needs;
use crate::error::Result;
use crate::memory::{self, copy, managed, memset};
use crate::module::Launch;
use crate::spec::{Duplex, Spec};
use crate::world::Device;

/// The effect of an operation on memory. It can run any number of times (a graph replays it) and on
/// any thread. It must neither submit nor wait. An error is a device fault: the context is lost
/// with that result.
pub type Effect = Arc<dyn Fn() -> Result + Send + Sync>;

/// The effect of an operation on managed memory when it begins. It makes pages resident, and
/// returns the time that the operation takes for it (ns), besides its own.
#[derive(Clone)]
pub struct Touch(Arc<Act>);

type Act = dyn Fn(&Arc<Device>) -> u64 + Send + Sync;

impl Touch {
    /// A touch that `act` carries out, with the device of the operation.
    pub fn new(act: impl Fn(&Arc<Device>) -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(act))
    }

    /// Carries it out.
    pub(crate) fn ns(&self, device: &Arc<Device>) -> u64 {
        (self.0)(device)
    }
}

impl fmt::Debug for Touch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Touch")
    }
}

/// The device time that an operation takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// Nothing: bookkeeping in stream order.
    Instant,
    /// The multiprocessors for `ns` nanoseconds, filled by `threads` threads.
    Compute {
        /// Nanoseconds on the multiprocessors.
        ns: u64,
        /// Threads of the whole grid.
        threads: u64,
    },
    /// Bytes over the link from host to device.
    ToDevice(u64),
    /// Bytes over the link from device to host.
    ToHost(u64),
    /// Bytes read and written within device memory.
    OnDevice(u64),
}

/// The kind of an operation, as far as a captured or built graph must know it.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A kernel launch.
    Kernel(Arc<Launch>),
    /// A copy of any shape.
    Copy(Raw<CUDA_MEMCPY3D_v2>),
    /// A memset of one or two dimensions.
    Fill(Raw<CUDA_MEMSET_NODE_PARAMS_v2>),
    /// A host function.
    Host(HostCall),
    /// Work in stream order that has no graph node: it cannot be captured.
    Plain,
}

/// One operation.
#[derive(Clone)]
pub struct Op {
    /// Its kind.
    pub kind: Kind,
    /// Its cost.
    pub cost: Cost,
    /// Its effect; `None` for a host function, whose effect is the call, and for a kernel that is a
    /// job.
    pub effect: Option<Effect>,
    /// The operation's effect on managed memory, if that does not follow from its kind.
    pub touch: Option<Touch>,
}

impl Op {
    /// An operation of the given kind.
    pub fn new(
        kind: Kind,
        cost: Cost,
        effect: impl Fn() -> Result + Send + Sync + 'static,
    ) -> Self {
        Self {
            kind,
            cost,
            effect: Some(Arc::new(effect)),
            touch: None,
        }
    }

    /// The same operation, which does this to managed memory when it begins.
    pub fn touching(mut self, touch: Touch) -> Self {
        self.touch = Some(touch);
        self
    }

    /// Its needs of memory from its beginning on.
    fn needs(&self) -> Needs {
        let is_managed = managed::exists();
        if !is_managed && !memory::vmm::is_used() {
            return Needs::default();
        }
        let ranges = match &self.kind {
            Kind::Kernel(launch) => launch.accesses(),
            Kind::Copy(copy) => copy::accesses(&copy.0),
            Kind::Fill(fill) => memset::accesses(&fill.0),
            Kind::Host(_) | Kind::Plain => {
                let touch = self.touch.clone().filter(|_| is_managed);
                return Needs::of(touch, &[]);
            }
        };
        Needs::of(managed::touch(&ranges), &ranges)
    }

    /// The work it needs on a machine described by `spec`.
    pub(crate) fn work(&self, spec: &Spec) -> Work {
        let spins = match &self.kind {
            Kind::Host(call) => return Work::Host(*call),
            Kind::Kernel(launch) => launch.spins(),
            _ => None,
        };
        if let (Kind::Kernel(launch), Some(demand)) = (&self.kind, self.cost.demand(spec))
            && let Some(job) = launch.job()
        {
            return Work::Runs(demand, job);
        }
        match (self.cost.demand(spec), spins) {
            (Some(demand), Some(value)) => Work::Spin(demand, value),
            (Some(demand), None) => Work::Engine(demand, self.needs()),
            (None, _) => Work::Instant,
        }
    }

    /// An operation that no graph node can store.
    pub fn plain(cost: Cost, effect: impl Fn() -> Result + Send + Sync + 'static) -> Self {
        Self::new(Kind::Plain, cost, effect)
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op")
            .field("kind", &self.kind)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

pub use raw::Raw;

mod raw {
    //! # Safety
    //! The `unsafe` promises one thing: descriptors full of addresses may cross threads.
    #![allow(
        unsafe_code,
        reason = "a C descriptor of addresses is not Send by itself"
    )]

    /// A C descriptor as the application passed it. Its addresses are plain numbers; code that
    /// turns an address into a reference checks it first.
    #[derive(Debug, Clone, Copy)]
    pub struct Raw<T>(pub T);

    // SAFETY: the wrapper gives no access to what the addresses point to; effects that use them are
    // bound by the API's own rule that the application keeps the memory alive and unshared until
    // the operation is complete.
    unsafe impl<T: Copy> Send for Raw<T> {}
    // SAFETY: as above; the descriptor itself is never written after it is made.
    unsafe impl<T: Copy> Sync for Raw<T> {}
}

/// The engines of a device. The value is the index of the engine's shared words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum EngineKind {
    Compute = 0,
    ToDevice = 1,
    ToHost = 2,
}

/// Threads resident on one multiprocessor at a time, on every architecture since 8.0.
const THREADS_PER_SM: u64 = 2048;
/// Time to start a copy, in addition to its bytes (ns).
const COPY_SETUP: u64 = 1_000;

impl EngineKind {
    /// An idle lane of this engine on a machine described by `spec`, whose log of turns ends at
    /// `place`.
    pub(super) fn lane(self, spec: &Spec, seat: usize, place: u64) -> Lane {
        let capacity = match self {
            Self::Compute => THREADS_PER_SM * u64::from(spec.sm),
            Self::ToDevice | Self::ToHost => 1,
        };
        Lane::new(capacity, seat, place)
    }
}

/// Time on one engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    pub(crate) engine: EngineKind,
    pub(crate) ns: u64,
    pub(crate) load: u64,
}

impl Cost {
    /// The engine time this costs on a machine described by `spec`; `None` if it takes none.
    pub(crate) fn demand(self, spec: &Spec) -> Option<Demand> {
        match self {
            Self::Instant => None,
            Self::Compute { ns, threads } => Some(Demand {
                engine: EngineKind::Compute,
                ns: ns.max(1),
                load: threads.max(1),
            }),
            Self::ToDevice(bytes) => Some(transfer(EngineKind::ToDevice, bytes, spec.link)),
            Self::ToHost(bytes) => {
                let engine = match spec.duplex {
                    Duplex::Full => EngineKind::ToHost,
                    Duplex::Half => EngineKind::ToDevice,
                };
                Some(transfer(engine, bytes, spec.link))
            }
            Self::OnDevice(bytes) => Some(transfer(EngineKind::Compute, bytes, spec.bw)),
        }
    }
}

fn transfer(engine: EngineKind, bytes: u64, rate: u64) -> Demand {
    Demand {
        engine,
        ns: COPY_SETUP + nanoseconds(bytes, rate),
        load: 1,
    }
}

/// How long `bytes` take at `rate` bytes per second (ns, rounded down).
pub(crate) fn nanoseconds(bytes: u64, rate: u64) -> u64 {
    let exact = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    u64::try_from(exact).unwrap_or(u64::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_takes_its_bytes_over_the_link() {
        let spec = Spec {
            link: 1 << 30,
            ..Spec::default()
        };
        let demand = Cost::ToDevice(1 << 29).demand(&spec).unwrap();
        assert_eq!(
            (demand.engine, demand.ns),
            (EngineKind::ToDevice, 500_000_000 + COPY_SETUP)
        );
        assert!(Cost::Instant.demand(&spec).is_none());
    }

    #[test]
    fn half_duplex_is_one_engine_for_both_directions() {
        let engine = |duplex, cost: Cost| {
            let spec = Spec {
                duplex,
                ..Spec::default()
            };
            cost.demand(&spec).unwrap().engine
        };
        let both = |duplex| [Cost::ToDevice(1), Cost::ToHost(1)].map(|cost| engine(duplex, cost));
        assert_eq!(
            both(Duplex::Full),
            [EngineKind::ToDevice, EngineKind::ToHost]
        );
        assert_eq!(both(Duplex::Half), [EngineKind::ToDevice; 2]);
    }
}
