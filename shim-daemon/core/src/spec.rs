//! What the daemon tells the core about devices, containers and its own policy.

use crate::ids::{CostClass, DeviceId, Gang};
use crate::lease::{Compute, LeasePolicy};
use crate::limbo::Limbo;
use crate::part::Implied;
use crate::resolver::Resolver;
use crate::time::Nanos;
use gpushare_protocol::units::{Bytes, Permille};

/// A device as registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// Memory that processes can use, in bytes: what NVML calls total less what it calls reserved.
    pub capacity: Bytes,
    /// Bytes never given out: room for the driver's own growth and for fragmentation.
    pub reserve: Bytes,
    /// Whose context cost it shares.
    pub class: CostClass,
}

impl DeviceSpec {
    /// What may be given out: capacity less reserve.
    pub fn usable(&self) -> Bytes {
        self.capacity - self.reserve
    }
}

/// A container's memory on one device. Bytes; `request` is at most `limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The guaranteed part.
    pub request: Bytes,
    /// The ceiling of all its processes' charges together.
    pub limit: Bytes,
}

/// The worst that others' collisions may do to a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemptible {
    /// Nothing: what it holds it keeps until it frees it.
    #[default]
    Never,
    /// It may be ended while it holds more than its request.
    Kill,
}

/// A container as registered: the law, whatever its environment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSpec {
    /// The devices it may use, each once.
    pub quotas: Vec<(DeviceId, Quota)>,
    /// Devices among them on which the request is implied by a limit in percent: there it follows
    /// what contexts take, and what `quotas` says of it is replaced.
    pub implied: Vec<(DeviceId, Implied)>,
    /// Its share of the time of devices, each of them one of `quotas` and named once. One not named: no cap, an equal share.
    pub compute: Vec<(DeviceId, Compute)>,
    /// 0 to 1000, higher first.
    pub priority: u16,
    /// Resolvers tried in order when a wanted grant does not fit. Empty means out-of-memory at once.
    pub on_collision: Vec<Resolver>,
    /// Longest one of its allocations may block.
    pub wait_timeout: Nanos,
    /// No GPU work for this long makes it idle.
    pub idle_after: Nanos,
    /// What collisions of others may do to it.
    pub preemptible: Preemptible,
    /// Ends it after this long without GPU work (interactive containers).
    pub idle_end: Option<Nanos>,
    /// Ends it this long after its admission (interactive containers).
    pub run_limit: Option<Nanos>,
    /// The gang it belongs to: what its kernels may wait for on the device.
    pub gang: Option<Gang>,
}

/// Why a registration or a change is refused. `Display` says the numbers and what would be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The container is registered already, or its id was used before.
    #[error("the container is registered already")]
    Registered,
    /// A change for a container that is not registered.
    #[error("no such container")]
    Unknown,
    /// It names a device the node does not have, or names one twice.
    #[error("device {0:?} is unknown or named twice")]
    Device(DeviceId),
    /// A change may alter quotas, not which devices they are on.
    #[error("the devices of a container cannot change while it runs")]
    Devices,
    /// The request is above the limit.
    #[error("on {device:?} the request of {} is above the limit of {}", .quota.request, .quota.limit)]
    AboveLimit {
        /// Where.
        device: DeviceId,
        /// What was asked.
        quota: Quota,
    },
    /// The guaranteed part of the device's time is above the cap.
    #[error("on {device:?} the compute request of {request} is above the limit of {limit}")]
    ComputeAboveLimit {
        /// Where.
        device: DeviceId,
        /// What was asked.
        request: Permille,
        /// The cap.
        limit: Permille,
    },
    /// So much of the device's time is guaranteed to others that this request could not be kept.
    #[error(
        "on {device:?} the compute request of {request} is {short} too much beside those of others"
    )]
    ComputeTaken {
        /// Where.
        device: DeviceId,
        /// What was asked.
        request: Permille,
        /// How much is missing.
        short: Permille,
    },
    /// The request and one context can never fit this device.
    #[error("on {device:?} at most {most} can be guaranteed, {request} were requested")]
    TooLarge {
        /// Where.
        device: DeviceId,
        /// What was asked.
        request: Bytes,
        /// The most that could ever be guaranteed there.
        most: Bytes,
    },
    /// A raised request does not fit beside what is promised to others now.
    #[error("on {device:?} {short} are missing to guarantee that request now")]
    NoRoom {
        /// Where.
        device: DeviceId,
        /// How much is missing.
        short: Bytes,
    },
    /// A resolver that always decides is followed by another, which could never be tried.
    #[error("nothing after {0:?} is ever tried: put it last")]
    Unreachable(Resolver),
}

impl ContainerSpec {
    /// What can be told without knowing the node: quotas and the order of resolvers.
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

    /// Its compute share on `device`.
    pub fn compute(&self, device: DeviceId) -> Compute {
        self.compute
            .iter()
            .find(|(own, _)| *own == device)
            .map_or_else(Compute::default, |(_, compute)| *compute)
    }

    /// What its limit implies on `device`, if its request is not its own.
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
    /// Grants are raised to multiples of this while memory is plenty, so that few allocations have to ask.
    pub step: Bytes,
    /// What a first context is expected to take before one was measured.
    pub first_overhead: Bytes,
    /// The most overhead believed of one process; what it holds beyond counts as excess of its container.
    pub most_overhead: Bytes,
    /// From SIGTERM to SIGKILL.
    pub term_grace: Nanos,
    /// How long after SIGKILL a victim's bytes still count as coming.
    pub kill_grace: Nanos,
    /// How long limbo counts as coming: a forked child may keep it for ever.
    pub limbo_grace: Nanos,
    /// The same for limbo of containers that were ended: who had them ended waits for it, and nobody else is ended instead.
    pub victim_grace: Nanos,
    /// How long waiters must be stuck on each other before one of them is refused.
    pub cycle_grace: Nanos,
    /// How long after memory was set aside for a process's context the device must have shown that
    /// process; else it is given up.
    pub open_grace: Nanos,
    /// How long an ask that would be refused at once waits for what is set aside by guess to be
    /// measured.
    pub guess_grace: Nanos,
    /// How long before an idle end or a run limit the container is warned.
    pub end_warning: Nanos,
    /// Most asks one process may have waiting; threads beyond that are refused.
    pub most_waiting: usize,
    /// Once so many asks of a container wait, each of its processes may have one more only if it has none: every event on a
    /// device looks at all that wait there, and others' answers wait for that.
    pub most_waiting_together: usize,
    /// How turns on devices are dealt.
    pub lease: LeasePolicy,
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

    /// How long an ask within its request waits, whatever its own patience: as long as ending a victim takes that then gives back what
    /// it held.
    pub(crate) fn least_guarantee(&self) -> Nanos {
        self.ladder() + self.limbo_grace
    }

    /// How long one is expected to take at most: a victim gives nothing back, and the next one walks the whole ladder.
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
        }
    }
}
