//! A primary context that one thread releases for the last time, and that another thread retains
//! again meanwhile: the new context has the old one's handle.

use std::fs;

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::Request;
use gpushare_tests::threads::{until_first_thread_waits, until_thread_waits};
use gpushare_tests::{Dealer, Gpu, Guest, MIB, clients, links, until};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// A kernel that does not end while a test runs (ns).
const ENDLESS: u64 = 600_000 * MS;

/// A program whose memory may move. Calls of `function` wait while the file exists.
fn holding(dealer: &mut Dealer, function: &str) -> (Guest, tempfile::TempPath) {
    dealer.swaps();
    let file = tempfile::NamedTempFile::new()
        .expect("a file")
        .into_temp_path();
    let mut command = dealer.command(&clients::compile("turns", &[]));
    command
        .env("LD_LIBRARY_PATH", links())
        .env("SOFTGPU_HOLD", format!("{function}:{}", file.display()));
    (Guest::start(command), file)
}

/// Whether a call waits.
fn is_held(file: &tempfile::TempPath) -> bool {
    fs::metadata(file).expect("a file").len() > 0
}

#[test]
fn work_in_a_new_context_outlives_the_end_of_the_old_one() {
    let gpu = Gpu::new("mem=1GiB");
    let mut dealer = Dealer::start(&gpu);
    let (mut guest, file) = holding(&mut dealer, "cuMemUnmap");
    guest.does("init");
    dealer.open(1);
    guest.does("launch 3 1000");
    dealer.close(1);
    let (device_index, epoch) = (0, 1);
    let drained = Request::Drained {
        device_index,
        epoch,
    };
    // From here on all work is the library's own account.
    dealer.hears(&drained);
    dealer.open(2);
    guest.does(&format!("keep {}", 64 * MIB));
    guest.does("leaving");
    until("the old context's memory is given back", || is_held(&file));
    guest.does("init");
    guest.does(&format!("launch 1 {ENDLESS}"));
    drop(file);
    until("the old context is left", || guest.ask("left") == "left 1");
    dealer.close(2);
    let post = format!("post {}", 50 * US);
    guest.does(&post);
    let mut said = Vec::new();
    until("a launch waits", || {
        if guest.ask("posted") == "posted 1" {
            // The launch came before the close.
            guest.does(&post);
        }
        said.extend(dealer.said());
        let (device_index, epoch) = (0, 2);
        said.contains(&Request::Wanted {
            device_index,
            epoch,
        })
    });
    assert_eq!(guest.ask("query 1"), "query 600");
    said.extend(dealer.said());
    let drained = |said: &Request| matches!(said, Request::Drained { .. });
    assert!(!said.iter().any(drained), "{said:?}");
    guest.kill();
}

#[test]
fn a_retain_waits_for_a_release_that_the_driver_has_begun() {
    let gpu = Gpu::new("mem=1GiB");
    let mut dealer = Dealer::start(&gpu);
    let (mut guest, file) = holding(&mut dealer, "cuDevicePrimaryCtxRelease_v2");
    dealer.open(1);
    guest.does("init");
    guest.does(&format!("keep {}", 64 * MIB));
    guest.does("leaving");
    until("the driver releases", || is_held(&file));
    guest.send("init");
    let name = fs::read_to_string(format!("/proc/{}/comm", guest.id())).expect("it lives");
    until_thread_waits(guest.id(), name.trim());
    drop(file);
    assert_eq!(guest.line(), "init 0");
    until("it is released", || guest.ask("left") == "left 1");
    guest.does(&format!("launch 1 {MS}"));
    guest.does("sync 1");
    let line = dealer.usage().line(0, 0).expect("the first slot");
    let charged = u64::from(line.word.load().charged) * gpushare_protocol::page::UNIT;
    assert_eq!(charged, 0, "the context ended before it was retained");
    guest.finish().silently();
}

#[test]
fn a_release_that_waits_for_its_turn_keeps_no_memory_from_leaving() {
    let mut dealer = Dealer::start(&Gpu::new("mem=1GiB"));
    dealer.swaps();
    // Less than a release waits for a turn.
    dealer.drains_within(15_000);
    let file = tempfile::NamedTempFile::new()
        .expect("a file")
        .into_temp_path();
    let mut command = dealer.command(&clients::compile("contexts", &[]));
    let held = format!("cuDevicePrimaryCtxRetain:{}", file.display());
    command
        .env("LD_LIBRARY_PATH", links())
        .env("SOFTGPU_HOLD", held);
    let mut guest = Guest::start(command);
    guest.does("init");
    guest.does(&format!("alloc {}", 64 * MIB));
    guest.does("start 1");
    until("a thread retains", || is_held(&file));
    guest.send("release");
    until_first_thread_waits(guest.id());
    dealer.order(1, Order::Leave);
    let is_away = dealer.hears_some(|said| match said {
        Request::Away { .. } => Some(true),
        Request::SealBusy { .. } => Some(false),
        _ => None,
    });
    assert!(is_away, "the release waits for the retain, which waits");
    drop(file);
    dealer.order(2, Order::Return);
    assert_eq!(guest.line(), "release 0");
    guest.does("join");
    guest.does("destroy 1");
    guest.finish().silently();
}
