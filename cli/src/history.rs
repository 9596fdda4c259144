//! Past events: from the daemons that serve, and from the journals, which outlive them.

mod host;
mod siblings;

use crate::daemon::{self, Talk};
use crate::failure::Failure;
use crate::output;
use crate::settings::Environment;
use gpushare_journal::merged;
use gpushare_protocol::wire::EventRecord;
use nix::unistd::{AccessFlags, User, access, geteuid};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where the machine's daemon keeps its journal.
pub(crate) const MACHINE: &str = "/var/lib/gpushare";

/// Where this user's daemons have theirs: the folder for state of the XDG base directories. Where
/// the environment names no home, as that of many services and containers, it is the user's own.
pub(crate) fn own_state(environment: &Environment) -> Option<PathBuf> {
    state_of(environment, home)
}

/// This user's home by the list of users, if a journal can be in it.
fn home() -> Option<PathBuf> {
    let home = User::from_uid(geteuid()).ok().flatten()?.dir;
    let usable = AccessFlags::W_OK | AccessFlags::X_OK;
    (home.is_absolute() && access(&home, usable).is_ok()).then_some(home)
}

fn state_of(environment: &Environment, home: impl FnOnce() -> Option<PathBuf>) -> Option<PathBuf> {
    let folder = |name: &str| {
        let folder = environment.get(OsStr::new(name)).map(PathBuf::from);
        folder.filter(|folder| folder.is_absolute())
    };
    let state = folder("XDG_STATE_HOME")
        .or_else(|| Some(folder("HOME").or_else(home)?.join(".local/state")));
    Some(state?.join("gpushare"))
}

/// Where a daemon of this user's on this machine keeps its journal.
pub(crate) fn own_journal(environment: &Environment) -> Option<PathBuf> {
    Some(host::journals(own_state(environment)?).0)
}

/// Why a daemon of this user's could keep no journal, where that is so: what happens is known only
/// while it runs.
pub(crate) fn unwritable(environment: &Environment) -> Option<String> {
    let journal = own_journal(environment)?;
    let there = journal.ancestors().find(|path| path.is_dir())?;
    let error = tempfile::tempfile_in(there).and_then(takes_a_block).err()?;
    Some(format!(
        "the journal of your own daemons, in {}, cannot be written ({error})",
        journal.display()
    ))
}

/// Whether there is room for some lines: a full disk takes an empty file.
fn takes_a_block(mut file: File) -> io::Result<()> {
    file.write_all(&[0; 4096])
}

/// A daemon begins to keep its journal there: journals of machines that are no more make room.
pub(crate) fn begin(journal: &Path) {
    siblings::bound(journal);
}

/// Everything since then that is still known, in order. Of the daemon `whole`, all that it
/// remembers, whatever its label.
pub(crate) fn read(
    daemons: &mut Vec<Talk>,
    since_ms: u64,
    whole: Option<u64>,
) -> Result<Vec<EventRecord>, Failure> {
    // The daemons first: what they have told is in the journals a moment later.
    let told = daemon::those_that_answer(daemons, Talk::past)?;
    let told = told.into_iter().flatten().collect();
    with_journals(told, !daemons.is_empty(), (since_ms, whole))
}

/// The events of the journals, for a caller to which serving daemons tell their own.
pub(crate) fn beside_daemons(since_ms: u64) -> Result<Vec<EventRecord>, Failure> {
    with_journals(Vec::new(), true, (since_ms, None))
}

/// The events that daemons told, and those of the journals; `served` if a daemon serves.
fn with_journals(
    mut all: Vec<EventRecord>,
    served: bool,
    (since_ms, whole): (u64, Option<u64>),
) -> Result<Vec<EventRecord>, Failure> {
    let mut failed = Vec::new();
    for folder in journals() {
        let past = match gpushare_journal::read(&folder, since_ms) {
            Ok(past) => past,
            Err(error) => {
                failed.push(format!(
                    "cannot read the journal in {}: {error}",
                    folder.display()
                ));
                continue;
            }
        };
        if past.unreadable > 0 {
            output::note(&format!(
                "note: {} lines of the journal in {} are left out: torn by a crash, or of a later version",
                past.unreadable,
                folder.display()
            ));
        }
        all.extend(past.records);
    }
    // A daemon or another journal that answered is enough: the rest is a note.
    if !served && all.is_empty() && !failed.is_empty() {
        return Err(Failure::ours(failed.join("; ")));
    }
    for text in failed {
        output::note(&format!("note: {text}; its events are left out"));
    }
    Ok(merged(all, since_ms, whole))
}

/// The folders of the journals there may be.
pub(crate) fn journals() -> Vec<PathBuf> {
    let environment: Environment = std::env::vars_os().collect();
    let own = own_state(&environment).map(|state| host::journals(state).1);
    let machine = std::iter::once(PathBuf::from(MACHINE));
    // Where a daemon keeps it that was started without a home.
    let beside = daemon::own_folders().into_iter();
    let beside = beside.map(|folder| folder.join("state"));
    let beside = beside.filter(|state| state.is_dir());
    machine
        .chain(own.into_iter().flatten())
        .chain(beside)
        .collect()
}

/// The daemons that serve. If there is none, the reason is only noted where there are journals to
/// read instead; else it is the error.
pub(crate) fn daemons() -> Result<Vec<Talk>, Failure> {
    match daemon::some() {
        Ok(daemons) => Ok(daemons),
        Err(failure) if journals().iter().any(|folder| folder.is_dir()) => {
            output::note(&format!("note: {}", failure.message));
            Ok(Vec::new())
        }
        Err(mut failure) => {
            let own = own_journal(&std::env::vars_os().collect());
            if let Some((own, error)) =
                own.and_then(|own| Some((own.clone(), own.read_dir().err()?)))
            {
                let text = format!("; and there is no journal in {} ({error})", own.display());
                failure.message.push_str(&text);
            }
            Err(failure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_where_no_file_can_be_made_is_told_and_another_is_not() {
        let why = |state: &str| unwritable(&[("XDG_STATE_HOME".into(), state.into())].into());
        let told = why("/proc").unwrap();
        assert!(told.contains("/proc/gpushare"), "{told}");
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(why(&dir.path().join("new").to_string_lossy()), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(unwritable(&Environment::new()), None);
    }

    #[test]
    fn a_full_disk_takes_no_block_and_another_does() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let refused = takes_a_block(full).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        takes_a_block(tempfile::tempfile().unwrap()).unwrap();
    }

    #[test]
    fn state_lies_where_the_base_directories_say() {
        let folder = |pairs: &[(&str, &str)]| {
            let environment = pairs
                .iter()
                .map(|(name, value)| (name.into(), value.into()));
            state_of(&environment.collect(), || None)
                .map(|path| path.to_string_lossy().into_owned())
        };
        let home = ("HOME", "/home/a");
        assert_eq!(
            folder(&[home]).as_deref(),
            Some("/home/a/.local/state/gpushare")
        );
        assert_eq!(
            folder(&[home, ("XDG_STATE_HOME", "/s")]).as_deref(),
            Some("/s/gpushare")
        );
        assert_eq!(
            folder(&[home, ("XDG_STATE_HOME", "s")]).as_deref(),
            Some("/home/a/.local/state/gpushare")
        );
        assert_eq!(folder(&[]), None);
        let own = || Some(PathBuf::from("/home/b"));
        let without = state_of(&Environment::new(), own);
        assert_eq!(without, Some("/home/b/.local/state/gpushare".into()));
        let named = [("HOME".into(), "/home/a".into())].into();
        assert_eq!(
            state_of(&named, own),
            Some("/home/a/.local/state/gpushare".into())
        );
    }
}
