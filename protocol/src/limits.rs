//! A tenant's limits, read from its environment.
//!
//! Evaluation: every variable that is set is read, and an invalid value is refused even where
//! another variable takes precedence. Per device, our own variables take precedence over the
//! aliases, as a block of limit and request; then `CUDA_DEVICE_*` (HAMi), then `NVIDIA_GPU_*` (the
//! r615 toolkit), then `CUDA_MPS_*`. Within one owner's variables the device's UUID takes
//! precedence over its ordinal, and that over the plain name. A misspelt `GPUSHARE_MEM_*` or
//! `GPUSHARE_SM_*` is refused, because ignoring it would mean "no limit".
//!
//! A node's defaults lie below all that: each limit and each request of a device that the
//! environment does not come to, in whatever variables, and each other variable that it does not
//! set. A node's maxima lie above: [`Maxima`].

mod amounts;
mod changes;
mod compute;
mod device;
mod error;
mod flags;
mod layer;
mod maxima;
mod maxima_read;
mod model;
mod near;
mod outranked;
mod policy;
mod seen;
mod setting;
mod table;

pub use changes::{changed, means_nothing, replaces};
pub use compute::ComputeLimits;
pub use device::{DeviceLimits, Guarantor, ImpliedRequest};
pub use error::LimitError;
pub use flags::{Kind, as_flags, flag};
pub use layer::Selector;
pub use maxima::Maxima;
pub use model::{Limits, View};
pub use policy::{Oversubscribe, Policy, Preemptible, Resolver, span};

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

impl Limits {
    /// Reads an environment, such as `std::env::vars_os()`. Where a name occurs twice the first one
    /// counts, as for `getenv`.
    ///
    /// Of the view of a request ([`View::Request`]) it is not asked whether there is one: a program
    /// of a daemon's tenant has only its own part of the environment.
    ///
    /// # Errors
    /// The first value, in the order of the table, that is invalid, contradicts another, or needs a
    /// feature that this release lacks.
    pub fn from_env(
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, LimitError> {
        Self::from_env_over(environment, [])
    }

    /// As [`Self::from_env`], with a node's `defaults` for variables that are unset.
    ///
    /// # Errors
    /// As [`Self::from_env`], of either.
    pub fn from_env_over(
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        defaults: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, LimitError> {
        table::read(environment, defaults)?.checked()
    }

    /// As [`Self::from_env_over`], and no more than a node's `maxima`. A default above its maximum
    /// is that maximum: the environment has not asked for it.
    ///
    /// # Errors
    /// As there, and the first variable that asks for more; where only a device's size shows it,
    /// [`Self::for_device`] refuses. The view of a request where neither environment nor defaults
    /// have an amount of memory.
    pub fn from_env_under(
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        defaults: impl IntoIterator<Item = (OsString, OsString)>,
        maxima: Maxima,
    ) -> Result<Self, LimitError> {
        let environment: Vec<_> = environment.into_iter().collect();
        let mut limits = Self::from_env_over(environment.clone(), defaults)?;
        maxima.hold(&mut limits.policy, |name| {
            let (_, value) = environment.iter().find(|(set, _)| set == name)?;
            Some(value.to_string_lossy().into_owned())
        })?;
        maxima.check(limits.memory.own(), limits.time.own())?;
        limits.maxima = maxima;
        limits.check_view()?;
        Ok(limits)
    }

    /// The limits on one device: `ordinal` as the program sees it, `capacity` its memory in bytes.
    ///
    /// # Errors
    /// A request that is above the limit or the device, or an amount above the node's maximum,
    /// where only the device's size shows it.
    pub fn for_device(
        &self,
        ordinal: u32,
        uuid: &[u8; 16],
        capacity: u64,
    ) -> Result<DeviceLimits, LimitError> {
        device::limits(self, ordinal, uuid, capacity)
    }

    /// The request that a limit in percent implies on one device of this `capacity` without an
    /// explicit request. A daemon guarantees that part of the memory that is left beside contexts,
    /// where [`Self::for_device`] gives the part of the whole device.
    pub fn implied(&self, ordinal: u32, uuid: &[u8; 16], capacity: u64) -> Option<ImpliedRequest> {
        device::implied(self, ordinal, uuid, capacity)
    }

    /// The value by which memory of one device is guaranteed, if any is.
    pub fn guarantor(&self, ordinal: u32, uuid: &[u8; 16]) -> Option<Guarantor> {
        device::guarantor(self, ordinal, uuid)
    }

    /// The refusal of the first value of this environment that is for none of the `devices`, which
    /// are the tenant's, as its programs count them. Only variables that are `meant` are looked at,
    /// and no defaults: those are of a whole node.
    pub fn unseen(&self, devices: &[[u8; 16]], meant: impl Fn(&str) -> bool) -> Option<LimitError> {
        seen::unseen(self, devices, meant)
    }

    /// Whether `GPUSHARE_DISABLE=1` asks the library to stay out of this process.
    pub fn disabled(&self) -> bool {
        self.disabled
    }

    /// The folder with the daemon's socket, where this environment belongs to a tenant of a daemon.
    /// The daemon's registration then overrides the environment.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// Priority, resolvers, waiting, idleness, preemption.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// These limits where no daemon is.
    ///
    /// # Errors
    /// Names the first variable that only a daemon can honour, or a view of a request that is not
    /// set: only a daemon's tenant can have it elsewhere.
    pub fn without_daemon(self) -> Result<Self, LimitError> {
        self.policy.without_daemon()?;
        match &self.socket {
            None => {
                self.check_view()?;
                Ok(self)
            }
            Some(folder) => Err(LimitError::new(
                "GPUSHARE_SOCKET",
                folder.to_string_lossy(),
                "it names a daemon's tenant, and this runs without a daemon",
                "unset it",
            )),
        }
    }

    /// Whether a variable of this name says something of a tenant's limits.
    pub fn reads(name: &str) -> bool {
        table::knows(name)
    }

    /// As [`Self::reads`], for a reader of single variables that must not take a misspelt limit for
    /// none.
    ///
    /// # Errors
    /// If the name is misspelt: that of [`Self::from_env`].
    pub fn asks(name: &str, value: &str) -> Result<bool, LimitError> {
        table::asks(name, &value.into())
    }

    /// The refusal of the first of these variables that sets a lower limit aside, or one that
    /// cannot be compared with it, for a reader that cannot tell an operator's from an image's. The
    /// groups have precedence in their order, each hiding what later ones say of memory, or of
    /// time, where it says something of that itself.
    pub fn outranked(groups: &[&[(String, String)]]) -> Option<LimitError> {
        outranked::outranked(groups)
    }

    /// Whether programs see their request as the total.
    pub fn shows_request(&self) -> bool {
        self.view == View::Request
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "view={}",
            if self.view == View::Limit {
                "limit"
            } else {
                "request"
            }
        )?;
        if self.disabled {
            write!(out, " disabled")?;
        }
        self.memory.write(out, "", |layer| !layer.is_empty())?;
        self.time.write(out, "sm", compute::says_something)?;
        write!(out, "{}", self.policy)
    }
}

#[cfg(test)]
mod changes_tests;
#[cfg(test)]
mod defaults_tests;
#[cfg(test)]
mod implied_tests;
#[cfg(test)]
mod maxima_tests;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod said_tests;
#[cfg(test)]
mod service_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod view_tests;
