//! Listens to the daemon while a program runs, and passes on its decision to end the tenant, with
//! the reason.
//!
//! After a daemon's death another may take over the tenant. This process then reconnects, so that
//! the new daemon keeps the tenant and reports why it ends it.

use crate::daemon::Talk;
use crate::failure::Failure;
use crate::output;
use gpushare_protocol::wire::{Control, ControlReply, encode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use parking_lot::Mutex;

/// Longest to wait for the daemon's last messages once the program has ended. It sends them within
/// microseconds; this is for a stopped one.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The interval of looking for the next daemon. It keeps a restored tenant for 10 s.
const PAUSE: Duration = Duration::from_millis(250);

/// Hears the daemon out until the program has ended.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The connection in use, to hang up, and the protocol's minor at its other end.
    socket: Arc<Mutex<(UnixStream, u16)>>,
    /// Dropped at the program's end.
    runs: Sender<()>,
    /// Closed when no more messages will come.
    silence: Receiver<()>,
}

/// The thread's part.
#[derive(Debug)]
struct Hearing {
    talk: Talk,
    socket: Arc<Mutex<(UnixStream, u16)>>,
    tenant: String,
    program: Pid,
    /// Ends with the program.
    runs: Receiver<()>,
}

impl Listener {
    /// Listens from now on.
    pub(crate) fn start(talk: Talk, tenant: &str, program: Pid) -> Result<Self, Failure> {
        let socket = (talk.socket().map_err(Failure::ours)?, talk.minor());
        let socket = Arc::new(Mutex::new(socket));
        let (runs, ends) = channel();
        let (speaks, silence) = channel::<()>();
        let mut hearing = Hearing {
            talk,
            socket: Arc::clone(&socket),
            tenant: tenant.to_owned(),
            program,
            runs: ends,
        };
        std::thread::spawn(move || {
            hearing.hear_out();
            while hearing.comes_back() {
                hearing.hear_out();
            }
            drop(speaks);
        });
        Ok(Self {
            socket,
            runs,
            silence,
        })
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
        let (socket, minor) = &mut *self.socket.lock();
        let mut frame = Vec::new();
        if let (Some(status), 8..) = (status, *minor)
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
    fn hear_out(&mut self) {
        while let Ok((_, reply)) = self.talk.next() {
            if let ControlReply::EndsSoon { why } = &reply {
                output::note(&format!("the program {why}"));
            }
            if let ControlReply::End { signal, why } = reply {
                output::note(&format!("the program is ended: {why}"));
                // Once it has ended, its pid may be another's.
                if let (true, Ok(signal)) = (self.program_runs(), Signal::try_from(signal)) {
                    let _ = kill(self.program, signal);
                }
            }
        }
    }

    fn program_runs(&self) -> bool {
        self.runs.try_recv() == Err(TryRecvError::Empty)
    }

    /// Waits for the daemon that follows. `false` once the program has ended, or if the daemon does
    /// not know its tenant.
    fn comes_back(&mut self) -> bool {
        while let Err(RecvTimeoutError::Timeout) = self.runs.recv_timeout(PAUSE) {
            match self.attach() {
                Ok(ControlReply::Created { .. } | ControlReply::Queued { .. }) => {
                    return self.program_runs();
                }
                // It has no such tenant, or does not know the request: no messages will come.
                Ok(_) => return false,
                // It is not there yet, or has gone again.
                Err(_) => {}
            }
        }
        false
    }

    fn attach(&mut self) -> io::Result<ControlReply> {
        let mut talk = self.talk.again()?;
        let attach = Control::Attach {
            tenant: self.tenant.clone(),
        };
        let id = talk
            .ask(&attach)
            .map_err(|lost| io::Error::other(lost.message))?;
        *self.socket.lock() = (talk.socket()?, talk.minor());
        loop {
            let (of, reply) = talk.next()?;
            if of == id {
                self.talk = talk;
                return Ok(reply);
            }
        }
    }
}
