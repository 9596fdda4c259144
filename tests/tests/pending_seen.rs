//! Work that the program itself finds complete is known to be complete without a completion event:
//! through events, queries, synchronous copies. Unfinished work is never taken for complete. The
//! test publishes the turns.
//!
//! Each scene makes completion events useless: its stream waits for a value, and an event recorded
//! after the wait does not complete.

use gpushare_tests::moves::Scene;
use gpushare_tests::until;

/// Checks that the kernel is known to be complete although a completion event would not show it.
#[track_caller]
fn is_known(stream: u32, before: &[&str], then: impl FnOnce(&mut Scene), after: &[&str]) {
    let mut scene = Scene::measured("");
    scene.does(&[&format!("launch {stream} 1000")]);
    scene.does(before);
    then(&mut scene);
    scene.does(after);
    scene.dealer.close(1);
    scene.drains(1);
    let ask = format!("ask {stream}");
    assert_eq!(scene.guest.ask(&ask), "ask 600", "it waits for a value");
    ends(scene, stream);
}

/// Checks that the program's calls do not show the kernel as complete. Where it can, the kernel
/// itself waits for the value: no event of the library's own can have completed behind it.
#[track_caller]
fn is_not_known(stream: u32, lines: &[&str]) {
    is_not_known_after(&[], stream, lines);
}

/// The same after commands that the program did while nothing bound.
#[track_caller]
fn is_not_known_after(before: &[&str], stream: u32, lines: &[&str]) {
    is_not_known_on("", before, stream, lines);
}

/// The same on a softgpu with this SPEC.
#[track_caller]
fn is_not_known_on(spec: &str, before: &[&str], stream: u32, lines: &[&str]) {
    let mut scene = Scene::measured_after(spec, before);
    scene.does(lines);
    scene.dealer.close(1);
    scene.is_not_drained(1, &format!("ask {stream}"));
    scene.does(&["write 3"]);
    scene.drains(1);
    ends(scene, stream);
}

#[track_caller]
fn ends(mut scene: Scene, stream: u32) {
    scene.does(&["write 3"]);
    let ask = format!("ask {stream}");
    until("the stream is done", || scene.guest.ask(&ask) == "ask 0");
    scene.guest.finish().silently();
}

fn nothing(_: &mut Scene) {}

fn finds(scene: &mut Scene, line: &str) {
    until("it is complete", || scene.guest.ask(line).ends_with(" 0"));
}

#[test]
fn work_before_an_event_that_was_waited_for_is_known_to_be_complete() {
    for stream in [1, 2] {
        let record = format!("record 0 {stream}");
        let later = format!("await {stream}");
        is_known(stream, &[&record, &later, "sync 0"], nothing, &[]);
    }
}

#[test]
fn work_behind_an_event_that_was_waited_for_is_not_known_to_be_complete() {
    is_not_known(2, &["record 0 2", "await 2", "launch 2 1000", "sync 0"]);
}

#[test]
fn work_beside_an_event_that_was_waited_for_is_not_known_to_be_complete() {
    is_not_known(2, &["await 2", "launch 2 1000", "record 0 1", "sync 0"]);
}

#[test]
fn an_event_that_was_recorded_again_tells_of_its_last_recording_only() {
    let lines = [
        "await 2",
        "launch 2 1000",
        "record 0 2",
        "record 0 1",
        "sync 0",
    ];
    is_not_known(2, &lines);
}

#[test]
fn an_event_that_a_graph_records_tells_nothing_of_where_it_was_before() {
    for node in ["noded 0", "noded2 0", "external 0 3"] {
        let lines = [
            "await 2",
            "launch 2 1000",
            "record 0 2",
            node,
            "graph 1",
            "wait 1",
            "sync 0",
        ];
        is_not_known(2, &lines);
    }
}

#[test]
fn an_event_of_a_graph_captured_while_nothing_bound_tells_nothing() {
    for node in ["noded 0", "external 0 3"] {
        let lines = [
            "await 2",
            "launch 2 1000",
            "record 0 2",
            "graph 1",
            "wait 1",
            "sync 0",
        ];
        is_not_known_after(&[node], 2, &lines);
    }
}

#[test]
fn an_event_that_a_launch_records_tells_nothing_of_where_it_was_before() {
    for launch in ["ends 0 1", "means 0 1"] {
        let lines = ["await 2", "launch 2 1000", "record 0 2", launch, "sync 0"];
        is_not_known(2, &lines);
    }
}

#[test]
fn work_before_an_event_that_is_found_passed_is_known_to_be_complete() {
    is_known(
        2,
        &["record 0 2", "await 2"],
        |scene| finds(scene, "query 0"),
        &[],
    );
}

#[test]
fn an_event_that_is_not_passed_tells_nothing() {
    let mut scene = Scene::measured("");
    scene.does(&["await 2", "launch 2 1000", "record 0 2"]);
    assert_eq!(scene.guest.ask("query 0"), "query 600");
    scene.dealer.close(1);
    scene.is_not_drained(1, "query 0");
    scene.does(&["write 3"]);
    scene.drains(1);
    ends(scene, 2);
}

#[test]
fn work_of_a_stream_that_is_found_idle_is_known_to_be_complete() {
    is_known(2, &[], |scene| finds(scene, "ask 2"), &["await 2"]);
}

#[test]
fn an_idle_stream_tells_nothing_of_another() {
    is_not_known(2, &["await 2", "launch 2 1000", "ask 1"]);
}

#[test]
fn a_synchronous_copy_to_the_host_completes_the_work_of_blocking_streams() {
    is_known(1, &["downnow 4096"], nothing, &["await 1"]);
}

#[test]
fn a_large_synchronous_copy_from_the_host_does_so_and_a_small_one_not() {
    is_known(1, &["upnow 131072"], nothing, &["await 1"]);
    // A driver may send it along; the one that was recorded waits.
    let lines = ["await 1", "launch 1 1000", "upnow 4096"];
    is_not_known_on("upload=along", &[], 1, &lines);
}

#[test]
fn a_synchronous_copy_tells_nothing_of_a_stream_that_does_not_block() {
    is_not_known(2, &["await 2", "launch 2 1000", "downnow 4096"]);
}

#[test]
fn a_copy_within_the_device_waits_for_nothing_and_tells_nothing() {
    is_not_known(1, &["await 1", "launch 1 1000", "withinnow 4096"]);
}
