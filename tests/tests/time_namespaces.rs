//! Programs in a time namespace, whose clocks are not the machine's: `linux.timeOffsets` of a
//! container, or a restored checkpoint.

use gpushare_protocol::time_namespace::Offsets;
use gpushare_protocol::wire::Request;
use gpushare_tests::guest::clean;
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{Dealer, Gpu, Guest, clients, gpu, turns, until};
use std::process::Command;

const SECOND: u64 = 1_000_000_000;

/// `unshare` into a namespace whose clocks are so many seconds ahead. `None`, noted under `test`,
/// where that is not to be had.
fn shifted(test: &str, seconds: i64) -> Option<Command> {
    let unshare = || {
        let mut command = clean("unshare".as_ref());
        command.args(["--user", "--map-root-user", "--time"]);
        command.args(["--monotonic", &seconds.to_string()]);
        command.args(["--boottime", &seconds.to_string(), "--"]);
        command
    };
    let tried = unshare().arg("true").output();
    if tried.is_ok_and(|tried| tried.status.success()) {
        return Some(unshare());
    }
    not_runnable_here(test, "unshare makes no time namespace");
    None
}

/// The client `turns` in the dealer's tenant, started by `unshare`.
fn started(dealer: &Dealer, mut unshare: Command) -> Guest {
    let client = clients::compile("turns", &[]);
    let inside = dealer.command(&client);
    unshare.arg("env");
    for (name, value) in inside.get_envs() {
        if let (name, Some(value)) = (name.to_str().expect("text"), value) {
            unshare.arg(format!("{name}={}", value.to_str().expect("text")));
        }
    }
    let links = gpu::links();
    unshare.arg(format!("LD_LIBRARY_PATH={}", links.display()));
    unshare.arg(client);
    Guest::start(unshare).started()
}

/// The machine's own clock.
fn now() -> u64 {
    Offsets::here().machines(turns::now())
}

#[test]
fn a_program_in_a_time_namespace_ahead_obeys_the_daemon() {
    let test = "a_program_in_a_time_namespace_ahead_obeys_the_daemon";
    let Some(unshare) = shifted(test, 86_400) else {
        return;
    };
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    // It beats once for as long as the test lasts.
    dealer.beat_at(now() + 3_600 * SECOND);
    dealer.open(1);
    let mut guest = started(&dealer, unshare);
    let said = |request: fn(u8, u64) -> Request, epoch| dealer.hears(&request(0, epoch));
    dealer.close(1);
    said(
        |device_index, epoch| Request::Drained {
            device_index,
            epoch,
        },
        1,
    );
    assert_eq!(guest.ask("post 50000"), "post 0");
    said(
        |device_index, epoch| Request::Wanted {
            device_index,
            epoch,
        },
        1,
    );
    dealer.open(2);
    until("the launch goes", || guest.ask("posted") == "posted 1");
    guest.kill();
}

#[test]
fn one_in_a_time_namespace_behind_does_not_wait_for_a_silent_daemon() {
    let test = "one_in_a_time_namespace_behind_does_not_wait_for_a_silent_daemon";
    let Some(unshare) = shifted(test, -120) else {
        return;
    };
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.beat_at(now() + 3_600 * SECOND);
    dealer.open(1);
    let mut guest = started(&dealer, unshare);
    dealer.close(1);
    dealer.hears(&Request::Drained {
        device_index: 0,
        epoch: 1,
    });
    // By the namespace's clock that is two minutes from now.
    dealer.beat_at(now() - 10 * SECOND);
    assert_eq!(guest.ask("post 50000"), "post 0");
    until("the launch goes", || guest.ask("posted") == "posted 1");
    guest.kill();
}
