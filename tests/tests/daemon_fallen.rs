//! One GPU of several falls off the bus. NVML then fails each search by a UUID, whichever is
//! sought.

use gpushare_protocol::wire::{ControlReply, DeviceRow, Listing, Rows};
use gpushare_tests::guest::plain;
use gpushare_tests::{Daemon, Gpu, Guest, MIB, clients, until};

const SPEC: &str = "mem=512MiB,ctx=2MiB,count=3";

struct Scene {
    gpu: Gpu,
    daemon: Daemon,
    folder: tempfile::TempDir,
}

impl Scene {
    /// A daemon of three devices, the second of which may have fallen already.
    fn new(is_fallen: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("fallen");
        if is_fallen {
            std::fs::write(&file, "").expect("writable");
        }
        let gpu = Gpu::new(SPEC);
        let fallen = format!("1:CUDA_ERROR_UNKNOWN:{}", file.display());
        let environment = [("SOFTGPU_FALLEN", fallen.as_str())];
        let daemon = Daemon::configured_in(&gpu, "first_context = \"4MiB\"\n", &environment);
        Self {
            gpu,
            daemon,
            folder,
        }
    }

    fn falls(&self) {
        std::fs::write(self.folder.path().join("fallen"), "").expect("writable");
    }

    fn rows(&self) -> Vec<DeviceRow> {
        match self.daemon.commands().ask(&Listing::Devices.first()) {
            ControlReply::Page {
                rows: Rows::Devices(rows),
                ..
            } => rows,
            other => panic!("{other:?}"),
        }
    }

    fn lost(&self) -> Vec<bool> {
        self.rows().iter().map(DeviceRow::is_lost).collect()
    }

    /// A program of no tenant holds memory on the first device, as a new look shows.
    fn is_looked_at(&self) -> Guest {
        let before = self.rows()[0].unmanaged;
        let mut stranger = Guest::start(plain(&self.gpu, &clients::compile("quota", &[])));
        assert_eq!(stranger.ask("init"), "init 0");
        let memory = format!("alloc {}", 64 * MIB);
        assert_eq!(stranger.ask(&memory), "alloc 0");
        until("a look shows it", || {
            self.rows()[0].unmanaged >= before + 64 * MIB
        });
        stranger
    }
}

#[test]
fn a_gpu_that_falls_off_the_bus_leaves_the_others_alone() {
    let scene = Scene::new(false);
    let first = scene.is_looked_at();
    assert_eq!(scene.lost(), [false; 3]);
    scene.falls();
    until("it is lost", || scene.lost()[1]);
    let second = scene.is_looked_at();
    assert_eq!(scene.lost(), [false, true, false]);
    let tenant = scene
        .daemon
        .tenant("one", &[("GPUSHARE_MEM_LIMIT", "128MiB")]);
    // A driver lists no device that has fallen off the bus.
    let mut guest = tenant.client("quota", &[("CUDA_VISIBLE_DEVICES", "0")]);
    assert_eq!(guest.ask("init"), "init 0");
    assert_eq!(guest.ask(&format!("alloc {}", 16 * MIB)), "alloc 0");
    drop((first, second));
}

#[test]
fn a_daemon_that_starts_beside_a_fallen_gpu_keeps_the_others() {
    let scene = Scene::new(true);
    assert_eq!(scene.lost(), [false; 2], "it is not served");
    let strangers = [(); 3].map(|()| scene.is_looked_at());
    assert_eq!(scene.lost(), [false; 2]);
    drop(strangers);
}
