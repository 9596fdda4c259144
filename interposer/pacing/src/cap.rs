//! A tenant's hard cap, kept by its processes alone: without a daemon, or while it is silent.
//!
//! A bucket of time that all processes share, in two words of the usage page. It fills at `cap`
//! nanoseconds a nanosecond; processes that hold the device empty it. There is no lock:
//! [`Bucket::pay`] moves `paid_until` forward by compare-and-swap and pays only for the part it
//! moved. So time that several processes held together is paid once, and a process that dies or
//! stops at any point neither takes time from the others nor gives them any.
//!
//! The level is not stored. The stored time is when the bucket was, or will be, empty: the level is
//! the inflow since then.

use std::sync::atomic::{AtomicU64, Ordering};

use gpushare_protocol::cap::Cap;
use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE, Turn};

/// The most debt that is remembered (ns of the bucket): a kernel of so long cannot be kept in any
/// second's window anyway.
const MOST_DEBT: u64 = 60_000_000_000;
/// A time this far in the future was not written by this clock (ns).
const ABSURD: u64 = 3_600_000_000_000;
/// Epochs of turns that no daemon gave begin here.
const FIRST_EPOCH: u64 = 1 << 61;

/// The shared words.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'a> {
    /// `CLOCK_MONOTONIC` nanoseconds up to which holding is paid.
    pub paid_until: &'a AtomicU64,
    /// `CLOCK_MONOTONIC` nanoseconds at which the bucket was or will be empty.
    pub empty_at: &'a AtomicU64,
    /// Its rate of inflow.
    pub cap: Cap,
}

impl Bucket<'_> {
    /// When it was or will be empty, between full and the most debt.
    fn empty_at(&self, now: u64) -> u64 {
        let stored = self.empty_at.load(Ordering::Acquire);
        self.cap.bound_empty_at(stored, now, MOST_DEBT)
    }

    /// When the level will be, or was, `level`.
    fn reaches(&self, level: u64, now: u64) -> u64 {
        self.cap.reaches(level, self.empty_at(now))
    }

    /// The level at `now`; 0 for a debt.
    fn level(&self, now: u64) -> u64 {
        self.cap.level_at(self.empty_at(now), now)
    }

    /// Whether nothing is left in it at `now`.
    pub fn is_empty(&self, now: u64) -> bool {
        self.level(now) == 0
    }

    /// The device was held from `from` to `to`: pays for the unpaid part.
    pub fn pay(&self, from: u64, to: u64, now: u64) {
        let to = to.min(now);
        let moved = self
            .paid_until
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |paid| {
                let is_sound = paid <= now.saturating_add(ABSURD);
                (!is_sound || paid < to).then_some(to)
            });
        let Ok(paid) = moved else { return };
        self.take(
            to,
            to.saturating_sub(if paid > to { from } else { from.max(paid) }),
        );
    }

    /// As [`pay`](Self::pay), for time that was kept back while [`paid`](Self::paid) was `paid`.
    /// Time that other processes held meanwhile is paid twice: no word says how much it was.
    pub fn pay_late(&self, (from, to): (u64, u64), paid: u64, now: u64) {
        let (from, to) = (from.max(paid), to.min(now));
        self.paid_until.fetch_max(to, Ordering::AcqRel);
        self.take(to, to.saturating_sub(from));
    }

    /// Up to when holding was paid for last.
    pub fn paid(&self, now: u64) -> u64 {
        self.paid_until.load(Ordering::Acquire).min(now)
    }

    /// Takes out `unpaid` nanoseconds that end at `to`.
    fn take(&self, to: u64, unpaid: u64) {
        if unpaid == 0 {
            return;
        }
        let _ = self
            .empty_at
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |stored| {
                let then = to.saturating_sub(unpaid);
                let empty_at = self.cap.bound_empty_at(stored, then, MOST_DEBT);
                Some(self.cap.reaches(unpaid, empty_at))
            });
    }
}

/// The turns that a bucket gives this process.
#[derive(Debug, Default)]
pub struct LocalLease {
    turns: u64,
    open: bool,
}

impl LocalLease {
    /// The turn now, and when it should be asked for again. `landed`: the gate closed by itself in
    /// the last one.
    pub fn turn(&mut self, bucket: &Bucket<'_>, now: u64, landed: bool) -> (Turn, u64) {
        let level = bucket.level(now);
        let opens = bucket.reaches(bucket.cap.turn_worth(), now);
        if self.open && (level == 0 || landed) {
            self.open = false;
        } else if !self.open && opens <= now {
            self.open = true;
            self.turns += 1;
        }
        let (state, deadline, again) = if self.open {
            let ends = now.saturating_add(bucket.cap.lasts(level));
            (LeaseState::Open, ends, ends)
        } else {
            (LeaseState::Closed, NO_DEADLINE, opens)
        };
        let turn = Turn {
            word: LeaseWord::new(FIRST_EPOCH + self.turns, state),
            deadline,
            cap: bucket.cap.part().get().into(),
            ..Turn::default()
        };
        (turn, again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_protocol::cap::BURST_CAPACITY;
    use gpushare_protocol::units::Permille;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    #[derive(Default)]
    struct Words {
        paid_until: AtomicU64,
        empty_at: AtomicU64,
    }

    impl Words {
        fn bucket(&self, cap: u16) -> Bucket<'_> {
            Bucket {
                paid_until: &self.paid_until,
                empty_at: &self.empty_at,
                cap: Cap::new(Permille::new(cap).unwrap()),
            }
        }
    }

    #[test]
    fn a_fresh_bucket_is_full_and_no_fuller() {
        let words = Words::default();
        let bucket = words.bucket(250);
        assert_eq!(bucket.level(100 * SECOND), BURST_CAPACITY);
        assert_eq!(bucket.level(200 * SECOND), BURST_CAPACITY);
    }

    #[test]
    fn what_is_held_is_paid_and_flows_in_again() {
        let words = Words::default();
        let bucket = words.bucket(500);
        let now = 100 * SECOND;
        bucket.pay(now - 8 * MS, now, now);
        let left = BURST_CAPACITY - 4 * MS;
        assert_eq!(bucket.level(now), left, "half of it flowed in meanwhile");
        assert_eq!(bucket.level(now + 4 * MS), left + 2 * MS);
        bucket.pay(now, now + 40 * MS, now + 40 * MS);
        assert_eq!(bucket.level(now + 40 * MS), 0);
        assert_eq!(bucket.reaches(0, now + 40 * MS), now + 52 * MS, "in debt");
    }

    #[test]
    fn what_two_held_together_is_paid_once_and_what_each_held_alone_too() {
        let words = Words::default();
        let bucket = words.bucket(500);
        let now = 100 * SECOND;
        bucket.pay(now - 4 * MS, now, now);
        bucket.pay(now - 4 * MS, now, now);
        bucket.pay(now - 3 * MS, now + MS, now + MS);
        assert_eq!(bucket.level(now + MS), BURST_CAPACITY - 5 * MS / 2);
    }

    #[test]
    fn time_that_is_paid_late_is_paid_though_others_were_faster() {
        let words = Words::default();
        let bucket = words.bucket(500);
        let now = 100 * SECOND;
        bucket.pay(now - MS, now, now);
        let paid = bucket.paid(now);
        let late = now + 1000 * MS;
        bucket.pay(late - 2 * MS, late - MS, late - MS);
        bucket.pay_late((now - MS, late), paid, late);
        let debt = bucket.reaches(0, late) - late;
        let full = 2 * BURST_CAPACITY;
        assert_eq!(debt, 2000 * MS - full, "all of the second but what it held");
        let words = Words::default();
        let bucket = words.bucket(500);
        bucket.pay_late((now - 8 * MS, now), now - 4 * MS, now);
        assert_eq!(bucket.level(now), BURST_CAPACITY - 2 * MS, "half was paid");
    }

    #[test]
    fn words_from_another_time_neither_block_nor_give() {
        let words = Words::default();
        let now = 100 * SECOND;
        words.paid_until.store(u64::MAX, Ordering::Relaxed);
        words.empty_at.store(u64::MAX, Ordering::Relaxed);
        let bucket = words.bucket(500);
        assert!(bucket.reaches(BURST_CAPACITY, now) <= now + 2 * MOST_DEBT + 2 * BURST_CAPACITY);
        words.empty_at.store(0, Ordering::Relaxed);
        bucket.pay(now - MS, now, now);
        assert_eq!(bucket.level(now), BURST_CAPACITY - MS / 2);
    }

    #[test]
    fn one_that_died_between_the_two_words_costs_nobody_anything() {
        let words = Words::default();
        let bucket = words.bucket(500);
        let now = 100 * SECOND;
        // It moved `paid_until` and was killed.
        words.paid_until.store(now, Ordering::Relaxed);
        bucket.pay(now - MS, now + MS, now + MS);
        assert_eq!(bucket.level(now + MS), BURST_CAPACITY - MS / 2);
    }

    /// Processes that always have work, each with its own gate thread that looks at its own times.
    fn share(cap: u64, processes: usize, kernel: u64) -> (f64, f64) {
        let words = Words::default();
        let bucket = words.bucket(u16::try_from(cap).unwrap());
        let mut duties: Vec<LocalLease> = (0..processes).map(|_| LocalLease::default()).collect();
        let mut held: Vec<Option<u64>> = vec![None; processes];
        let step = MS / 20;
        let mut busy = Vec::new();
        let mut now = 50 * SECOND;
        let mut ends = vec![0_u64; processes];
        for tick in 0..100_000_usize {
            now += step;
            for at in 0..processes {
                if (tick + at * 7) % 10 != 0 {
                    continue;
                }
                if let Some(from) = held[at] {
                    bucket.pay(from, now, now);
                    held[at] = Some(now);
                }
                let (turn, _) = duties[at].turn(&bucket, now, false);
                let is_open = turn.word.state() == LeaseState::Open;
                if held[at].is_some() && now >= ends[at] {
                    held[at] = None;
                }
                if is_open && held[at].is_none() {
                    held[at] = Some(now);
                    ends[at] = now + kernel;
                }
            }
            busy.push(held.iter().any(Option::is_some));
        }
        let second = usize::try_from(SECOND / step).unwrap();
        let windows = busy.windows(second).step_by(97);
        let shares: Vec<f64> = windows
            .map(|window| {
                window.iter().filter(|busy| **busy).count() as f64 / second as f64 * 1000.0
            })
            .skip(30)
            .collect();
        let least = shares.iter().copied().fold(f64::MAX, f64::min);
        let most = shares.iter().copied().fold(0.0, f64::max);
        (least, most)
    }

    #[test]
    fn a_cap_holds_in_every_second_for_one_process_and_for_several() {
        for cap in [100, 300, 500, 900] {
            for processes in [1, 3] {
                let (least, most) = share(cap, processes, MS);
                let cap = cap as f64;
                assert!(
                    least >= cap - 20.0 && most <= cap + 20.0,
                    "{processes} processes under {cap}: {least} to {most} thousandths"
                );
            }
        }
    }

    #[test]
    fn a_gate_that_closed_by_itself_opens_in_another_epoch() {
        let words = Words::default();
        let bucket = words.bucket(500);
        let mut lease = LocalLease::default();
        let now = 100 * SECOND;
        let (first, _) = lease.turn(&bucket, now, false);
        assert_eq!(first.word.state(), LeaseState::Open);
        assert_eq!(first.deadline, now + 2 * BURST_CAPACITY);
        let (landed, _) = lease.turn(&bucket, now, true);
        assert_eq!(landed.word.state(), LeaseState::Closed);
        let (again, _) = lease.turn(&bucket, now, false);
        assert_eq!(again.word.state(), LeaseState::Open);
        assert_ne!(again.word.epoch(), first.word.epoch());
    }

    #[test]
    fn an_empty_bucket_says_when_it_opens() {
        let words = Words::default();
        let bucket = words.bucket(100);
        let mut lease = LocalLease::default();
        let now = 100 * SECOND;
        bucket.pay(now - 18 * MS, now, now);
        let (turn, again) = lease.turn(&bucket, now, false);
        assert_eq!(turn.word.state(), LeaseState::Closed);
        // 1.8 ms flowed in, 9 are a turn's worth.
        assert_eq!(again, now + 72 * MS);
        assert_eq!(
            lease.turn(&bucket, again, false).0.word.state(),
            LeaseState::Open
        );
    }
}
