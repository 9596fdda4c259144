//! Settings that only a node daemon can enforce: priority, resolvers, waiting, idleness,
//! preemption. Guaranteed shares of time ([`super::compute`]) are refused with them.
//!
//! Without a daemon these are refused by name ([`super::Limits::without_daemon`]): a resolver that
//! a tenant relies on must not be silently absent.

use super::error::LimitError;
use super::setting::{Setting, Whose};
use crate::paths::TenantName;
use std::fmt;
use std::time::Duration;

/// What to do when a wanted grant does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// Out-of-memory at once.
    Fail,
    /// Wait until other tenants free enough.
    Wait,
    /// End lower or idle tenants that hold borrowed memory and allow it.
    Priority,
}

/// The worst effect of other tenants' collisions on a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemptible {
    /// Nothing.
    #[default]
    Never,
    /// It may be ended while it holds more than its request.
    Kill,
}

/// A tenant's terms beside its amounts of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// 0 to 1000, higher first.
    pub priority: u16,
    /// Resolvers in order; each at most once.
    pub on_collision: Vec<Resolver>,
    /// Longest an allocation may block before it returns out-of-memory.
    pub wait_timeout: Duration,
    /// No GPU work for this long is idle.
    pub idle_after: Duration,
    /// See [`Preemptible`].
    pub preemptible: Preemptible,
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
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            priority: 500,
            on_collision: vec![Resolver::Wait],
            wait_timeout: Duration::from_secs(30),
            idle_after: Duration::from_secs(5),
            preemptible: Preemptible::Never,
            idle_end: None,
            run_limit: None,
            gang: None,
            needs_daemon: None,
            says_priority: false,
        }
    }
}

const RESOLVERS: [(&str, Resolver); 3] = [
    ("fail", Resolver::Fail),
    ("wait", Resolver::Wait),
    ("priority", Resolver::Priority),
];

impl Policy {
    pub(super) fn needs_daemon(&mut self, set: &Setting<'_>) {
        self.needs_daemon
            .get_or_insert_with(|| (set.variable.to_owned(), set.value.to_owned()));
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
            let name = |wanted: &Resolver| {
                RESOLVERS
                    .iter()
                    .find(|(_, known)| known == wanted)
                    .map_or("", |(name, _)| name)
            };
            let names: Vec<_> = self.on_collision.iter().map(name).collect();
            write!(out, " on-collision={}", names.join(","))?;
        }
        if self.wait_timeout != default.wait_timeout {
            write!(out, " wait-timeout={}ms", self.wait_timeout.as_millis())?;
        }
        if self.idle_after != default.idle_after {
            write!(out, " idle-after={}ms", self.idle_after.as_millis())?;
        }
        if self.preemptible != default.preemptible {
            write!(out, " preemptible=kill")?;
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

/// What HAMi's low priority is among ours.
const HAMI_LOW: u16 = 250;

pub(super) fn priority(policy: &mut Policy, set: &Setting<'_>) -> Result<(), LimitError> {
    let digits = !set.value.is_empty() && set.value.bytes().all(|byte| byte.is_ascii_digit());
    let number = set
        .value
        .parse()
        .ok()
        .filter(|number| digits && *number <= 1000);
    let number = number
        .ok_or_else(|| set.refuse("not understood", "a whole number, 0 to 1000, higher first"))?;
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
        "a list of fail, wait, priority, each at most once, fail or wait last (priority,wait)";
    let mut wanted = Vec::new();
    for name in set.value.split(',') {
        if name == "swap" {
            return Err(set.refuse("this release cannot swap yet", accepted));
        }
        let known = RESOLVERS.iter().find(|(known, _)| *known == name);
        let (_, resolver) = known.ok_or_else(|| set.refuse("not understood", accepted))?;
        if wanted.contains(resolver) {
            return Err(set.refuse(format!("{name} is named twice"), accepted));
        }
        wanted.push(*resolver);
    }
    let ends = |resolver: &&Resolver| **resolver != Resolver::Priority;
    if wanted.iter().rev().skip(1).any(|resolver| ends(&resolver)) {
        return Err(set.refuse("nothing after fail or wait is ever tried", accepted));
    }
    // Without a daemon a collision is an out-of-memory: that can be kept anywhere.
    if wanted != [Resolver::Fail] {
        policy.needs_daemon(set);
    }
    policy.on_collision = wanted;
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
    let accepted = "off, or a whole number with ms, s, m or h, more than zero, at most a year (2h)";
    let after = span(set.value);
    let after = after.ok_or_else(|| set.refuse("not understood as a span of time", accepted))?;
    policy.needs_daemon(set);
    Ok(Some(after))
}

pub(super) fn preemptible(policy: &mut Policy, set: &Setting<'_>) -> Result<(), LimitError> {
    let accepted = "never or kill";
    policy.preemptible = match set.value {
        "never" => Preemptible::Never,
        "kill" => Preemptible::Kill,
        "swap" => return Err(set.refuse("this release cannot swap yet", accepted)),
        _ => return Err(set.refuse("not understood", accepted)),
    };
    if policy.preemptible == Preemptible::Kill {
        policy.needs_daemon(set);
    }
    Ok(())
}

/// The longest span accepted: a year is more than any allocation or idle notebook needs.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

fn duration(set: &Setting<'_>) -> Result<Duration, LimitError> {
    let accepted = "a whole number with ms, s, m or h, more than zero, at most a year (30s)";
    span(set.value).ok_or_else(|| set.refuse("not understood as a span of time", accepted))
}

/// A span of time: a whole number with `ms`, `s`, `m` or `h`, more than zero, at most a year.
pub fn span(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let span = Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(millis)?);
    (!span.is_zero() && span <= LONGEST).then_some(span)
}
