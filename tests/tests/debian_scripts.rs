//! The Debian package's scripts as dpkg calls them, below a root of the test: Debian's own helper
//! keeps the links of units there, and a stand-in for systemd says what was started.

mod others;
mod settings;
mod states;
mod wrapper;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpushare_tests::artefacts::repository;
use gpushare_tests::runnable::not_runnable_here;

const DAEMON: &str = "gpushared.service";
const EXPORTER: &str = "gpushare-exporter.service";
/// Debian's helper.
const HELPER: &str = "/usr/bin/deb-systemd-helper";
/// A version that was installed before.
const OLD: &str = "0.1.0-1";
/// The folders of the scripts, each of which is below the test's root.
const FOLDERS: [&str; 12] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/gpushare",
    "/var/lib/gpushare",
    "/etc/gpushare",
    "/usr/lib/gpushare",
    "/usr/local/bin",
    "/usr/bin/gpushared",
    "/usr/bin/gpushare-runtime",
    "/usr/bin/gpushare-exporter",
    "/usr/bin/${1%",
    "/usr/bin/crio",
];
/// `systemctl` and `deb-systemd-invoke`: a unit runs where `active/UNIT` is, and does not start
/// where `broken` is. What it is asked to do is in `asked`.
const SYSTEMD: &str = r#"#!/bin/sh
act=$1
shift
case "$act" in
    is-active) exec test -e "$ROOT/active/$2" ;;
    show) cat "$ROOT/exec-start" 2>/dev/null; exit 0 ;;
    is-enabled) cat "$ROOT/enabled" 2>/dev/null; exit 1 ;;
esac
echo "$act $*" >>"$ROOT/asked"
start() { [ ! -e "$ROOT/broken" ] || { rm -f "$ROOT/active/$1"; return 1; }; : >"$ROOT/active/$1"; }
for unit; do
    case "${0##*/} $act" in
        "systemctl restart") ;;
        "systemctl try-restart") [ ! -e "$ROOT/active/$unit" ] || start "$unit" ;;
        "deb-systemd-invoke start")
            [ ! -L "$ROOT/etc/systemd/system/multi-user.target.wants/$unit" ] || start "$unit" ;;
        "deb-systemd-invoke stop") rm -f "$ROOT/active/$unit" ;;
        *) echo "$0 $act $unit" >&2; exit 9 ;;
    esac || exit 1
done
"#;

/// The package's own script removes the versions that no program uses.
const VERSIONS: &str = r#"#!/bin/sh
cd "${0%/*}"
case $1 in
    add) mkdir -p versions/1 ;;
    remove) [ -e "$ROOT/in-use" ] || rm -rf versions ;;
esac
"#;

/// A machine whose package dpkg installs and removes.
struct Node(tempfile::TempDir);

impl Node {
    /// `None`, noted under the test, where Debian's helper is not installed.
    fn new() -> Option<Self> {
        let test = std::thread::current();
        if !Path::new(HELPER).exists() {
            let test = test.name().unwrap_or("debian_scripts");
            not_runnable_here(test, "deb-systemd-helper is not installed");
            return None;
        }
        let node = Self(tempfile::tempdir().expect("a folder"));
        for folder in ["active", "run/systemd/system", "etc/systemd/system"] {
            fs::create_dir_all(node.at(folder)).expect("made");
        }
        for name in ["systemctl", "deb-systemd-invoke"] {
            node.put(&format!("stand-in/{name}"), SYSTEMD);
        }
        Some(node)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn has(&self, path: &str) -> bool {
        self.at(path).symlink_metadata().is_ok()
    }

    /// Writes a program.
    fn put(&self, path: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.at(path)).expect("it is there");
    }

    /// Runs a script of the package. Returns what it says to the operator.
    #[track_caller]
    fn script(&self, name: &str, arguments: &[&str]) -> String {
        self.script_by("", name, arguments)
    }

    /// The same by this line of a shell, which has the script's call as its arguments, in a mount
    /// namespace.
    #[track_caller]
    fn script_by(&self, line: &str, name: &str, arguments: &[&str]) -> String {
        let path = repository().join("packaging/debian").join(name);
        let mut text = fs::read_to_string(path).expect("it is in the tree");
        for folder in FOLDERS {
            let here = self.at(folder).display().to_string();
            text = text.replace(folder, &here);
        }
        let own = format!("own={}", self.at("usr/bin").display());
        self.put("script", &text.replace("own=/usr/bin", &own));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = match line {
            "" => Command::new(self.at("script")),
            _ => {
                let mut unshare = Command::new("unshare");
                unshare.args(["-rm", "sh", "-ec", line, "sh"]);
                unshare.arg(self.at("script"));
                unshare
            }
        };
        let output = command
            .args(arguments)
            .env("PATH", format!("{}:{path}", self.at("stand-in").display()))
            .env("ROOT", self.0.path())
            .env("DPKG_ROOT", self.0.path())
            .env("DPKG_MAINTSCRIPT_PACKAGE", "gpushare")
            .output()
            .expect("a shell");
        assert!(output.status.success(), "{name} {arguments:?}: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    /// What the package brings.
    fn unpack(&self) {
        self.put("usr/lib/gpushare/versions.sh", VERSIONS);
        let wrapped = fs::read_to_string(repository().join("packaging/wrapped.sh"));
        self.put(
            "usr/lib/gpushare/wrapped.sh",
            &wrapped.expect("it is there"),
        );
        for program in ["gpushared", "gpushare-exporter", "gpushare-runtime"] {
            self.put(&format!("usr/bin/{program}"), "#!/bin/sh\n");
        }
        for unit in [DAEMON, EXPORTER] {
            let text = fs::read_to_string(repository().join("packaging").join(unit));
            self.put(
                &format!("usr/lib/systemd/system/{unit}"),
                &text.expect("it is in the tree"),
            );
        }
    }

    /// `dpkg -i` of what was never there, or was purged.
    fn install(&self) -> String {
        self.script("preinst", &["install"]);
        self.unpack();
        self.script("postinst", &["configure", ""])
    }

    /// `dpkg -i` after [`Node::delete`]: dpkg knows the version that was removed.
    fn install_again(&self) -> String {
        self.script("preinst", &["install", OLD, OLD]);
        self.unpack();
        self.script("postinst", &["configure", OLD])
    }

    fn upgrade(&self) -> String {
        self.script("prerm", &["upgrade", "0.1.0-2"]);
        self.script("preinst", &["upgrade", OLD, "0.1.0-2"]);
        self.unpack();
        self.script("postrm", &["upgrade", "0.1.0-2"]);
        self.script("postinst", &["configure", OLD])
    }

    /// `dpkg -r`. Returns what it says.
    fn delete(&self) -> String {
        let said = self.script("prerm", &["remove"]);
        for file in [
            "lib/gpushare/versions.sh",
            "lib/gpushare/wrapped.sh",
            "bin/gpushared",
            "bin/gpushare-exporter",
            "bin/gpushare-runtime",
        ] {
            self.remove(&format!("usr/{file}"));
        }
        for unit in [DAEMON, EXPORTER] {
            self.remove(&format!("usr/lib/systemd/system/{unit}"));
        }
        said + &self.script("postrm", &["remove"])
    }

    /// The rest of `dpkg -P`. Returns what it says.
    fn purge(&self) -> String {
        self.script("postrm", &["purge"])
    }

    fn link(&self, unit: &str) -> String {
        format!("etc/systemd/system/multi-user.target.wants/{unit}")
    }

    /// Whether the unit is enabled, and whether it runs.
    fn state(&self, unit: &str) -> (bool, bool) {
        // The link names a path of the machine's own root.
        let is_there = self.has(&format!("usr/lib/systemd/system/{unit}"));
        let enabled = is_there && self.has(&self.link(unit));
        (enabled, self.has(&format!("active/{unit}")))
    }

    /// `systemctl enable --now`.
    fn enable(&self, unit: &str) {
        let link = self.at(&self.link(unit));
        fs::create_dir_all(link.parent().expect("a folder")).expect("made");
        let to = self.at(&format!("usr/lib/systemd/system/{unit}"));
        std::os::unix::fs::symlink(to, link).expect("made");
        self.put(&format!("active/{unit}"), "");
    }

    /// `systemctl disable --now`.
    fn disable(&self, unit: &str) {
        self.remove(&self.link(unit));
        self.remove(&format!("active/{unit}"));
    }
}

const RUNS: (bool, bool) = (true, true);
const OFF: (bool, bool) = (false, false);

#[test]
fn a_package_that_comes_back_starts_its_daemon_again() {
    let Some(node) = Node::new() else { return };
    node.install();
    assert_eq!((node.state(DAEMON), node.state(EXPORTER)), (RUNS, OFF));
    fs::create_dir_all(node.at("run/gpushare")).expect("made");
    node.delete();
    assert_eq!(node.state(DAEMON), OFF);
    // For a user's `gpushare run` the machine has no daemon.
    assert!(node.has("run/gpushare/removed"));
    node.install_again();
    assert_eq!((node.state(DAEMON), node.state(EXPORTER)), (RUNS, OFF));
    node.upgrade();
    assert_eq!((node.state(DAEMON), node.state(EXPORTER)), (RUNS, OFF));
}

#[test]
fn what_the_operator_disabled_stays_disabled() {
    let Some(node) = Node::new() else { return };
    node.install();
    node.enable(EXPORTER);
    node.disable(DAEMON);
    node.upgrade();
    assert_eq!((node.state(DAEMON), node.state(EXPORTER)), (OFF, RUNS));
    node.delete();
    node.install_again();
    assert_eq!((node.state(DAEMON), node.state(EXPORTER)), (OFF, RUNS));
    node.enable(DAEMON);
    node.disable(EXPORTER);
    node.delete();
    node.install_again();
    assert_eq!((node.state(DAEMON), node.state(EXPORTER)), (RUNS, OFF));
}

#[test]
fn an_upgrade_starts_nothing_that_the_operator_stopped() {
    let Some(node) = Node::new() else { return };
    node.install();
    node.remove(&format!("active/{DAEMON}"));
    node.upgrade();
    assert_eq!(node.state(DAEMON), (true, false));
    node.delete();
    node.install_again();
    assert_eq!(node.state(DAEMON), RUNS);
}

#[test]
fn a_daemon_that_does_not_start_leaves_the_package_configured() {
    let Some(node) = Node::new() else { return };
    // As without a driver.
    node.put("broken", "");
    let said = node.install();
    assert!(said.contains("journalctl -u gpushared"), "{said}");
    assert_eq!(node.state(DAEMON), (true, false));
    node.remove("broken");
    node.put(&format!("active/{DAEMON}"), "");
    assert_eq!(node.upgrade(), "");
    node.put("broken", "");
    let said = node.upgrade();
    assert!(said.contains("journalctl -u gpushared"), "{said}");
    node.delete();
    let said = node.install_again();
    assert!(said.contains("journalctl -u gpushared"), "{said}");
}

#[test]
fn where_systemd_does_not_run_the_daemon_is_enabled_for_the_boot() {
    let Some(node) = Node::new() else { return };
    fs::remove_dir(node.at("run/systemd/system")).expect("it is there");
    node.install();
    assert_eq!(node.state(DAEMON), (true, false));
    node.delete();
    node.purge();
    assert!(!node.has(&node.link(DAEMON)));
}

#[test]
fn an_older_package_without_the_helper_is_upgraded_as_it_is() {
    for disabled in [true, false] {
        let Some(node) = Node::new() else { return };
        node.unpack();
        if !disabled {
            node.enable(DAEMON);
        }
        node.upgrade();
        let kept = if disabled { OFF } else { RUNS };
        assert_eq!(node.state(DAEMON), kept);
    }
}

#[test]
fn the_specification_of_classes_goes_with_the_package() {
    let Some(node) = Node::new() else { return };
    let ours = "run/cdi/gpushare.json";
    let fill = || {
        // Neither the first nor the second one can be removed.
        let all = ["none", "run/cdi", ours].map(|path| format!("{}\n", node.at(path).display()));
        let record = all.concat();
        node.put("run/gpushare/cdi", &record);
        node.put(ours, "");
        node.put("run/cdi/nvidia.json", "");
    };
    node.install();
    for purges in [false, true] {
        fill();
        if purges {
            node.purge();
        } else {
            node.delete();
            assert!(node.has("run/gpushare/removed"));
        }
        assert!(!node.has(ours) && node.has("run/cdi/nvidia.json"));
        assert!(!node.has("run/gpushare/cdi"));
    }
    // It is the daemon's of another installation.
    node.install();
    fill();
    node.put("usr/local/bin/gpushared", "");
    node.delete();
    assert!(node.has(ours) && node.has("run/gpushare/cdi"));
}

#[test]
fn a_removal_that_failed_starts_the_daemon_again() {
    let Some(node) = Node::new() else { return };
    node.install();
    node.script("prerm", &["remove"]);
    assert_eq!(node.state(DAEMON), (true, false));
    node.script("postinst", &["abort-remove"]);
    assert_eq!(node.state(DAEMON), RUNS);
}

#[test]
fn settings_outlive_a_removal_and_go_with_a_purge() {
    let Some(node) = Node::new() else { return };
    let all = [
        "etc/gpushare/config.toml",
        "var/lib/gpushare/journal.jsonl",
        "run/gpushare/lock",
    ];
    let there = || all.map(|path| node.has(path));
    let fill = || all.iter().for_each(|path| node.put(path, ""));
    node.install();
    fill();
    node.delete();
    assert_eq!(there(), [true; 3]);
    node.purge();
    assert_eq!(there(), [false; 3]);
    for folder in ["etc/gpushare", "var/lib/gpushare", "run/gpushare"] {
        assert!(!node.has(folder), "{folder}");
    }
    assert!(!node.has(&node.link(DAEMON)) && !node.has(&node.link(EXPORTER)));
    // What is not the package's stays: the operator's files, and all of an installation of the
    // tarball.
    node.install();
    node.put("etc/gpushare/notes", "");
    node.delete();
    node.purge();
    assert!(node.has("etc/gpushare/notes"));
    node.install();
    fill();
    node.put("usr/local/bin/gpushared", "");
    node.delete();
    assert!(!node.has("run/gpushare/removed"));
    node.purge();
    assert_eq!(there(), [true; 3]);
}

#[test]
fn a_version_that_programs_kept_goes_with_the_purge_or_is_named() {
    let lib = "usr/lib/gpushare";
    for ended in [true, false] {
        let Some(node) = Node::new() else { return };
        node.install();
        node.put("in-use", "");
        node.delete();
        node.install_again();
        assert!(!node.has(&format!("{lib}/kept.sh")));
        node.delete();
        assert!(node.has(&format!("{lib}/versions/1")));
        if ended {
            node.remove("in-use");
        }
        let said = node.script("postrm", &["purge"]);
        assert_eq!(node.has(lib), !ended);
        assert_eq!(said.contains("remove"), !ended, "{said}");
        assert!(!node.has(&format!("{lib}/kept.sh")));
    }
    // Without a program it goes with the removal.
    let Some(node) = Node::new() else { return };
    node.install();
    node.delete();
    let left = ["versions", "kept.sh"].map(|name| node.has(&format!("{lib}/{name}")));
    assert_eq!(left, [false; 2]);
}

const STATE: [&str; 3] = [
    "etc/gpushare/config.toml",
    "var/lib/gpushare/journal.jsonl",
    "run/gpushare/lock",
];

#[test]
fn a_purge_leaves_a_disk_that_is_mounted_for_spilled_memory_alone() {
    let Some(node) = Node::new() else { return };
    let test = "a_purge_leaves_a_disk_that_is_mounted_for_spilled_memory_alone";
    let can = Command::new("unshare").args(["-rm", "true"]).status();
    if !can.is_ok_and(|status| status.success()) {
        return not_runnable_here(test, "no mount namespace can be made");
    }
    node.install();
    STATE.iter().for_each(|path| node.put(path, ""));
    let spill = node.at("var/lib/gpushare/spill");
    fs::create_dir(&spill).expect("made");
    node.delete();
    let spill = spill.display();
    let line = format!(
        "mount -t tmpfs disk '{spill}'; : >'{spill}/others'; \"$@\"; test -e '{spill}/others'"
    );
    let said = node.script_by(&line, "postrm", &["purge"]);
    assert!(
        said.contains("it has more than the journal, or a mount"),
        "{said}"
    );
    assert_eq!(STATE.map(|path| node.has(path)), [false; 3]);
    // Without a disk nothing stays.
    assert_eq!(node.script("postrm", &["purge"]), "");
    assert!(!node.has("var/lib/gpushare"));
}
