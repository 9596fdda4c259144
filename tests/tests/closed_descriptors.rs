//! Programs that close descriptors they did not open, as daemons do, keep their limits and their
//! turns. Descriptors that they open afterwards, under the library's old numbers, are not touched
//! by the library.

use gpushare_protocol::wire::Request;
use gpushare_tests::{Alone, Daemon, Dealer, GIB, Gpu, Guest, MIB, Tenant, clients, until};

const OUT_OF_MEMORY: &str = "2";
const MS: u64 = 1_000_000;
/// More than the numbers below the library's highest.
const FILES: &str = "300";

/// Closes the descriptors; with `reuse` opens files and sockets under their numbers.
fn closes(guest: &mut Guest, how: &str, reuse: bool) {
    let answer = guest.ask(how);
    let closed = answer.strip_prefix(how).map(str::trim);
    assert!(
        closed.is_some_and(|closed| how == "each" || closed == "0"),
        "{answer}"
    );
    if reuse {
        guest.answers(&format!("reuse {FILES}"), FILES);
    }
}

/// Checks that no descriptor of the program was written to, moved or closed.
fn is_untouched(guest: &mut Guest, reuse: bool) {
    let files = if reuse { FILES } else { "0" };
    guest.answers("untouched", files);
}

/// Each way of closing, with and without reuse of the numbers.
fn each_way(test: impl Fn(&str, bool)) {
    for how in ["each", "range"] {
        for reuse in [false, true] {
            test(how, reuse);
        }
    }
}

#[test]
fn without_a_daemon_the_limit_holds_and_the_slot_is_kept() {
    each_way(|how, reuse| {
        let gpu = Gpu::new("mem=16GiB");
        let alone = Alone::on(&gpu);
        let flags = ["--mem-limit", "1GiB"];
        let [mut a, mut b] = [(); 2].map(|()| alone.client(&flags, "closer").started());
        a.does(&format!("alloc {}", 256 * MIB));
        closes(&mut a, how, reuse);
        let more = a.ask(&format!("fill {}", 64 * MIB));
        assert_eq!(more, format!("fill 12 {OUT_OF_MEMORY}"), "{how} {reuse}");
        let none = b.ask(&format!("alloc {MIB}"));
        assert_eq!(
            none,
            format!("alloc {OUT_OF_MEMORY}"),
            "the process still counts as alive"
        );
        a.does("free 4");
        b.does(&format!("alloc {}", 256 * MIB));
        let none = a.ask(&format!("alloc {MIB}"));
        assert_eq!(none, format!("alloc {OUT_OF_MEMORY}"), "{how} {reuse}");
        is_untouched(&mut a, reuse);
        a.finish().silently();
        until("the dead's bytes come back", || {
            b.ask(&format!("alloc {}", 512 * MIB)) == "alloc 0"
        });
    });
}

#[test]
fn without_a_daemon_a_process_that_closed_sees_dead_processes() {
    each_way(|how, reuse| {
        let gpu = Gpu::new("mem=16GiB");
        let alone = Alone::on(&gpu);
        let flags = ["--mem-limit", "1GiB"];
        let [mut a, mut b] = [(); 2].map(|()| alone.client(&flags, "closer").started());
        b.does(&format!("alloc {GIB}"));
        closes(&mut a, how, reuse);
        b.finish().silently();
        until("the dead's bytes come back", || {
            a.ask(&format!("alloc {}", 512 * MIB)) == "alloc 0"
        });
        is_untouched(&mut a, reuse);
    });
}

#[test]
fn without_a_daemon_a_cap_goes_on_after_it() {
    each_way(|how, reuse| {
        let gpu = Gpu::new("");
        let mut guest = Guest::client(&gpu, &["--sm-limit", "50"], "closer").started();
        closes(&mut guest, how, reuse);
        for _ in 0..20 {
            guest.does(&format!("launch {}", 2 * MS));
        }
        is_untouched(&mut guest, reuse);
        guest.finish().silently();
    });
}

fn started(tenant: &Tenant) -> Guest {
    Guest::start(tenant.command(&clients::compile("closer", &[]))).started()
}

#[test]
fn under_a_daemon_growth_goes_on_and_the_process_is_known() {
    each_way(|how, reuse| {
        let gpu = Gpu::new("mem=16GiB");
        let daemon = Daemon::start(&gpu);
        let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
        let [mut a, mut b] = [(); 2].map(|()| started(&tenant));
        a.does(&format!("alloc {MIB}"));
        closes(&mut a, how, reuse);
        a.does(&format!("alloc {}", 3 * GIB));
        let none = b.ask(&format!("alloc {}", GIB));
        assert_eq!(none, format!("alloc {OUT_OF_MEMORY}"), "{how} {reuse}");
        a.does("free 1");
        b.does(&format!("alloc {}", 3 * GIB));
        is_untouched(&mut a, reuse);
        assert_eq!(daemon.row("one").processes.len(), 2);
        a.finish().silently();
        daemon.until("one", |row| row.processes.len() == 1);
    });
}

#[test]
fn a_process_that_closed_finds_the_next_daemon() {
    each_way(|how, reuse| {
        let gpu = Gpu::new("mem=16GiB");
        let mut daemon = Daemon::start(&gpu);
        let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
        let mut guest = started(&tenant);
        guest.does(&format!("alloc {MIB}"));
        closes(&mut guest, how, reuse);
        daemon.restart();
        daemon.until("one", |row| row.processes.len() == 1);
        guest.does(&format!("alloc {}", 3 * GIB));
        let row = daemon.row("one");
        assert_eq!(row.charged, 3 * GIB + MIB);
        is_untouched(&mut guest, reuse);
        guest.finish().silently();
    });
}

#[test]
fn a_process_that_closed_still_requests_takes_and_ends_turns() {
    each_way(|how, reuse| {
        let gpu = Gpu::new("");
        let dealer = Dealer::start(&gpu);
        let mut guest = dealer.client("closer").started();
        dealer.open(1);
        guest.does(&format!("launch {MS}"));
        closes(&mut guest, how, reuse);
        for epoch in 1..6 {
            guest.does(&format!("launch {MS}"));
            dealer.close(epoch);
            dealer.hears(&Request::Drained {
                device_index: 0,
                epoch,
            });
            guest.does(&format!("post {MS}"));
            dealer.hears(&Request::Wanted {
                device_index: 0,
                epoch,
            });
            guest.answers("posted", "0");
            dealer.open(epoch + 1);
            until("the launch goes", || guest.ask("posted") == "posted 1");
        }
        is_untouched(&mut guest, reuse);
        guest.finish().silently();
    });
}

/// A program that has used nothing of CUDA yet.
fn fresh(tenant: &Tenant) -> Guest {
    Guest::start(tenant.command(&clients::compile("closer", &[])))
}

/// A registration at a message queue ends with each close of one of its descriptors, as an upload
/// through a file system in user space does.
#[test]
fn the_first_call_closes_no_copy_of_a_file_that_notices_it() {
    const BUSY: &str = "16";
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[]);
    let mut guest = fresh(&tenant);
    guest.answers("queue", "0");
    guest.answers("notice", "0");
    guest.does("init");
    guest.answers("notice", BUSY);
    guest.answers("unqueue", "0");
    until("no table has it open", || guest.ask("copies") == "copies 0");
    guest.finish().silently();
}

#[test]
fn the_first_call_leaves_no_copy_of_a_pipe() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[]);
    let mut guest = fresh(&tenant);
    guest.answers("pipe", "0");
    guest.does("init");
    guest.answers("ended", "1");
    guest.finish().silently();
}
