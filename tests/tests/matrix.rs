//! Every way to find the driver's functions, times every way to allocate. Each stops at the limit
//! with CUDA's out-of-memory error, frees everything, and stops there again. softgpu's counters
//! decide whether it did.

use gpushare_tests::{Gpu, Guest, MIB, clients, guest};
use softgpu::inspect::Observer;

const BINDINGS: [&str; 5] = ["dlsym", "v1", "v2", "twins", "v2-per-thread"];
const LIMIT: u64 = 256 * MIB;
const CHUNK: u64 = 8 * MIB;
/// Pools and graphs take memory in steps this large, so that the last step may not fit.
const STEP: u64 = 32 * MIB;

/// Runs one path under every binding. `slack` is the largest rest of the limit when the first
/// allocation is refused.
fn every_binding_stops_at_the_limit(path: &str, slack: u64) {
    for binding in BINDINGS {
        let gpu = Gpu::new("mem=2GiB");
        let observer = Observer::open(&gpu.spec().parse().expect("a valid SPEC"))
            .expect("softgpu's state opens");
        let look = || observer.snapshot().expect("softgpu's state is there");
        let requested = || look().devices[0].requested_now;
        let mut command = guest::command(&gpu, &["--mem-limit", "256MiB"]);
        command
            .arg(clients::compile("matrix", &[]))
            .args([binding, path]);
        let mut guest = Guest::start(command);
        let began = guest.ask("free");
        let mut counts = Vec::new();
        for round in 0..2 {
            let took = guest.ask("take");
            let words: Vec<&str> = took.split(' ').collect();
            assert_eq!(words[2], "2", "{path} by {binding}, round {round}: {took}");
            let truth = requested();
            assert!(
                truth <= LIMIT,
                "{path} by {binding}: {truth} bytes under a limit of {LIMIT}"
            );
            assert!(
                truth + slack >= LIMIT,
                "{path} by {binding}: refused at {truth} bytes"
            );
            counts.push(words[1].to_owned());
            assert_eq!(guest.ask("give"), "give 0", "{path} by {binding}");
            assert_eq!(requested(), 0, "{path} by {binding} leaves something");
            assert_eq!(
                guest.ask("free"),
                began,
                "{path} by {binding} leaves something charged"
            );
        }
        assert_eq!(
            counts[0], counts[1],
            "{path} by {binding} stops elsewhere the second time"
        );
        let peak = look().devices[0].requested_peak;
        assert!(
            peak <= LIMIT,
            "{path} by {binding}: {peak} bytes at the peak"
        );
        guest.finish().silently();
    }
}

#[test]
fn linear_memory() {
    every_binding_stops_at_the_limit("linear", 0);
}

#[test]
fn pitched_memory() {
    every_binding_stops_at_the_limit("pitch", CHUNK);
}

#[test]
fn managed_memory() {
    every_binding_stops_at_the_limit("managed", 0);
}

#[test]
fn stream_ordered_memory() {
    every_binding_stops_at_the_limit("async", STEP);
}

#[test]
fn memory_of_a_pool_of_its_own() {
    every_binding_stops_at_the_limit("pool", STEP);
}

#[test]
fn physical_memory() {
    every_binding_stops_at_the_limit("vmm", 0);
}

#[test]
fn arrays() {
    every_binding_stops_at_the_limit("array", 0);
}

#[test]
fn mipmapped_arrays() {
    every_binding_stops_at_the_limit("mipmap", CHUNK + MIB);
}

#[test]
fn memory_of_graphs() {
    every_binding_stops_at_the_limit("graph", STEP);
}

#[test]
fn memory_of_the_default_pool_by_its_handle() {
    every_binding_stops_at_the_limit("default-pool", STEP);
}

#[test]
fn flat_arrays() {
    every_binding_stops_at_the_limit("flat-array", 0);
}

#[test]
fn memory_of_graphs_whose_nodes_are_added_by_the_function_for_any_node() {
    every_binding_stops_at_the_limit("any-node", STEP);
}

#[test]
fn memory_of_graphs_that_are_uploaded_before_they_run() {
    every_binding_stops_at_the_limit("uploaded", STEP);
}

#[test]
fn memory_of_captured_graphs() {
    every_binding_stops_at_the_limit("captured", STEP);
}

#[test]
fn memory_of_graphs_within_graphs() {
    every_binding_stops_at_the_limit("child", STEP);
}
