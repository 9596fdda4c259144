//! The slow path's decision: does this charge fit, if necessary with unused credit of other
//! processes?
//!
//! Pure: it works on words alone. The caller holds the tenant lock, so credit changes only here;
//! charges and releases of other processes go on beside it.

use super::{
    Split,
    word::{Short, Word},
};

/// A charge that does not fit in the tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Units the tenant's processes held at an instant within the call.
    pub charged: u64,
}

/// Sums are taken until two agree before a request is refused on them. Other processes free and
/// charge while we read, and a sum of numbers read at different instants may never have existed.
const COLLECTS: u32 = 8;

/// Passes over the other words. Each one either finds the missing credit or proves that there is
/// none; only frees that race with the passes make a further one necessary.
const PASSES: u32 = 64;

/// Charges `units` to `own`, whose tenant has the given `limit` and whose other words are
/// `others`.
///
/// A request that does not fit is refused before anything is written. A request that fits takes its
/// step of credit from free credit first, and only the missing part from other processes' unused
/// credit. `stored` is called after each store that another process can see.
///
/// # Errors
/// [`Refusal`] if the charges of all processes and `units` together exceed `limit`.
pub fn take(
    own: &Word,
    others: &[&Word],
    limit: u64,
    units: u32,
    step: u64,
    stored: &dyn Fn(),
) -> Result<(), Refusal> {
    refuse_if_hopeless(own, others, limit, units)?;
    for _ in 0..PASSES {
        let held: u64 = others
            .iter()
            .map(|word| u64::from(word.load().held()))
            .sum();
        let available = limit.saturating_sub(held + u64::from(own.load().credit));
        let Err(Short { by }) = own.charge_taking(units, available, step) else {
            stored();
            return Ok(());
        };
        if reclaim(others, by.saturating_sub(available), stored) == 0 {
            // All of it was in use when we passed. A free since then is worth another pass.
            refuse_if_hopeless(own, others, limit, units)?;
        }
    }
    Err(Refusal {
        charged: charged(&collect(own, others)),
    })
}

/// Refuses, without a store, a request that no reclaim could make room for.
fn refuse_if_hopeless(own: &Word, others: &[&Word], limit: u64, units: u32) -> Result<(), Refusal> {
    let mut before = collect(own, others);
    for _ in 0..COLLECTS {
        let charged = charged(&before);
        if charged + u64::from(units) <= limit {
            return Ok(());
        }
        // The process's own charges change with its other threads; that alone is no reason to read
        // again.
        let now = collect(own, others);
        if now == before || u64::from(units) > limit {
            return Err(Refusal { charged });
        }
        before = now;
    }
    // The books do not stand still for long enough to be read: let the reclaim stop them.
    Ok(())
}

fn collect(own: &Word, others: &[&Word]) -> Vec<Split> {
    std::iter::once(&own)
        .chain(others)
        .map(|word| word.load())
        .collect()
}

fn charged(words: &[Split]) -> u64 {
    words.iter().map(|word| u64::from(word.charged)).sum()
}

/// Takes up to `missing` units of unused credit from `others`.
fn reclaim(others: &[&Word], missing: u64, stored: &dyn Fn()) -> u64 {
    let mut taken = 0;
    for word in others {
        if taken == missing {
            break;
        }
        let got = u64::from(word.reclaim(missing - taken));
        if got > 0 {
            stored();
        }
        taken += got;
    }
    taken
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    };

    fn word(charged: u32, credit: u32) -> Word {
        let word = Word::new();
        word.charge_taking(credit, u64::MAX, 0).unwrap();
        word.release(credit - charged);
        word
    }

    fn split(charged: u32, credit: u32) -> Split {
        Split { charged, credit }
    }

    #[test]
    fn credit_nobody_holds_is_taken_in_a_step() {
        let (own, other) = (word(0, 0), word(10, 20));
        take(&own, &[&other], 100, 5, 30, &|| ()).unwrap();
        assert_eq!((own.load(), other.load()), (split(5, 30), split(10, 20)));
    }

    #[test]
    fn credit_that_sits_idle_elsewhere_is_no_reason_to_refuse() {
        let (own, a, b) = (word(0, 0), word(1, 50), word(0, 50));
        take(&own, &[&a, &b], 100, 99, 30, &|| ()).unwrap();
        assert_eq!(
            (own.load(), a.load(), b.load()),
            (split(99, 99), split(1, 1), split(0, 0))
        );
    }

    #[test]
    fn no_more_is_reclaimed_than_is_missing() {
        let (own, other) = (word(0, 0), word(1, 100));
        take(&own, &[&other], 100, 10, 30, &|| ()).unwrap();
        assert_eq!((own.load(), other.load()), (split(10, 10), split(1, 90)));
    }

    #[test]
    fn a_request_that_will_be_refused_changes_nothing() {
        let (own, other) = (word(3, 5), word(1, 95));
        let stores = AtomicU64::new(0);
        let refusal = take(&own, &[&other], 100, 97, 30, &|| {
            stores.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(refusal, Err(Refusal { charged: 4 }));
        assert_eq!(
            (own.load(), other.load(), stores.into_inner()),
            (split(3, 5), split(1, 95), 0)
        );
    }

    #[test]
    fn the_last_unit_can_be_charged_and_not_one_more() {
        let (own, other) = (word(3, 5), word(1, 95));
        take(&own, &[&other], 100, 96, 30, &|| ()).unwrap();
        assert_eq!(
            take(&own, &[&other], 100, 1, 30, &|| ()),
            Err(Refusal { charged: 100 })
        );
    }

    #[test]
    fn what_bound_words_have_charged_is_not_there_for_others() {
        let (own, a, b) = (word(50, 80), word(30, 30), word(20, 60));
        [&own, &a, &b].into_iter().for_each(Word::bind);
        let refused = take(&own, &[&a, &b], 100, 1, 30, &|| ());
        assert_eq!(refused, Err(Refusal { charged: 100 }));
        b.release(10);
        take(&own, &[&a, &b], 100, 4, 30, &|| ()).unwrap();
        let split = |charged, credit| Split { charged, credit };
        assert_eq!(own.load(), split(54, 54), "no more than is missing");
        take(&a, &[&own, &b], 100, 6, 30, &|| ()).unwrap();
        let sum: u32 = [&own, &a, &b].iter().map(|word| word.load().held()).sum();
        assert_eq!(sum, 100);
    }

    /// Every thread is a process with a word of its own; each charges and frees at random. The sum
    /// of charges is checked by a gauge that is raised after a charge and lowered before a release,
    /// so it never reads too high.
    #[test]
    fn racing_words_stay_within_the_limit_and_what_fits_is_granted() {
        const LIMIT: u64 = 64;
        let words: Vec<Word> = (0..4).map(|_| Word::new()).collect();
        let (lock, gauge, refused) = (Mutex::new(()), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for me in 0..words.len() {
                let (words, lock, gauge, refused) = (&words, &lock, &gauge, &refused);
                scope.spawn(move || {
                    let others: Vec<&Word> = words
                        .iter()
                        .enumerate()
                        .filter(|(i, _)| *i != me)
                        .map(|(_, w)| w)
                        .collect();
                    let mut seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(me as u64 + 1);
                    for _ in 0..20_000 {
                        seed ^= seed << 13;
                        seed ^= seed >> 7;
                        seed ^= seed << 17;
                        // Four processes that ask for 16 at the most fit beside each other: none
                        // may be refused.
                        let units = u32::try_from(seed % 16).unwrap() + 1;
                        let granted = words[me].charge(units).is_ok() || {
                            let _held = lock.lock().unwrap();
                            take(&words[me], &others, LIMIT, units, seed % 24, &|| ()).is_ok()
                        };
                        if !granted {
                            refused.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                        let sum =
                            gauge.fetch_add(u64::from(units), Ordering::SeqCst) + u64::from(units);
                        assert!(sum <= LIMIT, "{sum} units charged under a limit of {LIMIT}");
                        gauge.fetch_sub(u64::from(units), Ordering::SeqCst);
                        words[me].release(units);
                    }
                });
            }
        });
        assert_eq!(refused.into_inner(), 0, "requests that fit were refused");
        let credit: u64 = words.iter().map(|word| u64::from(word.load().credit)).sum();
        assert!(
            credit <= LIMIT,
            "{credit} units of credit under a limit of {LIMIT}"
        );
        assert!(words.iter().all(|word| word.load().charged == 0));
    }
}
