//! A sealed process: nothing that can touch device memory reaches the driver, whatever the program
//! calls, and the seal is no trap for a program that cannot drain. By the software GPU's own trace
//! of calls, under a daemon that the test plays. [`stopped`]: the same while one of the library's
//! threads is stopped. [`elsewhere`]: of calls on another device.

mod elsewhere;
mod stopped;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use gpushare_cuda_abi::symbols::CUDA;
use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::{Obstacle, Request};
use gpushare_tests::{Dealer, Gpu, Guest, clients, until};

/// A program whose memory may move, and its daemon.
struct Scene {
    gpu: Gpu,
    dealer: Dealer,
    guest: Guest,
    trace: tempfile::NamedTempFile,
}

impl Scene {
    fn new() -> Self {
        Self::of("mem=1GiB,driver=13050")
    }

    fn of(spec: &str) -> Self {
        Self::on(spec, 1)
    }

    /// On so many devices.
    fn on(spec: &str, count: usize) -> Self {
        let gpu = Gpu::new(spec);
        let mut dealer = Dealer::on(&gpu, count);
        dealer.swaps();
        let trace = tempfile::NamedTempFile::new().expect("a file");
        let mut command = dealer.command(&clients::compile("seal", &[]));
        command
            .env("LD_LIBRARY_PATH", gpushare_tests::gpu::links())
            .env("SOFTGPU_TRACE", trace.path());
        let guest = Guest::start(command).started();
        Self {
            gpu,
            dealer,
            guest,
            trace,
        }
    }

    /// Orders, and waits for the seal.
    fn sealed(&mut self, epoch: u32, order: Order) {
        self.dealer.order(epoch, order);
        self.dealer.hears(&Request::Sealed {
            device_index: 0,
            epoch,
        });
    }

    /// Those of these functions that reached the driver since the trace was last emptied.
    fn reached(&self, of: &BTreeSet<&str>) -> BTreeSet<String> {
        traced(self.trace.path())
            .into_iter()
            .filter(|name| of.contains(name.as_str()))
            .collect()
    }

    /// The same program without the library.
    fn bare(&self) -> Guest {
        let mut command = self.dealer.command(&clients::compile("seal", &[]));
        command
            .env("LD_LIBRARY_PATH", gpushare_tests::gpu::links())
            .env_remove("LD_PRELOAD");
        Guest::start(command)
    }

    /// The kernel's number of the library's thread that moves memory.
    fn mover(&self) -> String {
        let tasks = format!("/proc/{}/task", self.guest.id());
        let is_it = |task: &fs::DirEntry| {
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            name.trim() == "gpushare-mover"
        };
        let tasks = fs::read_dir(tasks).expect("a process").flatten();
        let found = tasks.filter(is_it).map(|task| task.file_name());
        let found = found.last().expect("it has one");
        found.into_string().expect("a number")
    }

    fn forgets(&self) {
        fs::write(self.trace.path(), "").expect("writable");
    }

    fn pending(&mut self) -> u64 {
        self.guest.number("pending")
    }

    /// Has threads call all of these. How many the driver has.
    fn calls(&mut self, names: &BTreeSet<&str>) -> u64 {
        names
            .iter()
            .map(|name| self.guest.number(&format!("call {name}")))
            .sum()
    }

    /// Has threads call all of these: none reaches the driver. How many wait.
    #[track_caller]
    fn holds(&mut self, names: &BTreeSet<&str>) -> u64 {
        self.forgets();
        let there = self.calls(names);
        self.dealer.hears(&Request::WantIn { device_index: 0 });
        // Nothing can be awaited that must not happen: so long a leak has to show itself.
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(self.reached(names), BTreeSet::new());
        assert_eq!(self.pending(), there, "they all wait");
        there
    }

    /// Those that waited go on, and reach the driver.
    #[track_caller]
    fn goes_on(&mut self, names: &BTreeSet<&str>, there: u64) {
        until("all have returned", || self.pending() == 0);
        assert_eq!(self.reached(names).len() as u64, there);
    }
}

/// Those of these functions that threads but this one called.
fn calls_but_by(path: &Path, thread: &str, of: &BTreeSet<&str>) -> BTreeSet<String> {
    let text = fs::read_to_string(path).expect("readable");
    text.lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|words| words.len() > 2 && words[1] != thread && of.contains(words[2]))
        .map(|words| words[2].to_owned())
        .collect()
}

fn traced(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).expect("readable");
    text.lines()
        .filter_map(|line| line.split(' ').nth(2))
        .map(str::to_owned)
        .collect()
}

/// Stream memory operations, which are held only when all work is complete.
fn is_operation(name: &str) -> bool {
    name.starts_with("cuStreamW") || name.starts_with("cuStreamBatchMemOp")
}

/// Every function that can touch device memory, by the symbol table.
fn touching() -> BTreeSet<&'static str> {
    CUDA.iter()
        .filter(|row| row.gate.touches())
        .map(|row| row.name)
        .collect()
}

#[test]
fn nothing_that_touches_memory_reaches_the_driver_while_sealed() {
    let names = touching();
    let mut scene = Scene::new();
    let there = scene.calls(&names);
    until("all have returned", || scene.pending() == 0);
    let reached = scene.reached(&names);
    assert_eq!(reached.len() as u64, there, "open, each reaches the driver");
    assert_eq!(there, names.len() as u64, "none falls out unseen");

    scene.sealed(1, Order::Seal);
    assert_eq!(scene.holds(&names), there);
    scene.dealer.order(2, Order::In);
    scene.goes_on(&names, there);
    scene.guest.finish().silently();
}

#[test]
fn a_stream_operation_that_work_waits_for_passes_until_it_is_done() {
    let mut scene = Scene::new();
    scene.guest.does("await");
    scene.dealer.order(1, Order::Seal);
    let launches = BTreeSet::from(["cuLaunchKernel"]);
    until("a launch waits", || {
        scene.calls(&launches);
        let said = scene.dealer.said();
        said.contains(&Request::WantIn { device_index: 0 })
    });
    scene.guest.does("write");
    scene.dealer.hears(&Request::Sealed {
        device_index: 0,
        epoch: 1,
    });
    let operations: BTreeSet<&str> = touching()
        .into_iter()
        .filter(|name| is_operation(name))
        .collect();
    scene.forgets();
    let there = scene.calls(&operations);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(scene.reached(&operations), BTreeSet::new());
    scene.dealer.order(2, Order::In);
    until("all have returned", || scene.pending() == 0);
    assert_eq!(scene.reached(&operations).len() as u64, there);
    scene.guest.finish().silently();
}

#[test]
fn a_process_that_captures_or_works_on_opens_again_and_says_why() {
    let mut scene = Scene::new();
    scene.guest.does("begin");
    scene.dealer.order(1, Order::Seal);
    let busy = |epoch, why, retry_ms| Request::SealBusy {
        device_index: 0,
        epoch,
        why,
        retry_ms,
    };
    scene.dealer.hears(&busy(1, Obstacle::Capture, 100));
    scene.guest.does("end");
    scene.guest.does("await");
    scene.dealer.drains_within(50);
    scene.dealer.order(2, Order::Seal);
    scene.dealer.hears(&busy(2, Obstacle::Work, 200));
    scene.calls(&BTreeSet::from(["cuMemcpy"]));
    until("it is open", || scene.pending() == 0);
    scene.guest.does("write");
    // The work ends soon after the call that wrote.
    scene.dealer.drains_within(60_000);
    scene.sealed(3, Order::Seal);
    scene.dealer.order(4, Order::In);
    scene.guest.does("sync");
    scene.guest.finish().silently();
}

#[test]
fn a_call_that_was_left_by_a_jump_keeps_no_seal_from_closing() {
    let mut scene = Scene::new();
    scene.forgets();
    for epoch in [1, 3] {
        scene.sealed(epoch, Order::Seal);
        // It was held, or it would have returned.
        scene.guest.answers("leap", "1");
        scene.dealer.order(epoch + 1, Order::In);
        scene.guest.does("sync");
    }
    // Neither then nor later.
    let copies = BTreeSet::from(["cuMemcpyHtoD_v2"]);
    assert_eq!(scene.reached(&copies), BTreeSet::new());
    // Another copy of that kind is made.
    assert_eq!(scene.calls(&copies), 1);
    scene.goes_on(&copies, 1);
    scene.guest.finish().silently();
}

/// If each waited for as long as a thread is held whose process ends, that would be 400 s.
#[test]
fn calls_of_exit_handlers_do_not_wait_for_memory_that_is_away() {
    let mut scene = Scene::new();
    scene.sealed(1, Order::Seal);
    scene.guest.send("exit 400");
    let stat = format!("/proc/{}/stat", scene.guest.id());
    until("it has ended", || {
        fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "))
    });
    scene.guest.finish().silently();
}

#[test]
fn a_process_that_is_in_opens_when_its_daemon_goes() {
    let mut scene = Scene::new();
    scene.sealed(1, Order::Seal);
    let copies = BTreeSet::from(["cuMemcpy"]);
    scene.calls(&copies);
    scene.dealer.hears(&Request::WantIn { device_index: 0 });
    assert_eq!(scene.pending(), 1);
    scene.dealer.leave();
    until("it is open", || scene.pending() == 0);
    scene.guest.finish().silently();
}

/// How the daemon goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Daemon {
    /// It is silent: its pages and connections are there.
    Hangs,
    /// It is killed while all calls are held.
    IsKilled,
}

/// Sealed and away, without its daemon, no room to come back, and longer than any patience of the
/// gate's: each kind of call that can touch memory is held. None reaches the driver until the
/// process has its memory again, and no byte is lost.
fn stays_away(daemon: Daemon, patience: Duration) {
    let mut scene = Scene::of("mem=256MiB,driver=13050,ctx=8MiB");
    scene.guest.does("alloc 100000000");
    until("host memory is given", || scene.dealer.store().given() > 0);
    scene.dealer.order(1, Order::Leave);
    scene
        .dealer
        .hears_some(|said| matches!(said, Request::Away { .. }).then_some(()));
    // It is once what copied it is over for the driver too.
    until("its memory is off the device", || {
        let truth = scene.gpu.truth();
        let alive = truth.processes.iter().filter(|process| process.alive);
        let held = alive.map(|process| process.requested[softgpu::world::Kind::Vmm as usize]);
        held.sum::<u64>() == 0
    });
    let mut hog = scene.bare();
    hog.does("init");
    hog.does("alloc 190000000");
    scene.forgets();
    let names = touching();
    let there = if daemon == Daemon::Hangs {
        // The gate opens for a daemon that is silent; a seal does not.
        scene.dealer.close(1);
        scene.dealer.beat(false);
        scene.calls(&names)
    } else {
        let there = scene.calls(&names);
        scene.dealer.leave();
        there
    };
    scene.guest.answers("leap", "1");
    std::thread::sleep(patience);
    let own = scene.mover();
    let reached = calls_but_by(scene.trace.path(), &own, &names);
    assert!(reached.is_empty(), "{reached:?}");
    assert_eq!(scene.pending(), there);
    hog.finish().silently();
    until("it is back and open", || scene.pending() == 0);
    comes_back_first(scene.trace.path(), &own, &names, there);
    scene.guest.answers("check", "0");
    scene.guest.finish().silently();
}

/// The program's calls came behind all that the mover copied back.
#[track_caller]
fn comes_back_first(trace: &Path, mover: &str, names: &BTreeSet<&str>, there: u64) {
    let text = fs::read_to_string(trace).expect("readable");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let is_copy = |words: &Vec<&str>| words[1] == mover && words[2].starts_with("cuMemcpyHtoD");
    let back = lines.iter().rposition(is_copy).expect("it came back");
    let is_own = |words: &Vec<&str>| words[1] != mover && names.contains(words[2]);
    let first = lines.iter().position(is_own).expect("they were made");
    assert!(back < first, "{:?} before {:?}", lines[first], lines[back]);
    let made: BTreeSet<&str> = lines[first..]
        .iter()
        .filter(|words| is_own(words))
        .map(|words| words[2])
        .collect();
    assert_eq!(made.len() as u64, there);
}

#[test]
fn nothing_reaches_the_driver_while_memory_is_away_and_cannot_return() {
    stays_away(Daemon::Hangs, Duration::from_millis(500));
}

#[test]
fn nor_when_the_daemon_is_killed_while_each_kind_of_call_is_held() {
    stays_away(Daemon::IsKilled, Duration::from_millis(500));
}

#[test]
#[ignore = "half a minute"]
fn nor_after_half_a_minute_away() {
    for daemon in [Daemon::Hangs, Daemon::IsKilled] {
        stays_away(daemon, Duration::from_secs(30));
    }
}

#[test]
fn without_the_daemons_word_no_process_is_sealed() {
    let gpu = Gpu::new("mem=1GiB");
    let dealer = Dealer::start(&gpu);
    let mut guest = dealer.client("seal").started();
    dealer.order(1, Order::Seal);
    guest.does("spin 1000");
    assert_eq!(guest.number("call cuMemcpy"), 1);
    until("it has returned", || guest.number("pending") == 0);
    guest.does("sync");
    guest.finish().silently();
    assert_eq!(dealer.said(), []);
}
