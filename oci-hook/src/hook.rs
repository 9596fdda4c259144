//! The stage `createRuntime`, from the state to the mounts.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use gpushare_inject::{Edits, Host, Mount, Request, preload};
use gpushare_protocol::injection::{PRELOADED, installed_library};
use gpushare_protocol::wire::{Injection, Linkage};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::bundle::{self, State};
use crate::host::HostDevices;
use crate::rootfs::Rootfs;
use crate::{Failure, cannot, mounts, program, talk};

/// Where the host's parts are.
#[derive(Debug)]
pub struct Places {
    /// The folder of this version's library.
    pub library: PathBuf,
    /// The daemon's control socket.
    pub daemon: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            library: std::env::current_exe()
                .ok()
                .and_then(|own| installed_library(&own))
                .unwrap_or_else(|| PathBuf::from("/usr/lib/gpushare")),
            daemon: PathBuf::from("/run/gpushare/control.sock"),
        }
    }
}

/// Brings gpushare into the container whose state is on `input`, if it asks for a share. This
/// process must have one thread; it is in the container's mount namespace afterwards.
///
/// # Errors
/// Why the container must not start.
pub fn create_runtime(places: &Places, input: &mut dyn Read) -> Result<(), Failure> {
    let state = State::read(input)?;
    let config = bundle::config(&state.bundle)?;
    let Some(request) = Request::of(&config)? else {
        return Ok(());
    };
    let pid = Pid::from_raw(state.pid).ok_or_else(|| Failure("no first process".to_owned()))?;
    // Held before its namespaces are opened: if it ends in between, the daemon refuses this.
    let init = pidfd_open(pid, PidfdFlags::empty()).map_err(cannot("open the first process"))?;
    let (home, there) = (mounts::namespace(own_pid())?, mounts::namespace(state.pid)?);
    let host_devices = HostDevices::here()?;
    let path = bundle::root(&config, &state.bundle)?;

    mounts::enter(&there)?;
    let rootfs = Rootfs::open(&path, host_devices)?;
    let own = rootfs.small_file(PRELOADED)?;
    let own = own.map_or_else(|| Ok(Vec::new()), |own| preload::own_lines(&own))?;
    let linkage = request
        .program
        .as_ref()
        .map_or(Linkage::Unknown, |(name, folders)| {
            program::linkage(&rootfs, name, folders)
        });

    mounts::enter(&home)?;
    let injection = Injection {
        id: state.id,
        environment: request.environment,
        devices: request.devices,
        labels: request.labels,
        preload: own,
        linkage,
    };
    let folder = talk::inject(&places.daemon, injection, init.as_fd())?;
    let edits = Edits::of(&Host {
        library: places.library.to_string_lossy().into_owned(),
        tenant: folder,
    });
    let detached = edits.mounts.iter().map(mounts::detached);
    let detached: Vec<OwnedFd> = detached.collect::<Result<_, _>>()?;

    mounts::enter(&there)?;
    for (mount, tree) in edits.mounts.iter().zip(&detached) {
        mounts::attach(tree, &target(&rootfs, mount)?, mount.destination)?;
    }
    Ok(())
}

fn target(rootfs: &Rootfs, mount: &Mount) -> Result<OwnedFd, Failure> {
    match mount.is_folder {
        true => rootfs.folder(mount.destination),
        false => rootfs.file(mount.destination),
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}
