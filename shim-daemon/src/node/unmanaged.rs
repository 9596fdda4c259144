//! Processes on a device that belong to no tenant of ours: when to report one, and when to end it.
//! Decisions only; `strangers.rs` carries them out.
//!
//! A process is ended by a pidfd that was opened before a look which still lists its pid. So the
//! look shows this very process, even if the pid is reused later.

use std::collections::{BTreeMap, BTreeSet};

use gpushare_core::Nanos;
use gpushare_protocol::units::Bytes;

use crate::groups::{Groups, below};

/// The node's rules for unmanaged processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmanaged {
    /// Whether to end them or only report them.
    pub end: bool,
    /// Whether also those with root's uid are ended.
    pub root: bool,
    /// How long one is listed before it is ended: programs that start, or come back to a new
    /// daemon, need a moment.
    pub grace: Nanos,
    /// The cgroups whose processes, with those below, are left alone and not counted. The
    /// administrator names them: nothing that a program says of itself spares it.
    pub spare: Vec<String>,
}

impl Default for Unmanaged {
    fn default() -> Self {
        Self {
            end: false,
            root: false,
            grace: Nanos::secs(10),
            spare: Vec::new(),
        }
    }
}

/// The next step for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Tell of it.
    Report { pid: u32, bytes: Bytes },
    /// Open its pidfd and see whether it may be ended; [`Strangers::hold`] or [`Strangers::spare`]
    /// answers.
    Inspect { pid: u32 },
    /// SIGTERM through the held pidfd.
    Terminate { pid: u32 },
    /// SIGKILL through the held pidfd.
    Kill { pid: u32 },
}

/// Why nothing is done about a listed process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aside {
    /// It only draws on this device.
    Draws,
    /// The node's rules name its cgroup.
    Named,
    /// A rule lets its container run without limits.
    Allowed,
}

impl Aside {
    /// Whether nothing at all is done about it, wherever it is listed.
    fn is_apart(self) -> bool {
        matches!(self, Self::Named | Self::Allowed)
    }
}

/// What was last told of a process on a device.
#[derive(Clone, Copy, Debug)]
struct Told {
    bytes: Bytes,
    /// Whether it was told of as one that only draws, and of nothing else.
    draws: bool,
    /// Whether it only draws in the last look.
    draws_now: bool,
}

/// How far the end of a process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Listed { since: Nanos },
    Held { at: Nanos },
    Terminated { at: Nanos },
    Over,
}

/// The unmanaged processes listed now.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    reported: BTreeMap<(usize, u32), Told>,
    stages: BTreeMap<u32, Stage>,
    /// Those in cgroups that the node's rules name, and those of containers that a rule allows, as
    /// the last look at each shows it.
    apart: BTreeSet<u32>,
}

impl Strangers {
    /// A look at `device` that was `taken` then lists these, of which some are set aside. A process
    /// that only draws is none that a limit is for: nothing is done about it, and its time of grace
    /// begins once it computes. One in a cgroup that the rules name, or of a container that a
    /// rule allows, is told of once for all devices, however much it holds.
    pub(super) fn seen(
        &mut self,
        (now, taken): (Nanos, Nanos),
        device: usize,
        (listed, aside): (&BTreeMap<u32, Bytes>, &BTreeMap<u32, Aside>),
        (rules, term_grace): (&Unmanaged, Nanos),
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        self.reported
            .retain(|(at, pid), _| *at != device || listed.contains_key(pid));
        for (pid, bytes) in listed {
            let draws = aside.get(pid) == Some(&Aside::Draws);
            let is_apart = aside.get(pid).is_some_and(|aside| aside.is_apart());
            let is_news = match is_apart {
                true => self.apart.insert(*pid),
                false => self.apart.remove(pid) || self.is_news(device, *pid, *bytes, draws),
            };
            let told = self.reported.entry((device, *pid)).or_insert(Told {
                bytes: *bytes,
                draws,
                draws_now: draws,
            });
            told.draws_now = draws;
            if is_news {
                told.bytes = *bytes;
                told.draws &= draws;
                steps.push(Step::Report {
                    pid: *pid,
                    bytes: *bytes,
                });
            }
            if is_apart {
                self.stages.remove(pid);
                continue;
            }
            if draws {
                continue;
            }
            let fresh = Stage::Listed { since: now };
            let stage = self.stages.entry(*pid).or_insert(fresh);
            if rules.end
                && let Some((next, step)) = stage.next(now, taken, *pid, rules, term_grace)
            {
                *stage = next;
                steps.push(step);
            }
        }
        let present: BTreeSet<u32> = self.reported.keys().map(|(_, pid)| *pid).collect();
        self.stages.retain(|pid, _| present.contains(pid));
        self.apart.retain(|pid| present.contains(pid));
        steps
    }

    /// Whether it is to be told of. Twice as much is news, so there are at most a few dozen
    /// reports of one; and so is it once that one which was told of as only drawing computes.
    fn is_news(&self, device: usize, pid: u32, bytes: Bytes, draws: bool) -> bool {
        self.reported.get(&(device, pid)).is_none_or(|last| {
            let has_doubled = bytes.0 / 2 >= last.bytes.0 && bytes > last.bytes;
            has_doubled || last.draws && !draws
        })
    }

    /// The process may be ended and its pidfd is held since `at`.
    pub(super) fn hold(&mut self, pid: u32, at: Nanos) {
        self.stages.insert(pid, Stage::Held { at });
    }

    /// The process is left alone for as long as it is listed.
    pub(super) fn spare(&mut self, pid: u32) {
        self.stages.insert(pid, Stage::Over);
    }

    /// How many a device lists that compute there, outside of cgroups that the rules name and of
    /// containers that a rule allows.
    pub(super) fn count_on(&self, device: usize) -> u32 {
        let on = self.reported.range((device, 0)..=(device, u32::MAX));
        let on = on.filter(|((_, pid), told)| !told.draws_now && !self.apart.contains(pid));
        u32::try_from(on.count()).unwrap_or(u32::MAX)
    }

    /// Whether the process is still listed.
    pub(super) fn lists(&self, pid: u32) -> bool {
        self.stages.contains_key(&pid)
    }
}

impl Stage {
    fn next(
        self,
        now: Nanos,
        taken: Nanos,
        pid: u32,
        rules: &Unmanaged,
        term_grace: Nanos,
    ) -> Option<(Self, Step)> {
        match self {
            Self::Listed { since } if now - since >= rules.grace => {
                Some((Self::Over, Step::Inspect { pid }))
            }
            // A look that began before may have listed another process of that pid.
            Self::Held { at } if taken > at => {
                Some((Self::Terminated { at: now }, Step::Terminate { pid }))
            }
            Self::Terminated { at } if now - at >= term_grace => {
                Some((Self::Over, Step::Kill { pid }))
            }
            _ => None,
        }
    }
}

/// The facts about a process before it is ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known<'a> {
    pub(super) pid: u32,
    pub(super) uids: &'a [u32],
    pub(super) cgroup: &'a str,
    pub(super) groups: &'a Groups,
}

/// The cgroups that are tenants' own.
///
/// A runtime makes a cgroup for one container: all below it is the container's. A cgroup in which
/// a registered process happens to be may be a user's session, or a service with parts for other
/// purposes: what is below it is not the tenant's.
#[derive(Debug, Default)]
pub(super) struct Places<'a> {
    /// Those of registered processes.
    pub(super) shared: BTreeSet<&'a str>,
    /// Those that a runtime made, of tenants that were found by a process in one.
    pub(super) made: BTreeSet<&'a str>,
    /// Those of tenants that are containers.
    pub(super) containers: Vec<Groups>,
}

impl Places<'_> {
    fn have(&self, known: &Known<'_>) -> bool {
        self.shared.contains(known.cgroup)
            || self.made.iter().any(|group| below(known.cgroup, group))
            || self
                .containers
                .iter()
                .any(|groups| known.groups.are_within(groups))
    }
}

/// Why a process is left alone, if it is. `own` is the daemon's pid.
pub(super) fn spared(
    known: &Known<'_>,
    own: u32,
    tenants: &Places<'_>,
    rules: &Unmanaged,
) -> Option<&'static str> {
    if known.pid <= 1 {
        Some("it is the machine's first process")
    } else if known.pid == own {
        Some("it is this daemon")
    } else if tenants.have(known) {
        Some("it is in the cgroup of a registered tenant")
    } else if !rules.root && (known.uids.is_empty() || known.uids.contains(&0)) {
        Some("it is root's, and unmanaged_root is not set")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
