//! `gpushare suspend` and `gpushare resume`: a tenant's memory leaves the device by command. Both
//! return once that is done.

use crate::args::{Named, Suspend};
use crate::failure::Failure;
use crate::order;
use gpushare_client::TalkError;
use gpushare_protocol::wire::Control;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

/// The first minor of the protocol that stores memory in files.
const SINCE: u16 = 14;

/// Moves a tenant's memory to the host, or to a file.
pub(crate) fn suspend(given: &Suspend) -> Result<ExitCode, Failure> {
    let tenant = given.tenant.clone();
    let Some(folder) = &given.to else {
        return order::give((&tenant, given.json), |daemon| {
            daemon
                .call(&Control::Suspend {
                    tenant: tenant.clone(),
                })
                .map(drop)
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
        if daemon.minor() < SINCE {
            let message = "this daemon is too old to store memory in files".to_owned();
            return Err(TalkError { message });
        }
        let request = Control::SuspendTo {
            tenant: tenant.clone(),
        };
        let id = daemon.ask_with(&request, &[write.as_fd(), read.as_fd()])?;
        daemon.reply(id).map(drop)
    })
}

/// Brings it back.
pub(crate) fn resume(named: &Named) -> Result<ExitCode, Failure> {
    let tenant = named.tenant.clone();
    order::give((&tenant, named.json), |daemon| {
        daemon
            .call(&Control::Resume {
                tenant: tenant.clone(),
            })
            .map(drop)
    })
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
