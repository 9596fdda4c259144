//! The device and everything around it: what happens, in the order in which it happens.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::client::{Act, Client, Thread};
use super::report::{Meter, Report};
use super::{Gate, MS, Pace, Program, S, Sample, Steering, US, Who};
use crate::node::rng::Rng;
use gpushare_protocol::page::token::Token;
use softgpu::model::RoundRobin;

/// Something that is going to happen. Numbers are of clients.
#[derive(Clone, Copy, Debug)]
enum Mail {
    /// A process joins.
    Joins(usize),
    /// Its thread goes on.
    Goes(usize),
    /// It looks whether it is idle.
    Looks(usize),
    /// The driver's samples are read.
    Reads,
    /// It asks for its tenant's token.
    Asks(usize),
    /// The copy for its operation of so many ns is complete.
    Copied(usize, u64),
    Busy(usize),
    Idle(usize),
    Wanted(usize),
    Drained(usize),
    Left(usize),
}

/// One device, the processes on it, and their steering.
pub struct Rig<B> {
    pub steering: B,
    /// From the end of a thread's wait to its next step (ns).
    pub wake: u64,
    /// The time of a message to the daemon (ns).
    pub message: u64,
    /// How late a tick may be (ns); how late each is, is drawn.
    pub late: u64,
    /// One of a thousand wakes of a thread is up to this much later (ns).
    pub stall: u64,
    /// How long a process has nothing pending before it says so (ns).
    pub idle_after: u64,
    /// Whether the driver has samples of what ran.
    pub samples: bool,
    engine: RoundRobin,
    clients: Vec<Client>,
    mail: BTreeMap<(u64, u64), Mail>,
    sent: u64,
    /// The tick that is wanted, and when it comes.
    tick: Option<(u64, u64)>,
    meter: Meter,
    /// What each process had since the driver's samples were last read.
    ran: Vec<u64>,
    rng: Rng,
    /// Of each tenant.
    tokens: BTreeMap<usize, Rc<Token>>,
}

/// The driver's samples are read so often.
const READ: u64 = S;

impl<B: Steering> Rig<B> {
    /// An idle device. `seed` picks random arrivals and delays.
    pub fn new(pace: Pace, steering: B, seed: u64) -> Self {
        Self {
            steering,
            wake: 20 * US,
            message: 20 * US,
            late: 50 * US,
            stall: 0,
            idle_after: 20 * MS,
            samples: true,
            engine: RoundRobin::new(pace),
            clients: Vec::new(),
            mail: BTreeMap::new(),
            sent: 0,
            tick: None,
            meter: Meter::default(),
            ran: Vec::new(),
            rng: Rng(seed),
            tokens: BTreeMap::new(),
        }
    }

    /// A new tenant that runs `program` in one process; returns its number, from 0.
    pub fn add(&mut self, program: Program) -> usize {
        let tenant = self.meter.tenants();
        self.add_to(tenant, program);
        tenant
    }

    /// One more process of `tenant`, which joins when its program begins.
    pub fn add_to(&mut self, tenant: usize, program: Program) {
        let process = self.clients.len();
        let seat = self.engine.sit().expect("a seat on the device");
        let (who, from, seed) = (Who { tenant, process }, program.from, self.rng.next());
        // Where all are registered the samples say nothing new.
        let is_first = !self.clients.iter().any(|one| one.program.outside);
        if program.outside && is_first {
            self.post(self.now() + READ, Mail::Reads);
        }
        self.ran.push(0);
        let token = Rc::clone(self.tokens.entry(tenant).or_default());
        self.clients
            .push(Client::new(who, seat, program, token, seed));
        self.meter.add(tenant);
        self.post(from.max(self.now()), Mail::Joins(process));
    }

    /// The present (ns).
    pub fn now(&self) -> u64 {
        self.engine.now()
    }

    /// Lets `time` ns pass.
    pub fn run(&mut self, time: u64) {
        let end = self.now() + time;
        while let Some(at) = self.next().filter(|at| *at <= end) {
            self.elapse(at);
            self.happen();
        }
        self.elapse(end);
    }

    /// Lets `time` ns pass on all devices of one daemon.
    pub fn run_all(all: &mut [Self], time: u64) {
        let end = all.first().map_or(0, Self::now) + time;
        let next = |all: &mut [Self]| all.iter_mut().filter_map(Self::next).min();
        while let Some(at) = next(all).filter(|at| *at <= end) {
            for one in &mut *all {
                one.elapse(at);
                one.happen();
            }
            // What one of them says may have changed the gates of all.
            for one in &mut *all {
                one.publish();
            }
        }
        for one in all {
            one.elapse(end);
        }
    }

    /// The results of the time since the last call.
    pub fn measure(&mut self) -> Report {
        let now = self.now();
        self.meter.report(now, &mut self.clients)
    }

    /// Lets `warm_up` ns pass, and then reports on the next `time` ns.
    pub fn measured(&mut self, warm_up: u64, time: u64) -> Report {
        self.run(warm_up);
        self.measure();
        self.run(time);
        self.measure()
    }

    /// The current reports of the processes that have not ended.
    pub fn samples(&self) -> Vec<Sample> {
        let now = self.now();
        let here = |client: &&Client| !client.gone && client.program.from <= now;
        let sample = |client: &Client| {
            let guessed = now < client.program.guesses_until;
            let mut sample = client.books.sample(client.who, guessed);
            if let Some(lie) = client.program.lie {
                lie(&mut sample);
            }
            sample
        };
        self.clients.iter().filter(here).map(sample).collect()
    }

    fn next(&mut self) -> Option<u64> {
        let wanted = self.steering.next();
        if wanted != self.tick.map(|(wanted, _)| wanted) {
            let late = self.rng.below(self.late + 1);
            self.tick = wanted.map(|wanted| (wanted, wanted.max(self.now()) + late));
        }
        let mail = self.mail.first_key_value().map(|((at, _), _)| *at);
        let tick = self.tick.map(|(_, at)| at);
        [mail, tick, self.engine.next()].into_iter().flatten().min()
    }

    /// Lets time pass on the device, and counts it.
    fn elapse(&mut self, to: u64) {
        let from = self.now();
        let given = self.engine.advance(to);
        for stretch in &given {
            if let Some(seat) = stretch.seat {
                self.ran[seat.0] += stretch.to - stretch.from;
            }
        }
        let open = self.clients.iter().any(Client::is_open);
        let pending = self.clients.iter().any(|client| client.books.is_pending());
        let clients = &self.clients;
        let tenant = |seat: usize| clients[seat].who.tenant;
        self.meter.passed(to - from, &given, tenant, pending, open);
        for ended in self.engine.take_ended() {
            self.ended(ended.seat.0, ended.op);
        }
    }

    fn submit(&mut self, at: usize, ns: u64) {
        let Client { seat, meeting, .. } = &mut self.clients[at];
        match meeting {
            Some(meeting) => meeting.submit(&mut self.engine, *seat, ns),
            None => _ = self.engine.submit(*seat, ns),
        }
    }

    fn ended(&mut self, at: usize, op: u64) {
        let Client { seat, meeting, .. } = &mut self.clients[at];
        let engine = &mut self.engine;
        let is_complete = (meeting.as_mut()).is_none_or(|meeting| meeting.ended(engine, *seat, op));
        if is_complete {
            self.completed(at);
        }
    }

    fn happen(&mut self) {
        let now = self.now();
        while let Some(entry) = self.mail.first_entry().filter(|mail| mail.key().0 <= now) {
            let mail = entry.remove();
            self.deliver(mail);
        }
        if self.tick.is_some_and(|(_, at)| at <= now) {
            self.tick = None;
            let samples = self.samples();
            self.steering.tick(now, &samples);
            self.publish();
        }
    }

    fn deliver(&mut self, mail: Mail) {
        let now = self.now();
        match mail {
            Mail::Goes(at) => return self.goes(at),
            Mail::Asks(at) => return self.attend(at),
            Mail::Looks(at) => return self.looks(at),
            Mail::Reads => return self.reads(),
            Mail::Copied(at, ns) => return self.submit(at, ns),
            Mail::Joins(at) => {
                if !self.clients[at].program.outside {
                    self.steering.joined(now, self.clients[at].who);
                }
                self.publish();
                return self.goes(at);
            }
            Mail::Busy(at) => self.steering.busy(now, self.clients[at].who),
            // Said of a position that the gate has left, it is void.
            Mail::Idle(at) if !self.clients[at].books.said_idle => {}
            Mail::Wanted(at) | Mail::Drained(at) if self.clients[at].gate != Gate::Closed => {}
            Mail::Idle(at) => self.steering.idle(now, self.clients[at].who),
            Mail::Wanted(at) => self.steering.wanted(now, self.clients[at].who),
            Mail::Drained(at) => self.steering.drained(now, self.clients[at].who),
            Mail::Left(at) => self.steering.left(now, self.clients[at].who),
        }
        self.publish();
    }

    /// How long the next wake of a thread takes.
    fn wakes(&mut self) -> u64 {
        if self.stall == 0 || self.rng.below(1_000) > 0 {
            return self.wake;
        }
        self.wake + self.rng.below(self.stall)
    }

    fn post(&mut self, at: u64, mail: Mail) {
        self.sent += 1;
        self.mail.insert((at, self.sent), mail);
    }

    fn say(&mut self, mail: Mail) {
        self.post(self.now() + self.message, mail);
    }

    fn goes(&mut self, at: usize) {
        let now = self.now();
        let client = &mut self.clients[at];
        client.woken = false;
        let mut acts = Vec::new();
        client.go(now, &mut acts);
        for act in acts {
            match act {
                Act::GoAt(moment) => self.post(moment, Mail::Goes(at)),
                Act::Submit(ns) => self.submit(at, ns),
                Act::SubmitAt(moment, ns) => self.post(moment, Mail::Copied(at, ns)),
                Act::SayBusy => self.say(Mail::Busy(at)),
            }
        }
        self.attend(at);
    }

    fn completed(&mut self, at: usize) {
        let now = self.now();
        if self.clients[at].completed(now) {
            let wake = self.wakes();
            self.post(now + wake, Mail::Goes(at));
        }
        self.attend(at);
    }

    /// Handles the consequences of a client's change: its thread may pass, or it sends a report.
    fn attend(&mut self, at: usize) {
        let (now, idle_after) = (self.now(), self.idle_after);
        let client = &mut self.clients[at];
        if !client.woken && client.could_pass(now) {
            client.woken = true;
            let wake = self.wakes();
            self.post(now + wake, Mail::Goes(at));
        }
        if let Some(asks) = self.clients[at].asks_at.take() {
            self.post(asks, Mail::Asks(at));
        }
        if self.clients[at].frees(now) {
            self.wake_next(at);
        }
        let client = &mut self.clients[at];
        let closed = client.gate == Gate::Closed;
        if closed && client.waits() && !client.said_wanted {
            client.said_wanted = true;
            self.say(Mail::Wanted(at));
        }
        let client = &mut self.clients[at];
        if closed && client.is_drained() && !client.said_drained {
            client.said_drained = true;
            self.say(Mail::Drained(at));
        }
        let client = &mut self.clients[at];
        let rests = client.books.rests_since().is_some();
        if rests && !client.books.said_idle && !client.books.looks {
            client.books.looks = true;
            self.post(now + idle_after, Mail::Looks(at));
        }
        let client = &mut self.clients[at];
        if client.thread == Thread::Ends && client.is_drained() && !client.gone {
            client.gone = true;
            self.say(Mail::Left(at));
        }
    }

    /// The token is free: another process that waits for it is woken.
    fn wake_next(&mut self, at: usize) {
        let (tenant, all) = (self.clients[at].who.tenant, self.clients.len());
        let mut others = (1..all).map(|step| (at + step) % all);
        let next = others.find(|other| {
            let other = &self.clients[*other];
            other.who.tenant == tenant && other.waits() && other.is_drained()
        });
        if let Some(next) = next {
            let wake = self.wakes();
            self.post(self.now() + wake, Mail::Asks(next));
        }
    }

    /// As NVML says it: in whole percent, of the processes that had any.
    fn reads(&mut self) {
        let now = self.now();
        let percent = READ / 100;
        let of = |(client, ran): (&Client, &mut u64)| {
            let who = (!client.program.outside).then_some(client.who);
            (who, std::mem::take(ran) / percent * percent)
        };
        let had = self.clients.iter().zip(&mut self.ran).map(of);
        let had: Vec<_> = had.filter(|(_, ran)| *ran > 0).collect();
        if self.samples {
            self.steering.ran(now, READ, &had);
        }
        self.post(now + READ, Mail::Reads);
    }

    fn looks(&mut self, at: usize) {
        let now = self.now();
        let idle_after = self.idle_after;
        let client = &mut self.clients[at];
        client.books.looks = false;
        match client.books.rests_since() {
            _ if client.gone => {}
            None => {}
            Some(since) if since + idle_after > now => {
                client.books.looks = true;
                self.post(since + idle_after, Mail::Looks(at));
            }
            Some(_) => {
                client.books.said_idle = true;
                self.say(Mail::Idle(at));
            }
        }
    }

    /// Applies the decisions to the gates.
    fn publish(&mut self) {
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            if client.gone || client.program.from > self.engine.now() {
                continue;
            }
            let gate = self.steering.gate(client.who);
            if gate == client.gate {
                continue;
            }
            self.meter
                .gate_changes(client.who.tenant, client.gate, gate);
            if gate == Gate::Closed {
                (client.said_wanted, client.said_drained) = (false, false);
            }
            if kind(client.gate) != kind(gate) {
                let records = matches!(gate, Gate::Open { .. });
                client.books.moved(self.engine.now(), records);
            }
            // A waiting client sees further changes at the next end of an operation.
            let same = is_same_but_contended(client.gate, gate);
            client.gate = gate;
            if !same {
                self.attend(at);
            }
        }
    }
}

/// A gate's position: free, open or closed.
fn kind(gate: Gate) -> std::mem::Discriminant<Gate> {
    std::mem::discriminant(&gate)
}

/// Whether two words differ only in fields that may change without a wake.
fn is_same_but_contended(old: Gate, new: Gate) -> bool {
    let plain = |gate| match gate {
        Gate::Open { window, slice, .. } => Gate::Open {
            window,
            slice,
            contended: false,
        },
        gate => gate,
    };
    plain(old) == plain(new)
}
