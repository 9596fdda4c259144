//! Memory that graphs allocate is charged when they run, by the driver's reservation for it.

use std::sync::atomic::Ordering;

use gpushare_protocol::wire::Request;
use gpushare_tests::guest::{command, plain};
use gpushare_tests::moves::wanted;
use gpushare_tests::{Dealer, Gpu, Guest, MIB, clients, until};

const OUT_OF_MEMORY: &str = "2";

fn started(gpu: &Gpu) -> Guest {
    Guest::client(gpu, &["--mem-limit", "256MiB"], "ordered").started()
}

fn free(guest: &mut Guest) -> u64 {
    let answer = guest.ask("info");
    answer
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .expect("a number")
}

/// The ways to build a graph with one allocation of 192 MiB.
const MAKINGS: [&str; 2] = ["graph 201326592 1", "captured 201326592 1"];

#[test]
fn a_graph_is_charged_when_it_runs_and_not_before() {
    for making in MAKINGS {
        let gpu = Gpu::new("");
        let mut guest = started(&gpu);
        guest.does(making);
        assert_eq!(free(&mut guest), 256 * MIB, "{making}");
        guest.does("launch 0 1");
        assert_eq!(free(&mut guest), 64 * MIB, "{making}");
        guest.does("sync 1");
        guest.does("trim-graphs");
        assert_eq!(free(&mut guest), 256 * MIB, "{making}");
        guest.finish().silently();
    }
}

#[test]
fn a_graph_that_does_not_fit_is_refused_and_takes_nothing() {
    for making in MAKINGS {
        let gpu = Gpu::new("");
        let mut guest = started(&gpu);
        guest.does(making);
        guest.does(&format!("linear {}", 100 * MIB));
        guest.answers("launch 0 1", OUT_OF_MEMORY);
        assert_eq!(free(&mut guest), 156 * MIB, "{making}");
        guest.does("now 0");
        guest.does("launch 0 1");
        let truth = gpu.truth();
        assert!(truth.requested_peak <= 256 * MIB, "{making}: {truth:?}");
        guest.finish().silently();
    }
}

/// The driver takes 32 MiB for a graph of 8.
#[test]
fn a_graph_needs_room_for_the_step_that_the_driver_takes() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu);
    guest.does(&format!("graph {} 1", 8 * MIB));
    guest.does(&format!("linear {}", 232 * MIB));
    guest.answers("launch 0 1", OUT_OF_MEMORY);
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.does("now 0");
    guest.does(&format!("linear {}", 224 * MIB));
    guest.does("launch 0 1");
    guest.does("sync 1");
    assert_eq!(free(&mut guest), 0);
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.finish().silently();
}

#[test]
fn a_graph_runs_again_and_again_on_what_it_once_was_given() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu);
    guest.does(MAKINGS[0]);
    for _ in 0..20 {
        guest.does("launch 0 1");
    }
    guest.does("sync 1");
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.finish().silently();
}

/// The driver may take the memory at the upload, or only at the launch.
#[test]
fn an_upload_is_no_room_for_a_launch() {
    for making in MAKINGS {
        let gpu = Gpu::new("");
        let mut guest = started(&gpu);
        guest.does(making);
        guest.does("upload 0 1");
        guest.does(&format!("linear {}", 256 * MIB));
        guest.answers("launch 0 1", OUT_OF_MEMORY);
        guest.answers("upload 0 1", OUT_OF_MEMORY);
        guest.answers("launch 0 1", OUT_OF_MEMORY);
        let truth = gpu.truth();
        assert!(truth.requested_peak <= 256 * MIB, "{making}: {truth:?}");
        guest.does("now 0");
        guest.does("launch 0 1");
        guest.does("sync 1");
        let truth = gpu.truth();
        assert!(truth.requested_peak <= 256 * MIB, "{making}: {truth:?}");
        guest.finish().silently();
    }
}

/// Operations that a stream of softgpu holds. A launch waits in the driver for its place.
const DEPTH: u64 = 1024;

/// Graph 1 is launched by another thread, which then sleeps in the driver, before it has memory.
fn with_a_launch_under_way(gpu: &Gpu) -> Guest {
    let mut guest = started(gpu);
    guest.does(&format!("graph {} 1", 128 * MIB));
    guest.does(&format!("graph {} 1", 64 * MIB));
    guest.does(&format!("crowd 2 {}", DEPTH - 2));
    guest.does("post 1 2");
    while guest.ask("posted") != "posted -1" || free(&mut guest) != 192 * MIB {}
    guest
}

/// The other launch began first, and comes to the memory last.
#[test]
fn a_launch_that_overlapped_another_is_not_relied_on() {
    let gpu = Gpu::new("room=free");
    let mut guest = with_a_launch_under_way(&gpu);
    guest.does("launch 0 1");
    guest.does("sync 1");
    // 128 for the graphs, 64 booked by the other launch.
    guest.does(&format!("linear {}", 64 * MIB));
    // It takes 64 of what the first graph had, and runs until value 2 comes.
    guest.does("value 1");
    while guest.ask("posted") != "posted 0" {}
    guest.does(&format!("linear {}", 64 * MIB));
    assert_eq!(free(&mut guest), 0);
    guest.answers("launch 0 1", OUT_OF_MEMORY);
    guest.does("value 2");
    guest.does("sync 2");
    guest.does("launch 0 1");
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.finish().silently();
}

/// Graph 0 takes 128 of 256 MiB, under a daemon that closes the gate. The free memory while another
/// thread's launch waits there, before and after.
fn free_while_a_launch_waits() -> [u64; 3] {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let device = &dealer.usage().devices[0];
    device.limit.store(256 * MIB, Ordering::Relaxed);
    device.view_total.store(256 * MIB, Ordering::Relaxed);
    let reach = &dealer.page().devices[0].reach;
    reach.store(256 * MIB, Ordering::Relaxed);
    let mut guest = dealer.client("ordered").started();
    guest.does(&format!("graph {} 1", 128 * MIB));
    let before = free(&mut guest);
    dealer.close(1);
    let (device_index, epoch) = (0, 1);
    dealer.hears(&Request::Drained {
        device_index,
        epoch,
    });
    guest.does("post 0 1");
    dealer.hears(&wanted(epoch));
    let meanwhile = free(&mut guest);
    dealer.open(2);
    until("the launch is made", || guest.ask("posted") == "posted 0");
    guest.does("sync 1");
    let after = free(&mut guest);
    guest.finish().silently();
    [before, meanwhile, after]
}

#[test]
fn a_launch_that_needs_memory_books_it_when_its_turn_has_come() {
    let free = free_while_a_launch_waits();
    assert_eq!(free, [256 * MIB, 256 * MIB, 128 * MIB]);
}

#[test]
fn memory_kept_for_graphs_is_given_up_before_anything_is_refused() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu);
    guest.does(MAKINGS[0]);
    guest.does("launch 0 1");
    guest.does("sync 1");
    guest.does(&format!("linear {}", 200 * MIB));
    guest.does("now 0");
    guest.does("launch 0 1");
    guest.does("sync 1");
    guest.does("drop 0");
    guest.does(&format!("linear {}", 256 * MIB));
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    guest.finish().silently();
}

#[test]
fn a_graph_without_allocations_runs_whatever_the_quota_has_left() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu);
    guest.does("graph 0 0");
    guest.does(&format!("linear {}", 256 * MIB));
    guest.does("launch 0 1");
    guest.does("sync 1");
    guest.finish().silently();
}

#[test]
fn a_graph_that_cannot_be_sized_is_not_made() {
    for failing in [
        "cuGraphGetNodes",
        "cuGraphNodeGetType",
        "cuGraphMemAllocNodeGetParams",
    ] {
        let gpu = Gpu::new("");
        let mut run = command(&gpu, &["--mem-limit", "256MiB"]);
        run.env("SOFTGPU_FAIL", format!("{failing}:*:CUDA_ERROR_UNKNOWN"))
            .arg(clients::compile("ordered", &[]));
        let mut guest = Guest::start(run).started();
        guest.answers(MAKINGS[0], "999");
        guest.finish().silently();
    }
}

/// Graphs that upload, of so many bytes and with these flags, and the answers.
const UPLOADS: [(u64, u64, &str); 4] = [
    // It fits.
    (100 * MIB, 2, "0"),
    // There is no memory: an error.
    (300 * MIB, 2, "2001"),
    // A flag that is none.
    (100 * MIB, 2 | 1 << 20, "1001"),
    (300 * MIB, 2 | 1 << 20, "1001"),
];

#[test]
fn the_parameters_of_a_refused_graph_say_that_it_failed() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu);
    for (bytes, flags, answer) in UPLOADS {
        guest.answers(&format!("params {bytes} {flags}"), answer);
    }
    guest.finish().silently();
}

#[test]
fn a_wrong_flag_is_told_in_the_parameters_as_without_gpushare() {
    let gpu = Gpu::new("");
    let mut bare = Guest::start(plain(&gpu, &clients::compile("ordered", &[]))).started();
    for (bytes, flags, answer) in UPLOADS {
        if answer != "2001" {
            bare.answers(&format!("params {bytes} {flags}"), answer);
        }
    }
    bare.finish().silently();
}
