//! Programs on a node in virtual time: each allocates, copies, computes, pauses and frees, and
//! waits where a real one waits. The device serves what is open in equal parts.
//!
//! The daemon hears of a program's work as it does on a node: its library publishes the count of
//! its operations four times a second while it works, and the first one after a calm at once. The
//! daemon reads once a second, and before all that may depend on it; four times a second while a
//! tenant waits.

use super::Node;
use gpushare_core::{
    Answer, AskKey, Bytes, DeviceId, Nanos, Notice, Place, ProcessId, TenantId, TenantSpec,
};

/// How exactly the programs are followed.
const TICK: Nanos = Nanos::millis(5);
/// How often the daemon looks at the device, and how often it and the libraries read and publish.
const LOOK: Nanos = Nanos::millis(250);
const BEAT: Nanos = Nanos::secs(1);
const QUICK: Nanos = Nanos::millis(250);

/// One thing that a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Alloc(Bytes),
    Free(Bytes),
    /// Copies that take the link for so long.
    Copy(Nanos),
    /// Kernels that take so long alone.
    Compute(Nanos),
    /// Nothing on the device for so long.
    Pause(Nanos),
}

/// A program: what it does again and again, and how often.
#[derive(Clone, Debug)]
pub struct Script {
    pub begins: Nanos,
    pub first: Vec<Step>,
    pub round: Vec<Step>,
    /// `u64::MAX`: it never ends.
    pub rounds: u64,
    pub priority: u16,
}

/// One running program.
#[derive(Debug)]
pub struct Program {
    pub script: Script,
    pub tenant: TenantId,
    pub process: ProcessId,
    at: usize,
    rounds: u64,
    left: Option<Nanos>,
    ask: Option<AskKey>,
    /// Since when it waits for memory or for its return.
    waits: Option<Nanos>,
    /// The device time it has had.
    pub done: Nanos,
    pub ended: Option<Nanos>,
    /// All its waits, each with the bound that held when it began or ended, the later one.
    pub waited: Vec<(Nanos, Nanos)>,
    /// Its library has counted work that it has not published, and publishes the next at once.
    counted: bool,
    calm: bool,
}

/// The programs of one device.
#[derive(Debug)]
pub struct Stage {
    pub node: Node,
    pub device: DeviceId,
    pub programs: Vec<Program>,
    began: Nanos,
    to_come: Vec<(Script, TenantSpec)>,
    rate: u64,
    ticks: u64,
    /// How long the last run took.
    pub took: Nanos,
}

impl Stage {
    /// On `node`, whose link moves so many bytes a second each way.
    pub fn new(node: Node, device: DeviceId, rate: u64) -> Self {
        Self {
            began: node.now,
            node,
            device,
            programs: Vec::new(),
            to_come: Vec::new(),
            rate,
            ticks: 0,
            took: Nanos::ZERO,
        }
    }

    pub fn add(&mut self, script: Script, spec: TenantSpec) {
        let priority = script.priority;
        self.to_come.push((script, TenantSpec { priority, ..spec }));
    }

    /// Lets time pass until all programs have ended, for so long at most. How long it took.
    pub fn run(&mut self, most: Nanos) -> Nanos {
        let (from, end) = (self.node.now, self.node.now + most);
        while self.node.now < end && !(self.to_come.is_empty() && self.all_ended()) {
            self.tick();
        }
        self.took = self.node.now - from;
        self.took
    }

    fn all_ended(&self) -> bool {
        self.programs.iter().all(|one| one.ended.is_some())
    }

    fn tick(&mut self) {
        let decided = self.node.decided;
        self.begin();
        let acting: Vec<usize> = (0..self.programs.len())
            .filter(|at| self.acts(*at))
            .collect();
        let (pausing, working): (Vec<_>, Vec<_>) = acting
            .into_iter()
            .partition(|at| self.programs[*at].pauses());
        // A decision for one program may let another go on that had its turn in this tick already.
        let ticks = match self.node.decided == decided {
            true => self.ticks_to_pass(&working, &pausing),
            false => 1,
        };
        let span = Nanos(TICK.0 * ticks);
        self.node.pass(span);
        let each = Nanos(span.0 / working.len().max(1) as u64);
        for at in working {
            if self.is_open(at) {
                self.programs[at].works(each);
                let first = std::mem::take(&mut self.programs[at].calm);
                self.shows(at, first);
            }
        }
        for at in pausing {
            self.programs[at].rests(span);
        }
        let before = self.ticks;
        self.ticks += ticks;
        let each = |period: Nanos, ticks: u64| ticks.is_multiple_of(period.0 / TICK.0);
        if each(LOOK, self.ticks) {
            self.node.provide_all();
            self.node.sample(self.device);
        }
        let waits =
            self.node.world.waiting_on(self.device) > 0 || !self.node.returns.waiting.is_empty();
        let beat = if waits { QUICK } else { BEAT };
        self.publish(before, QUICK.0 / TICK.0);
        if each(beat, self.ticks) {
            self.beat();
        }
    }

    /// The libraries whose round it is publish what they have counted: one every so many ticks.
    fn publish(&mut self, before: u64, ticks: u64) {
        for at in 0..self.programs.len() {
            let phase = 37 * at as u64;
            if (before + phase) / ticks != (self.ticks + phase) / ticks {
                let counted = std::mem::take(&mut self.programs[at].counted);
                self.programs[at].calm = !counted;
                self.shows(at, counted);
            }
        }
    }

    /// The page of a program shows that it has worked.
    fn shows(&mut self, at: usize, worked: bool) {
        if let Some(guest) = self.node.guests.get_mut(&self.programs[at].tenant) {
            guest.worked |= worked;
        }
    }

    /// How long nothing happens: no event, no look, no beat, and no step of a program ends.
    fn ticks_to_pass(&self, working: &[usize], pausing: &[usize]) -> u64 {
        let ticks = |span: Nanos| span.0.div_ceil(TICK.0);
        let left = |at: &usize| self.programs[*at].left.unwrap_or_default().0;
        let shared = working.len() as u64;
        let ends = working.iter().map(|at| Nanos(left(at) * shared));
        let ends = ends.chain(pausing.iter().map(|at| Nanos(left(at))));
        let events = self.node.next_event().map(|at| at - self.node.now);
        let begins = self.to_come.iter().map(|(script, _)| {
            let since = self.node.now - self.began;
            script.begins - since
        });
        let looks = LOOK.0 / TICK.0;
        // What an event takes from a program, it takes in a tick of its own.
        let events = events.map(|span| span.0 / TICK.0);
        let next = ends.chain(begins).map(ticks).chain(events);
        let most = looks - self.ticks % looks;
        next.min().unwrap_or(most).clamp(1, most)
    }

    fn beat(&mut self) {
        for at in 0..self.programs.len() {
            let one = &self.programs[at];
            if one.ended.is_none() {
                let tenant = one.tenant;
                self.node.read_work([tenant]);
                self.node.look(tenant, self.device);
            }
        }
    }

    /// Starts the programs whose time has come.
    fn begin(&mut self) {
        let since = self.node.now - self.began;
        let (now, later) = std::mem::take(&mut self.to_come)
            .into_iter()
            .partition(|(script, _)| script.begins <= since);
        self.to_come = later;
        for (script, spec) in now {
            let (tenant, process) = self.node.run(spec);
            let moves = &mut self.node.guests.get_mut(&tenant).expect("it runs").moves;
            (moves.rate, moves.works) = (self.rate, false);
            self.programs.push(Program {
                script,
                tenant,
                process,
                at: 0,
                rounds: 0,
                left: None,
                ask: None,
                waits: None,
                done: Nanos::ZERO,
                ended: None,
                waited: Vec::new(),
                counted: false,
                calm: false,
            });
        }
    }

    fn is_open(&self, at: usize) -> bool {
        let one = &self.programs[at];
        let proc = self.node.processes.get(&one.process);
        proc.is_some_and(|proc| !proc.is_sealed(self.device))
    }

    /// Does all that takes no time. Whether the program is at work on the device now, or pauses.
    fn acts(&mut self, at: usize) -> bool {
        for _ in 0..64 {
            if self.programs[at].ended.is_some() {
                return false;
            }
            let Some(step) = self.programs[at].step() else {
                let tenant = self.programs[at].tenant;
                self.programs[at].ended = Some(self.node.now);
                self.node.finish(tenant);
                return false;
            };
            let touches = !matches!(step, Step::Pause(_));
            if touches && !self.is_open(at) {
                self.wants_in(at);
                return false;
            }
            match step {
                Step::Alloc(bytes) if !self.allocates(at, bytes) => return false,
                Step::Alloc(_) => self.programs[at].next(),
                Step::Free(bytes) => {
                    self.waited(at);
                    let process = self.programs[at].process;
                    self.node.free(process, self.device, bytes);
                    self.programs[at].next();
                }
                Step::Copy(time) | Step::Compute(time) | Step::Pause(time) => {
                    self.waited(at);
                    self.programs[at].left.get_or_insert(time);
                    return true;
                }
            }
        }
        panic!("a program without an end");
    }

    /// Whether it has got this memory.
    fn allocates(&mut self, at: usize, bytes: Bytes) -> bool {
        let (device, process) = (self.device, self.programs[at].process);
        let Some(ask) = self.programs[at].ask else {
            if self.node.charge(process, device, bytes) {
                return true;
            }
            let ask = self.node.want(process, device, bytes);
            self.programs[at].ask = Some(ask);
            if self.node.waits(ask) {
                self.programs[at].waits.get_or_insert(self.node.now);
            }
            return self.allocates(at, bytes);
        };
        match self.node.answer(ask) {
            None => false,
            Some(Answer::Granted { .. }) => {
                self.programs[at].ask = None;
                self.waited(at);
                true
            }
            Some(Answer::Denied(denial)) => {
                panic!(
                    "{:?} is out of memory: {denial:?}",
                    self.programs[at].tenant
                )
            }
        }
    }

    fn wants_in(&mut self, at: usize) {
        let one = &mut self.programs[at];
        let tenant = one.tenant;
        one.waits.get_or_insert(self.node.now);
        if self.node.place(tenant, self.device) == Place::Out
            && !self
                .node
                .returns
                .waiting
                .contains_key(&(tenant, self.device))
        {
            self.node.calls(tenant, self.device);
        }
    }

    /// It goes on: how long it has waited, if it has.
    fn waited(&mut self, at: usize) {
        let Some(since) = self.programs[at].waits.take() else {
            return;
        };
        let bound = self.node.world.rotation_bound(self.device, since) - since;
        let waited = self.node.now - since;
        self.programs[at].waited.push((waited, bound));
    }

    /// The device time that programs had, in thousandths of `wall`.
    pub fn useful(&self, wall: Nanos) -> u64 {
        let done: u64 = self.programs.iter().map(|one| one.done.0).sum();
        done * 1000 / wall.0.max(1)
    }

    /// How often tenants left, and how long all moves took.
    pub fn moves(&self) -> (u64, Nanos) {
        let mut left = 0;
        let mut time = Nanos::ZERO;
        for notice in &self.node.notices {
            match notice {
                Notice::Left { took, .. } => (left, time) = (left + 1, time + *took),
                Notice::Returned { took, .. } => time = time + *took,
                _ => {}
            }
        }
        (left, time)
    }

    /// The longest wait in thousandths of its bound.
    pub fn longest_wait(&self) -> u64 {
        let waits = self.programs.iter().flat_map(|one| &one.waited);
        let parts = waits.map(|(waited, bound)| waited.0 * 1000 / bound.0.max(1));
        parts.max().unwrap_or(0)
    }
}

impl Program {
    fn step(&self) -> Option<Step> {
        let first = self.script.first.len();
        if self.at < first {
            return Some(self.script.first[self.at]);
        }
        (self.rounds < self.script.rounds).then(|| self.script.round[self.at - first])
    }

    fn next(&mut self) {
        self.left = None;
        self.at += 1;
        let first = self.script.first.len();
        if self.at >= first + self.script.round.len() {
            (self.at, self.rounds) = (first, self.rounds + 1);
        }
    }

    fn pauses(&self) -> bool {
        matches!(self.step(), Some(Step::Pause(_)))
    }

    /// So much device time is its own.
    fn works(&mut self, time: Nanos) {
        self.done = self.done + time.min(self.left.unwrap_or_default());
        self.counted = true;
        self.rests(time);
    }

    /// So much of its step is over.
    fn rests(&mut self, time: Nanos) {
        let left = self.left.unwrap_or_default() - time;
        self.left = Some(left);
        if left == Nanos::ZERO {
            self.next();
        }
    }
}
