//! Which daemon has a tenant: so that orders go to the right one, and no second books are begun.

use super::start::is_absent;
use super::{NODE, Talk, daemons_in, left, machine};
use crate::failure::Failure;
use crate::output;
use crate::plan::Plan;
use gpushare_client::TalkError;
use gpushare_protocol::paths::Root;
use machine::Machine;
use nix::unistd::geteuid;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;

/// The tenant that a daemon has under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Has {
    /// No tenant.
    Nothing,
    /// A tenant of another user, to whom this one's orders are refused.
    AnotherUsers,
    /// A tenant that takes this user's orders.
    Ours,
}

impl Has {
    /// By the owners that a daemon lists for the name; `None` is the machine, or the user of a
    /// private daemon.
    fn by(owners: impl IntoIterator<Item = Option<u32>>, is_private: bool, user: u32) -> Self {
        let may = |owner: Option<u32>| is_private || user == 0 || owner == Some(user);
        let all = owners.into_iter().map(|owner| match may(owner) {
            true => Self::Ours,
            false => Self::AnotherUsers,
        });
        all.last().unwrap_or(Self::Nothing)
    }
}

/// Asks a daemon.
pub(crate) fn has(daemon: &mut Talk, name: &str) -> Result<Has, TalkError> {
    has_on(daemon, name, |_| true)
}

/// The same of tenants on one of the devices that are meant.
fn has_on(
    daemon: &mut Talk,
    name: &str,
    is_meant: impl Fn([u8; 16]) -> bool,
) -> Result<Has, TalkError> {
    let (status, tenants) = (daemon.status()?, daemon.tenants()?);
    let is_private = daemon.folder() != Path::new(NODE);
    let status = status.iter().filter(|row| {
        let asks = &row.asks;
        row.name == name && (asks.is_empty() || asks.iter().any(|ask| is_meant(ask.device)))
    });
    let owners: Vec<_> = status.map(|row| row.owner).collect();
    let mut tenants = tenants.iter();
    let is_listed = tenants.any(|row| row.name == name && is_meant(row.device));
    let unknown = (owners.is_empty() && is_listed).then_some(None);
    let owners = owners.into_iter().chain(unknown);
    Ok(Has::by(owners, is_private, geteuid().as_raw()))
}

/// Refuses to keep the books of the plan's tenant in files where a daemon keeps them for one of its
/// GPUs; `instead` says what to do. On other GPUs the name has a limit of its own. Of a name that
/// no other process can know there are no other books.
pub(crate) fn check_apart(plan: &Plan, instead: &str) -> Result<(), Failure> {
    if plan.tenant.is_new() || plan.limits.disabled() {
        return Ok(());
    }
    let name = plan.tenant.name.as_str();
    let refused = |keeper: &str| {
        Failure::ours(format!(
            "tenant {name} is kept by {keeper}, and two kinds of books would each grant its whole limit; {instead}, or give another \
             --name"
        ))
    };
    let is_meant = |uuid| plan.devices.iter().any(|device| device.uuid == uuid);
    let listed = |mut daemon: Talk| {
        let keeper = format!("the daemon at {}", daemon.folder().display());
        match has_on(&mut daemon, name, is_meant) {
            Ok(Has::Ours) => Err(refused(&keeper)),
            Ok(Has::Nothing | Has::AnotherUsers) => Ok(()),
            Err(lost) => {
                note_unknown(name, &lost.message);
                Ok(())
            }
        }
    };
    if plan.gpu.is_real() {
        match machine::look() {
            Machine::Serves(daemon) => listed(daemon)?,
            Machine::Silent(silence) => note_unknown(name, &silence.to_string()),
            Machine::Refuses(error) if error.kind() != ErrorKind::PermissionDenied => {
                note_unknown(name, &error.to_string());
            }
            // It has no tenant of this user; or there is none.
            Machine::Refuses(_) | Machine::None | Machine::Outside => {}
        }
    }
    let runtime_dir = plan.environment.get(OsStr::new("XDG_RUNTIME_DIR"));
    let Ok(root) = Root::open(runtime_dir.map(Path::new), geteuid().as_raw()) else {
        return Ok(());
    };
    let folder = daemons_in(&root).join(plan.gpu.world(name));
    match Talk::connect(&folder) {
        Ok(daemon) => listed(daemon),
        Err(_) if !left::lives(&folder, name, is_meant) => Ok(()),
        Err(error) if is_absent(&error) => Err(refused(&format!(
            "a daemon of yours that has ended, at {}, for the next one",
            folder.display()
        ))),
        Err(_) => Err(refused(&format!(
            "your own daemon at {}, which does not answer",
            folder.display()
        ))),
    }
}

fn note_unknown(name: &str, why: &str) {
    output::note(&format!(
        "note: whether a daemon has tenant {name}, and so grants its limit a second time, is not known: {why}"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_taken_from_the_owner_and_from_root() {
        for (owners, is_private, user, has) in [
            (&[][..], false, 5, Has::Nothing),
            (&[], true, 0, Has::Nothing),
            (&[Some(5)], false, 5, Has::Ours),
            (&[Some(6)], false, 5, Has::AnotherUsers),
            (&[None], false, 5, Has::AnotherUsers),
            (&[Some(6)], false, 0, Has::Ours),
            (&[None], false, 0, Has::Ours),
            (&[None], true, 5, Has::Ours),
        ] {
            let found = Has::by(owners.iter().copied(), is_private, user);
            assert_eq!(found, has, "{owners:?} {is_private} {user}");
        }
    }
}
