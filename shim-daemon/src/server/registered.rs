//! Registrations as files and sockets: where a tenant's processes connect, and the state that the
//! next daemon needs.

use std::os::fd::{AsFd, OwnedFd};

use gpushare_core::TenantId;
use gpushare_protocol::wire::{ControlReply, ErrorCode, WireError};

use super::Server;
use super::poller::Source;
use crate::node::Registration;

impl Server {
    pub(super) fn with_folder(&self, reply: ControlReply) -> ControlReply {
        match reply {
            ControlReply::Created { name, .. } => {
                if let Some(why) = self.doors.trouble(&name) {
                    let text = format!("tenant {name} has no socket: {why}");
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
        if let Some(container) = &registration.container
            && let Err(error) = self.folder.furnish(name, container)
        {
            tracing::error!(tenant = name, %error, "the container's folder is not complete");
        }
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
            Err(error) => tracing::error!(%error, "a container cannot be watched"),
        }
    }

    pub(super) fn unwatch_container(&mut self, tenant: TenantId) {
        if let Some(pidfd) = self.inits.remove(&tenant) {
            self.poller.remove(pidfd.as_fd());
        }
    }
}
