//! What the two hot paths cost, in instructions: the same on every machine, so that it can be checked. Times are printed by
//! `scripts/bench.sh`.

use gpushare_tests::artefacts;
use gpushare_tests::runnable::not_runnable_here;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Instructions a pair of cuMemAlloc and cuMemFree within credit may add to the driver's own. Measured 355, three of them locked.
const ALLOC_AND_FREE: i64 = 450;
/// Instructions a cuLaunchKernel may add. Launches are not hooked before a gate is needed, so none but the rounding of two runs.
const LAUNCH: i64 = 2;

const ROUNDS: u64 = 21_000;

struct Bench {
    folder: PathBuf,
    library: PathBuf,
}

/// The bench program, the driver that does nothing, and the library as it is shipped.
fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(|| {
        let folder = artefacts::cache().join("bench");
        std::fs::create_dir_all(&folder).expect("the target folder is writable");
        let sources = artefacts::repository().join("tests/bench");
        let driver = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
        compile(
            &sources.join("stub_driver.c"),
            &folder.join("libcuda.so.1"),
            &driver,
        );
        compile(&sources.join("calls.c"), &folder.join("calls"), &["-ldl"]);
        let target = artefacts::folder()
            .parent()
            .expect("a profile is in a target folder");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(artefacts::repository())
            .env("CARGO_TARGET_DIR", target);
        cargo.args([
            "build",
            "--release",
            "--quiet",
            "--locked",
            "-p",
            "gpushare-interposer",
        ]);
        assert!(
            cargo.status().expect("cargo runs").success(),
            "the library does not build"
        );
        Bench {
            folder,
            library: target.join("release/libgpushare.so"),
        }
    })
}

fn compile(source: &Path, to: &Path, flags: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Werror", "-o"])
        .arg(to)
        .arg(source)
        .args(flags);
    assert!(
        cc.status().expect("cc is installed").success(),
        "{} does not compile",
        source.display()
    );
}

impl Bench {
    /// All instructions of a run.
    fn run(&self, call: &str, rounds: u64, hooked: bool) -> i64 {
        let runtime = tempfile::tempdir().expect("a temporary folder");
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        valgrind
            .arg(self.folder.join("calls"))
            .args([call, &rounds.to_string(), "1000"]);
        valgrind
            .env("LD_LIBRARY_PATH", &self.folder)
            .env("XDG_RUNTIME_DIR", runtime.path());
        if hooked {
            valgrind
                .env("LD_PRELOAD", &self.library)
                .env("GPUSHARE_MEM_LIMIT", "8GiB");
        }
        let output = valgrind.output().expect("valgrind starts");
        let report = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{report}");
        let collected = report
            .lines()
            .find_map(|line| line.split("Collected : ").nth(1));
        collected
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or_else(|| panic!("{report}"))
    }

    /// Instructions one call (or pair of calls) takes: start-up cancels out between a short run and a long one.
    fn each(&self, call: &str, hooked: bool) -> i64 {
        let more = self.run(call, 2 * ROUNDS, hooked) - self.run(call, ROUNDS, hooked);
        more / i64::try_from(ROUNDS).expect("a small number")
    }
}

/// Checks what the library adds to a call.
fn adds_at_most(call: &str, most: i64) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        not_runnable_here(call, "valgrind is not installed");
        return;
    }
    let (bare, hooked) = (bench().each(call, false), bench().each(call, true));
    eprintln!("{call}: {hooked} instructions, {bare} of them the driver's");
    assert!(
        hooked - bare <= most,
        "{call}: {} instructions added, {most} allowed",
        hooked - bare
    );
}

#[test]
fn an_allocation_and_its_free_within_credit() {
    adds_at_most("alloc", ALLOC_AND_FREE);
}

#[test]
fn a_launch() {
    adds_at_most("launch", LAUNCH);
}
