//! Diagnostics for `GPUSHARE_LOG=<file descriptor>` or `=<path>`; silent without it.
//!
//! The subscriber formats one line into a buffer on the stack and hands it to one `write`: no
//! thread-locals, no locks, no heap, so that a hook may log from a destructor, a signal handler or
//! a forked child.

use core::ffi::c_int;
use core::fmt::{self, Write as _};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt as _;

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use crate::guest::background::Uncancelled;
use crate::guest::descriptor::identity;
use crate::guest::sys;

/// Where lines go, -1 for nowhere.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
/// Device and inode of that: a program may close it and have another file under its number, which
/// is not ours to write to.
static FILE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Where lines go, if anywhere.
pub(crate) fn descriptor() -> Option<c_int> {
    Some(DESCRIPTOR.load(Ordering::Acquire)).filter(|number| *number >= 0)
}

fn is_ours(number: c_int) -> bool {
    let (device, inode) = (&FILE[0], &FILE[1]);
    let file = (
        device.load(Ordering::Relaxed),
        inode.load(Ordering::Relaxed),
    );
    identity(number).is_ok_and(|now| now == file)
}

/// Opens what `GPUSHARE_LOG` names. Anything that cannot be opened leaves the library silent.
pub(crate) fn open() {
    if DESCRIPTOR.load(Ordering::Acquire) >= 0 {
        return;
    }
    let Some(descriptor) = std::env::var_os("GPUSHARE_LOG").and_then(descriptor_for) else {
        return;
    };
    let Ok((device, inode)) = identity(descriptor) else {
        return;
    };
    FILE[0].store(device, Ordering::Relaxed);
    FILE[1].store(inode, Ordering::Relaxed);
    DESCRIPTOR.store(descriptor, Ordering::Release);
    // An error means that it is set already, by this process's parent before a fork: the same one.
    let _ = tracing::dispatcher::set_global_default(tracing::Dispatch::new(Log));
}

fn descriptor_for(value: std::ffi::OsString) -> Option<c_int> {
    if let Some(number) = value.to_str().and_then(|text| text.parse().ok()) {
        return Some(number);
    }
    let path = CString::new(value.into_vec())
        .ok()
        .filter(|path| !path.is_empty())?;
    // It stays open for the life of the process.
    let opened = sys::open_to_append(&path);
    (opened >= 0).then_some(opened)
}

struct Log;

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line {
            bytes: [0; 1024],
            used: 0,
        };
        let level = event.metadata().level();
        let _ = write!(line, "gpushare[{}] {level}", std::process::id());
        event.record(&mut line);
        line.end();
        let descriptor = DESCRIPTOR.load(Ordering::Acquire);
        if is_ours(descriptor) {
            let _uncancelled = Uncancelled::begin();
            // A failed or short write loses a line of the log, nothing else.
            sys::write(descriptor, &line.bytes[..line.used]);
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// One line under construction; the excess is cut off.
struct Line {
    bytes: [u8; 1024],
    used: usize,
}

impl Line {
    fn end(&mut self) {
        let at = self.used.min(self.bytes.len() - 1);
        self.bytes[at] = b'\n';
        self.used = at + 1;
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.used..];
        let taken = text.len().min(room.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.used += taken;
        Ok(())
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self, ": {value:?}"),
            name => write!(self, " {name}={value:?}"),
        };
    }
}
