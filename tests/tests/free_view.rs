//! The free memory that programs see: exact among the processes of a tenant. If programs see their
//! request, other tenants never raise it.

use gpushare_tests::gpu::links;
use gpushare_tests::{Alone, Daemon, GIB, Gpu, Guest, MIB, Tenant, alloc, clients, until};

use crate::pid_namespaces::{alone, machines_nvml};

/// Free bytes as `cuMemGetInfo` reports them.
#[track_caller]
fn free(guest: &mut Guest) -> u64 {
    let answer = guest.ask("info");
    let words: Vec<&str> = answer.split(' ').collect();
    assert_eq!(words[3], "0", "{answer}");
    words[1].parse().expect("a number")
}

#[test]
fn another_processs_charges_and_frees_are_seen_at_once() {
    let gpu = Gpu::new("mem=16GiB");
    let alone = Alone::on(&gpu);
    let flags = ["--mem-limit", "4GiB"];
    let [mut a, mut b] = [(); 2].map(|()| alone.client(&flags, "quota").started());
    let at_first = free(&mut a);
    assert_eq!(at_first, free(&mut b));
    for round in 0..200 {
        a.does("alloc 1048576");
        let taken = at_first - (round + 1) * MIB;
        assert_eq!((free(&mut b), free(&mut a)), (taken, taken));
        b.does("alloc 2097152");
        assert_eq!(free(&mut a), taken - 2 * MIB);
        b.does("free 1");
        assert_eq!(free(&mut a), taken);
    }
    a.does("free 200");
    assert_eq!(free(&mut b), at_first);
}

#[test]
fn a_dead_processs_memory_is_free_without_another_allocation() {
    let gpu = Gpu::new("mem=16GiB");
    let alone = Alone::on(&gpu);
    let flags = ["--mem-limit", "4GiB"];
    let [mut a, mut b] = [(); 2].map(|()| alone.client(&flags, "quota").started());
    let at_first = free(&mut a);
    b.does(&format!("alloc {GIB}"));
    assert_eq!(free(&mut a), at_first - GIB);
    b.finish().silently();
    until("the dead's bytes are free", || free(&mut a) == at_first);
}

#[test]
fn memory_that_outlasts_its_process_does_not_start_nvml_at_each_question() {
    const QUESTIONS: usize = 2000;
    let gpu = Gpu::new("mem=16GiB");
    let runtime = tempfile::tempdir().expect("a temporary folder");
    let nvml = machines_nvml();
    let mut dies = Guest::start(alone(&gpu, runtime.path())).started();
    dies.does(&format!("alloc {GIB}"));
    let starts = tempfile::NamedTempFile::new().expect("a file");
    let libraries = format!("{}:{}", nvml.path().display(), links().display());
    let mut asks = alone(&gpu, runtime.path());
    asks.env("LD_LIBRARY_PATH", libraries)
        .env("STUB_PIDS", format!("{} 0", dies.id()))
        .env("STUB_STARTS", starts.path());
    let mut asks = Guest::start(asks).started();
    let at_first = free(&mut asks);
    dies.kill();
    let started = || starts.path().metadata().expect("a file").len();
    // A sum from before the end is remembered for a millisecond at most.
    until("NVML is asked", || {
        assert_eq!(free(&mut asks), at_first, "NVML lists it still");
        started() > 0
    });
    let before = started();
    asks.does(&format!("infos {QUESTIONS}"));
    let more = started() - before;
    assert!(more < QUESTIONS as u64 / 4, "{more} starts");
    assert_eq!(free(&mut asks), at_first);
    asks.finish().silently();
}

#[test]
fn under_a_daemon_processes_of_a_tenant_see_each_others_charges() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let start = || Guest::start(tenant.command(&clients::compile("quota", &[]))).started();
    let [mut a, mut b] = [(); 2].map(|()| start());
    let at_first = free(&mut a);
    for _ in 0..50 {
        b.does(&format!("alloc {MIB}"));
        assert_eq!(free(&mut a), at_first - MIB);
        b.does("free 1");
        assert_eq!(free(&mut a), at_first);
    }
    b.does(&format!("alloc {GIB}"));
    assert_eq!(free(&mut a), at_first - GIB);
    b.finish().silently();
    until("the dead's bytes are free", || free(&mut a) == at_first);
}

/// A process of the same tenant allocates `GIB` and frees it. Returns the other process's view
/// before, meanwhile and after.
fn beside_a_neighbour(flags: &[&str]) -> [u64; 3] {
    let gpu = Gpu::new("mem=16GiB");
    let alone = Alone::on(&gpu);
    let [mut a, mut b] = [(); 2].map(|()| alone.client(flags, "quota").started());
    let before = free(&mut a);
    b.does(&format!("alloc {GIB}"));
    let meanwhile = free(&mut a);
    b.does("free 1");
    [before, meanwhile, free(&mut a)]
}

#[test]
fn with_the_request_as_view_other_tenants_never_raise_it() {
    let flags = ["--mem-limit", "4GiB", "--mem-request", "4GiB"];
    let by_request = [&flags[..], &["--mem-view", "request"]].concat();
    let [before, meanwhile, after] = beside_a_neighbour(&by_request);
    assert_eq!((before - meanwhile, after), (GIB, meanwhile));
    let [before, meanwhile, after] = beside_a_neighbour(&flags);
    assert_eq!((before - meanwhile, after), (GIB, before), "told the limit");
}

#[test]
fn a_program_sees_its_tenants_request_where_it_alone_asks_for_the_view() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let by_request = [("GPUSHARE_MEM_VIEW", "request")];
    let mut asks = tenant.client("quota", &by_request).started();
    let [mut other, mut told] = [(); 2].map(|()| tenant.client("quota", &[]).started());
    assert_eq!(asks.ask("total"), format!("total {} 0", 4 * GIB));
    let before = [free(&mut asks), free(&mut told)];
    other.does(&format!("alloc {GIB}"));
    assert_eq!(
        [free(&mut asks), free(&mut told)],
        before.map(|free| free - GIB)
    );
    other.does("free 1");
    assert_eq!(
        [free(&mut asks), free(&mut told)],
        [before[0] - GIB, before[1]]
    );
}

#[test]
fn with_the_request_as_view_a_process_sees_its_own_frees() {
    let gpu = Gpu::new("mem=16GiB");
    let flags = ["--mem-limit", "4GiB", "--mem-view", "request"];
    let mut guest = Guest::client(&gpu, &flags, "quota").started();
    let before = free(&mut guest);
    for _ in 0..3 {
        guest.does(&format!("alloc {GIB}"));
        assert_eq!(free(&mut guest), before - GIB);
        guest.does("free 1");
        assert_eq!(free(&mut guest), before);
    }
}

/// The device of the tests with a borrower.
const DEVICE: &str = "mem=8GiB,ctx=2MiB";
/// A tenant that may have all of it but 1 GiB, and is ended for the request of another.
const BORROWS: [(&str, &str); 3] = [
    ("GPUSHARE_MEM_LIMIT", "7GiB"),
    ("GPUSHARE_MEM_REQUEST", "1GiB"),
    ("GPUSHARE_PREEMPTIBLE", "kill"),
];

/// The free memory that a tenant's programs see by `cuMemGetInfo` while a borrower takes 1, 3 and 6
/// GiB: one that was there before, and one that comes then, for which the daemon writes the figures
/// anew. Then that of the first by NVML, and the answer to its allocation of 4 GiB.
fn beside_a_borrower(own: &[(&str, &str)]) -> (Vec<u64>, u64, String) {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let [own, borrower] =
        [("own", own), ("borrower", &BORROWS)].map(|(name, limits)| daemon.tenant(name, limits));
    let start = |tenant: &Tenant| tenant.client("quota", &[]).started();
    let (mut a, mut b) = (start(&own), start(&borrower));
    let mut shown = vec![free(&mut a)];
    for gibibytes in [1, 2, 3] {
        b.does(&alloc(gibibytes * GIB));
        let mut late = start(&own);
        shown.extend([free(&mut late), free(&mut a)]);
        late.finish().silently();
    }
    let answer = a.ask("nvml");
    let by_nvml = answer.split(' ').nth(1).expect("a number");
    let by_nvml = by_nvml.parse().expect("a number");
    let answer = a.ask(&alloc(4 * GIB));
    if answer == "alloc 0" {
        assert_eq!(free(&mut a), 0);
    }
    a.finish().silently();
    (shown, by_nvml, answer)
}

#[test]
fn a_guaranteed_request_stays_free_while_another_tenant_borrows_it() {
    let limit = ("GPUSHARE_MEM_LIMIT", "4GiB");
    for view in ["limit", "request"] {
        let (shown, by_nvml, answer) = beside_a_borrower(&[limit, ("GPUSHARE_MEM_VIEW", view)]);
        assert_eq!(shown, [4 * GIB; 7], "{view}");
        // NVML counts contexts as used.
        let most = 4 * GIB;
        assert!(
            (most - 8 * MIB..most).contains(&by_nvml),
            "{view}: {by_nvml}"
        );
        assert_eq!(answer, "alloc 0", "{view}: what is shown can be had");
    }
}

#[test]
fn memory_that_is_not_guaranteed_is_free_as_far_as_the_device_has_it() {
    let (limit, waits) = (
        ("GPUSHARE_MEM_LIMIT", "4GiB"),
        ("GPUSHARE_ON_COLLISION", "fail"),
    );
    for (request, least) in [("0", 2 * GIB - 64 * MIB), ("3GiB", 3 * GIB)] {
        let own = [limit, waits, ("GPUSHARE_MEM_REQUEST", request)];
        let (shown, by_nvml, answer) = beside_a_borrower(&own);
        assert_eq!(shown[..5], [4 * GIB; 5], "{request}");
        let most = least.max(2 * GIB);
        for free in [shown[5], shown[6], by_nvml + 8 * MIB] {
            assert!(
                (least..=most + 8 * MIB).contains(&free),
                "{request}: {free}"
            );
        }
        assert_eq!(answer, "alloc 2", "{request}");
    }
}

#[test]
fn devices_have_requests_of_their_own() {
    let gpu = Gpu::new(&format!("{DEVICE},count=2"));
    let daemon = Daemon::start(&gpu);
    let own = [
        ("GPUSHARE_MEM_LIMIT", "4GiB"),
        ("GPUSHARE_MEM_REQUEST_0", "4GiB"),
        ("GPUSHARE_MEM_REQUEST_1", "0"),
    ];
    let [own, borrower] = [("own", &own[..]), ("borrower", &BORROWS)]
        .map(|(name, limits)| daemon.tenant(name, limits));
    let mut borrower = borrower.client("quota", &[]).started();
    for device in ["on 0", "on 1"] {
        borrower.does(device);
        borrower.does(&alloc(6 * GIB));
    }
    let mut processes = [(); 2].map(|()| own.client("quota", &[]).started());
    for process in &mut processes {
        assert_eq!(free(process), 4 * GIB);
        process.does("on 1");
        assert!(free(process) < 2 * GIB);
        process.does("on 0");
        assert_eq!(free(process), 4 * GIB);
    }
    let [one, other] = &mut processes;
    one.does(&alloc(GIB));
    assert_eq!([free(one), free(other)], [3 * GIB; 2]);
}

/// Programs outside every tenant take what the daemon cannot take back.
#[test]
fn what_is_missing_for_a_request_is_not_shown() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let own = daemon.tenant("own", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let mut a = own.client("quota", &[]).started();
    let plain = gpushare_tests::guest::plain(&gpu, &clients::compile("quota", &[]));
    let mut outside = Guest::start(plain).started();
    outside.does(&alloc(3 * GIB));
    until("the daemon sees it", || daemon.unmanaged() >= 3 * GIB);
    assert_eq!(free(&mut a), 4 * GIB, "it leaves enough");
    outside.does(&alloc(2 * GIB));
    until("a part of the request is missing", || {
        (2 * GIB..=3 * GIB).contains(&free(&mut a))
    });
    outside.finish().silently();
    until("all of it is there again", || free(&mut a) == 4 * GIB);
}
