//! Containers that a rule of the node allows to run without limits, for as long as their first
//! processes run ([ADR
//! 246](../../../docs/adr/0246-what-a-rule-allows-is-not-ended-either.md)). They are no tenants:
//! what their processes hold is unmanaged memory, and they are only left alone.

use std::io;

use gpushare_protocol::wire::{ControlReply, is_container_id};

use super::injected::is_there;
use super::{ConnId, Container, Effect, Node};
use crate::groups::{Groups, Mounts};
use crate::init::Init;
use crate::peer::is_dead;

/// Such a container.
#[derive(Debug)]
pub(super) struct Allowed {
    container: Container,
    init: Init,
}

impl Allowed {
    /// Whether its first process runs.
    fn lives(&self) -> bool {
        !is_dead(&self.init.pidfd).unwrap_or(false)
    }
}

impl Node {
    /// The first process of a container that a rule allows was looked at. Its hook is told that it
    /// may run, whether its processes can be told from others or not: a rule says so.
    pub(super) fn is_allowed(
        &mut self,
        command: (ConnId, u32),
        container: &str,
        found: io::Result<Init>,
        asker: &Groups,
    ) {
        let found = found.map_err(|error| error.to_string());
        let kept = found.and_then(|init| self.keep_allowed(container, init, asker));
        if let Err(why) = kept {
            tracing::warn!(
                container,
                why,
                "a container that a rule allows cannot be told from others: unmanaged = \"end\" does not leave its processes alone"
            );
        }
        let takes_maxima = false;
        self.answer_command(command, ControlReply::Unlimited { takes_maxima });
    }

    fn keep_allowed(&mut self, id: &str, init: Init, asker: &Groups) -> Result<(), String> {
        if !is_container_id(id) {
            return Err("its id is refused".to_owned());
        }
        let groups = self.groups_of(&init, asker);
        let groups = groups.map_err(|error| error.message)?;
        if groups.is_empty() {
            return Err("it has no cgroup of its own".to_owned());
        }
        let container = Container {
            id: id.to_owned(),
            init: Some(init.identity),
            inodes: self.known_mounts.inodes(&groups),
            groups,
            ..Container::default()
        };
        // A hook that asks again.
        self.allowed
            .retain(|other| other.init.identity != init.identity);
        self.allowed.push(Allowed { container, init });
        self.write_down_allowed();
        Ok(())
    }

    /// The ids of these containers with the cgroups that are their own. None of them has the daemon
    /// in it, and each is still the one that it was: a later container may have the same path.
    pub(super) fn allowed_groups(&self) -> Vec<(String, Groups)> {
        let home = Groups::parse(self.watch.home_table());
        let living = self.allowed.iter().filter(|one| one.lives());
        let there = living.filter(|one| self.has_its_group(&one.container));
        let own = there.map(|one| {
            let groups = one.container.groups.apart_from(&[&home]);
            (one.container.id.clone(), groups)
        });
        own.collect()
    }

    /// Whether a container's cgroups are those that it came with, as far as this daemon sees them.
    fn has_its_group(&self, container: &Container) -> bool {
        let groups = &container.groups;
        container.inodes.is_empty()
            || is_there(&self.known_mounts.seen(groups), container)
            || is_there(&Mounts::here().inodes(groups), container)
    }

    /// Once a second: forgets those that have ended.
    pub(super) fn tend_allowed(&mut self) {
        let before = self.allowed.len();
        self.allowed.retain(Allowed::lives);
        if self.allowed.len() != before {
            self.write_down_allowed();
        }
    }

    /// Has these containers stored for the next daemon.
    pub fn write_down_allowed(&mut self) {
        let all = self.allowed.iter().map(|one| one.container.clone());
        let all = all.collect();
        self.effect(Effect::KeepAllowed(all));
    }

    /// Takes over those of the previous daemon that still run.
    pub fn restore_allowed(&mut self, all: Vec<Container>) {
        let before = all.len();
        for container in all {
            if let Some(init) = container.init.and_then(Init::again) {
                // Has the table of mounts read.
                let _ = self.known_mounts.inodes(&container.groups);
                self.allowed.push(Allowed { container, init });
            }
        }
        if self.allowed.len() != before {
            self.write_down_allowed();
        }
    }
}
