//! `gpushare suspend` and `gpushare resume`: a tenant's memory leaves the device by command. Both
//! return once that is done.

use crate::args::{Named, Suspend};
use crate::daemon::Has;
use crate::failure::Failure;
use crate::when::local;
use crate::{daemon, names, order, output, why};
use gpushare_client::{Talk, TalkError};
use gpushare_protocol::wire::{Control, EventRecord};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long an order waits before it says what it waits for: longer than the daemon waits for a
/// return that makes no progress (5 s) before an event tells of it.
const SILENT: Duration = Duration::from_secs(7);
/// The events of a tenant's way out and back.
const MOVES: [&str; 6] = [
    "suspended",
    "resumed",
    "left",
    "returned",
    "slow-return",
    "no-return",
];

/// Moves a tenant's memory to the host, or to a file.
pub(crate) fn suspend(given: &Suspend) -> Result<ExitCode, Failure> {
    let tenant = names::of_living(&given.tenant)?;
    let Some(folder) = &given.to else {
        return order::give((&tenant, given.json), |daemon| {
            let id = daemon.ask(&Control::Suspend {
                tenant: tenant.clone(),
            })?;
            awaited(daemon, &tenant, (id, "away"))
        });
    };
    let (write, read) = file_in(folder).map_err(|error| {
        // The file system has no files without a name.
        let unsupported = [Errno::EOPNOTSUPP, Errno::EISDIR, Errno::EINVAL];
        let number = error.raw_os_error().map(Errno::from_raw);
        let hint = match number.is_some_and(|number| unsupported.contains(&number)) {
            true => format!("; take a folder on {}", Control::FILE_SYSTEMS),
            false => String::new(),
        };
        let folder = folder.display();
        Failure::ours(format!("no file can be made in {folder}: {error}{hint}"))
    })?;
    order::give((&tenant, given.json), |daemon| {
        let request = Control::SuspendTo {
            tenant: tenant.clone(),
        };
        let id = daemon.ask_with(&request, &[write.as_fd(), read.as_fd()])?;
        awaited(daemon, &tenant, (id, "away"))
    })
}

/// Brings a tenant's memory back. A return that takes long is waited for, and the command says why.
pub(crate) fn resume(named: &Named) -> Result<ExitCode, Failure> {
    let tenant = names::of_living(&named.tenant)?;
    order::give((&tenant, named.json), |daemon| {
        let id = daemon.ask(&Control::Resume {
            tenant: tenant.clone(),
        })?;
        awaited(daemon, &tenant, (id, "back"))?;
        is_back(daemon, &tenant)
    })
}

/// Waits for the reply to an order. Where that takes long, it says why the tenant is not there yet.
fn awaited(daemon: &mut Talk, tenant: &str, (id, there): (u32, &str)) -> Result<(), TalkError> {
    if daemon.reply_within(id, SILENT)?.is_some() {
        return Ok(());
    }
    let why = keeps_away(daemon, tenant);
    let why = why.map_or_else(String::new, |why| format!(" {why}"));
    output::note(&format!(
        "note: {tenant} is not {there} yet, and this command waits until it is.{why}"
    ));
    daemon.reply(id).map(drop)
}

/// The daemon answers, too, where the tenant has ended instead.
fn is_back(daemon: &mut Talk, tenant: &str) -> Result<(), TalkError> {
    match daemon::has(daemon, tenant)? {
        Has::Nothing => Err(TalkError {
            message: format!("{tenant} has ended before its memory was back"),
        }),
        Has::Ours | Has::AnotherUsers => Ok(()),
    }
}

/// Why a tenant is not back, in sentences: what an event of its return says that nothing has
/// followed, or else where its memory is.
fn keeps_away(daemon: &Talk, tenant: &str) -> Option<String> {
    // On the other connection the reply to the order may come meanwhile.
    let mut daemon = Talk::connect_within(daemon.folder(), Some(SILENT)).ok()?;
    let past = daemon.past().ok()?;
    let is_of_a_move = |record: &&EventRecord| {
        record.tenant.as_deref() == Some(tenant) && MOVES.contains(&&*record.kind)
    };
    let last = past.iter().rev().find(is_of_a_move);
    match last.filter(|last| matches!(&*last.kind, "no-return" | "slow-return")) {
        Some(last) => Some(format!("At {}: {}.", local(last.at_ms), last.text)),
        None => why::away(&mut daemon, tenant).ok()?,
    }
}

/// A file without a name, to read and write, and to read: made here, so that it is this user's, and
/// only where this user may write.
fn file_in(folder: &Path) -> io::Result<(File, File)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let write = options.custom_flags(OFlag::O_TMPFILE.bits()).open(folder)?;
    let read = File::open(format!("/proc/self/fd/{}", write.as_raw_fd()))?;
    Ok((write, read))
}
