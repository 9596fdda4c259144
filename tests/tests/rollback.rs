//! A driver that fails: charges for a failed call are returned, and memory that could not be freed
//! stays charged.

use gpushare_tests::{Gpu, Guest, MIB, clients, guest};
use softgpu::inspect::Observer;

const LIMIT: u64 = 256 * MIB;
/// CUDA_ERROR_UNKNOWN: nothing here returns it without injection.
const INJECTED: &str = "999";

struct World {
    observer: Observer,
    guest: Guest,
}

impl World {
    /// The matrix client on a machine whose driver fails according to `fault`.
    fn start(path: &str, fault: &str) -> Self {
        let gpu = Gpu::new("mem=2GiB");
        let observer = Observer::open(&gpu.spec().parse().expect("a valid SPEC"))
            .expect("softgpu's state opens");
        let mut command = guest::command(&gpu, &["--mem-limit", "256MiB"]);
        command.env("SOFTGPU_FAIL", fault);
        command
            .arg(clients::compile("matrix", &[]))
            .args(["v2", path]);
        Self {
            observer,
            guest: Guest::start(command),
        }
    }

    fn free(&mut self) -> u64 {
        let answer = self.guest.ask("free");
        answer
            .trim_start_matches("free ")
            .parse()
            .expect("a number")
    }

    fn requested(&self) -> u64 {
        self.observer
            .snapshot()
            .expect("softgpu's state is there")
            .devices[0]
            .requested_now
    }
}

#[test]
fn an_allocation_the_driver_refuses_leaves_nothing_booked() {
    let paths = [
        ("linear", "cuMemAlloc"),
        ("pitch", "cuMemAllocPitch"),
        ("managed", "cuMemAllocManaged"),
        ("async", "cuMemAllocAsync"),
        ("pool", "cuMemAllocFromPoolAsync"),
        ("vmm", "cuMemCreate"),
        ("array", "cuArray3DCreate"),
        ("mipmap", "cuMipmappedArrayCreate"),
        ("graph", "cuGraphLaunch"),
    ];
    for (path, function) in paths {
        let mut world = World::start(path, &format!("{function}:3:CUDA_ERROR_UNKNOWN"));
        assert_eq!(world.free(), LIMIT, "{path}");
        assert_eq!(
            world.guest.ask("take"),
            format!("take 2 {INJECTED}"),
            "{path}"
        );
        assert_eq!(
            LIMIT - world.free(),
            world.requested(),
            "{path}: the books after a refusal"
        );
        assert_eq!(world.guest.ask("give"), "give 0", "{path}");
        assert_eq!((world.free(), world.requested()), (LIMIT, 0), "{path}");
        let took = world.guest.ask("take");
        assert!(
            took.ends_with(" 2"),
            "{path}: the limit is all that stops it: {took}"
        );
        assert!(
            world.requested() > LIMIT - 33 * MIB,
            "{path}: {} bytes",
            world.requested()
        );
        world.guest.finish().silently();
    }
}

#[test]
fn memory_the_driver_does_not_free_stays_booked() {
    let paths = [
        ("linear", "cuMemFree"),
        ("pitch", "cuMemFree"),
        ("managed", "cuMemFree"),
        ("async", "cuMemFreeAsync"),
        ("vmm", "cuMemUnmap"),
        ("array", "cuArrayDestroy"),
        ("mipmap", "cuMipmappedArrayDestroy"),
    ];
    for (path, function) in paths {
        let mut world = World::start(path, &format!("{function}:2:CUDA_ERROR_UNKNOWN"));
        assert!(world.guest.ask("take").ends_with(" 2"), "{path}");
        assert_eq!(
            world.guest.ask("give"),
            format!("give {INJECTED}"),
            "{path}"
        );
        let kept = world.requested();
        assert!(kept > 0, "{path}: one was not freed");
        assert_eq!(LIMIT - world.free(), kept, "{path}");
        world.guest.finish().silently();
    }
}
