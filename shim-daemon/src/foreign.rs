//! Descriptors that other processes chose, and the threads that touch them.
//!
//! To look at a file may wait for its server, and so may its close: a file system of a tenant's
//! own, a lock that is given up, a socket that lingers. So the loop does neither. It may ask the
//! kernel what does not call the file: whether it is memory, and whether it is a pidfd.
//!
//! The one lock of the daemon guards the lanes. It is held for a few instructions at a time.
//!
//! # Safety
//! What is dropped on a lane is moved out of a value that is being dropped, once.
#![allow(unsafe_code, reason = "moves a file out of what is dropped")]

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::ManuallyDrop;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use gpushare_core::lanes::{self, Owner, Part};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::socket::{MsgFlags, recvmsg, setsockopt, shutdown, sockopt::OobInline};

/// A thread copies memory, looks at files and closes them.
const STACK: usize = 256 << 10;
/// Bytes that are looked through for descriptors at once.
const LOOKED: usize = 16 << 10;
/// How often, before a connection counts as one that bears some.
const LOOKS: usize = 64;

type Work = Box<dyn FnOnce() + Send>;

/// All lanes of a daemon.
#[derive(Clone, Default)]
pub struct Lanes(Arc<Mutex<lanes::Lanes<Work>>>);

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").finish_non_exhaustive()
    }
}

/// The lane of an owner.
#[derive(Clone, Debug)]
pub struct Lane {
    owner: Owner,
    lanes: Lanes,
}

impl Lanes {
    /// The lane of this owner.
    #[must_use]
    pub fn lane(&self, owner: Owner) -> Lane {
        Lane {
            owner,
            lanes: self.clone(),
        }
    }

    /// The lane of what the daemon made itself.
    #[must_use]
    pub fn own(&self) -> Lane {
        self.lane(Owner {
            user: 0,
            part: Part::Daemon,
        })
    }

    /// Starts threads that could not be started before.
    pub fn tend(&self) {
        while self.books().starts() {
            let lanes = self.clone();
            let thread = thread::Builder::new().name("lane".to_owned());
            let started = thread.stack_size(STACK).spawn(move || lanes.work());
            if let Err(error) = started {
                tracing::error!(%error, "no thread for work that may wait; it is tried again");
                return self.books().ends();
            }
        }
    }

    fn work(&self) {
        // As the daemon's main thread does. Tests have no such thread.
        let _ = crate::limits::outlive_file_sizes();
        if let Err(error) = give_up_disks() {
            tracing::warn!(%error, "files of users may take more than their quotas");
        }
        loop {
            let next = self.books().take();
            let Some((owner, work)) = next else { return };
            work();
            self.books().done(owner);
        }
    }

    fn books(&self) -> MutexGuard<'_, lanes::Lanes<Work>> {
        // No work is done under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    /// Has a thread do this, after all that the owner's lane was given before.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        self.lanes.books().add(self.owner, Box::new(work));
        self.lanes.tend();
    }

    /// Whether so much waits that more is to be put off.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.lanes.books().is_full(self.owner)
    }

    /// Whether all that it was given is done.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.lanes.books().is_idle(self.owner)
    }

    /// For tests: the lane is full, and stands until what this returns is dropped.
    #[cfg(test)]
    pub(crate) fn stands(&self) -> std::sync::mpsc::Sender<()> {
        let (go, goes) = std::sync::mpsc::channel();
        let (begins, has_begun) = std::sync::mpsc::channel();
        self.run(move || {
            let _ = begins.send(());
            let _ = goes.recv();
        });
        // Its thread takes nothing more: what waits from here on stays.
        has_begun.recv().expect("the work begins");
        while !self.is_full() {
            self.run(|| ());
        }
        go
    }
}

/// Takes from this thread the capabilities that let it pass over a disk's quotas: it writes to
/// files of users. The loop's thread keeps them, for by one of them it passes descriptors whatever
/// is in flight.
///
/// # Errors
/// If the kernel refuses, or has no capabilities.
pub(crate) fn give_up_disks() -> io::Result<()> {
    /// `_LINUX_CAPABILITY_VERSION_3` of `linux/capability.h`.
    const VERSION: u32 = 0x2008_0522;
    const SYS_ADMIN: u32 = 21;
    const SYS_RESOURCE: u32 = 24;
    // Of this thread.
    let mut header = [VERSION, 0];
    // What is effective, permitted and inheritable of the first 32; then of the others.
    let mut sets = [[0_u32; 3]; 2];
    // SAFETY: the kernel reads and writes a header of two numbers, and writes sets of this form.
    let read = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, &raw mut sets) };
    Errno::result(read)?;
    for set in &mut sets[0] {
        *set &= !(1 << SYS_ADMIN | 1 << SYS_RESOURCE);
    }
    // SAFETY: the kernel reads a header and sets of this form.
    let written = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, &raw const sets) };
    Errno::result(written)?;
    Ok(())
}

/// A descriptor that another process chose, or of a file that another process can reach. It is
/// closed on its owner's lane.
#[derive(Debug)]
pub struct Foreign {
    file: ManuallyDrop<File>,
    lane: Lane,
}

impl Foreign {
    /// A descriptor of this owner's.
    #[must_use]
    pub fn new(descriptor: OwnedFd, lane: &Lane) -> Self {
        Self {
            file: ManuallyDrop::new(File::from(descriptor)),
            lane: lane.clone(),
        }
    }

    /// The file, for work on the owner's lane.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The same, of another owner from now on.
    #[must_use]
    pub fn onto(mut self, lane: &Lane) -> Self {
        self.lane = lane.clone();
        self
    }

    /// The lane on which it may be looked at.
    #[must_use]
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// A descriptor of memory, which can be looked at and mapped at any time. Its close takes as
    /// long as the file has locks.
    ///
    /// # Errors
    /// The same, if it is of anything else. Only memory has seals, and no file is asked for them.
    pub fn into_memory(self) -> Result<OwnedFd, Self> {
        let is_memory = |file: &File| fcntl(file, FcntlArg::F_GET_SEALS).is_ok();
        self.into_known(is_memory)
    }

    /// A pidfd, which can be looked at and polled at any time.
    ///
    /// # Errors
    /// The same, if it is of anything else. The kernel makes up its name, which no path is like: a
    /// path begins with a slash.
    pub fn into_pidfd(self) -> Result<OwnedFd, Self> {
        self.into_known(|file| {
            let link = format!("/proc/self/fd/{}", file.as_raw_fd());
            std::fs::read_link(link).is_ok_and(|name| name == Path::new("anon_inode:[pidfd]"))
        })
    }

    fn into_known(self, is_known: impl FnOnce(&File) -> bool) -> Result<OwnedFd, Self> {
        if !is_known(&self.file) {
            return Err(self);
        }
        let mut known = ManuallyDrop::new(self);
        // SAFETY: `known` is not dropped, so its lane is all that is left of it, and neither is
        // used again.
        unsafe {
            std::ptr::drop_in_place(&raw mut known.lane);
            Ok(ManuallyDrop::take(&mut known.file).into())
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: nothing uses it after this.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        self.lane.run(move || drop(file));
    }
}

/// A connection that another process made. Where descriptors lie in it that were not read, its
/// close closes them too, and is done on its owner's lane.
#[derive(Debug)]
pub struct Accepted {
    socket: ManuallyDrop<UnixStream>,
    lane: Lane,
}

impl Accepted {
    /// Takes a connection over.
    ///
    /// # Errors
    /// If it cannot be made non-blocking.
    pub fn new(socket: UnixStream, lane: &Lane) -> io::Result<Self> {
        let accepted = Self {
            socket: ManuallyDrop::new(socket),
            lane: lane.clone(),
        };
        accepted.socket.set_nonblocking(true)?;
        // Without this the kernel throws urgent data away as it is passed, with its descriptors.
        setsockopt(&*accepted.socket, OobInline, &true)?;
        Ok(accepted)
    }

    /// The lane of its owner.
    #[must_use]
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Whether what is to be read next brings descriptors, and its owner's lane takes no more.
    #[must_use]
    pub fn is_put_off(&self) -> bool {
        self.lane.is_full() && looks(&self.socket) == Ok(Found::Descriptors)
    }
}

impl AsRef<UnixStream> for Accepted {
    fn as_ref(&self) -> &UnixStream {
        &self.socket
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        // SAFETY: nothing uses it after this.
        let socket = unsafe { ManuallyDrop::take(&mut self.socket) };
        // Nothing comes after this, and the other end hears of it whenever the close is done.
        let _ = socket.shutdown(Shutdown::Both);
        match is_empty(&socket) {
            true => drop(socket),
            false => drop(Foreign::new(socket.into(), &self.lane)),
        }
    }
}

/// Closes a socket that listens. The connections that were not accepted, and what lies in them, end
/// with it: each is taken first, and no more come.
pub fn part_with(listener: UnixListener, lane: &Lane) {
    let _ = shutdown(listener.as_raw_fd(), nix::sys::socket::Shutdown::Both);
    while let Ok((socket, _)) = listener.accept() {
        drop(Accepted::new(socket, lane));
    }
}

/// What is to be read next of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Descriptors, with bytes or behind them.
    Descriptors,
    /// So many bytes without any.
    Bytes(usize),
}

/// Looks at what is to be read next, and leaves it there: without room for descriptors, the kernel
/// says that there are some and passes none.
fn looks(socket: &UnixStream) -> nix::Result<Found> {
    received(socket, MsgFlags::MSG_PEEK, LOOKED)
}

fn received(socket: &UnixStream, how: MsgFlags, at_most: usize) -> nix::Result<Found> {
    let mut buffer = [0; LOOKED];
    let mut parts = [IoSliceMut::new(&mut buffer[..at_most])];
    let flags = how | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, None, flags)?;
    Ok(match message.flags.contains(MsgFlags::MSG_CTRUNC) {
        true => Found::Descriptors,
        false => Found::Bytes(message.bytes),
    })
}

/// Whether no descriptors are left in a connection to which nothing comes any more. What else is in
/// it is read.
fn is_empty(socket: &UnixStream) -> bool {
    for _ in 0..LOOKS {
        match looks(socket) {
            Ok(Found::Bytes(0)) | Err(Errno::EAGAIN | Errno::ECONNRESET) => return true,
            Ok(Found::Bytes(bytes)) => {
                if received(socket, MsgFlags::empty(), bytes).is_err() {
                    return false;
                }
            }
            Ok(Found::Descriptors) | Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{ControlMessage, sendmsg};
    use std::io::{IoSlice, Write as _};
    use std::sync::mpsc::channel;

    fn lane() -> Lane {
        Lanes::default().own()
    }

    fn null() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    /// What lies in a connection: bytes, and bytes with descriptors.
    fn connection(parts: &[(usize, usize)]) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        for (bytes, descriptors) in parts {
            let null = null();
            let all = vec![null.as_raw_fd(); *descriptors];
            let rights = [ControlMessage::ScmRights(&all)];
            let rights = if all.is_empty() { &[] } else { &rights[..] };
            let text = vec![0; *bytes];
            let text = [IoSlice::new(&text)];
            sendmsg::<()>(theirs.as_raw_fd(), &text, rights, MsgFlags::empty(), None).unwrap();
        }
        ours
    }

    /// The capabilities that a thread has, as its `status` in the kernel's folder says.
    fn capabilities() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mut rows = status.lines();
        let row = rows.find_map(|row| row.strip_prefix("CapEff:")).unwrap();
        u64::from_str_radix(row.trim(), 16).unwrap()
    }

    #[test]
    fn a_lanes_thread_cannot_pass_over_quotas_and_others_keep_what_they_have() {
        let of_disks = 1 << 21 | 1 << 24;
        let before = capabilities();
        let (says, heard) = channel();
        lane().run(move || says.send(capabilities()).unwrap());
        assert_eq!(heard.recv(), Ok(before & !of_disks));
        assert_eq!(capabilities(), before);
    }

    #[test]
    fn a_connection_with_unread_descriptors_is_told_from_one_without() {
        for (parts, empty) in [
            (&[][..], true),
            (&[(1, 0)], true),
            (&[(50_000, 0), (1, 0), (50_000, 0)], true),
            (&[(1, 1)], false),
            (&[(50_000, 0), (1, 253)], false),
            (&[(1, 0), (50_000, 1), (1, 0)], false),
        ] {
            let socket = connection(parts);
            socket.shutdown(Shutdown::Both).unwrap();
            assert_eq!(is_empty(&socket), empty, "{parts:?}");
        }
    }

    #[test]
    fn to_look_for_descriptors_takes_nothing() {
        let socket = connection(&[(3, 1)]);
        for _ in 0..3 {
            assert_eq!(looks(&socket), Ok(Found::Descriptors));
        }
        let socket = connection(&[(3, 0)]);
        for _ in 0..3 {
            assert_eq!(looks(&socket), Ok(Found::Bytes(3)));
        }
    }

    #[test]
    fn the_other_end_hears_of_the_end_at_once_and_cannot_send_any_more() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        drop(Accepted::new(ours, &lane()).unwrap());
        assert!(theirs.write_all(&[1]).is_err());
        let mut end = Vec::new();
        assert_eq!(io::Read::read_to_end(&mut theirs, &mut end).unwrap(), 0);
    }

    #[test]
    fn only_memory_is_memory_and_only_a_pidfd_is_a_pidfd() {
        let page = crate::pages::UsagePage::create().unwrap();
        let page = || page.descriptor().try_clone_to_owned().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let pidfd = || crate::peer::open(own).unwrap();
        let foreign = |fd| Foreign::new(fd, &lane());
        assert!(foreign(page()).into_memory().is_ok());
        assert!(foreign(pidfd()).into_pidfd().is_ok());
        for other in [null(), UnixStream::pair().unwrap().0.into(), pidfd()] {
            assert!(foreign(other).into_memory().is_err());
        }
        for other in [null(), UnixStream::pair().unwrap().0.into(), page()] {
            assert!(foreign(other).into_pidfd().is_err());
        }
    }

    #[test]
    fn a_lanes_work_is_done_in_its_order_and_a_close_is_part_of_it() {
        let (lane, other) = (lane(), lane());
        let (go, waits) = channel::<()>();
        let (says, heard) = channel();
        lane.run(move || waits.recv().unwrap());
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(Foreign::new(ours.into(), &lane));
        let said = says.clone();
        lane.run(move || said.send("late").unwrap());
        other.run(move || says.send("at once").unwrap());
        assert_eq!(heard.recv(), Ok("at once"), "of another owner");
        theirs.set_nonblocking(true).unwrap();
        let read = io::Read::read(&mut (&theirs), &mut [0]).unwrap_err();
        assert_eq!(read.kind(), io::ErrorKind::WouldBlock, "it is open still");
        go.send(()).unwrap();
        assert_eq!(heard.recv(), Ok("late"));
        assert_eq!(io::Read::read(&mut (&theirs), &mut [0]).unwrap(), 0);
    }
}
