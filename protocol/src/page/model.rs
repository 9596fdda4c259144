//! Every interleaving of charges, releases and reclaims on the shipped word and slow path.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpushare-protocol --release model`.

use super::token::{GRACE, Token};
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

/// Long after the machine's start (ns).
const NOW: u64 = 1 << 40;
const SLICE: u64 = 500_000;

#[test]
fn one_of_two_processes_has_the_token_and_the_other_is_told_when_to_ask() {
    loom::model(|| {
        let token = Arc::new(Token::new());
        let other = Arc::clone(&token);
        let thread = loom::thread::spawn(move || other.take(1, NOW, SLICE).is_ok());
        let mine = token.take(0, NOW, SLICE).is_ok();
        let theirs = thread.join().unwrap();
        assert!(mine != theirs, "{mine} {theirs}");
        assert_eq!(token.holder(NOW), Some(usize::from(theirs)));
        assert!(token.is_wanted(NOW));
    });
}

#[test]
fn a_token_that_is_freed_wakes_the_process_that_was_refused() {
    loom::model(|| {
        let token = Arc::new(Token::new());
        assert!(token.take(0, NOW, SLICE).is_ok());
        let other = Arc::clone(&token);
        let thread = loom::thread::spawn(move || {
            let taken = other.take(1, NOW, SLICE).err()?;
            // A sleep on a word that has changed ends at once.
            let sleeps = other.freed.load(loom::sync::atomic::Ordering::SeqCst) == taken.seen;
            Some(sleeps)
        });
        let wakes = token.free(0, NOW);
        match thread.join().unwrap() {
            Some(true) => assert!(wakes, "it sleeps, and no process is woken"),
            Some(false) => assert!(token.take(1, NOW, SLICE).is_ok()),
            None => assert_eq!(token.holder(NOW), Some(1)),
        }
        assert!(token.take(1, NOW + GRACE, SLICE).is_ok());
    });
}
