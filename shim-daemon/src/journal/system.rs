//! The log as the end of the queue: journald's own socket with a field for each part of an event,
//! or a line of the daemon's log.

use std::fmt::{self, Display, Formatter, Write};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{EventRecord, Fact};
use nix::sys::socket::{MsgFlags, UnixAddr, sendto};

use super::sinks::Sink;

/// What lines of the log that are events are about.
pub const TARGET: &str = "event";

/// Whether standard error is connected to journald, as `JOURNAL_STREAM` says.
#[must_use]
pub fn is_attached() -> bool {
    let is_it = || {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        let error = io::stderr().as_fd().try_clone_to_owned().ok()?;
        let known = std::fs::File::from(error).metadata().ok()?;
        Some(stream == format!("{}:{}", known.dev(), known.ino()))
    };
    is_it().unwrap_or(false)
}

/// Where journald listens.
pub const SOCKET: &str = "/run/systemd/journal/socket";

/// The daemon's own log: journald if that is where standard error goes, else a line of text each.
#[must_use]
pub fn log(socket: &Path) -> Box<dyn Sink> {
    match Journald::if_attached(socket) {
        Some(journald) => Box::new(journald),
        None => Box::new(Lines),
    }
}

/// Events that are a message each.
const FEW: usize = 8;

/// Lines of the daemon's log.
#[derive(Debug)]
struct Lines;

impl Sink for Lines {
    fn take(&mut self, batch: &[Arc<EventRecord>]) {
        // Many at once are one message of many lines: a write each would cost most.
        let size = match batch.len() {
            0..=FEW => 1,
            many => many,
        };
        for records in batch.chunks(size) {
            let mut text = String::new();
            for record in records {
                let _ = writeln!(text, "{}", Line(record));
            }
            let text = text.trim_end_matches('\n');
            match records.iter().any(|record| record.is_grave()) {
                true => tracing::warn!(target: TARGET, "{text}"),
                false => tracing::info!(target: TARGET, "{text}"),
            }
        }
    }
}

/// `served of web on GPU 0: 4 GiB after 2 s`.
struct Line<'a>(&'a EventRecord);

impl Display for Line<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self(record) = self;
        out.write_str(&record.kind)?;
        if let Some(name) = &record.tenant {
            write!(out, " of {name}")?;
        }
        if let Some(device) = &record.device {
            write!(out, " on GPU {}", device.index)?;
        }
        write!(out, ": {}", record.text)
    }
}

/// Longest that a batch waits for journald to read. The journal's files have it already, and wait
/// with the next one.
const WAIT: Duration = Duration::from_millis(500);

/// journald's socket.
#[derive(Debug)]
pub struct Journald {
    socket: UnixDatagram,
    wait: Duration,
    address: UnixAddr,
    /// Events that it was not sent since it last took a whole batch.
    lost: u64,
}

impl Journald {
    /// Sends to this socket.
    ///
    /// # Errors
    /// If there can be no socket.
    pub fn new(path: &Path) -> io::Result<Self> {
        Self::within(path, WAIT)
    }

    /// The same, where a batch waits for so long.
    pub(super) fn within(path: &Path, wait: Duration) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(wait))?;
        Ok(Self {
            socket,
            wait,
            address: UnixAddr::new(path)?,
            lost: 0,
        })
    }

    fn if_attached(path: &Path) -> Option<Self> {
        is_attached().then(|| Self::new(path).ok()).flatten()
    }
}

impl Sink for Journald {
    fn take(&mut self, batch: &[Arc<EventRecord>]) {
        let (until, before) = (Instant::now() + self.wait, self.lost);
        for record in batch {
            // journald that is restarting, or does not read, loses it; the journal's files have it.
            // One that has not read is not waited for until it has taken a whole batch.
            let flags = match self.lost == 0 && Instant::now() < until {
                true => MsgFlags::MSG_NOSIGNAL,
                false => MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
            };
            let fd = self.socket.as_raw_fd();
            let sent = sendto(fd, &fields(record), &self.address, flags);
            self.lost += u64::from(sent.is_err());
        }
        if before > 0 && self.lost == before {
            tracing::warn!(
                events = before,
                "journald did not take events in time, and lacks them; `gpushare events --since` has them"
            );
            self.lost = 0;
        }
    }
}

/// An event in journald's native form.
fn fields(record: &EventRecord) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |name: &str, value: &str| {
        out.extend(name.bytes());
        if value.contains('\n') {
            out.push(b'\n');
            out.extend((value.len() as u64).to_le_bytes());
        } else {
            out.push(b'=');
        }
        out.extend(value.bytes());
        out.push(b'\n');
    };
    put("MESSAGE", &Line(record).to_string());
    put("PRIORITY", if record.is_grave() { "4" } else { "6" });
    put("SYSLOG_IDENTIFIER", "gpushared");
    put("GPUSHARE_EVENT", &record.kind);
    if let Some(tenant) = &record.tenant {
        put("GPUSHARE_TENANT", tenant);
    }
    if let Some(device) = &record.device {
        put("GPUSHARE_GPU", &device.index.to_string());
        put("GPUSHARE_GPU_UUID", &Uuid(device.uuid).to_string());
    }
    for (name, fact) in &record.facts {
        let name = format!("GPUSHARE_{}", name.to_ascii_uppercase());
        match fact {
            Fact::Number(number) => put(&name, &number.to_string()),
            Fact::Word(word) => put(&name, word),
            _ => {}
        }
    }
    out
}
