//! Programs that end, fail, fork or exec while they hold a turn or finish one. Their neighbour
//! continues, and none of their state remains in the daemon. The daemon starts no tenant while
//! another one has not finished, so the test would show such a wait.

use std::os::unix::process::ExitStatusExt;

use gpushare_protocol::wire::Request;
use gpushare_tests::turns::STRICT;
use gpushare_tests::{Daemon, Dealer, Ended, Gpu, Guest, Tenant, until};

const MS: u64 = 1_000_000;

fn started(tenant: &Tenant) -> Guest {
    tenant.client("turns", &[]).started()
}

/// A guest whose threads always have work.
fn storming(tenant: &Tenant) -> Guest {
    let mut guest = started(tenant);
    assert_eq!(guest.ask("storm 4 60000"), "storm 0");
    guest
}

/// Waits until no process of the tenant is left.
#[track_caller]
fn nothing_is_left(daemon: &Daemon, name: &str) {
    let row = daemon.until(name, |row| row.processes.is_empty() && row.limbo == 0);
    assert_eq!((row.charged, row.overhead), (0, 0), "{row:?}");
    let share = daemon.share(name);
    assert_eq!(share.overruns, 0, "{share:?}");
}

/// Three programs, one after the other, leave in the middle of their work while a neighbour works.
#[track_caller]
fn the_neighbour_goes_on_when_one_leaves(how: &str, left: impl Fn(&Ended) -> bool) {
    // Its threads still launch during the driver's teardown.
    let gpu = Gpu::new("exit=refuse");
    let daemon = Daemon::configured(&gpu, STRICT);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let mut other = storming(&two);
    for _ in 0..3 {
        let mut guest = storming(&one);
        guest.goes_on(60);
        guest.send(how);
        let ended = guest.finish();
        assert!(left(&ended), "{ended:?}");
        other.goes_on(120);
    }
    nothing_is_left(&daemon, "one");
    other.calms();
}

#[test]
fn a_program_that_exits_amid_launches_leaves_the_device_to_others() {
    the_neighbour_goes_on_when_one_leaves("leave 0", |ended| ended.status.code() == Some(7));
}

#[test]
fn a_program_that_ends_at_once_amid_launches_leaves_the_device() {
    the_neighbour_goes_on_when_one_leaves("leave 1", |ended| ended.status.code() == Some(7));
}

#[test]
fn a_program_that_aborts_amid_launches_leaves_the_device_to_others() {
    the_neighbour_goes_on_when_one_leaves("leave 2", |ended| ended.status.signal() == Some(6));
}

#[test]
fn a_program_that_becomes_another_amid_its_launches_begins_anew() {
    let gpu = Gpu::new("");
    let daemon = Daemon::configured(&gpu, STRICT);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let (mut guest, mut other) = (storming(&one), storming(&two));
    for _ in 0..4 {
        guest.goes_on(60);
        guest.send("exec");
        other.goes_on(120);
        assert_eq!(guest.ask("init"), "init 0");
        let row = daemon.until("one", |row| row.processes.len() == 1);
        assert_eq!(u64::from(row.processes[0].pid), guest.number("pid"));
        assert_eq!(guest.ask("storm 4 60000"), "storm 0");
    }
    guest.goes_on(60);
    other.goes_on(60);
    guest.calms();
    nothing_is_left(&daemon, "one");
    other.calms();
}

#[test]
fn a_failed_context_is_drained_and_its_neighbour_goes_on() {
    let gpu = Gpu::new("");
    let daemon = Daemon::configured(&gpu, STRICT);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let (mut guest, mut other) = (storming(&one), storming(&two));
    guest.goes_on(60);
    assert_eq!(guest.ask("fault"), "fault 0");
    until("the context fails", || guest.ask("query 1") == "query 700");
    other.goes_on(300);
    assert_eq!(guest.ask("launch 1 1000"), "launch 700");
    assert_eq!(guest.ask("calm"), "calm 700");
    other.goes_on(300);
    assert_eq!(daemon.share("one").overruns, 0);
    guest.finish().silently();
    nothing_is_left(&daemon, "one");
    other.calms();
}

#[test]
fn a_thread_that_is_cancelled_leaves_the_gate_as_it_found_it() {
    let gpu = Gpu::new("");
    let daemon = Daemon::configured(&gpu, STRICT);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let (mut guest, mut other) = (started(&one), storming(&two));
    for _ in 0..8 {
        assert_eq!(guest.ask("cancel 200000"), "cancel 0");
        other.goes_on(60);
    }
    guest.finish().silently();
    other.calms();
}

fn is_wanted(said: &[Request]) -> bool {
    said.contains(&Request::Wanted {
        device_index: 0,
        epoch: 1,
    })
}

#[test]
fn a_child_that_execs_waits_at_the_closed_gate_like_any() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut guest = dealer.client("turns").started();
    dealer.open(1);
    assert_eq!(guest.ask("launch 3 100000"), "launch 0");
    dealer.close(1);
    dealer.hears(&Request::Drained {
        device_index: 0,
        epoch: 1,
    });
    assert_ne!(guest.ask(&format!("exec {MS}")), "exec -1");
    let mut said = Vec::new();
    until("the child waits", || {
        said.extend(dealer.said());
        is_wanted(&said)
    });
    assert_eq!(guest.ask("ended"), "ended 9999");
    dealer.open(2);
    until("the child ends", || guest.ask("ended") == "ended 0");
    assert_eq!(guest.ask("launch 3 100000"), "launch 0");
    guest.finish().silently();
}

#[test]
fn a_program_ends_while_its_gate_waits_for_work_that_does_not_end() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    for (how, code, signal) in [(0, Some(7), None), (1, Some(7), None), (2, None, Some(6))] {
        dealer.open(1);
        let mut guest = dealer.client("turns").started();
        assert_eq!(guest.ask("storm 2 60000"), "storm 0");
        guest.goes_on(20);
        if how != 2 {
            assert_eq!(guest.ask(&format!("launch 1 {}", 600_000 * MS)), "launch 0");
        }
        dealer.close(1);
        let mut said = Vec::new();
        until("its threads wait", || {
            said.extend(dealer.said());
            is_wanted(&said)
        });
        guest.send(&format!("leave {how}"));
        if how == 2 {
            // Its threads launch again once the gate opens.
            dealer.open(2);
        }
        let ended = guest.finish();
        let status = (ended.status.code(), ended.status.signal());
        assert_eq!(status, (code, signal), "{ended:?}");
        dealer.deal(&gpushare_protocol::page::lease::Turn::default());
    }
}
