//! An installation, an upgrade and a removal where systemd runs: which units start and stop.

use super::*;

#[test]
fn a_daemon_that_does_not_start_is_named_and_the_rest_is_installed() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    let (said, asked) = with_systemd(unpacked, root, &[], "");
    assert!(said.contains("enabled and runs"), "{said}");
    assert!(
        asked.contains("enable gpushared.service\nrestart gpushared.service\n"),
        "{asked}"
    );
    // As without a driver.
    let (said, asked) = with_systemd(unpacked, root, &[], "restart\ntry-restart\n");
    assert!(
        said.contains("did not start (journalctl -u gpushared"),
        "{said}"
    );
    assert!(
        asked.contains("try-restart gpushare-exporter.service"),
        "{asked}"
    );
    let (said, _) = with_systemd(unpacked, root, &["--uninstall"], "disable\n");
    assert!(said.contains("could not be stopped"), "{said}");
    assert!(said.contains("removed from"), "{said}");
    assert!(!root.join("etc/systemd/system/gpushared.service").exists());
}

/// A unit of this folder of the machine that starts a program of this prefix, which is there.
fn unit_of(root: &Path, folder: &str, prefix: &str) {
    let program = root.join(prefix).join("bin/gpushared");
    let unit = root.join(folder).join("gpushared.service");
    for path in [&program, &unit] {
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    }
    fs::write(&program, "").expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, mode).expect("set");
    let text = format!("[Service]\nExecStart={}\n", program.display());
    fs::write(unit, text).expect("written");
}

#[test]
fn an_uninstall_leaves_a_unit_that_starts_another_prefixes_daemon() {
    for other in [true, false] {
        let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
        let (unpacked, root) = (unpacked.path(), root.path());
        with_systemd(unpacked, root, &[], "");
        if other {
            unit_of(root, "etc/systemd/system", "other");
        }
        let state = root.join("var/lib/gpushare");
        fs::create_dir_all(&state).expect("made");
        let (said, asked) = with_systemd(unpacked, root, &["--purge"], "");
        let unit = root.join("etc/systemd/system/gpushared.service");
        assert_eq!((unit.exists(), state.exists()), (other, other));
        assert_eq!(asked.contains("disable --now gpushared"), !other, "{asked}");
        assert_eq!(said.contains("another installation's"), other, "{said}");
        assert!(!root.join("opt/bin/gpushared").exists());
    }
}

#[test]
fn a_packages_unit_goes_on_as_the_one_that_hid_it() {
    for (refused, state, does) in [
        ("", "active", [true, true]),
        // Between two starts, as without a driver.
        ("", "activating", [true, true]),
        ("is-enabled\n", "active", [false, true]),
        // The operator stopped it.
        ("", "inactive", [true, false]),
        ("is-enabled\n", "inactive", [false, false]),
    ] {
        let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
        let (unpacked, root) = (unpacked.path(), root.path());
        with_systemd(unpacked, root, &[], "");
        unit_of(root, "usr/lib/systemd/system", "usr");
        fs::write(root.join("active"), format!("ActiveState={state}\n")).expect("written");
        let (said, asked) = with_systemd(unpacked, root, &["--uninstall"], refused);
        let after = asked.rsplit("daemon-reload\n").next().expect("a part");
        let acts = ["enable gpushared.service\n", "start gpushared.service\n"];
        assert_eq!(acts.map(|act| after.contains(act)), does, "{asked}");
        assert!(said.contains("is the machine's now"), "{said}");
        assert!(!root.join("run/gpushare/removed").exists());
    }
    // Without it there is nothing to start.
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    with_systemd(unpacked, root, &[], "");
    let (_, asked) = with_systemd(unpacked, root, &["--uninstall"], "");
    assert!(asked.ends_with("daemon-reload\n"), "{asked}");
}

#[test]
fn an_installation_that_starts_nothing_is_known_to_systemd() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    let (_, asked) = with_systemd(unpacked, root, &["--no-start"], "");
    assert_eq!(asked, "daemon-reload\n");
    // A unit that goes away is stopped in any case.
    let (_, asked) = with_systemd(unpacked, root, &["--uninstall", "--no-start"], "");
    assert!(asked.contains("disable --now gpushared.service"), "{asked}");
}
