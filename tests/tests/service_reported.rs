//! A process's reports of its work in the usage page: how much was completed, and for how long work
//! was pending. Compared with the software GPU's counters, under turns that the test publishes.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gpushare_protocol::page::Line;
use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE, Turn};
use gpushare_protocol::page::pending::PendingWord;
use gpushare_protocol::wire::Request;
use gpushare_tests::turns::now;
use gpushare_tests::{Dealer, Gpu, Guest, assert_measured, clients, links, until, until_some};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// A kernel that does not end while a test runs (ns).
const ENDLESS: u64 = 600_000 * MS;
/// How long a module loads in the launch that needs it (ns): `load=300ms`.
const LOAD: u64 = 300 * MS;
/// How long a launch takes on the host (ns): `launch=100ms`.
const IN_CALL: u64 = 100 * MS;

/// A turn of a device that tenants share.
fn shared(epoch: u64, contended: bool) -> Turn {
    Turn {
        word: LeaseWord::new(epoch, LeaseState::Open),
        deadline: NO_DEADLINE,
        window: 2 * MS,
        idle_after: 20 * MS,
        contended,
        ..Turn::default()
    }
}

fn started(dealer: &Dealer) -> Guest {
    dealer.client("turns").started()
}

/// The first process's line of the first device.
fn line(dealer: &Dealer) -> &Line {
    dealer.usage().line(0, 0).expect("the first slot")
}

fn service(dealer: &Dealer) -> u64 {
    line(dealer).service.load(Ordering::Relaxed)
}

fn busy(dealer: &Dealer) -> u64 {
    line(dealer).busy.load(Ordering::Relaxed)
}

fn pending(dealer: &Dealer) -> PendingWord {
    PendingWord::from_bits(line(dealer).pending.load(Ordering::Relaxed))
}

fn launches(guest: &mut Guest, count: u64, kernel: u64) {
    assert_eq!(guest.ask(&format!("launch {count} {kernel}")), "launch 0");
}

fn waits(guest: &mut Guest) {
    assert_eq!(guest.ask("sync 1"), "sync 0");
}

/// What came of rows of kernels (ns).
struct Rows {
    /// Their time according to the library.
    said: u64,
    /// Their time according to the software GPU.
    served: u64,
    /// From the first launch to the return of the last wait, as the test saw it.
    took: u64,
}

/// Runs this many kernels in rows of `row` and waits for each row.
fn runs(gpu: &Gpu, dealer: &Dealer, guest: &mut Guest, rows: u64, row: u64, kernel: u64) -> Rows {
    let (before, began) = ((service(dealer), gpu.served()), now());
    for _ in 0..rows {
        launches(guest, row, kernel);
        waits(guest);
    }
    Rows {
        said: service(dealer) - before.0,
        served: gpu.served() - before.1,
        took: now() - began,
    }
}

/// Works until four fifths of the process's latest work are measured. The first operations of a
/// kind are guessed by the ends that are seen: a stall of milliseconds there needs as much measured
/// work to outweigh it. Returns what came of the last works.
fn until_measured<T>(dealer: &Dealer, mut works: impl FnMut() -> T) -> T {
    until_some("the work is measured", || {
        let came = works();
        (!pending(dealer).is_guessed()).then_some(came)
    })
}

/// The library measures a kernel by the ends it sees. It may be wrong by 2 %, and on a slow machine
/// by as much as the ends were seen late, now or while the kernel was `known`.
#[track_caller]
fn agree(known: &Rows, rows: &Rows) {
    let Rows { said, served, .. } = *rows;
    let seen = |rows: &Rows| u128::from(rows.took) * u128::from(served) / u128::from(rows.served);
    let most = seen(known)
        .max(seen(rows))
        .max(u128::from(served / 50 * 51));
    assert_measured!(
        said >= served / 50 * 49 && u128::from(said) <= most,
        "{said} ns are reported, {served} were served, {most} were seen"
    );
}

#[test]
fn reported_service_equals_softgpus_once_kernels_are_known() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, false));
    let mut guest = started(&dealer);
    let known = until_measured(&dealer, || {
        runs(&gpu, &dealer, &mut guest, 10, 100, 300 * US)
    });
    agree(&known, &runs(&gpu, &dealer, &mut guest, 20, 100, 300 * US));
    guest.finish().silently();
}

#[test]
fn reported_service_equals_softgpus_while_others_may_work() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true));
    let mut guest = started(&dealer);
    for kernel in [300 * US, 20 * US] {
        runs(&gpu, &dealer, &mut guest, 20, 100, kernel);
    }
    // The same function and shape: the library measures its duration again.
    let known = runs(&gpu, &dealer, &mut guest, 60, 100, 300 * US);
    until_measured(&dealer, || {
        runs(&gpu, &dealer, &mut guest, 10, 100, 300 * US)
    });
    agree(&known, &runs(&gpu, &dealer, &mut guest, 20, 100, 300 * US));
    guest.finish().silently();
}

/// Launches the guest's graph in rows of 20 and waits for each row.
fn replays(gpu: &Gpu, dealer: &Dealer, guest: &mut Guest, rows: u64) -> (u64, u64) {
    let before = (service(dealer), gpu.served());
    for _ in 0..rows {
        guest.does("replay 20");
        waits(guest);
    }
    (service(dealer) - before.0, gpu.served() - before.1)
}

#[test]
fn a_graph_that_changes_is_soon_reported_by_its_new_time() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true));
    let mut guest = started(&dealer);
    guest.does(&format!("graph {}", 100 * US));
    until_measured(&dealer, || replays(&gpu, &dealer, &mut guest, 20));
    guest.does(&format!("change {MS}"));
    let (said, served) = replays(&gpu, &dealer, &mut guest, 20);
    assert!(served >= 400 * MS);
    assert_measured!(
        said >= served / 10 * 9,
        "{said} ns are reported, {served} were served"
    );
    guest.finish().silently();
}

/// The driver may give the function of a new context the handle of an earlier one.
#[test]
fn a_function_of_a_new_context_is_soon_reported_by_its_own_time() {
    let gpu = Gpu::new("reuse=lifo");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true));
    let mut guest = started(&dealer);
    until_measured(&dealer, || runs(&gpu, &dealer, &mut guest, 20, 20, 20 * US));
    guest.does("reset");
    let Rows { said, served, .. } = runs(&gpu, &dealer, &mut guest, 20, 20, MS);
    assert!(served >= 400 * MS);
    assert_measured!(
        said >= served / 10 * 8,
        "{said} ns are reported, {served} were served"
    );
    guest.finish().silently();
}

/// The driver finishes the work of a context before that ends.
#[test]
fn work_of_a_context_that_ends_without_a_wait_for_it_is_reported() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    // So that nothing waits for room, and few marks are put.
    let (window, turn) = (1_000 * MS, shared(1, true));
    dealer.deal(&Turn { window, ..turn });
    let mut guest = started(&dealer);
    until_measured(&dealer, || runs(&gpu, &dealer, &mut guest, 10, 20, MS));
    let before = (service(&dealer), gpu.served());
    launches(&mut guest, 40, MS);
    guest.does("reset");
    let (said, served) = (service(&dealer) - before.0, gpu.served() - before.1);
    assert_measured!(
        said >= served / 10 * 9 && said <= served / 10 * 11,
        "{said} ns are reported, {served} were served"
    );
    guest.finish().silently();
}

#[test]
fn unbound_work_is_not_reported() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    let Rows { said, served, .. } = runs(&gpu, &dealer, &mut guest, 2, 50, 100 * US);
    assert!(served >= 10 * MS);
    assert_eq!((said, busy(&dealer)), (0, 0));
    assert_eq!(pending(&dealer).since(), None);
    guest.finish().silently();
}

#[test]
fn a_sparse_client_is_pending_while_it_waits_and_not_between() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true));
    let mut guest = started(&dealer);
    launches(&mut guest, 1, MS);
    waits(&mut guest);
    let (mut asked, before) = (0, (busy(&dealer), gpu.served()));
    // Once, as soon as it has a processor, the gate thread marks what may have been submitted
    // before the gate opened. A wait for one stream does not show that mark's end.
    let mut glances = 0;
    for _ in 0..40 {
        let began = Instant::now();
        launches(&mut guest, 1, MS);
        waits(&mut guest);
        asked += u64::try_from(began.elapsed().as_nanos()).expect("short");
        // The program has waited for the work.
        let (since, said) = (pending(&dealer).since(), busy(&dealer));
        assert_eq!(guest.ask("query 1"), "query 0");
        if since.is_some() || busy(&dealer) != said {
            glances += 1;
            until("its end is seen", || pending(&dealer).since().is_none());
        }
    }
    assert!(glances <= 1, "pending after {glances} of 40 waits");
    let (said, served) = (busy(&dealer) - before.0, gpu.served() - before.1);
    assert_measured!(said <= asked, "{said} ns in {asked}");
    assert_measured!(
        said >= served / 50 * 49,
        "{said} ns, and {served} were served"
    );
    guest.finish().silently();
}

#[test]
fn a_deep_queue_is_pending_all_the_time() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true));
    let mut guest = started(&dealer);
    assert_eq!(guest.ask(&format!("work {}", 300 * US)), "work 0");
    until("it is pending", || pending(&dealer).since().is_some());
    assert_eq!(guest.ask("stop"), "stop 0");
    waits(&mut guest);
    until("its end is seen", || pending(&dealer).since().is_none());
    assert!(busy(&dealer) > 0);
    guest.finish().silently();
}

#[test]
fn the_end_of_work_without_a_waiter_is_seen() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, false));
    let mut guest = started(&dealer);
    launches(&mut guest, 5, MS);
    until("its end is seen", || {
        service(&dealer) > 0 && pending(&dealer).since().is_none()
    });
    guest.finish().silently();
}

#[test]
fn the_end_of_work_in_one_stream_is_seen_while_another_one_goes_on() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true));
    let mut guest = started(&dealer);
    let beside = format!("beside {}", 100 * US);
    // The library knows the kernel, in both streams.
    for _ in 0..4 {
        launches(&mut guest, 1, 100 * US);
        assert_eq!(guest.ask(&beside), "beside 0");
        waits(&mut guest);
        assert_eq!(guest.ask("sync 2"), "sync 0");
    }
    // Nothing waits for it.
    assert_eq!(guest.ask(&beside), "beside 0");
    let began = Instant::now();
    until("nothing is pending between launches", || {
        launches(&mut guest, 1, 100 * US);
        waits(&mut guest);
        pending(&dealer).since().is_none()
    });
    let took = began.elapsed();
    println!("seen after {took:?}");
    // A pause between two launches that is as long as a rest shows it as well.
    assert_measured!(took.as_millis() < 100, "after {took:?}");
    guest.finish().silently();
}

#[test]
fn a_launch_at_the_closed_gate_is_pending_until_it_goes() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true));
    let mut guest = started(&dealer);
    launches(&mut guest, 1, MS);
    waits(&mut guest);
    dealer.close(1);
    dealer.hears(&Request::Drained {
        device_index: 0,
        epoch: 1,
    });
    assert_eq!(pending(&dealer).since(), None);
    let before = busy(&dealer);
    assert_eq!(guest.ask(&format!("post {MS}")), "post 0");
    dealer.hears(&Request::Wanted {
        device_index: 0,
        epoch: 1,
    });
    until("it is pending", || pending(&dealer).since().is_some());
    let since = pending(&dealer).since();
    assert_eq!(busy(&dealer), before, "it is counted when it ends");
    dealer.deal(&shared(2, true));
    until("it goes", || guest.ask("posted") == "posted 1");
    until("it has ended", || pending(&dealer).since().is_none());
    // Its end is an estimate: how long it is, gpushare-pacing's tests assert.
    let counted = busy(&dealer) - before;
    assert!(counted > 0, "{counted} ns since {since:?}");
    guest.finish().silently();
}

#[test]
fn an_uncontended_holder_reports_idle_and_busy() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(7, false));
    let mut guest = started(&dealer);
    for _ in 0..3 {
        launches(&mut guest, 1, MS);
        dealer.hears(&Request::Idle {
            device_index: 0,
            epoch: 7,
        });
        // That may have been said of the kernel before this one.
        until("nothing is pending", || pending(&dealer).since().is_none());
        launches(&mut guest, 1, MS);
        dealer.hears(&Request::Busy {
            device_index: 0,
            epoch: 7,
        });
    }
    guest.finish().silently();
}

#[test]
fn work_from_before_the_gate_was_bound_is_pending_until_it_ends() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = started(&dealer);
    let launched = Instant::now();
    let may_be_over = || launched.elapsed() >= Duration::from_secs(2);
    launches(&mut guest, 1, 2_000 * MS);
    dealer.deal(&shared(1, false));
    until("it is pending", || {
        may_be_over() || pending(&dealer).since().is_some()
    });
    let answer = guest.ask("query 1");
    assert!(answer == "query 600" || may_be_over(), "it is under way");
    until("its end is seen", || pending(&dealer).since().is_none());
    until("it has ended", || guest.ask("query 1") == "query 0");
    dealer.hears(&Request::Idle {
        device_index: 0,
        epoch: 1,
    });
    guest.finish().silently();
}

/// Since when an endless kernel is pending that `guest` has launched.
fn since_of_endless(dealer: &Dealer, guest: &mut Guest) -> u64 {
    launches(guest, 1, ENDLESS);
    pending(dealer).since().expect("it is under way")
}

#[test]
fn a_launch_is_pending_from_the_end_of_its_modules_load_on() {
    let gpu = Gpu::new("load=300ms");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, false));
    let mut guest = started(&dealer);
    let asked = now();
    let since = since_of_endless(&dealer, &mut guest);
    // Its lowest bit is used for something else.
    assert!(since + 1 >= asked + LOAD, "{} ns", since - asked);
    assert_eq!(busy(&dealer), 0);
    guest.kill();
}

#[test]
fn a_launch_that_loads_nothing_is_pending_while_it_is_in_the_driver() {
    let gpu = Gpu::new("launch=100ms");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, false));
    let mut guest = started(&dealer);
    launches(&mut guest, 1, MS);
    waits(&mut guest);
    let since = since_of_endless(&dealer, &mut guest);
    assert!(since + IN_CALL <= now(), "the call had begun");
    guest.kill();
}

#[test]
fn a_launch_that_waits_for_its_kernel_is_pending_from_its_begin_on() {
    let gpu = Gpu::new("launch=100ms");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, false));
    let mut command = dealer.command(&clients::compile("turns", &[]));
    command
        .env("LD_LIBRARY_PATH", links())
        .env("CUDA_LAUNCH_BLOCKING", "1");
    let mut guest = Guest::start(command).started();
    // It may load a module, but cannot be told from one that runs inside the call.
    let since = since_of_endless(&dealer, &mut guest);
    assert!(since + IN_CALL <= now(), "the call had begun");
    guest.kill();
}

#[test]
fn a_module_that_loads_is_not_pending_once_earlier_work_has_ended() {
    let gpu = Gpu::new("load=300ms");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true));
    let mut guest = started(&dealer);
    launches(&mut guest, 1, MS);
    waits(&mut guest);
    let (before, began) = (busy(&dealer), now());
    launches(&mut guest, 1, 20 * MS);
    // In a context of its own, whose module is another one.
    guest.send(&format!("contexts 1 {MS}"));
    until("the kernel's end is seen", || {
        busy(&dealer) > before && pending(&dealer).since().is_none()
    });
    assert_eq!(guest.line(), "contexts 0");
    until("all is complete", || pending(&dealer).since().is_none());
    let (said, all) = (busy(&dealer) - before, now() - began);
    assert_measured!(said + LOAD / 2 <= all, "{said} of {all} ns");
    guest.finish().silently();
}

#[test]
fn a_launch_that_waits_and_then_loads_is_pending_while_it_waits() {
    let gpu = Gpu::new("load=300ms");
    let dealer = Dealer::start(&gpu);
    dealer.close(1);
    let mut guest = started(&dealer);
    assert_eq!(guest.ask(&format!("post {MS}")), "post 0");
    until("it is pending", || pending(&dealer).since().is_some());
    let opened = now();
    dealer.deal(&shared(2, true));
    until("it has run", || guest.ask("posted") == "posted 1");
    until("its end is seen", || pending(&dealer).since().is_none());
    let (said, all) = (busy(&dealer), now() - opened);
    assert!(said > 0, "it has waited");
    assert_measured!(said + LOAD / 2 <= all, "{said} of {all} ns");
    guest.finish().silently();
}

#[test]
fn a_turn_ends_only_when_a_launch_that_loads_its_module_has_run() {
    let gpu = Gpu::new("load=300ms");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true));
    let mut guest = started(&dealer);
    let before = gpu.truth().used_physical;
    guest.send(&format!("launch 1 {MS}"));
    until("it loads", || gpu.truth().used_physical > before);
    dealer.close(1);
    dealer.hears(&Request::Drained {
        device_index: 0,
        epoch: 1,
    });
    assert!(gpu.served() >= MS, "its kernel has run");
    assert_eq!(guest.line(), "launch 0");
    assert_eq!(pending(&dealer).since(), None);
    guest.finish().silently();
}
