//! I9 where waits come close to their bounds: few tenants that swap on one device, patience of a
//! fraction of a second, and histories of several rotations. Checked after every event: the books,
//! the card, and that each tenant which waits for the rotation is in within its bound.

use crate::cases;
use crate::node::swap::{Obeys, policy, swapping};
use crate::node::{Manners, Node, Proc, Rng, secs};
use gpushare_core::{
    Bytes, DeviceId, Event, Nanos, Policy, ProcessId, Quota, Resolver, SwapPolicy, TenantId,
    TenantSpec,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;

/// The device of these histories, in MiB.
const DEVICE: u64 = 16 << 10;

/// One tenant.
#[derive(Clone, Debug)]
struct Draft {
    /// Its request and limit in GiB.
    request: u64,
    limit: u64,
    priority: u16,
    /// Whether it waits after `swap`.
    waits: bool,
    timeout: u64,
    /// How long its work takes to drain, in milliseconds: reports are that late.
    drain: u64,
    /// GiB a second.
    rate: u64,
    /// Memory that cannot move, in MiB.
    residue: u64,
    works: bool,
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Op {
    Run(Draft),
    Start(usize),
    Want(usize, u64),
    Free(usize, u64),
    Charge(usize, u64),
    Exit(usize),
    Finish(usize),
    Work(usize),
    Suspend(usize),
    Resume(usize),
    Cut(usize),
    Live(u64),
}

fn draft(requests: u64, limits: u64) -> impl Strategy<Value = Draft> {
    let terms = (0..requests, 4..limits, 0..3u16, any::<bool>(), 1..30u64);
    let moves = (0..380u64, 50..300u64, 0..64u64, prop::bool::weighted(0.8));
    (terms, moves).prop_map(|(terms, moves)| {
        let (request, limit, priority, waits, timeout) = terms;
        let (drain, rate, residue, works) = moves;
        Draft {
            request,
            limit,
            priority,
            waits,
            timeout,
            drain,
            rate,
            residue,
            works,
        }
    })
}

fn op(requests: u64, limits: u64) -> impl Strategy<Value = Op> {
    let at = 0..64usize;
    prop_oneof![
        3 => draft(requests, limits).prop_map(Op::Run),
        1 => at.clone().prop_map(Op::Start),
        10 => (at.clone(), 1..8000u64).prop_map(|(at, mib)| Op::Want(at, mib)),
        3 => (at.clone(), 1..8000u64).prop_map(|(at, mib)| Op::Free(at, mib)),
        2 => (at.clone(), 1..4000u64).prop_map(|(at, mib)| Op::Charge(at, mib)),
        1 => at.clone().prop_map(Op::Exit),
        1 => at.clone().prop_map(Op::Finish),
        4 => at.clone().prop_map(Op::Work),
        1 => at.clone().prop_map(Op::Suspend),
        1 => at.clone().prop_map(Op::Resume),
        1 => at.prop_map(Op::Cut),
        10 => (0..4000u64).prop_map(Op::Live),
    ]
}

/// Patience of a fraction of the usual, so that bounds are short.
fn hasty() -> Policy {
    let usual = policy(256);
    let swap = SwapPolicy {
        stays: (Nanos::millis(50), secs(120)),
        seal: Nanos::millis(500),
        progress: Nanos::millis(500),
        look_grace: Nanos::millis(200),
        backoff: (Nanos::millis(100), secs(6)),
        first_rate: 100 << 30,
        ..usual.swap
    };
    Policy {
        first_overhead: Bytes::mib(50),
        step: Bytes::mib(64),
        swap,
        ..usual
    }
}

struct History {
    node: Node,
    device: DeviceId,
    /// What each process has said of its memory that cannot move.
    told: BTreeMap<ProcessId, Bytes>,
}

impl History {
    fn new(seed: u64, lag: u64) -> Self {
        let mut node = Node::with(hasty());
        node.claims = Some(Rng(seed));
        node.read_every = Nanos::millis(250);
        node.lag = (lag > 0).then(|| (Rng(seed), Nanos::millis(lag)));
        let device = node.device_of(Bytes::mib(DEVICE));
        let told = BTreeMap::new();
        Self { node, device, told }
    }

    fn spec(&self, draft: &Draft) -> TenantSpec {
        let quota = Quota {
            request: Bytes::gib(draft.request),
            limit: Bytes::gib(draft.limit.max(draft.request)),
        };
        let waits = draft.waits.then_some(Resolver::Wait);
        TenantSpec {
            quotas: vec![(self.device, quota)],
            priority: 400 + 100 * draft.priority,
            on_collision: [Resolver::Swap].into_iter().chain(waits).collect(),
            wait_timeout: secs(draft.timeout),
            ..swapping(self.device, 0)
        }
    }

    fn run(&mut self, draft: &Draft) -> TenantId {
        let (tenant, _) = self.node.run(self.spec(draft));
        if let Some(guest) = self.node.guests.get_mut(&tenant) {
            guest.manners = Manners::Stubborn;
            guest.moves.works = draft.works;
            guest.moves.drain = Nanos::millis(draft.drain);
            guest.moves.rate = draft.rate << 30;
            guest.moves.residue = Bytes::mib(draft.residue);
        }
        tenant
    }

    /// Tenants that each want most of their limit.
    fn crowds(&mut self, drafts: &[Draft]) {
        for draft in drafts {
            let tenant = self.run(draft);
            for process in self.node.processes_of(tenant) {
                let bytes = Bytes::mib((draft.limit << 10) - 100);
                self.node.want(process, self.device, bytes);
            }
            self.node.live(secs(2));
        }
    }

    fn tenant(&self, at: usize) -> Option<TenantId> {
        let all: Vec<TenantId> = self.node.guests.keys().copied().collect();
        (!all.is_empty()).then(|| all[at % all.len()])
    }

    fn process(&self, at: usize) -> Option<ProcessId> {
        let all: Vec<ProcessId> = self.node.processes.keys().copied().collect();
        let own = (!all.is_empty()).then(|| all[at % all.len()])?;
        let ready = &self.node.processes[&own].contexts;
        ready.contains_key(&self.device).then_some(own)
    }

    fn apply(&mut self, op: &Op) {
        let (tenant, process) = match op {
            Op::Run(_) | Op::Live(_) => (None, None),
            Op::Start(at) | Op::Finish(at) | Op::Work(at) | Op::Suspend(at) | Op::Resume(at) => {
                (self.tenant(*at), None)
            }
            Op::Want(at, _) | Op::Free(at, _) | Op::Charge(at, _) | Op::Exit(at) | Op::Cut(at) => {
                (None, self.process(*at))
            }
        };
        let (node, device) = (&mut self.node, self.device);
        match (op, tenant, process) {
            (Op::Run(draft), ..) if node.guests.len() < 7 => {
                self.run(draft);
            }
            (Op::Live(millis), ..) => node.live(Nanos::millis(*millis)),
            (Op::Start(_), Some(tenant), _) if node.processes_of(tenant).len() < 3 => {
                node.start(tenant);
            }
            (Op::Finish(_), Some(tenant), _) => node.finish(tenant),
            (Op::Work(_), Some(tenant), _) => {
                node.tell(Event::Worked { tenant });
                node.call_where_out(tenant);
            }
            (Op::Suspend(_), Some(tenant), _) => node.tell(Event::Suspend { tenant }),
            (Op::Resume(_), Some(tenant), _) => node.tell(Event::Resume { tenant }),
            (Op::Want(_, mib), _, Some(process)) => {
                node.want(process, device, Bytes::mib(*mib));
            }
            (Op::Free(_, mib), _, Some(process)) => {
                node.free(process, device, Bytes::mib(*mib));
            }
            (Op::Charge(_, mib), _, Some(process)) => {
                node.charge(process, device, Bytes::mib(*mib));
            }
            (Op::Exit(_), _, Some(process)) => node.exit(process),
            // A tenant of several processes loses one in the middle of whatever it does.
            (Op::Cut(_), _, Some(process)) => {
                let tenant = node.processes[&process].tenant;
                if node.processes_of(tenant).len() > 1 {
                    node.exit(process);
                }
            }
            _ => (),
        }
        self.tells_what_stays();
    }

    /// Each process says how much of its memory cannot move, if that has changed.
    fn tells_what_stays(&mut self) {
        let device = self.device;
        let stay = |(process, proc): (&ProcessId, &Proc)| {
            let guest = self.node.guests.get(&proc.tenant)?;
            let bytes = proc.fixed(device, guest.moves.residue);
            let told = self.told.get(process).copied().unwrap_or_default();
            (bytes != told).then_some((*process, bytes))
        };
        let new: Vec<_> = self.node.processes.iter().filter_map(stay).collect();
        for (process, bytes) in new {
            self.told.insert(process, bytes);
            self.node.tell(Event::Stays {
                process,
                device,
                bytes,
            });
        }
    }

    /// All that is asked for ends. How many tenants returned.
    fn ends(mut self) -> u64 {
        for _ in 0..30 {
            self.node.live(secs(10));
            if self.node.asks.is_empty() {
                break;
            }
        }
        assert!(
            self.node.asks.is_empty(),
            "I4: these never ended: {:?}",
            self.node.asks
        );
        if std::env::var_os("GPUTEST_SHOW").is_some() {
            let returns = &self.node.returns;
            eprintln!("{} returns, {} thousandths", returns.done, returns.longest);
        }
        self.node.returns.done
    }
}

/// A history that failed once: a look that began before a tenant was back told of less than its
/// charges, so its overhead was taken for less, and the next return found too little room.
#[test]
fn a_look_from_before_a_return_teaches_no_overhead() {
    let run = |limit, priority, drain, rate, residue| {
        Op::Run(Draft {
            request: 0,
            limit,
            priority,
            waits: false,
            timeout: 9,
            drain,
            rate,
            residue,
            works: true,
        })
    };
    let ops = [
        run(6, 0, 0, 70, 0),
        Op::Exit(0),
        run(6, 1, 191, 20, 0),
        Op::Exit(0),
        run(4, 0, 0, 20, 0),
        Op::Exit(0),
        Op::Start(63),
        Op::Want(0, 5048),
        run(6, 0, 354, 134, 28),
        run(13, 2, 39, 119, 0),
        Op::Want(53, 5866),
        Op::Want(37, 5321),
    ];
    let mut history = History::new(12_563_988_396_767_439_479, 10);
    ops.iter().for_each(|op| history.apply(op));
    history.ends();
}

#[test]
fn each_return_is_within_its_bound_while_tenants_come_and_die() {
    let returns = Cell::new(0);
    let crowd = || vec(draft(3, 14), 2..6);
    let ops = || vec(op(3, 14), 1..120);
    let config = cases::config(12);
    proptest!(config, |(crowd in crowd(), ops in ops(), lag in 0..30u64, seed: u64)| {
        let mut history = History::new(seed, lag);
        history.crowds(&crowd);
        ops.iter().for_each(|op| history.apply(op));
        returns.set(returns.get() + history.ends());
    });
    assert!(returns.get() > 0, "no tenant returned in any case");
}

#[test]
fn one_that_does_not_obey_costs_the_others_no_turn() {
    let returns = Cell::new(0);
    let crowd = || vec(draft(1, 11), 2..5);
    let ops = || vec(op(1, 11), 1..120);
    let obeys = || {
        prop::sample::select(vec![
            Obeys::Busy,
            Obeys::Silently,
            Obeys::Lying,
            Obeys::Halting,
            Obeys::Failing,
            Obeys::Stopping,
        ])
    };
    let config = cases::config(12);
    proptest!(config, |(crowd in crowd(), ops in ops(), obeys in obeys(), seed: u64)| {
        let mut history = History::new(seed, 0);
        // It holds a part that each of the others can do without.
        let liar = history.run(&Draft {
            request: 0,
            limit: 2,
            priority: 1,
            waits: true,
            timeout: 5,
            drain: 5,
            rate: 50,
            residue: 0,
            works: true,
        });
        history.node.obeys(liar, obeys);
        history.node.guarantees = false;
        history.node.returns.trusted.insert(history.device);
        history.node.returns.liars.insert(liar);
        let process = history.node.processes_of(liar)[0];
        history.node.want(process, history.device, Bytes::gib(2));
        history.crowds(&crowd);
        ops.iter().for_each(|op| history.apply(op));
        returns.set(returns.get() + history.ends());
    });
    assert!(returns.get() > 0, "no tenant returned in any case");
}
