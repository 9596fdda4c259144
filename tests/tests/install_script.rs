//! `install.sh` of the tarball, below a root of the test: what it installs and says, and that a
//! removal leaves nothing but what is not its own.

mod engines;
mod nothing;
mod settings;
mod systemd;
mod units;
mod unpacked;
mod upgrades;

use gpushare_tests::artefacts::repository;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output};

/// A folder as the tarball unpacks, with stand-ins for the programs and libraries.
fn unpacked() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let packaging = repository().join("packaging");
    let put = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    };
    for program in ["gpushare", "gpushared", "gpushare-runtime"] {
        put(&format!("bin/{program}"), b"#!/bin/sh\n");
    }
    put("lib/libsoftgpu_cuda.so", b"a library");
    put("lib/package/libgpushare.so", b"a library");
    put("lib/package/VERSION", b"0.0.0-1\n");
    put("share/man/man1/gpushare.1", b"a page");
    put("share/doc/gpushare/config.toml", b"");
    put("share/doc/gpushare/docs/schema/ps.json", b"{}");
    put(
        "share/containers/oci/hooks.d/gpushare.json",
        b"{\"path\": \"/usr/bin/gpushare-oci-hook\"}",
    );
    for (from, to) in [
        ("versions.sh", "lib/versions.sh"),
        ("wrapped.sh", "lib/wrapped.sh"),
        ("install.sh", "install.sh"),
        ("gpushared.service", "gpushared.service"),
        ("gpushare-exporter.service", "gpushare-exporter.service"),
    ] {
        let text = fs::read(packaging.join(from)).expect("it is in the tree");
        put(to, &text);
    }
    folder
}

/// Runs it below a root, to its end.
fn run(unpacked: &Path, root: &Path, arguments: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    shell.arg(unpacked.join("install.sh")).args(arguments);
    shell.env("DESTDIR", root).output().expect("a shell")
}

/// The same of an installation, or of a removal that is not refused. Returns what it says.
#[track_caller]
fn install(unpacked: &Path, root: &Path, arguments: &[&str]) -> String {
    let output = run(unpacked, root, arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn make_program(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
}

/// Every file and folder below a root that not all users can use.
fn closed(root: &Path) -> String {
    let line = "cd \"$1\" && find . -mindepth 1 -type d ! -perm -005 -o -type f ! -perm -004";
    let output = Command::new("sh")
        .args(["-c", line, "sh"])
        .arg(root)
        .output();
    String::from_utf8(output.expect("a shell").stdout).expect("text")
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
fn what_is_installed_is_open_to_all_users_whatever_the_umask() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let installed = || {
        let done = Command::new("sh")
            .args(["-c", "umask 027; exec sh \"$@\"", "sh"])
            .arg(unpacked.path().join("install.sh"))
            .args(["--prefix", "/opt/own"])
            .env("DESTDIR", root.path())
            .output();
        assert!(done.expect("a shell").status.success());
    };
    installed();
    assert_eq!(closed(root.path()), "");
    // As an earlier version of the script left it.
    let library = root.path().join("opt/own/lib/gpushare");
    let close = Command::new("chmod")
        .args(["-R", "o="])
        .arg(library)
        .status();
    assert!(close.expect("chmod").success());
    assert_ne!(closed(root.path()), "");
    installed();
    assert_eq!(closed(root.path()), "");
}

#[test]
fn the_state_stays_until_it_is_purged_after_the_last_installation() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let kept = ["run/gpushare/node", "var/lib/gpushare", "etc/gpushare"];
    for prefix in ["/usr", "/usr/local"] {
        install(unpacked.path(), root.path(), &["--prefix", prefix]);
    }
    for folder in kept {
        fs::create_dir_all(root.path().join(folder)).expect("made");
    }
    let settings = root.path().join("etc/gpushare/config.toml");
    let journal = root.path().join("var/lib/gpushare/journal.jsonl");
    for file in [&settings, &journal] {
        fs::write(file, "").expect("written");
    }
    let mark = root.path().join("run/gpushare/removed");
    let (specification, record) = (
        root.path().join("cdi.json"),
        root.path().join("run/gpushare/cdi"),
    );
    let publish = || {
        fs::write(&specification, "").expect("written");
        // A folder cannot be removed so.
        fs::write(&record, "/run\n/cdi.json\n").expect("written");
    };
    publish();
    let removed = |action, prefix| {
        install(unpacked.path(), root.path(), &[action, "--prefix", prefix]);
        kept.map(|folder| root.path().join(folder).exists())
    };
    // Another installation's daemon has these folders.
    assert_eq!(removed("--purge", "/usr/local"), [true; 3]);
    assert!(!mark.exists() && settings.exists() && specification.exists());
    // Running programs wait for the next daemon; the machine has none.
    assert_eq!(removed("--uninstall", "/usr"), [true; 3]);
    assert!(mark.exists() && settings.exists());
    assert!(!specification.exists() && !record.exists());
    install(unpacked.path(), root.path(), &["--prefix", "/usr"]);
    publish();
    assert_eq!(removed("--purge", "/usr"), [false; 3]);
    assert!(!specification.exists());
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
    let pages = left.iter().find(|path| path.contains("doc/gpushare"));
    assert_eq!(pages, None, "of the documentation nothing is left");
}

/// The file names that follow `before` in a text.
fn named<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    let name = |rest: &'a str| rest.split(|letter: char| !is_part(letter)).next();
    text.split(before).skip(1).filter_map(name).collect()
}

#[test]
fn the_archives_have_the_pages_that_help_and_readme_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = repository().join("scripts/docs.sh");
    let done = Command::new(script).arg(folder.path()).output();
    let done = done.expect("bash");
    assert!(done.status.success(), "{done:?}");
    let read = |name: &str| fs::read_to_string(repository().join(name)).expect("it is in the tree");
    let (readme, help, operations) = (
        read("README.md"),
        read("cli/src/args.rs"),
        read("docs/OPERATIONS.md"),
    );
    let mut pages: Vec<String> = Vec::new();
    let of = |text: &'static str, names: Vec<&str>| -> Vec<String> {
        names.iter().map(|name| format!("{text}{name}")).collect()
    };
    pages.extend(of("docs/", named(&readme, "](docs/")));
    pages.extend(of("docs/schema/", named(&help, "docs/schema/")));
    pages.extend(of("docs/schema/", named(&operations, "](schema/")));
    pages.extend(of("docs/adr/", named(&operations, "](adr/")));
    assert!(pages.len() > 20, "{pages:?}");
    for page in pages {
        // A name at the end of a sentence has its full stop behind it.
        let page = page.trim_end_matches('.');
        assert!(folder.path().join(page).exists(), "{page}");
    }
}

/// A stand-in for systemd's command: it writes down what it was asked to do, and refuses what it is
/// told to.
const SYSTEMCTL: &str = r#"#!/bin/sh
case "$1" in is-active | show) ;; *) echo "$*" >>"$ROOT/asked" ;; esac
[ "$1" != show ] || cat "$ROOT/active" 2>/dev/null || echo ActiveState=active
! grep -qx "$1" "$ROOT/refused"
"#;

/// Prefixes that the unit would hide from its own daemon. A test's folder is in one of them.
const HIDDEN: &str = "/home/* | /root/* | /run/user/* | /tmp/* | /var/tmp/*";

#[test]
fn a_prefix_that_the_unit_hides_from_its_daemon_or_misreads_is_refused() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let unit = fs::read_to_string(unpacked.path().join("gpushared.service")).expect("text");
    assert!(unit.contains("ProtectHome=yes") && unit.contains("PrivateTmp=yes"));
    // An installation of an older script is removed.
    let older = root.path().join("home/me/lib/gpushare");
    fs::create_dir_all(older).expect("made");
    let removed = install(
        unpacked.path(),
        root.path(),
        &["--uninstall", "--prefix", "/home/me"],
    );
    assert!(removed.contains("removed from"), "{removed}");
    for (prefix, code) in [
        ("/home/me/gpushare", 2),
        ("/home", 2),
        ("/root/gpushare", 2),
        ("/tmp/gpushare", 2),
        ("/", 2),
        ("opt", 2),
        ("/opt/my gpushare", 2),
        ("/opt/a&b", 2),
        ("/opt/%n", 2),
        ("/opt//gpushare", 2),
        ("/opt/../home/me", 2),
        ("/homes/gpushare/", 0),
    ] {
        let done = run(unpacked.path(), root.path(), &["--prefix", prefix]);
        assert_eq!(done.status.code(), Some(code), "{prefix}: {done:?}");
    }
    let unit = root.path().join("etc/systemd/system/gpushared.service");
    let unit = fs::read_to_string(unit).expect("text");
    assert!(
        unit.contains("ExecStart=/homes/gpushare/bin/gpushared\n"),
        "{unit}"
    );
}

/// A version's library, which is a program here, so that a process maps it.
#[test]
fn a_version_that_a_removal_kept_goes_with_the_next_one() {
    use std::os::unix::fs::PermissionsExt;
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    fs::copy("/bin/cat", unpacked.join("lib/package/libgpushare.so")).expect("copied");
    install(unpacked, root, &["--prefix", "/opt/own"]);
    let installed = root.join("opt/own/lib/gpushare");
    let library = installed.join("versions/0.0.0-1/libgpushare.so");
    fs::set_permissions(&library, fs::Permissions::from_mode(0o755)).expect("set");
    let mut user = Command::new(&library)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it is a program");
    // A program that says something is mapped.
    let said = user.stdout.as_mut().expect("piped");
    let told = user.stdin.as_mut().expect("piped").write_all(b"\n");
    told.and_then(|()| said.read_exact(&mut [0])).expect("cat");
    for _ in 0..2 {
        let said = install(unpacked, root, &["--uninstall", "--prefix", "/opt/own"]);
        assert!(
            said.contains("a purge or the next installation removes it"),
            "{said}"
        );
        assert!(library.exists());
    }
    drop(user.stdin.take());
    user.wait().expect("it is ours");
    install(unpacked, root, &["--purge", "--prefix", "/opt/own"]);
    let left = listing(&root.join("opt"));
    assert!(left.is_empty(), "{left:?}");
}

/// With that script a purge of the package would remove this installation's library.
#[test]
fn what_a_removed_package_left_to_its_purge_does_not_stay() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let kept = root.path().join("usr/lib/gpushare/kept.sh");
    fs::create_dir_all(kept.parent().expect("a folder")).expect("made");
    fs::write(&kept, "").expect("written");
    install(unpacked.path(), root.path(), &["--prefix", "/opt/own"]);
    assert!(kept.exists());
    install(unpacked.path(), root.path(), &["--prefix", "/usr"]);
    assert!(!kept.exists());
}

/// Runs the installer as root would on a machine whose systemd refuses these actions. All of the
/// machine is below `root`. Returns what it says, and what systemd was asked.
#[track_caller]
fn with_systemd(
    unpacked: &Path,
    root: &Path,
    arguments: &[&str],
    refused: &str,
) -> (String, String) {
    let script = fs::read_to_string(unpacked.join("install.sh")).expect("it is there");
    let here = root.display().to_string();
    let script = script
        .replace("$root/", &format!("{here}/"))
        .replace("[ -d /run/systemd/system ]", "true")
        .replace("$(id -u)", "0")
        .replace(HIDDEN, "/nowhere/*");
    fs::write(unpacked.join("here.sh"), script).expect("written");
    fs::write(root.join("systemctl"), SYSTEMCTL).expect("written");
    fs::write(root.join("asked"), "").expect("written");
    fs::write(root.join("refused"), refused).expect("written");
    let path = std::env::var("PATH").unwrap_or_default();
    let done = Command::new("sh")
        .args(["-c", "chmod +x \"$ROOT/systemctl\"; exec sh \"$@\"", "sh"])
        .arg(unpacked.join("here.sh"))
        .args(arguments)
        .args(["--prefix", &format!("{here}/opt")])
        .env("ROOT", root)
        .env("PATH", format!("{here}:{path}"))
        .env_remove("DESTDIR")
        .output()
        .expect("a shell");
    assert!(done.status.success(), "{done:?}");
    let said = [done.stdout, done.stderr].concat();
    let asked = fs::read_to_string(root.join("asked")).expect("text");
    (String::from_utf8(said).expect("text"), asked)
}

/// Machines that have this root as their own run programs that are not seen here.
#[test]
fn an_upgrade_below_another_root_drops_no_version() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let versions = root.path().join("opt/own/lib/gpushare/versions");
    for version in ["1", "2", "3"] {
        let file = unpacked.path().join("lib/package/VERSION");
        fs::write(file, version).expect("written");
        install(unpacked.path(), root.path(), &["--prefix", "/opt/own"]);
        assert!(versions.join(version).exists());
    }
    assert!(versions.join("1/libgpushare.so").exists());
}
