//! Where a reason is told: the standard error, where no annotation has a file for it, and the
//! machine's log.
//!
//! crun sends a hook's standard error to `/dev/null`, or to the file of the annotation
//! `run.oci.hooks.stderr`, which it opens on the host. Podman before 4.5.1 takes that annotation
//! over from an image, CRI-O from a pod, and a reason has words of its author in it ([ADR
//! 265](../../docs/adr/0265-a-refusal-is-told-where-no-image-chose.md)).

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::fs::{FileType, FsWord, fstat, fstatfs};

use crate::Failure;

/// Where the machine's log hears, syslog(3).
const LOG: &str = "/dev/log";
/// The beginning of its lines.
const NAME: &str = "gpushare-oci-hook";
/// A daemon's warning and a daemon's error there: the facility 3, times 8, and 4 or 3.
const WARNING: u8 = 28;
const ERROR: u8 = 27;
/// The most bytes of a line there: those that each receiver should take, RFC 5424, 6.1.
const MOST: usize = 2048;
/// The file system of pipes without a name, `linux/magic.h`.
const PIPES: FsWord = 0x5049_5045;

/// Writes a line to the standard error, unless that is something that has a name on the host: a
/// file, or a pipe. A terminal has a person before it.
pub fn on_standard_error(line: &str) {
    let error = std::io::stderr();
    if may_be_told(error.as_fd()) {
        let _ = writeln!(error.lock(), "{line}");
    }
}

fn may_be_told(output: impl AsFd) -> bool {
    let kind = fstat(&output).map(|found| FileType::from_raw_mode(found.st_mode));
    match kind {
        // None can be opened by a path.
        Ok(FileType::Socket) => true,
        Ok(FileType::Fifo) => fstatfs(&output).is_ok_and(|found| found.f_type == PIPES),
        Ok(FileType::CharacterDevice) => output.as_fd().is_terminal(),
        _ => false,
    }
}

/// The machine's log, connected while this process is in the machine's mount namespace. Where
/// nothing hears it, nothing is said.
#[derive(Debug)]
pub struct Log(Option<UnixDatagram>);

impl Log {
    /// The log of the mount namespace that this process is in.
    #[must_use]
    pub fn here() -> Self {
        let connected = || {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.connect(Path::new(LOG))?;
            Ok::<_, std::io::Error>(socket)
        };
        Self(connected().ok())
    }

    /// Says that a container starts, and what may become of it.
    pub fn warns(&self, text: &str) {
        self.say(WARNING, text);
    }

    /// Says that a container is refused: its id, where that is known.
    pub fn refuses(&self, id: Option<&str>, why: &Failure) {
        let who = id.map_or_else(|| "a container".to_owned(), |id| format!("container {id}"));
        self.say(ERROR, &format!("{who} is refused: {why}"));
    }

    fn say(&self, priority: u8, text: &str) {
        let Some(socket) = &self.0 else { return };
        let line = format!("<{priority}>{NAME}: {text}");
        let end = (0..=line.len().min(MOST)).rfind(|end| line.is_char_boundary(*end));
        let _ = socket.send(&line.as_bytes()[..end.unwrap_or(0)]);
    }
}
