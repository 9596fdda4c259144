//! The node daemon, from the command line's side: found, started where there is none, talked to.
//!
//! A machine's own daemon serves `/run/gpushare`. Where there is none, each user has one for each
//! GPU world (the real GPUs, or one software GPU) under their runtime folder; `run` starts it and
//! it leaves with its last tenant.

mod answers;
mod choice;
mod elsewhere;
mod having;
mod holder;
mod left;
mod machine;
mod restarts;
mod start;
mod unserved;

pub(crate) use answers::{answers, those_that_answer, those_that_answer_with};
pub(crate) use choice::for_plan;
pub(crate) use gpushare_client::Talk;
pub(crate) use having::{Has, check_apart, has};
pub(crate) use holder::Holder;
pub(crate) use restarts::Restarts;
pub(crate) use start::is_absent;
pub(crate) use unserved::Unserved;

use crate::failure::Failure;
use crate::output;
use gpushare_protocol::injection::{SOCKET, is_covered, is_injected};
use gpushare_protocol::paths::Root;
use machine::Machine;
use nix::unistd::geteuid;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a machine's own daemon serves.
pub(crate) const NODE: &str = "/run/gpushare";

/// How long a program waits for a daemon that is there and does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as one usually takes until it serves.
    Usual,
    /// So long, for the machine's: the program has been in its queue, for hours perhaps, and the
    /// daemon is looked after. One of its own is started at once, and waited for as usual.
    UpTo(Duration),
}

/// Whether this is a container that gpushare was injected into, by the same sign as the library's.
pub(crate) fn is_container() -> bool {
    is_injected(Path::new(NODE))
}

/// Whether the machine has a daemon, though it may not serve now.
pub(crate) fn is_on_machine() -> bool {
    machine::has_daemon()
}

/// Whether the daemon listens to this container's tenant; the error says why not.
pub(crate) fn hears_container() -> Result<(), String> {
    let socket = Path::new(NODE).join(SOCKET);
    match UnixStream::connect(&socket) {
        Ok(_) => Ok(()),
        Err(_) if is_covered(Path::new(NODE)) => Err(format!("a later mount covers {NODE}")),
        Err(error) => Err(format!("{}: {error}", socket.display())),
    }
}

/// The folder of this user's own daemons, one in it for each GPU world. Says what was passed over.
fn own_daemons(runtime_dir: Option<&Path>) -> Result<PathBuf, Failure> {
    let root = Root::open(runtime_dir, geteuid().as_raw()).map_err(Failure::ours)?;
    if let Some(theirs) = root.passed_over() {
        output::note(&format!("warning: {theirs}"));
    }
    Ok(daemons_in(&root))
}

fn daemons_in(root: &Root) -> PathBuf {
    let base = root.path().parent().unwrap_or_else(|| root.path());
    base.join("d")
}

/// The daemons there are.
#[derive(Debug, Default)]
pub(crate) struct Daemons {
    /// The daemons that serve: the machine's first, then this user's.
    pub(crate) serving: Vec<Talk>,
    /// How the machine's daemon does not, though there is one.
    pub(crate) silent: Vec<Unserved>,
    /// That the machine's daemon is closed to this user. It may serve others.
    pub(crate) closed: Option<Unserved>,
    /// How this user's own do not whose tenants' programs live on.
    pub(crate) died: Vec<Unserved>,
}

impl Daemons {
    /// Those that do not serve.
    fn unserved(&self) -> impl Iterator<Item = &Unserved> {
        self.silent.iter().chain(&self.closed).chain(&self.died)
    }

    /// A note of each that does not serve, beside what others answer.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.unserved().map(|one| format!("note: {}", one.text))
    }
}

/// Every daemon this user can talk to.
pub(crate) fn all() -> Daemons {
    let (mut found, mut has_machines) = (Daemons::default(), true);
    match machine::look() {
        Machine::Serves(talk) => found.serving.push(talk),
        Machine::Silent(silence) => found.silent.push(Unserved::silent(silence)),
        Machine::Refuses(error) => match error.kind() {
            ErrorKind::PermissionDenied => found.closed = Some(Unserved::closed(&error)),
            _ => found.silent.push(Unserved::unlike(&error)),
        },
        Machine::Outside => found.silent.push(Unserved::of(machine::OUTSIDE, "")),
        Machine::None => has_machines = false,
    }
    let own = match own_daemons(runtime_dir().as_deref()) {
        Ok(own) => own,
        Err(theirs) => {
            // Another user's, perhaps: no reason not to talk to the machine's daemon.
            output::note(&format!("warning: ignored: {}", theirs.message));
            return found;
        }
    };
    let mut folders = elsewhere::worlds(&own);
    if !has_machines && !is_named(&own) {
        folders.extend(elsewhere::folders(&own));
    }
    for folder in folders {
        match Talk::connect(&folder) {
            Ok(talk) => found.serving.push(talk),
            Err(error) => found.died.extend(Unserved::own(&folder, &error)),
        }
    }
    found
}

/// Folders of this user's daemons that do not serve and had a tenant of that name whose programs
/// live, with the process of a daemon that does not answer.
pub(crate) fn unserved_with(tenant: &str) -> Vec<(PathBuf, Option<Holder>)> {
    let folders = own_folders().into_iter();
    let folders = folders.filter(|folder| left::lives(folder, tenant, |_| true));
    let silent = folders.filter_map(|folder| {
        let error = Talk::connect(&folder).err()?;
        let holder = Holder::of(&folder, &error);
        Some((folder, holder))
    });
    silent.collect()
}

/// Folders of this user's daemons, which need not serve.
pub(crate) fn own_folders() -> Vec<PathBuf> {
    let Ok(root) = Root::open(runtime_dir().as_deref(), geteuid().as_raw()) else {
        return Vec::new();
    };
    let own = daemons_in(&root);
    let mut folders = elsewhere::worlds(&own);
    if !is_named(&own) {
        folders.extend(elsewhere::folders(&own));
    }
    folders
}

/// A sentence about a daemon of this user's that serves where this shell does not look, because the
/// shell names another runtime folder; `None` where there is none.
pub(crate) fn elsewhere() -> Option<String> {
    let root = Root::open(runtime_dir().as_deref(), geteuid().as_raw()).ok()?;
    elsewhere::told(&daemons_in(&root))
}

fn runtime_dir() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
}

/// Whether these folders are in a runtime folder that the shell names. Where it names none that can
/// be used, a daemon of an earlier login may be in any other.
fn is_named(own: &Path) -> bool {
    runtime_dir().is_some_and(|dir| own.starts_with(dir))
}

/// As [`all`], for a command that means nothing without a daemon.
pub(crate) fn some() -> Result<Vec<Talk>, Failure> {
    let mut notes = Vec::new();
    let found = some_with(&mut notes)?;
    notes.iter().for_each(|note| output::note(note));
    Ok(found)
}

/// The same; what there is to be noted is added to `notes`.
pub(crate) fn some_with(notes: &mut Vec<String>) -> Result<Vec<Talk>, Failure> {
    of(all(), notes)
}

/// The same for a command about the machine: where the machine's daemon does not serve, no other
/// daemon answers for it. A machine's daemon that is closed to this user is passed over, with a
/// note.
pub(crate) fn of_machine_or_own() -> Result<Vec<Talk>, Failure> {
    let found = all();
    if !found.silent.is_empty() && !is_container() {
        return Err(Failure::no_daemon(joined(&found.silent)));
    }
    let mut notes = Vec::new();
    let own = of(found, &mut notes)?;
    notes.iter().for_each(|note| output::note(note));
    Ok(own)
}

fn of(found: Daemons, notes: &mut Vec<String>) -> Result<Vec<Talk>, Failure> {
    if found.serving.is_empty() {
        let unserved: Vec<&Unserved> = found.unserved().collect();
        return Err(Failure::no_daemon(match unserved[..] {
            [] => match elsewhere() {
                None => format!(
                    "no daemon is running: neither at {NODE} nor one of your own; `gpushare run` starts one with its first program"
                ),
                Some(other) => format!(
                    "no daemon is running in this runtime folder (XDG_RUNTIME_DIR), nor at {NODE}; {other}"
                ),
            },
            _ => joined(unserved),
        }));
    }
    notes.extend(found.notes());
    Ok(found.serving)
}

fn joined<'a>(all: impl IntoIterator<Item = &'a Unserved>) -> String {
    let texts: Vec<&str> = all.into_iter().map(|one| &*one.text).collect();
    texts.join("; ")
}
