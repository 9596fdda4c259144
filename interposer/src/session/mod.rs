//! This process and the node's daemon: one connection, two pages, questions and their answers.
//!
//! `GPUSHARE_SOCKET` names the folder of the daemon's socket for this tenant. The limits come from
//! the daemon, never from this process. The usage page holds the charges of the tenant's processes,
//! the control page their allowance: its *grant* is read under the tenant lock whenever credit
//! grows. Only when the grant is too small is the daemon asked. Then the asking thread waits, never
//! longer than the daemon's timeout plus a margin.
//!
//! One thread of ours, the control thread, reads replies and connects again when the daemon has
//! gone. Until then the last grant stays in force: charges within it go on, growth beyond it is out
//! of memory.
//!
//! That thread has descriptors of its own ([`apart`]): a program that closes foreign descriptors
//! closes its own copies only. Messages of its threads then go through the control thread.

mod apart;
mod asks;
mod bound;
mod callbacks;
mod contexts;
mod control_thread;
mod deadline;
mod joining;
mod openings;
mod outbox;
mod pages;
mod pauses;
mod register;
mod residency;
mod socket;
mod spots;
mod stored;
mod turns;

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpushare_protocol::injection;
use gpushare_protocol::page::Page;
use gpushare_protocol::page::control::ControlPage;
use gpushare_protocol::wire::{Reply, Request, Spot, encode};

use crate::guest::background::Uncancelled;
use crate::guest::clock;
use crate::guest::descriptor::{Descriptor, ParentsOnly};
use crate::guest::fork::ForkLocal;
use asks::{Asks, Question, Waited, ask};
pub(crate) use bound::{Bound, Waiting};
pub(crate) use callbacks::Callbacks;
use contexts::Contexts;
pub(crate) use contexts::Opening;
pub(crate) use deadline::{Deadline, LOCK_PATIENCE};
pub(crate) use joining::look;
use outbox::Outbox;
use register::Welcome;
use socket::Bell;
pub(crate) use stored::Answer;

/// How long a starting process waits for the daemon.
pub(crate) const START_PATIENCE: Duration = Duration::from_secs(10);
/// Pauses between attempts to reach it.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// How much longer than the daemon may take a question is waited for: it answers in time unless it
/// hangs or is away.
const MARGIN: Duration = Duration::from_secs(2);
/// How long an immediate answer is waited for.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A registered process.
#[derive(Debug)]
pub(crate) struct Session {
    folder: PathBuf,
    callbacks: Callbacks,
    /// The tenant's name.
    pub(crate) tenant: String,
    /// Our row of the usage page.
    pub(crate) slot: usize,
    /// UUIDs of the pages' devices.
    pub(crate) device_uuids: Vec<[u8; 16]>,
    /// The usage page.
    pub(crate) page: &'static Page,
    usage: Descriptor,
    /// The control page of the last connected daemon. An older one stays mapped: a thread may be
    /// reading it.
    control: AtomicPtr<ControlPage>,
    instance: AtomicU64,
    /// How many connections there have been.
    connections: AtomicU64,
    /// Where to send; `None` while the daemon is away.
    line: Mutex<Option<Arc<Descriptor>>>,
    asks: Asks,
    bell: Bell,
    /// The control thread's id once its descriptors are its own, -1 where they are shared, 0 before
    /// that is known.
    keeper: AtomicI32,
    /// Whether that is known, and copies of the program's descriptors that it would miss are
    /// closed.
    is_apart: AtomicBool,
    /// Frames that the control thread is to send.
    outbox: Mutex<Outbox>,
    /// Devices on which memory was freed while an ask waits for some.
    freed: AtomicU32,
    contexts: Contexts,
    /// Ranges of the host store that were given and not taken yet: where they are mapped, and their
    /// lengths.
    ranges: Mutex<Vec<(usize, u64, u64)>>,
    /// The last request for one, and whether it was refused.
    range_asked: AtomicU32,
    range_refused: AtomicBool,
    /// The mover's question about stored ranges, and the files that hold them. Not in place: a
    /// thread with little stack may start the session.
    question: Box<Mutex<stored::Question>>,
    files: Box<Mutex<stored::Files>>,
    /// Where the process's ranges lie. Each new connection is told.
    spots: Box<Mutex<BTreeSet<Spot>>>,
}

/// Why the daemon's tenant cannot be joined.
#[derive(Debug)]
pub(crate) struct Unreachable {
    folder: PathBuf,
    why: String,
    away: bool,
}

impl Unreachable {
    /// Whether no daemon answered, as opposed to one that refuses or has the process wait.
    pub(crate) fn is_away(&self) -> bool {
        self.away
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot join the tenant at {}: {}",
            self.folder.join(injection::SOCKET).display(),
            self.why
        )
    }
}

static SESSION: ForkLocal<Session> = ForkLocal::new();
/// The descriptor that a forked child closes.
static SOCKET: ParentsOnly = ParentsOnly::new();
static USAGE: ParentsOnly = ParentsOnly::new();
static BELL: [ParentsOnly; 2] = [const { ParentsOnly::new() }; 2];

/// Closes the descriptor that a forked child inherited. Async-signal-safe.
pub(crate) fn after_fork_in_child() {
    SOCKET.close();
    USAGE.close();
    BELL.iter().for_each(ParentsOnly::close);
}

/// Registers this process with the daemon whose socket lies in `folder`, waiting [`START_PATIENCE`]
/// for it, and starts the control thread. Waits for another thread's [`look`].
///
/// # Errors
/// [`Unreachable`], one line.
pub(crate) fn start(folder: &Path, callbacks: Callbacks) -> Result<&'static Session, Unreachable> {
    let unreachable_for = |(why, away): (String, bool)| Unreachable {
        folder: folder.to_owned(),
        why,
        away,
    };
    let unreachable = |why: String| unreachable_for((why, false));
    let _turn =
        joining::turn(START_PATIENCE).ok_or_else(|| unreachable(joining::BUSY.to_owned()))?;
    let reached = joining::reach(folder, (callbacks.capabilities)());
    let (connection, welcome) = reached.map_err(unreachable_for)?;
    let socket = Arc::clone(connection.socket());
    let session = Session::new(folder, callbacks, welcome, socket)
        .map_err(|error| unreachable(error.to_string()))?;
    SOCKET.is(connection.socket());
    USAGE.is(&session.usage);
    for (inherited, end) in BELL.iter().zip(session.bell.ends()) {
        inherited.is(end);
    }
    let session = SESSION.set(session);
    control_thread::start(session, connection)
        .map_err(|error| unreachable(format!("no thread to be had: {error}")))?;
    session.await_apart();
    Ok(session)
}

impl Session {
    fn new(
        folder: &Path,
        callbacks: Callbacks,
        welcome: Welcome,
        socket: Arc<Descriptor>,
    ) -> io::Result<Self> {
        let control = pages::control(&welcome.control)?;
        Ok(Self {
            folder: folder.to_owned(),
            callbacks,
            tenant: welcome.registered.tenant,
            slot: usize::from(welcome.registered.slot),
            device_uuids: welcome.registered.device_uuids,
            page: pages::usage(&welcome.usage)?,
            usage: welcome.usage,
            control: AtomicPtr::new(core::ptr::from_ref(control).cast_mut()),
            instance: AtomicU64::new(welcome.instance),
            connections: AtomicU64::new(1),
            line: Mutex::new(Some(socket)),
            asks: Asks::default(),
            bell: Bell::new()?,
            keeper: AtomicI32::new(0),
            is_apart: AtomicBool::new(false),
            outbox: Mutex::default(),
            freed: AtomicU32::new(0),
            contexts: Contexts::default(),
            ranges: Mutex::new(Vec::new()),
            range_asked: AtomicU32::new(0),
            range_refused: AtomicBool::new(false),
            question: Box::default(),
            files: Box::default(),
            spots: Box::default(),
        })
    }

    /// The control page in force.
    pub(crate) fn control(&self) -> &'static ControlPage {
        pages::in_force(&self.control)
    }

    /// The name in `/proc` by which the usage page is opened again, for a lock of one's own, and
    /// which file that is.
    ///
    /// # Errors
    /// If the program has closed the only descriptor.
    pub(crate) fn usage(&self) -> io::Result<(CString, (u64, u64))> {
        Ok((self.way_to(&self.usage)?, self.usage.identity()))
    }

    /// The name in `/proc` of a descriptor: the control thread's copy, which no other thread
    /// closes, where it has one.
    fn way_to(&self, descriptor: &Descriptor) -> io::Result<CString> {
        let number = descriptor.number();
        let path = match self.keeper.load(Ordering::Acquire) {
            keeper if keeper > 0 => format!("/proc/self/task/{keeper}/fd/{number}"),
            _ if descriptor.is_ours() => format!("/proc/self/fd/{number}"),
            _ => return Err(io::Error::from_raw_os_error(libc::EBADF)),
        };
        Ok(CString::new(path)?)
    }

    /// Waits, a second at most, until the control thread knows whether its descriptors are its own,
    /// and they are no more than that.
    fn await_apart(&self) {
        let end = Instant::now() + AT_ONCE;
        while !self.is_apart.load(Ordering::Acquire) && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Rings the control thread's bell, also where the program has closed this end of it.
    fn ring(&self) {
        let _uncancelled = Uncancelled::begin();
        if !self.bell.ring()
            && let Ok(path) = self.way_to(self.bell.rope())
        {
            Bell::ring_at(&path);
        }
    }

    /// Bytes the tenant may hold as credit on a device. A process that has raised credit reads it
    /// behind a fence.
    pub(crate) fn grant(&self, device_index: usize) -> u64 {
        let device = self.control().devices.get(device_index);
        let grant = device.map_or(0, |device| device.grant.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        grant
    }

    /// The bytes that the tenant's charges could reach, as the daemon last saw it.
    pub(crate) fn reach(&self, device_index: usize) -> Option<u64> {
        let device = self.control().devices.get(device_index)?;
        Some(device.reach.load(Ordering::Relaxed))
    }

    /// How long a call that began to wait at `began` may do so.
    pub(crate) fn bound(&self, waiting: Waiting, began: Instant) -> Bound {
        let header = &self.control().header;
        let longest = match waiting {
            Waiting::Not => None,
            Waiting::AsLimitsSay => Some(said(&header.wait_ms)),
            Waiting::Guaranteed => Some(said(&header.guarantee_ms)),
        };
        Bound::new(Instant::now(), began, longest)
    }

    /// How long an allocation above the tenant's request may wait in all.
    pub(crate) fn longest_wait(&self) -> Duration {
        said(&self.control().header.wait_ms)
    }

    /// Whether a daemon is there, as far as the control thread knows.
    pub(crate) fn is_connected(&self) -> bool {
        self.line().is_some()
    }

    /// Asks for a grant of `held` and `bytes` together. `true` once the control page has it.
    pub(crate) fn ask_for(
        &self,
        device_index: usize,
        (held, bytes): (u64, u64),
        bound: &mut Bound,
        call: &Deadline,
    ) -> bool {
        self.asks_question(Question::Grow(ask(device_index, held, bytes)), bound, call)
    }

    /// Says that the driver refused `bytes` that the grant covers. `true` if it is worth asking the
    /// driver again.
    pub(crate) fn driver_refused(
        &self,
        device_index: usize,
        (held, bytes): (u64, u64),
        bound: &mut Bound,
        call: &Deadline,
    ) -> bool {
        self.asks_question(
            Question::DriverRefused(ask(device_index, held, bytes)),
            bound,
            call,
        )
    }

    /// Memory was freed: the control thread tells the daemon if an ask waits for some. Never
    /// blocks.
    pub(crate) fn freed(&self, device_index: usize) {
        let waited_for = |device_index: usize| {
            let device = self.control().devices.get(device_index);
            device.is_some_and(|device| device.waiters.load(Ordering::Relaxed) != 0)
        };
        if waited_for(device_index) && self.freed.fetch_or(1 << device_index, Ordering::AcqRel) == 0
        {
            self.ring();
        }
    }

    fn asks_question(&self, question: Question, bound: &mut Bound, call: &Deadline) -> bool {
        self.asks_noting(question, bound, call, |_| ())
    }

    /// Puts a question and waits for its answer. Its number is `noted` before it is sent.
    fn asks_noting(
        &self,
        question: Question,
        bound: &mut Bound,
        call: &Deadline,
        noted: impl FnOnce(u32),
    ) -> bool {
        let patience = bound.patience_ms(Instant::now());
        let Some(patience) = patience.filter(|_| !call.is_refused()) else {
            return false;
        };
        bound.asked = true;
        let id = {
            let line = self.line();
            let (id, request) = self.asks.enter(question, Some(patience), bound.until);
            noted(id);
            self.send(line.as_ref(), id, &request);
            id
        };
        // A further context needs no daemon; one that is restarted meanwhile is told of the ask.
        let is_there = || self.is_connected() || self.beats(clock::now());
        let is_there: Option<&dyn Fn() -> bool> = match question {
            Question::More(_) => Some(&is_there),
            _ => None,
        };
        let more = || self.extended();
        let waited = self.asks.wait(id, bound.end, more, is_there);
        if waited == Waited::Gone {
            tracing::info!(?question, "the daemon is gone: the driver answers");
            return true;
        }
        if patience > 0 && !matches!(waited, Waited::Reply(Reply::Granted { .. })) {
            call.refuse();
        }
        match waited {
            Waited::Reply(Reply::Granted { .. }) => {
                bound.answered(call);
                true
            }
            Waited::Reply(reply) => {
                tracing::info!(?question, ?reply, "the daemon refused");
                false
            }
            Waited::Late | Waited::Gone => {
                tracing::warn!(?question, "no answer from the daemon in time");
                self.withdraws(question, id);
                false
            }
        }
    }

    /// The call waits for this question no longer. The daemon gets back memory that it has set
    /// aside in answer to it.
    fn withdraws(&self, question: Question, ask: u32) {
        if let Question::More(device_index) = question {
            self.done(device_index, ask);
        } else {
            self.sends(self.line().as_ref(), &Request::Cancel { ask });
        }
    }

    fn line(&self) -> MutexGuard<'_, Option<Arc<Descriptor>>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a frame if a daemon is connected. A socket that does not take it whole is shut down:
    /// the control thread makes another. A thread without the socket leaves the frame to the
    /// control thread: the program has closed the socket, or it was made in that thread's own
    /// table. Whether it was sent or left.
    fn send(&self, line: Option<&Arc<Descriptor>>, id: u32, request: &Request) -> bool {
        let Some(socket) = line else { return false };
        let _uncancelled = Uncancelled::begin();
        let mut frame = Vec::new();
        if encode(id, request, &mut frame).is_err() {
            return false;
        }
        if self.keeper.load(Ordering::Acquire) > 0 && !socket.is_ours() {
            self.post(&frame);
        } else if socket::send(socket, &frame, None).is_err() {
            socket::shut(socket);
            return false;
        }
        true
    }

    /// Has the control thread send a frame. If too many wait it makes another connection, where all
    /// that holds is told anew, and open asks are repeated.
    fn post(&self, frame: &[u8]) {
        self.outbox().put(frame);
        self.ring();
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A time that the control page gives, in milliseconds.
fn said(millis: &AtomicU64) -> Duration {
    Duration::from_millis(millis.load(Ordering::Relaxed))
}
