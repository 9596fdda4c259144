//! `gpushared` where it cannot run: with a service manager it waits before it ends, because it is
//! started again at once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Said before it waits.
const WAITS: &str = "ends in 10 s";

/// The daemon on a machine whose NVML lacks its functions, with this file of settings.
fn daemon(folder: &tempfile::TempDir, settings: &str, is_managed: bool) -> Child {
    let empty = folder.path().join("nvml.c");
    std::fs::write(&empty, "int none;\n").unwrap();
    on(folder, (&empty, &[]), settings, is_managed)
}

/// The same with an NVML of this source and these flags.
fn on(
    folder: &tempfile::TempDir,
    (source, flags): (&Path, &[&str]),
    settings: &str,
    is_managed: bool,
) -> Child {
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("config.toml"), settings).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"])
        .args([&*at("libnvidia-ml.so.1"), source])
        .args(flags);
    assert!(cc.status().unwrap().success());
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_gpushared"));
    daemon
        .arg("--runtime-dir")
        .arg(at("run"))
        .arg("--config")
        .arg(at("config.toml"))
        .env("LD_LIBRARY_PATH", folder.path())
        .env_remove("NOTIFY_SOCKET")
        .stderr(Stdio::piped());
    if is_managed {
        daemon.env("NOTIFY_SOCKET", at("notify.sock"));
    }
    daemon.spawn().unwrap()
}

/// All that it says, and its exit status.
fn ends(mut daemon: Child) -> (String, Option<i32>) {
    let text = std::io::read_to_string(daemon.stderr.take().unwrap()).unwrap();
    (text, daemon.wait().unwrap().code())
}

#[test]
fn a_managed_daemon_without_nvml_waits_until_it_is_told_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = daemon(&folder, "", true);
    let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
    let mut said = |word: &str| lines.any(|line| line.unwrap().contains(word));
    assert!(said("NVML") && said(WAITS));
    let pid = Pid::from_raw(i32::try_from(daemon.id()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(daemon.wait().unwrap().code(), Some(1));
}

#[test]
fn a_machine_whose_only_gpu_shares_the_hosts_memory_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let double = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nvml_of_mig.c");
    for flags in [&["-DUNIFIED=2"][..], &["-DUNIFIED=2", "-DOLD"]] {
        let (said, code) = ends(on(&folder, (&double, flags), "", false));
        for word in [
            "GPU-00000000-0000-0000-0000-0000000000bb",
            "no memory of its own",
            "--daemon off",
        ] {
            assert!(said.contains(word), "{flags:?}: {said}");
        }
        assert_eq!(code, Some(1));
    }
}

#[test]
fn a_daemon_with_nothing_to_serve_ends_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let double = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nvml_of_mig.c");
    let whole = "GPU-00000000-0000-0000-0000-0000000000bb is in MIG mode and has no instance";
    for (flags, words) in [
        (["-DBARE=2"], [whole, "make its instances"]),
        (["-DCOUNTED=0"], ["NVML counts no GPU", "nvidia-smi"]),
    ] {
        let (said, code) = ends(on(&folder, (&double, &flags), "", false));
        assert_eq!(code, Some(1), "{said}");
        for word in words {
            assert!(said.contains(word), "{flags:?}: {said}");
        }
    }
}

#[test]
fn a_daemon_without_a_manager_ends_where_it_cannot_run() {
    let folder = tempfile::tempdir().unwrap();
    let (said, code) = ends(daemon(&folder, "", false));
    assert!(said.contains("NVML") && !said.contains(WAITS), "{said}");
    // The driver may be there, in a container.
    assert!(said.contains("LD_LIBRARY_PATH"), "{said}");
    assert_eq!(code, Some(1));
}

#[test]
fn a_managed_daemon_with_wrong_settings_does_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (said, code) = ends(daemon(&folder, "nonsense = 1\n", true));
    assert!(said.contains("nonsense") && !said.contains(WAITS), "{said}");
    // The unit does not start it again.
    assert_eq!(code, Some(78));
}

#[test]
fn a_start_that_failed_leaves_no_runtime_folder_behind() {
    for (settings, code) in [("", 1), ("reserve = 1", 78)] {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(ends(daemon(&folder, settings, false)).1, Some(code));
        assert!(!folder.path().join("run").exists(), "{settings}");
    }
}

#[test]
fn a_start_that_failed_leaves_a_folder_that_was_there_empty() {
    for (settings, code) in [("", 1), ("reserve = 1", 78)] {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        // As systemd makes it for the unit.
        std::fs::create_dir(&run).unwrap();
        assert_eq!(ends(daemon(&folder, settings, false)).1, Some(code));
        assert_eq!(std::fs::read_dir(&run).unwrap().count(), 0, "{settings}");
        // Of a daemon that served.
        std::fs::write(run.join("starts"), "7\n").unwrap();
        assert_eq!(ends(daemon(&folder, settings, false)).1, Some(code));
        assert!(run.join("starts").exists() && run.join("lock").exists());
    }
}

#[test]
fn a_start_that_failed_keeps_what_a_previous_daemon_left() {
    let folder = tempfile::tempdir().unwrap();
    let registered = folder.path().join("run/registered");
    std::fs::create_dir_all(&registered).unwrap();
    std::fs::write(registered.join("a.json"), "{}").unwrap();
    assert_eq!(ends(daemon(&folder, "", false)).1, Some(1));
    assert!(registered.join("a.json").exists());
}

#[test]
fn a_start_that_failed_has_told_hooks_whether_limits_are_mandatory() {
    let [deny, allow] =
        ["deny", "allow"].map(|word| format!("[containers]\nunlimited = \"{word}\"\n"));
    let folder = tempfile::tempdir().unwrap();
    let word = folder.path().join("run/mandatory");
    // With wrong settings what was told before stays.
    for (settings, code, is_told) in [
        ("", 1, false),
        (&deny, 1, true),
        ("reserve = 1", 78, true),
        (&allow, 1, false),
        ("reserve = 1", 78, false),
    ] {
        assert_eq!(ends(daemon(&folder, settings, false)).1, Some(code));
        assert_eq!(word.exists(), is_told, "{settings}");
    }
}

/// What `--check-config` says with these flags of a file of settings, and its status.
fn checks(settings: &str, flags: &[&str]) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    std::fs::write(&file, settings).unwrap();
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_gpushared"));
    let daemon = daemon.arg("--check-config").arg("--config").arg(file);
    let said = daemon.args(flags).output().unwrap();
    let text = String::from_utf8(said.stderr).unwrap();
    (text, said.status.code())
}

#[test]
fn a_flag_takes_the_place_of_the_files_setting_also_in_a_check() {
    let (five, three) = ("reserve = \"5GiB\"\n", "reserve = \"3GiB\"\n");
    let (four, six) = ("capacity = \"4GiB\"\n", "capacity = \"6GiB\"\n");
    for (file, flags, status) in [
        (five, &["--capacity", "4GiB"][..], 78),
        (three, &["--capacity", "4GiB"], 0),
        (four, &["--reserve", "5GiB"], 78),
        (six, &["--reserve", "5GiB"], 0),
        (&format!("{three}{six}"), &["--reserve", "6GiB"], 78),
        // What the file says by itself does not count where a flag says otherwise.
        (&format!("{five}{four}"), &["--reserve", "0"], 0),
        (&format!("{five}{four}"), &[], 78),
    ] {
        let (said, found) = checks(file, flags);
        assert_eq!(found, Some(status), "{file}{flags:?}: {said}");
        assert_eq!(said.contains("leaves nothing"), status == 78, "{said}");
    }
}

/// `--check-driver` with an NVML of this file name, where the kernel's module is of this version.
fn checks_driver(library: &str, module: Option<&str>) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (source, version) = (at("nvml.c"), at("version"));
    std::fs::write(&source, "int none;\n").unwrap();
    let mut cc = Command::new("cc");
    let made = cc
        .args(["-shared", "-fPIC", "-o"])
        .args([at(library), source]);
    assert!(made.status().unwrap().success());
    if library != "libnvidia-ml.so.1" {
        std::os::unix::fs::symlink(library, at("libnvidia-ml.so.1")).unwrap();
    }
    if let Some(module) = module {
        std::fs::write(&version, format!("{module}\n")).unwrap();
    }
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_gpushared"));
    let said = daemon
        .arg(format!("--check-driver={}", version.display()))
        .env("LD_LIBRARY_PATH", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8(said.stderr).unwrap();
    (text, said.status.code())
}

#[test]
fn a_driver_that_was_upgraded_is_told_before_the_daemon_starts() {
    let new = "libnvidia-ml.so.550.54.14";
    let (said, status) = checks_driver(new, Some("535.129.03"));
    assert_eq!(status, Some(69), "{said}");
    for word in ["of 550.54.14", "of 535.129.03", "reboot"] {
        assert!(said.contains(word), "{said}");
    }
    for (library, module) in [
        (new, Some("550.54.14")),
        // Nothing is known of these.
        (new, None),
        ("libnvidia-ml.so.1", Some("535.129.03")),
        (new, Some("of our own")),
    ] {
        let told = checks_driver(library, module);
        assert_eq!(told, (String::new(), Some(0)), "{library}, {module:?}");
    }
}
