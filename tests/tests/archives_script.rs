//! `archives.sh` in a folder of its own, with stand-ins for what `package.sh` has built.

use gpushare_tests::artefacts::repository;
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

/// The sums of all archives that the script makes under this umask.
fn sums(umask: &str, mode: u32) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    tree(folder.path(), mode);
    let line = "umask \"$0\"; scripts/archives.sh >&2 && cd dist/archives && sha256sum *";
    let output = Command::new("sh")
        .args(["-c", line, umask])
        .current_dir(folder.path())
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{umask}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn archives_are_the_same_whatever_the_umask_of_the_build() {
    let usual = sums("022", 0o755);
    assert!(usual.lines().count() >= 2, "{usual}");
    assert_eq!(sums("027", 0o750), usual);
    assert_eq!(sums("002", 0o775), usual);
}
