//! Listens to the daemon while a program runs, and passes on its decision to end the tenant, with
//! the reason.
//!
//! After a daemon's death another may take over the tenant. This process then reconnects, so that
//! the new daemon keeps the tenant and reports why it ends it. A private daemon that dies is
//! started again, and a tenant that the daemon does not know is registered again ([ADR
//! 259](../../docs/adr/0259-a-run-keeps-its-tenant-with-the-daemons-that-follow.md)).

use crate::daemon::{Restarts, Talk, is_absent};
use crate::failure::Failure;
use crate::output;
use crate::plan::Plan;
use crate::registered::Registered;
use crate::threads;
use gpushare_client::TalkError;
use gpushare_protocol::wire::{Control, ControlReply, ErrorCode, WireError, encode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest to wait for the daemon's last messages once the program has ended. It sends them within
/// microseconds; this is for a stopped one.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The interval of looking for the next daemon. It keeps a restored tenant for 10 s.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest interval of asking a daemon that refuses the tenant. Its operator may mend the
/// reason within minutes, or never.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Hears the daemon out until the program has ended.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The connection in use, to hang up.
    socket: Arc<Mutex<UnixStream>>,
    /// Is sent the program, once it runs, and dropped at its end.
    runs: Sender<Pid>,
    /// Closed when no more messages will come.
    silence: Receiver<()>,
}

/// The thread's part.
#[derive(Debug)]
struct Hearing {
    talk: Talk,
    socket: Arc<Mutex<UnixStream>>,
    /// Whether the daemon at the other end of `talk` was there when it was last asked.
    is_there: bool,
    tenant: String,
    /// The request that registered the tenant.
    request: Control,
    /// Starts the daemon again, where that is ours to do.
    restarts: Restarts,
    /// Ends with the program.
    runs: Receiver<Pid>,
}

/// A message of the daemon to the keeper of a tenant.
enum Answer {
    /// It keeps the tenant for us.
    Kept,
    /// It does not.
    Refused(WireError),
}

impl Listener {
    /// Makes the thread, which listens once there is a program to [`follow`](Self::follow).
    pub(crate) fn start(registered: Registered, plan: &Plan) -> Result<Self, Failure> {
        let Registered { talk, request } = registered;
        let socket = talk.socket().map_err(Failure::ours)?;
        let socket = Arc::new(Mutex::new(socket));
        let (runs, ends) = channel::<Pid>();
        let (speaks, silence) = channel::<()>();
        let mut hearing = Hearing {
            restarts: Restarts::of(plan, talk.folder()),
            talk,
            socket: Arc::clone(&socket),
            is_there: false,
            tenant: plan.tenant.name.to_string(),
            request,
            runs: ends,
        };
        let listens = move || {
            // Without a program it was not started.
            if let Ok(program) = hearing.runs.recv() {
                hearing.hear_out(program);
                while hearing.comes_back() {
                    hearing.hear_out(program);
                }
            }
            drop(speaks);
        };
        threads::begin(listens)?;
        Ok(Self {
            socket,
            runs,
            silence,
        })
    }

    /// The program runs.
    pub(crate) fn follow(&self, program: Pid) {
        let _ = self.runs.send(program);
    }

    /// The program has ended with this status, which the daemon is told. It ends processes by
    /// itself and tells us then, so its word may come after their end: we hang up, and hear it out.
    pub(crate) fn finish(self, status: Option<u8>) {
        self.say_last(status);
        drop(self.runs);
        let _ = self.silence.recv_timeout(LAST_WORDS);
    }
}

impl Listener {
    fn say_last(&self, status: Option<u8>) {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let mut frame = Vec::new();
        if let Some(status) = status
            && encode(0, &Control::Ended { status }, &mut frame).is_ok()
        {
            let _ = socket.write_all(&frame);
        }
        // It may have hung up first.
        let _ = socket.shutdown(Shutdown::Write);
    }
}

impl Hearing {
    /// Passes on this daemon's messages until it hangs up.
    fn hear_out(&mut self, program: Pid) {
        while let Ok((_, reply)) = self.talk.next() {
            if let ControlReply::EndsSoon { why } = &reply {
                output::note(&format!("the program {why}"));
            }
            if let ControlReply::End { signal, why } = reply {
                output::note(&format!("the program is ended: {why}"));
                // Once it has ended, its pid may be another's.
                if let (true, Ok(signal)) = (self.program_runs(), Signal::try_from(signal)) {
                    let _ = kill(program, signal);
                }
            }
        }
    }

    fn program_runs(&self) -> bool {
        self.runs.try_recv() == Err(TryRecvError::Empty)
    }

    /// Waits until a daemon keeps the tenant. `false` once the program has ended.
    fn comes_back(&mut self) -> bool {
        self.is_there = false;
        let (mut pause, mut is_told) = (PAUSE, false);
        while let Err(RecvTimeoutError::Timeout) = self.runs.recv_timeout(pause) {
            let answer = self.claims();
            self.is_there = answer.is_ok();
            pause = match answer {
                Ok(Answer::Kept) => {
                    self.restarts.succeeded();
                    return self.program_runs();
                }
                Ok(Answer::Refused(error)) => {
                    self.restarts.succeeded();
                    if !is_told {
                        is_told = true;
                        output::note(&self.refused(&error));
                    }
                    (pause * 2).min(LONGEST_PAUSE)
                }
                // It is not there yet, or has gone again.
                Err(error) => {
                    if let Some(told) = self.restarts.failed(is_absent(&error)) {
                        output::note(&told);
                    }
                    PAUSE
                }
            };
        }
        false
    }

    fn refused(&self, error: &WireError) -> String {
        format!(
            "the daemon at {} does not keep tenant {}: {error}; until it does, programs that start in the tenant get no CUDA",
            self.talk.folder().display(),
            self.tenant
        )
    }

    /// Has the daemon keep the tenant for us, the one that is there if one is.
    fn claims(&mut self) -> io::Result<Answer> {
        if !self.is_there {
            let talk = self.talk.again()?;
            *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = talk.socket()?;
            self.talk = talk;
        }
        let attach = Control::Attach {
            tenant: self.tenant.clone(),
        };
        let unknown = match self.asks(&attach)? {
            Err(error) if error.code == ErrorCode::NotFound => error,
            Err(error) => return Ok(Answer::Refused(error)),
            Ok(_) => return Ok(Answer::Kept),
        };
        // It has forgotten the tenant, of which no process lived, or could not restore it.
        let text = match self.asks(&self.request.clone())? {
            Err(error) => return Ok(Answer::Refused(error)),
            Ok(ControlReply::Queued { why }) => format!(", and {why}"),
            Ok(_) => String::new(),
        };
        output::note(&format!(
            "{unknown}; {} is registered again{text}",
            self.tenant
        ));
        Ok(Answer::Kept)
    }

    /// The daemon's answer to a request that makes us a tenant's keeper.
    fn asks(&mut self, request: &Control) -> io::Result<Result<ControlReply, WireError>> {
        let lost = |lost: TalkError| io::Error::other(lost.message);
        let id = self.talk.ask(request).map_err(lost)?;
        loop {
            match self.talk.next()? {
                (of, _) if of != id => {}
                (_, ControlReply::Error(error)) => return Ok(Err(error)),
                (_, reply @ (ControlReply::Created { .. } | ControlReply::Queued { .. })) => {
                    return Ok(Ok(reply));
                }
                (_, reply) => {
                    let text = format!("an answer that is not known here: {reply:?}");
                    return Ok(Err(WireError::new(ErrorCode::UnknownRequest, text)));
                }
            }
        }
    }
}
