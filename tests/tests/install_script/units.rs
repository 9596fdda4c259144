//! What the units say that the installer puts in place.

use gpushare_tests::artefacts::repository;
use std::fs;

#[test]
fn the_daemon_starts_before_every_engine_that_the_page_names() {
    let read = |path: &str| fs::read_to_string(repository().join(path)).expect("it is in the tree");
    let (unit, page) = (
        read("packaging/gpushared.service"),
        read("docs/CONTAINERS.md"),
    );
    let before: Vec<&str> = unit
        .lines()
        .filter_map(|line| line.strip_prefix("Before="))
        .flat_map(str::split_whitespace)
        .collect();
    for (engine, units) in [
        ("Docker", &["docker.service"][..]),
        ("containerd", &["containerd.service"]),
        ("Podman", &["podman-restart.service"]),
        ("CRI-O", &["crio.service"]),
        ("kubelet", &["kubelet.service"]),
        ("k3s", &["k3s.service", "k3s-agent.service"]),
        ("rke2", &["rke2-server.service", "rke2-agent.service"]),
        ("k0s", &["k0scontroller.service", "k0sworker.service"]),
    ] {
        assert!(page.contains(engine), "{engine}");
        for one in units {
            assert!(before.contains(one), "{one} in {before:?}");
        }
    }
    // A unit of one container starts when its operator says, and the page tells that.
    assert!(page.contains("After=gpushared.service"));
}

/// By default systemd gives a unit up after five starts in ten seconds, until somebody starts it.
#[test]
fn each_unit_that_always_restarts_is_never_given_up() {
    let packaging = fs::read_dir(repository().join("packaging")).expect("a folder");
    let mut restarting = Vec::new();
    for file in packaging.map(|file| file.expect("a file").path()) {
        if file.extension().is_none_or(|kind| kind != "service") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("text");
        if text.lines().any(|line| line == "Restart=always") {
            // In another section than this systemd warns and goes on without it.
            let unit = text.split("[Service]").next().expect("a first part");
            let unlimited = unit.lines().any(|line| line == "StartLimitIntervalSec=0");
            assert!(unlimited, "{}", file.display());
            restarting.push(file);
        }
    }
    assert_eq!(restarting.len(), 2, "{restarting:?}");
}

/// Wrong settings (78) and flags that a program does not know (2) would be as wrong at the next
/// start.
#[test]
fn no_unit_is_started_again_with_what_its_program_does_not_accept() {
    for (service, statuses) in [("gpushared", "2 78"), ("gpushare-exporter", "2")] {
        let unit = repository().join(format!("packaging/{service}.service"));
        let unit = fs::read_to_string(unit).expect("text");
        let line = format!("RestartPreventExitStatus={statuses}");
        assert!(unit.lines().any(|one| one == line), "{service}");
    }
    let program = gpushare_tests::artefacts::gpushared();
    for (flags, status) in [
        (&["--reserve", "1Gib"][..], 2),
        (&["--no-such-flag"], 2),
        (&["--version"], 0),
    ] {
        let done = std::process::Command::new(&program).args(flags).output();
        let done = done.expect("it starts");
        assert_eq!(done.status.code(), Some(status), "{done:?}");
    }
}

/// By this the package's scripts ask before they restart it.
#[test]
fn the_exporter_says_its_version_behind_flags_that_it_accepts_alone() {
    let program = gpushare_tests::artefacts::exporter();
    for (flags, status) in [
        (&[][..], 0),
        (&["--listen", "127.0.0.1:1"], 0),
        (&["--listen", "nowhere"], 2),
        (&["--no-such-flag"], 2),
    ] {
        let mut exporter = std::process::Command::new(&program);
        let done = exporter.args(flags).arg("--version").output();
        let done = done.expect("it starts");
        assert_eq!(done.status.code(), Some(status), "{done:?}");
    }
}

/// `systemctl clean` removes what the unit calls its own.
#[test]
fn the_unit_owns_no_folder_that_others_write_to() {
    let unit = repository().join("packaging/gpushared.service");
    let unit = fs::read_to_string(unit).expect("text");
    let of = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key));
    assert_eq!(of("RuntimeDirectory="), Some("gpushare"));
    assert_eq!(of("StateDirectory="), Some("gpushare"));
    // It writes there all the same, and the folder is made before the unit's sandbox is.
    assert_eq!(of("ReadWritePaths="), Some("-/run/cdi"));
    assert!(of("ExecStartPre=").is_some_and(|made| made.ends_with(" /run/cdi")));
}
