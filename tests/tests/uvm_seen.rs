//! What programs see of a device's memory where theirs is managed (`uvm`): the limit, and what it
//! leaves, wherever the pages are and whatever neighbours hold.

use gpushare_tests::{Daemon, Gpu, Guest, MIB, Tenant, clients};

/// A node without host memory for swapping: managed memory needs none. A context is small there.
const NODE: &str = "first_context = \"4MiB\"\n";
const DEVICE: &str = "mem=106MiB,ctx=2MiB";
const LIMIT: &str = "192MiB";
const UVM: (&str, &str) = ("GPUSHARE_OVERSUBSCRIBE", "uvm");

/// Free and total bytes, by the driver's function or by NVML's.
#[track_caller]
fn seen(guest: &mut Guest, by: &str) -> (u64, u64) {
    let answer = guest.ask(by);
    let words: Vec<&str> = answer.split(' ').collect();
    assert_eq!(words[3], "0", "{answer}");
    let number = |word: &str| word.parse().expect("a number");
    (number(words[1]), number(words[2]))
}

fn managed(daemon: &Daemon, name: &str) -> Tenant {
    daemon.tenant(name, &[("GPUSHARE_MEM_LIMIT", LIMIT), UVM])
}

/// A program with so much memory, all of it touched.
fn filled(tenant: &Tenant, bytes: u64) -> Guest {
    let mut guest = tenant.client("swapped", &[]);
    for line in ["init", &format!("alloc {bytes}"), "fill 5"] {
        let word = line.split(' ').next().expect("a word");
        assert_eq!(guest.ask(line), format!("{word} 0"), "{line}");
    }
    guest
}

#[test]
fn a_managed_program_is_shown_its_limit_and_what_it_leaves() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::configured(&gpu, NODE);
    let tenant = managed(&daemon, "one");
    let mut guest = tenant.client("quota", &[]).started();
    assert_eq!(seen(&mut guest, "info"), (192 * MIB, 192 * MIB));
    assert_eq!(guest.ask("total"), format!("total {} 0", 192 * MIB));
    // Of which the card is full.
    let _other = filled(&tenant, 160 * MIB);
    assert_eq!(seen(&mut guest, "info"), (32 * MIB, 192 * MIB));
    let (free, total) = seen(&mut guest, "nvml");
    assert_eq!(total, 192 * MIB);
    // NVML counts contexts as used.
    assert!((24 * MIB..=32 * MIB).contains(&free), "{free}");
    assert_eq!(guest.ask(&format!("alloc {}", 32 * MIB)), "alloc 0");
    assert_eq!(seen(&mut guest, "info"), (0, 192 * MIB));
}

#[test]
fn a_managed_program_is_shown_a_lower_limit_of_its_own() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::configured(&gpu, NODE);
    let tenant = managed(&daemon, "one");
    for (own, total) in [("150MiB", 150), ("64MiB", 64), ("1GiB", 192)] {
        let own = [("GPUSHARE_MEM_LIMIT", own)];
        let mut guest = tenant.client("quota", &own).started();
        assert_eq!(seen(&mut guest, "info"), (total * MIB, total * MIB));
    }
}

#[test]
fn a_neighbours_memory_takes_no_free_memory_of_a_managed_program() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::configured(&gpu, NODE);
    let [first, second] = ["one", "two"].map(|name| managed(&daemon, name));
    let _neighbour = filled(&first, 90 * MIB);
    let mut guest = second.client("quota", &[]).started();
    assert_eq!(seen(&mut guest, "info"), (192 * MIB, 192 * MIB));
    assert!(seen(&mut guest, "nvml").0 >= 188 * MIB);
    assert_eq!(guest.ask(&format!("alloc {}", 150 * MIB)), "alloc 0");
    assert_eq!(seen(&mut guest, "info"), (42 * MIB, 192 * MIB));
}

#[test]
fn a_monitor_of_a_managed_tenant_sees_what_its_programs_see() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::configured(&gpu, NODE);
    let tenant = managed(&daemon, "one");
    let _guest = filled(&tenant, 120 * MIB);
    let monitor = Guest::start(tenant.command(&clients::compile("monitor", &[])));
    let said = monitor.finish().silently();
    let line = said.lines().next().expect("a line");
    let total = format!("total {}", 192 * MIB);
    assert!(line.contains(&total), "{line}");
    let free = line.rsplit(' ').next().and_then(|free| free.parse().ok());
    let free: u64 = free.expect("a number");
    assert!((66 * MIB..=72 * MIB).contains(&free), "{line}");
}

#[test]
fn where_memory_cannot_be_on_the_host_no_more_is_free_than_the_device_has() {
    let plain = [("GPUSHARE_MEM_LIMIT", LIMIT)];
    let swap = [
        ("GPUSHARE_MEM_LIMIT", LIMIT),
        ("GPUSHARE_OVERSUBSCRIBE", "swap"),
    ];
    let uvm = [("GPUSHARE_MEM_LIMIT", LIMIT), UVM];
    let node = format!("{NODE}[swap]\nhost = \"256MiB\"\n");
    // Without concurrent access managed memory stays on the device.
    let fixed = format!("{DEVICE},managed=fixed");
    for (device, terms) in [(DEVICE, &plain[..]), (DEVICE, &swap), (&fixed, &uvm)] {
        let gpu = Gpu::new(device);
        let daemon = Daemon::configured(&gpu, &node);
        let neighbour = [
            ("GPUSHARE_MEM_LIMIT", "40MiB"),
            ("GPUSHARE_MEM_REQUEST", "1MiB"),
        ];
        let neighbour = daemon.tenant("neighbour", &neighbour);
        let _neighbour = filled(&neighbour, 40 * MIB);
        let request = [("GPUSHARE_MEM_REQUEST", "1MiB")];
        let tenant = daemon.tenant("one", &[terms, &request].concat());
        let mut guest = tenant.client("quota", &[]).started();
        for by in ["info", "nvml"] {
            let (free, _) = seen(&mut guest, by);
            assert!(free <= 66 * MIB, "{by} under {terms:?}: {free}");
        }
    }
}
