//! Notifications to a service manager (`sd_notify`): the daemon serves, reloads its file, stops,
//! and its loop still runs. Without `NOTIFY_SOCKET` nothing is sent.

use sd_notify::NotifyState;

/// The service manager, if there is one.
#[derive(Debug)]
pub(crate) struct Notify {
    listens: bool,
    /// Whether it restarts a daemon it does not hear from.
    watches: bool,
}

impl Notify {
    /// A `transient` daemon sends no notification: the socket it inherits belongs to the service
    /// whose program started it.
    pub(crate) fn new(transient: bool) -> Self {
        Self {
            listens: !transient,
            watches: !transient && sd_notify::watchdog_enabled().is_some(),
        }
    }

    /// The sockets accept.
    pub(crate) fn ready(&self) {
        self.tell(&[NotifyState::Ready]);
    }

    /// The loop turns. To be said more often than half of the time the manager waits for it.
    pub(crate) fn alive(&self) {
        if self.watches {
            self.tell(&[NotifyState::Watchdog]);
        }
    }

    /// The file is being read again; [`Notify::ready`] ends it.
    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(_) => self.tell(&[NotifyState::Reloading]),
        }
    }

    /// The loop has ended.
    pub(crate) fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
    }

    fn tell(&self, state: &[NotifyState<'_>]) {
        if !self.listens {
            return;
        }
        if let Err(error) = sd_notify::notify(state) {
            tracing::debug!(%error, "the service manager was not told");
        }
    }
}
