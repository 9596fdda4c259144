//! Processes of one tenant that yields submit one after another: the one that has the tenant's
//! token submits. The test publishes the turns, and may be a process of the tenant itself.

use std::sync::atomic::Ordering;

use gpushare_protocol::page::lease::Turn;
use gpushare_protocol::page::pending::PendingWord;
use gpushare_protocol::page::token::LATE;
use gpushare_tests::slices::{Books, KERNEL, MS, SLICE, SLIGHTLY, rests, shared, started, works};
use gpushare_tests::tokens::{Sleeper, TEST, has_it, is_wanted_no_more, takes_it, token};
use gpushare_tests::turns::now;
use gpushare_tests::{Dealer, Gpu, Guest, assert_measured, until};
use nix::sys::signal::{Signal, kill};

/// A kernel that outlasts what a test does meanwhile, on most machines (ns).
const LONG: u64 = 400 * MS;

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

/// A process that yields, and has launched such kernels until the library knows their time.
fn knows(dealer: &Dealer, kernel: u64) -> Guest {
    dealer.deal(&shared(1, false, SLICE));
    let mut guest = started(dealer);
    for _ in 0..3 {
        launches(&mut guest, kernel);
        guest.does("sync 1");
    }
    dealer.deal(&shared(1, true, SLICE));
    guest
}

fn launches(guest: &mut Guest, kernel: u64) {
    assert_eq!(guest.ask(&format!("launch 1 {kernel}")), "launch 0");
}

#[test]
fn two_processes_of_a_tenant_that_yields_submit_one_after_another() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut both = two(&dealer);
    let mut books = Books::of(&gpu);
    books.until_shorter_than(SLICE + SLIGHTLY, 20);
    [0, 1].into_iter().for_each(|slot| has_it(&dealer, slot));
    let mut counts = || both.each_mut().map(|guest| guest.number("count"));
    let before = counts();
    let stretches = books.stretches(200);
    let after = counts();
    let long = stretches.iter().filter(|ns| **ns > SLICE + SLIGHTLY);
    let long = long.count();
    // A slice that another tenant's turn made late lets the next process begin.
    assert_measured!(long * 20 <= stretches.len(), "{long} of {stretches:?}");
    let [one, other] = [after[0] - before[0], after[1] - before[1]];
    assert_measured!(
        one.min(other) * 5 >= one + other,
        "{one} launches of the one and {other} of the other process"
    );
    for guest in &mut both {
        guest.goes_on(50);
        rests(guest);
    }
    both.into_iter()
        .for_each(|guest| _ = guest.finish().silently());
}

/// Stops the process of this slot while it has the token.
fn stops_with_it(gpu: &Gpu, dealer: &Dealer, slot: usize, guest: &mut Guest) {
    let pid = guest.pid();
    until("it stops with the token", || {
        has_it(dealer, slot);
        gpu.stop(pid);
        let has_it = token(dealer).holder(now()) == Some(slot);
        if !has_it {
            kill(pid, Signal::SIGCONT).expect("it lives");
        }
        has_it
    });
}

#[test]
fn a_process_that_has_the_token_and_stops_or_dies_keeps_no_other_waiting() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let [mut first, mut second] = two(&dealer);
    let pid = first.pid();
    stops_with_it(&gpu, &dealer, 0, &mut first);
    second.goes_on(100);
    kill(pid, Signal::SIGCONT).expect("it lives");
    stops_with_it(&gpu, &dealer, 0, &mut first);
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
    [0, 1].into_iter().for_each(|slot| has_it(&dealer, slot));
    dealer.deal(&shared(1, false, SLICE));
    takes_it(&dealer);
    for guest in &mut both {
        guest.goes_on(50);
    }
    assert_eq!(token(&dealer).holder(now()), Some(TEST));
    is_wanted_no_more(&dealer);
    both.iter_mut().for_each(|guest| guest.goes_on(50));
    assert!(!token(&dealer).is_wanted(now()));
    for mut guest in both {
        rests(&mut guest);
        guest.finish().silently();
    }
}

#[test]
fn a_process_that_waits_for_the_token_is_woken_when_it_is_free() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = knows(&dealer, KERNEL);
    works(&mut guest, KERNEL);
    has_it(&dealer, 0);
    let mut sleeper = Sleeper::on(&dealer, &token(&dealer).freed);
    until("it is woken", || {
        // The wish of the test lasts for a nap.
        if token(&dealer).take(TEST, now(), 0).is_ok() {
            let _ = token(&dealer).free(TEST, now());
        }
        sleeper.is_woken()
    });
    rests(&mut guest);
    guest.finish().silently();
}

/// A turn with room for a long kernel and another one.
fn wide(contended: bool) -> Turn {
    Turn {
        window: 4 * LONG,
        ..shared(2, contended, SLICE)
    }
}

#[test]
fn a_process_that_yields_no_more_frees_the_token_and_wakes_others() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = knows(&dealer, LONG);
    let mut sleeper = Sleeper::on(&dealer, &token(&dealer).freed);
    until("a launch goes before the kernel ends", || {
        dealer.deal(&wide(true));
        launches(&mut guest, LONG);
        let end = now() + LONG / 2;
        dealer.deal(&wide(false));
        // As if it were later: so the wish lasts.
        let waits = token(&dealer).take(TEST, end, 0).is_err();
        launches(&mut guest, KERNEL);
        let (is_early, holder) = (now() < end, token(&dealer).holder(now()));
        guest.does("sync 1");
        let counts = waits && is_early;
        assert!(
            !counts || holder.is_none(),
            "it is free while a kernel runs"
        );
        counts
    });
    until("it is woken", || sleeper.is_woken());
    guest.finish().silently();
}

#[test]
fn an_operation_longer_than_a_slice_keeps_the_token_until_it_ends() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = knows(&dealer, LONG);
    until("it keeps the token for its time", || {
        let asked = now();
        launches(&mut guest, LONG);
        // The next look finds it free where the kernel has ended before.
        let holds = |at| token(&dealer).holder(at) == Some(0);
        let (least, most) = (asked + LONG / 10 * 18 + LATE, now() + 4 * LONG + LATE);
        let keeps = holds(least) && !holds(most);
        guest.does("sync 1");
        keeps
    });
    guest.finish().silently();
}

fn is_pending(dealer: &Dealer, slot: usize) -> bool {
    let line = dealer.usage().line(slot, 0).expect("a slot");
    let word = PendingWord::from_bits(line.pending.load(Ordering::Relaxed));
    word.since().is_some()
}

#[test]
fn a_launch_that_waits_for_the_token_is_pending_until_it_goes() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = knows(&dealer, KERNEL);
    takes_it(&dealer);
    is_wanted_no_more(&dealer);
    until("nothing is pending", || !is_pending(&dealer, 0));
    let asked = now();
    guest.does(&format!("post {KERNEL}"));
    until("it is pending", || {
        assert_eq!(guest.ask("posted"), "posted 0", "it waits");
        is_pending(&dealer, 0)
    });
    assert!(token(&dealer).is_wanted(asked));
    let _ = token(&dealer).free(TEST, now());
    until("it goes", || guest.ask("posted") == "posted 1");
    until("nothing is pending", || !is_pending(&dealer, 0));
    guest.finish().silently();
}
