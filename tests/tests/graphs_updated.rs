//! An executable graph that is updated takes what the new graph allocates.

use gpushare_tests::guest::command;
use gpushare_tests::{Gpu, Guest, MIB, clients};

const OUT_OF_MEMORY: &str = "2";
const UNKNOWN: &str = "999";
const UPDATE_FAILURE: &str = "910";
/// Kinds of memory, and places, of allocation nodes.
const PINNED: i32 = 1;
const DEVICE: i32 = 1;
const HOST: i32 = 2;

/// The functions that update.
const UPDATES: [&str; 2] = ["update", "update-1"];

fn started(gpu: &Gpu) -> Guest {
    Guest::client(gpu, &["--mem-limit", "256MiB"], "ordered").started()
}

/// Graph 0, of one allocation of these MiB, has run.
fn with_a_graph(gpu: &Gpu, mib: u64) -> Guest {
    let mut guest = started(gpu);
    guest.does(&format!("graph {} 1", mib * MIB));
    runs(&mut guest);
    guest
}

fn runs(guest: &mut Guest) {
    guest.does("launch 0 1");
    guest.does("sync 1");
}

fn is_within_its_limit(gpu: &Gpu) {
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
}

#[test]
fn a_graph_that_is_updated_to_more_needs_room_for_it() {
    for update in UPDATES {
        let gpu = Gpu::new("");
        let mut guest = with_a_graph(&gpu, 32);
        guest.does(&format!("{update} 0 {} 1", 192 * MIB));
        guest.does(&format!("linear {}", 100 * MIB));
        guest.answers("launch 0 1", OUT_OF_MEMORY);
        is_within_its_limit(&gpu);
        guest.does("now 0");
        runs(&mut guest);
        is_within_its_limit(&gpu);
        guest.finish().silently();
    }
}

#[test]
fn a_graph_that_is_updated_to_less_needs_room_for_less() {
    for update in UPDATES {
        let gpu = Gpu::new("");
        let mut guest = with_a_graph(&gpu, 192);
        guest.does(&format!("{update} 0 {} 1", 32 * MIB));
        guest.does(&format!("linear {}", 200 * MIB));
        runs(&mut guest);
        is_within_its_limit(&gpu);
        guest.finish().silently();
    }
}

/// At the limit a graph runs in what it was given before. That is less than it takes now.
#[test]
fn what_a_launch_was_given_is_no_room_for_an_updated_graph() {
    let gpu = Gpu::new("");
    let mut guest = with_a_graph(&gpu, 32);
    guest.does(&format!("linear {}", 224 * MIB));
    runs(&mut guest);
    guest.does(&format!("update 0 {} 1", 64 * MIB));
    guest.answers("launch 0 1", OUT_OF_MEMORY);
    is_within_its_limit(&gpu);
    guest.does(&format!("update 0 {} 1", 24 * MIB));
    runs(&mut guest);
    is_within_its_limit(&gpu);
    guest.finish().silently();
}

#[test]
fn a_graph_whose_update_is_refused_takes_what_it_took() {
    let gpu = Gpu::new("");
    let mut guest = with_a_graph(&gpu, 32);
    guest.answers(&format!("update 0 {} 2", 96 * MIB), UPDATE_FAILURE);
    guest.does(&format!("linear {}", 200 * MIB));
    runs(&mut guest);
    is_within_its_limit(&gpu);
    guest.finish().silently();
}

/// An update cannot be undone.
#[test]
fn a_graph_that_cannot_be_sized_updates_no_other() {
    let gpu = Gpu::new("");
    let mut run = command(&gpu, &["--mem-limit", "256MiB"]);
    let failing = "cuGraphMemAllocNodeGetParams:2:CUDA_ERROR_UNKNOWN";
    run.env("SOFTGPU_FAIL", failing)
        .arg(clients::compile("ordered", &[]));
    let mut guest = Guest::start(run).started();
    guest.does(&format!("graph {} 1", 32 * MIB));
    guest.answers(&format!("update 0 {} 1", 192 * MIB), UNKNOWN);
    guest.does(&format!("linear {}", 200 * MIB));
    runs(&mut guest);
    guest.does(&format!("update 0 {} 1", 64 * MIB));
    guest.answers("launch 0 1", OUT_OF_MEMORY);
    is_within_its_limit(&gpu);
    guest.finish().silently();
}

#[test]
fn a_graph_of_the_hosts_memory_may_be_updated_to_the_devices() {
    let gpu = Gpu::new("driver=13000");
    let mut guest = started(&gpu);
    guest.does(&format!("nodes {PINNED} {HOST}"));
    guest.does(&format!("graph {} 1", 320 * MIB));
    runs(&mut guest);
    guest.does(&format!("nodes {PINNED} {DEVICE}"));
    guest.does(&format!("update 0 {} 1", 320 * MIB));
    guest.answers("launch 0 1", OUT_OF_MEMORY);
    guest.does(&format!("nodes {PINNED} {HOST}"));
    guest.does(&format!("update 0 {} 1", 320 * MIB));
    runs(&mut guest);
    guest.finish().silently();
}
