//! Every interleaving of charges, releases and reclaims on the shipped word and slow path.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpushare-protocol --release model`.

use super::{Word, take};
use loom::sync::{Arc, Mutex};

const LIMIT: u64 = 4;

struct Tenant {
    lock: Mutex<()>,
    words: [Word; 2],
}

impl Tenant {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lock: Mutex::new(()),
            words: [Word::new(), Word::new()],
        })
    }

    /// The steps of a process for one charge.
    fn charge(&self, me: usize, units: u32, step: u64) -> bool {
        self.words[me].charge(units).is_ok() || {
            let _held = self.lock.lock().unwrap();
            take(
                &self.words[me],
                &[&self.words[1 - me]],
                LIMIT,
                units,
                step,
                &|| (),
            )
            .is_ok()
        }
    }

    fn check(&self) {
        // Credit only rises under the lock, so a sum taken under the lock really existed.
        let _held = self.lock.lock().unwrap();
        let words = [self.words[0].load(), self.words[1].load()];
        assert!(
            words.iter().all(|word| word.charged <= word.credit),
            "{words:?}"
        );
        assert!(
            words.iter().map(|word| u64::from(word.credit)).sum::<u64>() <= LIMIT,
            "{words:?}"
        );
    }
}

#[test]
fn two_processes_that_charge_and_free_never_pass_the_limit() {
    loom::model(|| {
        let tenant = Tenant::new();
        let other = Arc::clone(&tenant);
        let thread = loom::thread::spawn(move || {
            if other.charge(1, 2, 4) {
                other.check();
                other.words[1].release(2);
            }
        });
        if tenant.charge(0, 3, 1) {
            tenant.check();
            tenant.words[0].release(3);
        }
        thread.join().unwrap();
        tenant.check();
        assert!(tenant.words.iter().all(|word| word.load().charged == 0));
    });
}

#[test]
fn charges_that_fit_beside_each_other_are_never_refused() {
    loom::model(|| {
        let tenant = Tenant::new();
        assert!(
            tenant.charge(1, 1, 4),
            "process 1 now holds all the credit and uses one unit"
        );
        let other = Arc::clone(&tenant);
        let thread = loom::thread::spawn(move || {
            other.words[1].release(1);
            assert!(other.charge(1, 2, 4));
        });
        assert!(tenant.charge(0, 2, 1));
        thread.join().unwrap();
        tenant.check();
    });
}

#[test]
fn a_reclaim_never_takes_what_a_racing_charge_uses() {
    loom::model(|| {
        let tenant = Tenant::new();
        assert!(tenant.charge(1, 1, 4));
        let other = Arc::clone(&tenant);
        let thread = loom::thread::spawn(move || other.words[1].charge(3).is_ok());
        let mine = tenant.charge(0, 1, 1);
        let theirs = thread.join().unwrap();
        assert!(
            mine != theirs,
            "one of the two fits, and one does: {mine} {theirs}"
        );
        tenant.check();
    });
}
