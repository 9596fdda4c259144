//! Gangs on shared GPUs: a tenant on two GPUs whose kernels wait for each other, beside a tenant on
//! each, and tenants that `--gang` names. Shares are asserted in virtual time
//! (`shim-daemon/core/tests/gangs_shared.rs`) and only printed here: `cargo nextest run -p
//! gpushare-tests -E 'test(/^gangs_shared::/)' --no-capture`.

use std::time::{Duration, Instant};

use gpushare_protocol::wire::{ShareState, SteeredBy};
use gpushare_tests::guest::command;
use gpushare_tests::{Daemon, Gpu, Guest, Home, Tenant, until};

const US: u64 = 1_000;

fn working(tenant: &Tenant, client: &str, devices: &str, ns: u64) -> Guest {
    let mut guest = tenant
        .client(client, &[("CUDA_VISIBLE_DEVICES", devices)])
        .started();
    assert_eq!(guest.ask(&format!("work {ns}")), "work 0");
    guest
}

fn share(percent: &'static str) -> [(&'static str, &'static str); 1] {
    [("GPUSHARE_SM_REQUEST", percent)]
}

#[test]
fn a_collective_on_two_shared_gpus_goes_on_beside_a_tenant_on_each() {
    let gpu = Gpu::new("count=2");
    let daemon = Daemon::start(&gpu);
    let [both, one, two] = ["both", "one", "two"].map(|name| daemon.tenant(name, &[]));
    let mut first = working(&one, "turns", "0", 300 * US);
    let mut second = working(&two, "turns", "1", 300 * US);
    let mut gang = working(&both, "gang", "0,1", 200 * US);
    gang.goes_on(100);
    let mut took = Duration::ZERO;
    for _ in 0..5 {
        let began = Instant::now();
        gang.goes_on(200);
        took += began.elapsed();
        first.goes_on(20);
        second.goes_on(20);
    }
    let rate = 1000.0 / took.as_secs_f64();
    println!("{rate:.0} collectives of 200 us a second beside a tenant on each shared GPU");
    first.stops();
    second.stops();
    gang.stops();
}

#[test]
fn a_gang_far_above_its_share_is_held_and_goes_on() {
    let gpu = Gpu::new("count=2");
    let daemon = Daemon::start(&gpu);
    let both = daemon.tenant("both", &share("10"));
    let devices = daemon.devices();
    let beside = |name, at: usize| daemon.tenant_on(name, &share("90"), &devices[at..=at]);
    let (one, two) = (beside("one", 0), beside("two", 1));
    let mut gang = working(&both, "gang", "0,1", 200 * US);
    let mut first = working(&one, "turns", "0", 300 * US);
    let mut second = working(&two, "turns", "1", 300 * US);
    until("the gang is held", || {
        let rows = daemon.shares();
        let mut own = rows.iter().filter(|row| row.name == "both");
        own.any(|row| {
            let cause = row.steered.as_ref().map(|steered| steered.cause);
            matches!(row.state, ShareState::Held { .. }) && cause == Some(SteeredBy::Gang)
        })
    });
    for _ in 0..3 {
        gang.goes_on(50);
        first.goes_on(20);
        second.goes_on(20);
    }
    let yields = |row: &gpushare_protocol::wire::ShareRow| {
        row.name == "both" && matches!(row.state, ShareState::Yielding { .. })
    };
    assert!(!daemon.shares().iter().any(yields));
    first.stops();
    second.stops();
    gang.stops();
}

#[test]
fn a_gang_killed_on_shared_gpus_leaves_both_to_others() {
    let gpu = Gpu::new("count=2");
    let daemon = Daemon::start(&gpu);
    let [both, one, two] = ["both", "one", "two"].map(|name| daemon.tenant(name, &[]));
    let mut gang = working(&both, "gang", "0,1", 200 * US);
    let mut first = working(&one, "turns", "0", 300 * US);
    let mut second = working(&two, "turns", "1", 300 * US);
    gang.goes_on(100);
    gang.kill();
    first.goes_on(200);
    second.goes_on(200);
    first.stops();
    second.stops();
}

#[test]
fn a_killed_member_of_a_named_gang_leaves_its_gpu_to_others() {
    let gpu = Gpu::new("count=2");
    let daemon = Daemon::start(&gpu);
    let devices = daemon.devices();
    let on =
        |name, terms: &[(&str, &str)], at: usize| daemon.tenant_on(name, terms, &devices[at..=at]);
    let job = [("GPUSHARE_GANG", "job")];
    let (pod, peer) = (on("pod", &job, 0), on("peer", &job, 1));
    let (one, two) = (on("one", &share("80"), 0), on("two", &share("80"), 1));
    let mut member = working(&pod, "turns", "0", 200 * US);
    let mut left = working(&peer, "turns", "1", 200 * US);
    let mut first = working(&one, "turns", "0", 300 * US);
    let mut second = working(&two, "turns", "1", 300 * US);
    for guest in [&mut member, &mut left, &mut first, &mut second] {
        guest.goes_on(50);
    }
    member.kill();
    for guest in [&mut left, &mut first, &mut second] {
        guest.goes_on(100);
    }
    until("the remaining gang member is scheduled alone", || {
        matches!(daemon.share("peer").state, ShareState::Yielding { .. })
    });
    left.stops();
    first.stops();
    second.stops();
}

#[test]
fn ps_shows_the_gang_that_run_named_and_set_changes_it() {
    let home = Home::new("count=2");
    let _pod = home.guest("pod", &["--gang", "job"]);
    let _other = home.guest("other", &[]);
    let gang = |name: &str| home.row(name).expect("it runs")["gang"].clone();
    assert_eq!(gang("pod"), "job");
    assert!(gang("other").is_null());
    let set = home.gpushare(&["set", "other", "--gang", "job"]);
    assert!(set.status.success(), "{set:?}");
    assert_eq!(gang("other"), "job");
}

#[test]
fn a_malformed_gang_is_refused_and_without_a_daemon_one_means_nothing() {
    let home = Home::new("");
    let ran = |flags: &[&str], variable: Option<&str>| {
        let mut run = command(home.gpu(), flags);
        run.env("XDG_RUNTIME_DIR", home.folder());
        run.envs(variable.map(|value| ("GPUSHARE_GANG", value)));
        run.args(["sh", "-c", "echo it ran"]).output().unwrap()
    };
    for (flags, variable, words) in [
        (
            &["--gang", "a job"][..],
            None,
            ["--gang", "a job", "1 to 64 letters"],
        ),
        (
            &[],
            Some(".job"),
            ["GPUSHARE_GANG", ".job", "1 to 64 letters"],
        ),
    ] {
        let output = ran(flags, variable);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{told}");
        assert!(output.stdout.is_empty(), "no program ran");
        for word in words {
            assert!(told.contains(word), "{told}");
        }
    }
    let output = ran(&["--gang", "job"], None);
    assert_eq!(output.stdout, b"it ran\n", "{output:?}");
    assert!(home.daemons().is_empty());
}
