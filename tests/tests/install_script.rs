//! `install.sh` of the tarball, below a root of the test: what it installs and says, and that a
//! removal leaves nothing but what is not its own.

use gpushare_tests::artefacts::repository;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A folder as the tarball unpacks, with stand-ins for the programs and libraries.
fn unpacked() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let packaging = repository().join("packaging");
    let put = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    };
    for program in ["gpushare", "gpushared"] {
        put(&format!("bin/{program}"), b"#!/bin/sh\n");
    }
    put("lib/libsoftgpu_cuda.so", b"a library");
    put("lib/package/libgpushare.so", b"a library");
    put("lib/package/VERSION", b"0.0.0-1\n");
    put("share/man/man1/gpushare.1", b"a page");
    put("share/doc/gpushare/config.toml", b"");
    put(
        "share/containers/oci/hooks.d/gpushare.json",
        b"{\"path\": \"/usr/bin/gpushare-oci-hook\"}",
    );
    for (from, to) in [
        ("versions.sh", "lib/versions.sh"),
        ("install.sh", "install.sh"),
        ("gpushared.service", "gpushared.service"),
        ("gpushare-exporter.service", "gpushare-exporter.service"),
    ] {
        let text = fs::read(packaging.join(from)).expect("it is in the tree");
        put(to, &text);
    }
    folder
}

/// Runs it below a root. Returns what it says.
#[track_caller]
fn install(unpacked: &Path, root: &Path, arguments: &[&str]) -> String {
    let output = Command::new("sh")
        .arg(unpacked.join("install.sh"))
        .args(arguments)
        .env("DESTDIR", root)
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Every file and folder below a root.
fn listing(root: &Path) -> Vec<String> {
    let output = Command::new("find")
        .arg(root)
        .arg("-mindepth")
        .arg("1")
        .output();
    let text = String::from_utf8(output.expect("find").stdout).expect("text");
    text.lines().map(ToOwned::to_owned).collect()
}

#[test]
fn a_prefix_of_its_own_is_empty_again_after_the_removal() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let prefix = ["--prefix", "/opt/own"];
    let said = install(unpacked.path(), root.path(), &prefix);
    assert!(said.contains("/opt/own/bin/gpushare doctor"), "{said}");
    let installed = root.path().join("opt/own");
    for file in [
        "bin/gpushared",
        "lib/gpushare/libgpushare.so",
        "share/man/man1/gpushare.1",
    ] {
        assert!(installed.join(file).exists(), "{file}");
    }
    let unit = root.path().join("etc/systemd/system/gpushared.service");
    let unit = fs::read_to_string(unit).expect("the unit");
    assert!(unit.contains("ExecStart=/opt/own/bin/gpushared"), "{unit}");
    let said = install(
        unpacked.path(),
        root.path(),
        &["--uninstall", "--prefix", "/opt/own"],
    );
    assert!(said.contains("removed from"), "{said}");
    let left = listing(&root.path().join("opt"));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_state_stays_for_another_installation_and_goes_with_the_last() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let kept = ["run/gpushare/node", "var/lib/gpushare/journal"];
    for prefix in ["/usr", "/usr/local"] {
        install(unpacked.path(), root.path(), &["--prefix", prefix]);
    }
    for folder in kept {
        fs::create_dir_all(root.path().join(folder)).expect("made");
    }
    let removed = |prefix| {
        let arguments = ["--uninstall", "--prefix", prefix];
        install(unpacked.path(), root.path(), &arguments);
        kept.map(|folder| root.path().join(folder).exists())
    };
    assert_eq!(removed("/usr/local"), [true, true]);
    assert_eq!(removed("/usr"), [false, false]);
}

#[test]
fn folders_of_the_system_and_files_of_others_stay() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let man = root.path().join("usr/local/share/man/man1");
    fs::create_dir_all(&man).expect("made");
    let own = root.path().join("opt/own/share/doc/other");
    fs::create_dir_all(own.parent().expect("a folder")).expect("made");
    fs::write(&own, "another's").expect("written");
    for prefix in ["/usr/local", "/opt/own"] {
        install(unpacked.path(), root.path(), &["--prefix", prefix]);
        install(
            unpacked.path(),
            root.path(),
            &["--uninstall", "--prefix", prefix],
        );
    }
    assert!(man.exists() && own.exists());
    let left = listing(root.path());
    let files = left.iter().filter(|path| Path::new(path).is_file());
    assert_eq!(files.count(), 1, "{left:?}");
}
