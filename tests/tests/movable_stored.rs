//! A daemon that stores memory of the host in a file answers late: what the program has changed
//! meanwhile stays in memory, and what it gives up goes back.

use std::time::Duration;

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::{Request, Spot, Stored};
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::{MIB, until};

const SPEC: &str = "mem=256MiB,ctx=8MiB";
/// Less than the smallest range that is given.
const PART: u64 = 16 * MIB;

/// The next message about a range that the process gives up, or keeps.
#[track_caller]
fn decides(scene: &Scene) -> Request {
    scene.dealer.hears_some(|said| match said {
        Request::HostDrop { .. } | Request::HostForget(_) => Some(said.clone()),
        _ => None,
    })
}

/// The daemon is asked to store a range, and does not answer yet.
#[track_caller]
fn is_asked(scene: &Scene) {
    scene.dealer.spills(1);
    let is_question = |said: &Request| matches!(said, Request::HostStore { .. }).then_some(());
    scene.dealer.hears_some(is_question);
    scene.dealer.spills(0);
}

#[track_caller]
fn keeps_what_was_stored_late(scene: &Scene) {
    scene.dealer.store().answers();
    let decision = decides(scene);
    assert!(matches!(decision, Request::HostForget(_)), "{decision:?}");
}

#[test]
fn memory_that_changed_while_it_was_stored_stays_on_the_host() {
    let mut scene = Scene::new(SPEC);
    scene.does(&[&format!("alloc 0 {PART}"), "fill 0 1"]);
    scene.provided(PART);
    scene.leaves();
    is_asked(&scene);
    scene.waits_for_return("fill 0 2");
    scene.leaves();
    keeps_what_was_stored_late(&scene);
    scene.returns();
    scene.guest.answers("check 0 2", "0");
    scene.guest.finish().silently();
}

#[test]
fn memory_that_came_to_a_range_while_it_was_stored_stays_there() {
    let mut scene = Scene::on_two("mem=256MiB,ctx=8MiB,count=2");
    scene.does(&["second", &format!("alloc 0 {PART}"), "fill 0 1"]);
    scene.does(&[&format!("there 1 {PART}"), "fill 1 2"]);
    scene.provided(2 * PART);
    let leaves = |device: u8| {
        scene.dealer.order_on(device.into(), 1, Order::Leave);
        scene.dealer.hears_some(|said| match said {
            Request::Away { device_index, .. } => (*device_index == device).then_some(()),
            _ => None,
        });
    };
    leaves(0);
    is_asked(&scene);
    leaves(1);
    keeps_what_was_stored_late(&scene);
    for device_index in [0, 1] {
        scene.dealer.order_on(device_index, 2, Order::Return);
    }
    scene.guest.answers("check 0 1", "0");
    scene.guest.answers("check 1 2", "0");
    scene.guest.finish().silently();
}

/// A program whose memory is in a file.
#[track_caller]
fn stored() -> Scene {
    let mut scene = Scene::new(SPEC);
    scene.does(&[&format!("alloc 0 {PART}"), "fill 0 1"]);
    scene.provided(PART);
    scene.leaves();
    is_asked(&scene);
    scene.dealer.store().answers();
    let decision = decides(&scene);
    assert!(matches!(decision, Request::HostDrop { .. }), "{decision:?}");
    scene
}

/// It is to return, and asks for what is in the file.
#[track_caller]
fn fetches(scene: &mut Scene) {
    scene.epoch += 1;
    scene.dealer.order(scene.epoch, Order::Return);
    let is_question = |said: &Request| matches!(said, Request::HostFetch(_)).then_some(());
    scene.dealer.hears_some(is_question);
}

#[track_caller]
fn comes_back(mut scene: Scene) {
    fetches(&mut scene);
    scene.dealer.store().answers();
    assert_eq!(scene.outcome(), Outcome::Back);
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

#[test]
fn stored_memory_comes_back_from_the_file() {
    comes_back(stored());
}

#[test]
fn a_process_that_has_nothing_in_a_file_any_more_says_so() {
    let mut scene = stored();
    fetches(&mut scene);
    scene.dealer.store().answers();
    let all = Request::HostForget(Stored::all_of(1));
    scene.dealer.hears(&all);
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

/// The next question about a range in a file, or that all is back, whichever comes first.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Fetches(Stored),
    Back,
}

#[track_caller]
fn next(scene: &Scene) -> Said {
    scene.dealer.hears_some(|said| match said {
        Request::HostFetch(stored) => Some(Said::Fetches(*stored)),
        Request::Back { .. } => Some(Said::Back),
        _ => None,
    })
}

/// A return that waits for the daemon is taken back.
#[track_caller]
fn is_taken_back(scene: &mut Scene) {
    let outcome = scene.ordered(Order::Leave);
    assert!(matches!(outcome, Outcome::Away(_)), "{outcome:?}");
    until("its memory is off the device", || scene.on_device() == 0);
}

#[track_caller]
fn is_to_return(scene: &mut Scene) {
    scene.epoch += 1;
    scene.dealer.order(scene.epoch, Order::Return);
}

/// A disk may take longer than a return is waited for.
#[test]
fn a_return_waits_for_what_the_one_before_asked_for() {
    let mut scene = stored();
    fetches(&mut scene);
    is_taken_back(&mut scene);
    is_to_return(&mut scene);
    until("the return has begun", || scene.on_device() == PART);
    scene.dealer.store().answers();
    assert_eq!(next(&scene), Said::Back);
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

#[test]
fn memory_that_comes_for_a_return_that_was_taken_back_is_dropped() {
    let mut scene = stored();
    fetches(&mut scene);
    is_taken_back(&mut scene);
    let offset = scene.dealer.store().given() - scene.dealer.store().ranges()[0];
    scene.dealer.store().answers();
    let decision = decides(&scene);
    let bytes = scene.dealer.store().ranges()[0];
    assert_eq!(decision, Request::HostDrop { offset, bytes });
    comes_back(scene);
}

/// A program whose memory is in two ranges, both in a file, and where each of them lies there.
#[track_caller]
fn stored_in_two() -> (Scene, [Stored; 2]) {
    let mut scene = Scene::new(SPEC);
    scene.dealer.store().shortens(PART);
    for slot in [0, 1] {
        scene.does(&[
            &format!("alloc {slot} {PART}"),
            &format!("fill {slot} {slot}"),
        ]);
    }
    scene.provided(2 * PART);
    scene.leaves();
    scene.dealer.spills(1);
    for _ in [0, 1] {
        let is_question = |said: &Request| matches!(said, Request::HostStore { .. }).then_some(());
        scene.dealer.hears_some(is_question);
        scene.dealer.store().answers();
        let decision = decides(&scene);
        assert!(matches!(decision, Request::HostDrop { .. }), "{decision:?}");
    }
    scene.dealer.spills(0);
    let places = [0, PART].map(|at| Stored {
        file: 1,
        at,
        bytes: PART,
        sum: 0,
    });
    (scene, places)
}

#[track_caller]
fn has_both(mut scene: Scene) {
    for slot in [0, 1] {
        scene.guest.answers(&format!("check {slot} {slot}"), "0");
    }
    scene.guest.finish().silently();
}

#[test]
fn a_return_that_waits_for_a_range_keeps_what_it_copied_before() {
    let (mut scene, [first, second]) = stored_in_two();
    is_to_return(&mut scene);
    for range in [first, second] {
        assert_eq!(next(&scene), Said::Fetches(range));
        // The daemon gives the order again, as it does where nothing is said for long.
        is_to_return(&mut scene);
        scene.dealer.store().answers();
    }
    assert_eq!(next(&scene), Said::Back);
    has_both(scene);
}

/// The daemon counts what it gives until it is dropped.
#[test]
fn memory_that_is_fetched_for_a_question_of_before_is_dropped() {
    let (mut scene, [first, second]) = stored_in_two();
    is_to_return(&mut scene);
    assert_eq!(next(&scene), Said::Fetches(first));
    scene.dealer.store().answers();
    assert_eq!(next(&scene), Said::Fetches(second));
    let late = scene.dealer.store().given() - PART;
    is_taken_back(&mut scene);
    is_to_return(&mut scene);
    assert_eq!(next(&scene), Said::Fetches(first));
    scene.dealer.store().answers();
    let is_drop = |said: &Request| match said {
        Request::HostDrop { offset, .. } => (*offset == late).then_some(()),
        _ => None,
    };
    scene.dealer.hears_some(is_drop);
    assert_eq!(next(&scene), Said::Fetches(second));
    scene.dealer.store().answers();
    assert_eq!(next(&scene), Said::Back);
    has_both(scene);
}

/// A range of which the driver does not let go stays in memory: it is not stored again and again,
/// until the daemon asks anew.
#[test]
fn memory_that_stays_pinned_is_stored_once_for_each_request() {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let environment = [
        ("SOFTGPU_TRACE", trace.path().to_str().expect("a name")),
        ("SOFTGPU_FAIL", "cuMemHostUnregister:1:CUDA_ERROR_UNKNOWN"),
    ];
    let mut scene = Scene::with(SPEC, "init", &environment);
    scene.does(&[&format!("alloc 0 {PART}"), "fill 0 1"]);
    until("host memory is pinned", || {
        let text = std::fs::read_to_string(trace.path()).expect("readable");
        text.contains("cuMemHostRegister")
    });
    scene.leaves();
    let is_question = |said: &Request| matches!(said, Request::HostStore { .. });
    let hears_question = |scene: &Scene| {
        let question = |said: &Request| is_question(said).then_some(());
        scene.dealer.hears_some(question);
    };
    scene.dealer.spills(1);
    hears_question(&scene);
    keeps_what_was_stored_late(&scene);
    // Nothing can be awaited that must not happen. A question would come before what a call says.
    std::thread::sleep(Duration::from_millis(100));
    scene.guest.send("check 0 1");
    let mut said = Vec::new();
    until("the call waits", || {
        said.extend(scene.dealer.said());
        said.contains(&Request::WantIn { device_index: 0 })
    });
    assert!(!said.iter().any(is_question), "{said:?}");
    scene.dealer.spills(2);
    hears_question(&scene);
    scene.dealer.store().answers();
    let decision = decides(&scene);
    assert!(matches!(decision, Request::HostDrop { .. }), "{decision:?}");
    scene.dealer.spills(0);
    fetches(&mut scene);
    scene.dealer.store().answers();
    assert_eq!(scene.outcome(), Outcome::Back);
    assert_eq!(scene.guest.line(), "check 0");
    scene.guest.finish().silently();
}

#[test]
fn host_memory_that_cannot_be_mapped_is_given_back_and_asked_for_again() {
    let mut scene = Scene::new(SPEC);
    scene.dealer.store().misplaces_next();
    scene.does(&[&format!("alloc 0 {PART}"), "fill 0 1"]);
    let decision = decides(&scene);
    assert!(matches!(decision, Request::HostDrop { .. }), "{decision:?}");
    goes_and_comes(scene);
}

/// A second range serves.
#[track_caller]
fn goes_and_comes(mut scene: Scene) {
    scene.provided(2 * scene.dealer.store().ranges()[0]);
    scene.leaves();
    scene.returns();
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

#[test]
fn memory_that_is_fetched_and_cannot_be_mapped_is_given_back() {
    let mut scene = stored();
    scene.dealer.store().misplaces_next();
    fetches(&mut scene);
    scene.dealer.store().answers();
    scene.dealer.hears_some(|said| match said {
        Request::HostDrop { .. } => Some(()),
        _ => None,
    });
    // It is asked for again at once.
    assert!(matches!(next(&scene), Said::Fetches(_)));
    scene.dealer.store().answers();
    assert_eq!(next(&scene), Said::Back);
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

/// The places of its ranges, as it says on a new connection.
#[track_caller]
fn says_what_it_has(scene: &Scene) -> Vec<Spot> {
    scene.dealer.hears_some(|said| match said {
        Request::Has { spots, .. } => Some(spots.clone()),
        _ => None,
    })
}

/// No daemon of this version does that. The next connection begins with what the process has.
#[test]
fn host_memory_that_comes_without_its_file_ends_the_connection() {
    let mut scene = Scene::new(SPEC);
    scene.dealer.store().next_comes_without_file();
    scene.does(&[&format!("alloc 0 {PART}"), "fill 0 1"]);
    assert_eq!(says_what_it_has(&scene), []);
    goes_and_comes(scene);
}

#[test]
fn memory_that_is_fetched_without_its_file_ends_the_connection() {
    let mut scene = stored();
    scene.dealer.store().next_comes_without_file();
    fetches(&mut scene);
    scene.dealer.store().answers();
    assert_eq!(says_what_it_has(&scene), [Spot { file: 1, at: 0 }]);
    comes_back(scene);
}

#[test]
fn a_process_says_on_each_new_connection_which_ranges_it_has() {
    let mut scene = Scene::new(SPEC);
    scene.does(&[&format!("alloc 0 {PART}"), "fill 0 1"]);
    scene.provided(PART);
    scene.leaves();
    scene.dealer.hangs_up();
    assert_eq!(says_what_it_has(&scene), [Spot::memory(0)]);
    is_asked(&scene);
    scene.dealer.store().answers();
    let decision = decides(&scene);
    assert!(matches!(decision, Request::HostDrop { .. }), "{decision:?}");
    scene.dealer.hangs_up();
    assert_eq!(says_what_it_has(&scene), [Spot { file: 1, at: 0 }]);
    comes_back(scene);
}

/// No daemon hears that the memory is given back.
#[test]
fn a_range_that_is_dropped_under_no_daemon_is_said_to_the_next() {
    let mut scene = Scene::new(SPEC);
    scene.does(&[&format!("alloc 0 {PART}"), "fill 0 1"]);
    scene.provided(PART);
    scene.dealer.leave();
    scene.does(&["free 0"]);
    until("the range is dropped", || {
        scene.dealer.come_back();
        let has = says_what_it_has(&scene);
        scene.dealer.leave();
        has.is_empty()
    });
    scene.dealer.come_back();
    scene.guest.finish().silently();
}
