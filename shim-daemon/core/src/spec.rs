//! The daemon's description of devices, tenants and its own policy, for the core.

use crate::ids::{CostClass, DeviceId, Gang};
use crate::lease::{Compute, LeasePolicy};
use crate::limbo::Limbo;
use crate::part::Implied;
use crate::residency::SwapPolicy;
use crate::resolver::Resolver;
use crate::time::Nanos;
use gpushare_protocol::units::{Bytes, Permille};

/// A device as registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// Memory that processes can use, in bytes: NVML's total less its reserved memory.
    pub capacity: Bytes,
    /// Bytes never given out: room for the driver's own growth and for fragmentation.
    pub reserve: Bytes,
    /// Devices of the same class share the cost of a context.
    pub class: CostClass,
}

impl DeviceSpec {
    /// Memory that may be granted: capacity less reserve.
    pub fn usable(&self) -> Bytes {
        self.capacity - self.reserve
    }
}

/// A tenant's memory on one device. Bytes; `request` is at most `limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The guaranteed part.
    pub request: Bytes,
    /// The ceiling of all its processes' charges together.
    pub limit: Bytes,
}

/// The worst effect of other tenants' collisions on a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemptible {
    /// None: it keeps its memory until it frees it.
    #[default]
    Never,
    /// It may be moved to the host, if it can be.
    Swap,
    /// It may be moved if it can be, and ended while it holds more than its request.
    Kill,
}

/// How a tenant's memory may leave the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oversubscribe {
    /// Not at all.
    #[default]
    Off,
    /// Its processes move it to the host and back, when ordered.
    Swap,
    /// The same with the driver's managed memory, whose pages the driver moves too: it may be more
    /// than the card holds, and the host memory that it takes is the processes' own.
    Uvm,
}

/// How memory that a tenant holds above its request may be taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loan {
    /// Its processes can move it to the host.
    pub(crate) moves: bool,
    /// It is managed memory: what does not fit on the card is on the host.
    pub(crate) paged: bool,
    /// Others' collisions may take it back, by a move or by ending the tenant.
    pub(crate) revocable: bool,
    /// They may end the tenant.
    pub(crate) killable: bool,
}

/// A tenant as registered: these limits apply, whatever its environment contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSpec {
    /// The devices it may use, each once.
    pub quotas: Vec<(DeviceId, Quota)>,
    /// Devices on which the request is implied by a limit in percent. There it follows the cost of
    /// contexts, and replaces the one in `quotas`.
    pub implied: Vec<(DeviceId, Implied)>,
    /// Its share of the time of devices, each of them one of `quotas` and named once. One not
    /// named: no cap, an equal share.
    pub compute: Vec<(DeviceId, Compute)>,
    /// 0 to 1000, higher first.
    pub priority: u16,
    /// Resolvers tried in order when a wanted grant does not fit. Empty means out-of-memory at
    /// once.
    pub on_collision: Vec<Resolver>,
    /// Longest one of its allocations may block.
    pub wait_timeout: Nanos,
    /// No GPU work for this long makes it idle.
    pub idle_after: Nanos,
    /// The effect of other tenants' collisions on it.
    pub preemptible: Preemptible,
    /// How its memory may leave the card.
    pub oversubscribe: Oversubscribe,
    /// Ends it after this long without GPU work (interactive tenants).
    pub idle_end: Option<Nanos>,
    /// Ends it this long after its admission (interactive tenants).
    pub run_limit: Option<Nanos>,
    /// Its gang: the tenants on whose kernels its kernels may wait.
    pub gang: Option<Gang>,
}

/// Why a registration or a change is refused. `Display` gives the numbers and the accepted values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The tenant is registered already, or its id was used before.
    #[error("the tenant is registered already")]
    Registered,
    /// A change for a tenant that is not registered.
    #[error("no such tenant")]
    Unknown,
    /// It names a device the node does not have, or names one twice.
    #[error("device {0:?} is unknown or named twice")]
    Device(DeviceId),
    /// A change may alter quotas, not which devices they are on.
    #[error("the devices of a tenant cannot change while it runs")]
    Devices,
    /// Whether memory can leave the card is decided when the first of it is allocated.
    #[error("how a tenant's memory may leave the card cannot change while it runs")]
    Oversubscribe,
    /// A tenant that swaps on a node without host memory for it.
    #[error("this node has no host memory for swapping")]
    NoHost,
    /// The request is above the limit.
    #[error("on {device:?} the request of {} is above the limit of {}", .quota.request, .quota.limit)]
    AboveLimit {
        /// Where.
        device: DeviceId,
        /// The requested quota.
        quota: Quota,
    },
    /// The guaranteed part of the device's time is above the cap.
    #[error("on {device:?} the compute request of {request} is above the limit of {limit}")]
    ComputeAboveLimit {
        /// Where.
        device: DeviceId,
        /// The requested part.
        request: Permille,
        /// The cap.
        limit: Permille,
    },
    /// The guarantees of other tenants leave too little of the device's time for this request.
    #[error(
        "on {device:?} the compute request of {request} exceeds the rest beside other tenants' requests by {short}"
    )]
    ComputeTaken {
        /// Where.
        device: DeviceId,
        /// The requested part.
        request: Permille,
        /// How much is missing.
        short: Permille,
    },
    /// The request and one context can never fit this device.
    #[error("on {device:?} at most {most} can be guaranteed, {request} were requested")]
    TooLarge {
        /// Where.
        device: DeviceId,
        /// The requested bytes.
        request: Bytes,
        /// The most that could ever be guaranteed there.
        most: Bytes,
    },
    /// A raised request does not fit beside the current guarantees of other tenants.
    #[error("on {device:?} {short} are missing to guarantee that request now")]
    NoRoom {
        /// Where.
        device: DeviceId,
        /// How much is missing.
        short: Bytes,
    },
    /// Memory would no longer be taken back, and a tenant that moves could not return beside it.
    #[error("on {device:?} {short} are missing for others to return beside memory that stays")]
    NoReturn {
        /// Where.
        device: DeviceId,
        /// How much is missing.
        short: Bytes,
    },
    /// A resolver that always decides is followed by another, which could never be tried.
    #[error("nothing after {0:?} is ever tried: put it last")]
    Unreachable(Resolver),
}

impl TenantSpec {
    /// Checks everything that does not depend on the node: quotas and the order of resolvers.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        for (at, (device, quota)) in self.quotas.iter().enumerate() {
            if self.quotas[..at].iter().any(|(other, _)| other == device) {
                return Err(SpecError::Device(*device));
            }
            if quota.request > quota.limit {
                return Err(SpecError::AboveLimit {
                    device: *device,
                    quota: *quota,
                });
            }
        }
        self.check_compute()?;
        let before_last = self
            .on_collision
            .split_last()
            .map_or(&[][..], |(_, before)| before);
        match before_last
            .iter()
            .find(|resolver| resolver.always_decides())
        {
            Some(resolver) => Err(SpecError::Unreachable(*resolver)),
            None => Ok(()),
        }
    }

    fn check_compute(&self) -> Result<(), SpecError> {
        for (at, (device, compute)) in self.compute.iter().enumerate() {
            let twice = self.compute[..at].iter().any(|(other, _)| other == device);
            if twice || self.quota(*device).is_none() {
                return Err(SpecError::Device(*device));
            }
            if let Some((request, limit)) = compute.request.zip(compute.limit)
                && request > limit
            {
                return Err(SpecError::ComputeAboveLimit {
                    device: *device,
                    request,
                    limit,
                });
            }
        }
        Ok(())
    }

    /// How memory that it holds above its request may be taken back.
    pub(crate) fn loan(&self) -> Loan {
        let moves = self.oversubscribe != Oversubscribe::Off;
        let killable = self.preemptible == Preemptible::Kill;
        let revocable = killable || (moves && self.preemptible == Preemptible::Swap);
        Loan {
            moves,
            paged: self.oversubscribe == Oversubscribe::Uvm,
            revocable,
            killable,
        }
    }

    /// Its compute share on `device`.
    pub fn compute(&self, device: DeviceId) -> Compute {
        self.compute
            .iter()
            .find(|(own, _)| *own == device)
            .map_or_else(Compute::default, |(_, compute)| *compute)
    }

    /// The request that its limit implies on `device`, if it has none of its own.
    pub fn implied(&self, device: DeviceId) -> Option<Implied> {
        let mut implied = self.implied.iter();
        implied
            .find(|(own, _)| *own == device)
            .map(|(_, implied)| *implied)
    }

    /// Its quota on `device`.
    pub fn quota(&self, device: DeviceId) -> Option<Quota> {
        self.quotas
            .iter()
            .find(|(own, _)| *own == device)
            .map(|(_, quota)| *quota)
    }
}

/// The node's own settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Grants are raised to multiples of this while memory is plenty, so that few allocations have
    /// to ask.
    pub step: Bytes,
    /// The expected memory of a first context before one was measured.
    pub first_overhead: Bytes,
    /// The most overhead believed of one process; memory beyond it counts as excess of its tenant.
    pub most_overhead: Bytes,
    /// From SIGTERM to SIGKILL.
    pub term_grace: Nanos,
    /// How long after SIGKILL a victim's bytes still count as coming.
    pub kill_grace: Nanos,
    /// How long limbo counts as coming: a forked child may keep it for ever.
    pub limbo_grace: Nanos,
    /// The same for limbo of ended tenants: the ask for which they were ended waits for it, and no
    /// other tenant is ended instead.
    pub victim_grace: Nanos,
    /// How long waiters must be stuck on each other before one of them is refused.
    pub cycle_grace: Nanos,
    /// How long after memory was set aside for a process's context the device must have shown that
    /// process; else it is given up.
    pub open_grace: Nanos,
    /// How long an ask that would be refused at once waits until estimated reservations are
    /// measured.
    pub guess_grace: Nanos,
    /// How long before an idle end or a run limit the tenant is warned.
    pub end_warning: Nanos,
    /// Most asks one process may have waiting; threads beyond that are refused.
    pub most_waiting: usize,
    /// Once this many asks of a tenant wait, a process of it may add one only if it has none
    /// waiting. Every event on a device visits all asks that wait there, and delays other tenants'
    /// answers.
    pub most_waiting_together: usize,
    /// How turns on devices are dealt.
    pub lease: LeasePolicy,
    /// How tenants' memory is moved to the host and back.
    pub swap: SwapPolicy,
}

impl Policy {
    /// From SIGTERM until a victim's bytes should be back, at the latest.
    pub fn ladder(&self) -> Nanos {
        self.term_grace + self.kill_grace
    }

    /// How long bytes of a dead process count as coming.
    pub(crate) fn limbo_grace(&self, entry: &Limbo) -> Nanos {
        if entry.ended {
            self.victim_grace.max(self.limbo_grace)
        } else {
            self.limbo_grace
        }
    }

    /// How long an ask within its request waits, whatever its own timeout: as long as it takes to
    /// end a victim and get its memory back.
    pub(crate) fn least_guarantee(&self) -> Nanos {
        self.ladder() + self.limbo_grace
    }

    /// The longest time to end one victim: a victim gives nothing back, and the next one walks the
    /// whole ladder.
    pub fn guarantee(&self) -> Nanos {
        self.victim_grace + self.ladder() + self.limbo_grace
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            step: Bytes::mib(64),
            first_overhead: Bytes::mib(512),
            most_overhead: Bytes::gib(2),
            term_grace: Nanos::secs(10),
            kill_grace: Nanos::secs(5),
            limbo_grace: Nanos::secs(2),
            victim_grace: Nanos::secs(30),
            cycle_grace: Nanos::secs(1),
            open_grace: Nanos::secs(10),
            guess_grace: Nanos::secs(2),
            end_warning: Nanos::secs(60),
            most_waiting: 256,
            most_waiting_together: 256,
            lease: LeasePolicy::default(),
            swap: SwapPolicy::default(),
        }
    }
}
