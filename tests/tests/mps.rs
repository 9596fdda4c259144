//! Clients of an MPS control daemon: MPS shares their compute, so they take no turns; their memory
//! stays bound. With a double of the daemon's folder; the software GPU shares nothing by MPS.

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gpushare_protocol::page::lease::{LeaseState, Turn};
use gpushare_protocol::wire::{Reply, Request};
use gpushare_tests::dealer::turn;
use gpushare_tests::gpu::links;
use gpushare_tests::mps::Mps;
use gpushare_tests::{Alone, Daemon, Dealer, GIB, Gpu, Guest, Home, clients, until};

const MS: u64 = 1_000_000;

/// The client of turns under a page that the test deals, with `mps` as its pipe folder.
fn dealt(dealer: &Dealer, mps: &Mps) -> Guest {
    let mut command = dealer.command(&clients::compile("turns", &[]));
    let (name, folder) = mps.variable();
    command.env("LD_LIBRARY_PATH", links()).env(name, folder);
    Guest::start(command).started()
}

#[test]
fn a_closed_gate_does_not_hold_an_mps_client() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mps = Mps::start();
    dealer.open(1);
    dealer.close(1);
    let mut guest = dealt(&dealer, &mps);
    assert_eq!(guest.ask(&format!("launch 5 {MS}")), "launch 0");
    // A program that only launches is still seen to work.
    let line = dealer.usage().line(0, 0).expect("a first line");
    until("the daemon sees that it works", || {
        line.submitted.load(Ordering::Relaxed) > 0
    });
    assert_eq!(guest.ask("sync 1"), "sync 0");
    let turns = |said: &Request| {
        let word = format!("{said:?}");
        ["Wanted", "Drained", "Idle", "Busy"]
            .iter()
            .any(|turn| word.starts_with(turn))
    };
    let said = dealer.said();
    assert!(
        !said.iter().any(turns),
        "it reports nothing about turns: {said:?}"
    );
    guest.finish().silently();
}

#[test]
fn the_folder_of_a_dead_mps_daemon_exempts_no_client_from_turns() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut mps = Mps::start();
    mps.die();
    dealer.open(1);
    let mut guest = dealt(&dealer, &mps);
    dealer.close(1);
    dealer.hears(&Request::Drained {
        device_index: 0,
        epoch: 1,
    });
    assert_eq!(guest.ask(&format!("post {MS}")), "post 0");
    dealer.hears(&Request::Wanted {
        device_index: 0,
        epoch: 1,
    });
    assert_eq!(guest.ask("posted"), "posted 0", "it waits for its turn");
    guest.kill();
}

#[test]
fn a_client_stays_one_when_the_mps_daemon_or_ours_goes() {
    let gpu = Gpu::new("");
    let mut dealer = Dealer::start(&gpu);
    let mut mps = Mps::start();
    let mut guest = dealt(&dealer, &mps);
    mps.die();
    dealer.leave();
    // A process that has registered again asks again for its existing context.
    let opened = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&opened);
    dealer.bank(move |request| {
        let open = matches!(request, Request::Open { .. });
        heard.fetch_or(open, Ordering::Relaxed);
        Some(Reply::Granted { grant: u64::MAX })
    });
    dealer.come_back();
    until("it has registered again", || opened.load(Ordering::Relaxed));
    dealer.open(7);
    dealer.close(7);
    assert_eq!(guest.ask(&format!("launch 5 {MS}")), "launch 0");
    assert_eq!(guest.ask("sync 1"), "sync 0");
    guest.finish().silently();
}

#[test]
fn an_mps_client_is_held_to_its_memory() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("a", &[("GPUSHARE_MEM_LIMIT", "2GiB")]);
    let mps = Mps::start();
    let mut command = tenant.command(&clients::compile("quota", &[]));
    let (name, folder) = mps.variable();
    command.env(name, folder);
    let mut guest = Guest::start(command);
    assert_eq!(guest.ask("init"), "init 0");
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 2");
    assert_eq!(daemon.share("a").ungated, 1);
    guest.finish().silently();
}

#[test]
fn a_cap_that_mps_does_not_keep_is_kept_by_the_gate() {
    for (percent, closes) in [(None, true), (Some("20"), true), (Some("10"), false)] {
        let gpu = Gpu::new("");
        let alone = Alone::on(&gpu);
        let mps = Mps::start();
        // The flag would set the percentage. Here the test sets it, as for a program that `run` did
        // not start.
        let mut command = alone.command(&["--sm-limit", "10"], "env".as_ref());
        if percent.is_none() {
            command.args(["-u", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]);
        }
        let set = percent.map(|percent| format!("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percent}"));
        let (name, folder) = mps.variable();
        command.args(set).arg(clients::compile("turns", &[]));
        command.env(name, folder);
        let mut guest = Guest::start(command).started();
        assert_eq!(guest.ask(&format!("each {}", 20 * MS)), "each 0");
        until("it has worked", || guest.number("count") >= 10);
        assert_eq!(alone.closes() > 0, closes, "{percent:?}");
        guest.kill();
    }
}

#[test]
fn a_daemons_cap_that_mps_does_not_keep_is_kept_by_the_gate() {
    // A driver that does not know whether it is an MPS client vouches for no server.
    let rows = [
        ("", None, true),
        ("", Some("20"), true),
        ("", Some("10"), false),
        ("driver=11080", Some("10"), true),
    ];
    for (spec, percent, closes) in rows {
        let gpu = Gpu::new(spec);
        let dealer = Dealer::start(&gpu);
        let mps = Mps::start();
        let mut command = dealer.command(&clients::compile("turns", &[]));
        let (name, folder) = mps.variable();
        command.env("LD_LIBRARY_PATH", links()).env(name, folder);
        command.envs(percent.map(|percent| ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent)));
        dealer.deal(&Turn {
            cap: 100,
            ..turn(1, LeaseState::Open)
        });
        let mut guest = Guest::start(command).started();
        assert_eq!(guest.ask(&format!("each {}", 20 * MS)), "each 0");
        until("it has worked", || guest.number("count") >= 10);
        let line = dealer.usage().line(0, 0).expect("a first line");
        let closed = line.drained.load(Ordering::Relaxed) > 0;
        assert_eq!(closed, closes, "{spec} {percent:?}");
        guest.kill();
    }
}

/// `gpushare run <flags>` of a shell that prints its environment, with `mps` as its pipe folder.
fn told(home: &Home, mps: Option<&Mps>, flags: &[&str]) -> Output {
    let mut run = home.run("a", flags);
    run.args([
        "sh",
        "-c",
        "echo said ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE-none}",
    ]);
    run.envs(mps.map(Mps::variable));
    run.output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_limit_becomes_the_percentage_of_an_mps_client() {
    let home = Home::new("");
    let mps = Mps::start();
    let said = |mps: Option<&Mps>, flags: &[&str]| {
        let output = told(&home, mps, flags);
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    };
    assert_eq!(said(Some(&mps), &["--sm-limit", "30"]), "said 30\n");
    assert_eq!(said(None, &["--sm-limit", "30"]), "said none\n");
    assert_eq!(said(Some(&mps), &[]), "said none\n");
}

#[test]
fn limits_that_mps_cannot_enforce_are_refused_before_the_start() {
    let home = Home::new("count=2");
    let mps = Mps::start();
    for (flags, blamed) in [
        (&["--sm-request", "30"][..], "--sm-request=\"30\""),
        (
            &["--sm-limit", "0=30", "--sm-limit", "1=40"],
            "--sm-limit=\"0=30\"",
        ),
    ] {
        let output = told(&home, Some(&mps), flags);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(output.stdout.is_empty(), "nothing ran");
        assert!(said.contains(blamed) && said.contains("MPS"), "{said}");
        let output = told(&home, None, flags);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn it_is_said_that_priority_orders_the_memory_of_an_mps_client_only() {
    let home = Home::new("");
    let mps = Mps::start();
    let said = |mps: Option<&Mps>, flags: &[&str]| text(&told(&home, mps, flags).stderr);
    let word = "orders memory only";
    assert!(said(Some(&mps), &["--priority", "700"]).contains(word));
    assert!(!said(Some(&mps), &[]).contains(word));
    assert!(!said(None, &["--priority", "700"]).contains(word));
    let devices = |mps: Option<&Mps>| {
        let mut command = home.command(&["devices"]);
        command.env("SOFTGPU", home.gpu().spec());
        command.env("LD_LIBRARY_PATH", links());
        command.envs(mps.map(Mps::variable));
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        text(&output.stderr)
    };
    assert!(devices(Some(&mps)).contains(word));
    assert!(!devices(None).contains(word));
}

#[test]
fn ps_says_mps_for_a_tenant_that_is_an_mps_client() {
    let home = Home::new("");
    let mps = Mps::start();
    let mut run = home.run("client", &[]);
    run.arg(clients::compile("quota", &[]))
        .envs([mps.variable()]);
    let mut guest = Guest::start(run);
    assert_eq!(guest.ask("init"), "init 0");
    let other = home.guest("other", &[]);
    let time = |name: &str| home.row(name).expect("it is there")["time"].clone();
    assert_eq!(time("client")["mps"], true);
    assert_eq!(time("other")["mps"], false);
    let table = text(&home.gpushare(&["ps"]).stdout);
    let line = |name: &str| {
        let found = table.lines().find(|line| line.starts_with(name));
        found.expect("a line").to_owned()
    };
    assert!(line("client").ends_with("  mps"), "{table}");
    assert!(!line("other").contains("mps"), "{table}");
    let mut events = home.events();
    let event = events.until("ungated", "client");
    let said = event["text"].as_str().expect("a text");
    assert!(said.contains("MPS"), "{said}");
    guest.finish().silently();
    other.finish().silently();
}
