//! The cost of the hot paths in instructions. It is the same on every machine, so tests can check
//! it. `scripts/bench.sh` prints times.

use gpushare_protocol::page::lease::{LeaseState, Turn};
use gpushare_protocol::wire::ShareState;
use gpushare_tests::dealer::turn;
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{Daemon, Dealer, Gpu, Guest, artefacts, until};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Maximum instructions that a pair of cuMemAlloc and cuMemFree within credit adds to the driver's.
/// Measured 413, three of them locked (459 while the thread's context was found by a call of the
/// dynamic linker's); 65 of them make a call safe that never returns (ADR 35).
const ALLOC_AND_FREE: i64 = 430;
/// Instructions that a pair of cuMemAllocAsync and cuMemFreeAsync may add when it reuses memory of
/// its pool. Measured 1,629, with the reserved size read once by three calls of a driver that does
/// nothing (ADR 79), and with what was freed kept as room (ADR 243); 1,446 without that, and 2,022
/// while a model of the pool's addresses spared most of these calls.
const ALLOC_AND_FREE_ASYNC: i64 = 1_650;
/// Maximum instructions that a cuLaunchKernel adds while its tenant has no compute limit. Measured
/// 47, none of them locked; half of them pass on its eleven arguments.
const LAUNCH: i64 = 50;
/// The same for a cuGraphLaunch, which has two arguments. Measured 29.
const GRAPH: i64 = 32;
/// The same for a cuMemGetInfo, however many processes the tenant has. Measured 311 (13,374 when
/// each asked the driver twice and looked at 512 slots).
const INFO: i64 = 350;
/// The same for a cuStreamSynchronize while no limit applies. Measured 19.
const WAIT: i64 = 24;
/// The same for a cuLaunchKernel while another tenant may be at work on the device, without and
/// with yielding, on average. Measured 216 and 239, on busy machines up to 266 (1,546 when each
/// took the device's lock): 176 of
/// a launch that takes no lock, and a part of one that does, enters what up to 256 others announced
/// and puts a mark behind it. How many that are depends on the clock.
const CONTENDED: i64 = 290;
/// The same for a cuEventQuery or a cuEventRecord while no limit applies: frameworks poll. Measured
/// 7 and 8.
const SEEN: i64 = 9;
/// The same for a memset or copy of less than 1 MiB, and for one from or to the host. Measured 7 to
/// 10, and two more since a process whose memory may move is told apart.
const MOVE: i64 = 14;
/// The same for a copy of a process whose memory may move, which a seal has to see. Measured 35.
const SEALABLE: i64 = 50;
/// The same for a pair of a small cuMemAlloc and its cuMemFree where memory may move: both are
/// served without the driver's own functions. Measured 508, about 170 of them for the books of the
/// slab (965 when the pointer table had them too, 4,780 when each free waited for an event, 28,125
/// when it looked at all parts of its slab).
const SMALL_AND_FREE: i64 = 525;
/// The same for a memset of 1 MiB or more, which passes the gate. Measured 35.
const BULK: i64 = 40;
/// The tolerated difference of two counts of one path: rounding.
const NOISE: i64 = 1;

/// Pointers that the dynamic linker adjusts each time the library is loaded, into whatever program.
/// Measured 3,105 (3,013 before executable graphs followed their updates and pools' calls could be
/// refused early, 2,926 before early refusals were told apart by kind of call and graphs' memory
/// was booked behind the gate, 2,816 before NVML's sessions and accounts were shown to a tenant and
/// further contexts waited for room, 2,713 before the tenant's lock stayed open and memory of lost
/// devices was given up, 2,629 before waits of contexts were followed, 2,537 before small
/// allocations and pools could move and managed memory and files came; 2,244 before memory could
/// move; 6,363 when the tables of names held pointers, 2,821 while each hook held one to its own).
const RELOCATIONS: usize = 3_200;
/// Pages of 4 KiB that have such a pointer: each is copied into each program. Measured 14 (20 while
/// the hooks' addresses stood among their names).
const PAGES: usize = 15;

const ROUNDS: u64 = 21_000;
/// Launches are cheap, so more rounds are counted.
const LAUNCHES: u64 = 20 * ROUNDS;

/// Names a packaged library to count in, such as `dist/lib/libgpushare.so`; without it one is
/// built.
const SHIPPED: &str = "GPUTEST_SHIPPED_LIBRARY";

struct Bench {
    folder: PathBuf,
    library: PathBuf,
}

/// The bench program, the driver that does nothing, and the library as it is shipped.
fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(|| {
        let sources = artefacts::repository().join("tests/bench");
        let [driver, program] = ["stub_driver.c", "calls.c"].map(|name| sources.join(name));
        let folder = folder_of(&[&driver, &program]);
        let shared = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
        compile(&driver, &folder.join("libcuda.so.1"), &shared);
        compile(&program, &folder.join("calls"), &["-ldl"]);
        Bench {
            folder,
            library: std::env::var_os(SHIPPED).map_or_else(release_build, PathBuf::from),
        }
    })
}

/// The library as it is shipped, built here.
fn release_build() -> PathBuf {
    let target = artefacts::folder()
        .parent()
        .expect("a profile is in a target folder");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(artefacts::repository())
        .env("CARGO_TARGET_DIR", target)
        // Clippy as the compiler (scripts/test.sh) optimises less.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .args(["build", "--release", "--quiet", "--locked"])
        .args(["-p", "gpushare-interposer"]);
    let built = cargo.status().expect("cargo runs").success();
    assert!(built, "the library does not build");
    target.join("release/libgpushare.so")
}

/// A folder for what is compiled of these sources, by their contents: each test is a process of its
/// own, and finds what another one has compiled.
fn folder_of(sources: &[&Path]) -> PathBuf {
    let mut hash = DefaultHasher::new();
    for source in sources {
        std::fs::read(source).expect("a source").hash(&mut hash);
    }
    let name = format!("bench-{:016x}", hash.finish());
    let folder = artefacts::cache().join(name);
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// Compiles beside the final name and renames: other tests may be using the file.
fn compile(source: &Path, to: &Path, flags: &[&str]) {
    if to.exists() {
        return;
    }
    let fresh = to.with_extension(std::process::id().to_string());
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Werror", "-o"])
        .arg(&fresh)
        .arg(source)
        .args(flags);
    assert!(
        cc.status().expect("cc is installed").success(),
        "{} does not compile",
        source.display()
    );
    std::fs::rename(fresh, to).expect("a rename within one folder");
}

impl Bench {
    /// Instructions of so many calls (or pairs of calls), beside this many processes of the same
    /// tenant that hold memory. Those of the calls' own thread: neither the start nor other threads
    /// count.
    fn run_beside(&self, neighbours: u32, call: &str, rounds: u64, under: &Under<'_>) -> i64 {
        let runtime = tempfile::tempdir().expect("a temporary folder");
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        valgrind.arg("--toggle-collect=measured");
        valgrind.arg(self.folder.join("calls")).args([
            call,
            &rounds.to_string(),
            "1000",
            &neighbours.to_string(),
        ]);
        valgrind
            .env("LD_LIBRARY_PATH", &self.folder)
            .env("XDG_RUNTIME_DIR", runtime.path());
        match under {
            Under::Nothing => {}
            Under::Library => {
                valgrind
                    .env("LD_PRELOAD", &self.library)
                    .env("GPUSHARE_MEM_LIMIT", "8GiB");
            }
            Under::Daemon(folder, uuid) => {
                valgrind
                    .env("LD_PRELOAD", &self.library)
                    .env("GPUSHARE_SOCKET", folder)
                    .env("STUB_UUID", uuid);
            }
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

    /// Instructions of one call (or pair of calls).
    fn each(&self, call: &str, under: &Under<'_>) -> i64 {
        self.each_beside(0, call, under)
    }

    fn each_beside(&self, neighbours: u32, call: &str, under: &Under<'_>) -> i64 {
        let rounds = match call {
            "alloc" | "async" => ROUNDS,
            "launch" | "graph" | "wait" => LAUNCHES,
            _ => 5 * ROUNDS,
        };
        self.each_of(rounds, neighbours, call, under)
    }

    fn each_of(&self, rounds: u64, neighbours: u32, call: &str, under: &Under<'_>) -> i64 {
        let all = self.run_beside(neighbours, call, rounds, under);
        let rounds = i64::try_from(rounds).expect("a small number");
        (all + rounds / 2) / rounds
    }
}

/// The environment of the program.
enum Under<'a> {
    Nothing,
    Library,
    /// The library in a tenant of a daemon with this folder, whose device has this UUID.
    Daemon(&'a Path, String),
}

fn valgrind_is_here(name: &str) -> bool {
    let here = Command::new("valgrind").arg("--version").output().is_ok();
    if !here {
        not_runnable_here(name, "valgrind is not installed");
    }
    here
}

/// The maximum number of counts; the first one within the bound ends the check.
const TRIES: u32 = 3;

/// Checks the instructions that the library adds to a call: the least of up to three counts,
/// because a call does what is due by the clock, too.
fn adds_at_most(call: &str, most: i64) {
    adds_at_most_beside(0, call, most);
}

/// The same beside this many processes of the tenant.
fn adds_at_most_beside(neighbours: u32, call: &str, most: i64) {
    if !valgrind_is_here(call) {
        return;
    }
    let bare = bench().each(call, &Under::Nothing);
    let mut least = i64::MAX;
    for _ in 0..TRIES {
        let hooked = bench().each_beside(neighbours, call, &Under::Library);
        eprintln!("{call}: {hooked} instructions, {bare} of them the driver's");
        least = least.min(hooked - bare);
        if least <= most {
            return;
        }
    }
    panic!("{call}: {least} instructions added, {most} allowed");
}

#[test]
fn an_allocation_and_its_free_within_credit() {
    adds_at_most("alloc", ALLOC_AND_FREE);
}

#[test]
fn a_stream_ordered_allocation_and_its_free_in_memory_the_pool_has() {
    adds_at_most("async", ALLOC_AND_FREE_ASYNC);
}

#[test]
fn a_launch() {
    adds_at_most("launch", LAUNCH);
}

#[test]
fn a_launch_of_a_graph_that_allocates_nothing() {
    adds_at_most("graph", GRAPH);
}

/// The output of `readelf` for a library.
fn readelf(option: &str, library: &Path) -> String {
    let output = Command::new("readelf")
        .args(["-W", option])
        .arg(library)
        .output();
    let output = output.expect("readelf is installed with gcc");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks the cost of loading a library into a program.
fn loads_cheaply(library: &Path) {
    let relocations = readelf("--relocs", library);
    let adjusted = relocations.lines().filter(|line| line.contains(" R_"));
    let count = adjusted.clone().count();
    // A line begins with the address, in hexadecimal.
    let page = |line: &str| {
        line.trim()
            .split(' ')
            .next()
            .map(|at| at[..at.len() - 3].to_owned())
    };
    let pages: BTreeSet<_> = adjusted.filter_map(page).collect();
    let needed = readelf("--dynamic", library);
    let needed: Vec<&str> = needed
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .collect();
    eprintln!(
        "{}: {count} relocations in {} pages, needs {needed:?}",
        library.display(),
        pages.len()
    );
    assert!(pages.len() <= PAGES, "{} pages", pages.len());
    assert!((1..=RELOCATIONS).contains(&count), "{count} relocations");
    // The C library and the dynamic linker are in every program.
    let more = |line: &&&str| !line.contains("[libc.so.6]") && !line.contains("[ld-linux");
    assert_eq!(needed.iter().find(more), None, "one more library to load");
}

#[test]
fn loading_the_library_adjusts_few_pointers_and_loads_no_other() {
    loads_cheaply(&bench().library);
    let packaged = artefacts::repository().join("dist/lib/libgpushare.so");
    if packaged.exists() {
        loads_cheaply(&packaged);
    } else {
        not_runnable_here("loading the packaged library", "there is no dist/");
    }
}

#[test]
fn a_question_for_free_memory() {
    adds_at_most("info", INFO);
}

#[test]
fn a_question_for_free_memory_beside_63_other_processes() {
    adds_at_most_beside(63, "info", INFO);
}

#[test]
fn a_wait_for_a_stream_while_nothing_binds() {
    adds_at_most("wait", WAIT);
}

#[test]
fn a_question_for_an_event_while_nothing_binds() {
    adds_at_most("query", SEEN);
}

#[test]
fn a_recording_of_an_event_while_nothing_binds() {
    adds_at_most("record", SEEN);
}

#[test]
fn a_small_memset_while_nothing_binds() {
    adds_at_most("memset", MOVE);
}

#[test]
fn a_large_memset_while_nothing_binds() {
    adds_at_most("bulk", BULK);
}

#[test]
fn a_small_copy_between_any_addresses_while_nothing_binds() {
    adds_at_most("copy", MOVE);
}

#[test]
fn a_copy_to_the_host_while_nothing_binds() {
    adds_at_most("down", MOVE);
}

#[test]
fn a_launch_alone_and_uncapped_costs_the_same_with_a_daemon_as_without() {
    let name = "a launch with a daemon";
    if !valgrind_is_here(name) {
        return;
    }
    let daemon = Daemon::start(&Gpu::new(""));
    let tenant = daemon.tenant("alone", &[("GPUSHARE_MEM_LIMIT", "8GiB")]);
    let devices = daemon.devices();
    let with = bench().each("launch", &Under::Daemon(tenant.folder(), hex(&devices[0])));
    let without = bench().each("launch", &Under::Library);
    eprintln!("{name}: {with} instructions, {without} without it");
    assert!(
        (with - without).abs() <= NOISE,
        "{with} instructions with a daemon, {without} without"
    );
}

/// The neighbour is a process that has a context and has launched, and the daemon is the real one.
#[test]
fn a_launch_beside_an_idle_neighbour_costs_what_it_costs_alone() {
    let name = "a launch beside an idle neighbour";
    if !valgrind_is_here(name) {
        return;
    }
    let daemon = Daemon::start(&Gpu::new(""));
    let limit = [("GPUSHARE_MEM_LIMIT", "4GiB")];
    let neighbour = daemon.tenant("neighbour", &limit);
    let tenant = daemon.tenant("measured", &limit);
    let launches = |guest: &mut Guest| {
        assert_eq!(guest.ask("launch 1 1000"), "launch 0");
        assert_eq!(guest.ask("sync 1"), "sync 0");
    };
    let mut guest = neighbour.client("turns", &[]).started();
    launches(&mut guest);
    // Alone it is unbound and says nothing. Beside another process at work it says that it is idle.
    let mut other = tenant.client("turns", &[]).started();
    until("the neighbour is idle", || {
        launches(&mut other);
        daemon.share("neighbour").state == ShareState::Idle
    });
    other.kill();
    let devices = daemon.devices();
    let beside = bench().each("launch", &Under::Daemon(tenant.folder(), hex(&devices[0])));
    assert_eq!(daemon.share("neighbour").state, ShareState::Idle);
    let without = bench().each("launch", &Under::Library);
    eprintln!("{name}: {beside} instructions, {without} without daemon and neighbour");
    assert!(
        (beside - without).abs() <= NOISE,
        "{beside} instructions beside it, {without} alone"
    );
    launches(&mut guest);
}

#[test]
fn a_copy_and_a_launch_of_a_process_whose_memory_may_move() {
    let name = "a copy of memory that may move";
    if !valgrind_is_here(name) {
        return;
    }
    let mut dealer = Dealer::start(&Gpu::new(""));
    dealer.swaps();
    let calls = [
        ("down", SEALABLE),
        ("launch", LAUNCH),
        ("alloc", SMALL_AND_FREE),
    ];
    for (call, most) in calls {
        let under = Under::Daemon(dealer.folder(), hex(&dealer.device_uuid()));
        let bare = bench().each(call, &Under::Nothing);
        let added = (0..TRIES)
            .map(|_| bench().each(call, &under) - bare)
            .find(|added| *added <= most);
        eprintln!("{name}: {call} adds {added:?} instructions, {most} at most");
        assert!(added.is_some(), "{call} adds more than {most}");
    }
}

fn hex(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_launch_while_another_tenant_may_be_at_work() {
    let name = "a contended launch";
    if !valgrind_is_here(name) {
        return;
    }
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let bare = bench().each_of(ROUNDS, 0, "launch", &Under::Nothing);
    // The slower the machine just now, the more launches come after a pause, and look at the marks.
    for slice in [0, 500_000] {
        dealer.deal(&Turn {
            window: 2_000_000,
            idle_after: 20_000_000,
            slice,
            ..turn(1, LeaseState::Open)
        });
        let under = Under::Daemon(dealer.folder(), hex(&dealer.device_uuid()));
        let added = (0..4 * TRIES)
            .map(|_| bench().each_of(ROUNDS, 0, "launch", &under) - bare)
            .inspect(|added| eprintln!("{name}: {added} instructions added, {slice} ns at a time"))
            .find(|added| *added <= CONTENDED);
        assert!(added.is_some(), "more than {CONTENDED} instructions added");
    }
}
