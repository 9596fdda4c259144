//! The gate of a real program under turns that the test publishes: in order, out of order, forged,
//! and by a daemon that is silent, gone, or replaced. No launch waits for ever, nothing fails,
//! nothing is printed.

use std::fs;

use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE, Turn};
use gpushare_protocol::wire::Request;
use gpushare_tests::dealer::turn;
use gpushare_tests::moves::{drained, wanted};
use gpushare_tests::{Dealer, Gpu, Guest, clients, until};

/// Turns that end with known work in progress.
const ROUNDS: u64 = 40;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn started(dealer: &Dealer) -> Guest {
    dealer.client("turns").started()
}

/// Makes a thread of the guest launch one kernel and wait for it.
fn posts(guest: &mut Guest) {
    assert_eq!(guest.ask(&format!("post {}", 50 * US)), "post 0");
}

#[track_caller]
fn goes(guest: &mut Guest) {
    until("the launch goes", || guest.ask("posted") == "posted 1");
}

fn idle(epoch: u64) -> Request {
    Request::Idle {
        device_index: 0,
        epoch,
    }
}

fn busy(epoch: u64) -> Request {
    Request::Busy {
        device_index: 0,
        epoch,
    }
}

/// Closes `epoch`, waits until it is drained, and checks that a launch waits, is reported once, and
/// does not run.
#[track_caller]
fn is_closed(gpu: &Gpu, dealer: &Dealer, guest: &mut Guest, epoch: u64) {
    dealer.close(epoch);
    dealer.hears(&drained(epoch));
    let before = gpu.served();
    posts(guest);
    dealer.hears(&wanted(epoch));
    assert_eq!(guest.ask("sync 1"), "sync 0", "only launches wait");
    assert_eq!(guest.ask("posted"), "posted 0");
    assert_eq!(gpu.served(), before, "it does not run");
    let again = dealer.said();
    assert!(again.is_empty(), "it is reported once, not {again:?}");
}

#[test]
fn a_gate_opens_closes_and_opens_with_its_page() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    for epoch in 1..6 {
        dealer.open(epoch);
        assert_eq!(guest.ask(&format!("launch 5 {}", 100 * US)), "launch 0");
        is_closed(&gpu, &dealer, &mut guest, epoch);
        dealer.open(epoch + 1);
        goes(&mut guest);
    }
    dealer.deal(&Turn::default());
    assert_eq!(guest.ask("launch 5 1000"), "launch 0");
    guest.finish().silently();
}

#[test]
fn work_submitted_while_nothing_bound_ends_before_drained_is_said() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    for epoch in 1..6 {
        dealer.deal(&Turn::default());
        assert_eq!(guest.ask(&format!("launch 20 {MS}")), "launch 0");
        dealer.close(epoch);
        dealer.hears(&drained(epoch));
        assert_eq!(guest.ask("query 1"), "query 0", "all of it is done");
    }
    guest.finish().silently();
}

#[test]
fn a_turn_is_over_only_when_its_last_work_is() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    for epoch in 1..ROUNDS {
        dealer.open(epoch);
        let launched = guest.ask(&format!("launch 20 {}", 100 * US));
        assert_eq!(launched, "launch 0");
        dealer.close(epoch);
        let mut said = Vec::new();
        until("it has drained", || {
            said.extend(dealer.said());
            said.contains(&drained(epoch))
        });
        assert_eq!(guest.ask("query 1"), "query 0", "all of it is done");
        // On a busy machine a launch may have come before the turn was seen, and the turn may have
        // begun with a pause. That is reported too.
        said.retain(|said| !matches!(said, Request::Idle { .. } | Request::Busy { .. }));
        said.retain(|said| !matches!(said, Request::Wanted { .. }));
        assert_eq!(said, [drained(epoch)], "nothing is reported before");
    }
    guest.finish().silently();
}

/// Closes the first turn while an endless kernel runs, and waits until a launch after it waits.
/// Returns the reports until then.
fn waits_beside_endless_work(dealer: &Dealer, guest: &mut Guest) -> Vec<Request> {
    dealer.open(1);
    assert_eq!(guest.ask(&format!("launch 1 {}", 600_000 * MS)), "launch 0");
    dealer.close(1);
    a_launch_waits(dealer, guest, 1)
}

/// Launches until a launch waits at the gate, whose turn `epoch` was just closed. Returns the
/// reports until then.
fn a_launch_waits(dealer: &Dealer, guest: &mut Guest, epoch: u64) -> Vec<Request> {
    let mut said = Vec::new();
    posts(guest);
    until("a launch waits", || {
        if guest.ask("posted") == "posted 1" {
            // The launch came before the close.
            posts(guest);
        }
        said.extend(dealer.said());
        said.contains(&wanted(epoch))
    });
    said
}

#[test]
fn work_that_does_not_end_is_not_called_drained_and_its_program_goes_on() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    let mut said = waits_beside_endless_work(&dealer, &mut guest);
    assert_eq!(guest.ask("query 1"), "query 600");
    said.extend(dealer.said());
    assert!(!said.contains(&drained(1)), "{said:?}");
    dealer.open(2);
    goes(&mut guest);
    guest.kill();
}

/// The system gives the memory of an ended thread to the next one.
#[test]
fn work_of_an_ended_thread_is_not_taken_for_its_successors() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    // No launch waits for the endless one, and all work is the library's own account.
    let wide = |epoch| Turn {
        window: 4_000 * MS,
        ..turn(epoch, LeaseState::Open)
    };
    dealer.deal(&wide(1));
    guest.does("threads 1 10000");
    dealer.close(1);
    dealer.hears(&drained(1));
    dealer.deal(&wide(2));
    guest.does(&format!("dies {}", 600_000 * MS));
    guest.does("threads 1 10000");
    dealer.close(2);
    let mut said = a_launch_waits(&dealer, &mut guest, 2);
    said.extend(dealer.said());
    assert!(!said.contains(&drained(2)), "{said:?}");
    guest.kill();
}

#[test]
fn a_waiter_says_so_again_when_a_turn_went_by_unseen() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    waits_beside_endless_work(&dealer, &mut guest);
    // Reports about the first turn end with the second, which no process here has seen open.
    dealer.close(2);
    dealer.hears(&wanted(2));
    dealer.open(3);
    goes(&mut guest);
    guest.kill();
}

#[test]
fn a_silent_daemon_blocks_no_launch_and_the_next_is_obeyed() {
    let gpu = Gpu::new("");
    let mut dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    dealer.open(7);
    is_closed(&gpu, &dealer, &mut guest, 7);
    dealer.beat(false);
    goes(&mut guest);
    dealer.beat(true);
    // With the epoch in which it was closed: the process remembers it after the silence.
    dealer.hears(&drained(7));
    is_closed(&gpu, &dealer, &mut guest, 8);
    dealer.leave();
    goes(&mut guest);
    dealer.come_back();
    // The new daemon knows no processes yet; each new process obeys it.
    until("the gate follows the next daemon", || {
        dealer.close(1);
        dealer.said().contains(&drained(1))
    });
    posts(&mut guest);
    dealer.hears(&wanted(1));
    dealer.open(2);
    goes(&mut guest);
    guest.finish().silently();
}

/// The process is idle in the first epoch, and launches while the daemon is silent.
#[test]
fn what_begins_to_work_in_a_silence_says_so_to_the_daemon_that_goes_on() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut command = dealer.command(&clients::compile("turns", &[]));
    command
        .env("LD_LIBRARY_PATH", gpushare_tests::gpu::links())
        .env("GPUSHARE_LOG", log.path());
    let mut guest = Guest::start(command).started();
    let contended = Turn {
        contended: true,
        ..turn(1, LeaseState::Open)
    };
    dealer.deal(&contended);
    let (idle, busy) = (idle(1), busy(1));
    let mut launches = || {
        assert_eq!(guest.ask("launch 1 1000"), "launch 0");
        assert_eq!(guest.ask("sync 1"), "sync 0");
    };
    launches();
    let is_silent = |times: usize| {
        dealer.hears(&idle);
        dealer.beat(false);
        until("the daemon is found silent", || {
            let log = fs::read_to_string(log.path()).expect("it is readable");
            log.matches("the daemon is silent").count() == times
        });
        launches();
        let said = dealer.said();
        if !said.is_empty() {
            dealer.beat(true);
        }
        said.is_empty()
    };
    // The gate is free a moment after the log tells of the silence. Until then a launch itself
    // says so.
    assert!((1..=5).any(is_silent), "it is said in the silence");
    dealer.beat(true);
    dealer.hears(&busy);
    guest.finish().silently();
}

/// The daemon forgets what a process said when its connection ends, or has not heard it.
#[test]
fn a_waiter_says_so_again_on_a_new_connection_to_the_same_daemon() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    dealer.open(1);
    is_closed(&gpu, &dealer, &mut guest, 1);
    dealer.hangs_up();
    let mut said = Vec::new();
    until("it says so again", || {
        if guest.ask("posted") == "posted 1" {
            // It was not held while there was no connection.
            posts(&mut guest);
        }
        said.extend(dealer.said());
        said.contains(&wanted(1))
    });
    dealer.open(2);
    goes(&mut guest);
    guest.finish().silently();
}

#[test]
fn while_the_daemon_is_silent_its_last_cap_holds() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    let capped = |state| Turn {
        cap: 10,
        ..turn(1, state)
    };
    dealer.deal(&capped(LeaseState::Closed));
    dealer.hears(&drained(1));
    posts(&mut guest);
    dealer.hears(&wanted(1));
    dealer.beat(false);
    goes(&mut guest);
    // A second of a device at one percent is repaid after a hundred seconds.
    assert_eq!(guest.ask(&format!("launch 1 {}", 1_000 * MS)), "launch 0");
    assert_eq!(guest.ask("sync 1"), "sync 0");
    let before = gpu.served();
    posts(&mut guest);
    assert_eq!(guest.ask("copies"), "copies 0", "only launches wait");
    assert_eq!(guest.ask("posted"), "posted 0");
    assert!(gpu.served() < before + MS, "and it does not run");
    guest.kill();
}

#[test]
fn an_epoch_that_runs_backwards_is_another_turn_like_any() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    posts(&mut guest);
    for epoch in [9, 5, 1, LeaseWord::MAX_EPOCH, 0, 3] {
        dealer.open(epoch);
        goes(&mut guest);
        is_closed(&gpu, &dealer, &mut guest, epoch);
    }
    dealer.deal(&Turn::default());
    goes(&mut guest);
    guest.finish().silently();
}

#[test]
fn invalid_pages_are_refused_before_any_launch() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let good = started(&dealer);
    dealer.mixes_up_pages();
    let mut guest = dealer.client("turns");
    assert_eq!(guest.ask("init"), "init 1");
    let ended = guest.finish();
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    good.finish().silently();
}

/// Pseudo-random numbers, the same each time.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn a_corrupt_page_breaks_nothing_and_the_next_valid_turn_is_obeyed() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    assert_eq!(guest.ask("storm 4 20000"), "storm 0");
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut any = || {
        let edges = [0, 1, NO_DEADLINE, NO_DEADLINE - 1, 1 << 62, MS, 20 * MS];
        match random(&mut state) % 10 {
            edge @ 0..7 => edges[usize::try_from(edge).expect("small")],
            7 => gpushare_tests::turns::now() + random(&mut state) % (20 * MS),
            _ => random(&mut state),
        }
    };
    for round in 0..400 {
        let mut low = || u32::try_from(any() & u64::from(u32::MAX)).expect("masked");
        let (contended, cap) = (low() % 2 == 0, low());
        dealer.deal(&Turn {
            word: LeaseWord::from_bits(any()),
            deadline: any(),
            window: any(),
            contended,
            cap,
            idle_after: any(),
            slice: any(),
        });
        if round % 16 == 0 {
            dealer.beat(any() % 2 == 0);
        }
        // The gate thread has time to read the page between two of them.
        assert_eq!(guest.ask("query 2"), "query 0");
    }
    dealer.beat(true);
    dealer.deal(&Turn::default());
    guest.goes_on(100);
    assert_eq!(guest.ask("calm"), "calm 0");
    is_closed(&gpu, &dealer, &mut guest, 77);
    dealer.open(78);
    goes(&mut guest);
    guest.finish().silently();
}
