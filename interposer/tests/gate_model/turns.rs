//! A tenant under a daemon: a thread that opens its gate itself, beside the gate's own thread.

use gpushare_pacing::follower::{Act, Facts, GateState, LeaseFollower};
use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE, Turn};
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Mutex};

use super::word::{closed, slow};
use super::{DEVICE, Gate};

/// A page, one launching thread that opens for itself, and a gate thread.
struct Tenant {
    gate: Arc<Gate>,
    page: AtomicU64,
    follower: Mutex<LeaseFollower>,
    /// Launched work that is not complete.
    under_way: AtomicU32,
    /// The last epoch that was said to be drained.
    drained: AtomicU64,
}

impl Tenant {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(1),
            page: AtomicU64::new(LeaseWord::new(1, LeaseState::Open).bits()),
            follower: Mutex::new(LeaseFollower::default()),
            under_way: AtomicU32::new(0),
            drained: AtomicU64::new(0),
        })
    }

    fn turn(&self) -> Turn {
        Turn {
            word: LeaseWord::from_bits(self.page.load(Ordering::Acquire)),
            deadline: NO_DEADLINE,
            ..Turn::default()
        }
    }

    /// The part of an act that `DeviceGate` carries out under its lock.
    fn act(&self, act: Act) {
        let word = &self.gate.word;
        match act {
            Act::Open => word.change(closed(DEVICE), slow(DEVICE)),
            Act::Close => {
                word.change(0, slow(DEVICE) | closed(DEVICE));
                fence(Ordering::SeqCst);
            }
            _ => {}
        }
    }

    /// One round of the gate thread, in the steps of `Rounds::device` and `DeviceGate::step`. With
    /// `checks` it drops facts of an earlier state.
    fn round(&self, checks: bool) {
        let stands = self.follower.lock().unwrap().stands();
        let turn = self.turn();
        let stand = self.follower.lock().unwrap().stand();
        let quiet =
            stand == GateState::Closing && !self.gate.threads[0].record.may_submit_to(DEVICE);
        let facts = Facts {
            empty: quiet && self.under_way.load(Ordering::Acquire) == 0,
            quiet,
            ..Facts::default()
        };
        let mut follower = self.follower.lock().unwrap();
        if checks && follower.stands() != stands {
            return;
        }
        let act = follower.step(0, &turn, &facts);
        self.act(act);
        drop(follower);
        if let Act::Drained(epoch) = act {
            self.drained.store(epoch, Ordering::Release);
        }
    }

    /// A thread at a closed gate: opens it where the page lets it, launches once, and ends the turn
    /// early.
    fn launch(&self) {
        let mut follower = self.follower.lock().unwrap();
        let turn = self.turn();
        if follower.is_opened_by(&turn) {
            let act = follower.step(0, &turn, &Facts::default());
            self.act(act);
        }
        drop(follower);
        self.under_way.store(1, Ordering::Relaxed);
        if self.gate.launch(0) {
            let mut follower = self.follower.lock().unwrap();
            if follower.land(0) {
                self.act(Act::Close);
            }
            drop(follower);
            // SAFETY: as in `Gate::launch`: the launched work uses the device until now.
            let device = &self.gate.threads[0].device;
            device.with_mut(|device| unsafe { *device += 1 });
        }
        self.under_way.store(0, Ordering::Release);
    }

    /// Another tenant's use of the device once this one has drained.
    fn is_others(&self, epoch: u64) {
        if self.drained.load(Ordering::Acquire) == epoch {
            // SAFETY: as in `launch`; the model checks that no launch slips through.
            self.gate.threads[0]
                .device
                .with_mut(|device| unsafe { *device += 1 });
        }
    }
}

fn turns(checks: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let tenant = Tenant::new();
        tenant.round(checks);
        tenant.page.store(
            LeaseWord::new(1, LeaseState::Closed).bits(),
            Ordering::Release,
        );
        tenant.round(checks);
        let launching = Arc::clone(&tenant);
        let launching = loom::thread::spawn(move || launching.launch());
        let gate = Arc::clone(&tenant);
        let gate = loom::thread::spawn(move || (0..2).for_each(|_| gate.round(checks)));
        // The daemon: another tenant has its turn once this tenant has drained. Then this tenant
        // has its second turn, and reports again when it has drained.
        tenant.is_others(1);
        tenant.page.store(
            LeaseWord::new(2, LeaseState::Open).bits(),
            Ordering::Release,
        );
        loom::thread::yield_now();
        tenant.is_others(2);
        launching.join().unwrap();
        gate.join().unwrap();
    });
}

#[test]
fn no_launch_of_a_thread_that_opens_for_itself_slips_through() {
    turns(true);
}

#[test]
#[should_panic(expected = "oncurrent")]
fn facts_from_before_an_opening_would_let_a_launch_through() {
    turns(false);
}
