//! Carries out decisions about processes that belong to no tenant of ours.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use gpushare_core::{DeviceId, Nanos};
use gpushare_protocol::units::Bytes;
use nix::sys::signal::Signal;

use super::unmanaged::{Aside, Known, Places, Step, Strangers, Unmanaged, spared};
use super::{ConnId, Node};
use crate::groups::below;
use crate::peer;

/// Unmanaged processes, and the pidfds of those that are being ended.
#[derive(Debug)]
pub(super) struct Watch {
    rules: Unmanaged,
    term_grace: Nanos,
    strangers: Strangers,
    held: BTreeMap<u32, OwnedFd>,
    /// The processes of commands.
    pub(super) commands: BTreeMap<ConnId, u32>,
    /// The daemon's own cgroup: no tenant's.
    home: String,
    /// Its place in every hierarchy, as `/proc` has it.
    home_table: String,
    /// Where the kernel tells about processes: `/proc`, but for tests.
    proc: PathBuf,
}

impl Watch {
    pub(super) fn new(rules: Unmanaged, term_grace: Nanos) -> Self {
        Self {
            rules,
            term_grace,
            strangers: Strangers::default(),
            held: BTreeMap::new(),
            commands: BTreeMap::new(),
            home: peer::cgroup_of(std::process::id()).unwrap_or_default(),
            home_table: std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
            proc: PathBuf::from("/proc"),
        }
    }

    /// The daemon's own cgroup.
    pub(super) fn home(&self) -> &str {
        &self.home
    }

    /// Where the kernel tells about processes.
    pub(super) fn proc(&self) -> &Path {
        &self.proc
    }

    /// Where the kernel tells about a process.
    pub(super) fn of_process(&self, pid: u32) -> PathBuf {
        self.proc.join(pid.to_string())
    }

    /// The daemon's place in every hierarchy.
    pub(super) fn home_table(&self) -> &str {
        &self.home_table
    }
}

impl Node {
    /// The daemon runs in this cgroup, and not as the kernel says. For tests.
    pub fn runs_in(&mut self, cgroup: &str) {
        self.watch.home = cgroup.to_owned();
        self.watch.home_table = format!("0::{cgroup}\n");
    }

    /// A look at time `taken` lists these processes, which belong to no tenant of ours. Those that
    /// only draw there, those in cgroups that the rules name, and those of containers that a rule
    /// allows are told of, and not ended.
    pub(super) fn mind_strangers(
        &mut self,
        (now, taken): (Nanos, Nanos),
        device: usize,
        listed: &BTreeMap<u32, Bytes>,
        drawing: &BTreeSet<u32>,
    ) {
        if self.is_recovering() {
            // Any of them may be a program of the previous daemon that has not come back yet.
            return;
        }
        let mut above = None;
        let draw = drawing.iter().map(|pid| (*pid, Aside::Draws));
        let mut aside: BTreeMap<u32, Aside> = draw.collect();
        let mut apart = self.apart(listed);
        apart.retain(|pid, _| {
            let above = above.get_or_insert_with(|| self.above());
            self.runs_under(*pid, above).is_none()
        });
        aside.extend(apart.iter().map(|(pid, (aside, _))| (*pid, *aside)));
        let watch = &mut self.watch;
        let rules = (&watch.rules, watch.term_grace);
        let times = (now, taken);
        let steps = watch.strangers.seen(times, device, (listed, &aside), rules);
        let strangers = &watch.strangers;
        watch.held.retain(|pid, _| strangers.lists(*pid));
        let id = Some(DeviceId(device as u64));
        for step in steps {
            match step {
                Step::Report { pid, bytes } => {
                    if let Some((_, why)) = apart.get(&pid) {
                        let holds = bytes.human();
                        let text = format!("process {pid} is left alone: {why} (it holds {holds})");
                        self.event("unmanaged-spared", None, id, text);
                        continue;
                    }
                    let only = match drawing.contains(&pid) {
                        true => "only draws, ",
                        false => "",
                    };
                    let above = above.get_or_insert_with(|| self.above());
                    let tenant = self.runs_under(pid, above);
                    let is = match tenant {
                        Some(tenant) => format!(
                            "runs under tenant {}, where it never registered: no limit holds for it (was LD_PRELOAD replaced, is it static, or does it not use CUDA?)",
                            self.name(tenant)
                        ),
                        None => "is in no tenant of ours".to_owned(),
                    };
                    let text = format!("process {pid} {only}holds {} and {is}", bytes.human());
                    self.event("unmanaged", tenant, id, text);
                }
                Step::Inspect { pid } => {
                    if let Err(why) = self.inspect(now, pid) {
                        self.watch.strangers.spare(pid);
                        let text = format!("process {pid} is left alone: {why}");
                        self.event("unmanaged-spared", None, id, text);
                    }
                }
                Step::Terminate { pid } => self.end_stranger(id, pid, Signal::SIGTERM),
                Step::Kill { pid } => self.end_stranger(id, pid, Signal::SIGKILL),
            }
        }
    }

    /// Of these processes those in cgroups that the rules name, and those of containers that a rule
    /// allows, as the kernel says it; with the reason in words.
    fn apart(&self, listed: &BTreeMap<u32, Bytes>) -> BTreeMap<u32, (Aside, String)> {
        let named = &self.watch.rules.spare;
        let allowed = self.allowed_groups();
        if named.is_empty() && allowed.is_empty() {
            return BTreeMap::new();
        }
        let why = |pid: &u32| {
            let known = peer::inspect_by(&self.watch.proc, *pid).ok()?;
            if named.iter().any(|group| below(&known.cgroup, group)) {
                let why = "it is in a cgroup that unmanaged_spare names";
                return Some((*pid, (Aside::Named, why.to_owned())));
            }
            let mut allowed = allowed.iter();
            let (container, _) = allowed.find(|(_, own)| known.groups.are_within(own))?;
            let why = format!("a rule allows its container {container} to run without limits");
            Some((*pid, (Aside::Allowed, why)))
        };
        listed.keys().filter_map(why).collect()
    }

    /// How many processes that compute on a device belong to no tenant of ours.
    pub(super) fn unmanaged_on(&self, device: usize) -> u32 {
        self.watch.strangers.count_on(device)
    }

    /// Holds the process if it may be ended; the error says why not.
    fn inspect(&mut self, now: Nanos, pid: u32) -> Result<(), String> {
        let found = peer::inspect_by(&self.watch.proc, pid);
        let stranger = found.map_err(|error| error.to_string())?;
        let known = Known {
            pid,
            uids: &stranger.uids,
            cgroup: &stranger.cgroup,
            groups: &stranger.groups,
        };
        let kept = self.unrestored_cgroups();
        let places = self.tenants_places(&kept);
        match spared(&known, std::process::id(), &places, &self.watch.rules) {
            Some(why) => Err(why.to_owned()),
            None => {
                self.watch.strangers.hold(pid, now);
                self.watch.held.insert(pid, stranger.pidfd);
                Ok(())
            }
        }
    }

    /// The cgroups that are tenants' own, whether a process of theirs is registered or not; also of
    /// tenants that were not restored, the living processes of which are in those of `kept`.
    fn tenants_places<'a>(&'a self, kept: &'a [String]) -> Places<'a> {
        let home = &self.watch.home;
        let processes = self.processes.iter();
        let shared = processes.map(|(_, process)| process.peer().cgroup.as_str());
        let shared = shared.chain(kept.iter().map(String::as_str));
        let tenants = self.tenants.values().map(|known| known.registration());
        let tenants = tenants.chain(self.unrestored_registrations());
        let made = tenants.filter_map(|registration| registration.cgroup.as_deref());
        let containers = self.containers_groups().into_iter();
        Places {
            shared: shared
                .filter(|group| *group != "/" && group != home)
                .collect(),
            made: made.filter(|group| !below(home, group)).collect(),
            containers: containers.chain(self.unrestored_groups()).collect(),
        }
    }

    fn end_stranger(&mut self, device: Option<DeviceId>, pid: u32, signal: Signal) {
        let Some(pidfd) = self.watch.held.get(&pid) else {
            return;
        };
        let outcome = match peer::signal(pidfd, signal) {
            Ok(()) => {
                if signal == Signal::SIGTERM {
                    self.counted.stranger_ended();
                }
                format!("{signal} to process {pid}, which is in no tenant of ours")
            }
            Err(error) => format!("{signal} did not reach process {pid}: {error}"),
        };
        self.event("unmanaged-ended", None, device, outcome);
    }
}

#[cfg(test)]
mod tests;
