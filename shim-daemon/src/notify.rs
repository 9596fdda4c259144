//! Notifications to a service manager (`sd_notify`): the daemon serves, reloads its file, stops,
//! and its loop still runs. Without `NOTIFY_SOCKET` nothing is sent.
//!
//! The manager may not read: one that has crashed and holds on, or that waits for a disk. Its
//! socket takes a bounded number of messages of all services, and a plain send waits from then on.
//! The daemon's one loop never does. What is not sent is sent with the next sign of life.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sd_notify::NotifyState;

/// How long the end of the daemon waits to be told.
const LAST: Duration = Duration::from_secs(1);
/// Messages that wait to be sent: a start, and a reload with its end.
const MOST: usize = 3;

/// The service manager, if there is one.
#[derive(Debug)]
pub(crate) struct Notify {
    manager: Option<SocketAddr>,
    /// Whether it restarts a daemon it does not hear from.
    watches: bool,
    unsent: RefCell<VecDeque<String>>,
}

impl Notify {
    /// A `transient` daemon sends no notification: the socket it inherits belongs to the service
    /// whose program started it.
    pub(crate) fn new(transient: bool) -> Self {
        let name = env::var_os("NOTIFY_SOCKET").filter(|_| !transient);
        let manager = name.and_then(|name| {
            let found = address(&name);
            let lacking = |error: &io::Error| tracing::debug!(%error, "no service manager");
            found.inspect_err(lacking).ok()
        });
        Self {
            watches: manager.is_some() && sd_notify::watchdog_enabled().is_some(),
            manager,
            unsent: RefCell::default(),
        }
    }

    /// The sockets accept.
    pub(crate) fn ready(&self) {
        self.tell(&[NotifyState::Ready]);
    }

    /// The loop turns. To be said once a second: more often than half of the time the manager waits
    /// for it, and so that it hears what it did not take before.
    pub(crate) fn alive(&self) {
        self.send_all();
        if self.watches && self.unsent.borrow().is_empty() {
            // The next second has the next one.
            self.send(&text(&[NotifyState::Watchdog]));
        }
    }

    /// The file is being read again; [`Notify::ready`] ends it.
    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(_) => self.tell(&[NotifyState::Reloading]),
        }
    }

    /// The loop has ended. The manager has a moment to take it.
    pub(crate) fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
        let until = Instant::now() + LAST;
        while !self.unsent.borrow().is_empty() && self.wait_until(until) {
            self.send_all();
        }
    }

    fn tell(&self, state: &[NotifyState<'_>]) {
        if self.manager.is_none() {
            return;
        }
        {
            let mut unsent = self.unsent.borrow_mut();
            unsent.push_back(text(state));
            if unsent.len() > MOST {
                unsent.pop_front();
            }
        }
        self.send_all();
    }

    /// Sends what it takes, in its order.
    fn send_all(&self) {
        let mut unsent = self.unsent.borrow_mut();
        while unsent.front().is_some_and(|next| self.send(next)) {
            unsent.pop_front();
        }
    }

    /// Sends a message. `false`: the manager takes none now. One that is not there is told nothing.
    fn send(&self, message: &str) -> bool {
        let Some(manager) = &self.manager else {
            return true;
        };
        // A new socket each time: a manager that was started anew has another one.
        let sent = connected(manager).and_then(|socket| socket.send(message.as_bytes()));
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                tracing::debug!(%error, "the service manager was not told");
                true
            }
            Ok(_) => true,
        }
    }

    /// Waits for the manager to take more. Whether it may.
    fn wait_until(&self, until: Instant) -> bool {
        let Some(Ok(socket)) = self.manager.as_ref().map(connected) else {
            return false;
        };
        let left = until.saturating_duration_since(Instant::now());
        let Ok(left) = PollTimeout::try_from(left) else {
            return false;
        };
        let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
        poll(&mut ready, left).is_ok_and(|ready| ready > 0)
    }
}

fn text(state: &[NotifyState<'_>]) -> String {
    let lines = state.iter().map(|one| format!("{one}\n"));
    lines.collect()
}

/// The manager's socket by this name: a path, or `@` and a name that is no path.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

fn connected(manager: &SocketAddr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(manager)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manager that takes so many messages, and no more until it reads.
    fn manager() -> (UnixDatagram, Notify) {
        let name = format!("gpushare-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_nonblocking(true).unwrap();
        let notify = Notify {
            manager: Some(address),
            watches: true,
            unsent: RefCell::default(),
        };
        (socket, notify)
    }

    fn read(socket: &UnixDatagram) -> Vec<String> {
        let one = || {
            let mut buffer = [0; 256];
            let length = socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8_lossy(&buffer[..length]).trim().to_owned())
        };
        std::iter::from_fn(one).collect()
    }

    #[test]
    fn a_manager_that_does_not_read_is_not_waited_for_and_told_later() {
        let (socket, notify) = manager();
        notify.ready();
        assert_eq!(read(&socket), ["READY=1"]);
        // As many as the kernel lets wait, whatever that is, and more.
        (0..5000).for_each(|_| notify.alive());
        (0..3).for_each(|_| notify.ready());
        notify.reloading();
        notify.ready();
        assert_eq!(notify.unsent.borrow().len(), MOST);
        let taken = read(&socket);
        assert!(taken.iter().all(|one| one == "WATCHDOG=1"), "{taken:?}");
        notify.alive();
        let told = read(&socket);
        assert!(told[1].starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(
            [&*told[0], &told[2], &told[3]],
            ["READY=1", "READY=1", "WATCHDOG=1"]
        );
        assert_eq!(told.len(), 4);
        (0..5000).for_each(|_| notify.alive());
        notify.stopping();
        assert_eq!(
            notify.unsent.borrow().len(),
            1,
            "after a second it is given up"
        );
        drop(socket);
        notify.alive();
        assert!(notify.unsent.borrow().is_empty(), "nobody is there");
    }
}
