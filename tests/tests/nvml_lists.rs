//! NVML's lists of processes, in which drivers differ.

use gpushare_tests::guest::plain;
use gpushare_tests::{Daemon, Gpu, Guest, MIB, Tenant, clients, until};
use softgpu::inspect::ProcessTruth;
use softgpu::world::Kind;

/// A device of 512 MiB with these terms, and its daemon.
fn node(terms: &str) -> (Gpu, Daemon) {
    let gpu = Gpu::new(&format!("mem=512MiB,ctx=2MiB,{terms}"));
    let daemon = Daemon::configured(&gpu, "first_context = \"4MiB\"\n");
    (gpu, daemon)
}

fn holds(guest: &mut Guest, bytes: u64) {
    assert_eq!(guest.ask("init"), "init 0");
    assert_eq!(guest.ask(&format!("alloc {bytes}")), "alloc 0");
}

/// A tenant with that limit and a program that holds so much.
fn holder(daemon: &Daemon, name: &str, limit: &str, bytes: u64) -> (Tenant, Guest) {
    let tenant = daemon.tenant(name, &[("GPUSHARE_MEM_LIMIT", limit)]);
    let mut guest = tenant.client("quota", &[]);
    holds(&mut guest, bytes);
    (tenant, guest)
}

/// A program of no tenant comes. A look at the device that shows it shows all that was there
/// before, too, and nothing else of that is unmanaged.
fn nothing_but_a_stranger_is_unmanaged(gpu: &Gpu, daemon: &Daemon) -> Guest {
    let mut stranger = Guest::start(plain(gpu, &clients::compile("quota", &[])));
    holds(&mut stranger, 64 * MIB);
    until("the stranger's memory is all that is unmanaged", || {
        (66 * MIB..80 * MIB).contains(&daemon.unmanaged())
    });
    stranger
}

#[test]
fn managed_memory_of_a_tenant_keeps_no_neighbour_out() {
    for listed in ["own", "all"] {
        let (gpu, daemon) = node(&format!("listed={listed}"));
        let owner = daemon.tenant("managed", &[("GPUSHARE_MEM_LIMIT", "256MiB")]);
        let mut guest = owner.client("movable", &[]);
        assert_eq!(guest.ask("init"), "init 0");
        assert_eq!(guest.ask(&format!("touched {}", 224 * MIB)), "touched 0");
        let managed = |process: &ProcessTruth| process.physical[Kind::Managed as usize];
        let there: u64 = gpu.truth().processes.iter().map(managed).sum();
        assert_eq!(there, 224 * MIB);
        let stranger = nothing_but_a_stranger_is_unmanaged(&gpu, &daemon);
        // There is room beside both.
        let (_neighbour, other) = holder(&daemon, "neighbour", "128MiB", 100 * MIB);
        for guest in [guest, stranger, other] {
            guest.finish().silently();
        }
    }
}

#[test]
fn each_row_of_the_wide_lists_of_535_is_read() {
    for terms in ["driver=12020", "driver=12080"] {
        let (gpu, daemon) = node(terms);
        let (_one, one) = holder(&daemon, "one", "128MiB", 100 * MIB);
        let (_other, other) = holder(&daemon, "other", "128MiB", 100 * MIB);
        let stranger = nothing_but_a_stranger_is_unmanaged(&gpu, &daemon);
        for guest in [one, other, stranger] {
            guest.finish().silently();
        }
    }
}
