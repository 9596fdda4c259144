//! The daemon's control socket: one request, with the container's first process as a descriptor.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use gpushare_protocol::wire::{
    Control, ControlReply, Decoder, ErrorCode, Hello, Injection, MAGIC, MAJOR, decode, encode,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::Failure;

/// How long the daemon is waited for: it starts, recovers or is being replaced. Less than the time
/// that a runtime gives the hook.
const PATIENCE: Duration = Duration::from_secs(4);
/// Between attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// The first minor of the protocol that knows containers.
const SINCE: u16 = 7;

/// Registers a container. Returns the folder of its socket.
///
/// # Errors
/// The daemon's refusal, or that no daemon answers.
pub fn inject(
    socket: &Path,
    injection: Injection,
    init: BorrowedFd<'_>,
) -> Result<String, Failure> {
    let end = Instant::now() + PATIENCE;
    let request = Control::Inject(injection);
    loop {
        let why = match attempt(socket, &request, init, end) {
            Ok(Answer::Folder(folder)) => return Ok(folder),
            Ok(Answer::Refused(why)) => return Err(Failure(why)),
            Ok(Answer::Later(why)) => why,
            Err(error) => format!(
                "the daemon at {} does not answer ({error}); is gpushared running?",
                socket.display()
            ),
        };
        if Instant::now() + PAUSE >= end {
            return Err(Failure(why));
        }
        std::thread::sleep(PAUSE);
    }
}

enum Answer {
    Folder(String),
    Refused(String),
    Later(String),
}

fn attempt(
    path: &Path,
    request: &Control,
    init: BorrowedFd<'_>,
    end: Instant,
) -> io::Result<Answer> {
    let mut socket = UnixStream::connect(path)?;
    let left = end.saturating_duration_since(Instant::now());
    let left = left.max(PAUSE);
    socket.set_read_timeout(Some(left))?;
    socket.set_write_timeout(Some(left))?;
    let mut decoder = Decoder::default();
    let mut frame = Vec::new();
    encode(0, &Hello::of_this_build(0), &mut frame).map_err(io::Error::other)?;
    socket.write_all(&frame)?;
    let hello: Hello =
        decode(0, &heard(&mut socket, &mut decoder, 0)?).map_err(io::Error::other)?;
    if hello.magic != MAGIC || hello.major != MAJOR || hello.minor < SINCE {
        return Ok(Answer::Refused(format!(
            "the daemon speaks protocol {}.{}, and containers need {MAJOR}.{SINCE}: update gpushared",
            hello.major, hello.minor
        )));
    }
    frame.clear();
    encode(1, request, &mut frame)
        .map_err(|error| io::Error::other(format!("the request is too long: {error}")))?;
    send(&mut socket, &frame, init)?;
    let reply: ControlReply =
        decode(1, &heard(&mut socket, &mut decoder, 1)?).map_err(io::Error::other)?;
    Ok(match reply {
        ControlReply::Created { folder, .. } => Answer::Folder(folder),
        ControlReply::Error(error) if error.can_retry && error.code == ErrorCode::Full => {
            Answer::Later(error.message)
        }
        ControlReply::Error(error) => Answer::Refused(error.message),
        _ => Answer::Refused("the daemon's answer makes no sense to this version".to_owned()),
    })
}

/// Sends a frame; the descriptor goes with its first byte.
fn send(socket: &mut UnixStream, frame: &[u8], init: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut passed = SendAncillaryBuffer::new(&mut space);
    let descriptors = [init];
    if !passed.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    let sent = sendmsg(
        socket.as_fd(),
        &[IoSlice::new(frame)],
        &mut passed,
        SendFlags::NOSIGNAL,
    )?;
    socket.write_all(frame.get(sent..).unwrap_or(&[]))
}

/// The body of the answer to `id`.
fn heard(socket: &mut UnixStream, decoder: &mut Decoder, id: u32) -> io::Result<Vec<u8>> {
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
