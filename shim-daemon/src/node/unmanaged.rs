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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmanaged {
    /// Whether to end them or only report them.
    pub end: bool,
    /// Whether also those with root's uid are ended.
    pub root: bool,
    /// How long one is listed before it is ended: programs that start, or come back to a new
    /// daemon, need a moment.
    pub grace: Nanos,
}

impl Default for Unmanaged {
    fn default() -> Self {
        Self {
            end: false,
            root: false,
            grace: Nanos::secs(10),
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
    /// The last reported memory of a process on a device.
    reported: BTreeMap<(usize, u32), Bytes>,
    stages: BTreeMap<u32, Stage>,
}

impl Strangers {
    /// A look at `device` that was `taken` then lists these, of which some only draw there. A
    /// process that only draws is none that a limit is for: nothing is done about it, and its time
    /// of grace begins once it computes.
    pub(super) fn seen(
        &mut self,
        (now, taken): (Nanos, Nanos),
        device: usize,
        (listed, drawing): (&BTreeMap<u32, Bytes>, &BTreeSet<u32>),
        (rules, term_grace): (&Unmanaged, Nanos),
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        self.reported
            .retain(|(at, pid), _| *at != device || listed.contains_key(pid));
        for (pid, bytes) in listed {
            let last = self.reported.get(&(device, *pid));
            // Twice as much is news; so there are at most a few dozen reports of one.
            if last.is_none_or(|last| bytes.0 / 2 >= last.0 && bytes > last) {
                self.reported.insert((device, *pid), *bytes);
                steps.push(Step::Report {
                    pid: *pid,
                    bytes: *bytes,
                });
            }
            if drawing.contains(pid) {
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
        steps
    }

    /// The process may be ended and its pidfd is held since `at`.
    pub(super) fn hold(&mut self, pid: u32, at: Nanos) {
        self.stages.insert(pid, Stage::Held { at });
    }

    /// The process is left alone for as long as it is listed.
    pub(super) fn spare(&mut self, pid: u32) {
        self.stages.insert(pid, Stage::Over);
    }

    /// How many a device lists.
    pub(super) fn count_on(&self, device: usize) -> u32 {
        let on = self.reported.range((device, 0)..=(device, u32::MAX));
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
mod tests {
    use super::*;
    use gpushare_protocol::units::MIB;

    const END: Unmanaged = Unmanaged {
        end: true,
        root: false,
        grace: Nanos::secs(10),
    };

    /// A look at second `at` that lists pid 7 with these MiB, and none without.
    fn look(strangers: &mut Strangers, rules: &Unmanaged, at: u64, mib: Option<u64>) -> Vec<Step> {
        look_at(strangers, rules, (at, 0), mib, false)
    }

    /// The same on a device, where it may only draw.
    fn look_at(
        strangers: &mut Strangers,
        rules: &Unmanaged,
        (at, device): (u64, usize),
        mib: Option<u64>,
        draws: bool,
    ) -> Vec<Step> {
        let listed = mib.map(|mib| (7, Bytes(mib * MIB))).into_iter().collect();
        let drawing = draws.then_some(7).into_iter().collect();
        let now = Nanos::secs(at);
        let rules = (rules, Nanos::secs(5));
        strangers.seen((now, now), device, (&listed, &drawing), rules)
    }

    #[test]
    fn a_stranger_is_told_of_once_and_again_when_it_has_doubled() {
        let (mut strangers, rules) = (Strangers::default(), Unmanaged::default());
        let report = |mib: u64| {
            vec![Step::Report {
                pid: 7,
                bytes: Bytes(mib * MIB),
            }]
        };
        assert_eq!(look(&mut strangers, &rules, 0, Some(100)), report(100));
        assert_eq!(look(&mut strangers, &rules, 1, Some(150)), []);
        assert_eq!(look(&mut strangers, &rules, 2, Some(200)), report(200));
        assert_eq!(look(&mut strangers, &rules, 3, None), []);
        assert_eq!(look(&mut strangers, &rules, 4, Some(10)), report(10));
    }

    #[test]
    fn a_stranger_is_inspected_then_terminated_then_killed() {
        let mut strangers = Strangers::default();
        look(&mut strangers, &END, 0, Some(1));
        assert_eq!(look(&mut strangers, &END, 9, Some(1)), []);
        assert_eq!(
            look(&mut strangers, &END, 10, Some(1)),
            [Step::Inspect { pid: 7 }]
        );
        strangers.hold(7, Nanos::secs(10));
        assert_eq!(look(&mut strangers, &END, 10, Some(1)), []);
        assert_eq!(
            look(&mut strangers, &END, 11, Some(1)),
            [Step::Terminate { pid: 7 }]
        );
        assert_eq!(look(&mut strangers, &END, 15, Some(1)), []);
        assert_eq!(
            look(&mut strangers, &END, 16, Some(1)),
            [Step::Kill { pid: 7 }]
        );
        assert_eq!(look(&mut strangers, &END, 60, Some(1)), []);
    }

    #[test]
    fn one_that_only_draws_is_told_of_and_counted_and_not_ended() {
        let mut strangers = Strangers::default();
        let first = look_at(&mut strangers, &END, (0, 0), Some(1), true);
        assert!(matches!(first[..], [Step::Report { pid: 7, .. }]));
        for at in 1..100 {
            assert_eq!(look_at(&mut strangers, &END, (at, 0), Some(1), true), []);
        }
        assert_eq!(strangers.count_on(0), 1);
        // It computes from now on: it has the time that any other has.
        assert_eq!(look(&mut strangers, &END, 100, Some(1)), []);
        assert_eq!(look(&mut strangers, &END, 109, Some(1)), []);
        let inspect = [Step::Inspect { pid: 7 }];
        assert_eq!(look(&mut strangers, &END, 110, Some(1)), inspect);
    }

    #[test]
    fn one_that_draws_on_one_device_and_computes_on_another_is_ended() {
        let mut strangers = Strangers::default();
        for at in 0..10 {
            look_at(&mut strangers, &END, (at, 0), Some(1), true);
            look_at(&mut strangers, &END, (at, 1), Some(1), false);
        }
        assert_eq!(look_at(&mut strangers, &END, (10, 0), Some(1), true), []);
        let inspect = [Step::Inspect { pid: 7 }];
        let other = look_at(&mut strangers, &END, (10, 1), Some(1), false);
        assert_eq!(other, inspect);
    }

    #[test]
    fn one_that_left_in_between_starts_anew_and_a_spared_one_is_left_alone() {
        let mut strangers = Strangers::default();
        look(&mut strangers, &END, 0, Some(1));
        look(&mut strangers, &END, 5, None);
        assert!(!strangers.lists(7));
        look(&mut strangers, &END, 10, Some(1));
        assert_eq!(
            look(&mut strangers, &END, 20, Some(1)),
            [Step::Inspect { pid: 7 }]
        );
        strangers.spare(7);
        assert_eq!(look(&mut strangers, &END, 90, Some(1)), []);
    }

    /// A process whose only hierarchy is the unified one.
    fn is_spared(pid: u32, uids: &[u32], cgroup: &str, tenants: &Places<'_>, root: bool) -> bool {
        let known = Known {
            pid,
            uids,
            cgroup,
            groups: &Groups::parse(&format!("0::{cgroup}")),
        };
        spared(&known, 99, tenants, &Unmanaged { root, ..END }).is_some()
    }

    #[test]
    fn neither_tenants_nor_root_nor_the_daemon_may_be_ended() {
        let tenants = Places {
            shared: BTreeSet::from(["/pod/a"]),
            ..Places::default()
        };
        let spared = |pid, uids: &[u32], cgroup, root| is_spared(pid, uids, cgroup, &tenants, root);
        assert!(!spared(7, &[1000, 1000], "/pod/b", false));
        assert!(!spared(7, &[0, 0], "/pod/b", true));
        assert!(spared(7, &[1000, 0], "/pod/b", false));
        assert!(spared(7, &[], "/pod/b", false));
        assert!(spared(1, &[1000], "/pod/b", true));
        assert!(spared(99, &[1000], "/pod/b", true));
        assert!(spared(7, &[1000], "/pod/a", true));
    }

    #[test]
    fn all_below_a_cgroup_that_a_runtime_made_is_the_tenants() {
        let groups = "4:memory:/docker/a\n0::/docker/a";
        for tenants in [
            Places {
                made: BTreeSet::from(["/docker/a"]),
                ..Places::default()
            },
            Places {
                containers: vec![Groups::parse(groups).in_those_of(&Groups::parse("0::/"))],
                ..Places::default()
            },
        ] {
            let spared = |cgroup| is_spared(7, &[1000], cgroup, &tenants, true);
            assert!(spared("/docker/a") && spared("/docker/a/init.scope"));
            assert!(!spared("/docker") && !spared("/docker/ab") && !spared("/"));
        }
    }

    #[test]
    fn a_session_with_a_registered_process_spares_nothing_below_it() {
        let tenants = Places {
            shared: BTreeSet::from(["/user.slice/session-3.scope"]),
            ..Places::default()
        };
        let spared = |cgroup| is_spared(7, &[1000], cgroup, &tenants, true);
        assert!(spared("/user.slice/session-3.scope"));
        assert!(!spared("/user.slice/session-3.scope/other") && !spared("/user.slice"));
    }
}
