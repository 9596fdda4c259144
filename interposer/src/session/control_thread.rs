//! The control thread: reads replies, reports freed memory, and connects to the next daemon when
//! this one has gone.
//!
//! It is started at registration, takes no signals, calls no CUDA function and waits for no
//! allocation. A forked child has none.

use core::ptr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gpushare_protocol::wire::{Reply, Request, decode};

use super::pauses::Pauses;
use super::register::{self, Failed};
use super::socket::{self, Connection};
use super::{PAUSES, SOCKET, Session, apart, pages};
use crate::guest::background;
use crate::guest::descriptor::Descriptor;
use crate::guest::log;

/// How long a new daemon may take to greet. All processes of the node come at once, and an attempt
/// that is given up is one more to answer.
const GREETING: Duration = Duration::from_secs(10);
/// How long it may take to register this process. The tenant lock is held meanwhile.
const ANSWER: Duration = Duration::from_secs(1);

/// Starts the thread.
///
/// # Errors
/// If the system has none to give.
pub(super) fn start(session: &'static Session, connection: Connection) -> io::Result<()> {
    background::start(c"gpushare", background::SHALLOW, move || {
        run(session, connection);
    })
}

/// How long the thread waits at most (ms) where the program can close its descriptors: then it is
/// seen that it has.
const LOOK: core::ffi::c_int = 1000;

/// How often (ms) it is looked whether the program has closed a file that a copy is left of.
const FILES_LOOK: Duration = Duration::from_secs(1);

/// Makes this thread's descriptors its own, where the system lets it. Another thread, which shares
/// them, closes the copies of the program's: a file system may have it wait, and the daemon is to
/// be heard meanwhile.
fn go_apart(session: &'static Session, connection: &Connection) {
    if !apart::part() {
        tracing::info!("the control thread shares the program's descriptors");
        session.keeper.store(-1, Ordering::Release);
        session.is_apart.store(true, Ordering::Release);
        return;
    }
    session
        .keeper
        .store(apart::this_thread(), Ordering::Release);
    let [ear, rope] = session.bell.ends();
    let kept = [&**connection.socket(), &session.usage, ear, rope].map(Descriptor::number);
    let mut kept = kept.to_vec();
    kept.extend(log::descriptor());
    let copies = apart::Copies::but(&kept);
    let closes = move || close_copies(session, copies);
    if let Err(error) = background::start(c"gpushare-files", background::SHALLOW, closes) {
        // They stay. It keeps nothing of ours from working.
        tracing::warn!(%error, "no thread closes the copies of the program's descriptors");
        session.is_apart.store(true, Ordering::Release);
    }
}

/// Closes the copies of the program's descriptors, those that may be closed at once and then each
/// of the others when the program has closed its own.
fn close_copies(session: &Session, copies: apart::Copies) {
    let mut left = copies.close();
    session.is_apart.store(true, Ordering::Release);
    while !left.is_none() {
        std::thread::sleep(FILES_LOOK);
        left.look();
    }
}

fn run(session: &'static Session, connection: Connection) {
    go_apart(session, &connection);
    let mut connection = Some(connection);
    loop {
        // A defect here must not take the program with it, nor leave it without a connection.
        let round = catch_unwind(AssertUnwindSafe(|| {
            let mut open = connection.take().unwrap_or_else(|| session.find_daemon());
            let why = session.serve(&mut open);
            tracing::warn!(%why, "the daemon has gone; the last grant stays in force");
            session.hang_up();
        }));
        if round.is_err() {
            session.hang_up();
            std::thread::sleep(PAUSES.1);
        }
    }
}

/// The descriptor that a reply brings.
///
/// # Errors
/// If none came with it.
fn passed(connection: &mut Connection) -> io::Result<Descriptor> {
    let none = || io::Error::new(io::ErrorKind::InvalidData, "no file came with a reply");
    connection.take_descriptor().ok_or_else(none)
}

impl Session {
    /// Serves a connection until it ends.
    fn serve(&self, connection: &mut Connection) -> io::Error {
        loop {
            let step = self.step(connection);
            if let Err(error) = step {
                return error;
            }
        }
    }

    fn step(&self, connection: &mut Connection) -> io::Result<()> {
        while let Some((id, body)) = connection.next_frame()? {
            // Replies unknown to this version answer no ask of this process.
            match decode::<Reply>(id, &body) {
                Ok(Reply::HostRange { offset, bytes }) => {
                    self.has_range(id, passed(connection)?, (offset, bytes));
                }
                Ok(Reply::HostStored(stored)) => {
                    self.was_stored(id, stored, passed(connection)?);
                }
                Ok(reply) => {
                    if matches!(reply, Reply::Refused(_) | Reply::Error(_)) {
                        self.was_refused(id);
                        self.question_refused(id, &reply);
                    }
                    self.asks.answer(id, reply);
                }
                Err(_) => {}
            }
        }
        let longest = if self.keeper.load(Ordering::Relaxed) > 0 {
            -1
        } else {
            LOOK
        };
        let ready = connection.wait_or_bell(&self.bell, longest)?;
        if ready.bell {
            self.bell.hush();
            self.tell_freed();
            self.close_unused_files();
            self.send_posted()?;
        }
        if ready.socket || !connection.socket().is_ours() {
            connection.receive()?;
        }
        Ok(())
    }

    /// Sends the frames that threads without the socket have left here. The socket's lock keeps
    /// them in order with other threads' frames.
    ///
    /// # Errors
    /// If one is missing, too: only another connection tells what it said.
    fn send_posted(&self) -> io::Result<()> {
        let line = self.line();
        let Some(frames) = self.outbox().take() else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        match line.as_ref() {
            Some(socket) if !frames.is_empty() => socket::send(socket, &frames, None),
            _ => Ok(()),
        }
    }

    fn tell_freed(&self) {
        let device_indices = self.freed.swap(0, Ordering::AcqRel);
        let freed = (0..u32::BITS).filter(|device_index| device_indices & (1 << device_index) != 0);
        for device_index in freed.filter_map(|device_index| u8::try_from(device_index).ok()) {
            let line = self.line();
            self.send(
                line.as_ref(),
                self.asks.number(),
                &Request::Freed { device_index },
            );
        }
    }

    /// No thread sends on the socket any more.
    fn hang_up(&self) {
        if let Some(socket) = self.line().take() {
            socket::shut(&socket);
        }
        self.forget_question();
        // No daemon gives turns now.
        (self.callbacks.turns_change)();
    }

    /// Registers with the next daemon, however long it takes to come.
    fn find_daemon(&self) -> Connection {
        let mut pauses = Pauses::new();
        loop {
            match self.reconnect() {
                Ok(connection) => {
                    tracing::info!("registered again");
                    return connection;
                }
                Err(failed) => std::thread::sleep(pauses.after(failed)),
            }
        }
    }

    /// One attempt. From presenting the page until the new control page is in force, no process's
    /// credit grows, so that the daemon's accounts begin with the truth.
    fn reconnect(&self) -> Result<Connection, Failed> {
        let mut connection = Connection::open(&self.folder)?;
        SOCKET.is(connection.socket());
        let capabilities = (self.callbacks.capabilities)();
        let end = Instant::now() + GREETING;
        let hello = register::greet(&mut connection, capabilities, end)?;
        let mut adopt = || {
            let held = Some((&self.usage, self.slot));
            // The lock may have been long in coming.
            let end = Instant::now() + ANSWER;
            let welcome = register::register(&mut connection, &hello, held, end)?;
            if welcome.usage.identity() != self.usage.identity() {
                return Err(Failed::Refused("the daemon uses another page".to_owned()));
            }
            let control = pages::control(&welcome.control)?;
            self.control
                .store(ptr::from_ref(control).cast_mut(), Ordering::Release);
            self.instance.store(hello.instance, Ordering::Relaxed);
            Ok(())
        };
        let mut adopted = None;
        (self.callbacks.locked)(&mut || adopted = Some(adopt()));
        match adopted {
            Some(adopted) => adopted?,
            None => return Err(Failed::Away(io::ErrorKind::WouldBlock.into())),
        }
        self.resume(connection.socket(), hello.instance)?;
        Ok(connection)
    }

    /// Makes the new socket available: reports that the new page is in force, presents the files
    /// of the process's memory, and repeats the unanswered asks. The threads that report to the
    /// daemon see the number of the connection, and repeat what holds.
    ///
    /// # Errors
    /// If a file was not presented: the connection is of no use.
    fn resume(&self, socket: &Arc<Descriptor>, instance: u64) -> io::Result<()> {
        // No daemon is told of them.
        self.forgets_left(None);
        let mut line = self.line();
        // Frames for the previous daemon are repeated, or void. What they gave up is told anew.
        let _ = self.outbox().take();
        *line = Some(Arc::clone(socket));
        self.send(
            line.as_ref(),
            self.asks.number(),
            &Request::Adopted { instance },
        );
        if let Err(error) = self.present_files(socket) {
            *line = None;
            return Err(error);
        }
        let line = line.as_ref();
        self.tell_spots(line);
        let again = self.asks.again();
        self.repeat_contexts(line, &again);
        for (id, request) in again {
            self.send(line, id, &request);
        }
        self.connections.fetch_add(1, Ordering::Release);
        // The gate thread sleeps on the page before.
        (self.callbacks.turns_change)();
        Ok(())
    }
}
