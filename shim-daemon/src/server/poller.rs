//! epoll, with sources by name instead of by number.

use std::io;
use std::os::fd::BorrowedFd;

use gpushare_core::{ContainerId, Nanos, ProcessId};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// What became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Somebody connects to the control socket.
    Control,
    /// Somebody connects to a container's socket.
    Container(ContainerId),
    /// A connection has bytes or room for some.
    Session(u64),
    /// A process ended.
    Process(ProcessId),
    /// A look at a device has ended.
    Looks,
    /// The daemon's file is to be read again.
    Reload,
    /// The daemon is to stop.
    Stop,
}

/// Ids are counted up from 1; eight bits above them tell what they are ids of.
const KIND: u32 = 56;

impl Source {
    fn pack(self) -> u64 {
        let (kind, id) = match self {
            Self::Control => (0, 0),
            Self::Container(id) => (1, id.0),
            Self::Session(id) => (2, id),
            Self::Process(id) => (3, id.0),
            Self::Looks => (4, 0),
            Self::Stop => (5, 0),
            Self::Reload => (6, 0),
        };
        kind << KIND | id
    }

    fn unpack(word: u64) -> Self {
        let id = word & ((1 << KIND) - 1);
        match word >> KIND {
            0 => Self::Control,
            1 => Self::Container(ContainerId(id)),
            2 => Self::Session(id),
            3 => Self::Process(ProcessId(id)),
            4 => Self::Looks,
            6 => Self::Reload,
            _ => Self::Stop,
        }
    }
}

/// An epoll instance.
#[derive(Debug)]
pub(super) struct Poller(Epoll);

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    pub(super) fn add(&self, fd: BorrowedFd<'_>, source: Source) -> io::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, source.pack());
        Ok(self.0.add(fd, event)?)
    }

    /// Waits for room to write instead of for bytes to read, or the reverse.
    pub(super) fn change(&self, fd: BorrowedFd<'_>, source: Source, writes: bool) {
        let flags = if writes {
            EpollFlags::EPOLLOUT
        } else {
            EpollFlags::EPOLLIN
        };
        let mut event = EpollEvent::new(flags, source.pack());
        if let Err(error) = self.0.modify(fd, &mut event) {
            tracing::error!(%error, "a connection cannot be polled");
        }
    }

    pub(super) fn remove(&self, fd: BorrowedFd<'_>) {
        // Closing the last descriptor removes it anyway; this is for those that others hold too.
        let _ = self.0.delete(fd);
    }

    /// What is ready within `at_most`.
    pub(super) fn wait(&self, at_most: Nanos) -> io::Result<Vec<Source>> {
        let millis = at_most.0.div_ceil(1_000_000);
        let timeout = EpollTimeout::try_from(i32::try_from(millis).unwrap_or(i32::MAX))
            .unwrap_or(EpollTimeout::MAX);
        let mut ready = [EpollEvent::empty(); 256];
        match self.0.wait(&mut ready, timeout) {
            Ok(count) => Ok(ready[..count]
                .iter()
                .map(|event| Source::unpack(event.data()))
                .collect()),
            Err(Errno::EINTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}
