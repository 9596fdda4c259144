//! An upgrade while the settings are wrong that the next start would read, or the driver waits for
//! the next boot.

use super::*;

/// A daemon whose driver fits.
const KNOWS_DRIVER: &str = "#!/bin/sh\n[ \"$1\" != --check-driver ] || exit 0\n";

#[test]
fn an_upgrade_leaves_the_daemon_that_runs_where_settings_are_wrong() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    for (status, refused, restarts) in [
        (78, "", false),
        // It does not run.
        (78, "is-active\n", true),
        (0, "", true),
        (127, "", true),
    ] {
        let daemon = format!("{KNOWS_DRIVER}echo 'config.toml: line 3' >&2\nexit {status}\n");
        fs::write(unpacked.join("bin/gpushared"), daemon).expect("written");
        let (said, asked) = with_systemd(unpacked, root, &[], refused);
        let restarted = asked.contains("\nrestart gpushared.service");
        assert_eq!(restarted, restarts, "{status}: {asked}");
        let words = "correct them, then: systemctl restart gpushared";
        assert_eq!(said.contains(words), !restarts, "{said}");
        assert!(restarts || said.contains("line 3"), "{said}");
    }
}

#[test]
fn an_upgrade_says_nothing_of_settings_that_it_cannot_see() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    let daemon = format!("{KNOWS_DRIVER}echo 'config.toml: line 3' >&2\nexit 78\n");
    fs::write(unpacked.join("bin/gpushared"), daemon).expect("written");
    let file = root.join("a.toml").display().to_string();
    fs::write(&file, "").expect("written");
    for (name, restarts) in [("${CONF}", true), ("/nowhere/a.toml", true), (&file, false)] {
        let shown = format!("ExecStart={{ argv[]=gpushared --config {name} ; pid=7 }}\n");
        fs::write(root.join("active"), shown).expect("written");
        let (said, asked) = with_systemd(unpacked, root, &[], "");
        let restarted = asked.contains("\nrestart gpushared.service");
        assert_eq!(restarted, restarts, "{name}: {asked}");
        assert_eq!(said.contains("line 3"), !restarts, "{name}: {said}");
    }
}

#[test]
fn an_upgrade_leaves_the_daemon_whose_flags_the_next_one_refuses() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    let daemon = "#!/bin/sh\n[ \"$*\" = --check-config ] || { echo \"not $1\" >&2; exit 2; }\n";
    fs::write(unpacked.join("bin/gpushared"), daemon).expect("written");
    let strange = " --swop";
    for (before, flags, restarts) in [
        ("", strange, false),
        ("", " --swop $HOW", true),
        ("", "", true),
        ("/usr/bin/numactl -N0 /opt/bin/", "", true),
        ("/usr/bin/numactl -N0 /opt/bin/", strange, false),
    ] {
        let shown = format!("ExecStart={{ argv[]={before}gpushared{flags} ; pid=7 }}\n");
        fs::write(root.join("active"), shown).expect("written");
        let (said, asked) = with_systemd(unpacked, root, &[], "");
        let restarted = asked.contains("\nrestart gpushared.service");
        assert_eq!(restarted, restarts, "{flags}: {asked}");
        assert_eq!(said.contains("not --swop"), !restarts, "{flags}: {said}");
    }
}

#[test]
fn an_upgrade_leaves_the_daemon_whose_driver_waits_for_the_boot() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    let own = "Environment=A=b LD_LIBRARY_PATH=/run/nvidia/driver/usr/lib64\n";
    for (status, environment, refused, restarts) in [
        (69, "Environment=\n", "", false),
        // It does not run.
        (69, "Environment=\n", "is-active\n", true),
        // The unit has other libraries than this script.
        (69, own, "", true),
        (1, "Environment=\n", "", true),
        (0, "Environment=\n", "", true),
    ] {
        let daemon = format!(
            "#!/bin/sh\n[ \"$1\" = --check-driver ] || exit 0\necho of 550 >&2; exit {status}\n"
        );
        fs::write(unpacked.join("bin/gpushared"), daemon).expect("written");
        fs::write(root.join("active"), environment).expect("written");
        let (said, asked) = with_systemd(unpacked, root, &[], refused);
        let restarted = asked.contains("\nrestart gpushared.service");
        assert_eq!(restarted, restarts, "{status}: {asked}");
        let words = "it would find no driver: reboot";
        assert_eq!(said.contains(words), !restarts, "{said}");
        assert!(restarts || said.contains("of 550"), "{said}");
    }
}

#[test]
fn an_upgrade_leaves_the_exporter_whose_flags_the_next_one_refuses() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    let strict = "#!/bin/sh\n[ \"$1\" = --version ] || { echo \"not $1\" >&2; exit 2; }\n";
    fs::write(unpacked.join("bin/gpushare-exporter"), strict).expect("written");
    for (flags, refused, restarts) in [
        (" --swop", "", false),
        (" --swop", "is-active\n", true),
        ("", "", true),
    ] {
        let shown = format!("ExecStart={{ argv[]=/x/gpushare-exporter{flags} ; pid=7 }}\n");
        fs::write(root.join("active"), shown).expect("written");
        let (said, asked) = with_systemd(unpacked, root, &[], refused);
        let restarted = asked.contains("try-restart gpushare-exporter.service");
        assert_eq!(restarted, restarts, "{flags}: {asked}");
        let named = said.contains("would not accept its flags");
        assert_eq!(named, !restarts, "{said}");
    }
}
