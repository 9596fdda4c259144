//! `archives.sh` in a folder of its own, with stand-ins for what `package.sh` has built.

use gpushare_tests::artefacts::repository;
use gpushare_tests::runnable::not_runnable_here;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The command line's part: it writes its page and its completions.
const GPUSHARE: &str = "#!/bin/sh\n\
    case $1 in man) mkdir -p \"$2\"; echo page >\"$2/gpushare.1\" ;; *) echo \"$@\" ;; esac\n";

/// A copy of what the script reads, with these permissions of what was built.
fn tree(root: &Path, mode: u32) {
    let put = |name: &str, text: &str| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, text).expect("written");
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
    };
    for program in ["gpushare", "gpushared", "gpushare-exporter"] {
        put(&format!("dist/{program}"), GPUSHARE);
    }
    for name in ["gpushare-oci-hook", "gpushare-runtime"] {
        put(&format!("dist/{name}"), GPUSHARE);
    }
    for library in ["gpushare", "softgpu_cuda"] {
        put(&format!("dist/lib/lib{library}.so"), "a library");
        put(&format!("dist/debug/lib{library}.so.debug"), "symbols");
    }
    put("dist/monitoring/gpushare.json", "{}");
    put("docs/OPERATIONS.md", "a page");
    for name in ["README.md", "CHANGELOG.md", "LICENSE"] {
        put(name, "text");
    }
    let copied = Command::new("cp")
        .args(["-r", "packaging", "scripts", "Cargo.toml"])
        .arg(root)
        .current_dir(repository())
        .status();
    assert!(copied.expect("cp").success());
}

/// Makes the archives under this umask, and runs a line of a shell in their folder. Returns the
/// output of that.
#[track_caller]
fn made(umask: &str, mode: u32, then: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    tree(folder.path(), mode);
    let line = format!("umask \"$0\"; scripts/archives.sh >&2 && cd dist/archives && {then}");
    let output = Command::new("sh")
        .args(["-ec", &line, umask])
        .current_dir(folder.path())
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{umask}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The sums of all archives.
fn sums(umask: &str, mode: u32) -> String {
    made(umask, mode, "sha256sum *")
}

/// Whether a Debian package is made here.
fn has_dpkg(test: &str) -> bool {
    let has = Command::new("dpkg-deb").arg("--version").output().is_ok();
    if !has {
        not_runnable_here(test, "dpkg-deb is not installed");
    }
    has
}

#[test]
fn archives_are_the_same_whatever_the_umask_of_the_build() {
    let usual = sums("022", 0o755);
    assert!(usual.lines().count() >= 2, "{usual}");
    assert_eq!(sums("027", 0o750), usual);
    assert_eq!(sums("002", 0o775), usual);
}

/// Blocks are those of the file system on which the package is made.
#[test]
fn the_size_of_the_package_is_that_of_its_files() {
    if !has_dpkg("the_size_of_the_package_is_that_of_its_files") {
        return;
    }
    let counts = "dpkg-deb -f *.deb Installed-Size; dpkg-deb -x *.deb files; \
                  find files/usr -type f -size +0 -printf '%s\\n'; find files/usr -type d";
    let text = made("022", 0o755, counts);
    let mut lines = text.lines();
    let told: u64 = lines.next().and_then(|size| size.parse().ok()).expect("it");
    let size = |line: &str| line.parse().map_or(1, |size: u64| size.div_ceil(1024));
    assert_eq!(told, lines.map(size).sum::<u64>(), "{text}");
}

#[test]
fn the_package_keeps_needrestart_from_its_programs() {
    let test = "the_package_keeps_needrestart_from_its_programs";
    if !has_dpkg(test) {
        return;
    }
    let file = "etc/needrestart/conf.d/gpushare.conf";
    let shown = format!("dpkg-deb -x *.deb files; cat files/{file}; dpkg-deb -I *.deb conffiles");
    let text = made("022", 0o755, &shown);
    let settings = text.strip_suffix(&format!("/{file}\n"));
    let settings = settings.expect("what the operator changes in it stays through upgrades");
    // The tarball's, for the operator to put there.
    let there = "tar -xzf \"$(ls -- *.tar.gz | grep -v debug)\"; \
                 cat */share/doc/gpushare/needrestart.conf";
    assert_eq!(made("022", 0o755, there), settings);
    // As needrestart reads it, and asks it about a program.
    let reads = format!(
        "our %nrconf = (blacklist => [qr(^/usr/bin/sudo$)]);\n{settings}\n\
         for my $exe (@ARGV) {{ print \"$exe\\n\" if grep {{ $exe =~ /$_/ }} @{{$nrconf{{blacklist}}}}; }}"
    );
    let ours = ["/usr/bin/gpushare", "/usr/local/bin/gpushared"];
    let others = [
        "/usr/bin/gpushare-exporter",
        "/usr/bin/gpushared2",
        "/usr/sbin/sshd",
    ];
    let mut perl = Command::new("perl");
    let asked = perl.args(["-Mstrict", "-we", &reads]);
    let Ok(output) = asked.args(ours).args(others).output() else {
        return not_runnable_here(test, "perl is not installed");
    };
    let passed_over = String::from_utf8_lossy(&output.stdout);
    assert_eq!(passed_over.lines().collect::<Vec<_>>(), ours, "{output:?}");
}
