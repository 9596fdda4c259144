//! The books of a tenant without a daemon, looked at before its program starts: the library would
//! refuse CUDA there, and a program that goes on without a GPU would end well.

use crate::failure::Failure;
use crate::plan::Plan;
use gpushare_protocol::limits::Limits;
use gpushare_protocol::page::{Snapshot, slot_range};
use gpushare_protocol::paths::USAGE;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::resource::{Resource, getrlimit};
use std::fs;
use std::path::Path;

/// Refuses what the library would: limits that differ from those of a tenant that lives, and a
/// folder where no books can be made. A program that starts at the same moment is not seen: the
/// library checks again.
pub(crate) fn check(plan: &Plan) -> Result<(), Failure> {
    if plan.limits.disabled() {
        return Ok(());
    }
    let name = &plan.tenant.name;
    let root = plan.tenant.root(&plan.environment);
    let root = root.map_err(|error| cannot(error, "the tenant's books"))?;
    if !plan.tenant.lives_in_files(&plan.environment) {
        return has_room(root.path());
    }
    let usage = fs::read(root.folder(name).join(USAGE)).unwrap_or_default();
    let Ok(page) = Snapshot::parse(&usage) else {
        return Ok(());
    };
    // As the library reads them, from what the program gets.
    let ours = Limits::from_env(plan.environment.clone())?.to_string();
    if page.limits.is_empty() || page.limits == ours {
        return Ok(());
    }
    let join = match as_flags(&page.limits) {
        none if none.is_empty() => "give no limits to join it".to_owned(),
        flags => format!("to join it give its own, {flags}"),
    };
    Err(Failure::ours(format!(
        "tenant {name} runs without a daemon, with other limits; {join}, or give another name"
    )))
}

/// Whether the books of a process can be written in this folder.
fn has_room(folder: &Path) -> Result<(), Failure> {
    let what = format!("the tenant's books in {}", folder.display());
    let file = tempfile::tempfile_in(folder).map_err(|error| cannot(error, &what))?;
    // The start of the page and one process's place in it.
    let length = slot_range(0).end;
    let most = getrlimit(Resource::RLIMIT_FSIZE).map_or(length, |(most, _)| most);
    if most < length {
        // The kernel would end us for trying. The library knows how to try.
        return Ok(());
    }
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    match fallocate(&file, FallocateFlags::empty(), 0, length) {
        Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP) => Ok(()),
        Err(errno) => Err(cannot(errno, &what)),
    }
}

fn cannot(error: impl std::fmt::Display, what: &str) -> Failure {
    Failure::ours(format!(
        "cannot make {what}: {error}; without them no limit could be kept"
    ))
}

/// The amounts in the text of a tenant's limits (`view=limit [limit.all=1GiB] sm[limit.0=30]`), as
/// the flags that give them.
fn as_flags(text: &str) -> String {
    let mut flags = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, next) = after.split_once(']').unwrap_or((after, ""));
        let kind = if before.ends_with("sm") { "sm" } else { "mem" };
        for amount in inside.split_whitespace() {
            let parts = amount.split_once('=').zip(amount.split_once('.'));
            let Some(((place, value), (what, _))) = parts else {
                continue;
            };
            flags.push(match place.split_once('.') {
                Some((_, "all")) | None => format!("--{kind}-{what} {value}"),
                Some((_, device)) => format!("--{kind}-{what} {device}={value}"),
            });
        }
        rest = next;
    }
    flags.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_page_are_told_as_flags() {
        for (text, flags) in [
            ("view=limit [limit.all=1GiB]", "--mem-limit 1GiB"),
            (
                "view=limit [limit.0=1GiB request.all=5] sm[limit.all=30.5] x=y",
                "--mem-limit 0=1GiB --mem-request 5 --sm-limit 30.5",
            ),
            ("view=limit []", ""),
            ("", ""),
        ] {
            assert_eq!(as_flags(text), flags);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_has_no_room_and_another_has() {
        let dir = tempfile::tempdir().unwrap();
        has_room(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let refused = has_room(Path::new("/proc")).unwrap_err().message;
        assert!(refused.contains("books in /proc"), "{refused}");
    }
}
