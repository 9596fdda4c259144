//! Memory that moves: it is plain memory to the program, leaves the device for the host and comes
//! back with every byte at its address, whatever fails on the way. By the software GPU's own books,
//! under a daemon that the test plays.

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::{Place, Request};
use gpushare_tests::{Dealer, Gpu, Guest, MIB, clients, until};

/// A program whose memory may move, and its daemon.
struct Scene {
    gpu: Gpu,
    dealer: Dealer,
    guest: Guest,
    epoch: u32,
}

/// What came of an order.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Away(u64),
    Back,
    NoRoom(u64),
    Busy,
}

impl Scene {
    fn new(spec: &str) -> Self {
        Self::with(spec, "init", &[])
    }

    fn with(spec: &str, init: &str, environment: &[(&str, &str)]) -> Self {
        let gpu = Gpu::new(spec);
        let mut dealer = Dealer::start(&gpu);
        dealer.swaps();
        let mut command = dealer.command(&clients::compile("movable", &[]));
        command
            .env("LD_LIBRARY_PATH", gpushare_tests::gpu::links())
            .envs(environment.iter().copied());
        let mut guest = Guest::start(command);
        guest.does(init);
        Self {
            gpu,
            dealer,
            guest,
            epoch: 0,
        }
    }

    fn does(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| self.guest.does(line));
    }

    /// Bytes of the physical memory that is not released, as its process asked for it: what is
    /// released comes back late.
    fn on_device(&self) -> u64 {
        let truth = self.gpu.truth();
        let alive = truth.processes.iter().filter(|process| process.alive);
        alive
            .map(|process| process.requested[softgpu::world::Kind::Vmm as usize])
            .sum()
    }

    /// Orders, and waits for the end of it.
    fn ordered(&mut self, order: Order) -> Outcome {
        self.epoch += 1;
        let wanted = self.epoch;
        self.dealer.order(wanted, order);
        self.dealer.hears_some(|said| match *said {
            Request::Away { epoch, away, .. } if epoch == wanted => Some(Outcome::Away(away)),
            Request::Back { epoch, .. } if epoch == wanted => Some(Outcome::Back),
            Request::NoRoom { epoch, bytes, .. } if epoch == wanted => Some(Outcome::NoRoom(bytes)),
            Request::SealBusy { epoch, .. } if epoch == wanted => Some(Outcome::Busy),
            _ => None,
        })
    }

    /// Waits until the daemon has given host memory for so much.
    fn provided(&self, bytes: u64) {
        until("host memory is given", || {
            self.dealer.store().given() >= bytes
        });
    }

    fn leaves(&mut self) {
        let outcome = self.ordered(Order::Leave);
        assert!(
            matches!(outcome, Outcome::Away(bytes) if bytes > 0),
            "{outcome:?}"
        );
        assert_eq!(self.on_device(), 0);
    }

    fn returns(&mut self) {
        assert_eq!(self.ordered(Order::Return), Outcome::Back);
    }
}

#[test]
fn memory_leaves_and_comes_back_with_every_byte() {
    let mut scene = Scene::new("mem=1GiB");
    // Of one chunk, of several, of an odd size, and one that does not move.
    scene.does(&[
        "alloc 0 4194304",
        "alloc 1 140000001",
        "alloc 2 1048576",
        "alloc 3 1000",
    ]);
    scene.does(&["fill 0 1", "fill 1 2", "fill 2 3", "fill 3 4"]);
    scene.provided(192 * MIB);
    assert!(scene.on_device() >= 140 * MIB);
    for _ in 0..2 {
        scene.leaves();
        scene.returns();
        for (slot, seed) in [(0, 1), (1, 2), (2, 3), (3, 4)] {
            scene.guest.answers(&format!("check {slot} {seed}"), "0");
            scene.guest.answers(&format!("same {slot}"), "1");
        }
    }
    scene.does(&["free 0", "free 1", "free 2", "free 3"]);
    assert_eq!(scene.on_device(), 0);
    scene.guest.finish().silently();
}

#[test]
fn a_call_waits_for_memory_that_is_away_and_says_so() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304", "fill 0 1"]);
    scene.provided(4 * MIB);
    scene.leaves();
    for line in [
        "check 0 1",
        "set 0 7",
        "values 0 7",
        "alloc 1 2000000",
        "free 0",
    ] {
        scene.guest.send(line);
        scene.dealer.hears(&Request::WantIn { device_index: 0 });
        scene.returns();
        let word = line.split(' ').next().expect("a word");
        assert_eq!(scene.guest.line(), format!("{word} 0"), "{line}");
        if line != "free 0" {
            scene.leaves();
        }
    }
    scene.guest.finish().silently();
}

#[test]
fn the_program_is_told_of_plain_memory() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 140000001", "fill 0 1"]);
    scene.provided(140 * MIB);
    for _ in 0..2 {
        assert_eq!(
            scene.guest.ask("range 0 70000000"),
            "range 70000000 140000001"
        );
        assert_eq!(scene.guest.ask("about 0"), "about 1 1 1 0 0");
        let [unmap, retain, access, free, ipc, range] = [1, 1, 1, 1, 801, 801];
        assert_eq!(
            scene.guest.ask("refuses 0"),
            format!("refuses {unmap} {retain} {access} {free} {ipc} {range}")
        );
        scene.leaves();
        scene.returns();
    }
    scene.does(&["wait 0"]);
    scene.leaves();
    scene.returns();
    assert_eq!(scene.guest.ask("about 0"), "about 1 1 1 1 0", "set again");
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

#[test]
fn a_graph_captured_before_a_move_replays_after_it() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304", "fill 0 1", "graph 0 77"]);
    scene.provided(4 * MIB);
    scene.leaves();
    scene.returns();
    scene.guest.answers("check 0 1", "0");
    scene.does(&["launch"]);
    scene.guest.answers("values 0 77", "0");
    scene.guest.finish().silently();
}

#[test]
fn a_capture_refuses_as_it_would_with_plain_memory() {
    let plain = Gpu::new("mem=1GiB");
    let bare = Dealer::start(&plain);
    let mut bare = bare.client("movable");
    let mut scene = Scene::new("mem=1GiB");
    bare.does("init");
    let lines = [
        "alloc 0 4194304",
        "alloc 1 4194304",
        "begin 0",
        "alloc 2 4194304",
        "end",
        "begin 0",
        "free 0",
        "end",
        "begin 2",
        "alloc 3 4194304",
        "free 1",
        "end",
        "free 0",
        "free 3",
    ];
    for line in lines {
        assert_eq!(scene.guest.ask(line), bare.ask(line), "{line}");
    }
    scene.guest.finish().silently();
    bare.finish().silently();
}

#[test]
fn memory_ends_with_its_context_and_in_a_streams_order() {
    let mut scene = Scene::with("mem=1GiB", "init 1", &[]);
    scene.does(&["alloc 0 4194304", "alloc 1 8388608", "fill 0 1", "later 0"]);
    assert_eq!(scene.on_device(), 8 * MIB);
    scene.does(&["destroy"]);
    assert_eq!(scene.on_device(), 0);
    scene.guest.finish().silently();
}

#[test]
fn without_host_memory_a_process_stays_and_says_what_is_missing() {
    let mut scene = Scene::new("mem=1GiB");
    scene.dealer.store().bound(0);
    scene.does(&["alloc 0 4194304", "fill 0 1"]);
    assert_eq!(scene.ordered(Order::Leave), Outcome::NoRoom(4 * MIB));
    scene.guest.answers("check 0 1", "0");
    scene.dealer.store().bound(1 << 30);
    scene.provided(4 * MIB);
    scene.leaves();
    scene.returns();
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

#[test]
fn a_return_without_room_on_the_device_stays_out_whole() {
    let mut scene = Scene::new("mem=512MiB,ctx=8MiB");
    scene.does(&[
        "alloc 0 180000000",
        "alloc 1 180000000",
        "fill 0 1",
        "fill 1 2",
    ]);
    scene.provided(360_000_000);
    scene.leaves();
    let mut other = Guest::start({
        let mut command = scene.dealer.command(&clients::compile("movable", &[]));
        command
            .env("LD_LIBRARY_PATH", gpushare_tests::gpu::links())
            .env_remove("LD_PRELOAD");
        command
    });
    other.does("init");
    other.does("alloc 0 200000000");
    let outcome = scene.ordered(Order::Return);
    assert!(
        matches!(outcome, Outcome::NoRoom(bytes) if bytes > 0),
        "{outcome:?}"
    );
    assert!(scene.on_device() <= 200_000_000 + 4 * MIB, "all or nothing");
    other.does("free 0");
    other.finish().silently();
    // What was freed comes back late.
    until("there is room", || {
        scene.ordered(Order::Return) == Outcome::Back
    });
    scene.guest.answers("check 0 1", "0");
    scene.guest.answers("check 1 2", "0");
    scene.guest.finish().silently();
}

#[test]
fn out_without_a_daemon_it_comes_back_by_itself_when_a_call_waits() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304", "fill 0 1"]);
    scene.provided(4 * MIB);
    scene.leaves();
    scene.dealer.leave();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(scene.on_device(), 0, "no call waits");
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

#[test]
fn the_next_daemon_is_told_who_is_out_and_orders_the_return() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304", "fill 0 1"]);
    scene.provided(4 * MIB);
    scene.leaves();
    scene.dealer.come_back();
    let told = scene.dealer.hears_some(|said| match said {
        Request::Residency(told) => Some(*told),
        _ => None,
    });
    assert_eq!(
        (told.place, told.away, told.movable),
        (Place::Out, 4 * MIB, 4 * MIB)
    );
    assert!(told.host >= told.away);
    scene.guest.send("check 0 1");
    scene.dealer.hears(&Request::WantIn { device_index: 0 });
    assert_eq!(scene.on_device(), 0, "it waits for the order");
    scene.epoch = 0;
    scene.returns();
    assert_eq!(scene.guest.line(), "check 0");
    scene.guest.finish().silently();
}

/// Random moves under threads that do everything to their memory.
#[test]
fn no_byte_is_lost_by_random_moves_under_threads() {
    let rounds = std::env::var("GPUTEST_MOVES").ok();
    let rounds: u32 = rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(60);
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["storm 4"]);
    scene.provided(64 * MIB);
    let (mut seed, mut away) = (1_u64, 0);
    for _ in 0..rounds {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match scene.ordered(Order::Leave) {
            Outcome::Away(_) => {
                assert_eq!(scene.on_device(), 0);
                away += 1;
            }
            Outcome::Busy | Outcome::NoRoom(_) => {}
            Outcome::Back => panic!("an answer to another order"),
        }
        if seed >> 62 == 0 {
            // An order that is taken back on its way.
            scene.epoch += 1;
            scene.dealer.order(scene.epoch, Order::Leave);
        }
        scene.returns();
        let state = scene.guest.ask("state");
        assert!(state.ends_with(" 0 0"), "{state}");
        let before = scene.guest.number("state");
        until("the threads go on", || scene.guest.number("state") > before);
    }
    assert_eq!(scene.guest.ask("calm"), "calm 0 0");
    println!("{away} of {rounds} orders to leave were carried out");
    assert!(away * 2 > rounds, "{away} of {rounds}");
    assert_eq!(scene.on_device(), 0);
    scene.guest.finish().silently();
}

/// A daemon that goes at any step of a move, and comes back at any.
#[test]
fn no_byte_is_lost_when_the_daemon_goes_in_the_middle_of_moves() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["storm 2"]);
    scene.provided(64 * MIB);
    let mut seed = 7_u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed >> 40
    };
    for _ in 0..12 {
        scene.epoch += 1;
        scene.dealer.order(scene.epoch, Order::Leave);
        std::thread::sleep(std::time::Duration::from_micros(next() % 30_000));
        if next() % 2 == 0 {
            scene.epoch += 1;
            scene.dealer.order(scene.epoch, Order::Return);
            std::thread::sleep(std::time::Duration::from_micros(next() % 10_000));
        }
        scene.dealer.leave();
        std::thread::sleep(std::time::Duration::from_micros(next() % 60_000));
        scene.dealer.come_back();
        scene
            .dealer
            .hears_some(|said| matches!(said, Request::Residency(_)).then_some(()));
        // The next daemon's orders are numbered anew.
        scene.epoch = 0;
        until("all is back", || {
            scene.ordered(Order::Return) == Outcome::Back
        });
        let before = scene.guest.number("state");
        until("the threads go on", || scene.guest.number("state") > before);
        let state = scene.guest.ask("state");
        assert!(state.ends_with(" 0 0"), "{state}");
    }
    assert_eq!(scene.guest.ask("calm"), "calm 0 0");
    scene.guest.finish().silently();
}

/// The driver's functions that a move calls, each with how many calls come before the first move.
const CALLS: &[(&str, u32)] = &[
    ("cuCtxRecordEvent", 0),
    ("cuEventCreate", 0),
    ("cuEventQuery", 0),
    ("cuEventDestroy", 0),
    ("cuStreamCreate", 1),
    ("cuStreamDestroy", 0),
    ("cuStreamSynchronize", 2),
    ("cuMemcpyDtoHAsync", 0),
    ("cuMemcpyHtoDAsync", 0),
    ("cuMemUnmap", 0),
    ("cuMemRelease", 0),
    ("cuMemCreate", 2),
    ("cuMemMap", 2),
    ("cuMemSetAccess", 2),
    ("cuMemHostRegister", 0),
];

#[test]
fn whatever_call_of_a_move_fails_the_data_is_there_in_the_end() {
    let mut cases = 0;
    for (function, before) in CALLS {
        for nth in 1..=2 {
            let fail = format!("{function}:{}:CUDA_ERROR_UNKNOWN", before + nth);
            let mut scene = Scene::with("mem=256MiB", "init", &[("SOFTGPU_FAIL", &fail)]);
            scene.does(&["alloc 0 8388608", "alloc 1 3000000", "fill 0 1", "fill 1 2"]);
            scene.provided(12 * MIB);
            let mut last = Outcome::Busy;
            for _ in 0..4 {
                let _ = scene.ordered(Order::Leave);
                last = scene.ordered(Order::Return);
            }
            assert_eq!(last, Outcome::Back, "{fail}");
            scene.guest.answers("check 0 1", "0");
            scene.guest.answers("check 1 2", "0");
            scene.does(&["free 0", "free 1"]);
            scene.guest.finish().silently();
            cases += 1;
        }
    }
    println!("{cases} failures of {} functions", CALLS.len());
}
