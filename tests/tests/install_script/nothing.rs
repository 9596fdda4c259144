//! A removal below a prefix where nothing is installed.

use super::{install, listing, run, unpacked};
use std::fs;
use std::path::Path;

/// Runs a removal that is refused. Returns what it says.
#[track_caller]
fn refused(unpacked: &Path, root: &Path, arguments: &[&str]) -> String {
    let before = listing(root);
    let output = run(unpacked, root, arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(listing(root), before, "nothing is removed or written");
    String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
}

#[test]
fn a_removal_below_a_wrong_prefix_is_refused_and_names_the_right_one() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    install(unpacked, root, &["--prefix", "/opt/own"]);
    for action in ["--uninstall", "--purge"] {
        let said = refused(unpacked, root, &[action, "--prefix", "/opt/other"]);
        let blamed = format!("nothing is installed below {}/opt/other", root.display());
        assert!(said.contains(&blamed), "{said}");
        assert!(said.contains("/opt/own/bin/gpushared"), "{said}");
    }
}

/// As a package's removal, which may be asked for again.
#[test]
fn a_second_removal_has_nothing_to_do_and_says_so() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    let removal = ["--uninstall", "--prefix", "/opt/own"];
    install(unpacked, root, &["--prefix", "/opt/own"]);
    install(unpacked, root, &removal);
    // The machine's folder for the daemon, without an installation.
    fs::create_dir_all(root.join("run/gpushare")).expect("made");
    fs::write(root.join("run/gpushare/cdi"), "/cdi.json\n").expect("written");
    fs::write(root.join("cdi.json"), "").expect("written");
    let before = listing(root);
    let said = install(unpacked, root, &removal);
    let blamed = format!("nothing is installed below {}/opt/own\n", root.display());
    assert!(said.ends_with(&blamed), "{said}");
    assert!(!said.contains("removed from"), "{said}");
    assert_eq!(listing(root), before, "nothing is removed or written");
    // A package's daemon, or one of the script's own place, may be the one that was meant.
    for place in ["usr/bin", "usr/local/bin"] {
        let program = root.join(place).join("gpushared");
        fs::create_dir_all(root.join(place)).expect("made");
        fs::write(&program, "").expect("written");
        super::make_program(&program);
        let said = refused(unpacked, root, &removal);
        assert!(said.contains(&format!("/{place}/gpushared")), "{said}");
        fs::remove_file(program).expect("it is there");
    }
}

#[test]
fn a_purge_after_a_removal_takes_what_the_removal_left() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    install(unpacked, root, &["--prefix", "/opt/own"]);
    let settings = root.join("etc/gpushare/config.toml");
    fs::create_dir_all(root.join("etc/gpushare")).expect("made");
    fs::write(&settings, "").expect("written");
    install(unpacked, root, &["--uninstall", "--prefix", "/opt/own"]);
    assert!(settings.exists());
    install(unpacked, root, &["--purge", "--prefix", "/opt/own"]);
    assert!(!settings.exists());
}

#[test]
fn a_removal_that_was_cut_short_goes_on() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    let own = ["bin", "lib", "share"].map(|part| root.join("opt/own").join(part));
    for left in 0..own.len() {
        install(unpacked, root, &["--prefix", "/opt/own"]);
        for (at, part) in own.iter().enumerate() {
            if at != left {
                fs::remove_dir_all(part).expect("it is there");
            }
        }
        fs::remove_dir_all(root.join("etc")).expect("it is there");
        install(unpacked, root, &["--uninstall", "--prefix", "/opt/own"]);
        assert!(!own[left].exists(), "{}", own[left].display());
    }
}
