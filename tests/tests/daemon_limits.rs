//! Tenants of the daemon: the registered limits apply, whatever the programs' environment contains.

use gpushare_tests::{Daemon, GIB, Gpu, Guest, MIB, clients};

const OUT_OF_MEMORY: &str = "2";

#[test]
fn a_program_gets_what_its_tenant_was_registered_with() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let mut guest = tenant.client("quota", &[]).started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 4 * GIB));
    assert_eq!(
        guest.ask(&format!("fill {}", 256 * MIB)),
        format!("fill 16 {OUT_OF_MEMORY}")
    );
    assert_eq!(daemon.row("one").charged, 4 * GIB);
    assert_eq!(guest.ask("check"), "check 16");
    assert_eq!(guest.ask("free 16"), "free 0");
    assert_eq!(daemon.row("one").charged, 0);
    guest.finish().silently();
}

#[test]
fn an_environment_may_lower_registered_limits_and_never_raise_them() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "1GiB")]);
    let cases: [(&[(&str, &str)], usize); 6] = [
        (&[("GPUSHARE_MEM_LIMIT", "8GiB")], 8),
        (&[("GPUSHARE_DISABLE", "1")], 8),
        (&[("GPUSHARE_TENANT", "other")], 8),
        (&[("CUDA_DEVICE_MEMORY_LIMIT", "0")], 8),
        (
            &[
                ("GPUSHARE_ON_COLLISION", "fail"),
                ("GPUSHARE_WAIT_TIMEOUT", "1s"),
            ],
            8,
        ),
        (&[("GPUSHARE_MEM_LIMIT", "512MiB")], 4),
    ];
    for (environment, fits) in cases {
        let mut guest = tenant.client("quota", environment);
        assert_eq!(guest.ask("init"), "init 0", "{environment:?}");
        assert_eq!(
            guest.ask(&format!("fill {}", 128 * MIB)),
            format!("fill {fits} {OUT_OF_MEMORY}"),
            "{environment:?}"
        );
        guest.finish().silently();
        daemon.until("one", |row| row.processes.is_empty());
    }
}

#[test]
fn a_lower_limit_of_a_program_counts_what_its_siblings_hold() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let mut sibling = tenant.client("quota", &[]).started();
    assert_eq!(sibling.ask(&format!("alloc {GIB}")), "alloc 0");
    for (own, fits) in [("3GiB", 8), ("1GiB", 0)] {
        let mut guest = tenant.client("quota", &[("GPUSHARE_MEM_LIMIT", own)]);
        assert_eq!(guest.ask("init"), "init 0");
        let filled = guest.ask(&format!("fill {}", 256 * MIB));
        assert_eq!(filled, format!("fill {fits} {OUT_OF_MEMORY}"), "{own}");
        guest.finish().silently();
        daemon.until("one", |row| row.processes.len() == 1);
    }
    let filled = sibling.ask(&format!("fill {}", 256 * MIB));
    assert_eq!(filled, format!("fill 12 {OUT_OF_MEMORY}"), "it has none");
}

#[test]
fn the_processes_of_a_tenant_share_its_limit() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let mut guests = [(); 3].map(|()| tenant.client("quota", &[]));
    for guest in &mut guests {
        assert_eq!(guest.ask("init"), "init 0");
        assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    }
    assert_eq!(
        guests[0].ask(&format!("fill {}", 256 * MIB)),
        format!("fill 4 {OUT_OF_MEMORY}")
    );
    assert_eq!(guests[1].ask("free 1"), "free 0");
    assert_eq!(guests[0].ask(&format!("alloc {GIB}")), "alloc 0");
    assert_eq!(daemon.row("one").charged, 4 * GIB);
}

#[test]
fn a_monitor_that_never_starts_cuda_sees_the_tenant() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "2GiB")]);
    let mut guest = tenant.client("quota", &[]).started();
    assert_eq!(guest.ask(&format!("alloc {}", 512 * MIB)), "alloc 0");
    let mut monitor = tenant.command(&clients::compile("monitor", &[]));
    monitor.arg(guest.id().to_string());
    let seen = Guest::start(monitor).finish().silently();
    assert!(seen.contains(&format!("total {}", 2 * GIB)), "{seen}");
    assert!(seen.ends_with("listed: 15\n"), "all four lists: {seen}");
}
