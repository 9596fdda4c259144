//! The stage `createRuntime`, from the state to the mounts.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use gpushare_inject::{Asks, Class, Mount, Place, Request, preload};
use gpushare_protocol::injection::{
    CLASSES, FOLDER, LIBRARY_NAME, MANDATORY, MARK, PRELOAD, installed_library, version_in,
};
use gpushare_protocol::wire::{Injection, Linkage};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;

use crate::bundle::{self, State};
use crate::host::HostDevices;
use crate::rootfs::Rootfs;
use crate::talk::{Daemon, takes_maxima};
use crate::{Failure, cannot, mounts, program, selinux};

/// The folder in which programs of Nix, and their dynamic linkers, are.
const NIX_STORE: &str = "/nix/store";

/// Where the host's parts are.
#[derive(Debug)]
pub struct Places {
    /// The folder of this version's library, where it is not the one that is installed beside this
    /// program.
    pub library: Option<PathBuf>,
    /// The daemon's control socket.
    pub daemon: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            library: None,
            daemon: PathBuf::from("/run/gpushare/control.sock"),
        }
    }
}

impl Places {
    /// The arguments of a hook, without the stage.
    #[must_use]
    pub fn of(arguments: &[String]) -> Self {
        let value = |name: &str| {
            let at = arguments.iter().rposition(|argument| argument == name)?;
            arguments.get(at + 1).map(PathBuf::from)
        };
        let places = Self::default();
        Self {
            library: value("--library"),
            daemon: value("--daemon").unwrap_or(places.daemon),
        }
    }

    /// Whether this container is a matter of the daemon's: it asks by an annotation, or it is of no
    /// class and asks by a variable, or has a GPU where the daemon has hooks ask about those that
    /// ask for nothing.
    #[must_use]
    pub fn concerns(&self, request: &Request) -> bool {
        match request.asks {
            Asks::ByAnnotations => true,
            Asks::ByVariables => self.class_of(request).is_none(),
            Asks::Nothing => self.has_mandatory() && self.class_of(request).is_none(),
        }
    }

    /// Whether the daemon has hooks ask about containers that ask for nothing.
    fn has_mandatory(&self) -> bool {
        let own = self.daemon.parent();
        own.is_some_and(|own| fs::symlink_metadata(own.join(MANDATORY)).is_ok())
    }

    /// The class of this daemon's whose limits hold for the container, whatever its variables say.
    fn class_of<'a>(&self, request: &'a Request) -> Option<&'a Class> {
        let own = self.daemon.parent()?;
        let is_ours = |class: &&Class| {
            let classes = Path::new(&class.folder).parent();
            classes.is_some_and(|classes| is_same(classes, &own.join(CLASSES)))
                && mounts::is_library(&class.library).is_ok()
        };
        request.class.as_ref().filter(is_ours)
    }

    fn library(&self) -> PathBuf {
        let beside = || installed_library(&std::env::current_exe().ok()?);
        let library = self.library.as_deref().map(version_in).or_else(beside);
        library.unwrap_or_else(|| PathBuf::from("/usr/lib/gpushare"))
    }
}

/// A container that must not start.
#[derive(Debug)]
pub struct Refused {
    /// Its id, where that is known.
    pub id: Option<String>,
    /// Why.
    pub why: Failure,
    /// An annotation names a file to which the runtime sends this hook's output.
    pub is_overheard: bool,
}

impl From<Failure> for Refused {
    fn from(why: Failure) -> Self {
        Self {
            id: None,
            why,
            is_overheard: false,
        }
    }
}

/// Brings gpushare into the container whose state is on `input`, if it asks for a share, or if the
/// node gives it one. This process must have one thread; it may be in the container's mount
/// namespace afterwards.
///
/// # Errors
/// Why the container must not start.
pub fn create_runtime(places: &Places, input: &mut dyn Read) -> Result<(), Refused> {
    let state = State::read(input)?;
    let refused = |why, is_overheard| Refused {
        id: Some(state.id.clone()),
        why,
        is_overheard,
    };
    let config = bundle::config(&state.bundle).map_err(|why| refused(why, false))?;
    created(places, &state, &config)
        .map_err(|why| refused(why, gpushare_inject::output_of_hooks(&config).is_some()))
}

fn created(places: &Places, state: &State, config: &Value) -> Result<(), Failure> {
    let request = Request::of(config)?.filter(|request| places.concerns(request));
    let Some(request) = request else {
        return Ok(());
    };
    if let Some(class) = places.class_of(&request) {
        return Err(of_two_ways(class));
    }
    let pid = Pid::from_raw(state.pid).ok_or_else(|| Failure("no first process".to_owned()))?;
    // Its mount namespace is entered by this descriptor: never that of a later process of that pid.
    let init = pidfd_open(pid, PidfdFlags::empty()).map_err(cannot("open the first process"))?;
    let daemon = &places.daemon;
    if request.asks == Asks::Nothing && !takes_maxima(daemon, &state.id, &request, init.as_fd())? {
        return Ok(());
    }
    // Connected while the daemon's socket is in sight, and so that the daemon is awake when it is
    // asked.
    let daemon = Daemon::reach(daemon);
    let home = mounts::own_namespace()?;
    let host_devices = HostDevices::here()?;
    let path = bundle::root(config, &state.bundle)?;

    mounts::enter_that_of(&init)?;
    let rootfs = Rootfs::open(&path, host_devices)?;
    // Where no program of Nix is, its file would only be one more in the image.
    let has_nix = rootfs.has_folder(NIX_STORE);
    let is_wanted = |place: &Place| has_nix || *place != Place::PRELOAD_BY_NIX;
    let wanted: Vec<Place> = Place::ALL.into_iter().filter(is_wanted).collect();
    let mut own = Vec::new();
    for file in wanted.iter().filter(|place| !place.is_folder) {
        let text = rootfs.small_file(file.path);
        if let Some(text) = text.map_err(|why| of_two_hooks(&rootfs, why))? {
            own.extend(preload::own_lines(&text)?);
        }
    }
    let linkage = request
        .program
        .as_ref()
        .map_or(Linkage::Unknown, |(name, folders)| {
            program::linkage(&rootfs, name, folders)
        });
    let injection = Injection {
        id: state.id.clone(),
        environment: request.environment,
        devices: request.devices,
        labels: request.labels,
        preload: own,
        linkage,
    };
    let asked = daemon.ask(injection, init.as_fd());
    // The daemon decides meanwhile.
    let targets = wanted.iter().map(|place| target(&rootfs, *place));
    let targets: Vec<OwnedFd> = targets.collect::<Result<_, _>>()?;

    mounts::enter(&home)?;
    let library = places.library();
    let mut trees = vec![mounts::detached(&Mount::of_library(
        &library.to_string_lossy(),
    ))?];
    let folder = asked.answer()?;
    let of_tenant = Mount::of_tenant(&folder);
    let preload = Path::new(&folder).join(PRELOAD);
    selinux::may_read(config, &[&library.join(LIBRARY_NAME), &preload])?;
    for mount in of_tenant.iter().filter(|mount| is_wanted(&mount.place)) {
        trees.push(mounts::detached(mount)?);
    }

    mounts::enter_that_of(&init)?;
    for ((tree, target), place) in trees.iter().zip(&targets).zip(wanted) {
        mounts::attach(tree, target, place.path)?;
    }
    Ok(())
}

/// Whether two paths are of one folder, such as `/run` and `/var/run`.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok();
    one == other || real(one).is_some_and(|found| real(other) == Some(found))
}

/// Why a container of a class is refused that asks by annotation.
fn of_two_ways(class: &Class) -> Failure {
    Failure(format!(
        "this container has the class gpushare.io/gpu={}, whose limits hold for it, and asks by annotation too; use one of the two",
        class.name()
    ))
}

/// Why a container's own preload file is refused, where a hook of ours has put its mounts there
/// before.
fn of_two_hooks(rootfs: &Rootfs, why: Failure) -> Failure {
    match rootfs.head(&format!("{FOLDER}/{MARK}"), 1) {
        None => why,
        Some(_) => Failure(
            "this container is registered already: its hook runs twice; remove one of its hooks, or its runtime wrapper"
                .to_owned(),
        ),
    }
}

fn target(rootfs: &Rootfs, place: Place) -> Result<OwnedFd, Failure> {
    match place.is_folder {
        true => rootfs.folder(place.path),
        false => rootfs.file(place.path),
    }
}
