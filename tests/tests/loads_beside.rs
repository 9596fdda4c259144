//! Memory that is allocated beside a module's load is not shown as the module's.

use gpushare_tests::guest::command;
use gpushare_tests::{Gpu, Guest, MIB, clients, until};

/// A load takes so long that the program allocates meanwhile.
const SPEC: &str = "mem=16GiB,load=300ms";

fn started(gpu: &Gpu) -> Guest {
    let mut run = command(gpu, &["--mem-limit", "8GiB"]);
    run.env("CUDA_MODULE_LOADING", "EAGER")
        .arg(clients::compile("locked", &[]));
    let mut guest = Guest::start(run);
    guest.does("init");
    guest
}

/// NVML's count of the used memory.
fn used(guest: &mut Guest) -> u64 {
    let info = guest.ask("info");
    let used = info.strip_prefix("info 0 ").expect("NVML answers");
    used.parse().expect("a number")
}

/// The growth of that while a module is loaded, with `meanwhile` while the driver does so.
fn grown(meanwhile: &[String]) -> u64 {
    let gpu = Gpu::new(SPEC);
    let mut guest = started(&gpu);
    let (before, taken) = (used(&mut guest), gpu.truth().used_physical);
    guest.does("load");
    until("it loads", || gpu.truth().used_physical > taken);
    meanwhile.iter().for_each(|line| guest.does(line));
    guest.does("loaded");
    let grown = used(&mut guest) - before;
    guest.finish().silently();
    grown
}

#[test]
fn an_allocation_beside_a_load_is_shown_once() {
    let alone = grown(&[]);
    assert!(alone < 64 * MIB, "{alone}");
    let beside = grown(&[format!("alloc {}", 1024 * MIB)]);
    let shown = 1024 * MIB..=1024 * MIB + 64 * MIB;
    assert!(shown.contains(&beside), "{beside}");
}
