//! Which cgroup is a container's: of a process's path, the part a container runtime made.

use std::path::{Path, PathBuf};

/// Where the unified hierarchy is mounted on a machine that has no other.
const MOUNT: &str = "/sys/fs/cgroup";
/// Hex digits in the id that Docker, containerd's CRI plugin, CRI-O and Podman give a container.
const ID_DIGITS: usize = 64;

/// The cgroup of the outermost container in a path of `/proc/<pid>/cgroup`, if a runtime made one.
///
/// The outermost, because what is below it may be made by the container itself. Known by the 64 hex digits of its id, behind the name of
/// its runtime or not (`/docker/<id>`, `…/cri-containerd-<id>.scope`); a session's, a service's or a pod's cgroup has none. A path that leads
/// out of the daemon's own cgroup namespace (`/../…`) cannot be found below the mount and has none either.
#[must_use]
pub(crate) fn of_container(path: &str) -> Option<&str> {
    let mut end = 0;
    for part in path.split('/') {
        end += part.len();
        if part == ".." {
            return None;
        }
        if names_container(part) {
            return Some(&path[..end]);
        }
        end += 1;
    }
    None
}

fn names_container(part: &str) -> bool {
    let bare = part.strip_suffix(".scope").unwrap_or(part);
    let (runtime, id) = bare.rsplit_once(['-', ':']).unwrap_or(("", bare));
    // The monitor of a container has its id, too, and lives beside it.
    !runtime.ends_with("conmon")
        && id.len() == ID_DIGITS
        && id
            .bytes()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// Where cgroup v2 is mounted, if it is the machine's only hierarchy: beside another one a process's path may be the other's.
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
    fn a_session_a_service_a_pod_a_monitor_and_a_foreign_namespace_are_no_container() {
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
}
