//! Limits in percent under a daemon: as many equal parts as fit a GPU run on it concurrently. A
//! tenant that does not fit waits, and is told so before it starts.

use gpushare_tests::{GIB, Guest, Home, MIB};

/// A GPU of 16 GiB whose contexts take 64 MiB. Before a context is measured, 512 MiB are reserved
/// for each.
const GPU: &str = "mem=16GiB,ctx=64MiB";

fn side_by_side(percent: u64, more: &[&str]) {
    let home = Home::new(GPU);
    let limit = format!("{percent}%");
    let flags = [&["--mem-limit", &limit][..], more].concat();
    let mut guests: Vec<Guest> = (0..100 / percent)
        .map(|at| home.guest(&format!("t{at}"), &flags))
        .collect();
    for guest in &mut guests {
        // The guaranteed bytes: its part, less the contexts of all tenants.
        let bytes = (16 * GIB - 100 / percent * 512 * MIB) * percent / 100;
        assert_eq!(guest.ask(&format!("alloc {bytes}")), "alloc 0", "{limit}");
    }
    for guest in guests {
        guest.finish().silently();
    }
}

#[test]
fn two_halves_run_side_by_side() {
    side_by_side(50, &[]);
}

#[test]
fn three_thirds_run_side_by_side() {
    side_by_side(33, &[]);
}

#[test]
fn four_quarters_run_side_by_side() {
    side_by_side(25, &["--on-collision", "fail"]);
}

#[test]
fn ten_tenths_run_side_by_side() {
    side_by_side(10, &[]);
}

#[test]
fn a_whole_gpu_can_be_asked_for() {
    side_by_side(100, &[]);
}

#[test]
fn a_second_half_starts_beside_a_first_that_uses_all_of_its_limit() {
    let home = Home::new(GPU);
    let mut first = home.guest("first", &["--mem-limit", "50%"]);
    assert_eq!(first.ask(&format!("alloc {}", 8 * GIB)), "alloc 0");
    let mut second = home.guest("second", &["--mem-limit", "50%"]);
    assert_eq!(second.ask(&format!("alloc {}", 7 * GIB)), "alloc 0");
    first.finish().silently();
    second.finish().silently();
}

#[test]
fn a_second_half_that_is_requested_queues_and_says_what_to_do() {
    let home = Home::new(GPU);
    let half = ["--mem-limit", "50%", "--mem-request", "50%"];
    let first = home.guest("first", &half);
    let mut second = home.queued("second", &half);
    first.finish().silently();
    assert_eq!(second.ask("init"), "init 0");
    let told = second.finish().stderr;
    for part in [
        "second: waits until its request fits beside all others: 8 GiB and ",
        " of 16 GiB are promised",
        "--mem-request",
        "gpushare set",
        "gpushare ps",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn a_limit_that_is_set_to_a_part_makes_room_for_the_others() {
    let home = Home::new(GPU);
    let mut first = home.guest("first", &["--mem-limit", "12GiB"]);
    let mut second = home.queued("second", &["--mem-limit", "50%"]);
    let set = home.gpushare(&["set", "first", "--mem-limit", "50%"]);
    assert!(set.status.success(), "{set:?}");
    assert_eq!(second.ask("init"), "init 0");
    for guest in [&mut first, &mut second] {
        assert_eq!(guest.ask(&format!("alloc {}", 7 * GIB)), "alloc 0");
    }
}

#[test]
fn parts_of_what_a_node_allows_to_be_requested_run_side_by_side() {
    let maxima = "[maxima]\nGPUSHARE_MEM_REQUEST = \"25%\"\n";
    let home = Home::with_config(GPU, maxima);
    let mut guests: Vec<Guest> = (0..4)
        .map(|at| home.guest(&format!("t{at}"), &["--mem-limit", "50%"]))
        .collect();
    for guest in &mut guests {
        let bytes = 3 * GIB;
        assert_eq!(guest.ask(&format!("alloc {bytes}")), "alloc 0");
    }
}

#[test]
fn a_half_is_refused_the_last_of_its_limit_beside_another_half() {
    let home = Home::new(GPU);
    let half = ["--mem-limit", "50%", "--wait-timeout", "200ms"];
    let (mut first, mut second) = (home.guest("first", &half), home.guest("second", &half));
    assert_eq!(second.ask("init"), "init 0");
    assert_eq!(first.ask(&format!("alloc {}", 8 * GIB)), "alloc 2");
    assert_eq!(first.ask(&format!("alloc {}", 7 * GIB)), "alloc 0");
    first.finish().silently();
    second.finish().silently();
}
