//! Pools of managed memory are charged as managed memory is: whole, wherever its pages are. Pools
//! of the host's memory take nothing of a quota. A pool of another device than the stream's is
//! charged to its own device.

use gpushare_tests::guest::command;
use gpushare_tests::{Gpu, Guest, MIB, clients};

const OUT_OF_MEMORY: &str = "2";
/// Drivers with such pools: one that tells nothing of a pool, one that tells where its memory is.
const DRIVERS: [u32; 2] = [13000, 13050];
/// `CU_MEM_ALLOCATION_TYPE_`.
const PINNED: u32 = 1;
const MANAGED: u32 = 2;
/// `CU_MEM_LOCATION_TYPE_`.
const NOWHERE: u32 = 0;
const DEVICE: u32 = 1;
const HOST: u32 = 2;
const HOST_NUMA: u32 = 3;

fn started(gpu: &Gpu) -> Guest {
    limited(gpu, "256MiB")
}

fn limited(gpu: &Gpu, limit: &str) -> Guest {
    Guest::client(gpu, &["--mem-limit", limit], "ordered").started()
}

fn on(driver: u32) -> Gpu {
    Gpu::new(&format!("driver={driver}"))
}

/// The free memory that the program is told.
fn free(guest: &mut Guest) -> u64 {
    let answer = guest.ask("info");
    let words: Vec<&str> = answer.split(' ').collect();
    assert_eq!(words[3], "0", "{answer}");
    words[1].parse().expect("a number")
}

/// Each way to such a pool: made, and named as a default.
fn pools(kind: u32, places: &[u32]) -> Vec<String> {
    let each = places.iter().flat_map(|place| {
        let made = format!("place {kind} {place} 0");
        [made, format!("named {kind} {place} 0")]
    });
    each.collect()
}

#[test]
fn managed_pool_memory_counts_wherever_it_belongs() {
    for driver in DRIVERS {
        for pool in pools(MANAGED, &[NOWHERE, DEVICE, HOST, HOST_NUMA]) {
            let gpu = on(driver);
            let mut guest = started(&gpu);
            guest.does(&pool);
            guest.does(&format!("from 0 {} 1", 100 * MIB));
            assert_eq!(free(&mut guest), 128 * MIB, "{driver}, {pool}");
            guest.answers(&format!("from 0 {} 1", 160 * MIB), OUT_OF_MEMORY);
            guest.answers(&format!("linear {}", 160 * MIB), OUT_OF_MEMORY);
            guest.does(&format!("linear {}", 128 * MIB));
            guest.does("free 0 1");
            guest.does("sync 1");
            assert_eq!(free(&mut guest), 128 * MIB, "{driver}, {pool}");
            let truth = gpu.truth();
            assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
            guest.finish().silently();
        }
    }
}

#[test]
fn host_pool_memory_counts_nowhere() {
    for driver in DRIVERS {
        for pool in pools(PINNED, &[HOST, HOST_NUMA]) {
            let gpu = on(driver);
            let mut guest = limited(&gpu, "64MiB");
            guest.does(&pool);
            for _ in 0..3 {
                guest.does(&format!("from 0 {} 1", 32 * MIB));
            }
            assert_eq!(free(&mut guest), 64 * MIB, "{driver}, {pool}");
            guest.does(&format!("linear {}", 64 * MIB));
            guest.does(&format!("from 0 {} 1", 32 * MIB));
            for number in [0, 1, 2, 4] {
                guest.does(&format!("free {number} 1"));
            }
            guest.does("sync 1");
            assert_eq!(free(&mut guest), 0, "{driver}, {pool}");
            assert_eq!(gpu.truth().requested_now, 64 * MIB, "{driver}, {pool}");
            guest.finish().silently();
        }
    }
}

/// The driver names the device's pool as the host's once the host's current one is destroyed.
#[test]
fn a_devices_pool_that_is_named_as_the_hosts_is_charged() {
    for driver in DRIVERS {
        for destroyed in [true, false] {
            let gpu = on(driver);
            let mut guest = limited(&gpu, "64MiB");
            guest.does(&format!("place {PINNED} {HOST} 0"));
            guest.does(&format!("makes-current 0 {PINNED} {HOST}"));
            if destroyed {
                guest.does("close 0");
            }
            guest.does(&format!("current {PINNED} {HOST} 0"));
            guest.does(&format!("from 1 {} 1", 32 * MIB));
            let left = if destroyed { 32 } else { 64 };
            assert_eq!(free(&mut guest), left * MIB, "{driver}, {destroyed}");
            let more = format!("from 1 {} 1", 64 * MIB);
            match destroyed {
                true => guest.answers(&more, OUT_OF_MEMORY),
                false => guest.does(&more),
            }
            guest.does(&format!("linear {}", left * MIB));
            guest.finish().silently();
        }
    }
}

/// A number that was a host pool's may be a managed pool's later.
#[test]
fn a_destroyed_pool_says_nothing_about_the_next_one() {
    let gpu = on(13000);
    let mut guest = started(&gpu);
    guest.does(&format!("place {PINNED} {HOST} 0"));
    guest.does("from 0 1 1");
    guest.does("free 0 1");
    guest.does("close 0");
    guest.does(&format!("place {MANAGED} {NOWHERE} 0"));
    guest.does(&format!("from 1 {} 1", 33 * MIB));
    assert_eq!(free(&mut guest), 192 * MIB);
    guest.does("close 1");
    assert_eq!(free(&mut guest), 192 * MIB, "until it is freed");
    guest.does("free 1 1");
    guest.does("sync 1");
    assert_eq!(free(&mut guest), 256 * MIB);
    guest.finish().silently();
}

#[test]
fn where_a_pool_cannot_be_made_nothing_is_charged() {
    let gpu = Gpu::new("driver=12080");
    let mut guest = started(&gpu);
    guest.answers(&format!("place {MANAGED} {DEVICE} 0"), "1");
    guest.answers(&format!("place {PINNED} {HOST} 0"), "1");
    guest.does(&format!("place {PINNED} {HOST_NUMA} 0"));
    guest.does(&format!("from 2 {} 1", 300 * MIB));
    assert_eq!(free(&mut guest), 256 * MIB);
    guest.finish().silently();
}

/// A program on two devices, with 64 MiB of the first and 32 MiB of the second. Beside the drivers
/// of [`DRIVERS`], one that knows pools of devices alone.
fn on_two(driver: u32) -> (Gpu, Guest) {
    failing_on_two(driver, "")
}

/// The same, where these calls of the driver fail.
fn failing_on_two(driver: u32, failing: &str) -> (Gpu, Guest) {
    let gpu = Gpu::new(&format!("driver={driver},count=2"));
    let limits = ["--mem-limit", "0=64MiB", "--mem-limit", "1=32MiB"];
    let mut run = command(&gpu, &limits);
    run.env("SOFTGPU_FAIL", failing)
        .arg(clients::compile("ordered", &[]));
    let mut guest = Guest::start(run).started();
    guest.does("second");
    (gpu, guest)
}

const OLDEST: u32 = 12080;

#[test]
fn a_pool_of_another_device_than_the_streams_is_charged_there() {
    for driver in DRIVERS.into_iter().chain([OLDEST]) {
        for pool in ["own 1", "present 1"] {
            let (gpu, mut guest) = on_two(driver);
            guest.does(pool);
            guest.answers(&format!("from 0 {} 1", 48 * MIB), OUT_OF_MEMORY);
            guest.does(&format!("from 0 {} 1", 32 * MIB));
            assert_eq!(free(&mut guest), 64 * MIB, "{driver}, {pool}");
            guest.answers("alloc 1 4", OUT_OF_MEMORY);
            guest.does(&format!("linear {}", 64 * MIB));
            let requested: Vec<u64> = gpu.truths().iter().map(|one| one.requested_now).collect();
            assert_eq!(requested, [64 * MIB, 32 * MIB], "{driver}, {pool}");
            guest.does("free 0 4");
            guest.does("sync 4");
            guest.does("alloc 1 4");
            guest.finish().silently();
        }
    }
}

#[test]
fn a_device_keeps_its_limit_after_another_devices_stream_used_its_pool() {
    for driver in DRIVERS.into_iter().chain([OLDEST]) {
        let (_gpu, mut guest) = on_two(driver);
        guest.does("own 1");
        guest.does("from 0 1 1");
        guest.does("free 0 4");
        guest.does("sync 4");
        guest.answers(&format!("alloc {} 4", 33 * MIB), OUT_OF_MEMORY);
        guest.does(&format!("alloc {} 4", 32 * MIB));
        assert_eq!(free(&mut guest), 64 * MIB, "{driver}");
        guest.finish().silently();
    }
}

#[test]
fn the_pool_of_the_streams_own_device_is_charged_to_that_device() {
    for driver in DRIVERS.into_iter().chain([OLDEST]) {
        for pool in ["own 0", "present 0"] {
            let (_gpu, mut guest) = on_two(driver);
            guest.does(pool);
            guest.does(&format!("from 0 {} 1", 48 * MIB));
            assert_eq!(free(&mut guest), 0, "{driver}, {pool}");
            guest.answers("alloc 1 1", OUT_OF_MEMORY);
            guest.does(&format!("alloc {} 4", 32 * MIB));
            guest.finish().silently();
        }
    }
}

/// The first questions are the program's own.
#[test]
fn a_pool_that_the_driver_has_named_is_looked_up_no_more() {
    let ask = |failing: String, pool: &str| {
        let (_gpu, mut guest) = failing_on_two(OLDEST, &failing);
        guest.does(pool);
        guest.answers(&format!("from 0 {} 1", 48 * MIB), OUT_OF_MEMORY);
        guest.finish().silently();
    };
    let later = |function: &str| {
        let calls = (2..9).map(|call| format!("{function}:{call}:CUDA_ERROR_UNKNOWN"));
        calls.collect::<Vec<_>>().join(",")
    };
    let (own, present) = ("cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool");
    ask(
        format!("{},{present}:*:CUDA_ERROR_UNKNOWN", later(own)),
        "own 1",
    );
    ask(
        format!("{},{own}:*:CUDA_ERROR_UNKNOWN", later(present)),
        "present 1",
    );
}

/// Whether drivers make such nodes, and count their memory as that of graphs, is not recorded.
#[test]
fn a_graph_of_managed_memory_needs_room_wherever_it_belongs() {
    for place in [NOWHERE, DEVICE, HOST, HOST_NUMA] {
        let gpu = on(13000);
        let mut guest = started(&gpu);
        guest.does(&format!("nodes {MANAGED} {place}"));
        guest.does(&format!("graph {} 1", 192 * MIB));
        guest.does("launch 0 1");
        guest.does(&format!("graph {} 1", 320 * MIB));
        guest.answers("launch 1 1", OUT_OF_MEMORY);
        guest.finish().silently();
    }
}

#[test]
fn a_graph_of_the_hosts_memory_needs_no_room() {
    for place in [HOST, HOST_NUMA] {
        let gpu = on(13000);
        let mut guest = started(&gpu);
        guest.does(&format!("nodes {PINNED} {place}"));
        guest.does(&format!("graph {} 1", 320 * MIB));
        guest.does("launch 0 1");
        guest.finish().silently();
    }
}
