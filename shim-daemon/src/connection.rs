//! One connection: bytes and descriptors in, frames out, bounded in both directions.
//!
//! A peer that sends garbage is disconnected, and so is a peer that does not read once its backlog
//! is full. Neither holds resources of other peers. All sockets are non-blocking, and descriptors
//! that come are closed on their owner's lane.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use gpushare_protocol::wire::{Decoder, FrameError, MAJOR, encode};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::Serialize;

use crate::foreign::{Accepted, Foreign, Lanes};

/// Most bytes a peer may leave unread before it is cut off.
pub const BACKLOG: usize = 1 << 20;

/// Buffer capacity for replies that is kept while no reply waits.
const KEPT: usize = 1 << 10;

/// Most descriptors taken from a peer and not yet used. A message has two at most. Of messages that
/// come in one burst each is read with its own, and the next one once those are used.
const MAX_DESCRIPTORS: usize = 4;

/// `SCM_MAX_FD` of the kernel's `net/scm.h`: the most that one message brings. For those without a
/// place the kernel would close what they lead to, on this thread.
const MOST_OF_A_MESSAGE: usize = 253;

/// Room for their control message: its header of 16 bytes, and their numbers.
const SPACE: usize = (16 + MOST_OF_A_MESSAGE * size_of::<RawFd>()).div_ceil(8);

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub enum Closed {
    /// The peer closed it, between two frames.
    #[error("closed by the peer")]
    Ended,
    /// The peer closed it within a frame.
    #[error("closed by the peer within a message")]
    Truncated,
    /// The peer violated the protocol.
    #[error(transparent)]
    Protocol(#[from] FrameError),
    /// It is of another major version, and has heard this daemon's.
    #[error("it speaks protocol {theirs}, this daemon {MAJOR}")]
    Version {
        /// Its major version.
        theirs: u16,
    },
    /// It sent more descriptors than the protocol has use for.
    #[error("more than {MAX_DESCRIPTORS} descriptors without a message that needs one")]
    Descriptors,
    /// All connections together took too much memory, and it most.
    #[error(
        "unread and unsent messages of all connections take too much memory, and its most of all"
    )]
    BufferBudget,
    /// Its user has most of all connections there, and another one needs a place.
    #[error("its user has most connections there, and another one came")]
    Crowd,
    /// Its process has another connection, or none, and one more was to be taken.
    #[error("its process has another connection or has ended, and another program came")]
    Former,
    /// It does not read its replies.
    #[error("{BACKLOG} bytes of replies unread")]
    SlowReader,
    /// A message with descriptors cannot be sent: the kernel counts those that are sent and not
    /// received by the number of their sender's user, and root's programs in containers have ours.
    #[error(
        "no descriptors can be passed: processes with this daemon's user id have too many sent that are not received, and the daemon lacks CAP_SYS_RESOURCE"
    )]
    InFlight,
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A non-blocking connection.
#[derive(Debug)]
pub struct Connection {
    socket: Accepted,
    decoder: Decoder,
    descriptors: VecDeque<Foreign>,
    unsent: Vec<u8>,
    /// Descriptors that go with the byte at this place of `unsent`.
    passing: VecDeque<(usize, Vec<Passed>)>,
}

/// A descriptor on its way to a process. Each close of a file goes through all locks that were
/// taken on it, and a process takes as many as it likes on what it was passed.
#[derive(Debug)]
pub enum Passed {
    /// Closed once it was sent.
    Own(OwnedFd),
    /// Of a page that the daemon keeps: sent without a copy.
    Kept(Arc<OwnedFd>),
    /// Closed on its lane once it was sent.
    Foreign(Foreign),
    /// Of a file that the daemon keeps: sent without a copy.
    Shared(Arc<Foreign>),
}

impl From<OwnedFd> for Passed {
    fn from(descriptor: OwnedFd) -> Self {
        Self::Own(descriptor)
    }
}

impl AsFd for Passed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(descriptor) => descriptor.as_fd(),
            Self::Kept(descriptor) => descriptor.as_fd(),
            Self::Foreign(descriptor) => descriptor.file().as_fd(),
            Self::Shared(descriptor) => descriptor.file().as_fd(),
        }
    }
}

impl Connection {
    /// Takes over an accepted socket.
    #[must_use]
    pub fn new(socket: Accepted) -> Self {
        Self {
            socket,
            decoder: Decoder::default(),
            descriptors: VecDeque::new(),
            unsent: Vec::new(),
            passing: VecDeque::new(),
        }
    }

    /// Takes over a socket in a program that serves no other, with a lane of its own.
    ///
    /// # Errors
    /// As [`Accepted::new`].
    pub fn alone(socket: UnixStream) -> io::Result<Self> {
        let accepted = Accepted::new(socket, &Lanes::default().own())?;
        Ok(Self::new(accepted))
    }

    /// The socket, for polling and for [`crate::peer::identify`].
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().as_fd()
    }

    /// Whether it brings descriptors next while as many of its owner's wait as may. It is read
    /// later.
    #[must_use]
    pub fn is_put_off(&self) -> bool {
        self.socket.is_put_off()
    }

    /// Reads received data, at most `at_most` bytes, so that one busy peer cannot occupy the loop,
    /// and no further than the first descriptors: so those of many messages never wait together.
    /// Returns how many bytes came.
    ///
    /// # Errors
    /// [`Closed`] when the connection is over.
    pub fn receive(&mut self, at_most: usize) -> Result<usize, Closed> {
        let mut buffer = [0; 16 * 1024];
        let mut taken = 0;
        while taken < at_most {
            let Received {
                bytes,
                descriptors,
                lacks_descriptors,
            } = match read(self.socket.as_ref(), &mut buffer) {
                Err(Errno::EAGAIN) => return Ok(taken),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(io::Error::from(error).into()),
                Ok(read) => read,
            };
            let with_descriptors = !descriptors.is_empty();
            let foreign = |one| Foreign::new(one, self.socket.lane());
            self.descriptors
                .extend(descriptors.into_iter().map(foreign));
            if lacks_descriptors {
                return Err(io::Error::from(Errno::EMFILE).into());
            }
            if self.descriptors.len() > MAX_DESCRIPTORS {
                return Err(Closed::Descriptors);
            }
            if bytes == 0 {
                return Err(Closed::Ended);
            }
            self.decoder.push(&buffer[..bytes]);
            taken += bytes;
            if with_descriptors {
                break;
            }
        }
        Ok(taken)
    }

    /// How a connection that is over with `end` ended, once [`Self::next_frame`] has given all
    /// whole frames.
    #[must_use]
    pub fn ended(&self, end: Closed) -> Closed {
        match end {
            Closed::Ended if !self.decoder.is_between_frames() => Closed::Truncated,
            end => end,
        }
    }

    /// The next whole frame that has arrived.
    ///
    /// # Errors
    /// [`Closed::Protocol`] if there can be none.
    pub fn next_frame(&mut self) -> Result<Option<(u32, Vec<u8>)>, Closed> {
        Ok(self.decoder.next_frame()?)
    }

    /// The oldest descriptor received and not taken.
    pub fn take_descriptor(&mut self) -> Option<Foreign> {
        self.descriptors.pop_front()
    }

    /// Queues a frame and sends as much as the socket accepts. `descriptors` are sent with it.
    ///
    /// # Errors
    /// [`Closed::SlowReader`] if the peer's backlog is full, [`Closed::Io`] if the socket failed.
    /// [`Closed::InFlight`]: if nothing is left to write then, nothing of this frame was sent, and
    /// all before it was.
    pub fn send<T: Serialize>(
        &mut self,
        id: u32,
        message: &T,
        descriptors: Vec<Passed>,
    ) -> Result<(), Closed> {
        if !descriptors.is_empty() {
            self.passing.push_back((self.unsent.len(), descriptors));
        }
        encode(id, message, &mut self.unsent)?;
        let flushed = self.flush();
        if let (Err(Closed::InFlight), [(0, _)]) = (&flushed, &*self.passing.make_contiguous()) {
            // It is this frame's.
            self.passing.clear();
            self.unsent.clear();
        }
        flushed?;
        if self.unsent.len() > BACKLOG {
            return Err(Closed::SlowReader);
        }
        Ok(())
    }

    /// Bytes of memory that its messages take: the received part of an incomplete message, and
    /// unread replies. Nothing where there are none: no more is kept than the connection itself
    /// takes.
    pub fn held(&mut self) -> usize {
        let unread = match self.unsent.is_empty() {
            true => {
                self.unsent.shrink_to(KEPT);
                0
            }
            false => self.unsent.capacity(),
        };
        self.decoder.held() + unread
    }

    /// Whether bytes wait for the socket to become writable.
    #[must_use]
    pub fn wants_to_write(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends as much as the socket accepts.
    ///
    /// # Errors
    /// [`Closed::Io`] if the socket failed, [`Closed::InFlight`].
    pub fn flush(&mut self) -> Result<(), Closed> {
        while !self.unsent.is_empty() {
            let sent = match self.send_piece() {
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => continue,
                Err(Errno::ETOOMANYREFS) => return Err(Closed::InFlight),
                Err(error) => return Err(io::Error::from(error).into()),
                Ok(sent) => sent,
            };
            self.unsent.drain(..sent);
            for (at, _) in &mut self.passing {
                *at -= sent;
            }
        }
        Ok(())
    }

    /// Sends up to the next byte that carries descriptors, or from it with them.
    fn send_piece(&mut self) -> Result<usize, Errno> {
        let due = self.passing.front().is_some_and(|(at, _)| *at == 0);
        let end = match self.passing.get(usize::from(due)) {
            Some((at, _)) => *at,
            None => self.unsent.len(),
        };
        let bytes = [IoSlice::new(&self.unsent[..end])];
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let raw: Vec<RawFd> = match self.passing.front() {
            Some((_, descriptors)) if due => {
                let all = descriptors.iter().map(|one| one.as_fd().as_raw_fd());
                all.collect()
            }
            _ => Vec::new(),
        };
        let rights = [ControlMessage::ScmRights(&raw)];
        let rights = if due { &rights[..] } else { &[] };
        let sent = sendmsg::<()>(
            self.socket.as_ref().as_raw_fd(),
            &bytes,
            rights,
            flags,
            None,
        )?;
        if due {
            self.passing.pop_front();
        }
        Ok(sent)
    }
}

/// What one `recvmsg` brought.
struct Received {
    bytes: usize,
    /// The descriptors that came with them.
    descriptors: Vec<OwnedFd>,
    /// Whether more descriptors came, for which this process had no place.
    lacks_descriptors: bool,
}

/// Reads once. The control messages are walked here because what has no place makes nix return
/// none of them, and the descriptors that had one are open all the same.
#[expect(unsafe_code, reason = "descriptors arrive as numbers")]
fn read(socket: &UnixStream, buffer: &mut [u8]) -> Result<Received, Errno> {
    let mut space = [0_u64; SPACE];
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: numbers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = space.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&space);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header names a buffer and a space of these lengths, which outlive the call.
    let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    let bytes = Errno::result(bytes)?.unsigned_abs();
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has set the header to what it wrote into the space, which is aligned as
    // its messages are. Each descriptor was installed for us with this very message; no other owner
    // exists.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while let Some(of) = message.as_ref() {
            if (of.cmsg_level, of.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let first = libc::CMSG_DATA(message).cast::<RawFd>();
                let length = of.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let numbers = (0..length / size_of::<RawFd>()).map(|at| first.add(at));
                descriptors
                    .extend(numbers.map(|number| OwnedFd::from_raw_fd(number.read_unaligned())));
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    Ok(Received {
        bytes,
        descriptors,
        lacks_descriptors: header.msg_flags & libc::MSG_CTRUNC != 0,
    })
}

#[cfg(test)]
mod tests;
