//! epoll, with sources by name instead of by number, and a timer as exact as the kernel's: turns on
//! a device are a few milliseconds, which epoll's own timeouts are counted in.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::clock;
use gpushare_core::{Nanos, ProcessId, TenantId};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// A source that became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A client connects to the control socket.
    Control,
    /// A client connects to a tenant's socket.
    Tenant(TenantId),
    /// A client connects to the socket of a class, by its place among the daemon's.
    Class(u64),
    /// A connection has bytes or room for some.
    Session(u64),
    /// A process ended.
    Process(ProcessId),
    /// A container's first process ended.
    Container(TenantId),
    /// A look at a device has ended.
    Looks,
    /// Work that another thread did for the loop has ended.
    Reports,
    /// The daemon's file is to be read again.
    Reload,
    /// The time waited for has come.
    Time,
    /// The starter of a transient daemon has gone.
    Starter,
    /// The daemon is to stop.
    Stop,
}

/// Ids are counted up from 1; the eight bits above them are the kind of id.
const KIND: u32 = 56;

impl Source {
    fn pack(self) -> u64 {
        let (kind, id) = match self {
            Self::Control => (0, 0),
            Self::Tenant(id) => (1, id.0),
            Self::Session(id) => (2, id),
            Self::Process(id) => (3, id.0),
            Self::Looks => (4, 0),
            Self::Stop => (5, 0),
            Self::Reload => (6, 0),
            Self::Time => (7, 0),
            Self::Starter => (8, 0),
            Self::Container(id) => (9, id.0),
            Self::Class(at) => (10, at),
            Self::Reports => (11, 0),
        };
        kind << KIND | id
    }

    fn unpack(word: u64) -> Self {
        let id = word & ((1 << KIND) - 1);
        match word >> KIND {
            0 => Self::Control,
            1 => Self::Tenant(TenantId(id)),
            2 => Self::Session(id),
            3 => Self::Process(ProcessId(id)),
            4 => Self::Looks,
            6 => Self::Reload,
            7 => Self::Time,
            8 => Self::Starter,
            9 => Self::Container(TenantId(id)),
            10 => Self::Class(id),
            11 => Self::Reports,
            _ => Self::Stop,
        }
    }
}

/// An epoll instance with a timer.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: Epoll,
    timer: TimerFd,
    /// When the timer goes off, or went.
    armed: Nanos,
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        let poller = Self {
            epoll,
            timer,
            armed: Nanos::ZERO,
        };
        poller.add(poller.timer.as_fd(), Source::Time)?;
        Ok(poller)
    }

    pub(super) fn add(&self, fd: BorrowedFd<'_>, source: Source) -> io::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, source.pack());
        Ok(self.epoll.add(fd, event)?)
    }

    /// The same of what may be polled already.
    pub(super) fn add_again(&self, fd: BorrowedFd<'_>, source: Source) -> io::Result<()> {
        match self.add(fd, source) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            added => added,
        }
    }

    /// Waits for room to write instead of for bytes to read.
    pub(super) fn await_room(&self, fd: BorrowedFd<'_>, source: Source) {
        let mut event = EpollEvent::new(EpollFlags::EPOLLOUT, source.pack());
        if let Err(error) = self.epoll.modify(fd, &mut event) {
            tracing::error!(%error, "a connection cannot be polled");
        }
    }

    pub(super) fn remove(&self, fd: BorrowedFd<'_>) {
        // Closing the last descriptor removes it anyway. This call is for descriptors with other
        // holders.
        let _ = self.epoll.delete(fd);
    }

    /// Returns the ready sources. Waits until the monotonic clock reads `due`; does not wait if
    /// `due` is not after `now`.
    pub(super) fn wait(&mut self, now: Nanos, due: Nanos) -> io::Result<Vec<Source>> {
        let timeout = if due <= now {
            EpollTimeout::ZERO
        } else {
            self.arm(due)?;
            EpollTimeout::NONE
        };
        let mut ready = [EpollEvent::empty(); 256];
        match self.epoll.wait(&mut ready, timeout) {
            Ok(count) => Ok(ready[..count]
                .iter()
                .map(|event| Source::unpack(event.data()))
                .collect()),
            Err(Errno::EINTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Setting the timer also takes back that it went off, so it need not be read.
    fn arm(&mut self, due: Nanos) -> io::Result<()> {
        if self.armed == due {
            return Ok(());
        }
        let own = clock::for_timers(due);
        let point = TimeSpec::from_duration(std::time::Duration::from_nanos(own.0));
        let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
        self.timer.set(Expiration::OneShot(point), flags)?;
        self.armed = due;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_polled_already_can_be_added_again_and_nothing_else() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        poller.add_again(one.as_fd(), Source::Control).unwrap();
        assert!(poller.add(one.as_fd(), Source::Control).is_err());
        poller.add_again(one.as_fd(), Source::Control).unwrap();
        let file = tempfile::tempfile().unwrap();
        assert!(poller.add_again(file.as_fd(), Source::Control).is_err());
    }

    #[test]
    fn a_wait_ends_at_its_time_and_not_before() {
        let mut poller = Poller::new().unwrap();
        for micros in [300, 700, 0, 1500] {
            let now = clock::now();
            let due = now + Nanos::micros(micros);
            while clock::now() < due {
                let ready = poller.wait(clock::now(), due).unwrap();
                assert!(ready.iter().all(|source| *source == Source::Time));
            }
        }
        // Nothing is left of a time that has come once another is waited for.
        let now = clock::now();
        assert_eq!(
            poller.wait(now, now + Nanos::millis(1)).unwrap(),
            [Source::Time]
        );
        assert!(clock::now() >= now + Nanos::millis(1));
    }

    #[test]
    fn a_source_comes_back_as_it_was_named() {
        for source in [
            Source::Control,
            Source::Tenant(TenantId(7)),
            Source::Session(8),
            Source::Process(ProcessId(9)),
            Source::Container(TenantId(10)),
            Source::Class(11),
            Source::Looks,
            Source::Reload,
            Source::Time,
            Source::Stop,
        ] {
            assert_eq!(Source::unpack(source.pack()), source);
        }
    }
}
