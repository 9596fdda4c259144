//! `quickstart.sh` in a folder of its own, with stand-ins for the programs that it calls: where it
//! compiles, and what it says before.

use gpushare_tests::artefacts::repository;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The programs that the quickstart of containers takes out of the target folder.
const BUILT: [&str; 6] = [
    "gpushare",
    "gpushared",
    "libgpushare.so",
    "gpushare-oci-hook",
    "libsoftgpu_cuda.so",
    "libsoftgpu_nvml.so",
];

/// A checkout with the script alone, and a folder of programs that is the whole of `PATH`.
struct Checkout {
    _folder: tempfile::TempDir,
    root: PathBuf,
    programs: PathBuf,
}

impl Checkout {
    /// In a folder of this name, for the user of this number, with these stand-ins. Each one says
    /// that it was called.
    fn new(name: &str, user: u32, programs: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = Self {
            root: folder.path().join(name),
            programs: folder.path().join("programs"),
            _folder: folder,
        };
        fs::create_dir_all(at.root.join("scripts")).expect("made");
        fs::create_dir_all(&at.programs).expect("made");
        for script in ["common.sh", "quickstart.sh", "quickstart_containers.sh"] {
            let path = Path::new("scripts").join(script);
            fs::copy(repository().join(&path), at.root.join(&path)).expect("copied");
        }
        let paths = std::env::var_os("PATH").expect("a path");
        for tool in ["bash", "dirname", "sh", "python3", "gcc"] {
            let found = std::env::split_paths(&paths).map(|folder| folder.join(tool));
            let found = found.into_iter().find(|path| path.exists());
            symlink(found.expect(tool), at.programs.join(tool)).expect("linked");
        }
        at.program("id", &format!("echo {user}"));
        at.owner(&user.to_string());
        for program in programs {
            at.program(program, &format!("echo called {program} \"$@\""));
        }
        at
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.programs.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("set");
    }

    /// The checkout is this user's.
    fn owner(&self, user: &str) {
        self.program("stat", &format!("echo {user}"));
    }

    /// As after a build.
    fn built(&self) {
        let release = self.root.join("target/release");
        fs::create_dir_all(&release).expect("made");
        for name in BUILT {
            fs::write(release.join(name), "").expect("written");
        }
    }

    /// Everything that it says, and whether it succeeds.
    fn run(&self, arguments: &[&str]) -> (String, bool) {
        self.run_with(arguments, &[])
    }

    /// The same with these variables.
    fn run_with(&self, arguments: &[&str], more: &[(&str, &str)]) -> (String, bool) {
        let output = Command::new(self.programs.join("bash"))
            .arg(self.root.join("scripts/quickstart.sh"))
            .args(arguments)
            .env("PATH", &self.programs)
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("SUDO_USER")
            .envs(more.iter().copied())
            .output();
        let Output {
            status,
            stdout,
            stderr,
        } = output.expect("bash");
        let said = String::from_utf8([stdout, stderr].concat()).expect("text");
        (said, status.success())
    }
}

const CONTAINERS: &[&str] = &["--containers"];
const COMPILES: &str = "called cargo build";
/// The script goes on in a namespace of its own.
const GOES_ON: &str = "called unshare";

#[test]
fn root_without_cargo_takes_the_programs_that_the_user_has_built() {
    let checkout = Checkout::new("checkout", 0, &["podman", "unshare"]);
    let (said, succeeds) = checkout.run(CONTAINERS);
    assert!(said.contains("cargo is not installed"), "{said}");
    assert!(!succeeds && !said.contains(GOES_ON), "{said}");
    checkout.built();
    let (said, succeeds) = checkout.run(CONTAINERS);
    assert!(succeeds && said.contains(GOES_ON), "{said}");
}

#[test]
fn a_user_builds_and_is_told_to_go_on_as_root() {
    let checkout = Checkout::new("checkout", 1000, &["cargo", "podman", "unshare"]);
    let (said, succeeds) = checkout.run(CONTAINERS);
    assert!(said.contains(COMPILES), "{said}");
    assert!(
        said.contains("sudo scripts/quickstart.sh --containers"),
        "{said}"
    );
    assert!(!succeeds && !said.contains(GOES_ON), "{said}");
    // sudo drops the variable.
    let elsewhere = checkout.root.join("elsewhere").display().to_string();
    let (said, _) = checkout.run_with(CONTAINERS, &[("CARGO_TARGET_DIR", &elsewhere)]);
    let go_on = format!("sudo env CARGO_TARGET_DIR={elsewhere} scripts/quickstart.sh --containers");
    assert!(said.contains(&go_on), "{said}");
}

#[test]
fn a_build_in_a_users_checkout_is_not_made_under_sudo() {
    let checkout = Checkout::new("checkout", 0, &["cargo", "podman", "unshare"]);
    checkout.owner("1000");
    let sudo = [("SUDO_USER", "somebody")];
    let (said, succeeds) = checkout.run_with(CONTAINERS, &sudo);
    assert!(said.contains("first without sudo"), "{said}");
    assert!(!succeeds && !said.contains(COMPILES), "{said}");
    checkout.built();
    let (said, succeeds) = checkout.run_with(CONTAINERS, &sudo);
    assert!(succeeds && !said.contains(COMPILES), "{said}");
    // Where root is the only user, as in a container, it builds.
    let checkout = Checkout::new("checkout", 0, &["cargo", "podman", "unshare"]);
    checkout.owner("1000");
    let (said, succeeds) = checkout.run(CONTAINERS);
    assert!(succeeds && said.contains(COMPILES), "{said}");
}

#[test]
fn root_compiles_again_in_its_own_checkout_and_not_in_a_users() {
    let checkout = Checkout::new("checkout", 0, &["cargo", "podman", "unshare"]);
    checkout.built();
    let owned_by = |owner: &str| {
        checkout.owner(owner);
        let (said, succeeds) = checkout.run(CONTAINERS);
        assert!(succeeds && said.contains(GOES_ON), "{said}");
        said.contains(COMPILES)
    };
    assert!(owned_by("0"));
    assert!(!owned_by("1000"));
}

#[test]
fn a_checkout_in_a_folder_with_a_blank_is_refused_before_it_compiles() {
    for (name, compiles) in [
        ("a checkout", false),
        ("a:checkout", false),
        ("checkout", true),
    ] {
        let checkout = Checkout::new(name, 0, &["cargo"]);
        let (said, _) = checkout.run(&[]);
        assert_eq!(said.contains(COMPILES), compiles, "{name}: {said}");
        let refused = said.contains("without blanks and colons");
        assert_eq!(refused, !compiles, "{name}: {said}");
    }
}

/// Debian's, Ubuntu's and Red Hat's Podman comes with crun alone.
#[test]
fn podman_is_asked_for_runc_only_where_that_is_installed() {
    // The program itself: what is first in PATH may be a script.
    let python = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output();
    let python = String::from_utf8(python.expect("python3").stdout).expect("text");
    for tools in [&["podman", "mount", "runc"][..], &["podman", "mount"]] {
        let checkout = Checkout::new("checkout", 0, tools);
        checkout.program("podman", "echo \"$@\" >&2");
        let output = Command::new(python.trim())
            .arg(repository().join("scripts/quickstart_containers.py"))
            .arg("podman")
            .env("PATH", &checkout.programs)
            .envs([("LAB", &checkout.root), ("BUILD", &checkout.root)])
            .env("SOFTGPU", "name=any")
            .output();
        let Output { stderr, .. } = output.expect("python3");
        let asked = String::from_utf8(stderr).expect("text");
        assert!(asked.contains("--security-opt label=disable"), "{asked}");
        let named = asked.contains("--runtime runc ");
        assert_eq!(named, tools.contains(&"runc"), "{asked}");
    }
}
