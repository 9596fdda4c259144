//! A connection to the daemon as bytes and descriptors: non-blocking, every wait with an end.
//!
//! # Safety
//! `unsafe` calls libc with buffers and structures that outlive the calls, and takes over
//! descriptors the kernel has just installed.
#![allow(unsafe_code, reason = "sockets, and descriptors passed over them")]

use core::ffi::c_int;
use core::mem::{offset_of, size_of, zeroed};
use core::ptr;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use gpushare_protocol::injection::SOCKET;
use gpushare_protocol::wire::Decoder;

use crate::guest::descriptor::Descriptor;

/// Words for the control message that carries descriptors: a message has two at most, the pages.
const CONTROL_WORDS: usize = 8;

/// Received and unused data.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Arc<Descriptor>,
    decoder: Decoder,
    descriptors: VecDeque<Descriptor>,
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    /// The connection has something.
    pub(super) socket: bool,
    /// The bell was rung.
    pub(super) bell: bool,
}

impl Connection {
    /// Connects to the socket in `folder`.
    ///
    /// # Errors
    /// Fails at once if no daemon listens there, or its backlog is full.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is involved.
        let socket = Descriptor::new(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
        gpushare_protocol::sockets::at(folder, SOCKET, |path| {
            let (address, length) = address(path)?;
            // SAFETY: the address outlives the call, and is `length` bytes long.
            let answer =
                unsafe { libc::connect(socket.number(), (&raw const address).cast(), length) };
            if answer != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        })?;
        Ok(Self {
            socket: Arc::new(socket),
            decoder: Decoder::default(),
            descriptors: VecDeque::new(),
        })
    }

    /// The socket.
    pub(super) fn socket(&self) -> &Arc<Descriptor> {
        &self.socket
    }

    /// The next whole frame that has arrived.
    ///
    /// # Errors
    /// If what arrives is no stream of frames.
    pub(super) fn next_frame(&mut self) -> io::Result<Option<(u32, Vec<u8>)>> {
        self.decoder
            .next_frame()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// The oldest descriptor received and not taken.
    pub(super) fn take_descriptor(&mut self) -> Option<Descriptor> {
        self.descriptors.pop_front()
    }

    /// Waits until there is something to read, or until `end`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] at the end.
    pub(super) fn wait(&self, end: Instant) -> io::Result<()> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let millis = c_int::try_from(left.as_millis()).unwrap_or(c_int::MAX);
            if poll(&[&*self.socket], millis.saturating_add(1))? != 0 {
                return Ok(());
            }
        }
    }

    /// Waits until there is something to read or `bell` was rung, `longest` milliseconds at most,
    /// -1 for without an end.
    ///
    /// # Errors
    /// If waiting is impossible.
    pub(super) fn wait_or_bell(&self, bell: &Bell, longest: c_int) -> io::Result<Ready> {
        // A bell that the program closed is not waited for; the daemon looks once a second anyway.
        let both = [&*self.socket, &bell.ear];
        let heard = if bell.ear.is_ours() {
            &both[..]
        } else {
            &both[..1]
        };
        let ready = poll(heard, longest)?;
        Ok(Ready {
            socket: ready & 1 != 0,
            bell: ready & 2 != 0,
        })
    }

    /// Reads received data, up to and with the first message that brings descriptors. Bytes
    /// that came before the connection's end are data, and the next call sees the end.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] once the daemon is gone, [`io::ErrorKind::NotConnected`] if
    /// the program closed our socket, [`io::ErrorKind::Other`] if a descriptor was lost: replies
    /// have theirs by their order alone, so those behind it would have others'.
    pub(super) fn receive(&mut self) -> io::Result<()> {
        if !self.socket.is_ours() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut buffer = [0_u8; 4096];
        let mut some = false;
        loop {
            let before = self.descriptors.len();
            match receive_once(&self.socket, &mut buffer, &mut self.descriptors) {
                Ok(0) if some => return Ok(()),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.decoder.push(&buffer[..bytes]);
                    if self.descriptors.len() > before {
                        return Ok(());
                    }
                    some = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::Other => return Err(error),
                Err(_) if some => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

fn address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path is too long for a socket",
        ));
    }
    #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
    {
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = core::ffi::c_char::from_ne_bytes([*byte]);
    }
    let length = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    Ok((address, libc::socklen_t::try_from(length).unwrap_or(0)))
}

/// Bit `i` of the answer says that the `i`-th has something.
fn poll(descriptors: &[&Descriptor], millis: c_int) -> io::Result<u32> {
    let mut asked: Vec<libc::pollfd> = descriptors
        .iter()
        .map(|descriptor| libc::pollfd {
            fd: descriptor.number(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: `asked` outlives the call and is as long as stated.
    let answer = unsafe { libc::poll(asked.as_mut_ptr(), asked.len() as libc::nfds_t, millis) };
    if answer < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted {
            Ok(0)
        } else {
            Err(error)
        };
    }
    let ready = (0..).zip(&asked).filter(|(_, asked)| asked.revents != 0);
    Ok(ready.fold(0, |bits, (at, _): (u32, _)| bits | 1 << at))
}

fn receive_once(
    socket: &Descriptor,
    buffer: &mut [u8],
    descriptors: &mut VecDeque<Descriptor>,
) -> io::Result<usize> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: all-zero is a valid header.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<[u64; CONTROL_WORDS]>() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: everything the header names outlives the call and is as long as it says.
    let bytes = unsafe { libc::recvmsg(socket.number(), &raw mut message, flags) };
    let bytes = usize::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
    let mut is_lost = message.msg_flags & libc::MSG_CTRUNC != 0;
    let mut came = VecDeque::new();
    // SAFETY: the kernel has written well-formed control messages into `control`, and descriptors
    // that are ours from now on.
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(&raw const message);
        while !part.is_null() {
            if (*part).cmsg_level == libc::SOL_SOCKET && (*part).cmsg_type == libc::SCM_RIGHTS {
                let length = (*part).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let numbers = libc::CMSG_DATA(part).cast::<c_int>();
                for at in 0..length / size_of::<c_int>() {
                    match Descriptor::new(ptr::read_unaligned(numbers.add(at))) {
                        Ok(taken) => came.push_back(taken),
                        Err(_) => is_lost = true,
                    }
                }
            }
            part = libc::CMSG_NXTHDR(&raw const message, part);
        }
    }
    if is_lost {
        let text = "the program has no place for a descriptor that the daemon passed";
        return Err(io::Error::other(text));
    }
    descriptors.append(&mut came);
    Ok(bytes)
}

/// Sends a whole frame or nothing, without waiting; `passed` goes with it.
///
/// # Errors
/// If it did not go whole: the stream is of no use then.
pub(super) fn send(
    socket: &Descriptor,
    frame: &[u8],
    passed: Option<&Descriptor>,
) -> io::Result<()> {
    if !socket.is_ours() || passed.is_some_and(|passed| !passed.is_ours()) {
        return Err(io::ErrorKind::NotConnected.into());
    }
    let mut part = libc::iovec {
        iov_base: frame.as_ptr().cast_mut().cast(),
        iov_len: frame.len(),
    };
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: all-zero is a valid header.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if let Some(passed) = passed {
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: `control` is aligned, zeroed and long enough for one descriptor.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(4) as _;
            let part = libc::CMSG_FIRSTHDR(&raw const message);
            (*part).cmsg_level = libc::SOL_SOCKET;
            (*part).cmsg_type = libc::SCM_RIGHTS;
            (*part).cmsg_len = libc::CMSG_LEN(4) as _;
            ptr::write_unaligned(libc::CMSG_DATA(part).cast(), passed.number());
        }
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: everything the header names outlives the call and is as long as it says.
    let sent = unsafe { libc::sendmsg(socket.number(), &raw const message, flags) };
    match usize::try_from(sent) {
        Ok(sent) if sent == frame.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Ends a connection in both directions, so that its reader notices.
pub(super) fn shut(socket: &Descriptor) {
    if socket.is_ours() {
        // SAFETY: no memory is involved.
        unsafe { libc::shutdown(socket.number(), libc::SHUT_RDWR) };
    }
}

/// A bell that any thread rings and the control thread waits for: a pipe, because its ends can be
/// opened again by their names.
#[derive(Debug)]
pub(super) struct Bell {
    ear: Descriptor,
    rope: Descriptor,
}

impl Bell {
    /// A bell that does not ring.
    ///
    /// # Errors
    /// If there are no descriptors to be had.
    pub(super) fn new() -> io::Result<Self> {
        let mut ends = [-1; 2];
        // SAFETY: room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let ear = Descriptor::new(ends[0]);
        let rope = Descriptor::new(ends[1]);
        Ok(Self {
            ear: ear?,
            rope: rope?,
        })
    }

    /// Both ends.
    pub(super) fn ends(&self) -> [&Descriptor; 2] {
        [&self.ear, &self.rope]
    }

    /// The end that is pulled.
    pub(super) fn rope(&self) -> &Descriptor {
        &self.rope
    }

    /// Rings. `false` if the program has closed this end.
    pub(super) fn ring(&self) -> bool {
        pull(&self.rope)
    }

    /// Rings by the name of its rope.
    pub(super) fn ring_at(path: &CStr) {
        let flags = libc::O_WRONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: a C string that outlives the call.
        if let Ok(rope) = Descriptor::new(unsafe { libc::open(path.as_ptr(), flags) }) {
            pull(&rope);
        }
    }

    /// Clears the bell.
    pub(super) fn hush(&self) {
        let mut rung = [0_u8; 256];
        let mut more = self.ear.is_ours();
        while more {
            // SAFETY: bytes that outlive the call, which does not wait.
            let read =
                unsafe { libc::read(self.ear.number(), rung.as_mut_ptr().cast(), rung.len()) };
            more = usize::try_from(read).is_ok_and(|read| read == rung.len());
        }
    }
}

/// `false` if the number means something else by now.
fn pull(rope: &Descriptor) -> bool {
    let one = [1_u8];
    let is_ours = rope.is_ours();
    if is_ours {
        // SAFETY: a byte that outlives the call; a bell that is full has been rung.
        unsafe { libc::write(rope.number(), one.as_ptr().cast(), 1) };
    }
    is_ours
}

/// Sends a whole frame with so many copies of a file's descriptor.
#[cfg(test)]
fn send_copies(socket: c_int, frame: &[u8], file: c_int, copies: usize) {
    let mut part = libc::iovec {
        iov_base: frame.as_ptr().cast_mut().cast(),
        iov_len: frame.len(),
    };
    let mut control = [0_u64; 32];
    let bytes = u32::try_from(4 * copies).expect("few");
    // SAFETY: all-zero is a valid header; `control` is aligned, zeroed and long enough, and all
    // outlives the call.
    let sent = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(bytes) as _;
        let part = libc::CMSG_FIRSTHDR(&raw const message);
        (*part).cmsg_level = libc::SOL_SOCKET;
        (*part).cmsg_type = libc::SCM_RIGHTS;
        (*part).cmsg_len = libc::CMSG_LEN(bytes) as _;
        for at in 0..copies {
            let place = libc::CMSG_DATA(part).cast::<c_int>().add(at);
            ptr::write_unaligned(place, file);
        }
        libc::sendmsg(socket, &raw const message, 0)
    };
    assert_eq!(usize::try_from(sent), Ok(frame.len()));
}

#[cfg(test)]
mod tests;
