//! Allocators whose cache is memory of a driver's pool, as RMM's and CUDA.jl's, and which free it
//! after a returned out-of-memory. They get such an error before they wait; other programs do not.

use gpushare_tests::{Daemon, Gpu, Guest, MIB, Tenant};

use crate::caching::{BURSTS, DEVICE, FILLS, caches, filled, has_waited, shows_its_cache, take};

/// How a tenant's memory is made: by the driver, or so that it may move.
const KINDS: [&[(&str, &str)]; 2] = [&[], &[("GPUSHARE_OVERSUBSCRIBE", "swap")]];

/// A tenant that may burst into all of the device and one that fills it. The first one's program
/// takes its blocks from a pool.
struct Scene {
    bursts: Tenant,
    fills: Tenant,
    daemon: Daemon,
    _gpu: Gpu,
}

impl Scene {
    fn of(kind: &[(&str, &str)]) -> Self {
        let gpu = Gpu::new(DEVICE);
        let daemon = Daemon::configured(&gpu, "[swap]\nhost = \"4GiB\"\n");
        let bursts = daemon.tenant("bursts", &[&BURSTS[..], kind].concat());
        let fills = daemon.tenant("fills", &FILLS);
        Self {
            bursts,
            fills,
            daemon,
            _gpu: gpu,
        }
    }

    fn pooled(&self) -> Guest {
        let mut guest = self.bursts.client("caching", &[]).started();
        assert_eq!(guest.ask("pooled"), "pooled 0");
        guest
    }
}

#[test]
fn a_cache_of_pool_memory_is_asked_for_before_a_wait() {
    for kind in KINDS {
        let scene = Scene::of(kind);
        let mut guest = scene.pooled();
        shows_its_cache(&mut guest);
        caches(&mut guest);
        let _holder = filled(&scene.fills);
        assert_eq!(guest.ask(&take(400 * MIB)), "take 0 1 2", "{kind:?}");
        assert!(!has_waited(&scene.daemon, "bursts"), "{kind:?}");
        guest.finish().silently();
    }
}

#[test]
fn a_pools_request_after_an_early_refusal_waits() {
    for kind in KINDS {
        let scene = Scene::of(kind);
        let mut guest = scene.pooled();
        shows_its_cache(&mut guest);
        caches(&mut guest);
        let holder = filled(&scene.fills);
        guest.send(&take(1024 * MIB));
        scene.daemon.until_one_waits("bursts");
        holder.finish().silently();
        assert_eq!(guest.line(), "take 0 1 2", "{kind:?}");
        guest.finish().silently();
    }
}

#[test]
fn a_cache_of_pool_memory_never_seen_freed_causes_no_early_refusal() {
    for kind in KINDS {
        let scene = Scene::of(kind);
        let mut guest = scene.pooled();
        caches(&mut guest);
        let holder = filled(&scene.fills);
        guest.send(&take(400 * MIB));
        scene.daemon.until_one_waits("bursts");
        holder.finish().silently();
        assert_eq!(guest.line(), "take 0 0 0", "{kind:?}");
        guest.finish().silently();
    }
}

#[test]
fn a_cache_of_pool_memory_says_nothing_of_other_calls() {
    let scene = Scene::of(&[]);
    let mut guest = scene.pooled();
    shows_its_cache(&mut guest);
    caches(&mut guest);
    let holder = filled(&scene.fills);
    guest.send(&format!("plain {}", 400 * MIB));
    scene.daemon.until_one_waits("bursts");
    holder.finish().silently();
    assert_eq!(guest.line(), "plain 0");
    guest.finish().silently();
}
