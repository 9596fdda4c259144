//! A machine that this process has open: its files, its slot, and the operations on its state.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gpushare_cuda_abi::cuda::CUresult;

use super::folder::{self, FolderLock};
use super::layout::{LANES, SLOTS, file_len, served_word, turns_word};
use super::shm::Shm;
pub(crate) use super::state::bytes;
use super::state::{Facts, View};
use super::sys::{self, Hold};
use crate::error::Result;
use crate::exec::turns;
use crate::spec::Spec;

/// How a process takes part in a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// It uses the devices. It has a slot and keeps the machine alive.
    Process,
    /// It only observes (tests). It has a slot and keeps the machine alive too.
    Observer,
}

/// The reason why a machine could not be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// Its name is in use with other values.
    Conflict { wanted: String, found: String },
    /// Every slot is taken.
    Full,
    /// The kernel reported an error.
    Io(io::Error),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Conflict { wanted, found } => {
                let used = beside(found, wanted);
                write!(
                    f,
                    "{}: the devices of this name are in use with other values: {} was requested, {used} is in use; give {used}, or another name",
                    crate::spec::VARIABLE,
                    beside(wanted, found),
                )
            }
            Self::Full => write!(f, "these devices have the maximum of {SLOTS} processes"),
            Self::Io(error) => write!(f, "the devices' shared state: {error}"),
        }
    }
}

/// The pairs of one list of keys and values that the other does not have.
fn beside(pairs: &str, others: &str) -> String {
    let is_new = |pair: &&str| others.split(',').all(|other| other != *pair);
    pairs
        .split(',')
        .filter(is_new)
        .collect::<Vec<_>>()
        .join(",")
}

impl std::error::Error for OpenError {}

impl OpenError {
    /// The result of `cuInit`.
    pub(crate) fn result(&self) -> CUresult {
        match self {
            Self::Conflict { .. } => CUresult::INVALID_VALUE,
            Self::Full => CUresult::DEVICE_UNAVAILABLE,
            Self::Io(_) => CUresult::SYSTEM_NOT_READY,
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A slot and the file description whose lock holds it. Forked children inherit the description, so
/// the process's memory stays held while a child lives.
#[derive(Debug)]
struct Member {
    slot: usize,
    locks: Mutex<Option<OwnedFd>>,
}

/// An open machine.
#[derive(Debug)]
pub(crate) struct Machine {
    spec: Spec,
    folder: PathBuf,
    shm: Shm,
    /// For testing which processes are alive. It must be another file description than the one that
    /// holds this process's slot.
    probe: File,
    data: Vec<File>,
    /// This process's slot, if it has one.
    member: Option<Member>,
}

impl Machine {
    /// Opens the machine that `spec` describes; creates it if no process has it open.
    pub(crate) fn open(spec: &Spec, part: Part) -> std::result::Result<Self, OpenError> {
        let folder = folder::of(spec);
        let lock = folder::lock()?;
        folder::sweep(&lock, &folder);
        if folder::inhabited(&folder) {
            let found = File::open(folder.join("state"))
                .ok()
                .and_then(|file| Shm::spec_of(&file))
                .unwrap_or_default();
            if found != spec.to_string() {
                return Err(OpenError::Conflict {
                    wanted: spec.to_string(),
                    found,
                });
            }
        } else {
            folder::remove(&lock, &folder)?;
            create(&lock, &folder, spec)?;
        }
        let mut machine = Self::attach(spec, folder)?;
        machine.enter(part)?;
        Ok(machine)
    }

    /// Opens an existing machine only to read it: takes no slot and keeps nothing alive.
    pub(crate) fn view(spec: &Spec) -> std::result::Result<Option<Self>, OpenError> {
        Self::view_folder(folder::of(spec), Some(spec))
    }

    /// As [`view`](Self::view), for a named machine with any values.
    pub(crate) fn view_named(name: &str) -> std::result::Result<Option<Self>, OpenError> {
        Self::view_folder(folder::of_name(name), None)
    }

    fn view_folder(
        folder: PathBuf,
        wanted: Option<&Spec>,
    ) -> std::result::Result<Option<Self>, OpenError> {
        if !folder.exists() {
            return Ok(None);
        }
        let _lock = folder::lock()?;
        if !folder::inhabited(&folder) {
            return Ok(None);
        }
        let found = Shm::spec_of(&File::open(folder.join("state"))?).unwrap_or_default();
        if let Some(wanted) = wanted
            .map(Spec::to_string)
            .filter(|wanted| *wanted != found)
        {
            return Err(OpenError::Conflict { wanted, found });
        }
        let spec: Spec = found
            .parse()
            .map_err(|error| OpenError::Io(io::Error::other(error)))?;
        Self::attach(&spec, folder).map(Some)
    }

    fn attach(spec: &Spec, folder: PathBuf) -> std::result::Result<Self, OpenError> {
        let data = (0..spec.count)
            .map(|index| folder::open(&folder.join(format!("memory-{index}")), false));
        Ok(Self {
            spec: spec.clone(),
            shm: Shm::map(&folder::open(&folder.join("state"), false)?, spec)?,
            probe: folder::open(&folder.join("locks"), false)?,
            data: data.collect::<io::Result<_>>()?,
            folder,
            member: None,
        })
    }

    fn enter(&mut self, part: Part) -> std::result::Result<(), OpenError> {
        let locks = OwnedFd::from(folder::open(&self.folder.join("locks"), false)?);
        let claim = |slot: usize| {
            sys::try_lock(locks.as_fd(), slot as u64, 1, Hold::Exclusive).unwrap_or(false)
        };
        let pid = i32::try_from(std::process::id()).expect("a pid fits");
        let slot = self
            .locked(|view, facts| {
                view.reap(facts);
                let slot = view.enter(pid, part == Part::Observer, claim)?;
                for (device, lane) in (0..self.spec.count as usize)
                    .flat_map(|device| (0..LANES).map(move |lane| (device, lane)))
                {
                    self.served(slot, device, lane).store(0, Ordering::Relaxed);
                    turns::evict(self.turns(device, lane), slot as u64 + 1);
                }
                Some(slot)
            })
            .map_err(|_| OpenError::Io(io::Error::other("the state's lock is lost")))?;
        self.member = Some(Member {
            slot: slot.ok_or(OpenError::Full)?,
            locks: Mutex::new(Some(locks)),
        });
        Ok(())
    }

    /// Leaves the machine. The memory of this process is released, unless a forked child holds the
    /// slot. The last process to leave removes the machine.
    pub(crate) fn leave(&self) {
        let Some(member) = &self.member else { return };
        let Some(locks) = member
            .locks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        else {
            return;
        };
        drop(locks);
        let Ok(lock) = folder::lock() else { return };
        if !folder::inhabited(&self.folder) {
            // If the removal fails, the next process that opens a machine tries again.
            let _ = folder::remove(&lock, &self.folder);
        }
    }

    /// The description of the machine.
    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The machine's name, the same in every library of a process. Device UUIDs are derived from
    /// it.
    pub(crate) fn identity(spec: &Spec) -> String {
        folder::of(spec)
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// Whether its folder was removed, or replaced, after it was opened.
    pub(crate) fn is_gone(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        self.probe.metadata().map_or(true, |file| file.nlink() == 0)
    }

    /// The slot of this process.
    pub(crate) fn slot(&self) -> Result<usize> {
        self.member
            .as_ref()
            .map(|member| member.slot)
            .ok_or(CUresult::DEINITIALIZED)
    }

    /// This process's number in the machine, which no other process ever has. Its pid another one
    /// may have, in a namespace of its own or later.
    pub(crate) fn number(&self) -> Result<u32> {
        let slot = self.slot()?;
        self.locked(|view, _| view.header.slots[slot].number)
    }

    /// The file of a device's bytes.
    pub(crate) fn data_fd(&self, device: usize) -> RawFd {
        self.data[device].as_raw_fd()
    }

    /// The words that hold the turns of an engine.
    pub(crate) fn turns(&self, device: usize, lane: usize) -> &[AtomicU64] {
        self.shm.words(turns_word(device, lane), turns::WORDS)
    }

    /// Time that the process in `slot` has had an engine of a device.
    pub(crate) fn served(&self, slot: usize, device: usize, lane: usize) -> &AtomicU64 {
        &self.shm.words(served_word(slot, device, lane), 1)[0]
    }

    /// The folder of its files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether anybody holds the lock of the state now.
    pub(crate) fn is_locked(&self) -> Result<bool> {
        self.shm.is_locked()
    }

    /// Runs `act` on the state under its lock, then erases the pages listed by `act`.
    pub(crate) fn locked<T>(&self, act: impl FnOnce(&mut View<'_>, &dyn Facts) -> T) -> Result<T> {
        self.shm.locked(|view| {
            let result = act(view, self);
            let mut erased = Ok(());
            for (device, run) in std::mem::take(&mut view.erase) {
                let answer = sys::erase(&self.data[device], run);
                view.erased(device, run, answer.is_ok());
                erased = erased.and(answer);
            }
            // An error is better than exposing another process's bytes.
            erased
                .map(|()| result)
                .map_err(|_| CUresult::OPERATING_SYSTEM)
        })?
    }
}

impl Facts for Machine {
    fn process_lives(&self, slot: usize) -> bool {
        sys::is_held(&self.probe, slot as u64, 1)
    }

    fn share_lives(&self, share: u64) -> bool {
        let path = self.folder.join(format!("share-{share}"));
        let lives = folder::open(&path, false).is_ok_and(|file| sys::is_held(&file, 0, 1));
        if !lives {
            let _ = fs::remove_file(path);
        }
        lives
    }
}

/// Creates the files of a machine. Its state becomes valid only when it is complete.
fn create(_lock: &FolderLock, folder: &Path, spec: &Spec) -> io::Result<()> {
    folder::make(folder)?;
    folder::open(&folder.join("locks"), true)?;
    for index in 0..spec.count {
        folder::open(&folder.join(format!("memory-{index}")), true)?.set_len(spec.mem)?;
    }
    let state = folder::open(&folder.join("state"), true)?;
    state.set_len(file_len(spec) as u64)?;
    Shm::map(&state, spec)?.initialise();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_use_is_refused_with_the_keys_that_differ() {
        let error = OpenError::Conflict {
            wanted: "name=lab,count=1,mem=2".to_owned(),
            found: "name=lab,count=1,mem=1".to_owned(),
        };
        let text = error.to_string();
        let words = "mem=2 was requested, mem=1 is in use; give mem=1, or another name";
        assert!(text.ends_with(words) && !text.contains("count"), "{text}");
    }
}
