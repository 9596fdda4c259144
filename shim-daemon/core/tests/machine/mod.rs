//! A device in virtual time: the schedule under test, processes whose gates keep the rules with
//! realistic latencies, and hardware that slices time among all submitted work. The schedule's
//! invariants are checked after every input.
#![allow(unreachable_pub, reason = "a module of several test files")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "figures for people; the schedule itself has no floats"
)]

mod client;
mod gate;
mod gpu;
mod host;
mod meter;

pub use crate::node::rng::Rng;
pub use client::{Client, Length, Manners, Program};
pub use host::Host;
pub use meter::Meter;

use gpu::{Batch, Gpu};
use gpushare_core::lease::{DeviceTime, Input, Output};
use gpushare_core::{Compute, Lease, LeaseKind, LeasePolicy, Nanos, Permille, ProcessId, TenantId};
use std::collections::BTreeMap;

/// How long a client is open with nothing to do before it says so.
const IDLE: Nanos = Nanos::micros(500);
/// From the answer to an `Open` to the first launch.
const CONTEXT: Nanos = Nanos::millis(1);
/// The time of a mark on the device.
const MARK: u64 = 1_000;

/// Something on its way.
#[derive(Clone, Copy, Debug)]
enum Mail {
    /// To the daemon, from a client.
    Input(usize, Input),
    /// A gate sees a word.
    Word(usize, Lease),
    /// A client learns that a batch is complete.
    Complete(usize),
    /// A batch reaches the device.
    Arrive(usize, Batch),
    /// A program goes on.
    Ready(usize),
    /// A client looks whether it is idle, or its deadline has come.
    Look(usize),
}

#[derive(Debug)]
pub struct Machine {
    pub schedule: DeviceTime,
    pub now: Nanos,
    pub meter: Meter,
    pub clients: Vec<Client>,
    pub weights: BTreeMap<TenantId, f64>,
    gpu: Gpu,
    mail: BTreeMap<(Nanos, u64), Mail>,
    /// The tenant whose turn it is.
    owner: Option<TenantId>,
    pub grants: u64,
    pub overruns: Vec<(TenantId, Nanos)>,
    rng: Rng,
    pub host: Host,
    /// When the schedule wants to be woken, and when it will be.
    wake: Option<(Nanos, Nanos)>,
    sent: u64,
    trace: bool,
    /// Watches every decision, for tests of their own.
    pub said: Vec<(Nanos, TenantId, Lease)>,
}

impl Machine {
    pub fn new(seed: u64) -> Self {
        Self::with(LeasePolicy::turns(), seed)
    }

    pub fn with(policy: LeasePolicy, seed: u64) -> Self {
        Self {
            schedule: DeviceTime::new(policy),
            now: Nanos::ZERO,
            meter: Meter::default(),
            clients: Vec::new(),
            weights: BTreeMap::new(),
            gpu: Gpu::default(),
            mail: BTreeMap::new(),
            owner: None,
            grants: 0,
            overruns: Vec::new(),
            rng: Rng(seed | 1),
            host: Host::quiet(),
            wake: None,
            sent: 0,
            trace: std::env::var_os("MACHINE_TRACE").is_some(),
            said: Vec::new(),
        }
    }

    /// A process of a tenant opens a context and starts its program.
    pub fn start(&mut self, tenant: u64, class: u16, compute: Compute, program: Program) -> usize {
        let tenant = TenantId(tenant);
        let at = self.gpu.add();
        let process = ProcessId(1000 + at as u64);
        let rng = Rng(self.rng.below(u64::MAX) | 1);
        let mut client = Client::new(process, tenant, program, rng);
        client.lease = self.schedule.lease(tenant).unwrap_or(Lease::FREE);
        self.clients.push(client);
        self.input(Input::Joined {
            tenant,
            process,
            gated: true,
            class,
            compute,
        });
        // It first sees the page as it is when its context is made.
        self.clients[at].lease = self.schedule.lease(tenant).expect("it joined");
        self.clients[at].said_drained = self.clients[at].lease.kind.is_closed();
        self.post(CONTEXT, Mail::Ready(at));
        at
    }

    /// A process dies: its queue with it.
    pub fn kill(&mut self, at: usize) {
        self.clients[at].gone = true;
        self.clients[at].flying.clear();
        self.gpu.forget(at);
        let process = self.clients[at].process;
        self.input(Input::Left { process });
    }

    /// A stopped client goes on: it sees its page as it is now.
    pub fn wake(&mut self, at: usize, lease: Lease) {
        self.sees(at, lease);
        self.completed(at);
    }

    /// An idle program begins the work it was given meanwhile.
    pub fn go_on(&mut self, at: usize) {
        self.ready(at);
    }

    pub fn run(&mut self, time: Nanos) {
        self.watch(time, |_| ());
    }

    /// Runs, and looks after everything that happens.
    pub fn watch(&mut self, time: Nanos, mut look: impl FnMut(&Self)) {
        let end = self.now + time;
        while self.step(end) {
            look(self);
        }
    }

    /// Advances to the next event before `end`, or to `end`.
    fn step(&mut self, end: Nanos) -> bool {
        let at = self.next_event();
        if at > end {
            self.elapse(end);
            return false;
        }
        self.elapse(at.max(self.now));
        self.happen();
        true
    }

    /// When something happens next.
    fn next_event(&mut self) -> Nanos {
        let mail = self.mail.first_key_value().map(|((at, _), _)| *at);
        let wake = self.schedule.next_timeout();
        if wake != self.wake.map(|(wanted, _)| wanted) {
            self.wake = wake.map(|wanted| (wanted, self.host.runs(wanted)));
        }
        let wake = self.wake.map(|(_, runs)| runs);
        let times = [mail, wake, self.gpu.next(self.now)];
        times.into_iter().flatten().min().unwrap_or(Nanos::MAX)
    }

    /// Lets happen what happens now.
    fn happen(&mut self) {
        let now = self.now;
        if self.wake.is_some_and(|(_, runs)| runs <= now) {
            self.wake = None;
            self.schedule.advance(self.now);
            self.react();
        }
        while let Some(entry) = self
            .mail
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now)
        {
            let mail = entry.remove();
            self.deliver(mail);
        }
    }

    /// Lets time pass on the device, and counts it.
    fn elapse(&mut self, to: Nanos) {
        let time = (to - self.now).0;
        let waits = self.clients.iter().any(Client::could_run);
        let busy = self.gpu.is_busy();
        self.meter.total += time;
        self.meter.wanted += if waits || busy { time } else { 0 };
        self.meter.wasted += if waits && !busy { time } else { 0 };
        self.count_ideal(time);
        // Keeping the device without other demand takes nothing from another tenant.
        let demanded = self.clients.iter().any(Client::demands);
        if !busy
            && demanded
            && let Some(owner) = self.owner
        {
            *self.meter.had.entry(owner).or_default() += time;
        }
        let (ran, complete) = self.gpu.pass(time);
        for (process, ran) in ran.into_iter().enumerate().filter(|(_, ran)| *ran > 0) {
            let tenant = self.clients[process].tenant;
            self.spread(tenant, self.now, to, ran);
        }
        self.now = to;
        for process in complete {
            let delay = Nanos::micros(4 + self.rng.below(8));
            self.post(delay, Mail::Complete(process));
        }
    }

    /// Counts running time evenly over the grains it spans.
    fn spread(&mut self, tenant: TenantId, from: Nanos, to: Nanos, ran: u64) {
        let (mut at, span) = (from.0, (to.0 - from.0).max(1));
        let mut left = ran;
        while at < to.0 {
            let next = ((at / meter::GRAIN + 1) * meter::GRAIN).min(to.0);
            let part = if next == to.0 {
                left
            } else {
                ran * (next - at) / span
            };
            self.meter.run(tenant, Nanos(at), part);
            (at, left) = (next, left - part);
        }
    }

    fn count_ideal(&mut self, time: u64) {
        let mut demanding: BTreeMap<TenantId, f64> = BTreeMap::new();
        for client in self.clients.iter().filter(|client| client.demands()) {
            let weight = self.weights.get(&client.tenant).copied().unwrap_or(1.0);
            demanding.insert(client.tenant, weight);
        }
        let sum: f64 = demanding.values().sum();
        for (tenant, weight) in demanding {
            *self.meter.ideal.entry(tenant).or_default() += time as f64 * weight / sum;
        }
    }

    fn post(&mut self, delay: Nanos, mail: Mail) {
        self.sent += 1;
        let at = match mail {
            Mail::Arrive(..) => self.now + delay,
            _ => self.host.runs(self.now + delay),
        };
        let at = self.in_order(&mail, at);
        self.mail.insert((at, self.sent), mail);
    }

    /// A client sees its page's words in their order, and the daemon its messages.
    fn in_order(&mut self, mail: &Mail, at: Nanos) -> Nanos {
        let last = match mail {
            Mail::Word(client, _) => &mut self.clients[*client].hears,
            Mail::Input(client, _) => &mut self.clients[*client].arrives,
            _ => return at,
        };
        *last = at.max(*last);
        *last
    }

    /// A message to the daemon. The messages of one client arrive in their order.
    fn send(&mut self, at: usize, input: Input) {
        let delay = Nanos::micros(8 + self.rng.below(15));
        self.post(delay, Mail::Input(at, input));
    }

    pub fn input(&mut self, input: Input) {
        if self.trace {
            println!("{:>12} in  {input:?}", self.now.0);
        }
        self.schedule.handle(self.now, input);
        self.react();
    }

    fn react(&mut self) {
        self.schedule
            .check()
            .unwrap_or_else(|broken| panic!("at {:?}: {broken}", self.now));
        while let Some(output) = self.schedule.poll() {
            if self.trace {
                println!("{:>12} out {output:?}", self.now.0);
            }
            match output {
                Output::Lease { tenant, lease } => self.publish(tenant, lease),
                Output::Overrun { tenant, .. } => self.overruns.push((tenant, self.now)),
                Output::Ungated { .. } => (),
            }
        }
    }

    fn publish(&mut self, tenant: TenantId, lease: Lease) {
        self.said.push((self.now, tenant, lease));
        if lease.kind.is_closed() {
            self.owner = self
                .owner
                .filter(|owner| *owner != tenant || self.is_draining(tenant));
        } else {
            self.owner = Some(tenant);
            self.grants += 1;
        }
        for at in 0..self.clients.len() {
            if self.clients[at].tenant == tenant && !self.clients[at].gone {
                let delay = Nanos::micros(6 + self.rng.below(20));
                self.post(delay, Mail::Word(at, lease));
            }
        }
    }

    fn is_draining(&self, tenant: TenantId) -> bool {
        let mine = self.clients.iter().filter(|client| client.tenant == tenant);
        mine.into_iter().any(|client| !client.flying.is_empty())
    }

    fn deliver(&mut self, mail: Mail) {
        match mail {
            Mail::Input(_, input) => self.input(input),
            Mail::Word(at, lease) => self.sees(at, lease),
            Mail::Complete(at) => self.completed(at),
            Mail::Arrive(at, batch) if !self.clients[at].gone => self.gpu.submit(at, batch),
            Mail::Arrive(..) => (),
            Mail::Ready(at) => self.ready(at),
            Mail::Look(at) => self.look(at),
        }
    }

    fn is_silent(&self, at: usize) -> bool {
        self.clients[at].gone || self.clients[at].manners == Manners::Stopped
    }

    /// A gate sees its page.
    fn sees(&mut self, at: usize, lease: Lease) {
        if self.is_silent(at) {
            return;
        }
        let client = &mut self.clients[at];
        // Words overtake each other on this bus and not in memory.
        if lease.epoch < client.lease.epoch {
            return;
        }
        let closes = lease.kind.is_closed();
        if lease.epoch == client.lease.epoch && client.lease.kind.is_closed() && !closes {
            return;
        }
        if lease.epoch != client.lease.epoch {
            (client.landed, client.launched_in_turn) = (false, false);
            (client.said_drained, client.said_wanted, client.said_idle) = (false, false, false);
        }
        client.lease = lease;
        if let LeaseKind::Open { deadline, .. } = lease.kind {
            if let Some(deadline) = deadline {
                self.post(deadline - self.now, Mail::Look(at));
            }
            self.post(IDLE, Mail::Look(at));
        }
        self.launch(at);
        self.report_drained(at);
    }

    fn completed(&mut self, at: usize) {
        if self.clients[at].gone {
            return;
        }
        let client = &mut self.clients[at];
        client.flying.pop_front();
        client.working_since = self.now;
        if client.flying.is_empty() && client.manners != Manners::Stopped {
            let pause = match client.program {
                Program::Loop(_, think) => Some(think),
                Program::Requests(_, _, pause) if client.left == 0 => {
                    Some(Nanos(pause.0 / 2 + client.rng.below(pause.0)))
                }
                _ => None,
            };
            if let Some(pause) = pause {
                self.post(pause, Mail::Ready(at));
            }
            self.post(IDLE, Mail::Look(at));
        }
        self.launch(at);
        self.report_drained(at);
    }

    fn ready(&mut self, at: usize) {
        let client = &mut self.clients[at];
        match client.program {
            Program::Bursts(_, on, off) => {
                client.on = !client.on;
                // A call that waits at the gate waits on when the burst is over.
                client.ready = client.on || client.waits_since.is_some();
                let next = if client.on { on } else { off };
                self.post(next, Mail::Ready(at));
            }
            Program::Requests(_, count, _) => (client.left, client.ready) = (count, true),
            _ => client.ready = true,
        }
        self.launch(at);
        self.post(IDLE, Mail::Look(at));
    }

    /// Whether its deadline has come, or it is idle.
    fn look(&mut self, at: usize) {
        if self.is_silent(at) {
            return;
        }
        let now = self.now;
        let client = &mut self.clients[at];
        let LeaseKind::Open { deadline, .. } = client.lease.kind else {
            return;
        };
        if deadline.is_some_and(|deadline| deadline <= now) {
            client.landed = true;
            self.launch(at);
            return self.report_drained(at);
        }
        let active = client.submitted.max(client.working_since);
        let rests = client.flying.is_empty() && !client.landed && now >= active + IDLE;
        if rests && !client.said_idle && client.waits_since.is_none() {
            client.said_idle = true;
            let (process, epoch) = (client.process, client.lease.epoch);
            self.send(
                at,
                Input::Reported {
                    process,
                    epoch,
                    report: gpushare_core::Report::Idle,
                },
            );
        }
    }
}

/// An explicit request, in percent.
pub fn request(percent: u16) -> Compute {
    Compute {
        request: Permille::new(percent * 10),
        limit: None,
    }
}

/// A hard cap, in percent.
pub fn cap(percent: u16) -> Compute {
    Compute {
        request: None,
        limit: Permille::new(percent * 10),
    }
}
