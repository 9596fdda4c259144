//! The gate's completion events in a real program's streams. They make no stream wait for another,
//! and the library reports nothing as drained while uncovered work runs, in whatever stream. The
//! test publishes the turns.

use std::fs;
use std::path::Path;

use gpushare_protocol::wire::Request;
use gpushare_tests::moves::drained;
use gpushare_tests::{Dealer, Gpu, Guest, clients, until};

const MS: u64 = 1_000_000;
/// `SOFTGPU_FAIL` that disables the functions that drivers before 12.5 lack.
const OLDER: &str = "cuCtxRecordEvent:*:CUDA_ERROR_NOT_SUPPORTED";
/// The tested drivers, by `SOFTGPU_FAIL`.
const DRIVERS: [&str; 2] = ["", OLDER];

struct Scene {
    gpu: Gpu,
    dealer: Dealer,
    guest: Guest,
    log: tempfile::NamedTempFile,
}

impl Scene {
    /// A program on a driver with these faults, with a free lease.
    fn new(faults: &str) -> Self {
        Self::traced(faults, None)
    }

    /// The same, its driver calls written to a file.
    fn traced(faults: &str, trace: Option<&Path>) -> Self {
        let gpu = Gpu::new("");
        let dealer = Dealer::start(&gpu);
        let log = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut command = dealer.command(&clients::compile("marks", &[]));
        command
            .env("LD_LIBRARY_PATH", gpushare_tests::gpu::links())
            .env("GPUSHARE_LOG", log.path());
        if !faults.is_empty() {
            command.env("SOFTGPU_FAIL", faults);
        }
        command.envs(trace.map(|path| ("SOFTGPU_TRACE", path)));
        let mut guest = Guest::start(command);
        assert_eq!(guest.ask("init"), "init 0");
        let scene = Self {
            gpu,
            dealer,
            guest,
            log,
        };
        assert_eq!(scene.dealer.said(), []);
        scene
    }

    /// Commands that must all succeed.
    #[track_caller]
    fn does(&mut self, lines: &[&str]) {
        for line in lines {
            let word = line.split(' ').next().expect("a word");
            assert_eq!(self.guest.ask(line), format!("{word} 0"), "{line}");
        }
    }

    #[track_caller]
    fn drains(&self, epoch: u64) {
        self.dealer.hears(&drained(epoch));
    }

    #[track_caller]
    fn is_done(&mut self, stream: u32) {
        let (query, done) = (format!("query {stream}"), "query 0");
        until("the stream is done", || self.guest.ask(&query) == done);
    }

    /// From now on the lease is bounded, so every launch passes a gate that is not free.
    #[track_caller]
    fn binds(&self) {
        self.dealer.close(99);
        self.drains(99);
    }

    /// Closes `epoch` and waits until a launch in `stream` waits. Returns the reports until then.
    #[track_caller]
    fn closes(&mut self, epoch: u64, stream: u32) -> Vec<Request> {
        let wanted = Request::Wanted {
            device_index: 0,
            epoch,
        };
        self.dealer.close(epoch);
        let post = format!("post {stream} 1000");
        self.does(&[&post]);
        let mut said = Vec::new();
        until("a launch waits", || {
            if self.guest.ask("posted") == "posted 1" {
                // The launch came before the close.
                self.does(&[&post]);
            }
            said.extend(self.dealer.said());
            said.contains(&wanted)
        });
        said
    }

    #[track_caller]
    fn opens(&mut self, epoch: u64) {
        self.dealer.open(epoch);
        until("the launch goes", || self.guest.ask("posted") == "posted 1");
    }

    /// The number of log lines that report work which cannot be followed.
    fn complaints(&self) -> usize {
        let log = fs::read_to_string(self.log.path()).expect("text");
        log.lines()
            .filter(|line| line.contains("cannot be followed"))
            .count()
    }

    fn ends(self) {
        self.guest.finish().silently();
    }
}

/// At the first close, one of two streams waits for a value that the other stream writes later.
#[track_caller]
fn a_stream_that_waits_for_another_is_let_go(faults: &str, flags: [u32; 2], other: u32) {
    let mut scene = Scene::new(faults);
    scene.does(&[
        &format!("make 1 {}", flags[0]),
        &format!("make 2 {}", flags[1]),
        "await 1",
    ]);
    scene.dealer.open(1);
    // The events are recorded just after the close, before the many queries.
    let mut said = scene.closes(1, other);
    for _ in 0..200 {
        assert_eq!(scene.guest.ask("query 1"), "query 600", "it waits");
    }
    said.extend(scene.dealer.said());
    assert!(!said.contains(&drained(1)), "{said:?}");
    scene.does(&["write 2"]);
    scene.is_done(1);
    scene.drains(1);
    scene.opens(2);
    scene.ends();
}

#[test]
fn a_blocking_stream_that_waits_for_another_is_not_held_up_by_a_mark() {
    for faults in DRIVERS {
        a_stream_that_waits_for_another_is_let_go(faults, [0, 0], 1);
    }
}

#[test]
fn streams_that_do_not_block_are_not_held_up_by_marks_either() {
    for faults in DRIVERS {
        a_stream_that_waits_for_another_is_let_go(faults, [1, 1], 1);
        a_stream_that_waits_for_another_is_let_go(faults, [0, 1], 2);
    }
}

#[test]
fn a_mark_behind_the_legacy_streams_own_work_holds_no_stream_up() {
    for faults in DRIVERS {
        let mut scene = Scene::new(faults);
        scene.dealer.open(1);
        // The event belongs after an unmeasured kernel; another kernel follows it when the gate
        // closes.
        scene.does(&["make 1 0", "make 2 0", "launch 0 1000"]);
        scene.is_done(0);
        scene.does(&["await 1"]);
        let _ = scene.closes(1, 2);
        scene.does(&["write 2"]);
        scene.is_done(1);
        scene.opens(2);
        scene.ends();
    }
}

/// Streams that the library makes for its events behind work of the legacy stream, in a program
/// that runs `commands` while its lease is free, and `bound` while it is not.
fn streams_made_behind_legacy_work(commands: &[&str], bound: &[&str]) -> usize {
    let trace = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut scene = Scene::traced(OLDER, Some(trace.path()));
    scene.does(commands);
    let of_program = calls(trace.path(), "cuStreamCreate").0;
    scene.binds();
    for epoch in [1, 3] {
        scene.dealer.open(epoch);
        scene.does(bound);
        scene.does(&[&format!("launch 0 {MS}")]);
        let _ = scene.closes(epoch, 0);
        scene.is_done(0);
        scene.opens(epoch + 1);
    }
    scene.ends();
    calls(trace.path(), "cuStreamCreate").0 - of_program
}

/// A stream of ours behind it would be waited for by its next work: the device could go to another
/// tenant for a whole slice between two kernels of one stream.
#[test]
fn events_are_in_the_legacy_stream_while_no_stream_waits_for_it() {
    let made = streams_made_behind_legacy_work;
    assert_eq!(made(&["make 1 1"], &["launch 1 1000"]), 0, "non-blocking");
    assert_eq!(made(&["make 1 0"], &[]), 1, "blocking");
    assert_eq!(made(&["make 1 0", "destroy 1"], &[]), 1, "it may have work");
    assert_eq!(made(&["own 1000"], &[]), 1, "a thread's own");
    assert_eq!(made(&[], &["own 1000"]), 1, "a thread's own, later");
    assert_eq!(made(&["hidden 1"], &["launch 1 1000"]), 1, "made unseen");
}

/// Checks that `work`, some 100 ms on the device, is complete when the turn is reported as drained.
/// `first` runs before it.
#[track_caller]
fn is_waited_for(faults: &str, first: &[&str], bound: bool, work: &[&str]) {
    let mut scene = Scene::new(faults);
    scene.does(first);
    if bound {
        scene.binds();
    }
    for epoch in 1..4 {
        if bound {
            scene.dealer.open(epoch);
        } else {
            scene
                .dealer
                .deal(&gpushare_protocol::page::lease::Turn::default());
        }
        let before = scene.gpu.served();
        scene.does(work);
        scene.dealer.close(epoch);
        scene.drains(epoch);
        let served = scene.gpu.served() - before;
        assert!(served >= 100 * MS, "{served} ns at {work:?} under {faults}");
    }
    scene.guest.kill();
}

const WORK: u64 = 100 * MS;

#[test]
fn work_in_the_legacy_stream_is_done_before_it_is_called_drained() {
    for faults in DRIVERS {
        for bound in [true, false] {
            is_waited_for(faults, &[], bound, &[&format!("launch 0 {WORK}")]);
        }
    }
}

#[test]
fn work_in_a_threads_own_stream_is_done_before_it_is_called_drained() {
    let work = format!("own {WORK}");
    is_waited_for("", &[], false, &[&work]);
    for faults in DRIVERS {
        is_waited_for(faults, &[], true, &[&work]);
    }
}

#[test]
fn work_in_an_unknown_stream_completes_before_drained_is_reported() {
    let work = format!("launch 3 {WORK}");
    is_waited_for("", &["hidden 3"], false, &[&work]);
    for faults in DRIVERS {
        is_waited_for(faults, &["hidden 3"], true, &[&work]);
    }
}

#[test]
fn a_stream_seen_in_a_turn_is_known_when_nothing_binds() {
    let work = format!("launch 3 {WORK}");
    let mut scene = Scene::new(OLDER);
    scene.does(&["hidden 3"]);
    scene.binds();
    scene.dealer.open(1);
    scene.does(&["launch 3 1000"]);
    scene
        .dealer
        .deal(&gpushare_protocol::page::lease::Turn::default());
    let before = scene.gpu.served();
    scene.does(&[&work]);
    scene.dealer.close(2);
    scene.drains(2);
    assert!(scene.gpu.served() - before >= WORK);
    scene.ends();
}

#[test]
fn work_of_a_stream_that_is_destroyed_is_done_before_it_is_called_drained() {
    let work = [
        "make 1 1",
        "make 2 0",
        &format!("launch 1 {WORK}"),
        &format!("launch 2 {}", WORK / 2),
        "destroy 1",
        "destroy 2",
    ];
    for faults in DRIVERS {
        for bound in [true, false] {
            is_waited_for(faults, &[], bound, &work);
        }
    }
}

#[test]
fn work_of_a_released_context_completes_before_drained_is_reported() {
    for faults in DRIVERS {
        for bound in [true, false] {
            let work = [&format!("launch 1 {WORK}"), "release"];
            is_waited_for(faults, &["make 1 1"], bound, &work);
        }
    }
}

/// Ends a turn and begins the next while a stream captures.
#[track_caller]
fn ends_beside_a_capture(faults: &str, mode: u32, bound: bool, release: bool) {
    for longer in [2, 3] {
        ends_beside(faults, mode, bound, release, longer);
    }
}

#[track_caller]
fn ends_beside(faults: &str, mode: u32, bound: bool, release: bool, longer: u32) {
    let mut scene = Scene::new(faults);
    scene.does(&["make 1 1", "make 2 1", "make 3 1"]);
    if bound {
        scene.binds();
        scene.dealer.open(1);
    }
    let before = scene.gpu.served();
    // They run concurrently.
    scene.does(&[&format!("launch {longer} {WORK}")]);
    scene.does(&[&format!("launch {} {}", 5 - longer, WORK / 2)]);
    scene.does(&[&format!("begin 2 {mode}"), "join 2 3"]);
    if release {
        scene.does(&["release"]);
    }
    scene.does(&["launch 1 1000"]);
    for epoch in 1..4 {
        if epoch > 1 {
            scene.dealer.open(epoch);
            scene.does(&["launch 1 1000"]);
        }
        scene.dealer.close(epoch);
        scene.drains(epoch);
    }
    let served = scene.gpu.served() - before;
    assert!(served >= WORK, "{served} ns");
    scene.does(&["end 2 3"]);
    scene.ends();
}

#[test]
fn a_turn_ends_while_a_stream_captures_after_a_context_was_released() {
    for (mode, faults) in [(0, ""), (1, ""), (2, ""), (0, OLDER), (2, OLDER)] {
        for bound in [true, false] {
            ends_beside_a_capture(faults, mode, bound, true);
        }
    }
}

#[test]
fn a_turn_ends_while_a_stream_captures() {
    for faults in DRIVERS {
        for bound in [true, false] {
            ends_beside_a_capture(faults, 0, bound, false);
        }
    }
}

#[test]
fn a_turn_ends_beside_a_capture_though_a_thread_has_a_stream_of_its_own() {
    for faults in DRIVERS {
        let mut scene = Scene::new(faults);
        scene.does(&["make 1 1", "make 2 1"]);
        scene.binds();
        scene.dealer.open(1);
        scene.does(&["begin 2 0", "own 20000000"]);
        scene.dealer.close(1);
        scene.drains(1);
        scene.does(&["end 2 0"]);
        scene.guest.kill();
    }
}

#[test]
fn work_without_an_event_is_never_drained_and_is_reported_once() {
    let faults = format!("{OLDER},cuEventRecord:*:CUDA_ERROR_INVALID_VALUE");
    let mut scene = Scene::new(&faults);
    scene.does(&["make 1 1"]);
    for epoch in 1..4 {
        scene.dealer.open(epoch);
        scene.does(&[&format!("launch 1 {}", 20 * MS)]);
        let mut said = scene.closes(epoch, 1);
        scene.is_done(1);
        said.extend(scene.dealer.said());
        assert!(!said.contains(&drained(epoch)), "{said:?}");
        scene.opens(epoch + 10);
    }
    assert_eq!(scene.complaints(), 1);
    scene.ends();
}

/// The calls of a function of the driver: all of them, and those that were refused.
fn calls(trace: &Path, function: &str) -> (usize, usize) {
    let text = fs::read_to_string(trace).expect("text");
    let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let own: Vec<_> = lines.filter(|words| words[2] == function).collect();
    let refused = own.iter().filter(|words| words[3] != "0");
    (own.len(), refused.count())
}

#[test]
fn a_mark_that_the_driver_refuses_keeps_its_event() {
    for refusal in ["INVALID_VALUE", "STREAM_CAPTURE_UNSUPPORTED"] {
        let faults = format!("{OLDER},cuEventRecord:*:CUDA_ERROR_{refusal}");
        let trace = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut scene = Scene::traced(&faults, Some(trace.path()));
        scene.does(&["make 1 1"]);
        // In each turn one at least is refused, and more if no thread is held up.
        for epoch in (1..24).step_by(2) {
            scene.dealer.open(epoch);
            scene.does(&[&format!("launch 1 {}", 20 * MS)]);
            scene.closes(epoch, 1);
            scene.is_done(1);
            scene.opens(epoch + 1);
        }
        // One is the program's own; threads may put marks at the same time.
        let (made, _) = calls(trace.path(), "cuEventCreate");
        let (_, refused) = calls(trace.path(), "cuEventRecord");
        assert!(refused >= 10 && made <= 5, "{made} for {refused}");
        scene.ends();
    }
}

#[test]
fn a_transient_error_delays_drained_and_hides_no_work() {
    for nth in 1..4 {
        let faults = format!("{OLDER},cuEventRecord:{nth}:CUDA_ERROR_UNKNOWN");
        is_waited_for(&faults, &["make 1 1"], true, &[&format!("launch 1 {WORK}")]);
    }
}

#[test]
fn work_without_an_event_is_covered_by_a_context_event() {
    let faults = "cuEventRecord:*:CUDA_ERROR_INVALID_VALUE";
    is_waited_for(faults, &["make 1 1"], true, &[&format!("launch 1 {WORK}")]);
}
