//! One connection to a daemon's control socket.

use crate::TalkError;
use gpushare_protocol::sockets;
use gpushare_protocol::wire::{Control, ControlReply, Decoder, Hello, decode, encode};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt,
    sendmsg, socket, sockopt,
};
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The control socket in a daemon's folder.
pub const CONTROL: &str = "control.sock";
/// Longest a daemon may take for its hello. It answers within microseconds; this is for a stopped
/// one.
const GREETING: Duration = Duration::from_secs(5);

/// A greeted connection.
#[derive(Debug)]
pub struct Talk {
    socket: UnixStream,
    folder: PathBuf,
    patience: Option<Duration>,
    /// When all that is asked has to have come, and how long it had for that.
    end: Option<(Instant, Duration)>,
    decoder: Decoder,
    /// Replies that came before they were asked for.
    early: VecDeque<(u32, ControlReply)>,
    last: u32,
    /// The daemon's minor version of the protocol.
    minor: u16,
    /// The daemon's number, another one at every start.
    instance: u64,
}

impl Talk {
    /// Connects to the daemon whose control socket lies in `folder`, and exchanges hellos.
    ///
    /// # Errors
    /// There is no daemon, or one of another major version of the protocol, or it takes no
    /// connection within five seconds, or does not greet within as many.
    pub fn connect(folder: &Path) -> Result<Self, Error> {
        Self::connect_within(folder, None)
    }

    /// As [`Talk::connect`]; what takes longer than `patience` later is an error, too.
    ///
    /// # Errors
    /// As [`Talk::connect`].
    pub fn connect_within(folder: &Path, patience: Option<Duration>) -> Result<Self, Error> {
        Self::connect_by(folder, patience, None)
    }

    /// As [`Talk::connect_within`]; what is not there at the `end` is an error, the greeting as
    /// well as all that is asked later. `whole` is how long it had until then, for the error.
    ///
    /// # Errors
    /// As [`Talk::connect`].
    pub fn connect_until(
        folder: &Path,
        patience: Duration,
        (end, whole): (Instant, Duration),
    ) -> Result<Self, Error> {
        Self::connect_by(folder, Some(patience), Some((end, whole)))
    }

    fn connect_by(
        folder: &Path,
        patience: Option<Duration>,
        end: Option<(Instant, Duration)>,
    ) -> Result<Self, Error> {
        let first = patience.map_or(GREETING, |patience| patience.min(GREETING));
        let left = end.map(|(end, _)| end.saturating_duration_since(Instant::now()));
        let first = left.map_or(first, |left| left.min(first));
        if first.is_zero() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let socket = sockets::at(folder, CONTROL, |path| reach(path, first))?;
        socket.set_read_timeout(Some(first))?;
        let mut talk = Self {
            socket,
            folder: folder.to_owned(),
            patience,
            end,
            decoder: Decoder::default(),
            early: VecDeque::new(),
            last: 0,
            minor: 0,
            instance: 0,
        };
        talk.send(0, &Hello::of_this_build(0))?;
        let (_, body) = talk.read()?;
        let theirs: Hello = decode(0, &body).map_err(invalid)?;
        theirs.check("this command").map_err(invalid)?;
        (talk.minor, talk.instance) = (theirs.minor, theirs.instance);
        talk.socket.set_read_timeout(patience)?;
        talk.socket.set_write_timeout(patience)?;
        Ok(talk)
    }

    /// The process that listens on the control socket in `folder`, by its number here; `None` if
    /// there is none, or none that this pid namespace shows.
    pub fn listener(folder: &Path) -> Option<i32> {
        let socket = sockets::at(folder, CONTROL, |path| reach(path, GREETING)).ok()?;
        let pid = getsockopt(&socket, sockopt::PeerCredentials).ok()?.pid();
        (pid > 0).then_some(pid)
    }

    /// Connects anew, to whichever daemon serves now.
    pub fn again(&self) -> Result<Self, Error> {
        Self::connect_within(&self.folder, self.patience)
    }

    /// From now on the daemon has so long for all that it is asked, together: later each reply is
    /// an error. A list is of many pages, and each of them may take as long as the patience is.
    pub fn end_within(&mut self, whole: Duration) {
        self.end = Some((Instant::now() + whole, whole));
    }

    /// Bounds the next read by what is left of the whole time, if there is any bound.
    fn bound(&self) -> Result<(), Error> {
        let Some((end, _)) = self.end else {
            return Ok(());
        };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let most = self.patience.map_or(left, |patience| patience.min(left));
        self.socket.set_read_timeout(Some(most))
    }

    /// A second hold on the socket, to hang up by while another thread listens.
    pub fn socket(&self) -> Result<UnixStream, Error> {
        self.socket.try_clone()
    }

    /// The daemon's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The minor version of the daemon's protocol.
    pub fn minor(&self) -> u16 {
        self.minor
    }

    /// The daemon's number: another one at every start.
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// Asks; the id its replies carry.
    pub fn ask(&mut self, request: &Control) -> Result<u32, TalkError> {
        self.last += 1;
        let id = self.last;
        self.send(id, request).map_err(|error| self.lost(&error))?;
        Ok(id)
    }

    /// Asks, with descriptors that travel with the request; the id its replies carry.
    pub fn ask_with(
        &mut self,
        request: &Control,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<u32, TalkError> {
        self.last += 1;
        let id = self.last;
        let sent = self.send_with(id, request, descriptors);
        sent.map_err(|error| self.lost(&error))?;
        Ok(id)
    }

    fn send_with(
        &mut self,
        id: u32,
        request: &Control,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Error> {
        let mut frame = Vec::new();
        encode(id, request, &mut frame).map_err(invalid)?;
        let numbers: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let (part, flags) = ([IoSlice::new(&frame)], MsgFlags::MSG_NOSIGNAL);
        let sent = sendmsg::<()>(self.socket.as_raw_fd(), &part, &rights, flags, None)?;
        self.socket.write_all(frame.get(sent..).unwrap_or(&[]))
    }

    /// The next reply to request `id`. A daemon's refusal is a failure with its own words.
    pub fn reply(&mut self, id: u32) -> Result<ControlReply, TalkError> {
        loop {
            if let Some(at) = self.early.iter().position(|(known, _)| *known == id)
                && let Some((_, reply)) = self.early.remove(at)
            {
                return match reply {
                    ControlReply::Error(error) => Err(TalkError::new(error)),
                    reply => Ok(reply),
                };
            }
            let next = self.receive().map_err(|error| self.lost(&error))?;
            self.early.push_back(next);
        }
    }

    /// The same, or `None` once it has not come within so long, whatever else has.
    pub fn reply_within(
        &mut self,
        id: u32,
        patience: Duration,
    ) -> Result<Option<ControlReply>, TalkError> {
        let end = Instant::now() + patience;
        while self.early.iter().all(|(known, _)| *known != id) {
            let left = end.saturating_duration_since(Instant::now());
            let next = match left.is_zero() {
                true => Err(ErrorKind::WouldBlock.into()),
                false => self.receive_within(left),
            };
            match next {
                Ok(next) => self.early.push_back(next),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(self.lost(&error)),
            }
        }
        self.reply(id).map(Some)
    }

    /// The next reply from the socket, or an error once nothing has come for so long.
    fn receive_within(&mut self, patience: Duration) -> Result<(u32, ControlReply), Error> {
        self.socket.set_read_timeout(Some(patience))?;
        let next = self.receive();
        self.socket.set_read_timeout(self.patience)?;
        next
    }

    /// Asks and waits for the reply.
    pub fn call(&mut self, request: &Control) -> Result<ControlReply, TalkError> {
        let id = self.ask(request)?;
        self.reply(id)
    }

    /// Whatever the daemon says next.
    #[expect(
        clippy::should_implement_trait,
        reason = "it ends with an error, not with `None`"
    )]
    pub fn next(&mut self) -> Result<(u32, ControlReply), Error> {
        if let Some(early) = self.early.pop_front() {
            return Ok(early);
        }
        self.receive()
    }

    /// The next reply from the socket.
    fn receive(&mut self) -> Result<(u32, ControlReply), Error> {
        let (id, body) = self.read()?;
        Ok((id, decode(id, &body).map_err(invalid)?))
    }

    fn send<T: serde::Serialize>(&mut self, id: u32, message: &T) -> Result<(), Error> {
        let mut frame = Vec::new();
        encode(id, message, &mut frame).map_err(invalid)?;
        self.socket.write_all(&frame)
    }

    fn read(&mut self) -> Result<(u32, Vec<u8>), Error> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(invalid)? {
                return Ok(frame);
            }
            self.bound()?;
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.decoder.push(&buffer[..bytes]),
                // A read with a time limit ends so when the process is stopped and goes on, even
                // where no signal has a handler (signal(7)).
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn lost(&self, error: &Error) -> TalkError {
        let folder = self.folder.display();
        let whole = self.end.map(|(_, whole)| whole);
        TalkError::new(match (error.kind(), whole.or(self.patience)) {
            (ErrorKind::WouldBlock, Some(patience)) => {
                format!("the daemon at {folder} did not answer within {patience:?}")
            }
            _ => format!("lost the daemon at {folder}: {error}"),
        })
    }
}

/// Connects, within this time: a daemon that hangs takes no connection, and once as many wait as
/// its socket has room for, the next one would wait for ever.
fn reach(path: &Path, within: Duration) -> Result<UnixStream, Error> {
    let (stream, closed) = (SockType::Stream, SockFlag::SOCK_CLOEXEC);
    let socket = socket(AddressFamily::Unix, stream, closed, None)?;
    let socket = UnixStream::from(socket);
    // The kernel bounds the connect by this, too.
    socket.set_write_timeout(Some(within))?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::InvalidData, error)
}
