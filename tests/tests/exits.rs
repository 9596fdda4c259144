//! Driver calls that are left by a jump instead of their return. Limits and turns hold afterwards,
//! no thread waits for the thread that jumped, and the program continues. The opposite: a call by a
//! signal handler inside another call is an ordinary call.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gpushare_protocol::page::lease::{LeaseState, Turn};
use gpushare_protocol::page::pending::PendingWord;
use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::{Reply, Request};
use gpushare_tests::dealer::turn;
use gpushare_tests::movable::{self, Outcome};
use gpushare_tests::moves::{drained, wanted};
use gpushare_tests::{Daemon, Dealer, GIB, Gpu, Guest, MIB, Tenant, clients, until};

const MS: u64 = 1_000_000;
/// How much deeper on the stack the next calls are made than the call that was left: at the same
/// depth, and where the left frame may be untouched.
const DEPTHS: [u64; 3] = [0, 4096, 100_000];

struct Scene {
    gpu: Gpu,
    dealer: Dealer,
    guest: Guest,
}

impl Scene {
    fn new() -> Self {
        Self::on("")
    }

    /// A driver whose calls may be left by a jump. A lock that such a call holds while it waits
    /// would be held for ever (`room=locked`).
    fn without_locks() -> Self {
        Self::on("room=free")
    }

    fn on(spec: &str) -> Self {
        Self::with(spec, None)
    }

    /// A driver that holds a function's calls while a file exists (`SOFTGPU_HOLD`).
    fn with(spec: &str, hold: Option<String>) -> Self {
        let gpu = Gpu::new(spec);
        let dealer = Dealer::start(&gpu);
        let mut command = dealer.command(&clients::compile("exits", &[]));
        command.env("LD_LIBRARY_PATH", gpushare_tests::gpu::links());
        if let Some(hold) = hold {
            command.env("SOFTGPU_HOLD", hold);
        }
        let guest = Guest::start(command).started();
        Self { gpu, dealer, guest }
    }

    /// Closes the gate while no work is in progress.
    #[track_caller]
    fn closes(&self, epoch: u64) {
        self.dealer.close(epoch);
        self.dealer.hears(&drained(epoch));
    }

    /// Checks that a launch passes an open gate, and that the turn ends when the gate is closed.
    #[track_caller]
    fn goes_on(&mut self, epoch: u64) {
        self.dealer.open(epoch);
        assert_eq!(self.guest.ask("launch 3 1000"), "launch 0");
        assert_eq!(self.guest.ask("sync"), "sync 0");
        self.closes(epoch);
    }
}

#[test]
fn a_launch_left_at_the_gate_does_not_open_it() {
    let mut scene = Scene::new();
    for (epoch, depth) in (1..).step_by(2).zip(DEPTHS) {
        scene.dealer.open(epoch);
        scene.closes(epoch);
        let before = scene.gpu.served();
        for _ in 0..3 {
            let tried = scene.guest.ask(&format!("try {depth} 1000"));
            assert_eq!(tried, "try 1", "the launch waits, and is left");
        }
        assert_eq!(scene.gpu.served(), before, "no kernel ran");
        scene.goes_on(epoch + 1);
    }
    scene.guest.finish().silently();
}

#[test]
fn a_launch_left_at_the_gate_is_not_reported_as_waiting() {
    let mut scene = Scene::new();
    scene.closes(1);
    assert_eq!(scene.guest.ask("try 0 1000"), "try 1");
    scene.dealer.hears(&wanted(1));
    // The library forgets it at the latest when its sleep would have ended.
    std::thread::sleep(Duration::from_millis(500));
    for epoch in 2..5 {
        scene.dealer.open(epoch);
        scene.dealer.close(epoch);
        let mut said = Vec::new();
        until("it has drained", || {
            said.extend(scene.dealer.said());
            said.contains(&drained(epoch))
        });
        assert!(!said.contains(&wanted(epoch)), "{said:?}");
    }
    scene.guest.finish().silently();
}

#[test]
fn memory_is_counted_after_a_launch_was_left_at_the_gate() {
    let mut scene = Scene::new();
    for (epoch, depth) in (1..).step_by(2).zip(DEPTHS) {
        scene.closes(epoch);
        assert_eq!(scene.guest.ask("try 0 1000"), "try 1");
        // The dealer grants 8 GiB.
        let refused = format!("alloc {depth} {}", 9 * GIB);
        assert_eq!(scene.guest.ask(&refused), "alloc 2");
        let granted = format!("alloc {depth} {GIB}");
        assert_eq!(scene.guest.ask(&granted), "alloc 0");
        scene.dealer.open(epoch + 1);
    }
    let mut more = 0;
    while scene.guest.ask(&format!("alloc 65536 {GIB}")) == "alloc 0" {
        more += 1;
    }
    assert_eq!(more, 5, "three of eight were taken");
    scene.guest.finish().silently();
}

#[test]
fn a_launch_that_is_left_inside_the_driver_keeps_no_turn_from_ending() {
    for bound in [false, true] {
        for depth in DEPTHS {
            let mut scene = Scene::without_locks();
            scene.closes(1);
            if bound {
                scene.dealer.open(2);
            } else {
                scene.dealer.deal(&Turn::default());
            }
            // Many more than the driver queues at a time.
            let filled = scene.guest.ask(&format!("fill 0 {}", 500 * MS));
            assert_eq!(
                filled, "fill 1",
                "the driver is full, and the launch is left"
            );
            scene.closes(3);
            assert_eq!(scene.guest.ask("sync"), "sync 0", "all is done");
            let before = scene.gpu.served();
            let tried = scene.guest.ask(&format!("try {depth} 1000"));
            assert_eq!(tried, "try 1", "the next launch waits");
            assert_eq!(scene.gpu.served(), before, "no kernel ran");
            scene.goes_on(4);
            scene.guest.finish().silently();
        }
    }
}

/// A program whose driver holds launches while a file exists. The gate stays open: other tenants'
/// work may run beside. The window has room for many of its kernels.
fn beside_others() -> (Scene, tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("held");
    let hold = format!("cuLaunchKernel:{}", file.display());
    let scene = Scene::with("room=free", Some(hold));
    scene.closes(1);
    scene.dealer.deal(&Turn {
        window: 1_000 * MS,
        idle_after: 20 * MS,
        // So that long kernels are measured.
        contended: false,
        ..turn(2, LeaseState::Open)
    });
    (scene, folder, file)
}

fn is_pending(scene: &Scene) -> bool {
    let line = scene.dealer.usage().line(0, 0).expect("the first slot");
    let pending = line.pending.load(Ordering::Relaxed);
    PendingWord::from_bits(pending).since().is_some()
}

/// Nothing stays pending, and a launch goes on as before.
#[track_caller]
fn is_over(mut scene: Scene, file: &Path) {
    std::fs::remove_file(file).expect("a file");
    assert_eq!(scene.guest.ask("sync"), "sync 0");
    until("nothing is pending", || !is_pending(&scene));
    assert_eq!(scene.guest.ask("launch 1 1000"), "launch 0");
    scene.closes(2);
    scene.guest.finish().silently();
}

#[test]
fn a_launch_that_is_left_inside_the_driver_does_not_stay_pending() {
    let (mut scene, _folder, file) = beside_others();
    assert_eq!(scene.guest.ask("launch 2 1000"), "launch 0");
    std::fs::write(&file, "").expect("a file");
    let tried = scene.guest.ask("try 0 1000");
    assert_eq!(tried, "try 1", "the driver holds it");
    is_over(scene, &file);
}

/// How long the kernel before a launch takes that is made without the lock.
const BEFORE: u64 = 300 * MS;

#[test]
fn a_launch_without_the_lock_that_is_left_does_not_stay_pending() {
    let (mut scene, _folder, file) = beside_others();
    assert_eq!(scene.guest.ask(&format!("known {}", 20 * MS)), "known 0");
    let held = scene.guest.ask(&format!("held {BEFORE} 1"));
    assert_eq!(held, "held 1", "the driver holds it");
    is_over(scene, &file);
}

#[test]
fn a_launch_without_the_lock_whose_thread_ends_does_not_stay_pending() {
    let (mut scene, _folder, file) = beside_others();
    assert_eq!(
        scene.guest.ask(&format!("vanish {BEFORE} {}", 20 * MS)),
        "vanish 0"
    );
    is_over(scene, &file);
}

#[test]
fn a_launch_without_the_lock_that_the_driver_keeps_stays_pending() {
    let (mut scene, _folder, file) = beside_others();
    assert_eq!(scene.guest.ask(&format!("known {}", 20 * MS)), "known 0");
    let served = scene.gpu.served();
    scene.guest.send(&format!("held {BEFORE} 0"));
    until("the kernel before it is done, and it is pending", || {
        file.exists() && scene.gpu.served() >= served + BEFORE && is_pending(&scene)
    });
    // The library looks for such launches several times meanwhile.
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        assert!(is_pending(&scene));
        std::thread::sleep(Duration::from_millis(10));
    }
    std::fs::remove_file(&file).expect("a file");
    assert_eq!(scene.guest.line(), "held 0");
    assert_eq!(scene.guest.ask("sync"), "sync 0");
    until("nothing is pending", || !is_pending(&scene));
    scene.guest.finish().silently();
}

#[test]
fn a_thread_that_left_the_driver_by_a_jump_keeps_no_turn_open() {
    let mut scene = Scene::without_locks();
    scene.closes(1);
    scene.dealer.deal(&Turn::default());
    let spin = scene.guest.ask(&format!("spin {}", 500 * MS));
    assert_eq!(spin, "spin 1");
    scene.closes(3);
    assert_eq!(scene.guest.ask("sync"), "sync 0");
    scene.goes_on(4);
    scene.guest.kill();
}

#[test]
fn a_handler_that_interrupts_a_waiting_launch_allocates_and_is_counted() {
    let mut scene = Scene::new();
    for (epoch, bytes, answer) in [(1, GIB, 0), (3, 9 * GIB, 2)] {
        scene.closes(epoch);
        scene.guest.send(&format!("nested 0 {bytes}"));
        scene.dealer.hears(&wanted(epoch));
        assert_eq!(scene.guest.line(), "handled");
        scene.dealer.open(epoch + 1);
        assert_eq!(scene.guest.line(), format!("nested {answer}"));
        scene.closes(epoch + 1);
    }
    assert_eq!(scene.guest.ask("has"), format!("has {GIB}"));
    scene.guest.finish().silently();
}

#[test]
fn a_thread_that_is_cancelled_at_the_gate_ends_behind_it() {
    let mut scene = Scene::new();
    scene.closes(1);
    assert_eq!(scene.guest.ask("cancel 1000"), "cancel 0");
    assert_eq!(scene.guest.ask("cancelled"), "cancelled 0", "it waits");
    scene.dealer.open(2);
    until("it ends", || scene.guest.ask("cancelled") == "cancelled 1");
    scene.closes(2);
    scene.goes_on(3);
    scene.guest.finish().silently();
}

/// While a capture begins nothing may move, and new memory is plain.
#[test]
fn a_begin_of_a_capture_that_is_left_keeps_no_memory_on_the_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("held");
    let hold = format!("cuStreamBeginCapture:{}", file.display());
    let environment = [("SOFTGPU_HOLD", hold.as_str())];
    let mut scene = movable::Scene::of("exits", "mem=1GiB,ctx=8MiB", "init", &environment);
    scene.does(&["alloc 0 4194304"]);
    std::fs::write(&file, "").expect("a file");
    assert_eq!(
        scene.guest.ask("capture"),
        "capture 1",
        "the driver holds it"
    );
    std::fs::remove_file(&file).expect("a file");
    scene.provided(scene.charged());
    until("its memory leaves", || {
        matches!(scene.ordered(Order::Leave), Outcome::Away(_))
    });
    scene.returns();
    scene.does(&["alloc 0 4194304"]);
    assert_eq!(scene.on_device(), scene.charged(), "all of it may move");
    scene.guest.finish().silently();
}

#[test]
fn a_call_for_a_context_left_while_it_waits_is_in_no_ones_way() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut asks = 0;
    // The first ask waits. The second one may wait, so its time is not over.
    dealer.bank(move |asked| match asked {
        Request::Open { .. } | Request::OpenMore { .. } => {
            asks += 1;
            (asks > 1).then_some(Reply::Granted { grant: GIB })
        }
        _ => None,
    });
    let mut guest = dealer.client("exits");
    assert_eq!(guest.ask("first"), "first 1", "it waits, and is left");
    assert_eq!(guest.ask("init"), "init 0");
    dealer.hears_some(|said| matches!(said, Request::Cancel { .. }).then_some(()));
    guest.finish().silently();
}

fn ready(tenant: &Tenant) -> Guest {
    tenant.client("exits", &[]).started()
}

#[test]
fn an_allocation_left_while_it_waits_for_the_daemon_costs_nothing() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "12GiB"),
    ];
    let (one, two) = (daemon.tenant("a", &limits), daemon.tenant("b", &limits));
    let (mut a, mut b) = (ready(&one), ready(&two));
    assert_eq!(a.ask(&format!("alloc 0 {}", 10 * GIB)), "alloc 0");
    for depth in DEPTHS {
        let asked = b.ask(&format!("ask {depth} {}", 10 * GIB));
        assert_eq!(asked, "ask 1", "it waits, and is left");
        let refused = b.ask(&format!("alloc {depth} {}", 13 * GIB));
        assert_eq!(refused, "alloc 2", "beyond the limit");
        let granted = b.ask(&format!("alloc {depth} {}", 64 * MIB));
        assert_eq!(granted, "alloc 0", "the tenant's own memory");
    }
    a.kill();
    let rest = 12 * GIB - 3 * 64 * MIB;
    let granted = b.ask(&format!("alloc 0 {rest}"));
    assert_eq!(granted, "alloc 0", "nothing was lost");
    assert_eq!(
        b.ask("alloc 0 1048576"),
        "alloc 2",
        "and no memory was gained"
    );
    b.finish().silently();
}
