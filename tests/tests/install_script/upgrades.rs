//! An upgrade: what an older version brought, and what the operator changed.

use super::*;

/// The daemon's unit below a root.
fn unit(root: &Path) -> std::path::PathBuf {
    root.join("etc/systemd/system/gpushared.service")
}

/// The maxima of all tenants may hang on a flag of it.
#[test]
fn an_upgrade_keeps_a_unit_that_the_operator_changed_and_says_so() {
    for before in ["", "/usr/bin/numactl -N0 "] {
        let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
        let (unpacked, root) = (unpacked.path(), root.path());
        let prefix = ["--prefix", "/opt/own"];
        let upgrade = || {
            let done = run(unpacked, root, &prefix);
            assert!(done.status.success(), "{done:?}");
            String::from_utf8(done.stderr).expect("text")
        };
        let read = |path: &Path| fs::read_to_string(path).expect("a unit");
        assert_eq!(upgrade(), "");
        let packaged = read(&unit(root));
        // Another version's has other lines, and takes the place of what nobody changed.
        let newer = unpacked.join("gpushared.service");
        let text = read(&newer) + "# newer\n";
        fs::write(&newer, text).expect("written");
        assert_eq!(upgrade(), "");
        assert_eq!(read(&unit(root)), format!("{packaged}# newer\n"));
        let program = "ExecStart=/opt/own/bin/gpushared";
        let own = format!("ExecStart={before}/opt/own/bin/gpushared --reserve 1GiB");
        let changed = packaged.replace(program, &own);
        fs::write(unit(root), &changed).expect("written");
        let offered = unit(root).with_extension("service.new");
        for _ in 0..2 {
            let said = upgrade();
            assert!(
                said.contains("gpushared.service, which was changed"),
                "{said}"
            );
            assert_eq!(read(&unit(root)), changed);
            assert_eq!(read(&offered), format!("{packaged}# newer\n"));
        }
        // As the line says.
        fs::rename(&offered, unit(root)).expect("moved");
        let text = read(&newer) + "# newest\n";
        fs::write(&newer, text).expect("written");
        assert_eq!(upgrade(), "");
        assert_eq!(read(&unit(root)), format!("{packaged}# newer\n# newest\n"));
        fs::write(unit(root), &changed).expect("written");
        upgrade();
        install(unpacked, root, &["--purge", "--prefix", "/opt/own"]);
        assert!(!unit(root).exists() && !offered.exists());
    }
}

/// The last run of the script has the machine's daemon.
#[test]
fn another_prefixs_unit_is_replaced_and_not_kept() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    for prefix in ["/opt/own", "/opt/other", "/opt/own"] {
        install(unpacked.path(), root.path(), &["--prefix", prefix]);
        let text = fs::read_to_string(unit(root.path())).expect("a unit");
        let line = format!("ExecStart={prefix}/bin/gpushared\n");
        assert!(text.contains(&line), "{text}");
    }
}

const OLD: [&str; 3] = [
    "bin/gpushare-old",
    "share/man/man1/gpushare-old.1",
    "share/doc/gpushare/docs/adr/old/0001-old.md",
];
/// Engines may call these.
const HOOKS: [&str; 3] = [
    "bin/gpushare-runtime",
    "bin/gpushare-oci-hook",
    "share/containers/oci/hooks.d/gpushare.json",
];

/// As of a version without these files.
fn lacks(unpacked: &Path, files: &[&str]) {
    for file in files {
        fs::remove_file(unpacked.join(file)).expect("it is there");
    }
}

#[test]
fn an_upgrade_removes_what_only_the_older_version_brought() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    for file in OLD.into_iter().chain(["bin/gpushare-oci-hook"]) {
        let path = unpacked.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, "old").expect("written");
    }
    let at = |file: &str| root.join("opt/own").join(file);
    let there = |files: [&str; 3]| files.map(|file| at(file).exists());
    let prefix = ["--prefix", "/opt/own"];
    install(unpacked, root, &prefix);
    fs::write(at("share/doc/gpushare/notes"), "another's").expect("written");
    assert_eq!((there(OLD), there(HOOKS)), ([true; 3], [true; 3]));
    lacks(unpacked, &OLD);
    lacks(unpacked, &HOOKS);
    for _ in 0..2 {
        install(unpacked, root, &prefix);
        assert_eq!((there(OLD), there(HOOKS)), ([false; 3], [true; 3]));
    }
    assert!(!at("share/doc/gpushare/docs/adr").exists());
    assert!(at("share/doc/gpushare/notes").exists() && at("bin/gpushared").exists());
    fs::remove_file(at("share/doc/gpushare/notes")).expect("it is there");
    let removal = ["--uninstall", "--prefix", "/opt/own"];
    install(unpacked, root, &removal);
    let left = listing(&root.join("opt"));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_removal_by_another_versions_script_takes_all_that_was_installed() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    install(unpacked, root, &["--prefix", "/opt/own"]);
    lacks(unpacked, &["bin/gpushared", "share/man/man1/gpushare.1"]);
    install(unpacked, root, &["--uninstall", "--prefix", "/opt/own"]);
    let left = listing(&root.join("opt"));
    assert!(left.is_empty(), "{left:?}");
}
