//! Registrations as files and sockets: where a tenant's processes connect, and the state that the
//! next daemon needs.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use gpushare_core::{Nanos, TenantId};
use gpushare_protocol::wire::{ControlReply, ErrorCode, WireError};

use super::poller::Source;
use super::{Server, clock};
use crate::node::{Registration, Settings};

impl Server {
    pub(super) fn with_folder(&self, reply: ControlReply) -> ControlReply {
        match reply {
            ControlReply::Created { name, .. } => {
                if let Some((what, why)) = self.doors.trouble(&name) {
                    let text = format!("tenant {name} has no {what}: {why}");
                    return ControlReply::Error(WireError::retry(ErrorCode::Full, text));
                }
                let folder = self.folder.of(&name).to_string_lossy().into_owned();
                ControlReply::Created { name, folder }
            }
            other => other,
        }
    }

    pub(super) fn listen(&mut self, tenant: TenantId, registration: &Registration) {
        match self.folder.remember(registration) {
            Ok(()) => drop(self.unsaved.remove(&tenant)),
            Err(error) => {
                if self.unsaved.insert(tenant) {
                    self.node.not_remembered(tenant, &error);
                    tracing::error!(tenant = registration.name, %error, "would not survive a restart of the daemon");
                }
            }
        }
        let name = &registration.name;
        self.doors.add(tenant, name, &self.folder, &self.poller);
        let allow = self.node.containers().allow_without_daemon;
        let container = registration.container.as_ref();
        let done = container.map_or(Ok(()), |container| {
            self.folder.furnish(name, container, allow)
        });
        self.doors.furnished(tenant, done);
    }

    /// Takes over the tenants of the previous daemon. What is stored of one that cannot be restored
    /// or read stays.
    pub(super) fn restore(
        &mut self,
        now: Nanos,
        (remembered, unreadable): (&[Registration], &[(String, String)]),
    ) {
        for registration in remembered {
            if let Err(error) = self.node.restore(now, registration) {
                tracing::error!(tenant = registration.name, %error, "not restored");
                self.folder.take_leave(&registration.name);
            }
        }
        let names = unreadable.iter().map(|(file, _)| Path::new(file));
        for name in names.filter_map(|file| file.file_stem()?.to_str()) {
            self.folder.take_leave(name);
        }
        self.restore_allowed();
    }

    /// Once a second: what could not be written is tried again.
    pub(super) fn write_again(&mut self) {
        let mut all = self.unsaved.clone();
        all.extend(self.doors.incomplete());
        for tenant in all {
            self.node.write_down(tenant);
        }
        if self.unkept {
            self.node.write_down_allowed();
        }
    }

    /// Settings that were read again hold from now on, for containers that run too.
    pub(super) fn follow_settings(&mut self, settings: &Settings) -> Result<(), String> {
        self.node.reload(clock::now(), settings)?;
        self.follow_classes();
        self.node.write_down_all();
        Ok(())
    }

    /// An operator has deleted the files of tenants that were not restored.
    pub(super) fn forget_deleted(&mut self) {
        let kept = self
            .node
            .unrestored()
            .filter(|name| !self.folder.remembers(name));
        for name in kept.map(str::to_owned).collect::<Vec<_>>() {
            self.node.forget_unrestored(&name);
        }
    }

    pub(super) fn watch_container(&mut self, tenant: TenantId, pidfd: OwnedFd) {
        match self.poller.add(pidfd.as_fd(), Source::Container(tenant)) {
            Ok(()) => drop(self.inits.insert(tenant, pidfd)),
            Err(error) => {
                tracing::error!(%error, "the first process of a container cannot be watched; it is looked at once a second")
            }
        }
    }

    pub(super) fn unwatch_container(&mut self, tenant: TenantId) {
        if let Some(pidfd) = self.inits.remove(&tenant) {
            self.poller.remove(pidfd.as_fd());
        }
    }
}

#[cfg(test)]
mod tests;
