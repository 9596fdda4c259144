//! Files that systemd-logind removes when the last login of a user ends. They are found by the
//! settings of logind, and by the place that gpushare uses.

use crate::doctor::facts::Login;
use crate::settings::Environment;
use nix::unistd::{Uid, User};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// It is there while logind runs.
const RUNS: &str = "run/systemd/seats";
/// A file for each user whose manager and runtime folder stay without a login.
const LINGER: &str = "var/lib/systemd/linger";
/// The folders of its settings, the first one wins (`logind.conf(5)`).
const SETTINGS: [&str; 4] = ["etc", "run", "usr/local/lib", "usr/lib"];
/// The highest uid of a user of the system, whose files stay (systemd's default).
const SYSTEM: u32 = 999;

/// See the module's page. `root` is the machine's.
pub(super) fn login(root: &Path, uid: u32, environment: &Environment) -> Login {
    let cgroup = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let name = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let name = name.map(|user| user.name).unwrap_or_default();
    let runtime = environment.get(OsStr::new("XDG_RUNTIME_DIR"));
    Login {
        removes: removes(root, (uid, &name), runtime.map(Path::new)),
        is_within: is_within(&cgroup),
    }
}

fn removes(root: &Path, (uid, name): (u32, &str), runtime: Option<&Path>) -> Option<PathBuf> {
    let lingers = !name.is_empty() && root.join(LINGER).join(name).exists();
    if uid == 0 || lingers || !root.join(RUNS).is_dir() {
        return None;
    }
    let own = PathBuf::from(format!("/run/user/{uid}"));
    let is_there = |dir: &&Path| root.join(dir.strip_prefix("/").unwrap_or(dir)).is_dir();
    match runtime.filter(is_there) {
        Some(runtime) if runtime == own => Some(own),
        Some(_) => None,
        None => (uid > SYSTEM && removes_ipc(root)).then(|| "/dev/shm".into()),
    }
}

/// Whether it removes a user's files in `/dev/shm` (`RemoveIPC=`). A distribution with another
/// default than systemd's says so in a comment of the main file.
fn removes_ipc(root: &Path) -> bool {
    let folders = SETTINGS.map(|folder| root.join(folder).join("systemd"));
    let read = |path: &PathBuf| fs::read_to_string(path).ok();
    let main = folders
        .iter()
        .find_map(|folder| read(&folder.join("logind.conf")));
    let main = main.unwrap_or_default();
    let default = said(&main, "#RemoveIPC=").unwrap_or(true);
    // By name, whatever the folder; one of an earlier folder hides its namesakes.
    let mut parts: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for folder in folders.iter().map(|folder| folder.join("logind.conf.d")) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            parts
                .entry(entry.file_name())
                .or_insert_with(|| entry.path());
        }
    }
    let parts = parts
        .values()
        .filter(|path| path.extension() == Some(OsStr::new("conf")));
    let texts = [main].into_iter().chain(parts.filter_map(read));
    let said = texts.filter_map(|text| said(&text, "RemoveIPC="));
    let last = said.reduce(|_, later| later);
    last.unwrap_or(default)
}

/// The last value of a switch in a file's text.
fn said(text: &str, key: &str) -> Option<bool> {
    let values = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix(key));
    let values = values.filter_map(|value| match value.trim().to_lowercase().as_str() {
        "1" | "yes" | "y" | "true" | "t" | "on" => Some(true),
        "0" | "no" | "n" | "false" | "f" | "off" => Some(false),
        _ => None,
    });
    values.reduce(|_, later| later)
}

/// Whether the process of this `cgroup` file is in a session's scope, or under its user's manager.
fn is_within(cgroup: &str) -> bool {
    cgroup.contains("/user@") || cgroup.contains("/session-") && cgroup.contains(".scope")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_a_login_is_told_by_its_cgroup() {
        for (cgroup, within) in [
            ("0::/user.slice/user-1000.slice/session-3.scope\n", true),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/a\n",
                true,
            ),
            ("0::/system.slice/cron.service\n", false),
            ("0::/system.slice/slurmstepd.scope/job_1/step_0\n", false),
            ("", false),
        ] {
            assert_eq!(is_within(cgroup), within, "{cgroup}");
        }
    }

    #[test]
    fn the_last_login_takes_the_place_that_is_used_unless_a_setting_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let (shm, run) = (Some(PathBuf::from("/dev/shm")), Path::new("/run/user/1000"));
        let of = |uid: u32, runtime: Option<&Path>| removes(root, (uid, "alice"), runtime);
        assert_eq!(of(1000, None), None, "there is no logind");
        fs::create_dir_all(root.join(RUNS)).unwrap();
        assert_eq!(of(1000, None), shm);
        assert_eq!(of(1000, Some(run)), shm, "that folder is not there");
        assert_eq!((of(0, None), of(999, None)), (None, None));
        fs::create_dir_all(root.join("run/user/1000")).unwrap();
        assert_eq!(of(1000, Some(run)), Some(run.into()));
        fs::create_dir_all(root.join("srv/own")).unwrap();
        assert_eq!(of(1000, Some(Path::new("/srv/own"))), None);
        // A setting, a part that is read later, and one that hides it.
        put(
            "etc/systemd/logind.conf",
            "[Login]\n#RemoveIPC=yes\nRemoveIPC=no\n",
        );
        assert_eq!(of(1000, None), None);
        put(
            "usr/lib/systemd/logind.conf.d/50-a.conf",
            "RemoveIPC = x\nRemoveIPC=yes\n",
        );
        assert_eq!(of(1000, None), shm);
        put("etc/systemd/logind.conf.d/50-a.conf", "");
        assert_eq!(of(1000, None), None);
        put("etc/systemd/logind.conf", "#RemoveIPC=no\n");
        assert_eq!(of(1000, None), None, "the default of this distribution");
        put("etc/systemd/logind.conf", "");
        assert_eq!(of(1000, None), shm);
        assert_eq!(of(1000, Some(run)), Some(run.into()));
        put("var/lib/systemd/linger/alice", "");
        assert_eq!((of(1000, None), of(1000, Some(run))), (None, None));
    }
}
