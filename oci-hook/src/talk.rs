//! The daemon's control socket: one request, with the container's first process as a descriptor.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use gpushare_inject::Request;
use gpushare_protocol::wire::{
    Control, ControlReply, Decoder, ErrorCode, Hello, Injection, decode, encode,
};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sendmsg, socket_with,
};

use crate::telling::Log;
use crate::{Failure, mandatory};

/// How long the daemon is waited for: it starts, recovers or is being replaced. Less than the time
/// that a runtime gives the hook.
const PATIENCE: Duration = Duration::from_secs(4);
/// Between attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// The daemon, as far as it has been reached.
#[derive(Debug)]
pub struct Daemon<'a> {
    path: &'a Path,
    end: Instant,
    socket: io::Result<UnixStream>,
}

/// A daemon that was asked to register a container.
#[derive(Debug)]
pub struct Asked<'a> {
    path: &'a Path,
    end: Instant,
    request: Control,
    init: Option<BorrowedFd<'a>>,
    socket: io::Result<UnixStream>,
}

enum Answer {
    Folder(String),
    Unlimited { takes_maxima: bool },
    Refused(String),
    Later(String),
}

impl<'a> Daemon<'a> {
    /// Connects. Where that fails it is tried again once the answer is wanted.
    #[must_use]
    pub fn reach(path: &'a Path) -> Self {
        let end = Instant::now() + PATIENCE;
        Self {
            path,
            end,
            socket: connect(path, end),
        }
    }

    /// Asks to register a container, and does not wait. This may be in any mount namespace.
    #[must_use]
    pub fn ask(self, injection: Injection, init: BorrowedFd<'a>) -> Asked<'a> {
        self.say(Control::Inject(injection), Some(init))
    }

    fn say(self, request: Control, init: Option<BorrowedFd<'a>>) -> Asked<'a> {
        let socket = self.socket.and_then(|socket| ask(socket, &request, init));
        Asked {
            path: self.path,
            end: self.end,
            request,
            init,
            socket,
        }
    }
}

/// Why there is no answer that helps.
enum Unanswered {
    /// The daemon refuses.
    Refused(Failure),
    /// No daemon answers.
    Silent(Failure),
}

impl From<Unanswered> for Failure {
    fn from(why: Unanswered) -> Self {
        let (Unanswered::Refused(why) | Unanswered::Silent(why)) = why;
        why
    }
}

/// Whether a container that has a GPU and asks for nothing is to be registered with the maxima as
/// its limits; else it may run as it is. Where no daemon answers, so may one that its rules allow,
/// as it told them last: a node's network, or the pod that brings the driver without which no
/// daemon can serve.
///
/// The container's first process goes with the question, because the daemon leaves the processes of
/// one that a rule allows alone. Where it does not hear of that process the container starts all
/// the same, and the machine's log says so.
///
/// # Errors
/// The daemon's refusal, or that no daemon answers.
pub fn takes_maxima(
    daemon: &Path,
    id: &str,
    request: &Request,
    init: BorrowedFd<'_>,
) -> Result<bool, Failure> {
    let question = Control::Unlimited {
        id: id.to_owned(),
        devices: request.devices.clone(),
        labels: request.labels.clone(),
    };
    match Daemon::reach(daemon).say(question, Some(init)).answered() {
        Ok(Answer::Unlimited { takes_maxima }) => Ok(takes_maxima),
        Err(Unanswered::Silent(_)) if mandatory::allows(daemon, &request.labels) => {
            warn(id);
            Ok(false)
        }
        Err(why) => Err(why.into()),
        Ok(_) => Err(senseless()),
    }
}

impl Asked<'_> {
    /// The folder of the container's socket. This must be in the daemon's mount namespace: a daemon
    /// that was not there, or that recovers, is asked again.
    ///
    /// # Errors
    /// The daemon's refusal, or that no daemon answers.
    pub fn answer(self) -> Result<String, Failure> {
        match self.answered()? {
            Answer::Folder(folder) => Ok(folder),
            _ => Err(senseless()),
        }
    }

    fn answered(mut self) -> Result<Answer, Unanswered> {
        let mut said = None;
        loop {
            let answer = self.socket.and_then(|mut socket| heard(&mut socket));
            let error = match answer {
                Ok(Answer::Refused(why)) => return Err(Unanswered::Refused(Failure(why))),
                Ok(Answer::Later(why)) => {
                    said = Some(why);
                    None
                }
                Ok(answer) => return Ok(answer),
                Err(error) => Some(error),
            };
            if Instant::now() + PAUSE >= self.end {
                // The last try may have no time for an answer: what the daemon said says more.
                let silent = || {
                    let error = error.map_or_else(String::new, |error| format!(" ({error})"));
                    let path = self.path.display();
                    format!("the daemon at {path} does not answer{error}; is gpushared running?")
                };
                return Err(match said {
                    Some(why) => Unanswered::Refused(Failure(why)),
                    None => Unanswered::Silent(Failure(silent())),
                });
            }
            std::thread::sleep(PAUSE);
            let again = connect(self.path, self.end);
            self.socket = again.and_then(|socket| ask(socket, &self.request, self.init));
        }
    }
}

/// Connects, and does not wait for room: with a full queue of a daemon that hangs, connecting would
/// block until the runtime kills the hook, and what the daemon's rules allow would be refused, too.
fn connect(path: &Path, end: Instant) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(false)?;
    let left = end.saturating_duration_since(Instant::now());
    let left = left.max(PAUSE);
    socket.set_read_timeout(Some(left))?;
    socket.set_write_timeout(Some(left))?;
    Ok(socket)
}

/// Greets and asks at once: the daemon's greeting changes nothing about the request.
fn ask(
    mut socket: UnixStream,
    request: &Control,
    init: Option<BorrowedFd<'_>>,
) -> io::Result<UnixStream> {
    let mut frames = Vec::new();
    encode(0, &Hello::of_this_build(0), &mut frames).map_err(io::Error::other)?;
    encode(1, request, &mut frames)
        .map_err(|error| io::Error::other(format!("the request is too long: {error}")))?;
    match init {
        Some(init) => send(&mut socket, &frames, init)?,
        None => socket.write_all(&frames)?,
    }
    Ok(socket)
}

fn heard(socket: &mut UnixStream) -> io::Result<Answer> {
    let mut decoder = Decoder::default();
    let hello: Hello = decode(0, &frame(socket, &mut decoder, 0)?).map_err(io::Error::other)?;
    if let Err(why) = hello.check("this hook") {
        return Ok(Answer::Refused(why));
    }
    let reply: ControlReply =
        decode(1, &frame(socket, &mut decoder, 1)?).map_err(io::Error::other)?;
    Ok(match reply {
        ControlReply::Created { folder, .. } => Answer::Folder(folder),
        ControlReply::Unlimited { takes_maxima } => Answer::Unlimited { takes_maxima },
        ControlReply::Error(error) if error.can_retry && error.code == ErrorCode::Full => {
            Answer::Later(error.message)
        }
        ControlReply::Error(error) => Answer::Refused(error.message),
        _ => Answer::Refused(senseless().0),
    })
}

/// Says in the machine's log that the daemon does not know a container that starts without limits.
/// Not on the standard error: some runtimes take that for the container's own.
fn warn(id: &str) {
    Log::here().warns(&format!(
        "container {id} starts without limits, and no daemon answers: unmanaged = \"end\" may end its processes"
    ));
}

fn senseless() -> Failure {
    Failure("the daemon's answer makes no sense to this version".to_owned())
}

/// Sends frames; the descriptor goes with their first byte.
fn send(socket: &mut UnixStream, frames: &[u8], init: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut passed = SendAncillaryBuffer::new(&mut space);
    let descriptors = [init];
    if !passed.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    let sent = sendmsg(
        socket.as_fd(),
        &[IoSlice::new(frames)],
        &mut passed,
        SendFlags::NOSIGNAL,
    )?;
    socket.write_all(frames.get(sent..).unwrap_or(&[]))
}

/// The body of the answer to `id`.
fn frame(socket: &mut UnixStream, decoder: &mut Decoder, id: u32) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 4096];
    loop {
        while let Some((of, body)) = decoder.next_frame().map_err(io::Error::other)? {
            if of == id {
                return Ok(body);
            }
        }
        match socket.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => decoder.push(&buffer[..read]),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use std::io::IoSliceMut;
    use std::os::unix::net::UnixListener;

    use gpushare_protocol::wire::{MAJOR, WireError};
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

    use super::*;

    /// What is told where a daemon answers this to the first try and is silent at all others.
    fn told(answer: Option<WireError>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let daemon = std::thread::spawn(move || {
            let mut socket = listener.accept().unwrap().0;
            if let Some(error) = answer {
                // A socket that is closed before the question has come refuses it.
                assert!(socket.read(&mut [0; 4096]).unwrap() > 0);
                let mut frames = Vec::new();
                encode(0, &Hello::of_this_build(0), &mut frames).unwrap();
                encode(1, &ControlReply::Error(error), &mut frames).unwrap();
                socket.write_all(&frames).unwrap();
            }
            listener
        });
        let asked = Daemon {
            path: &path,
            end: Instant::now() + 4 * PAUSE,
            socket: connect(&path, Instant::now() + PATIENCE),
        };
        let question = Control::Unlimited {
            id: "a".to_owned(),
            devices: Vec::new(),
            labels: Vec::new(),
        };
        let failed = asked.say(question, None).answered().err().unwrap();
        drop(daemon.join().unwrap());
        Failure::from(failed).0
    }

    /// A daemon of this major that answers so, and what a hook makes of it; with the descriptors
    /// that came with the question.
    fn judged(major: u16, reply: &ControlReply) -> (Result<bool, String>, usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let init = std::fs::File::open("/dev/null").unwrap();
        let request = Request::default();
        std::thread::scope(|scope| {
            let hook = scope.spawn(|| takes_maxima(&path, "a", &request, init.as_fd()));
            let mut socket = listener.accept().unwrap().0;
            let mut bytes = [0; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut passed = RecvAncillaryBuffer::new(&mut space);
            let into = &mut [IoSliceMut::new(&mut bytes)];
            recvmsg(&socket, into, &mut passed, RecvFlags::empty()).unwrap();
            let descriptors = |message| match message {
                RecvAncillaryMessage::ScmRights(all) => all.count(),
                _ => 0,
            };
            let descriptors = passed.drain().map(descriptors).sum();
            let hello = Hello {
                major,
                ..Hello::of_this_build(0)
            };
            let mut frames = Vec::new();
            encode(0, &hello, &mut frames).unwrap();
            encode(1, reply, &mut frames).unwrap();
            socket.write_all(&frames).unwrap();
            let told = hook.join().unwrap();
            (told.map_err(|failure| failure.0), descriptors)
        })
    }

    #[test]
    fn the_first_process_goes_with_the_question() {
        let forbidden = WireError::new(ErrorCode::Forbidden, "no");
        let answer = |takes_maxima| ControlReply::Unlimited { takes_maxima };
        for (reply, told) in [
            (answer(false), Ok(false)),
            (answer(true), Ok(true)),
            (ControlReply::Error(forbidden), Err("no".to_owned())),
        ] {
            assert_eq!(judged(MAJOR, &reply), (told, 1), "{reply:?}");
        }
    }

    #[test]
    fn a_daemon_of_another_major_is_no_answer_and_the_hook_says_what_to_do() {
        let answer = ControlReply::Unlimited {
            takes_maxima: false,
        };
        for (major, what) in [(1, "update the daemon"), (MAJOR + 1, "update this hook")] {
            let why = judged(major, &answer).0.unwrap_err();
            assert!(why.contains(what) && why.contains("protocol"), "{why}");
        }
    }

    #[test]
    fn a_daemon_whose_queue_is_full_is_not_waited_for_to_connect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let flags = SocketFlags::CLOEXEC;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let end = Instant::now() + PATIENCE;
        let mut all = vec![connect(&path, end).expect("the queue has room")];
        let error = loop {
            match connect(&path, end) {
                Ok(socket) => all.push(socket),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_the_daemon_said_last_is_told_where_its_last_answer_is_late() {
        let full = WireError::retry(ErrorCode::Full, "no room");
        assert_eq!(told(Some(full)), "no room");
        let silent = told(None);
        assert!(silent.contains("does not answer"), "{silent}");
    }
}
