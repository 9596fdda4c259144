//! Every way to allocate waits, is served and is refused alike in a daemon's tenant.

use gpushare_tests::daemon::waits;
use gpushare_tests::{Daemon, GIB, Gpu, Guest, MIB, Tenant, clients, guest};

const PATHS: [&str; 9] = [
    "linear", "pitch", "managed", "async", "pool", "vmm", "array", "mipmap", "graph",
];
/// The size of one allocation of `take`.
const CHUNK: u64 = 8 * MIB;

/// The memory that one of a path takes: each graph whose memory is live has steps of its own.
fn taken_by(name: &str) -> u64 {
    if name == "graph" { 32 * MIB } else { CHUNK }
}

fn path(tenant: &Tenant, path: &str) -> Guest {
    let mut command = tenant.command(&clients::compile("matrix", &[]));
    command.args(["v2", path]);
    Guest::start(command)
}

/// The number of allocations of a path that fit into a limit of 512 MiB, without another program.
fn alone(guest: &mut Guest) -> u64 {
    let taken = guest.ask("take");
    let mut words = taken.split(' ').skip(1);
    let count = words.next().and_then(|count| count.parse().ok());
    assert_eq!(words.next(), Some("2"), "{taken}");
    count.expect("a count")
}

#[test]
fn every_path_fills_its_limit_and_no_more() {
    for name in PATHS {
        let gpu = Gpu::new("mem=4GiB,ctx=16MiB");
        let daemon = Daemon::start(&gpu);
        let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "512MiB")]);
        let mut guest = path(&tenant, name);
        let count = alone(&mut guest);
        let taken = count * taken_by(name);
        assert!((448 * MIB..=512 * MIB).contains(&taken), "{name}: {count}");
        let row = daemon.row("one");
        assert!(
            row.charged >= taken && row.charged <= 512 * MIB,
            "{name}: {row:?}"
        );
        assert_eq!(guest.ask("give"), "give 0", "{name}");
        daemon.until("one", |row| row.charged == 0);
        assert_eq!(alone(&mut guest), count, "{name}: a second time");
    }
}

#[test]
fn every_path_waits_for_a_neighbour_and_takes_what_it_frees() {
    for name in PATHS {
        let gpu = Gpu::new("mem=4GiB,ctx=16MiB");
        let daemon = Daemon::start(&gpu);
        let limits = [
            ("GPUSHARE_MEM_REQUEST", "64MiB"),
            ("GPUSHARE_MEM_LIMIT", "3GiB"),
        ];
        let holder = daemon.tenant("holder", &limits);
        let waiter = daemon.tenant(
            "waiter",
            &[
                ("GPUSHARE_MEM_REQUEST", "64MiB"),
                ("GPUSHARE_MEM_LIMIT", "1536MiB"),
            ],
        );
        let mut first = holder.client("quota", &[]).started();
        assert_eq!(
            first.ask(&format!("alloc {}", 2 * GIB + GIB / 2)),
            "alloc 0"
        );
        let mut second = path(&waiter, name);
        second.send("take");
        daemon.until("waiter", |row| row.charged > 64 * MIB && waits(row));
        assert_eq!(first.ask("free 1"), "free 0");
        let taken = second.line();
        let count: u64 = taken
            .split(' ')
            .nth(1)
            .and_then(|count| count.parse().ok())
            .expect("a count");
        assert!(taken.ends_with(" 2"), "{name}: up to its limit: {taken}");
        assert!(count * taken_by(name) >= GIB, "{name}: {taken}");
    }
}

/// The driver has no memory for the second and third launch, as if another program had taken it for
/// a moment.
const FAULTS: &str =
    "cuGraphLaunch:2:CUDA_ERROR_OUT_OF_MEMORY,cuGraphLaunch:3:CUDA_ERROR_OUT_OF_MEMORY";

#[test]
fn a_graph_that_the_driver_refuses_inside_a_grant_is_launched_again() {
    for name in ["graph", "child", "captured"] {
        let gpu = Gpu::new("mem=4GiB,ctx=16MiB");
        let daemon = Daemon::start(&gpu);
        let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "512MiB")]);
        let count = alone(&mut path(&tenant, name));
        let mut command = tenant.command(&clients::compile("matrix", &[]));
        command.args(["v2", name]).env("SOFTGPU_FAIL", FAULTS);
        let mut guest = Guest::start(command);
        assert_eq!(alone(&mut guest), count, "{name}");
        assert_eq!(guest.ask("give"), "give 0", "{name}");
        daemon.until("one", |row| row.charged == 0);
        let mut plain = guest::plain(&gpu, &clients::compile("matrix", &[]));
        plain.args(["v2", name]).env("SOFTGPU_FAIL", FAULTS);
        let mut plain = Guest::start(plain);
        assert_eq!(plain.ask("take"), "take 1 2", "{name}: without the library");
    }
}
