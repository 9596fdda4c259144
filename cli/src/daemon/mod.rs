//! The node daemon, from the command line's side: found, started where there is none, talked to.
//!
//! A machine's own daemon serves `/run/gpushare`. Where there is none, each user has one for each GPU world (the real
//! GPUs, or one software GPU) under their runtime folder; `run` starts it and it leaves with its last container.

mod choice;
mod start;
mod talk;

pub(crate) use choice::for_plan;
pub(crate) use talk::Talk;

use crate::failure::Failure;
use gpushare_protocol::paths::Root;
use nix::unistd::geteuid;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a machine's own daemon serves.
const NODE: &str = "/run/gpushare";
/// The control socket in a daemon's folder.
const CONTROL: &str = "control.sock";

/// The folder of this user's own daemons, one in it for each GPU world.
fn own_daemons(runtime_dir: Option<&Path>) -> Result<PathBuf, Failure> {
    let root = Root::open(runtime_dir, geteuid().as_raw()).map_err(Failure::ours)?;
    let base = root.path().parent().unwrap_or_else(|| root.path());
    Ok(base.join("d"))
}

/// Every daemon this user can talk to: the machine's, then their own.
pub(crate) fn all() -> Result<Vec<Talk>, Failure> {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own_daemons(runtime_dir.as_deref())?;
    let worlds = fs::read_dir(&own).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = worlds.map(|world| world.path()).collect();
    folders.sort();
    folders.insert(0, PathBuf::from(NODE));
    let reached = folders
        .iter()
        .filter_map(|folder| Talk::connect(folder).ok());
    Ok(reached.collect())
}

/// As [`all`], for a command that means nothing without a daemon.
pub(crate) fn some() -> Result<Vec<Talk>, Failure> {
    let daemons = all()?;
    if daemons.is_empty() {
        return Err(Failure::ours(format!(
            "no daemon is running: neither at {NODE} nor one of your own; `gpushare run` starts one with its first program"
        )));
    }
    Ok(daemons)
}
