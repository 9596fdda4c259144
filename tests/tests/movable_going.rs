//! Memory that may move, while a stream or a context goes that has work under way: neither a free
//! nor a move takes memory from that work, and no mark of ours holds a stream up. By the software
//! GPU's own trace of calls, with drivers that have `cuCtxRecordEvent` and such that do not.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gpushare_protocol::page::residency::Order;
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::threads::thread;
use gpushare_tests::until;

const SPEC: &str = "mem=1GiB,ctx=8MiB";
/// `SOFTGPU_FAIL` that disables the function that drivers before 12.5 lack.
const OLDER: &str = "cuCtxRecordEvent:*:CUDA_ERROR_NOT_SUPPORTED";
/// The tested drivers, by `SOFTGPU_FAIL`.
const DRIVERS: [&str; 2] = ["", OLDER];
/// Looks at marks after which a wait has begun.
const LOOKS: usize = 3;

/// A program that has allocated slot 0, with 2 MiB, and a word; and the trace of its calls.
struct Going {
    scene: Scene,
    trace: tempfile::NamedTempFile,
}

impl Going {
    fn on(faults: &str) -> Self {
        Self::with(faults, &[])
    }

    fn with(faults: &str, environment: &[(&str, &str)]) -> Self {
        let trace = tempfile::NamedTempFile::new().expect("a file");
        let path = trace.path().to_str().expect("text");
        let mut all = vec![("SOFTGPU_TRACE", path), ("SOFTGPU_FAIL", faults)];
        all.extend(environment);
        let mut scene = Scene::with(SPEC, "init", &all);
        scene.does(&["alloc 0 2097152", "fill 0 1", "word"]);
        scene.provided(scene.charged());
        Self { scene, trace }
    }

    fn does(&mut self, lines: &[&str]) {
        self.scene.does(lines);
    }

    /// Frees slot 0 in a thread of its own, and waits until that has looked at marks some times, or
    /// has freed it.
    #[track_caller]
    fn frees(&mut self) -> String {
        fs::write(self.trace.path(), "").expect("writable");
        self.does(&["freeing 0"]);
        let mut frees = None;
        until("the thread looks", || {
            frees = frees
                .take()
                .or_else(|| thread(self.scene.guest.id(), "frees"));
            let looked = frees.as_ref().is_some_and(|frees| self.looked(frees));
            looked || self.has_unmapped() || self.is_freed()
        });
        assert!(!self.has_unmapped(), "under running work");
        assert!(!self.is_freed(), "before the work's end");
        frees.expect("it lives")
    }

    /// Orders the memory out, and waits until the mover has looked at marks some times, or has
    /// begun.
    #[track_caller]
    fn leaves(&mut self) {
        fs::write(self.trace.path(), "").expect("writable");
        self.scene.epoch += 1;
        self.scene.dealer.order(self.scene.epoch, Order::Leave);
        let mover = self.scene.mover();
        until("the mover looks", || {
            self.looked(&mover) || self.has_unmapped()
        });
        assert!(!self.has_unmapped(), "under running work");
    }

    fn looked(&self, thread: &str) -> bool {
        let of_it = |call: &&Call| call.thread == thread && call.name == "cuEventQuery";
        calls(self.trace.path()).iter().filter(of_it).count() >= LOOKS
    }

    fn has_unmapped(&self) -> bool {
        let all = calls(self.trace.path());
        all.iter().any(|call| call.name == "cuMemUnmap")
    }

    fn is_freed(&mut self) -> bool {
        self.scene.guest.ask("freed") != "freed -1"
    }

    /// The free ends, and the program.
    #[track_caller]
    fn gets_free(mut self) {
        until("it is free", || self.is_freed());
        self.scene.guest.answers("freed", "0");
        assert!(self.has_unmapped());
        self.scene.guest.finish().silently();
    }

    /// The memory leaves now, and comes back; and the program ends.
    #[track_caller]
    fn gets_away(mut self) {
        let outcome = self.scene.outcome();
        assert!(matches!(outcome, Outcome::Away(_)), "{outcome:?}");
        self.scene.returns();
        self.scene.guest.answers("check 0 1", "0");
        self.scene.guest.finish().silently();
    }
}

/// A line of the trace.
struct Call {
    thread: String,
    name: String,
    result: String,
}

fn calls(trace: &Path) -> Vec<Call> {
    let text = fs::read_to_string(trace).expect("readable");
    let lines = text.lines().map(|line| line.split(' ').map(str::to_owned));
    lines
        .filter_map(|mut words| {
            let _process = words.next()?;
            Some(Call {
                thread: words.next()?,
                name: words.next()?,
                result: words.next()?,
            })
        })
        .collect()
}

/// A file that holds calls of a function.
fn holding(function: &str) -> (tempfile::TempPath, String) {
    let file = tempfile::NamedTempFile::new()
        .expect("a file")
        .into_temp_path();
    let hold = format!("{function}:{}", file.display());
    (file, hold)
}

#[test]
fn a_free_waits_for_a_context_that_another_thread_releases() {
    let (file, hold) = holding("cuDevicePrimaryCtxRelease");
    let mut going = Going::with("", &[("SOFTGPU_HOLD", &hold)]);
    going.does(&["make 3 1", "awaits 3", "make 4 1", "releasing"]);
    until("the driver releases", || {
        fs::metadata(&file).expect("a file").len() > 0
    });
    fs::write(going.trace.path(), "").expect("writable");
    going.does(&["freeing 0"]);
    // It asks for a fault of the context right before it waits for its work.
    until("the free has begun", || {
        let frees = thread(going.scene.guest.id(), "frees");
        let all = calls(going.trace.path());
        let mut here = all.iter();
        here.any(|call| Some(&call.thread) == frees.as_ref()) || going.has_unmapped()
    });
    drop(file);
    until("it is released", || {
        going.scene.guest.ask("released") != "released -1"
    });
    going.scene.guest.answers("released", "0");
    let frees = thread(going.scene.guest.id(), "frees").unwrap_or_default();
    until("the free looks", || {
        going.looked(&frees) || going.has_unmapped()
    });
    assert!(!going.has_unmapped(), "under running work");
    going.does(&["writes 4"]);
    going.gets_free();
}

#[test]
fn a_free_asks_no_mark_of_a_context_that_is_destroyed() {
    let mut going = Going::on("");
    going.does(&["another", "make 3 1", "awaits 3", "make 4 1"]);
    let frees = going.frees();
    going.does(&["noother"]);
    until("it goes", || {
        let asked = calls(going.trace.path());
        asked
            .iter()
            .any(|call| call.name.starts_with("cuCtxDestroy"))
            || going.scene.guest.ask("released") == "released -1"
    });
    fs::write(going.trace.path(), "").expect("writable");
    until("it looks", || going.looked(&frees));
    going.does(&["writes 4"]);
    until("it is gone", || {
        going.scene.guest.ask("released") == "released 0"
    });
    until("it is free", || going.is_freed());
    let all = calls(going.trace.path());
    let mut bad = all.iter().filter(|call| {
        let of_event = call.name.starts_with("cuEvent");
        call.thread == frees && of_event && call.result != "0" && call.result != "600"
    });
    let bad = bad.next().map(|call| (&call.name, &call.result));
    assert_eq!(bad, None, "of an event that is gone");
    going.gets_free();
}

/// A free that cannot follow the work ends at its bound, and the program goes on.
#[test]
fn memory_is_given_back_later_if_its_work_could_not_be_followed() {
    let (file, hold) = holding("cuDevicePrimaryCtxRelease");
    let mut going = Going::with("", &[("SOFTGPU_HOLD", &hold)]);
    going.does(&["make 3 1", "awaits 3", "make 4 1", "releasing"]);
    until("the driver releases", || {
        fs::metadata(&file).expect("a file").len() > 0
    });
    let before = going.scene.charged();
    fs::write(going.trace.path(), "").expect("writable");
    going.does(&["freeing 0"]);
    until("it is free", || going.is_freed());
    going.scene.guest.answers("freed", "0");
    assert_eq!(going.scene.guest.ask("free 0"), "free 1", "it is freed");
    assert!(!going.has_unmapped(), "under running work");
    assert_eq!(going.scene.charged(), before);
    drop(file);
    going.does(&["writes 4"]);
    until("it is given back", || {
        going.has_unmapped() && going.scene.charged() < before
    });
    going.scene.guest.finish().silently();
}

#[test]
fn a_small_free_without_any_event_gives_nothing_to_another() {
    let mut going = Going::on("cuEventCreate:*:CUDA_ERROR_OUT_OF_MEMORY");
    going.does(&["alloc 1 1000", "make 3 1", "awaits 3", "make 4 1"]);
    fs::write(going.trace.path(), "").expect("writable");
    going.does(&["freeing 1"]);
    until("it is free", || going.is_freed());
    going.scene.guest.answers("freed", "0");
    let all = calls(going.trace.path());
    let tried = all.iter().filter(|call| call.name == "cuEventCreate");
    assert!(tried.count() > LOOKS, "it did not give up at once");
    going.does(&["alloc 2 1000"]);
    going.scene.guest.answers("meets 1 2", "0");
    going.does(&["writes 4"]);
    going.scene.guest.finish().silently();
}

#[test]
fn a_destroyed_streams_work_keeps_its_memory_until_it_ends() {
    for faults in DRIVERS {
        let mut going = Going::on(faults);
        going.does(&["make 3 1", "awaits 3", "unmake 3", "make 4 1"]);
        going.frees();
        going.does(&["writes 4"]);
        going.gets_free();

        let mut going = Going::on(faults);
        going.does(&["make 3 1", "awaits 3", "unmake 3", "make 4 1"]);
        going.leaves();
        going.does(&["writes 4"]);
        going.gets_away();
    }
}

#[test]
fn a_stream_that_goes_while_its_context_is_released_keeps_a_mark() {
    for faults in DRIVERS {
        let (file, hold) = holding("cuDevicePrimaryCtxRelease");
        let mut going = Going::with(faults, &[("SOFTGPU_HOLD", &hold)]);
        going.does(&["make 3 1", "awaits 3", "make 4 1", "releasing"]);
        until("the driver releases", || {
            fs::metadata(&file).expect("a file").len() > 0
        });
        going.scene.guest.send("unmake 3");
        // No call of the driver's shows that the stream's end waits: so long it has for that.
        std::thread::sleep(Duration::from_millis(50));
        drop(file);
        assert_eq!(going.scene.guest.line(), "unmake 0");
        until("it is released", || {
            going.scene.guest.ask("released") != "released -1"
        });
        going.frees();
        going.does(&["writes 4"]);
        going.gets_free();
    }
}

#[test]
fn a_destroyed_stream_without_work_gets_no_mark() {
    let mut going = Going::on(OLDER);
    going.does(&["make 3 1"]);
    fs::write(going.trace.path(), "").expect("writable");
    going.does(&["unmake 3"]);
    let all = calls(going.trace.path());
    let names: Vec<&str> = all.iter().map(|call| call.name.as_str()).collect();
    assert!(names.contains(&"cuStreamDestroy_v2"), "{names:?}");
    assert!(
        !names.iter().any(|name| name.starts_with("cuEvent")),
        "{names:?}"
    );
    going.scene.guest.finish().silently();
}

#[test]
fn a_busy_stream_gets_its_mark_before_it_captures() {
    let mut going = Going::on(OLDER);
    going.does(&["make 3 1", "awaits 3", "make 4 1"]);
    fs::write(going.trace.path(), "").expect("writable");
    going.does(&["captures 3 2"]);
    let all = calls(going.trace.path());
    let at = |name: &str| all.iter().position(|call| call.name.starts_with(name));
    let (mark, begin) = (at("cuEventRecord"), at("cuStreamBeginCapture"));
    assert!(mark.is_some() && mark < begin, "{mark:?} {begin:?}");
    going.does(&["ends 3", "writes 4"]);
    going.scene.guest.finish().silently();
}

#[test]
fn no_mark_holds_up_a_blocking_stream_that_another_one_waits_for() {
    for faults in DRIVERS {
        let mut going = Going::on(faults);
        going.does(&["make 3 0", "make 4 0", "awaits 3"]);
        going.frees();
        going.does(&["writes 4"]);
        going.gets_free();

        let mut going = Going::on(faults);
        going.does(&["make 3 0", "make 4 0", "awaits 3"]);
        going.leaves();
        going.does(&["writes 4"]);
        going.gets_away();
    }
}

#[test]
fn a_threads_own_work_keeps_its_memory_until_it_ends() {
    for faults in DRIVERS {
        let mut going = Going::on(faults);
        going.does(&["make 4 1", "ownawaits"]);
        going.frees();
        going.does(&["writes 4"]);
        going.gets_free();

        let mut going = Going::on(faults);
        going.does(&["make 4 1", "ownawaits"]);
        going.leaves();
        going.does(&["writes 4"]);
        going.gets_away();
    }
}

#[test]
fn a_destroyed_contexts_memory_is_charged_until_it_is_given_back() {
    for last in ["cuMemUnmap", "cuMemRelease"] {
        let (file, hold) = holding(last);
        let environment = [("SOFTGPU_HOLD", hold.as_str())];
        let mut scene = Scene::with(SPEC, "init 1", &environment);
        scene.does(&["alloc 0 67108864", "alloc 1 2097152", "alloc 2 1000"]);
        let before = scene.charged();
        scene.guest.send("destroy");
        until("the driver takes memory back", || {
            fs::metadata(&file).expect("a file").len() > 0
        });
        assert_eq!(scene.charged(), before, "{last}: the device has it still");
        drop(file);
        assert_eq!(scene.guest.line(), "destroy 0");
        assert_eq!((scene.charged(), scene.on_device()), (0, 0), "{last}");
        scene.guest.finish().silently();
    }
}
