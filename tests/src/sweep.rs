//! Moves at each of whose steps something fails: a driver call, the process, the daemon.
//! Afterwards everything is as before, or every byte is there, or calls return an error; and no
//! memory of the device stays taken. The steps are read off the software GPU's trace of a move.

use std::collections::BTreeMap;
use std::fs;

use tempfile::NamedTempFile;

use gpushare_cuda_abi::symbols::CUDA;
use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_protocol::wire::Request;

use crate::movable::{Outcome, Scene};
use crate::process::{goes_on, is_dead, is_stopped};
use crate::{MIB, until};

/// A program whose memory moves, and how much of it.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// How its memory moves.
    pub how: Movability,
    /// The machine.
    pub spec: &'static str,
    /// What makes and fills its memory: the client's commands. `fill` says how a slot is filled.
    pub lines: &'static [&'static str],
    /// What gives all of it back.
    pub frees: &'static [&'static str],
    /// Bytes of host memory that it needs to move.
    pub host: u64,
    /// Functions that a move surely calls.
    pub surely: &'static [&'static str],
    /// All of the device's memory but contexts, to be had by another process in the end.
    pub all: u64,
}

/// Bytes that the daemon withholds of a return, from one look to the next.
const WITHHELD: [u64; 3] = [24 * MIB, 4 * MIB, 0];

/// The steps of a move: for each function, the calls of it that belong to a move, from 1.
pub type Steps = BTreeMap<String, Vec<u64>>;

/// The calls of a move by a trace of the software GPU: those of the mover's thread, in the order of
/// all of the process's calls of each function. All of them are functions of the symbol table.
pub fn steps_in(trace: &str, mover: &str, surely: &[&str]) -> Steps {
    let (mut calls, mut steps) = (BTreeMap::new(), Steps::new());
    for line in trace.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let nth: &mut u64 = calls.entry(words[2].to_owned()).or_default();
        *nth += 1;
        if words[1] == mover {
            steps.entry(words[2].to_owned()).or_default().push(*nth);
        }
    }
    let known = |name: &String| CUDA.iter().any(|row| row.name == name.as_str());
    let unknown: Vec<_> = steps.keys().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    for name in surely {
        assert!(steps.contains_key(*name), "{name} is no step: {steps:?}");
    }
    steps
}

/// Whether everything is to fail in every way: the long tier.
pub fn is_every_step() -> bool {
    std::env::var_os("GPUTEST_EVERY_STEP").is_some()
}

/// An error that a call fails with: as the software GPU is told of it, and as its traces have it.
type Fault = (&'static str, &'static str);

const UNKNOWN: Fault = ("CUDA_ERROR_UNKNOWN", "999");
/// The error that is usual where memory is made: another process took it.
const OUT_OF_MEMORY: Fault = ("CUDA_ERROR_OUT_OF_MEMORY", "2");

/// A call that fails.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What the software GPU is told.
    pub fail: String,
    function: String,
    number: &'static str,
}

impl Failure {
    fn new((function, nth): (&str, u64), (error, number): Fault) -> Self {
        Self {
            fail: format!("{function}:{nth}:{error}"),
            function: function.to_owned(),
            number,
        }
    }

    /// It was injected: by the trace, the driver answered with it.
    #[track_caller]
    pub fn happened(&self, trace: &NamedTempFile) {
        let text = fs::read_to_string(trace.path()).expect("readable");
        let is_it = |line: &str| {
            let mut words = line.split(' ').skip(2);
            (words.next(), words.next()) == (Some(self.function.as_str()), Some(self.number))
        };
        assert!(text.lines().any(is_it), "{} did not happen", self.fail);
    }
}

/// Each function of the steps with each call at which something shall fail: `usual` of them, the
/// last among them; all of them in the long tier.
pub fn chosen(steps: &Steps, usual: usize) -> Vec<(&str, u64)> {
    let most = if is_every_step() { usize::MAX } else { usual };
    let mut all = Vec::new();
    for (function, calls) in steps {
        let mut some: Vec<u64> = calls.iter().copied().take(most).collect();
        if let (Some(last), true) = (calls.last(), calls.len() > most) {
            some.pop();
            some.push(*last);
        }
        all.extend(some.into_iter().map(|nth| (function.as_str(), nth)));
    }
    all
}

/// The same of errors: each call fails for an unknown reason, and one that makes memory also
/// because there is none. A program's own calls ask for its current context too, and which thread
/// asks for the nth time is another one on a busy machine: a free of which the driver cannot say
/// the context is refused.
pub fn failing(steps: &Steps, usual: usize) -> Vec<Failure> {
    let mut all = Vec::new();
    for call in chosen(steps, usual) {
        match call.0 {
            "cuCtxGetCurrent" => continue,
            "cuMemCreate" => {
                all.extend([UNKNOWN, OUT_OF_MEMORY].map(|one| Failure::new(call, one)))
            }
            _ => all.push(Failure::new(call, UNKNOWN)),
        }
    }
    all
}

impl Sweep {
    /// That program, where something fails.
    #[track_caller]
    pub fn scene(&self, fail: &str) -> Scene {
        self.filled(&[("SOFTGPU_FAIL", fail)])
    }

    /// The same, and a trace of its calls.
    #[track_caller]
    fn traced(&self, fail: &str) -> (Scene, NamedTempFile) {
        let trace = NamedTempFile::new().expect("a file");
        let path = trace.path().to_str().expect("a name");
        let scene = self.filled(&[("SOFTGPU_FAIL", fail), ("SOFTGPU_TRACE", path)]);
        (scene, trace)
    }

    #[track_caller]
    fn filled(&self, environment: &[(&str, &str)]) -> Scene {
        let mut scene = Scene::moving(self.how, self.spec, environment);
        scene.does(self.lines);
        scene.provided(self.host);
        scene
    }

    /// Every slot has what it was filled with.
    #[track_caller]
    pub fn has_every_byte(&self, scene: &mut Scene) {
        let filled = self
            .lines
            .iter()
            .filter_map(|line| line.strip_prefix("fill "));
        for slot_and_seed in filled {
            scene.guest.answers(&format!("check {slot_and_seed}"), "0");
        }
    }

    /// Everything is freed, and nothing stays on the device or charged.
    #[track_caller]
    pub fn leaves_nothing(&self, mut scene: Scene, fail: &str) {
        scene.does(self.frees);
        // An empty slab is kept for a while, but not moved.
        let _ = scene.ordered(Order::Leave);
        let _ = scene.ordered(Order::Return);
        until("the device has its memory back", || scene.on_device() == 0);
        assert_eq!(scene.charged(), 0, "{fail}");
        // The mover waits for no call of the program's that is over.
        scene.does(&["alloc 0 8388608", "free 0"]);
        scene.guest.finish().silently();
    }

    /// The steps of a move away and back.
    #[track_caller]
    pub fn steps(&self) -> Steps {
        let trace = NamedTempFile::new().expect("a file");
        let path = trace.path().to_str().expect("a name");
        let mut scene = Scene::moving(self.how, self.spec, &[("SOFTGPU_TRACE", path)]);
        scene.does(self.lines);
        scene.provided(self.host);
        scene.leaves();
        scene.returns();
        let mover = scene.mover();
        self.has_every_byte(&mut scene);
        scene.guest.finish().silently();
        let text = fs::read_to_string(trace.path()).expect("readable");
        steps_in(&text, &mover, self.surely)
    }

    /// Each call of a move fails once: `usual` calls of each function.
    #[track_caller]
    pub fn each_call_fails(&self, usual: usize) {
        let steps = self.steps();
        let cases = failing(&steps, usual);
        for failure in &cases {
            let fail = &failure.fail;
            // Shown with a failure.
            eprintln!("{fail}");
            let (mut scene, trace) = self.traced(fail);
            let mut last = Outcome::Busy;
            for _ in 0..3 {
                let _ = scene.ordered(Order::Leave);
                last = scene.ordered(Order::Return);
            }
            assert_eq!(last, Outcome::Back, "{fail}");
            self.has_every_byte(&mut scene);
            self.leaves_nothing(scene, fail);
            failure.happened(&trace);
        }
        said("failures", cases.len(), &steps);
    }

    /// The same where the memory comes back in parts.
    #[track_caller]
    pub fn each_call_of_a_return_in_parts_fails(&self, usual: usize) {
        let steps = self.steps();
        let cases = failing(&steps, usual);
        for failure in &cases {
            let fail = &failure.fail;
            // Shown with a failure.
            eprintln!("{fail}");
            let (mut scene, trace) = self.traced(fail);
            let _ = scene.ordered(Order::Leave);
            // A part comes back and is given up, then a part and the rest.
            for order in [Order::Leave, Order::Return] {
                for withheld in [24 * MIB, 4 * MIB] {
                    scene.dealer.withholds(withheld);
                    scene.epoch += 1;
                    scene.dealer.order(scene.epoch, Order::Return);
                }
                scene.dealer.withholds(0);
                let _ = scene.ordered(order);
            }
            assert_eq!(scene.ordered(Order::Return), Outcome::Back, "{fail}");
            self.has_every_byte(&mut scene);
            self.leaves_nothing(scene, fail);
            failure.happened(&trace);
        }
        said("failures", cases.len(), &steps);
    }

    /// The process is killed at each call of a move: the device has all of its memory back.
    #[track_caller]
    pub fn the_process_is_killed_at_each_call(&self, usual: usize) {
        let steps = self.steps();
        let cases = chosen(&steps, usual);
        for (function, nth) in &cases {
            let fail = format!("{function}:{nth}:SIGKILL");
            let mut scene = Scene::beginning(self.how, self.spec, &[("SOFTGPU_FAIL", &fail)]);
            self.begins(&mut scene);
            moves_until(&mut scene, is_dead);
            let mut next = scene.bare();
            let Scene { guest, .. } = scene;
            guest.kill();
            next.does(&format!("alloc 0 {}", self.all));
            next.finish().silently();
        }
        said("kills", cases.len(), &steps);
    }

    /// The daemon is killed while the process is stopped at each call of a move.
    #[track_caller]
    pub fn the_daemon_is_killed_at_each_call(&self, usual: usize) {
        let steps = self.steps();
        let cases = chosen(&steps, usual);
        for (function, nth) in &cases {
            let stop = format!("{function}:{nth}:SIGSTOP");
            let mut scene = Scene::beginning(self.how, self.spec, &[("SOFTGPU_FAIL", &stop)]);
            self.begins(&mut scene);
            moves_until(&mut scene, is_stopped);
            scene.dealer.leave();
            goes_on(scene.guest.id());
            let began = scene.guest.line();
            for line in self.lines {
                let word = line.split(' ').next().expect("a word");
                assert!(scene.guest.line().starts_with(word), "{stop}");
            }
            if began != "init 0" {
                // Calls of its start may come first: without a daemon no context has room.
                assert_eq!(began, "init 2", "{stop}");
                continue;
            }
            self.has_every_byte(&mut scene);
            // The next daemon finds it able to move as before.
            scene.dealer.come_back();
            let _ = scene.tells(|_| true);
            scene.epoch = 0;
            scene.provided(self.host);
            let _ = scene.ordered(Order::Leave);
            assert_eq!(scene.ordered(Order::Return), Outcome::Back, "{stop}");
            self.has_every_byte(&mut scene);
            self.leaves_nothing(scene, &stop);
        }
        said("kills of the daemon", cases.len(), &steps);
    }

    /// Has the program begin, which may be killed or stopped at any time.
    pub fn begins(&self, scene: &mut Scene) {
        self.lines.iter().for_each(|line| scene.guest.send(line));
    }
}

/// Prints what was tried.
pub fn said(what: &str, count: usize, steps: &Steps) {
    eprintln!("{count} {what} at calls of {} functions:", steps.len());
    eprintln!("{:?}", steps.keys().collect::<Vec<_>>());
}

/// Orders moves away, and back in parts, until its process is so.
#[track_caller]
pub fn moves_until(scene: &mut Scene, is_so: impl Fn(u32) -> bool) {
    let mut order = Order::Return;
    let mut answered = true;
    let mut withheld = WITHHELD.into_iter();
    until("it is at that step", || {
        if answered {
            withheld = WITHHELD.into_iter();
        }
        if let Some(bytes) = withheld.next() {
            scene.dealer.withholds(bytes);
        }
        if answered {
            order = match order {
                Order::Leave => Order::Return,
                _ => Order::Leave,
            };
            scene.epoch += 1;
            scene.dealer.order(scene.epoch, order);
        }
        let is_answer = |said: &Request| {
            matches!(
                said,
                Request::Away { .. } | Request::Back { .. } | Request::NoRoom { .. }
            )
        };
        answered = scene.dealer.said().iter().any(is_answer);
        is_so(scene.guest.id())
    });
}
