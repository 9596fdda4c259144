//! Marks of the gate's in a real program's streams: they make no stream wait for another, and
//! nothing is called drained while work runs that they do not stand behind, whatever streams it is
//! in. Under turns that a test deals.

use gpushare_protocol::wire::Request;
use gpushare_tests::{Dealer, Gpu, Guest, clients, until};

const MS: u64 = 1_000_000;
/// `SOFTGPU_FAIL` that takes away what drivers before 12.5 do not have.
const OLDER: &str = "cuCtxRecordEvent:*:CUDA_ERROR_NOT_SUPPORTED";
/// What drivers there are, by `SOFTGPU_FAIL`.
const DRIVERS: [&str; 2] = ["", OLDER];

struct Scene {
    gpu: Gpu,
    dealer: Dealer,
    guest: Guest,
    log: tempfile::NamedTempFile,
}

impl Scene {
    /// A program on a driver with these faults, its turn free.
    fn new(faults: &str) -> Self {
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

    /// From now on every launch passes a gate that is not free.
    #[track_caller]
    fn binds(&self) {
        self.dealer.close(99);
        self.drains(99);
    }

    /// Closes `epoch` and waits until a launch in `stream` waits. Returns the reports until then.
    #[track_caller]
    fn closes(&mut self, epoch: u64, stream: u32) -> Vec<Request> {
        let wanted = Request::Wanted { column: 0, epoch };
        self.dealer.close(epoch);
        let post = format!("post {stream} 1000");
        self.does(&[&post]);
        let mut said = Vec::new();
        until("a launch waits", || {
            if self.guest.ask("posted") == "posted 1" {
                // It came before the close.
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

    /// Lines of the log that say that something runs which cannot be followed.
    fn complaints(&self) -> usize {
        let log = std::fs::read_to_string(self.log.path()).expect("text");
        log.lines()
            .filter(|line| line.contains("cannot be followed"))
            .count()
    }

    fn ends(self) {
        self.guest.finish().silently();
    }
}

fn drained(epoch: u64) -> Request {
    Request::Drained { column: 0, epoch }
}

/// Two streams, one of which waits for a value that the other writes later, at a first close.
#[track_caller]
fn a_stream_that_waits_for_another_is_let_go(faults: &str, flags: [u32; 2], other: u32) {
    let mut scene = Scene::new(faults);
    scene.does(&[
        &format!("make 1 {}", flags[0]),
        &format!("make 2 {}", flags[1]),
        "await 1",
    ]);
    scene.dealer.open(1);
    // The marks are recorded just after the close, before the many queries meanwhile.
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
        // The mark belongs behind an unmeasured kernel; another kernel is behind it when the gate
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

/// What `work` puts on the device, some 100 ms, is over when the turn is called drained. `first`
/// comes before.
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
fn work_in_a_stream_nobody_saw_made_is_done_before_drained_is_said() {
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
fn work_is_done_before_drained_is_said_though_its_context_was_released() {
    for faults in DRIVERS {
        for bound in [true, false] {
            let work = [&format!("launch 1 {WORK}"), "release"];
            is_waited_for(faults, &["make 1 1"], bound, &work);
        }
    }
}

/// A turn ends, and the next begins, while a stream captures.
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
    // They run side by side.
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
fn what_cannot_be_marked_is_never_called_drained_and_is_said_once() {
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

#[test]
fn an_error_that_passes_delays_what_is_drained_and_hides_nothing() {
    for nth in 1..4 {
        let faults = format!("{OLDER},cuEventRecord:{nth}:CUDA_ERROR_UNKNOWN");
        is_waited_for(&faults, &["make 1 1"], true, &[&format!("launch 1 {WORK}")]);
    }
}

#[test]
fn what_no_event_follows_is_followed_by_one_of_the_whole_context() {
    let faults = "cuEventRecord:*:CUDA_ERROR_INVALID_VALUE";
    is_waited_for(faults, &["make 1 1"], true, &[&format!("launch 1 {WORK}")]);
}
