//! A child process that connects for a test. The kernel tells the daemon the peer's pid, so each
//! client of a test can be a process of its own while the test speaks for it.
//!
//! # Safety
//! The child runs between `fork` and its end nothing but system calls on memory that was there
//! before.

use std::ffi::c_int;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::Pid;

/// Where the child keeps the socket to connect, beside the address it receives.
const SOCKET: c_int = 900;
/// An address, as the kernel reads it.
const ADDRESS: usize = size_of::<libc::sockaddr_un>();
/// The same, as the kernel takes it: the size of that structure on Linux.
const LENGTH: libc::socklen_t = 110;
const _: () = assert!(ADDRESS == 110);

/// The process; it is killed when this is dropped.
#[derive(Debug)]
pub struct StandIn {
    pid: Pid,
    told: UnixStream,
    /// The child holds the other end: a connection replaces that end.
    socket: UnixStream,
}

impl StandIn {
    pub fn start() -> Self {
        let (told, hears) = UnixStream::pair().unwrap();
        let (socket, passed) = UnixStream::pair().unwrap();
        let parent = std::process::id();
        // SAFETY: the child goes to `serve` at once, which keeps to system calls.
        let pid = match unsafe { libc::fork() } {
            // SAFETY: this is the child that has just been forked.
            0 => unsafe { serve(hears.as_raw_fd(), passed.as_raw_fd(), parent) },
            pid => Pid::from_raw(pid),
        };
        assert!(pid.as_raw() > 0, "a child can be had");
        Self { pid, told, socket }
    }

    pub fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// It is killed, and not waited for: its pid stays its own.
    pub fn becomes_a_zombie(&self) {
        nix::sys::signal::kill(self.pid, Signal::SIGKILL).unwrap();
        let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(self.pid), ended).unwrap();
    }

    /// It goes on as a program that never connects.
    pub fn becomes_another(&mut self) {
        self.told.write_all(&[0; ADDRESS]).unwrap();
    }

    /// Connects as this process.
    pub fn connect(&mut self, path: &Path) -> UnixStream {
        let bytes = path.as_os_str().as_bytes();
        let mut address = [0_u8; ADDRESS];
        address[..2].copy_from_slice(
            &libc::sa_family_t::try_from(libc::AF_UNIX)
                .unwrap()
                .to_ne_bytes(),
        );
        address[2..2 + bytes.len()].copy_from_slice(bytes);
        self.told.write_all(&address).unwrap();
        let mut answer = [0_u8; 4];
        self.told.read_exact(&mut answer).unwrap();
        let error = c_int::from_ne_bytes(answer);
        assert_eq!(error, 0, "{}", std::io::Error::from_raw_os_error(error));
        let mut space = nix::cmsg_space!([c_int; 1]);
        let mut byte = [0_u8];
        let mut parts = [std::io::IoSliceMut::new(&mut byte)];
        let message = nix::sys::socket::recvmsg::<()>(
            self.socket.as_raw_fd(),
            &mut parts,
            Some(&mut space),
            nix::sys::socket::MsgFlags::MSG_CMSG_CLOEXEC,
        )
        .unwrap();
        let passed = message.cmsgs().unwrap().find_map(|part| match part {
            nix::sys::socket::ControlMessageOwned::ScmRights(numbers) => numbers.first().copied(),
            _ => None,
        });
        // SAFETY: the kernel made it for this message.
        unsafe { UnixStream::from_raw_fd(passed.expect("a socket")) }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

/// Connects a new socket to each address it receives and passes it on, until killed or told to
/// become another program, by an address without a family.
///
/// # Safety
/// In a child that has just been forked.
unsafe fn serve(hears: c_int, passes: c_int, parent: u32) -> ! {
    // SAFETY: system calls on memory of this frame only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid().unsigned_abs() != parent {
            libc::_exit(0);
        }
        // The child must not keep the test's descriptors open, such as a daemon's lock.
        libc::dup2(hears, SOCKET + 1);
        libc::dup2(passes, SOCKET + 2);
        let (hears, passes) = (SOCKET + 1, SOCKET + 2);
        libc::syscall(libc::SYS_close_range, 3, SOCKET, 0);
        libc::syscall(libc::SYS_close_range, SOCKET + 3, u32::MAX, 0);
        let mut address = [0_u8; ADDRESS];
        loop {
            let got = libc::recv(
                hears,
                address.as_mut_ptr().cast(),
                ADDRESS,
                libc::MSG_WAITALL,
            );
            if got != ADDRESS.cast_signed() {
                libc::_exit(0);
            }
            if address[..2] == [0; 2] {
                let args = [c"sleep".as_ptr(), c"600".as_ptr(), std::ptr::null()];
                libc::execvp(args[0], args.as_ptr());
                libc::_exit(1);
            }
            let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            let made = libc::dup2(socket, SOCKET);
            libc::close(socket);
            let answer = libc::connect(made, address.as_ptr().cast(), LENGTH);
            let error = if answer == 0 {
                0
            } else {
                *libc::__errno_location()
            };
            if error == 0 {
                pass(passes, made);
            }
            libc::close(made);
            libc::write(hears, (&raw const error).cast(), 4);
        }
    }
}

/// Sends a byte and a descriptor.
unsafe fn pass(passes: c_int, passed: c_int) {
    // SAFETY: as `serve`; the header names memory of this frame.
    unsafe {
        let mut byte = 0_u8;
        let mut part = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        let mut control = [0_u64; 4];
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        std::ptr::write_unaligned(libc::CMSG_DATA(header).cast(), passed);
        libc::sendmsg(passes, &raw const message, 0);
    }
}
