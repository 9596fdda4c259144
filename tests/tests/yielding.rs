//! Yielding of a real program, under turns that the test publishes. While another tenant may be at
//! work, the program submits a slice and completes it before it submits more. The software GPU's
//! turns show it. No launch waits for ever.

use std::sync::atomic::Ordering;

use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE, Turn};
use gpushare_tests::{Dealer, Gpu, Guest, assert_measured, until};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use softgpu::inspect::Observer;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// The work submitted at a time (ns).
const SLICE: u64 = 500 * US;
/// The duration of one kernel: two of them fit.
const KERNEL: u64 = 200 * US;
/// The device's clock may add this to a kernel, including the time of a launch.
const SLIGHTLY: u64 = 50 * US;

/// A turn of a device that tenants share.
fn shared(epoch: u64, contended: bool, slice: u64) -> Turn {
    Turn {
        word: LeaseWord::new(epoch, LeaseState::Open),
        deadline: NO_DEADLINE,
        window: 2 * MS,
        idle_after: 20 * MS,
        contended,
        slice,
        ..Turn::default()
    }
}

/// The clock of pages (ns).
fn now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock");
    u64::try_from(now.tv_sec() * 1_000_000_000 + now.tv_nsec()).expect("it is positive")
}

/// A gap this short (ns) does not count: the device continues with queued work.
const GAP: u64 = 2 * US;

/// The software GPU's turns of the device: the spans in which it worked without a pause.
struct Books {
    observer: Observer,
    place: u64,
    /// The span of the last spell, which may continue.
    last: Option<(u64, u64)>,
    /// How long the device was empty between stretches.
    gaps: Vec<u64>,
}

impl Books {
    fn of(gpu: &Gpu) -> Self {
        let observer = Observer::open(&gpu.spec().parse().expect("a SPEC")).expect("a machine");
        let (_, place) = observer.spells(0, u64::MAX).expect("readable");
        Self {
            observer,
            place,
            last: None,
            gaps: Vec::new(),
        }
    }

    /// The lengths of the spans that have ended since the last call (ns).
    fn ended(&mut self) -> Vec<u64> {
        let (spells, place) = self.observer.spells(0, self.place).expect("readable");
        self.place = place;
        let mut ended = Vec::new();
        for spell in spells {
            match &mut self.last {
                Some((_, to)) if spell.from <= *to + GAP => *to = spell.to,
                last => {
                    let before = last.replace((spell.from, spell.to));
                    let gap = before.map(|(_, to)| spell.from.saturating_sub(to));
                    self.gaps.extend(gap);
                    ended.extend(before.map(|(from, to)| to - from));
                }
            }
        }
        ended
    }

    /// The current length of the span that may continue (ns).
    fn so_far(&self) -> u64 {
        self.last.map_or(0, |(from, to)| to - from)
    }

    /// The lengths of the next `count` spans (ns).
    fn stretches(&mut self, count: usize) -> Vec<u64> {
        self.ended();
        let mut seen = Vec::new();
        until("the device works", || {
            seen.extend(self.ended());
            seen.len() > count
        });
        // The first span may have begun before.
        seen.split_off(1)
    }

    /// Waits for a span longer than `ns`.
    fn until_longer_than(&mut self, ns: u64) {
        self.ended();
        until("there is a long stretch", || {
            self.ended().iter().any(|length| *length > ns) || self.so_far() > ns
        });
    }

    /// Waits until `count` spans in a row are at most `ns` long.
    fn until_shorter_than(&mut self, ns: u64, count: usize) {
        let mut row = 0;
        until("stretches are short", || {
            for length in self.ended() {
                row = if length <= ns { row + 1 } else { 0 };
            }
            row >= count
        });
    }
}

fn started(dealer: &Dealer) -> Guest {
    dealer.client("turns").started()
}

fn works(guest: &mut Guest, kernel: u64) {
    assert_eq!(guest.ask(&format!("work {kernel}")), "work 0");
}

fn rests(guest: &mut Guest) {
    assert_eq!(guest.ask("stop"), "stop 0");
    assert_eq!(guest.ask("sync 1"), "sync 0");
}

#[test]
fn a_deep_queue_that_yields_leaves_the_device_empty_after_each_slice() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, false, SLICE));
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    works(&mut guest, KERNEL);
    // Without other tenants the library measures its kernels.
    books.until_longer_than(10 * MS);
    dealer.deal(&shared(1, true, SLICE));
    books.until_shorter_than(SLICE + SLIGHTLY, 20);
    let stretches = books.stretches(200);
    let long = stretches
        .iter()
        .filter(|ns| **ns > SLICE + SLIGHTLY)
        .count();
    assert_measured!(long == 0, "{long} of {stretches:?}");
    let two = stretches.iter().filter(|ns| **ns >= 2 * KERNEL).count();
    assert!(two > 0, "a slice holds two of them: {stretches:?}");
    books.gaps.sort_unstable();
    let median = books.gaps[books.gaps.len() / 2];
    eprintln!(
        "the device was empty for {} us between slices, the median",
        median / US
    );
    rests(&mut guest);
    guest.finish().silently();
}

#[test]
fn a_program_that_is_never_alone_learns_what_its_kernels_take() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true, SLICE));
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    works(&mut guest, KERNEL);
    until("two go at a time", || books.ended().contains(&(2 * KERNEL)));
    let stretches = books.stretches(200);
    let long = stretches
        .iter()
        .filter(|ns| **ns > SLICE + SLIGHTLY)
        .count();
    assert_measured!(long == 0, "{long} of {stretches:?}");
    rests(&mut guest);
    guest.finish().silently();
}

#[test]
fn a_slice_is_ignored_while_no_other_tenant_works() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, false, SLICE));
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    works(&mut guest, KERNEL);
    books.until_longer_than(4 * MS);
    rests(&mut guest);
    guest.finish().silently();
}

#[test]
fn a_slice_that_comes_and_goes_in_the_same_epoch_is_obeyed_unannounced() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true, 0));
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    works(&mut guest, KERNEL);
    let device = &dealer.page().devices[0];
    for _ in 0..3 {
        books.until_longer_than(2 * MS);
        device.slice.store(SLICE, Ordering::Relaxed);
        books.until_shorter_than(SLICE + SLIGHTLY, 20);
        device.contended.store(0, Ordering::Relaxed);
        books.until_longer_than(2 * MS);
        device.contended.store(1, Ordering::Relaxed);
        books.until_shorter_than(SLICE + SLIGHTLY, 20);
        device.slice.store(0, Ordering::Relaxed);
    }
    rests(&mut guest);
    guest.finish().silently();
}

#[test]
fn many_threads_and_streams_yield_together_and_make_progress() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true, SLICE));
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    assert_eq!(guest.ask(&format!("storm 6 {}", 50 * US)), "storm 0");
    // Six threads with two streams each, and the legacy one.
    let stretches = books.stretches(400);
    let all: u64 = stretches.iter().sum();
    let mean = all / stretches.len() as u64;
    // Without yielding there is no end of one.
    println!("{mean} ns at a time, the mean");
    assert_measured!(mean <= SLICE, "{mean} ns at a time");
    guest.goes_on(100);
    assert_eq!(guest.ask("calm"), "calm 0");
    guest.finish().silently();
}

#[test]
fn one_operation_longer_than_a_slice_goes_alone() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true, SLICE));
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    works(&mut guest, 3 * MS);
    books.until_shorter_than(3 * MS + SLIGHTLY, 10);
    rests(&mut guest);
    guest.finish().silently();
}

#[test]
fn work_that_does_not_end_keeps_no_launch_waiting_for_ever() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true, SLICE));
    let mut guest = started(&dealer);
    let launched = guest.ask(&format!("launch 1 {}", 600_000 * MS));
    assert_eq!(launched, "launch 0");
    assert_eq!(guest.ask(&format!("launch 1 {KERNEL}")), "launch 0");
    guest.kill();
}

/// Two processes of one tenant, which yields, with a queue each.
fn two(dealer: &Dealer) -> [Guest; 2] {
    dealer.deal(&shared(1, false, SLICE));
    let mut both = [started(dealer), started(dealer)];
    for guest in &mut both {
        works(guest, KERNEL);
        guest.goes_on(50);
    }
    dealer.deal(&shared(1, true, SLICE));
    both
}

/// Waits until the process of each of these slots has had the tenant's token.
fn each_has_it(dealer: &Dealer, slots: &[usize]) {
    let token = &dealer.usage().devices[0].token;
    let mut left = slots.to_vec();
    until("each process submits in its turn", || {
        let holder = token.holder(now());
        left.retain(|slot| Some(*slot) != holder);
        left.is_empty()
    });
}

#[test]
fn two_processes_of_a_tenant_that_yields_submit_one_after_another() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut both = two(&dealer);
    let mut books = Books::of(&gpu);
    books.until_shorter_than(SLICE + SLIGHTLY, 20);
    each_has_it(&dealer, &[0, 1]);
    let stretches = books.stretches(200);
    let long = stretches.iter().filter(|ns| **ns > SLICE + SLIGHTLY);
    let long = long.count();
    // A slice that another tenant's turn made late lets the next process begin.
    assert_measured!(long * 20 <= stretches.len(), "{long} of {stretches:?}");
    for guest in &mut both {
        guest.goes_on(50);
        rests(guest);
    }
    both.into_iter()
        .for_each(|guest| _ = guest.finish().silently());
}

#[test]
fn a_process_that_has_the_token_and_stops_or_dies_keeps_no_other_waiting() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let [mut first, mut second] = two(&dealer);
    each_has_it(&dealer, &[0, 1]);
    let pid = first.pid();
    gpu.stop(pid);
    second.goes_on(100);
    kill(pid, Signal::SIGCONT).expect("it lives");
    each_has_it(&dealer, &[0, 1]);
    kill(pid, Signal::SIGKILL).expect("it lives");
    second.goes_on(100);
    rests(&mut second);
    second.finish().silently();
}

#[test]
fn processes_of_a_tenant_that_yields_no_more_wait_for_no_token() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut both = two(&dealer);
    each_has_it(&dealer, &[0, 1]);
    dealer.deal(&shared(1, false, 0));
    let token = &dealer.usage().devices[0].token;
    until("no process has it", || token.holder(now()).is_none());
    for guest in &mut both {
        guest.goes_on(50);
        rests(guest);
    }
    assert_eq!(token.holder(now()), None);
    both.into_iter()
        .for_each(|guest| _ = guest.finish().silently());
}

#[test]
fn yielding_does_not_affect_captures() {
    for mode in [0, 1, 2] {
        let gpu = Gpu::new("");
        let dealer = Dealer::start(&gpu);
        dealer.deal(&shared(1, true, SLICE));
        let mut guest = started(&dealer);
        works(&mut guest, KERNEL);
        assert_eq!(guest.ask(&format!("capture 10 {mode}")), "capture 10 0");
        guest.goes_on(20);
        rests(&mut guest);
        guest.finish().silently();
    }
}

#[test]
fn a_program_ends_while_it_yields_as_without_yielding() {
    for how in [0, 1] {
        // Its thread may launch during the driver's teardown, which the program does not prevent.
        let gpu = Gpu::new("exit=refuse");
        let dealer = Dealer::start(&gpu);
        dealer.deal(&shared(1, true, SLICE));
        let mut guest = started(&dealer);
        works(&mut guest, 5 * MS);
        guest.goes_on(5);
        guest.send(&format!("leave {how}"));
        let ended = guest.finish();
        assert_eq!(ended.status.code(), Some(7), "{ended:?}");
        assert_eq!(ended.stderr, "", "{ended:?}");
    }
}

#[test]
fn a_gate_that_closes_while_a_launch_yields_is_closed_and_opens_again() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true, SLICE));
    let mut guest = started(&dealer);
    works(&mut guest, KERNEL);
    for epoch in 1..20 {
        guest.goes_on(5);
        dealer.close(epoch);
        dealer.hears(&gpushare_protocol::wire::Request::Drained {
            device_index: 0,
            epoch,
        });
        let before = gpu.served();
        assert_eq!(guest.ask("query 1"), "query 0", "all of it is done");
        assert_eq!(gpu.served(), before);
        dealer.deal(&shared(epoch + 1, true, SLICE));
    }
    rests(&mut guest);
    guest.finish().silently();
}

#[test]
fn a_free_gate_never_yields_whatever_the_page_contains() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let free = Turn {
        word: LeaseWord::new(1, LeaseState::Free),
        ..shared(1, true, SLICE)
    };
    dealer.deal(&free);
    let mut guest = started(&dealer);
    let mut books = Books::of(&gpu);
    works(&mut guest, KERNEL);
    books.until_longer_than(4 * MS);
    rests(&mut guest);
    guest.finish().silently();
}
