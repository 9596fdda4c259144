//! The memory families through the C library: each case is a function of a C program that was linked against it as applications are.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A folder with the library under test, by the names its users look for. Cargo does not build a C library for its own tests, so the
/// first call does.
fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = env::current_exe().expect("/proc is mounted");
        let profile = test.ancestors().nth(2).expect("cargo puts tests into <profile>/deps");
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "-p", "softgpu-cuda"]).env("CARGO_TARGET_DIR", profile.parent().expect("<target>/<profile>"));
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().expect("cargo runs").success(), "the library does not build");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("memory");
        fs::create_dir_all(&folder).expect("the target folder is writable");
        for name in ["libcuda.so.1", "libcuda.so"] {
            let _ = fs::remove_file(folder.join(name));
            symlink(profile.join("libsoftgpu_cuda.so"), folder.join(name)).expect("the target folder is writable");
        }
        folder
    })
}

/// Compiles a client, once for all cases.
fn client(name: &str) -> PathBuf {
    static BUILT: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let library = library();
    let program = library.join(name);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if !built.iter().any(|done| done == name) {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-g", "-Wall", "-Werror", "-pthread", "-o"]).arg(&program);
        cc.arg(sources.join(name).with_extension("c")).arg("-L").arg(library).arg("-lcuda");
        assert!(cc.status().expect("cc is installed").success(), "{name}.c does not compile");
        built.push(name.to_owned());
    }
    program
}

/// Runs one case on a machine of its own and returns what it printed.
fn run(name: &str, case: &str, spec: &str) -> String {
    let program = client(name);
    let output = Command::new(program)
        .arg(case)
        .env("LD_LIBRARY_PATH", library())
        .env("SOFTGPU", spec)
        .env_remove("SOFTGPU_FAIL")
        .output()
        .expect("the client starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {case}: {:?}\n{said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

macro_rules! cases {
    ($($(#[$meta:meta])* $test:ident = $client:literal $case:literal $spec:literal;)*) => {$(
        $(#[$meta])*
        #[test]
        fn $test() {
            print!("{}", run($client, $case, $spec));
        }
    )*};
}

cases! {
    nothing_is_allocated_without_a_context = "linear" "without_context" "mem=256MiB";
    every_size_fills_the_device_and_gives_it_all_back_twice = "linear" "exhaustion" "mem=512MiB";
    wrong_sizes_and_pointers_are_refused = "linear" "wrong_arguments" "mem=256MiB";
    bytes_survive_every_way_of_one_dimension = "linear" "round_trips" "mem=256MiB";
    memsets_write_their_elements_and_nothing_else = "linear" "fills" "mem=256MiB";
    rows_survive_pitched_memory = "linear" "pitched" "mem=256MiB";
    pinned_memory_is_the_hosts_and_the_devices = "linear" "pinned" "mem=256MiB";
    pageable_memory_is_read_at_the_call_and_written_before_it_returns = "linear" "asynchronous" "mem=256MiB";
    managed_memory_is_resident_where_it_was_sent = "linear" "managed" "mem=256MiB";
    more_managed_memory_than_the_device_has_loses_nothing = "linear" "oversubscribed" "mem=512MiB";
    a_destroyed_context_takes_its_memory_with_it = "linear" "context_takes_all_with_it" "mem=512MiB";
    pointers_say_what_they_are = "linear" "attributes" "mem=256MiB";
    two_hundred_thousand_allocations_stay_fast = "linear" "speed" "mem=512MiB";
}
