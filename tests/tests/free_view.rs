//! The free memory that programs see: exact among the processes of a tenant. If programs see their
//! request, other tenants never raise it.

use gpushare_tests::gpu::links;
use gpushare_tests::{Alone, Daemon, GIB, Gpu, Guest, MIB, clients, until};

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

#[test]
fn a_guaranteed_request_stays_free_while_another_tenant_borrows_it() {
    let gpu = Gpu::new("mem=8GiB,ctx=2MiB");
    let daemon = Daemon::start(&gpu);
    let own = [
        ("GPUSHARE_MEM_LIMIT", "4GiB"),
        ("GPUSHARE_MEM_VIEW", "request"),
    ];
    let borrowed = [
        ("GPUSHARE_MEM_LIMIT", "7GiB"),
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_PREEMPTIBLE", "kill"),
    ];
    let [own, borrower] = [("own", &own[..]), ("borrower", &borrowed[..])]
        .map(|(name, limits)| daemon.tenant(name, limits));
    let start = |tenant: &gpushare_tests::Tenant| {
        Guest::start(tenant.command(&clients::compile("quota", &[]))).started()
    };
    let (mut a, mut b) = (start(&own), start(&borrower));
    assert_eq!(free(&mut a), 4 * GIB);
    for gibibytes in [1, 2, 3] {
        b.does(&format!("alloc {}", gibibytes * GIB));
        // The daemon writes the tenant's figures anew when a process of it comes.
        let mut late = start(&own);
        assert_eq!([free(&mut late), free(&mut a)], [4 * GIB; 2]);
        late.finish().silently();
    }
    b.finish().silently();
    for _ in 0..20 {
        assert_eq!(free(&mut a), 4 * GIB);
    }
}
