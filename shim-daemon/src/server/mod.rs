//! The loop: sockets, deaths, looks and time in; effects out. It decides nothing.

mod clock;
mod folder;
mod looker;
mod poller;
mod session;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;

use gpushare_core::{ContainerId, Nanos, ProcessId};
use gpushare_protocol::wire::ControlReply;

use crate::connection::Closed;
use crate::devices::Devices;
use crate::node::{ConnId, Effect, Node, Registration, Settings};
use crate::notify::Notify;
pub use folder::{CONTROL, Folder, SOCKET};
use looker::Looker;
use poller::{Poller, Source};
use session::{Role, Session};

/// How often pages are read and devices looked at.
const TICK: Nanos = Nanos::secs(1);
/// How long a connection may stay without saying who it is.
const GREETING: Nanos = Nanos::secs(5);
/// How long a restored container waits for its first process: as long as a starting process waits for a daemon.
const CLAIM: Nanos = Nanos::secs(10);
/// Connections of one container, or commands, at once. A process needs one.
const MOST_CONNECTIONS: usize = 1024;

/// A daemon.
#[derive(Debug)]
pub struct Server {
    node: Node,
    poller: Poller,
    folder: Folder,
    looker: Looker,
    control: UnixListener,
    listeners: BTreeMap<ContainerId, UnixListener>,
    sessions: BTreeMap<u64, Session>,
    watched: BTreeMap<ProcessId, OwnedFd>,
    /// Kept open for the poller.
    _stop: OwnedFd,
    reload: Option<Reload>,
    /// Kept, so that no other daemon serves the folder.
    _lock: File,
    next: u64,
    next_tick: Nanos,
    recovering_until: Option<Nanos>,
    /// Until when containers of the previous daemon are kept for processes that are just starting.
    claimable_until: Option<Nanos>,
    /// Leave when the last container and command have gone.
    transient: bool,
    notify: Notify,
}

/// Limits of containers that do not say otherwise, as variables.
pub type Defaults = Vec<(String, String)>;

/// How the daemon's file is read again.
pub struct Reload {
    /// Becomes readable when it is to be.
    pub bell: OwnedFd,
    /// Empties `bell` and reads the containers' defaults; the error says what is wrong with the file.
    pub read: Box<dyn FnMut() -> Result<Defaults, String> + Send>,
}

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reload")
            .field("bell", &self.bell)
            .finish_non_exhaustive()
    }
}

/// What a server needs to start.
#[derive(Debug)]
pub struct Start {
    /// Where its sockets lie.
    pub folder: Folder,
    /// The node's settings.
    pub settings: Settings,
    /// Becomes readable when the daemon is to stop.
    pub stop: OwnedFd,
    /// How the daemon's file is read again, if it has one.
    pub reload: Option<Reload>,
    /// Leave when nobody needs the daemon any more.
    pub transient: bool,
}

impl Server {
    /// Opens the sockets, restores what a previous daemon left, and is ready for [`Server::run`].
    ///
    /// # Errors
    /// A sentence: no devices, or the folder cannot be used.
    pub fn new(start: Start, mut devices: Box<dyn Devices>) -> Result<Self, String> {
        let now = clock::now();
        let list = devices.list()?;
        let folder = start.folder;
        let remembered = folder.remembered()?;
        let node = Node::new(
            &start.settings,
            list,
            clock::instance(),
            now,
            !remembered.is_empty(),
        );
        let io = |what: &str, error: io::Error| format!("cannot {what}: {error}");
        let poller = Poller::new().map_err(|error| io("poll", error))?;
        let looker =
            Looker::start(devices).map_err(|error| io("start the device thread", error))?;
        let (control, lock) = folder
            .listen_control()
            .map_err(|error| io("listen", error))?;
        let add = |fd, source| {
            poller
                .add(fd, source)
                .map_err(|error| io("poll a socket", error))
        };
        add(control.as_fd(), Source::Control)?;
        add(looker.wake(), Source::Looks)?;
        add(start.stop.as_fd(), Source::Stop)?;
        if let Some(reload) = &start.reload {
            add(reload.bell.as_fd(), Source::Reload)?;
        }
        let mut server = Self {
            node,
            poller,
            folder,
            looker,
            control,
            listeners: BTreeMap::new(),
            sessions: BTreeMap::new(),
            watched: BTreeMap::new(),
            _stop: start.stop,
            reload: start.reload,
            _lock: lock,
            next: 0,
            next_tick: now,
            recovering_until: (!remembered.is_empty()).then(|| now + start.settings.recovery),
            claimable_until: None,
            transient: start.transient,
            notify: Notify::new(start.transient),
        };
        for registration in &remembered {
            if let Err(error) = server.node.restore(now, registration) {
                tracing::error!(container = registration.name, %error, "not restored");
                server.folder.forget(&registration.name);
            }
        }
        server.carry_out();
        Ok(server)
    }

    /// Serves until told to stop, or, if transient, until nobody is left.
    ///
    /// # Errors
    /// Only if polling itself fails.
    pub fn run(&mut self) -> io::Result<()> {
        self.notify.ready();
        let ended = self.serve_all();
        self.notify.stopping();
        ended
    }

    fn serve_all(&mut self) -> io::Result<()> {
        loop {
            let now = clock::now();
            let due = self
                .node
                .next_timeout()
                .map_or(self.next_tick, |at| at.min(self.next_tick));
            for source in self.poller.wait(due - now)? {
                if matches!(source, Source::Stop) {
                    return Ok(());
                }
                self.serve(source);
            }
            self.pass_time();
            self.carry_out();
            if self.transient && self.is_unused() {
                return Ok(());
            }
        }
    }

    fn is_unused(&self) -> bool {
        self.sessions.is_empty() && self.listeners.is_empty() && self.next > 0
    }

    fn serve(&mut self, source: Source) {
        match source {
            Source::Control => self.accept(None),
            Source::Container(container) => self.accept(Some(container)),
            Source::Session(id) => self.talk(id),
            Source::Process(process) => {
                if let Some(pidfd) = self.watched.remove(&process) {
                    self.poller.remove(pidfd.as_fd());
                }
                self.node.process_ended(clock::now(), process);
            }
            Source::Looks => {
                for (device, taken, look) in self.looker.finished() {
                    self.node.looked(clock::now(), device, taken, look);
                }
            }
            Source::Reload => self.reload(),
            Source::Stop => {}
        }
        self.carry_out();
    }

    /// A file that is wrong changes nothing.
    fn reload(&mut self) {
        let Some(reload) = &mut self.reload else {
            return;
        };
        self.notify.reloading();
        match (reload.read)() {
            Ok(defaults) => {
                self.node.set_defaults(defaults);
                tracing::info!(
                    "the file was read again; its defaults hold for containers from now on"
                );
            }
            Err(error) => {
                tracing::error!("the file was not taken, what was read before holds on: {error}");
            }
        }
        self.notify.ready();
    }

    fn pass_time(&mut self) {
        let now = clock::now();
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.notify.alive();
            self.node.tick(now);
            let silent = |(_, session): &(&u64, &Session)| {
                session.is_silent() && now - session.since > GREETING
            };
            let silent: Vec<u64> = self
                .sessions
                .iter()
                .filter(silent)
                .map(|(id, _)| *id)
                .collect();
            for id in silent {
                self.close(id, &Closed::Io(io::ErrorKind::TimedOut.into()));
            }
        } else {
            self.node.advance(now);
        }
        if self.recovering_until.is_some_and(|until| now >= until) {
            self.recovering_until = None;
            self.node.recovered(now);
            self.claimable_until = Some(now + CLAIM);
        }
        if self.claimable_until.is_some_and(|until| now >= until) {
            self.claimable_until = None;
            self.node.forget_unclaimed(now);
        }
    }

    fn accept(&mut self, container: Option<ContainerId>) {
        let listener = match container {
            None => Some(&self.control),
            Some(id) => self.listeners.get(&id),
        };
        let Some(Ok((socket, _))) = listener.map(UnixListener::accept) else {
            return;
        };
        let role = container.map_or(Role::Command, Role::Client);
        let alike = self
            .sessions
            .values()
            .filter(|session| session.role == role)
            .count();
        if alike >= MOST_CONNECTIONS {
            return;
        }
        self.next += 1;
        let id = self.next;
        let session = Session::new(socket, role, clock::now());
        match session.and_then(|session| {
            self.poller
                .add(session.connection.socket(), Source::Session(id))?;
            Ok(session)
        }) {
            Ok(session) => {
                self.sessions.insert(id, session);
            }
            Err(error) => tracing::warn!(%error, "a connection could not be taken"),
        }
    }

    fn talk(&mut self, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let now = clock::now();
        if let Err(end) = session.exchange(now, ConnId(id), &mut self.node, &self.folder) {
            self.close(id, &end);
        } else {
            self.mind(id);
        }
    }

    /// Polls a session for what it can do next: one that does not read its replies is not read either.
    fn mind(&mut self, id: u64) {
        if let Some(session) = self.sessions.get_mut(&id) {
            let writes = session.connection.wants_to_write();
            if std::mem::replace(&mut session.polled_for_room, writes) == writes {
                return;
            }
            self.poller
                .change(session.connection.socket(), Source::Session(id), writes);
        }
    }

    fn close(&mut self, id: u64, end: &Closed) {
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        self.poller.remove(session.connection.socket());
        if !matches!(end, Closed::Ended) {
            tracing::info!(connection = id, %end, "cut off");
        }
        session.ended(clock::now(), ConnId(id), &mut self.node);
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Client {
                    to,
                    id,
                    reply,
                    descriptors,
                } => {
                    self.send(to, |session| {
                        session.connection.send(id, &reply, descriptors)
                    });
                }
                Effect::Command { to, id, reply } => {
                    let reply = self.with_folder(reply);
                    self.send(to, |session| {
                        session.connection.send(id, &reply, Vec::new())
                    });
                }
                Effect::Watch { process, pidfd } => {
                    match self.poller.add(pidfd.as_fd(), Source::Process(process)) {
                        Ok(()) => drop(self.watched.insert(process, pidfd)),
                        Err(error) => tracing::error!(%error, "a process cannot be watched"),
                    }
                }
                Effect::Listen {
                    container,
                    registration,
                } => self.listen(container, &registration),
                Effect::Unlisten { container, name } => {
                    if let Some(listener) = self.listeners.remove(&container) {
                        self.poller.remove(listener.as_fd());
                    }
                    self.folder.forget(&name);
                }
                Effect::Look { device } => self.looker.look(device),
            }
        }
    }

    fn send(&mut self, to: ConnId, send: impl FnOnce(&mut Session) -> Result<(), Closed>) {
        let Some(session) = self.sessions.get_mut(&to.0) else {
            return;
        };
        match send(session) {
            Ok(()) => self.mind(to.0),
            Err(end) => self.close(to.0, &end),
        }
    }

    fn with_folder(&self, reply: ControlReply) -> ControlReply {
        match reply {
            ControlReply::Created { name, .. } => {
                let folder = self.folder.of(&name).to_string_lossy().into_owned();
                ControlReply::Created { name, folder }
            }
            other => other,
        }
    }

    fn listen(&mut self, container: ContainerId, registration: &Registration) {
        if let Err(error) = self.folder.remember(registration) {
            tracing::error!(container = registration.name, %error, "would not survive a restart of the daemon");
        }
        if self.listeners.contains_key(&container) {
            return;
        }
        let listener = self.folder.listen(&registration.name).and_then(|listener| {
            self.poller
                .add(listener.as_fd(), Source::Container(container))?;
            Ok(listener)
        });
        match listener {
            Ok(listener) => drop(self.listeners.insert(container, listener)),
            Err(error) => tracing::error!(container = registration.name, %error, "no socket"),
        }
    }
}
