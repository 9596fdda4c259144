//! Allocators that free their cache only after a returned out-of-memory error, while a neighbour
//! holds the rest of the device. They get such an error before they wait; other allocators do not.

use std::path::PathBuf;

use gpushare_tests::{Daemon, Gpu, Guest, MIB, Tenant, artefacts, clients, waiting};

/// The device; a context takes 64 MiB of it.
pub(crate) const DEVICE: &str = "mem=4GiB";
/// Limits that let a tenant burst into all of the device, and wait longer than a test lasts.
pub(crate) const BURSTS: [(&str, &str); 3] = [
    ("GPUSHARE_MEM_LIMIT", "4GiB"),
    ("GPUSHARE_MEM_REQUEST", "1MiB"),
    ("GPUSHARE_WAIT_TIMEOUT", "1h"),
];
/// Limits that let a tenant take the free memory, without waiting.
pub(crate) const FILLS: [(&str, &str); 3] = [
    ("GPUSHARE_MEM_LIMIT", "4GiB"),
    ("GPUSHARE_MEM_REQUEST", "1MiB"),
    ("GPUSHARE_ON_COLLISION", "fail"),
];

/// Fills the device, the last of it in small pieces.
pub(crate) fn filled(tenant: &Tenant) -> Guest {
    let mut guest = tenant.client("quota", &[]).started();
    for bytes in [16 * MIB, MIB] {
        let answer = guest.ask(&format!("fill {bytes}"));
        assert!(answer.ends_with(" 2"), "{answer}");
    }
    guest
}

pub(crate) fn take(bytes: u64) -> String {
    format!("take {bytes}")
}

/// Runs out of memory with memory in the cache. The library then sees it free the cache and ask
/// again.
pub(crate) fn shows_its_cache(guest: &mut Guest) {
    assert_eq!(guest.ask(&take(64 * MIB)), "take 0 0 0");
    assert_eq!(guest.ask("drop"), "drop 0");
    assert_eq!(guest.ask(&take(1 << 40)), "take 2 2 1");
}

/// Holds 512 MiB in its cache.
pub(crate) fn caches(guest: &mut Guest) {
    for _ in 0..2 {
        assert_eq!(guest.ask(&take(256 * MIB)), "take 0 0 0");
    }
    for _ in 0..2 {
        assert_eq!(guest.ask("drop"), "drop 0");
    }
}

/// Whether a process of this tenant has waited so far.
pub(crate) fn has_waited(daemon: &Daemon, tenant: &str) -> bool {
    let rows = daemon.commands().past();
    let of = |name: Option<&str>| name == Some(tenant);
    let mut waits = rows.iter().filter(|row| row.kind == "waiting");
    waits.any(|row| of(row.tenant.as_deref()))
}

#[test]
fn a_process_seen_to_free_its_cache_is_refused_before_it_waits() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let (bursts, fills) = (
        daemon.tenant("bursts", &BURSTS),
        daemon.tenant("fills", &FILLS),
    );
    let mut guest = bursts.client("caching", &[]).started();
    shows_its_cache(&mut guest);
    caches(&mut guest);
    let _holder = filled(&fills);
    assert_eq!(
        guest.ask(&take(400 * MIB)),
        "take 0 1 2",
        "the process's own cache was enough"
    );
    assert!(!has_waited(&daemon, "bursts"));
    guest.finish().silently();
}

#[test]
fn the_request_after_an_early_refusal_waits_like_any_other() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let (bursts, fills) = (
        daemon.tenant("bursts", &BURSTS),
        daemon.tenant("fills", &FILLS),
    );
    let mut guest = bursts.client("caching", &[]).started();
    shows_its_cache(&mut guest);
    caches(&mut guest);
    let holder = filled(&fills);
    guest.send(&take(1024 * MIB));
    daemon.until_one_waits("bursts");
    holder.finish().silently();
    assert_eq!(guest.line(), "take 0 1 2");
    assert!(has_waited(&daemon, "bursts"));
    guest.finish().silently();
}

#[test]
fn without_a_free_the_same_size_is_not_refused_early_twice() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let (bursts, fills) = (
        daemon.tenant("bursts", &BURSTS),
        daemon.tenant("fills", &FILLS),
    );
    let mut guest = bursts.client("caching", &[]).started();
    shows_its_cache(&mut guest);
    assert_eq!(guest.ask(&take(64 * MIB)), "take 0 0 0");
    let refusals = ["take 0 1 0", "take 0 0 0"];
    for refused in refusals {
        let holder = filled(&fills);
        guest.send(&take(1024 * MIB));
        daemon.until_one_waits("bursts");
        holder.finish().silently();
        assert_eq!(guest.line(), refused);
    }
    guest.finish().silently();
}

#[test]
fn a_process_with_pytorchs_allocator_is_refused_before_it_waits() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let (bursts, fills) = (
        daemon.tenant("bursts", &BURSTS),
        daemon.tenant("fills", &FILLS),
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut guest = with_torch(&bursts, &folder, "");
    caches(&mut guest);
    let _holder = filled(&fills);
    assert_eq!(guest.ask(&take(400 * MIB)), "take 0 1 2");
    assert!(!has_waited(&daemon, "bursts"));
    guest.finish().silently();
}

/// The texts of the `refused` events of a tenant, which are complete once it has ended.
fn told_of_refusals(daemon: &Daemon, tenant: Tenant, name: &str) -> Vec<String> {
    drop(tenant);
    let past = waiting::until_some("the tenant is gone", || {
        let mut rows = daemon.commands().past();
        rows.retain(|row| row.tenant.as_deref() == Some(name));
        rows.iter().any(|row| row.kind == "gone").then_some(rows)
    });
    let refused = past.into_iter().filter(|row| row.kind == "refused");
    refused.map(|row| row.text).collect()
}

#[test]
fn a_request_served_after_an_early_refusal_is_not_told_as_refused() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let (bursts, fills) = (
        daemon.tenant("bursts", &BURSTS),
        daemon.tenant("fills", &FILLS),
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut guest = with_torch(&bursts, &folder, "");
    caches(&mut guest);
    let holder = filled(&fills);
    guest.send(&take(1024 * MIB));
    daemon.until_one_waits("bursts");
    holder.finish().silently();
    assert_eq!(guest.line(), "take 0 1 2");
    guest.finish().silently();
    let told = told_of_refusals(&daemon, bursts, "bursts");
    assert_eq!(told, [] as [&str; 0]);
}

#[test]
fn a_request_that_waits_in_vain_after_an_early_refusal_is_told_once() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let impatient = [BURSTS[0], BURSTS[1], ("GPUSHARE_WAIT_TIMEOUT", "200ms")];
    let (bursts, fills) = (
        daemon.tenant("bursts", &impatient),
        daemon.tenant("fills", &FILLS),
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut guest = with_torch(&bursts, &folder, "");
    caches(&mut guest);
    let _holder = filled(&fills);
    assert_eq!(guest.ask(&take(1024 * MIB)), "take 2 2 2");
    guest.finish().silently();
    let told = told_of_refusals(&daemon, bursts, "bursts");
    assert!(
        told.len() == 1 && told[0].starts_with("an allocation was refused (of 1 GiB, to process "),
        "{told:?}"
    );
}

/// Limits that the memory of the cache is a part of, on a device with more.
const LIMITED: [(&str, &str); 1] = [("GPUSHARE_MEM_LIMIT", "1GiB")];

#[test]
fn a_cache_that_is_freed_at_the_limit_is_not_told_as_refused() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let limited = daemon.tenant("limited", &LIMITED);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut guest = with_torch(&limited, &folder, "");
    for _ in 0..3 {
        caches(&mut guest);
        assert_eq!(guest.ask(&take(800 * MIB)), "take 0 1 2");
        assert_eq!(guest.ask("drop"), "drop 0");
        assert_eq!(guest.ask("spill"), "spill 0");
    }
    guest.finish().silently();
    let told = told_of_refusals(&daemon, limited, "limited");
    assert_eq!(told, [] as [&str; 0]);
}

#[test]
fn what_the_limit_refuses_although_the_cache_was_freed_is_told_once() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let limited = daemon.tenant("limited", &LIMITED);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut guest = with_torch(&limited, &folder, "");
    assert_eq!(guest.ask(&take(300 * MIB)), "take 0 0 0");
    caches(&mut guest);
    assert_eq!(guest.ask(&take(800 * MIB)), "take 2 2 2");
    guest.finish().silently();
    let told = told_of_refusals(&daemon, limited, "limited");
    let is_one = |text: &String| text.starts_with("an allocation was refused (of 800 MiB");
    assert!(told.len() == 1 && is_one(&told[0]), "{told:?}");
}

#[test]
fn a_refusal_at_the_limit_that_is_not_asked_again_is_told() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let limited = daemon.tenant("limited", &LIMITED);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut guest = with_torch(&limited, &folder, "");
    caches(&mut guest);
    // By a library that has no cache, in a size that PyTorch's might have. Then the process ends.
    assert_eq!(guest.ask(&format!("plain {}", 800 * MIB)), "plain 2");
    guest.finish().silently();
    let told = told_of_refusals(&daemon, limited, "limited");
    assert_eq!(told.len(), 1, "{told:?}");
}

/// The client with PyTorch's allocator loaded, these settings of it, and its context created.
fn with_torch(tenant: &Tenant, folder: &tempfile::TempDir, settings: &str) -> Guest {
    let mut command = tenant.command(&clients::compile("caching", &[]));
    command.arg(torch(folder));
    command.env("PYTORCH_CUDA_ALLOC_CONF", settings);
    Guest::start(command).started()
}

/// An empty library with PyTorch's name.
fn torch(folder: &tempfile::TempDir) -> PathBuf {
    let library = folder.path().join("libc10_cuda.so");
    let source = artefacts::repository().join("tests/clients/nothing.c");
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    assert!(built.expect("cc is installed").success());
    library
}

#[test]
fn a_process_without_a_cache_never_gets_an_early_refusal() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let (bursts, fills) = (
        daemon.tenant("bursts", &BURSTS),
        daemon.tenant("fills", &FILLS),
    );
    let mut guest = bursts.client("quota", &[]).started();
    assert_eq!(guest.ask(&format!("alloc {}", 64 * MIB)), "alloc 0");
    // It runs out of memory, frees, and asks for another size than before: this is no cache.
    assert_eq!(guest.ask(&format!("alloc {}", 1_u64 << 40)), "alloc 2");
    assert_eq!(guest.ask("free 1"), "free 0");
    for bytes in [1024 * MIB, 2048 * MIB] {
        let holder = filled(&fills);
        guest.send(&format!("alloc {bytes}"));
        daemon.until_one_waits("bursts");
        holder.finish().silently();
        assert_eq!(guest.line(), "alloc 0");
        assert_eq!(guest.ask("free 1"), "free 0");
    }
    guest.finish().silently();
}

#[test]
fn a_cache_never_seen_freed_causes_no_early_refusal() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::start(&gpu);
    let (bursts, fills) = (
        daemon.tenant("bursts", &BURSTS),
        daemon.tenant("fills", &FILLS),
    );
    let mut guest = bursts.client("caching", &[]).started();
    caches(&mut guest);
    let holder = filled(&fills);
    guest.send(&take(400 * MIB));
    daemon.until_one_waits("bursts");
    holder.finish().silently();
    assert_eq!(guest.line(), "take 0 0 0");
    guest.finish().silently();
}

/// A page of PyTorch's expandable segments for large allocations.
const PAGE: u64 = 20 * MIB;
/// The setting that makes PyTorch use them.
const EXPANDABLE: &str = "expandable_segments:True";

fn segment(pages: u64) -> String {
    format!("segment {pages} {PAGE}")
}

/// A tenant that may burst into all of the device and one that fills it, the first one's program
/// with PyTorch's allocator and 512 MiB in its cache.
struct Scene {
    bursts: Tenant,
    fills: Tenant,
    guest: Guest,
    daemon: Daemon,
    _gpu: Gpu,
    _folder: tempfile::TempDir,
}

impl Scene {
    /// With expandable segments.
    fn expandable() -> Self {
        Self::with(EXPANDABLE)
    }

    fn with(settings: &str) -> Self {
        let gpu = Gpu::new(DEVICE);
        let daemon = Daemon::start(&gpu);
        let (bursts, fills) = (
            daemon.tenant("bursts", &BURSTS),
            daemon.tenant("fills", &FILLS),
        );
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut guest = with_torch(&bursts, &folder, settings);
        caches(&mut guest);
        Self {
            bursts,
            fills,
            guest,
            daemon,
            _gpu: gpu,
            _folder: folder,
        }
    }

    /// A request that has to wait until the neighbour has gone, and its answer.
    fn waits(&mut self, request: &str) -> String {
        let holder = filled(&self.fills);
        self.guest.send(request);
        self.daemon.until_one_waits("bursts");
        holder.finish().silently();
        self.guest.line()
    }
}

#[test]
fn all_pages_of_a_segment_that_is_made_again_may_wait() {
    let mut scene = Scene::expandable();
    // The cache is enough for 25 pages, so it is a later one that has to wait.
    assert_eq!(scene.waits(&segment(40)), "segment 0 1 2");
    scene.guest.finish().silently();
}

#[test]
fn a_segment_that_the_cache_is_enough_for_does_not_wait() {
    let mut scene = Scene::expandable();
    let _holder = filled(&scene.fills);
    assert_eq!(scene.guest.ask(&segment(20)), "segment 0 1 2");
    assert!(!has_waited(&scene.daemon, "bursts"));
    scene.guest.finish().silently();
}

#[test]
fn the_segment_after_one_that_waited_asks_for_the_cache_again() {
    let mut scene = Scene::expandable();
    assert_eq!(scene.waits(&segment(40)), "segment 0 1 2");
    caches(&mut scene.guest);
    let _holder = filled(&scene.fills);
    assert_eq!(scene.guest.ask(&segment(20)), "segment 0 1 2");
    scene.guest.finish().silently();
}

#[test]
fn beside_pytorch_what_cannot_be_its_allocators_waits_at_once() {
    let mut scene = Scene::with("");
    let requests = [
        ("create", 400 * MIB),
        ("plain", 401 * MIB),
        // As NCCL makes nearly all of its memory, and as vLLM makes a buffer for all-reduce.
        ("create", 2 * MIB),
        ("plain", 8 * MIB),
        // PyTorch has no such pages unless a setting says so.
        ("create", PAGE),
    ];
    for (call, bytes) in requests {
        let answer = scene.waits(&format!("{call} {bytes}"));
        assert_eq!(answer, format!("{call} 0"), "{bytes}");
    }
    scene.guest.finish().silently();
}

#[test]
fn beside_expandable_segments_a_page_of_nccls_waits_at_once() {
    let mut scene = Scene::expandable();
    let answer = scene.waits(&format!("create {}", 2 * MIB));
    assert_eq!(answer, "create 0");
    scene.guest.finish().silently();
}

#[test]
fn pages_of_a_set_size_are_pytorchs_and_others_are_not() {
    let mut scene = Scene::with("expandable_segments:True,large_segment_size_mb:12");
    let answer = scene.waits(&format!("create {PAGE}"));
    assert_eq!(answer, "create 0");
    let _holder = filled(&scene.fills);
    let answer = scene.guest.ask(&format!("segment 30 {}", 12 * MIB));
    assert_eq!(answer, "segment 0 1 2");
    scene.guest.finish().silently();
}

#[test]
fn an_early_refusal_that_is_the_end_for_its_program_is_told() {
    let mut scene = Scene::expandable();
    let _holder = filled(&scene.fills);
    assert_eq!(scene.guest.ask(&format!("create {PAGE}")), "create 2");
    scene.guest.finish().silently();
    let told = told_of_refusals(&scene.daemon, scene.bursts, "bursts");
    assert!(
        told.len() == 1 && told[0].starts_with("an allocation was refused (of 20 MiB, to process "),
        "{told:?}"
    );
}

#[test]
fn a_thread_that_did_not_ask_again_is_not_refused_early_again() {
    let mut scene = Scene::expandable();
    let holder = filled(&scene.fills);
    assert_eq!(scene.guest.ask(&format!("create {PAGE}")), "create 2");
    holder.finish().silently();
    assert_eq!(scene.guest.ask("plain 512"), "plain 0");
    assert_eq!(scene.guest.ask("spill"), "spill 0");
    assert_eq!(scene.waits(&format!("create {PAGE}")), "create 0");
    scene.guest.finish().silently();
}
