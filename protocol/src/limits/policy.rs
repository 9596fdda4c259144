//! Settings that only a node daemon can enforce: priority, resolvers, waiting, idleness,
//! preemption. Guaranteed shares of time ([`super::compute`]) are refused with them.
//!
//! Without a daemon these are refused by name ([`super::Limits::without_daemon`]): a resolver that
//! a tenant relies on must not be silently absent.

use super::error::LimitError;
use super::layer::Whose;
use super::setting::Setting;
use crate::paths::TenantName;
use std::fmt;
use std::time::Duration;

/// The reaction to a wanted grant that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// Out-of-memory at once.
    Fail,
    /// Wait until other tenants free enough.
    Wait,
    /// End lower or idle tenants that hold borrowed memory and allow it.
    Priority,
    /// Move the memory of tenants that allow it to the host.
    Swap,
}

/// The worst effect of other tenants' collisions on a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemptible {
    /// Nothing.
    #[default]
    Never,
    /// Its memory may be moved to the host.
    Swap,
    /// Its memory may be moved if it can be. It may be ended while it holds more than its request.
    Kill,
}

/// How a tenant's memory may leave the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oversubscribe {
    /// Not at all.
    #[default]
    Off,
    /// Its processes move it to the host and back.
    Swap,
    /// The same with managed memory, which may be more than the device has.
    Uvm,
}

/// A tenant's terms beside its amounts of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// 0 to 1000, higher first.
    pub priority: u16,
    /// Resolvers in order; each at most once. Unset: `wait`, after `swap` where its own memory may
    /// be moved.
    pub on_collision: Vec<Resolver>,
    /// Longest an allocation may block before it returns out-of-memory.
    pub wait_timeout: Duration,
    /// No GPU work for this long is idle.
    pub idle_after: Duration,
    /// See [`Preemptible`]. Unset: `swap` where its memory may be moved.
    pub preemptible: Preemptible,
    /// See [`Oversubscribe`]. Unset: `swap` where `swap` is one of its resolvers, or the worst that
    /// others may do to it.
    pub oversubscribe: Oversubscribe,
    /// No GPU work for this long ends the tenant.
    pub idle_end: Option<Duration>,
    /// It is ended this long after its start.
    pub run_limit: Option<Duration>,
    /// The gang it belongs to. Without a daemon it means nothing.
    pub gang: Option<String>,
    /// The first variable that only a daemon can honour, with its value.
    needs_daemon: Option<(String, String)>,
    /// The tenant itself says its priority, in our variable or an alias.
    says_priority: bool,
    /// The tenant itself says that its memory stays (`GPUSHARE_OVERSUBSCRIBE=off`).
    says_off: bool,
    /// [`Self::preemptible`] is the node's default.
    is_usual: bool,
    /// Which of the three were set whose defaults depend on each other: resolvers, preemption,
    /// oversubscription.
    says: [bool; 3],
    /// The first variable that has its memory moved, with its value.
    moved_by: Option<(String, String)>,
}

/// The places in [`Policy::says`].
const COLLISION: usize = 0;
const PREEMPTIBLE: usize = 1;
const OVERSUBSCRIBE: usize = 2;

impl Default for Policy {
    fn default() -> Self {
        Self {
            priority: 500,
            on_collision: vec![Resolver::Wait],
            wait_timeout: Duration::from_secs(30),
            idle_after: Duration::from_secs(5),
            preemptible: Preemptible::Never,
            oversubscribe: Oversubscribe::Off,
            idle_end: None,
            run_limit: None,
            gang: None,
            needs_daemon: None,
            says_priority: false,
            says_off: false,
            is_usual: false,
            says: [false; 3],
            moved_by: None,
        }
    }
}

const RESOLVERS: [(&str, Resolver); 4] = [
    ("fail", Resolver::Fail),
    ("wait", Resolver::Wait),
    ("priority", Resolver::Priority),
    ("swap", Resolver::Swap),
];

const WORST: [(&str, Preemptible); 3] = [
    ("never", Preemptible::Never),
    ("swap", Preemptible::Swap),
    ("kill", Preemptible::Kill),
];

const HOW: [(&str, Oversubscribe); 3] = [
    ("off", Oversubscribe::Off),
    ("swap", Oversubscribe::Swap),
    ("uvm", Oversubscribe::Uvm),
];

/// The word for a value, of a table of words.
fn word<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    let mut rows = table.iter();
    rows.find(|(_, known)| known == value)
        .map_or("", |(word, _)| word)
}

impl Policy {
    pub(super) fn needs_daemon(&mut self, set: &Setting<'_>) {
        self.needs_daemon
            .get_or_insert_with(|| (set.variable.to_owned(), set.value.to_owned()));
    }

    fn moved_by(&mut self, set: &Setting<'_>) {
        self.moved_by
            .get_or_insert_with(|| (set.variable.to_owned(), set.value.to_owned()));
    }

    /// The refusal of memory that moves, on a node or a device where it cannot, in the name of the
    /// variable that asks for it. `None` where none does.
    pub fn refuse_moves(&self, problem: &str) -> Option<LimitError> {
        self.refuse(Oversubscribe::Swap, problem)
    }

    /// The same of managed memory (`uvm`).
    pub fn refuse_managed(&self, problem: &str) -> Option<LimitError> {
        self.refuse(Oversubscribe::Uvm, problem)
    }

    fn refuse(&self, how: Oversubscribe, problem: &str) -> Option<LimitError> {
        if self.oversubscribe != how {
            return None;
        }
        let (variable, value) = self.moved_by.as_ref()?;
        let accepted = match variable.as_str() {
            "GPUSHARE_OVERSUBSCRIBE" if value == "uvm" => "off or swap, or leave it out",
            "GPUSHARE_OVERSUBSCRIBE" => "off, or leave it out",
            "GPUSHARE_ON_COLLISION" => "a list of fail, wait, priority (priority,wait)",
            "GPUSHARE_PREEMPTIBLE" => "never or kill",
            _ => "false, or leave it out",
        };
        Some(LimitError::new(variable, value, problem, accepted))
    }

    /// Completes the terms that follow from others, once all are read.
    ///
    /// # Errors
    /// Terms that contradict each other.
    pub(super) fn settle(&mut self) -> Result<(), LimitError> {
        if self.says_off && self.is_usual && self.preemptible == Preemptible::Swap {
            // The default gives way to what the tenant says.
            self.preemptible = Preemptible::Never;
        }
        let stays_by_default =
            self.says[OVERSUBSCRIBE] && self.oversubscribe == Oversubscribe::Off && !self.says_off;
        if stays_by_default && !self.is_usual && self.preemptible == Preemptible::Swap {
            self.says[OVERSUBSCRIBE] = false;
        }
        let moves =
            self.on_collision.contains(&Resolver::Swap) || self.preemptible == Preemptible::Swap;
        if !self.says[OVERSUBSCRIBE] && moves {
            self.oversubscribe = Oversubscribe::Swap;
        }
        if self.oversubscribe != Oversubscribe::Off {
            if !self.says[COLLISION] {
                self.on_collision = vec![Resolver::Swap, Resolver::Wait];
            }
            if !self.says[PREEMPTIBLE] {
                self.preemptible = Preemptible::Swap;
            }
        } else if self.preemptible == Preemptible::Swap {
            return Err(LimitError::new(
                "GPUSHARE_PREEMPTIBLE",
                "swap",
                "its memory cannot leave the device: GPUSHARE_OVERSUBSCRIBE is off",
                "swap with GPUSHARE_OVERSUBSCRIBE=swap or uvm or without it, or never or kill",
            ));
        }
        Ok(())
    }

    /// Refuses what needs a daemon.
    pub(super) fn without_daemon(&self) -> Result<(), LimitError> {
        match &self.needs_daemon {
            None => Ok(()),
            Some((variable, value)) => Err(LimitError::new(
                variable,
                value,
                "it takes the node daemon, and there is none here",
                "unset it, or start the program where a daemon runs (`gpushare run` starts one)",
            )),
        }
    }
}

/// Equal if and only if the terms are; empty where all are the defaults.
impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        if self.priority != default.priority {
            write!(out, " priority={}", self.priority)?;
        }
        if self.on_collision != default.on_collision {
            let names = self.on_collision.iter();
            let names: Vec<_> = names.map(|wanted| word(&RESOLVERS, wanted)).collect();
            write!(out, " on-collision={}", names.join(","))?;
        }
        if self.wait_timeout != default.wait_timeout {
            write!(out, " wait-timeout={}ms", self.wait_timeout.as_millis())?;
        }
        if self.idle_after != default.idle_after {
            write!(out, " idle-after={}ms", self.idle_after.as_millis())?;
        }
        if self.preemptible != default.preemptible {
            write!(out, " preemptible={}", word(&WORST, &self.preemptible))?;
        }
        if self.oversubscribe != default.oversubscribe {
            write!(out, " oversubscribe={}", word(&HOW, &self.oversubscribe))?;
        }
        for (name, end) in [("idle-end", self.idle_end), ("run-limit", self.run_limit)] {
            if let Some(end) = end {
                write!(out, " {name}={}ms", end.as_millis())?;
            }
        }
        if let Some(gang) = &self.gang {
            write!(out, " gang={gang}")?;
        }
        Ok(())
    }
}

/// The priority among ours that HAMi's low priority becomes.
const HAMI_LOW: u16 = 250;

pub(super) fn priority(policy: &mut Policy, set: &Setting<'_>) -> Result<(), LimitError> {
    let digits = !set.value.is_empty() && set.value.bytes().all(|byte| byte.is_ascii_digit());
    let number = set
        .value
        .parse()
        .ok()
        .filter(|number| digits && *number <= 1000);
    let problem = if digits {
        "out of range"
    } else {
        "not understood"
    };
    let accepted = "a whole number, 0 to 1000, higher first";
    let number = number.ok_or_else(|| set.refuse(problem, accepted))?;
    if policy.says_priority {
        // This is a default, and the tenant's alias wins.
        return Ok(());
    }
    policy.says_priority = set.whose == Whose::Own;
    policy.priority = number;
    policy.needs_daemon(set);
    Ok(())
}

/// HAMi: 0 is high and the default, 1 is low. Ours wins; it is read first.
pub(super) fn hami_priority(policy: &mut Policy, set: &Setting<'_>) -> Result<(), LimitError> {
    match set.value {
        "" | "0" => Ok(()),
        "1" if policy.says_priority => Ok(()),
        "1" => {
            policy.says_priority = true;
            policy.priority = HAMI_LOW;
            policy.needs_daemon(set);
            Ok(())
        }
        _ => Err(set.refuse("not understood", "0 (high, the default) or 1 (low)")),
    }
}

pub(super) fn on_collision(policy: &mut Policy, set: &Setting<'_>) -> Result<(), LimitError> {
    let accepted =
        "a list of fail, wait, priority, swap, each at most once, fail or wait last (swap,wait)";
    let mut wanted = Vec::new();
    for name in set.value.split(',') {
        let known = RESOLVERS.iter().find(|(known, _)| *known == name);
        let (_, resolver) = known.ok_or_else(|| set.refuse("not understood", accepted))?;
        if wanted.contains(resolver) {
            return Err(set.refuse(format!("{name} is named twice"), accepted));
        }
        wanted.push(*resolver);
    }
    let ends = |resolver: &Resolver| matches!(resolver, Resolver::Fail | Resolver::Wait);
    if wanted.iter().rev().skip(1).any(ends) {
        return Err(set.refuse("nothing after fail or wait is ever tried", accepted));
    }
    // Without a daemon a collision is an out-of-memory: that can be kept anywhere.
    if wanted != [Resolver::Fail] {
        policy.needs_daemon(set);
    }
    if wanted.contains(&Resolver::Swap) {
        policy.moved_by(set);
    }
    policy.on_collision = wanted;
    policy.says[COLLISION] = true;
    Ok(())
}

pub(super) fn wait_timeout(policy: &mut Policy, set: &Setting<'_>) -> Result<(), LimitError> {
    policy.wait_timeout = duration(set)?;
    policy.needs_daemon(set);
    Ok(())
}

pub(super) fn idle_after(policy: &mut Policy, set: &Setting<'_>) -> Result<(), LimitError> {
    policy.idle_after = duration(set)?;
    policy.needs_daemon(set);
    Ok(())
}

pub(super) fn idle_end(policy: &mut Policy, set: &Setting<'_>) -> Result<(), LimitError> {
    policy.idle_end = end(policy, set)?;
    Ok(())
}

pub(super) fn run_limit(policy: &mut Policy, set: &Setting<'_>) -> Result<(), LimitError> {
    policy.run_limit = end(policy, set)?;
    Ok(())
}

/// A name as tenants have them. It can be kept anywhere: where nothing is steered, a gang needs
/// nothing.
pub(super) fn gang(policy: &mut Policy, set: &Setting<'_>) -> Result<(), LimitError> {
    if set.whose == Whose::Default {
        let accepted = "GPUSHARE_GANG in the environment of the tenants of one job";
        return Err(set.refuse("a node's tenants are not one gang", accepted));
    }
    let name = TenantName::parse(set.variable, set.value)
        .map_err(|error| set.refuse("it is no name of a gang", error.accepted))?;
    policy.gang = Some(name.to_string());
    Ok(())
}

/// `off`, which can be kept anywhere, or a span.
fn end(policy: &mut Policy, set: &Setting<'_>) -> Result<Option<Duration>, LimitError> {
    if set.value == "off" {
        return Ok(None);
    }
    let accepted =
        "off, or a whole number with ms, s, m, h, d or w, more than zero, at most a year (2h)";
    let after = span(set.value);
    let after = after.ok_or_else(|| set.refuse("not understood as a span of time", accepted))?;
    policy.needs_daemon(set);
    Ok(Some(after))
}

pub(super) fn preemptible(policy: &mut Policy, set: &Setting<'_>) -> Result<(), LimitError> {
    let known = WORST.iter().find(|(word, _)| *word == set.value);
    let (_, worst) = known.ok_or_else(|| set.refuse("not understood", "never, swap or kill"))?;
    policy.preemptible = *worst;
    policy.says[PREEMPTIBLE] = true;
    policy.is_usual = set.whose == Whose::Default;
    if policy.preemptible == Preemptible::Swap {
        policy.moved_by(set);
    }
    if policy.preemptible != Preemptible::Never {
        policy.needs_daemon(set);
    }
    Ok(())
}

pub(super) fn oversubscribe(policy: &mut Policy, set: &Setting<'_>) -> Result<(), LimitError> {
    let known = HOW.iter().find(|(word, _)| *word == set.value);
    let (_, how) = known.ok_or_else(|| set.refuse("not understood", "off, swap or uvm"))?;
    let how = *how;
    if policy.says[OVERSUBSCRIBE] {
        // This is a default, and the tenant's alias wins.
        return Ok(());
    }
    if how != Oversubscribe::Off {
        policy.needs_daemon(set);
    }
    if how == Oversubscribe::Uvm {
        // Other variables can have memory moved; only this one makes it managed.
        policy.moved_by = Some((set.variable.to_owned(), set.value.to_owned()));
    } else if how == Oversubscribe::Swap {
        policy.moved_by(set);
    }
    policy.says[OVERSUBSCRIBE] = true;
    policy.says_off = how == Oversubscribe::Off && set.whose == Whose::Own;
    policy.oversubscribe = how;
    Ok(())
}

/// HAMi's switch: `true` is `swap`. Ours wins; it is read first.
pub(super) fn hami_oversubscribe(policy: &mut Policy, set: &Setting<'_>) -> Result<(), LimitError> {
    let how = match set.value {
        "" | "0" | "false" => return Ok(()),
        "1" | "true" => Oversubscribe::Swap,
        _ => return Err(set.refuse("it is a switch", "true, false, or unset it")),
    };
    if !policy.says[OVERSUBSCRIBE] {
        policy.says[OVERSUBSCRIBE] = true;
        policy.oversubscribe = how;
        policy.needs_daemon(set);
        policy.moved_by(set);
    }
    Ok(())
}

/// The longest span accepted: a year is more than any allocation or idle notebook needs.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

fn duration(set: &Setting<'_>) -> Result<Duration, LimitError> {
    let accepted = "a whole number with ms, s, m, h, d or w, more than zero, at most a year (30s)";
    span(set.value).ok_or_else(|| set.refuse("not understood as a span of time", accepted))
}

/// A span of time: a whole number with `ms`, `s`, `m`, `h`, `d` or `w`, more than zero, at most a
/// year.
pub fn span(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 24 * 3_600_000,
        "w" => 7 * 24 * 3_600_000,
        _ => return None,
    };
    let span = Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(millis)?);
    (!span.is_zero() && span <= LONGEST).then_some(span)
}
