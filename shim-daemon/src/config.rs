//! Translates configuration into the brain's terms: a tenant's limits, and the daemon's own file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use gpushare_core::{
    Compute, DeviceId, LeasePolicy, Nanos, Oversubscribe, Preemptible, Quota, Resolver, Sharing,
    TenantSpec,
};
use gpushare_protocol::limits::{self, Limits};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::cgroup;
use crate::node::{Settings, Unmanaged};
pub use flags::{Flags, read};
use tables::{limits_of, refuse_swap};
use values::{Amount, Change, Journal, Slice, Span, amount_or_nothing};
pub use values::{given_amount, given_amount_or_nothing};

/// The brain's terms of a tenant's limits.
#[must_use]
pub fn spec_of(
    limits: &Limits,
    quotas: Vec<(DeviceId, Quota)>,
    compute: Vec<(DeviceId, Compute)>,
) -> TenantSpec {
    let policy = limits.policy();
    TenantSpec {
        quotas,
        implied: Vec::new(),
        compute,
        priority: policy.priority,
        on_collision: policy.on_collision.iter().map(resolver).collect(),
        wait_timeout: nanos(policy.wait_timeout),
        idle_after: nanos(policy.idle_after),
        preemptible: match policy.preemptible {
            limits::Preemptible::Never => Preemptible::Never,
            limits::Preemptible::Swap => Preemptible::Swap,
            limits::Preemptible::Kill => Preemptible::Kill,
        },
        idle_end: policy.idle_end.map(nanos),
        oversubscribe: match policy.oversubscribe {
            limits::Oversubscribe::Off => Oversubscribe::Off,
            limits::Oversubscribe::Swap => Oversubscribe::Swap,
            limits::Oversubscribe::Uvm => Oversubscribe::Uvm,
        },
        run_limit: policy.run_limit.map(nanos),
        gang: None, // It takes the owner.
    }
}

fn resolver(wanted: &limits::Resolver) -> Resolver {
    match wanted {
        limits::Resolver::Fail => Resolver::Fail,
        limits::Resolver::Wait => Resolver::Wait,
        limits::Resolver::Priority => Resolver::Priority,
        limits::Resolver::Swap => Resolver::Swap,
    }
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// The daemon's file, `config.toml`: the node's settings, and the defaults for tenants.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    /// Bytes of each device that are never given out.
    #[serde(deserialize_with = "amount_or_nothing")]
    reserve: Option<Amount>,
    /// Treat every device as if it had at most this much.
    capacity: Option<Amount>,
    /// Grants are raised in steps of this.
    step: Option<Amount>,
    /// The memory that the first context on a device is expected to take, before one was measured.
    first_context: Option<Amount>,
    /// From SIGTERM to SIGKILL.
    term_grace: Option<Span>,
    /// How long the memory of an ended tenant counts as about to be freed.
    victim_grace: Option<Span>,
    /// How long before an idle end or a run limit a tenant is warned.
    end_warning: Option<Span>,
    /// How long a restart waits for running programs to report their memory.
    recovery: Option<Span>,
    /// How to treat processes on the devices that belong to no tenant.
    unmanaged: Option<Strangers>,
    /// Whether `end` ends root's processes too.
    unmanaged_root: bool,
    /// How long such a process is listed before it is ended.
    unmanaged_grace: Option<Span>,
    /// The cgroups of which no process counts as one, or is ended.
    unmanaged_spare: Vec<spare::Group>,
    /// Whether the driver limits the tenants' cgroups too.
    driver_fence: Fence,
    /// Most bytes of the journal of events.
    journal: Option<Journal>,
    /// How turns on devices are dealt.
    compute: Turns,
    /// How memory is moved to the host.
    swap: swap::Section,
    /// Default limits of tenants, by the names of the variables.
    defaults: Table,
    /// The maxima of tenants' limits, by the names of the variables.
    maxima: Table,
    /// How containers are treated.
    containers: containers::Section,
    /// Classes of containers, by name.
    classes: BTreeMap<String, containers::ClassRow>,
}

mod containers;
pub mod file;
mod flags;
mod room;
mod spare;
mod swap;
mod tables;
mod values;

/// Variables and their values.
type Variables = Vec<(String, String)>;

/// Variables and where their values stand in the file.
type Table = BTreeMap<String, Spanned<String>>;

/// How turns on devices are dealt.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Turns {
    /// Whether tenants work at the same time or in exclusive turns.
    sharing: Regime,
    /// The driver's time slice.
    slice: Option<Slice>,
    /// The device's time for a change of contexts.
    switch: Option<Change>,
    /// How long they are.
    profile: Length,
    /// How long a tenant may take to finish its submitted work before the next tenant starts beside
    /// it.
    overrun: Option<Span>,
}

/// How a device that several want is shared.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Regime {
    #[default]
    Together,
    Turns,
}

/// How long turns are: short waits against little overhead.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Length {
    /// Short waits, about four times the overhead of the default.
    Interactive,
    #[default]
    Default,
    /// Least overhead, longest waits.
    Batch,
}

impl Length {
    /// The turn of a tenant with an average weight.
    fn quantum(&self) -> Nanos {
        match self {
            Self::Interactive => Nanos::millis(5),
            Self::Default => LeasePolicy::default().quantum,
            Self::Batch => Nanos::millis(50),
        }
    }
}

/// How to treat processes on the devices that belong to no tenant.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Strangers {
    Report,
    End,
}

/// Something that is done or not.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Switch {
    #[default]
    Off,
    On,
}

/// Whether the driver's fence is used. Only a build with the feature `driver-fence` has it, until
/// it has run on hardware.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fence(Switch);

impl Fence {
    fn of(switch: Switch, is_built: bool) -> Result<Self, &'static str> {
        if switch == Switch::On && !is_built {
            return Err(
                "\"on\" is refused: this gpushared was built without the feature driver-fence, \
                 which has never run on hardware; accepted: \"off\"",
            );
        }
        Ok(Self(switch))
    }
}

impl<'de> Deserialize<'de> for Fence {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let switch = Switch::deserialize(source)?;
        Self::of(switch, cfg!(feature = "driver-fence")).map_err(D::Error::custom)
    }
}

fn turns(told: &Turns) -> LeasePolicy {
    let mut policy = LeasePolicy {
        sharing: match told.sharing {
            Regime::Together => Sharing::Together,
            Regime::Turns => Sharing::Turns,
        },
        quantum: told.profile.quantum(),
        ..LeasePolicy::default()
    };
    if let Some(Slice(slice)) = told.slice {
        policy.slice = slice;
    }
    if let Some(Change(switch)) = told.switch {
        policy.switch = switch;
    }
    if let Some(Span(overrun)) = told.overrun {
        policy.overrun = overrun;
    }
    policy
}

/// Why nothing swaps under settings without a budget.
pub(crate) const NO_HOST: &str =
    "this node has no host memory for swapping: the daemon's settings have no [swap] host";

/// The same where the settings are of this file.
#[must_use]
pub fn no_host_in(file: &Path) -> String {
    let file = file.display();
    format!("this node has no host memory for swapping: {file} has no [swap] host")
}

/// The same of a daemon without a file: a private one, or the machine's.
#[must_use]
pub fn no_host_without(file: Option<&Path>) -> String {
    match file {
        Some(file) => format!(
            "this node has no host memory for swapping: there is no {}, in which [swap] host would give it",
            file.display()
        ),
        None => "your own daemon has no settings, and so no host memory for swapping; end its \
                 programs, and start `run` with GPUSHARE_DAEMON_CONFIG=FILE, where FILE has \
                 [swap] host"
            .to_owned(),
    }
}

/// Reads a file's text over `base`, with these flags in place of its settings of the same names.
/// The error names line, key and accepted values.
///
/// # Errors
/// A text for a person: of several lines, because it shows the place.
pub fn read_under(text: &str, base: Settings, flags: Flags) -> Result<Settings, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let [defaults, maxima] = limits_of(text, &file)?;
    let containers = file.containers.rules(&file.classes, [&defaults, &maxima])?;
    containers::refuse_unlimited(&containers, &defaults, &maxima)?;
    let mut settings = Settings {
        defaults,
        maxima,
        containers,
        ..base
    };
    if let Some(Amount(reserve)) = file.reserve {
        settings.reserve = reserve;
    }
    if let Some(Amount(capacity)) = file.capacity {
        settings.capacity = Some(capacity);
    }
    settings = flags.over(settings)?;
    if let Some(Amount(step)) = file.step {
        settings.policy.step = step;
    }
    if let Some(Amount(cost)) = file.first_context {
        settings.policy.first_overhead = cost;
    }
    if let Some(Span(grace)) = file.term_grace {
        settings.policy.term_grace = grace;
    }
    if let Some(Span(grace)) = file.victim_grace {
        settings.policy.victim_grace = grace;
    }
    if let Some(Span(warning)) = file.end_warning {
        settings.policy.end_warning = warning;
    }
    if let Some(Span(recovery)) = file.recovery {
        settings.recovery = recovery;
    }
    if let Some(Journal(bounds)) = file.journal {
        settings.journal = bounds;
    }
    settings.policy.lease = turns(&file.compute);
    settings.spill = file.swap.apply(&mut settings.policy.swap)?;
    if settings.policy.swap.host.is_zero() {
        refuse_swap(text, &file)?;
        let classes = &settings.containers.classes;
        containers::refuse_moves(classes, &settings.defaults, &settings.maxima)?;
    }
    if file.driver_fence == Fence(Switch::On) {
        settings.fences = cgroup::unified();
        if settings.fences.is_none() {
            tracing::warn!(
                "driver_fence is on, but cgroup v2 is not this machine's only hierarchy: no fences"
            );
        }
    }
    let unmanaged = &mut settings.unmanaged;
    *unmanaged = Unmanaged {
        end: file.unmanaged == Some(Strangers::End),
        root: file.unmanaged_root,
        grace: file
            .unmanaged_grace
            .map_or(unmanaged.grace, |Span(grace)| grace),
        spare: spare::names(file.unmanaged_spare),
    };
    Ok(settings)
}

#[cfg(test)]
mod containers_tests;
#[cfg(test)]
mod tests;
