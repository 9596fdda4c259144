//! The shipped library loads on old systems: binary rules, and no output in Debian 11, 12 and 13.

use gpushare_tests::artefacts;
use gpushare_tests::runnable::{not_runnable_here, prepared};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The packaged library. Its tests need an earlier run of `scripts/package.sh`.
fn packaged(test: &str) -> Option<PathBuf> {
    let library = artefacts::repository().join("dist/lib/libgpushare.so");
    match library.canonicalize() {
        Ok(library) => Some(library),
        Err(_) => {
            not_runnable_here(test, "there is no dist/; scripts/package.sh makes it");
            None
        }
    }
}

/// Programs say of which commit they are. Without git nothing is known of it.
#[test]
#[ignore = "long tier: needs all of scripts/package.sh"]
fn packaged_programs_name_the_commit_that_they_are_of() {
    let test = "packaged_programs_name_the_commit_that_they_are_of";
    let Some(library) = packaged(test) else {
        return;
    };
    let dist = library.ancestors().nth(2).expect("dist/lib");
    let commit = std::fs::read_to_string(dist.join("COMMIT")).expect("package.sh writes it");
    let end = match commit.trim() {
        "unknown" => String::new(),
        commit => format!("+{commit}"),
    };
    let mut found = 0;
    for name in [
        "gpushare",
        "gpushared",
        "gpushare-exporter",
        "gpushare-oci-hook",
    ] {
        let Ok(program) = dist.join(name).canonicalize() else {
            continue;
        };
        let output = Command::new(program).arg("--version").output();
        let said = String::from_utf8(output.expect("it starts").stdout).expect("text");
        let (_, version) = said.trim().split_once(' ').expect("a name and a version");
        let number = version.strip_suffix(&end).unwrap_or(version);
        assert_eq!(format!("{number}{end}"), version, "{name}");
        assert!(!number.contains('+'), "{name}: {version}, {commit}");
        found += 1;
    }
    if found == 0 {
        not_runnable_here(test, "dist/ has no programs: package.sh --core made it");
    }
}

fn check(library: &Path) -> Output {
    let script = artefacts::repository().join("scripts/check_binary.py");
    let mut check = Command::new("python3");
    check
        .arg(script)
        .args(["--max-glibc", "2.17", "--alone"])
        .arg(library);
    check.output().expect("python3 is installed")
}

#[test]
fn the_packaged_library_needs_nothing_but_an_old_glibc() {
    let Some(library) = packaged("the_packaged_library_needs_nothing_but_an_old_glibc") else {
        return;
    };
    let output = check(&library);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[test]
fn the_check_finds_what_an_ordinary_build_needs() {
    let output = check(&artefacts::soft_cuda());
    let findings = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        findings.contains("needs GLIBC_2.") && findings.contains("libgcc_s"),
        "{findings}"
    );
}

/// Counts itself: the library is mapped, the shell and a forked child of it work.
const SCRIPT: &str = "while read -r line; do case $line in *libgpushare.so) echo loaded; break;; esac; done </proc/self/maps; (echo child)";

#[test]
fn the_packaged_library_loads_silently_in_debian_11_12_and_13() {
    let name = "the_packaged_library_loads_silently_in_debian_11_12_and_13";
    let Some(library) = packaged(name) else {
        return;
    };
    for suite in ["bullseye", "bookworm", "trixie"] {
        let Some(root) = prepared(name, "debian_root.sh", &[suite]) else {
            return;
        };
        let output = in_root(&root, "bash", &library);
        assert!(output.status.success(), "{suite}: {output:?}");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "loaded\nchild\n",
            "{suite}: {output:?}"
        );
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{suite}");
    }
}

/// Runs the root's own shell with the root's own dynamic linker and C library, without a chroot.
fn in_root(root: &Path, shell: &str, library: &Path) -> Output {
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    let folders = ["lib", "usr/lib"].map(|lib| root.join(lib).join(&multiarch));
    let linker = folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|file| {
            file.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
        })
        .expect("a C library has a dynamic linker");
    let shell = [
        root.join("bin").join(shell),
        root.join("usr/bin").join(shell),
    ];
    let path = folders.map(|folder| folder.display().to_string()).join(":");
    Command::new(
        linker
            .canonicalize()
            .expect("its link leads inside the root"),
    )
    .args(["--library-path", &path])
    .arg(
        shell
            .iter()
            .find(|shell| shell.exists())
            .expect("the root has the shell"),
    )
    .args(["-c", SCRIPT])
    .env_clear()
    .env("LD_PRELOAD", library)
    .output()
    .expect("the linker runs")
}
