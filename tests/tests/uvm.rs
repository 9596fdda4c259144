//! Tenants whose memory is managed (`uvm`): their programs see plain memory, which may be more than
//! the device has, and which moves to the host and back as a whole where tenants do not fit
//! together.

use gpushare_protocol::wire::{ControlReply, Place};
use gpushare_tests::clients::compile;
use gpushare_tests::{Daemon, Gpu, Guest, Home, MIB, Meeting, Tenant, until};
use softgpu::inspect::ProcessTruth;

/// A node without host memory for swapping: managed memory needs none. A context is small there.
const NODE: &str = "first_context = \"4MiB\"\n";
/// A device with room for one and a half tenants, and the contexts of five.
const DEVICE: &str = "mem=106MiB,ctx=2MiB";
/// The bytes that each tenant allocates.
const SIZE: u64 = 64 * MIB;
const UVM: (&str, &str) = ("GPUSHARE_OVERSUBSCRIBE", "uvm");

fn program(home: &Home, name: &str, flags: &[&str]) -> Guest {
    let mut command = home.run(name, flags);
    command.arg(compile("swapped", &[]));
    let mut guest = Guest::start(command);
    assert_eq!(guest.ask("init"), "init 0");
    guest
}

/// Fills and checks everything, and replays a graph that was captured before the last moves.
fn works(guest: &mut Guest, bytes: u64, own: u64, all: &Meeting) {
    assert_eq!(guest.ask(&format!("alloc {bytes}")), "alloc 0");
    assert_eq!(guest.ask(&format!("prepare {}", own + 7)), "prepare 0");
    // The work before the capture ends here.
    assert_eq!(guest.ask("replay"), "replay 0");
    all.come();
    let mut round = 0;
    // Tenants that ended before others have memory would need no move.
    while round < 3 || !all.is_full() {
        let value = own * 1000 + round;
        assert_eq!(guest.ask(&format!("fill {value}")), "fill 0");
        assert_eq!(guest.ask(&format!("check {value}")), "check 0");
        round += 1;
    }
    assert_eq!(guest.ask("replay"), "replay 0");
    assert_eq!(guest.ask(&format!("copied {}", own + 7)), "copied 0");
    assert_eq!(guest.ask(&format!("check {}", own + 7)), "check 0");
}

#[test]
fn a_tenant_with_a_limit_above_the_card_loses_no_byte() {
    let home = Home::with_config(DEVICE, NODE);
    let flags = ["--oversubscribe", "uvm", "--mem-limit", "192MiB"];
    let mut guest = program(&home, "large", &flags);
    works(&mut guest, 160 * MIB, 1, &Meeting::of(1));
    // The limit holds beyond the card too.
    let more = format!("more {}", 48 * MIB);
    assert_eq!(guest.ask(&more), "more 2");
    assert!(guest.finish().silently().is_empty());
    let flags = ["--mem-limit", "192MiB", "--mem-request", "1MiB"];
    let mut plain = program(&home, "plain", &flags);
    let alloc = format!("alloc {}", 160 * MIB);
    assert_eq!(
        plain.ask(&alloc),
        "alloc 2",
        "without it the card is the most"
    );
    plain.finish();
}

#[test]
fn three_managed_tenants_on_one_and_a_half_finish_and_lose_no_byte() {
    let home = Home::with_config(DEVICE, NODE);
    let all = Meeting::of(3);
    std::thread::scope(|scope| {
        for own in 1..4 {
            let (home, all) = (&home, &all);
            scope.spawn(move || {
                let flags = ["--oversubscribe", "uvm", "--mem-limit", "64MiB"];
                let mut guest = program(home, &format!("tenant-{own}"), &flags);
                works(&mut guest, SIZE, own, all);
                assert!(guest.finish().silently().is_empty());
            });
        }
    });
    let said = String::from_utf8(home.gpushare(&["events"]).stdout).expect("text");
    let moved = said.contains(" left ") && said.contains(" returned ");
    assert!(moved && !said.contains(" refused "), "{said}");
}

struct Scene {
    gpu: Gpu,
    daemon: Daemon,
}

impl Scene {
    fn new() -> Self {
        Self::on(DEVICE)
    }

    fn on(device: &str) -> Self {
        let gpu = Gpu::new(device);
        let daemon = Daemon::configured(&gpu, NODE);
        Self { gpu, daemon }
    }

    /// A tenant with its memory filled with a value.
    fn filled(&self, name: &str, bytes: u64, value: u64) -> (Tenant, Guest) {
        self.failing(name, bytes, value, "")
    }

    /// The same where driver calls fail.
    fn failing(&self, name: &str, bytes: u64, value: u64, fail: &str) -> (Tenant, Guest) {
        let terms = [("GPUSHARE_MEM_LIMIT", "192MiB"), UVM];
        let tenant = self.daemon.tenant(name, &terms);
        let fail = [("SOFTGPU_FAIL", fail)];
        let fail = if fail[0].1.is_empty() { &[] } else { &fail[..] };
        let mut guest = tenant.client("swapped", fail);
        assert_eq!(guest.ask("init"), "init 0");
        assert_eq!(guest.ask(&format!("alloc {bytes}")), "alloc 0");
        assert_eq!(guest.ask(&format!("fill {value}")), "fill 0");
        (tenant, guest)
    }

    fn suspended(&self, name: &str) {
        self.daemon.suspend(name);
        assert_eq!(self.daemon.residency(name).place, Place::Out);
        until("nothing is on the device", || self.on_device() == 0);
    }

    fn resumed(&self, name: &str) {
        self.daemon.resume(name);
        assert_eq!(self.daemon.residency(name).place, Place::In);
    }

    /// Managed bytes that are on the device.
    fn on_device(&self) -> u64 {
        let truth = self.gpu.truth();
        let alive = truth.processes.iter().filter(|process| process.alive);
        alive.map(ProcessTruth::resident).sum()
    }
}

#[test]
fn managed_memory_goes_home_as_a_whole_and_comes_back_as_a_whole() {
    let scene = Scene::new();
    let (_tenant, mut guest) = scene.filled("one", SIZE, 5);
    assert_eq!(guest.ask("prepare 77"), "prepare 0");
    assert_eq!(scene.on_device(), SIZE);
    for _ in 0..2 {
        scene.suspended("one");
        assert_eq!(guest.ask("replay"), "replay 0");
        assert_eq!(guest.ask("copied 77"), "copied 0");
    }
    scene.suspended("one");
    // All of it, before anything touches it.
    scene.resumed("one");
    assert_eq!(scene.on_device(), SIZE);
    assert_eq!(guest.ask("check 77"), "check 0");
    assert_eq!(scene.daemon.residency("one").left, 3);
}

#[test]
fn what_is_larger_than_the_card_comes_back_as_far_as_it_fits() {
    let scene = Scene::new();
    let (_tenant, mut guest) = scene.filled("one", 160 * MIB, 5);
    scene.suspended("one");
    assert_eq!(guest.ask("check 5"), "check 0");
    scene.suspended("one");
    scene.resumed("one");
    assert!(scene.on_device() >= 48 * MIB, "{}", scene.on_device());
    assert_eq!(guest.ask("check 5"), "check 0");
}

/// Two processes of one tenant, each with so much memory filled with its number.
fn pair(scene: &Scene, bytes: u64) -> (Tenant, [Guest; 2]) {
    let terms = [("GPUSHARE_MEM_LIMIT", "512MiB"), UVM];
    let tenant = scene.daemon.tenant("one", &terms);
    let guests = [1, 2].map(|own| {
        let mut guest = tenant.client("swapped", &[]);
        for line in ["init", &format!("alloc {bytes}"), &format!("fill {own}")] {
            let word = line.split(' ').next().expect("a word");
            assert_eq!(guest.ask(line), format!("{word} 0"), "{line}");
        }
        guest
    });
    (tenant, guests)
}

#[test]
fn what_processes_of_one_tenant_bring_back_evicts_nothing_of_each_other() {
    // What is larger than the card together, and what is not.
    for (bytes, back) in [(160 * MIB, 128 * MIB), (90 * MIB, 180 * MIB)] {
        let scene = Scene::on("mem=256MiB,ctx=2MiB");
        let (_tenant, mut guests) = pair(&scene, bytes);
        for _ in 0..2 {
            scene.suspended("one");
            let before = scene.gpu.truth().evicted;
            scene.resumed("one");
            assert_eq!(scene.gpu.truth().evicted, before);
            assert!(scene.on_device() >= back, "{}", scene.on_device());
        }
        for (own, guest) in (1..).zip(&mut guests) {
            assert_eq!(guest.ask(&format!("check {own}")), "check 0");
        }
    }
}

#[test]
fn what_comes_back_beside_a_neighbour_is_what_has_room_there() {
    let scene = Scene::on("mem=256MiB,ctx=2MiB");
    let (_tenant, mut guest) = scene.filled("one", 180 * MIB, 5);
    scene.suspended("one");
    let terms = [("GPUSHARE_MEM_LIMIT", "100MiB")];
    let neighbour = scene.daemon.tenant("neighbour", &terms);
    let mut plain = neighbour.client("swapped", &[]);
    assert_eq!(plain.ask("init"), "init 0");
    assert_eq!(plain.ask(&format!("alloc {}", 100 * MIB)), "alloc 0");
    let before = scene.gpu.truth().evicted;
    scene.resumed("one");
    assert_eq!(scene.gpu.truth().evicted, before);
    assert!(scene.on_device() >= 140 * MIB, "{}", scene.on_device());
    assert_eq!(guest.ask("check 5"), "check 0");
}

#[test]
fn a_return_takes_what_the_driver_keeps_of_tenants_that_are_out() {
    for terms in ["home=kept", "home=freed", "home=kept,listed=all"] {
        let scene = Scene::on(&format!("{DEVICE},{terms}"));
        let (_one, mut first) = scene.filled("one", SIZE, 5);
        scene.suspended("one");
        let (_two, mut second) = scene.filled("two", SIZE, 6);
        scene.suspended("two");
        let before = scene.gpu.truth().evicted;
        for name in ["one", "two", "one"] {
            // All of it, before anything touches it, and nothing of anybody moves for it.
            scene.resumed(name);
            assert_eq!(scene.on_device(), SIZE, "{name}, {terms}");
            scene.suspended(name);
        }
        assert_eq!(scene.gpu.truth().evicted, before, "{terms}");
        for name in ["one", "two"] {
            scene.resumed(name);
        }
        assert_eq!(first.ask("check 5"), "check 0");
        assert_eq!(second.ask("check 6"), "check 0");
    }
}

#[test]
fn what_the_driver_keeps_of_a_tenant_that_is_out_keeps_nobody_out() {
    for terms in ["home=kept", "home=freed", "home=kept,listed=all"] {
        let scene = Scene::on(&format!("mem=256MiB,ctx=2MiB,{terms}"));
        let (_one, mut guest) = scene.filled("one", 180 * MIB, 5);
        scene.suspended("one");
        let used = scene.gpu.truth().used_physical;
        assert_eq!(used >= 180 * MIB, terms != "home=freed", "{used}");
        let terms_of = [("GPUSHARE_MEM_LIMIT", "240MiB")];
        let neighbour = scene.daemon.tenant("neighbour", &terms_of);
        let mut plain = neighbour.client("swapped", &[]);
        assert_eq!(plain.ask("init"), "init 0");
        assert_eq!(plain.ask(&format!("alloc {}", 230 * MIB)), "alloc 0");
        assert!(scene.daemon.events("left-less").is_empty(), "{terms}");
        assert!(scene.daemon.events("unmanaged").is_empty(), "{terms}");
        plain.finish().silently();
        assert_eq!(guest.ask("check 5"), "check 0");
    }
}

#[test]
fn a_tenant_above_the_card_makes_way_for_another() {
    let scene = Scene::new();
    let (_one, mut first) = scene.filled("one", 160 * MIB, 3);
    let (_two, mut second) = scene.filled("two", SIZE, 4);
    assert_eq!(first.ask("check 3"), "check 0");
    assert_eq!(second.ask("check 4"), "check 0");
    assert!(scene.daemon.residency("one").left > 0);
}

#[test]
fn managed_memory_that_is_away_outlives_the_daemon() {
    let mut scene = Scene::new();
    let (_tenant, mut guest) = scene.filled("one", SIZE, 3);
    scene.suspended("one");
    scene.daemon.restart();
    assert_eq!(scene.on_device(), 0, "the next daemon leaves it there");
    assert_eq!(guest.ask("check 3"), "check 0");
    until("the next daemon sees it in", || {
        scene.daemon.residency("one").place == Place::In
    });
    scene.suspended("one");
    assert_eq!(guest.ask("check 3"), "check 0");
}

#[test]
fn a_prefetch_that_fails_loses_no_byte_and_is_tried_again() {
    // Two chunks: a prefetch each, out and back.
    for (nth, kind) in [(1, "did-not-leave"), (2, "did-not-leave"), (3, "no-return")] {
        let scene = Scene::new();
        let fail = format!("cuMemPrefetchAsync:{nth}:CUDA_ERROR_UNKNOWN");
        let (_tenant, mut guest) = scene.failing("one", 96 * MIB, 6, &fail);
        if kind == "did-not-leave" {
            let answer = scene.daemon.asks_to_leave("one");
            assert!(matches!(answer, ControlReply::Error(_)), "{answer:?}");
            until("it left when it was asked again", || {
                scene.daemon.residency("one").place == Place::Out
            });
        } else {
            scene.suspended("one");
        }
        assert_eq!(guest.ask("check 6"), "check 0", "the {nth}th");
        assert!(
            !scene.daemon.events(kind).is_empty(),
            "no {kind} after the {nth}th"
        );
        scene.suspended("one");
        assert_eq!(guest.ask("check 6"), "check 0", "the {nth}th");
    }
}

#[test]
fn a_driver_that_takes_no_advice_is_served_as_well() {
    let scene = Scene::new();
    let (_tenant, mut guest) =
        scene.failing("one", SIZE, 6, "cuMemAdvise:*:CUDA_ERROR_INVALID_DEVICE");
    scene.suspended("one");
    assert_eq!(guest.ask("check 6"), "check 0");
}

#[test]
fn an_allocation_that_the_driver_refuses_is_refused_and_not_charged() {
    let scene = Scene::new();
    let terms = [("GPUSHARE_MEM_LIMIT", "100MiB"), UVM];
    let tenant = scene.daemon.tenant("one", &terms);
    let fail = [("SOFTGPU_FAIL", "cuMemAllocManaged:1:CUDA_ERROR_UNKNOWN")];
    let mut guest = tenant.client("swapped", &fail);
    assert_eq!(guest.ask("init"), "init 0");
    let alloc = format!("alloc {}", 96 * MIB);
    assert_eq!(guest.ask(&alloc), "alloc 999");
    assert_eq!(guest.ask(&alloc), "alloc 0", "none of it is charged");
    assert_eq!(guest.ask("free"), "free 0");
    assert_eq!(guest.ask(&alloc), "alloc 0", "a free gives it back");
}

#[test]
fn memory_that_moves_looks_plain_to_its_program() {
    let said = |flags: &[&str]| {
        let node = format!("{NODE}[swap]\nhost = \"256MiB\"\n");
        let home = Home::with_config("mem=256MiB", &node);
        let mut command = home.run("one", flags);
        command.arg(compile("looks", &[]));
        let output = command.output().expect("gpushare starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let plain = said(&[]);
    for flags in [["--oversubscribe", "uvm"], ["--on-collision", "swap"]] {
        let moves = said(&flags);
        let differ = |line: &(&str, &str)| line.0 != line.1;
        let lines = plain.lines().zip(moves.lines());
        let differ: Vec<(&str, &str)> = lines.filter(differ).collect();
        // Memory that another process cannot open says so.
        let ipc = [("ipc capable 1", "ipc capable 0"), ("ipc 0", "ipc 801")];
        assert_eq!(differ, ipc, "{flags:?}: {plain}\n{moves}");
        assert!(moves.contains("is managed 0"), "{flags:?}: {moves}");
    }
}

/// The refusal of a `run` with these flags.
fn refused(home: &Home, flags: &[&str]) -> String {
    let mut command = home.run("one", flags);
    let output = command.arg("true").output().expect("gpushare starts");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn uvm_without_what_it_needs_is_refused_before_the_start_by_name() {
    let asked = ["--oversubscribe", "uvm"];
    let accepted = |home: &Home, flags: &[&str]| {
        let mut command = home.run("one", flags);
        let output = command.arg("true").output().expect("gpushare starts");
        assert!(output.status.success(), "{output:?}");
    };
    let fixed = Home::with_config("mem=256MiB,managed=fixed", NODE);
    let said = refused(&fixed, &asked);
    let named = "--oversubscribe=\"uvm\" is refused";
    assert!(said.contains(named), "{said}");
    assert!(said.contains("managed memory"), "{said}");
    accepted(&fixed, &["--oversubscribe", "off"]);
    let able = Home::with_config("mem=256MiB,vmm=off", NODE);
    accepted(&able, &asked);
    let large = ["--oversubscribe", "uvm", "--mem-limit", "64TiB"];
    let said = refused(&able, &large);
    assert!(said.contains(named) && said.contains(" has "), "{said}");
    assert!(said.contains("64TiB") || said.contains("64 TiB"), "{said}");
    accepted(&able, &["--mem-limit", "64TiB", "--mem-request", "1MiB"]);
}
