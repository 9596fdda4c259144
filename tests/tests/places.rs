//! Pools of managed memory are charged as managed memory is: whole, wherever its pages are. Pools
//! of the host's memory take nothing of a quota.

use gpushare_tests::{Gpu, Guest, MIB};

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
