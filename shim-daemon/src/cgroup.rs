//! Finds the cgroup of a container: the part of a process's cgroup path that a container runtime
//! made.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the unified hierarchy is mounted on a machine that has no other.
const MOUNT: &str = "/sys/fs/cgroup";
/// Hex digits in the id that Docker, containerd's CRI plugin, CRI-O and Podman give a container.
const ID_DIGITS: usize = 64;

/// The cgroup of the outermost container in a path of `/proc/<pid>/cgroup`, if a runtime made one.
///
/// The outermost, because the container itself may make cgroups below its own. It is recognised by
/// the 64 hex digits of the container's id, with or without the name of its runtime before them
/// (`/docker/<id>`, `…/cri-containerd-<id>.scope`). The cgroup of a session, a service or a pod has
/// no such id. A path that leads out of the daemon's own cgroup namespace (`/../…`) cannot be found
/// below the mount and is ignored too.
#[must_use]
pub(crate) fn of_container(path: &str) -> Option<&str> {
    let end = outermost(path)?;
    (!path.split('/').any(|part| part == "..")).then(|| &path[..end])
}

/// The cgroup of the outermost container in a path, used to tell that container's processes from
/// all others. Only a cgroup that a user of the machine cannot have made counts.
///
/// Below the cgroup of a user's session a user makes cgroups of any name. A path that leads out of
/// the daemon's own cgroup namespace is taken: it is compared, not opened.
#[must_use]
pub(crate) fn of_machine(path: &str) -> Option<&str> {
    let group = &path[..outermost(path)?];
    (!group.split('/').any(is_users)).then_some(group)
}

/// Whether a path names a container, but below a cgroup in which a user of the machine makes any.
#[must_use]
pub(crate) fn is_below_a_users(path: &str) -> bool {
    outermost(path).is_some() && of_machine(path).is_none()
}

/// Whether a user may make cgroups below one of this name: a session of theirs, or what `pam_cgfs`
/// makes for them.
fn is_users(part: &str) -> bool {
    let of = |start: &str, end: &str| part.strip_prefix(start)?.strip_suffix(end);
    let user = of("user-", ".slice").or_else(|| of("user@", ".service"));
    part == "user" || user.is_some_and(|user| user != "0")
}

/// Whether only root can have put a process into a cgroup of [`of_machine`]: its parent folder
/// below `mount` belongs to root. A service may have been given a subtree to make cgroups in. A
/// folder that is not found there does not count as a user's.
#[must_use]
pub(crate) fn is_roots(mount: &Path, group: &str) -> bool {
    let folder = mount.join(group.trim_start_matches('/'));
    let above = folder.parent().map(std::fs::symlink_metadata);
    !matches!(above, Some(Ok(found)) if found.uid() != 0)
}

/// The end of the outermost part of a path that names a container.
fn outermost(path: &str) -> Option<usize> {
    let mut end = 0;
    for part in path.split('/') {
        end += part.len();
        if names_container(part) {
            return Some(end);
        }
        end += 1;
    }
    None
}

fn names_container(part: &str) -> bool {
    let bare = part.strip_suffix(".scope").unwrap_or(part);
    let (runtime, id) = bare.rsplit_once(['-', ':']).unwrap_or(("", bare));
    // The monitor of a container has the container's id in its cgroup too.
    !runtime.ends_with("conmon")
        && id.len() == ID_DIGITS
        && id
            .bytes()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// Where cgroup v2 is mounted, if it is the machine's only hierarchy: beside another one a
/// process's path may be the other's.
#[must_use]
pub(crate) fn unified() -> Option<PathBuf> {
    let mount = Path::new(MOUNT);
    mount
        .join("cgroup.controllers")
        .is_file()
        .then(|| mount.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn a_runtimes_container_is_found_with_all_that_is_below_it() {
        for path in [
            "/docker/ID",
            "/system.slice/docker-ID.scope",
            "/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope",
            "/kubepods/burstable/pod1/ID",
            "/system.slice:docker:ID",
            "/machine.slice/libpod-ID.scope",
            "/kubepods.slice/crio-ID.scope",
        ] {
            let own = path.replace("ID", ID);
            assert_eq!(of_container(&own), Some(own.as_str()));
            let below = format!("{own}/container/init.scope");
            assert_eq!(of_container(&below), Some(own.as_str()));
            let nested = format!("{own}/docker/{}", ID.replace('0', "f"));
            assert_eq!(of_container(&nested), Some(own.as_str()));
        }
    }

    #[test]
    fn what_is_not_an_oci_container_has_no_container_cgroup() {
        for path in [
            "/",
            "",
            "/user.slice/user-1000.slice/session-3.scope",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/run-u7.scope",
            "/system.slice/gpushared.service",
            "/kubepods.slice/kubepods-pod0123.slice",
            "/machine.slice/libpod-conmon-ID.scope",
            "/../docker/ID",
            "/docker/ID0",
        ] {
            let path = path.replace("ID", ID);
            assert_eq!(of_container(&path), None, "{path}");
        }
        let short = &ID[1..];
        assert_eq!(of_container(&format!("/docker/{short}")), None);
        assert_eq!(of_container(&format!("/docker/G{short}")), None);
    }

    #[test]
    fn a_container_a_user_can_have_made_is_not_the_machines() {
        for path in [
            "/docker/ID",
            "/system.slice/docker-ID.scope/init.scope",
            "/../../kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope",
            "/user.slice/user-0.slice/user@0.service/libpod-ID.scope",
        ] {
            let path = path.replace("ID", ID);
            let group = of_machine(&path).unwrap();
            assert!(path.starts_with(group) && group.contains(ID), "{path}");
        }
        for path in [
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope",
            "/../../user.slice/user-1000.slice/user@1000.service/ID",
            "/system.slice/user@1000.service/ID",
            "/user/alice/0/ID",
            "/user.slice/user-1000.slice/session-3.scope",
            "/system.slice/gpushared.service",
            "/",
        ] {
            let path = path.replace("ID", ID);
            assert_eq!(of_machine(&path), None, "{path}");
        }
    }

    #[test]
    fn a_cgroup_in_a_folder_of_a_user_is_not_roots() {
        let mount = tempfile::tempdir().unwrap();
        let group = format!("/service.slice/{ID}");
        assert!(is_roots(mount.path(), &group), "it is not to be seen");
        std::fs::create_dir(mount.path().join("service.slice")).unwrap();
        let own = nix::unistd::geteuid().is_root();
        assert_eq!(is_roots(mount.path(), &group), own);
        if own {
            let user = nix::unistd::Uid::from_raw(65_534);
            nix::unistd::chown(&mount.path().join("service.slice"), Some(user), None).unwrap();
            assert!(!is_roots(mount.path(), &group));
        }
    }
}
