//! The server's loop: sockets, deaths, looks and time in; effects out. It makes no decisions.

mod allowed;
mod budget;
mod buffer_budget;
mod classes;
mod clock;
mod connections;
mod crowd;
mod doors;
mod folder;
mod furnish;
mod in_flight;
mod later;
mod looker;
mod owners;
mod poller;
mod registered;
mod reports;
mod rests;
mod room;
mod session;
mod specification;
mod start;
mod starts;
#[cfg(test)]
mod still;
mod users_crowd;
mod watched;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use gpushare_core::{Nanos, ProcessId, TenantId};

use crate::connection::Closed;
use crate::devices::Devices;
use crate::journal::Journal;
use crate::limits;
use crate::node::{ConnId, Effect, Node, Row, Seen};
use crate::notify::Notify;
use crate::spill::SpillFolder;
use budget::{Connects, Formers, Users};
use buffer_budget::BufferBudget;
use classes::Classes;
use crowd::Crowd;
use doors::Doors;
pub use folder::{CONTROL, Folder, Made, SOCKET};
use looker::{Finished, Job, Looker};
use owners::Place;
use poller::{Poller, Source};
use reports::{Report, Reports};
use rests::Resting;
use session::Session;
pub use specification::cdi;
pub use start::{Reload, Start, TICK};
use users_crowd::UsersCrowd;

/// How long a restored tenant waits for its first process: as that waits for a daemon.
const CLAIM: Nanos = Nanos::secs(10);

/// A daemon.
#[derive(Debug)]
pub struct Server {
    node: Node,
    poller: Poller,
    folder: Folder,
    looker: Looker,
    reports: Reports,
    doors: Doors,
    classes: Classes,
    /// Tenants whose current registration could not be stored.
    unsaved: BTreeSet<TenantId>,
    /// Whether the containers that rules allow could not be stored.
    unkept: bool,
    sessions: BTreeMap<u64, Session>,
    /// Sessions that have had their turn, and when they are polled again.
    resting: Resting,
    watched: BTreeMap<ProcessId, OwnedFd>,
    /// Processes for which the poller has no place.
    unwatched: BTreeMap<ProcessId, OwnedFd>,
    /// The first processes of containers.
    inits: BTreeMap<TenantId, OwnedFd>,
    /// Kept open for the poller.
    _stop: OwnedFd,
    reload: Option<Reload>,
    next: u64,
    tick: Nanos,
    next_tick: Nanos,
    recovering_until: Option<Nanos>,
    /// Until when tenants of the previous daemon are kept for processes that are just starting.
    claimable_until: Option<Nanos>,
    /// Leave when the last tenant and command have gone.
    transient: bool,
    /// Whether the clients for which a transient daemon was started may still connect.
    expected: bool,
    starter: Option<OwnedFd>,
    notify: Notify,
    buffer_budget: BufferBudget,
    /// The daemon's time that commands took, by user.
    users: Users,
    /// Connections by place and user.
    crowd: Crowd<Place>,
    /// Connections at all tenants, by their user.
    users_crowd: UsersCrowd,
    /// When a look found no command that could make room for another user's.
    found_none_idle: Option<Nanos>,
    /// Recent connections to tenants' sockets.
    connects: Connects,
    /// Recent requests over connections whose process has another one, or none.
    formers: Formers,
    /// Where events are written.
    journal: Option<Journal>,
}

impl Server {
    /// Opens the sockets, restores the state of a previous daemon, and is ready for
    /// [`Server::run`].
    ///
    /// # Errors
    /// A sentence: no devices, or the folder cannot be used.
    pub fn new(start: Start, mut devices: Box<dyn Devices>) -> Result<Self, String> {
        let now = clock::now();
        let list = devices.list()?;
        room::left(&list, &start.settings)?;
        let mut folder = start.folder;
        let (remembered, unreadable) = folder.remembered()?;
        let mut node = Node::new(
            &start.settings,
            list,
            clock::instance(),
            now,
            !remembered.is_empty(),
        );
        node.warn_of_absent();
        node.is_on(devices.as_mut());
        if folder.is_private() {
            node.serves_only(nix::unistd::geteuid().as_raw());
        }
        node.tell_unreadable(&unreadable);
        if let Some(path) = &start.settings.spill {
            node.spill_to(SpillFolder::open(path)?);
        }
        for why in node.never_has_host() {
            tracing::warn!("[swap] host cannot be used up: {why}");
        }
        let io = |what: &str, error: io::Error| format!("cannot {what}: {error}");
        let poller = Poller::new().map_err(|error| io("poll", error))?;
        let looker =
            looker::start(devices).map_err(|error| io("start the device thread", error))?;
        let reports = Reports::new().map_err(|error| io("hear of work", error))?;
        let doors = Doors::open(&mut folder, &poller).map_err(|error| io("listen", error))?;
        node.starts(folder.count_start(clock::instance()));
        let add = |fd, source| {
            poller
                .add(fd, source)
                .map_err(|error| io("poll a socket", error))
        };
        add(looker.wake(), Source::Looks)?;
        add(reports.wake(), Source::Reports)?;
        add(start.stop.as_fd(), Source::Stop)?;
        if let Some(reload) = &start.reload {
            add(reload.bell.as_fd(), Source::Reload)?;
        }
        if let Some(starter) = &start.starter {
            add(starter.as_fd(), Source::Starter)?;
        }
        // A private daemon's commands are all its user's.
        let table = match folder.is_private() {
            true => u64::MAX,
            false => limits::descriptors(),
        };
        let mut server = Self {
            node,
            poller,
            folder,
            looker,
            reports,
            doors,
            classes: Classes::default(),
            unsaved: BTreeSet::new(),
            unkept: false,
            sessions: BTreeMap::new(),
            resting: Resting::default(),
            watched: BTreeMap::new(),
            unwatched: BTreeMap::new(),
            inits: BTreeMap::new(),
            _stop: start.stop,
            reload: start.reload,
            next: 0,
            tick: start.tick,
            next_tick: now,
            recovering_until: None,
            claimable_until: None,
            transient: start.transient,
            expected: true,
            starter: start.starter,
            notify: Notify::new(start.transient),
            buffer_budget: BufferBudget::default(),
            users: Users::default(),
            crowd: Crowd::default(),
            users_crowd: UsersCrowd::new(table),
            found_none_idle: None,
            connects: Connects::default(),
            formers: Formers::default(),
            journal: start.journal,
        };
        server.restore(now, (&remembered, &unreadable));
        server.carry_out();
        server.follow_classes();
        if !remembered.is_empty() {
            // Only now all sockets listen. The driver may have taken many seconds to start.
            let until = clock::now() + start.settings.recovery;
            server.node.recovers();
            server.recovering_until = Some(until);
        }
        Ok(server)
    }

    /// Serves until told to stop, or, if transient, until no client is left.
    ///
    /// # Errors
    /// Only if polling itself fails.
    pub fn run(&mut self) -> io::Result<()> {
        self.notify.ready();
        let ended = self.serve_all();
        if ended.is_ok() {
            // Else the folder may be another daemon's.
            self.node.write_down_last();
            self.carry_out();
        }
        self.notify.stopping();
        // A reader that finds no daemon here finds all that it told in the journal.
        self.journal = None;
        ended
    }

    /// Removes the runtime folder if it is unused: the next daemon knows tenants by its files.
    pub fn sweep(&self) {
        if self.doors.is_empty() {
            self.folder.sweep();
        }
    }

    fn serve_all(&mut self) -> io::Result<()> {
        loop {
            let now = clock::now();
            let due = self.next_due();
            for source in self.poller.wait(now, due)? {
                if matches!(source, Source::Stop) {
                    return Ok(());
                }
                self.serve(source);
                self.keep_turns();
            }
            self.end_rests()?;
            self.pass_time()?;
            self.carry_out();
            self.node.prepare();
            if self.transient && self.is_unused() {
                return Ok(());
            }
        }
    }

    fn next_due(&self) -> Nanos {
        let rested = self.resting.first();
        let others = self.node.next_timeout().into_iter().chain(rested);
        let others = others.chain(self.recovering_until);
        others.fold(self.next_tick, Nanos::min)
    }

    fn is_unused(&self) -> bool {
        self.sessions.is_empty() && self.doors.is_empty() && !self.expected
    }

    fn serve(&mut self, source: Source) {
        match source {
            Source::Control => self.accept(None),
            Source::Tenant(tenant) => self.accept(Some(tenant)),
            Source::Class(at) => self.accept_in_class(at),
            Source::Session(id) => self.talk(id),
            Source::Process(process) => {
                self.unwatch(process);
                self.node.process_ended(clock::now(), process);
            }
            Source::Container(tenant) => {
                self.unwatch_container(tenant);
                self.node.container_ended(clock::now(), tenant);
            }
            Source::Looks => {
                for finished in self.looker.finished() {
                    match finished {
                        Finished::Look {
                            device,
                            taken,
                            look,
                        } => self.node.looked(clock::now(), device, taken, look),
                        Finished::Fence { key, outcome } => self.node.fenced(&key, outcome),
                    }
                }
            }
            Source::Reports => {
                for report in self.reports.all() {
                    let now = clock::now();
                    match report {
                        Report::Copied(done) => self.node.copied(now, done),
                        Report::Inspected(look) => self.node.inspected(now, look),
                        Report::Seen(process, seen) => self.node.identified(now, process, seen),
                        Report::Rows(tenant, dead) => self.node.rows_seen(now, tenant, &dead),
                    }
                }
            }
            Source::Reload => self.reload(),
            Source::Starter => {
                self.expected = false;
                if let Some(starter) = self.starter.take() {
                    self.poller.remove(starter.as_fd());
                }
            }
            Source::Time | Source::Stop => {}
        }
        self.carry_out();
    }

    /// Ensures that each class has its socket, and that the CDI specification is current.
    fn follow_classes(&mut self) {
        let rules = self.node.containers();
        let lane = self.node.lanes().own();
        let in_use = self.node.classes_in_use();
        self.classes
            .follow((rules, &in_use), &self.folder, &self.poller, &lane);
    }

    /// A faulty file changes no setting.
    fn reload(&mut self) {
        let Some(reload) = &mut self.reload else {
            return;
        };
        self.notify.reloading();
        let read = (reload.read)();
        let applied = read.and_then(|read| {
            let applied = read.map(|settings| self.follow_settings(&settings));
            applied.transpose()
        });
        match applied {
            Ok(Some(())) => {
                tracing::info!(
                    "the file was read again: [compute], [containers] and [classes] hold from now on, [defaults] and [maxima] for tenants that come, all else from the next start"
                );
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(
                    "the file is refused; the previous settings stay in force: {error}"
                );
            }
        }
        self.notify.ready();
    }

    fn pass_time(&mut self) -> io::Result<()> {
        let now = clock::now();
        if now >= self.next_tick {
            self.next_tick = now + self.tick;
            self.notify.alive();
            if self
                .doors
                .tend(&self.folder, &self.poller, &self.node.lanes().own())?
            {
                self.node.write_down_all();
            }
            self.classes.open_again(&self.poller);
            self.follow_classes();
            self.write_again();
            self.look_at_unwatched();
            self.node.lanes().tend();
            self.forget_deleted();
            self.node
                .set_journal_gaps(self.journal.as_ref().map_or(0, Journal::gaps));
            self.node.asks(self.looker.at());
            self.node_second(now);
            self.users.tidy(now);
            self.connects.tidy(now);
            self.formers.tidy(now);
            self.close_silent(now);
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
        Ok(())
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Client {
                    to,
                    id,
                    reply,
                    descriptors,
                } => self.answer((to, id), &reply, descriptors),
                Effect::Command { to, id, reply } => {
                    let reply = self.with_folder(reply);
                    self.send(to, |session| session.tell(id, &reply));
                }
                Effect::Event { to, record, is_new } => {
                    if let Some(journal) = self.journal.as_ref().filter(|_| is_new) {
                        journal.put(&record);
                    }
                    for (to, id) in to {
                        let record = std::sync::Arc::clone(&record);
                        self.send(to, |session| session.tell_event(id, record));
                    }
                }
                Effect::Watch { process, pidfd } => self.watch(process, pidfd),
                Effect::Unwatch { process } => self.unwatch(process),
                Effect::WatchContainer { tenant, pidfd } => self.watch_container(tenant, pidfd),
                Effect::Listen {
                    tenant,
                    registration,
                } => self.listen(tenant, &registration),
                Effect::Unlisten { tenant, name } => {
                    self.unwatch_container(tenant);
                    self.doors
                        .remove(tenant, &self.poller, &self.node.lanes().own());
                    self.unsaved.remove(&tenant);
                    self.folder.forget(&name);
                }
                Effect::KeepAllowed(all) => self.keep_allowed(&all),
                Effect::Forget { name } => self.folder.forget(&name),
                Effect::SetAside { name } => self.folder.set_aside(&name),
                Effect::Look { device } => self.looker.want(Job::Look(device)),
                Effect::Copy(job) => {
                    let lane = job.host.lane().clone();
                    self.reports
                        .want(&lane, move || Report::Copied(job.carry_out()));
                }
                Effect::Inspect(look) => {
                    if let Some(lane) = look.lane().cloned() {
                        let work = move || Report::Inspected(look.carry_out());
                        self.reports.want(&lane, work);
                    }
                }
                Effect::Identify { process, pid, lane } => {
                    self.reports
                        .want(&lane, move || Report::Seen(process, Seen::of(pid)));
                }
                Effect::LookAtRows { tenant, rows, lane } => {
                    self.reports
                        .want(&lane, move || Report::Rows(tenant, Row::dead(&rows)));
                }
                Effect::Fence { key, path, order } => {
                    self.looker.want(Job::Fence { key, path, order });
                }
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
        self.weigh(to.0);
    }
}
