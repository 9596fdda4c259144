//! Tenants that do not fit together on a device take turns there: their memory is moved to the host
//! and back by the real daemon and the real library, and no byte is lost.

use std::process::Output;
use std::time::{Duration, Instant};

use gpushare_protocol::wire::Place;
use gpushare_tests::{Daemon, Gpu, Guest, Home, MIB, Meeting, Tenant, until};

/// A node with host memory for swapping. A context is small there, as its devices are.
const NODE: &str = "first_context = \"4MiB\"\n[swap]\nhost = \"4GiB\"\n";
/// A device with room for one and a half tenants, and the contexts of five.
const DEVICE: &str = "mem=106MiB,ctx=2MiB";
/// The bytes that each tenant allocates.
const SIZE: u64 = 64 * MIB;
/// The same for tenants of 1 GiB, and a link of which the model is the clock.
const LARGE_NODE: &str = "first_context = \"4MiB\"\n[swap]\nhost = \"6GiB\"\n";
const LARGE_DEVICE: &str = "mem=1552MiB,ctx=2MiB,link=1GiB/s";
const LARGE: u64 = 1024 * MIB;

/// A tenant's program, ready.
fn program(home: &Home, name: &str, flags: &[&str]) -> Guest {
    let mut command = home.run(name, flags);
    command.arg(gpushare_tests::clients::compile("swapped", &[]));
    let mut guest = Guest::start(command);
    assert_eq!(guest.ask("init"), "init 0");
    guest
}

/// Fills the memory and finds every value there later. Meanwhile other tenants do the same.
fn round(guest: &mut Guest, value: u64) {
    assert_eq!(guest.ask(&format!("fill {value}")), "fill 0");
    assert_eq!(guest.ask(&format!("check {value}")), "check 0");
}

/// Allocates, and works for so many rounds at least, until all tenants have their memory. Returns
/// how many rounds there were.
fn works(
    home: &Home,
    guest: &mut Guest,
    own: u64,
    tenant: Tenancy,
    size: u64,
    all: &Meeting,
) -> u64 {
    let got = guest.ask(&format!("alloc {size}"));
    assert_eq!(got, "alloc 0", "tenant-{own}:\n{}", events(home));
    if tenant.flags == INTERACTIVE {
        // It waits for input: while a tenant of its priority works the others do not come in.
        all.attend();
    } else {
        all.come();
    }
    let mut rounds = 0;
    while rounds < tenant.rounds || !all.is_full() {
        round(guest, own * 1000 + rounds);
        rounds += 1;
    }
    // All have had their turns meanwhile.
    assert_eq!(guest.ask(&format!("prepare {}", own + 7)), "prepare 0");
    assert_eq!(guest.ask("replay"), "replay 0");
    assert_eq!(guest.ask(&format!("copied {}", own + 7)), "copied 0");
    round(guest, own * 1000 + rounds);
    rounds
}

/// A tenant's flags, and its rounds at least.
#[derive(Clone, Copy, Debug)]
struct Tenancy {
    flags: &'static [&'static str],
    rounds: u64,
}

/// Tenants of this size at the same time: how long that takes, and each with the rounds that it
/// made.
fn together(home: &Home, size: u64, tenants: &[Tenancy]) -> (Duration, Vec<Tenancy>) {
    let begin = Instant::now();
    let limit = format!("{}MiB", size / MIB);
    let all = Meeting::of(tenants.len());
    let made = std::thread::scope(|scope| {
        let each = (1..).zip(tenants).map(|(own, tenant)| {
            let (limit, all) = (&limit, &all);
            scope.spawn(move || {
                let mut flags = tenant.flags.to_vec();
                flags.extend(["--mem-limit", limit]);
                let mut guest = program(home, &format!("tenant-{own}"), &flags);
                let rounds = works(home, &mut guest, own, *tenant, size, all);
                assert!(guest.finish().silently().is_empty());
                Tenancy { rounds, ..*tenant }
            })
        });
        let threads: Vec<_> = each.collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|made| made.expect("a tenant's thread")).collect()
    });
    (begin.elapsed(), made)
}

/// All events so far, as text.
fn events(home: &Home) -> String {
    let Output { status, stdout, .. } = home.gpushare(&["events"]);
    assert!(status.success());
    String::from_utf8(stdout).expect("text")
}

/// Tenants that only swap, on a device of one and a half: all finish, none is refused memory, and
/// every byte is right. Prints how much of the time was useful, the middle of so many runs: the
/// same rounds of each one after the other take that much of it.
#[allow(clippy::print_stdout, reason = "the useful part is what it prints")]
fn swaps(
    (node, device): (&str, &str),
    (size, rounds): (u64, u64),
    tenants: &[&'static [&'static str]],
    runs: usize,
) {
    let tenants: Vec<_> = tenants
        .iter()
        .map(|flags| Tenancy { flags, rounds })
        .collect();
    let mut useful: Vec<f64> = (0..runs)
        .map(|_| {
            let home = Home::with_config(device, node);
            let (swapped, made) = together(&home, size, &tenants);
            let said = events(&home);
            assert!(
                said.contains(" left ") && said.contains(" returned "),
                "{said}"
            );
            assert!(!said.contains(" refused "), "{said}");
            let left = said.matches(" left ").count();
            let serial: Duration = made
                .iter()
                .map(|tenant| together(&home, size, &[*tenant]).0)
                .sum();
            // The same work in the driver's managed memory: it moves too, and the set need not fit.
            let managed: Vec<_> = made
                .iter()
                .map(|tenant| Tenancy {
                    flags: MANAGED,
                    ..*tenant
                })
                .collect();
            let (managed, _) = together(&home, size, &managed);
            let rounds: Vec<_> = made.iter().map(|tenant| tenant.rounds).collect();
            let part = |time: Duration| 100.0 * serial.as_secs_f64() / time.as_secs_f64();
            let useful = part(swapped);
            println!(
                "{rounds:?} rounds: {serial:?} one after the other; by turns ({left} left) {swapped:?}, \
                 {useful:.0} % useful; with uvm {managed:?}, {:.0} %",
                part(managed)
            );
            useful
        })
        .collect();
    useful.sort_by(f64::total_cmp);
    println!("{:.0} % useful, the middle of {runs}", useful[runs / 2]);
}

const PLAIN: &[&str] = &["--on-collision", "swap"];
const MANAGED: &[&str] = &["--oversubscribe", "uvm"];
const INTERACTIVE: &[&str] = &["--on-collision", "swap", "--priority", "900"];

#[test]
fn three_tenants_on_one_and_a_half_finish_and_lose_no_byte() {
    swaps((NODE, DEVICE), (SIZE, 3), &[PLAIN; 3], 1);
}

#[test]
#[ignore = "half a minute of processor time: long tier"]
fn five_tenants_one_of_them_interactive_finish_and_lose_no_byte() {
    let tenants = [INTERACTIVE, PLAIN, PLAIN, PLAIN, PLAIN];
    swaps((NODE, DEVICE), (SIZE, 3), &tenants, 3);
}

#[test]
#[ignore = "8 GiB of memory and minutes of processor time: long tier"]
fn three_tenants_of_a_gib_on_one_and_a_half_lose_no_byte() {
    swaps((LARGE_NODE, LARGE_DEVICE), (LARGE, 8), &[PLAIN; 3], 1);
}

#[test]
#[ignore = "8 GiB of memory and up to nine minutes: long tier"]
fn five_tenants_of_a_gib_one_of_them_interactive_lose_no_byte() {
    let tenants = [INTERACTIVE, PLAIN, PLAIN, PLAIN, PLAIN];
    swaps((LARGE_NODE, LARGE_DEVICE), (LARGE, 3), &tenants, 1);
}

/// A daemon of the test and a tenant on a device of one and a half.
struct Scene {
    gpu: Gpu,
    daemon: Daemon,
}

const SWAP: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_LIMIT", "96MiB"),
    ("GPUSHARE_ON_COLLISION", "swap"),
];

impl Scene {
    fn new(config: &str) -> Self {
        let gpu = Gpu::new(DEVICE);
        let daemon = Daemon::configured(&gpu, config);
        Self { gpu, daemon }
    }

    fn tenant(&self, name: &str, terms: &[(&str, &str)]) -> (Tenant, Guest) {
        let tenant = self.daemon.tenant(name, terms);
        let mut guest = tenant.client("swapped", &[]);
        assert_eq!(guest.ask("init"), "init 0");
        (tenant, guest)
    }

    /// A tenant with its memory filled with a value.
    fn filled(&self, name: &str, terms: &[(&str, &str)], value: u64) -> (Tenant, Guest) {
        let (tenant, mut guest) = self.tenant(name, terms);
        assert_eq!(guest.ask(&format!("alloc {SIZE}")), "alloc 0");
        assert_eq!(guest.ask(&format!("fill {value}")), "fill 0");
        (tenant, guest)
    }

    fn suspended(&self, name: &str) {
        self.daemon.suspend(name);
        assert_eq!(self.daemon.residency(name).place, Place::Out);
        until("its memory is off the device", || self.on_device() == 0);
    }

    /// Bytes of physical allocations on the device.
    fn on_device(&self) -> u64 {
        let truth = self.gpu.truth();
        let alive = truth.processes.iter().filter(|process| process.alive);
        alive
            .map(|process| process.requested[softgpu::world::Kind::Vmm as usize])
            .sum()
    }
}

#[test]
fn graphs_streams_events_and_pinned_memory_survive_a_move() {
    let scene = Scene::new(NODE);
    let (_tenant, mut guest) = scene.filled("one", &SWAP, 5);
    assert_eq!(guest.ask("prepare 77"), "prepare 0");
    for _ in 0..2 {
        scene.suspended("one");
        assert_eq!(guest.ask("replay"), "replay 0");
        assert_eq!(guest.ask("copied 77"), "copied 0");
        assert_eq!(guest.ask("check 77"), "check 0");
    }
    assert_eq!(scene.daemon.residency("one").left, 2);
}

#[test]
fn a_suspended_tenant_comes_back_by_command() {
    let scene = Scene::new(NODE);
    let (_tenant, mut guest) = scene.filled("one", &SWAP, 9);
    scene.suspended("one");
    scene.daemon.resume("one");
    assert_eq!(scene.daemon.residency("one").place, Place::In);
    assert_eq!(scene.on_device(), SIZE);
    assert_eq!(guest.ask("check 9"), "check 0");
}

#[test]
fn a_suspended_tenant_outlives_its_daemon_and_wakes_by_a_call() {
    let mut scene = Scene::new(NODE);
    let (_tenant, mut guest) = scene.filled("one", &SWAP, 3);
    scene.suspended("one");
    scene.daemon.restart();
    assert_eq!(
        scene.on_device(),
        0,
        "the next daemon leaves it where it is"
    );
    assert_eq!(guest.ask("check 3"), "check 0");
    assert_eq!(scene.on_device(), SIZE);
    until("the next daemon sees it in", || {
        scene.daemon.residency("one").place == Place::In
    });
    scene.suspended("one");
    assert_eq!(guest.ask("check 3"), "check 0");
}

#[test]
fn without_a_daemon_a_process_that_is_out_asks_the_driver() {
    let mut scene = Scene::new(NODE);
    let (_one, mut first) = scene.filled("one", &SWAP, 3);
    let (_two, mut second) = scene.filled("two", &SWAP, 4);
    assert_eq!(scene.daemon.residency("one").place, Place::Out);
    scene.daemon.kill();
    // There is no room for all of it, so it takes none, and its call waits.
    first.send("check 3");
    assert_eq!(second.ask("check 4"), "check 0");
    assert_eq!(scene.on_device(), SIZE);
    assert_eq!(second.ask("free"), "free 0");
    assert_eq!(first.line(), "check 0");
    assert_eq!(scene.on_device(), SIZE);
}

#[test]
fn tenants_that_each_want_the_others_memory_both_get_it() {
    let scene = Scene::new(NODE);
    let (_one, mut first) = scene.filled("one", &SWAP, 3);
    let (_two, mut second) = scene.filled("two", &SWAP, 4);
    let more = format!("more {}", 30 * MIB);
    first.send(&more);
    second.send(&more);
    assert_eq!(
        (first.line(), second.line()),
        ("more 0".to_owned(), "more 0".to_owned())
    );
    assert_eq!(first.ask("check 3"), "check 0");
    assert_eq!(second.ask("check 4"), "check 0");
}

#[test]
fn a_victim_that_captures_stays_and_the_next_resolver_decides() {
    let scene = Scene::new(NODE);
    let (_one, mut first) = scene.filled("one", &SWAP, 3);
    assert_eq!(first.ask("capture"), "capture 0");
    let terms = [SWAP[0], ("GPUSHARE_ON_COLLISION", "swap,fail")];
    let (_two, mut second) = scene.tenant("two", &terms);
    assert_eq!(second.ask(&format!("alloc {SIZE}")), "alloc 2");
    assert!(!scene.daemon.events("did-not-leave").is_empty());
    assert_eq!(first.ask("end"), "end 0");
    assert_eq!(first.ask("check 3"), "check 0");
    assert_eq!(scene.daemon.residency("one").left, 0);
}

#[test]
fn a_victim_whose_context_failed_stays_and_the_next_resolver_decides() {
    let scene = Scene::new(NODE);
    let (_one, mut first) = scene.filled("one", &SWAP, 3);
    assert_eq!(first.ask("fault"), "fault 700");
    let terms = [SWAP[0], ("GPUSHARE_ON_COLLISION", "swap,fail")];
    let (_two, mut second) = scene.tenant("two", &terms);
    assert_eq!(second.ask(&format!("alloc {SIZE}")), "alloc 2");
    assert!(!scene.daemon.events("did-not-leave").is_empty());
    // It has its errors at once, and what it holds is free once it ends.
    assert_eq!(first.ask("check 3"), "check 1000000700");
    assert_eq!(first.ask("free"), "free 700");
    first.finish().silently();
    assert_eq!(second.ask(&format!("alloc {SIZE}")), "alloc 0");
    assert_eq!(second.ask("fill 4"), "fill 0");
    assert_eq!(second.ask("check 4"), "check 0");
}

#[test]
fn with_a_full_host_the_next_resolver_decides() {
    let scene = Scene::new(&NODE.replace("4GiB", "96MiB"));
    let (_one, mut first) = scene.filled("one", &SWAP, 3);
    let terms = [SWAP[0], ("GPUSHARE_ON_COLLISION", "swap,fail")];
    let (_two, mut second) = scene.tenant("two", &terms);
    assert_eq!(second.ask(&format!("alloc {SIZE}")), "alloc 2");
    assert!(!scene.daemon.events("host-full").is_empty());
    assert_eq!(first.ask("check 3"), "check 0");
    assert_eq!(scene.daemon.residency("one").place, Place::In);
}

#[test]
fn host_memory_that_others_lack_is_given_back_by_a_tenant_that_returns() {
    // Two are given all host memory in advance, and the third one nothing.
    let gpu = Gpu::new("mem=212MiB,ctx=2MiB");
    let daemon = Daemon::configured(&gpu, &NODE.replace("4GiB", "128MiB"));
    let scene = Scene { gpu, daemon };
    let mut all = [("one", 3), ("two", 4), ("three", 5)]
        .map(|(name, value)| scene.filled(name, &SWAP, value));
    for (at, value) in [(0, 3), (2, 5), (1, 4), (2, 5)] {
        let name = ["one", "two", "three"][at];
        scene.daemon.suspend(name);
        assert_eq!(scene.daemon.residency(name).place, Place::Out);
        assert_eq!(all[at].1.ask(&format!("check {value}")), "check 0");
        until("it is back for its daemon too", || {
            scene.daemon.residency(name).place == Place::In
        });
    }
    assert!(scene.daemon.events("did-not-leave").is_empty());
}

/// The refusal of a `run` with these flags.
fn refused(home: &Home, flags: &[&str]) -> String {
    let mut command = home.run("one", flags);
    let output = command.arg("true").output().expect("gpushare starts");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn swap_without_what_it_needs_is_refused_before_the_start_by_name() {
    let home = Home::new("mem=1GiB");
    for (flag, value) in [
        ("--oversubscribe", "swap"),
        ("--on-collision", "swap,wait"),
        ("--preemptible", "swap"),
    ] {
        let said = refused(&home, &[flag, value]);
        let words = [flag, value, "[swap] host", "accepted: "];
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        // A private daemon reads no file but that of this variable.
        assert!(said.contains("GPUSHARE_DAEMON_CONFIG=FILE"), "{said}");
    }
    let none = Home::with_config("mem=1GiB", "[swap]\n");
    let said = refused(&none, &["--oversubscribe", "swap"]);
    let file = none.config().display().to_string();
    assert!(
        said.contains(&format!("{file} has no [swap] host")),
        "{said}"
    );
    let vgpu = Home::with_config("mem=1GiB,vmm=off", NODE);
    let said = refused(&vgpu, &["--oversubscribe", "swap"]);
    assert!(said.contains("virtual memory management"), "{said}");
}
