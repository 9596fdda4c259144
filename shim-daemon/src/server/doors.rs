//! The listening sockets. A removed socket file is restored, and a socket that could not be made is
//! retried. While no descriptor is left to accept with, neither these sockets nor those of classes
//! are polled: the loop would do nothing else.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use gpushare_core::TenantId;

use super::folder::{Claim, Folder};
use super::poller::{Poller, Source};
use crate::foreign::{Lane, part_with};
use crate::peer::Maker;

/// All listening sockets, and the lock on the folder.
#[derive(Debug)]
pub(super) struct Doors {
    control: UnixListener,
    tenants: BTreeMap<TenantId, Door>,
    lock: File,
    /// No descriptor was left; nothing is polled until [`Doors::tend`].
    closed: bool,
    /// A socket is not polled that should be: the poller had no place for it. It is tried again.
    deaf: bool,
    /// Takes the process that made a connection.
    pub(super) maker: fn(BorrowedFd<'_>) -> io::Result<Maker>,
}

#[derive(Debug)]
struct Door {
    name: String,
    /// The socket, or why there is none.
    listener: Result<UnixListener, String>,
    /// Why the files beside the socket are not there as they have to be, if so.
    incomplete: Option<String>,
}

impl Doors {
    /// Opens the control door, as the only daemon of this folder.
    pub(super) fn open(folder: &mut Folder, poller: &Poller) -> io::Result<Self> {
        let Claim { lock, control } = folder.take_claim()?;
        poller.add(control.as_fd(), Source::Control)?;
        Ok(Self {
            control,
            tenants: BTreeMap::new(),
            lock,
            closed: false,
            deaf: false,
            maker: Maker::of,
        })
    }

    /// Whether there are none but the control door.
    pub(super) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Accepts a connection at the tenant's socket, or at the control socket. `None`: it has none.
    pub(super) fn accept(&self, tenant: Option<TenantId>) -> Option<io::Result<UnixStream>> {
        let listener = match tenant {
            None => Some(&self.control),
            Some(id) => self
                .tenants
                .get(&id)
                .and_then(|door| door.listener.as_ref().ok()),
        };
        Some(listener?.accept().map(|(socket, _)| socket))
    }

    /// Opens a socket for a tenant without one.
    pub(super) fn add(&mut self, tenant: TenantId, name: &str, folder: &Folder, poller: &Poller) {
        if self.tenants.contains_key(&tenant) {
            return;
        }
        let listener = self.make(tenant, name, folder, poller);
        if let Err(error) = &listener {
            tracing::error!(tenant = name, error, "no socket");
        }
        let name = name.to_owned();
        let incomplete = None;
        self.tenants.insert(
            tenant,
            Door {
                name,
                listener,
                incomplete,
            },
        );
    }

    /// The files beside a tenant's socket were written, or why not. Says what is new.
    pub(super) fn furnished(&mut self, tenant: TenantId, done: io::Result<()>) {
        let Some(door) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let error = done.err().map(|error| error.to_string());
        if let Some(error) = &error
            && door.incomplete.as_ref() != Some(error)
        {
            tracing::error!(
                tenant = door.name,
                error,
                "the container's folder is not complete"
            );
        }
        door.incomplete = error;
    }

    /// The tenants whose folders are not complete.
    pub(super) fn incomplete(&self) -> impl Iterator<Item = TenantId> {
        let all = self.tenants.iter();
        let amiss = all.filter(|(_, door)| door.incomplete.is_some());
        amiss.map(|(tenant, _)| *tenant)
    }

    fn make(
        &self,
        tenant: TenantId,
        name: &str,
        folder: &Folder,
        poller: &Poller,
    ) -> Result<UnixListener, String> {
        let listener = folder.listen(name).map_err(|error| error.to_string())?;
        if !self.closed {
            poller
                .add(listener.as_fd(), Source::Tenant(tenant))
                .map_err(|error| error.to_string())?;
        }
        Ok(listener)
    }

    /// Closes a tenant's door for good.
    pub(super) fn remove(&mut self, tenant: TenantId, poller: &Poller, lane: &Lane) {
        let door = self.tenants.remove(&tenant);
        if let Some(Ok(listener)) = door.map(|door| door.listener) {
            if !self.closed {
                poller.remove(listener.as_fd());
            }
            part_with(listener, lane);
        }
    }

    /// What the tenant of this name lacks, and why, if it cannot be reached or its programs would
    /// not be limited.
    pub(super) fn trouble(&self, name: &str) -> Option<(&'static str, &str)> {
        let door = self.tenants.values().find(|door| door.name == name)?;
        let closed = door.listener.as_ref().err();
        let closed = closed.map(|why| ("socket", why.as_str()));
        closed.or_else(|| Some(("complete folder", door.incomplete.as_deref()?)))
    }

    /// Once a second: reopens sockets that were closed for lack of descriptors, and restores files
    /// removed from the folder.
    ///
    /// Returns whether the folder had been emptied: the stored registrations are gone, too.
    ///
    /// # Errors
    /// If another daemon has taken the folder: two must not share out the same devices. Or if the
    /// machine's folder cannot be made anew for as long as this daemon lives.
    pub(super) fn tend(
        &mut self,
        folder: &Folder,
        poller: &Poller,
        lane: &Lane,
    ) -> io::Result<bool> {
        if std::mem::take(&mut self.closed) || self.deaf {
            self.deaf = !self.poll_all(poller);
        }
        let emptied = !folder.is_locked_by(&self.lock);
        if emptied {
            match folder.make().and_then(|()| folder.lock()) {
                Ok(lock) => {
                    tracing::error!(
                        "the runtime folder was emptied; what belongs there is made anew"
                    );
                    self.lock = lock;
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
                // In the sandbox of its unit the folder is a mount, which went with it. The next
                // daemon gets another one from systemd.
                Err(error) if is_read_only(&error) && !folder.is_private() => {
                    let why = folder.removed_for_good();
                    return Err(io::Error::new(error.kind(), why));
                }
                Err(error) => {
                    tracing::error!(%error, "the runtime folder is gone");
                    return Ok(false);
                }
            }
        }
        if !folder.has_control() {
            match folder.listen_control() {
                Ok(control) => {
                    tracing::error!(
                        "the control socket was removed from the runtime folder and is made anew"
                    );
                    self.swap_control(control, poller, lane);
                }
                Err(error) => tracing::error!(%error, "no control socket"),
            }
        }
        self.tend_tenants(folder, poller, lane);
        Ok(emptied)
    }

    fn swap_control(&mut self, control: UnixListener, poller: &Poller, lane: &Lane) {
        poller.remove(self.control.as_fd());
        part_with(std::mem::replace(&mut self.control, control), lane);
        if let Err(error) = poller.add(self.control.as_fd(), Source::Control) {
            tracing::error!(%error, "the control socket cannot be polled; commands fail until it can");
            self.deaf = true;
        }
    }

    fn tend_tenants(&mut self, folder: &Folder, poller: &Poller, lane: &Lane) {
        let amiss: Vec<(TenantId, String)> = self
            .tenants
            .iter()
            .filter(|(_, door)| door.listener.is_err() || !folder.has(&door.name))
            .map(|(tenant, door)| (*tenant, door.name.clone()))
            .collect();
        for (tenant, name) in amiss {
            let listener = self.make(tenant, &name, folder, poller);
            let Some(door) = self.tenants.get_mut(&tenant) else {
                continue;
            };
            if let Ok(old) = &door.listener {
                tracing::error!(
                    tenant = name,
                    "its socket was removed from the runtime folder"
                );
                poller.remove(old.as_fd());
            }
            if let Ok(old) = std::mem::replace(&mut door.listener, listener) {
                part_with(old, lane);
            }
            // The files beside it may be gone too.
            door.incomplete = Some("its folder was made anew".to_owned());
        }
    }

    /// No descriptor is left: polls no socket until [`Doors::tend`].
    pub(super) fn close(&mut self, poller: &Poller) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        poller.remove(self.control.as_fd());
        for door in self.tenants.values() {
            if let Ok(listener) = &door.listener {
                poller.remove(listener.as_fd());
            }
        }
    }

    /// Polls all sockets, whichever are. Whether it does now.
    fn poll_all(&self, poller: &Poller) -> bool {
        let mut all = true;
        let tenants = self.tenants.iter().filter_map(|(tenant, door)| {
            let listener = door.listener.as_ref().ok()?;
            Some((listener, Source::Tenant(*tenant)))
        });
        for (listener, source) in tenants.chain([(&self.control, Source::Control)]) {
            let Err(error) = poller.add_again(listener.as_fd(), source) else {
                continue;
            };
            if !self.deaf {
                tracing::error!(%error, ?source, "no connection is accepted here until that works");
            }
            all = false;
        }
        all
    }
}

fn is_read_only(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ReadOnlyFilesystem
}

/// Whether an error of `accept` tells only that there is no caller any more. Errors of its network
/// are passed so, too.
pub(super) fn has_left(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED)
    )
}

/// Whether the error means a lack of descriptors or memory, as opposed to a client that left.
pub(super) fn lacks(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}
