//! How long operations are expected to take: one running mean per kernel function and per graph,
//! learned from batches.
//!
//! The completion of a batch is seen only at a check, so a measurement is an interval: the batch
//! took at least until the last check that found it incomplete, and at most until the check that
//! found it complete. A mean above that interval moves to its end; one below it moves to its
//! middle, but at most to twice its beginning; one within it does not move.
//!
//! While other tenants work on the device such intervals are not used. Then single operations are
//! timed, by an event before and one behind them, and the lower quartile of the last times counts:
//! the others may have been interrupted. Such a time is an interval too where the device may have
//! waited for the program between the two events. Why: ADR 67. Where a key may mean other work than
//! before, or a time differs much, the next operations are timed, one after another: ADR 196. Pure:
//! no clock, no driver.

mod entry;
mod means;

use entry::Entry;
use means::{moved, scaled};

/// Places for a key; of more keys with one hash the least measured one is replaced.
const WAYS: usize = 4;
/// Sets of the table: 4096 keys, 384 KiB, made when first used.
const SETS: usize = 1024;
/// From so many measurements on a mean is believed, and so many operations of a key are timed at
/// first.
const LEARNED: u8 = 3;
/// Times of single operations that are kept of a key; so many in a row are taken of one in doubt.
const SAMPLES: u8 = 8;
/// From this duration on (ns) a time by events is exact: their own cost does not matter. Shorter
/// operations are measured better by marks behind many of them, while no other tenant works.
const EXACT: u64 = 50_000;
/// The most time of a batch that is not its operations' (ns): until the first operation begins, and
/// from the end of the last one until a thread that waits for it notices. 13 us on an H100.
const LATENCY: u64 = 25_000;
/// The driver's time slice where the daemon does not tell it (ns).
const SLICE: u64 = 2_000_000;
/// Different keys of one batch that are told apart; the time of others moves no mean.
pub(crate) const KINDS: usize = 8;

/// The table. Empty until the first lesson.
#[derive(Debug, Default)]
pub(crate) struct Estimates {
    sets: Vec<[Entry; WAYS]>,
    /// The driver's time slice (ns); 0: not known. No time by events is believed from here on:
    /// another tenant may have had a slice of the device meanwhile.
    slice: u64,
    /// A mean has come into doubt since [`take_doubt`](Self::take_doubt).
    doubted: bool,
}

/// The expected duration of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Nanoseconds of the device: its part of the time, where streams of the process run side by
    /// side.
    pub ns: u64,
    /// Nanoseconds for which its stream has it, at least: [`ns`](Self::ns) or more. 0 where it is
    /// not known.
    pub in_stream: u64,
    /// Whether it was measured often enough to be believed.
    pub known: bool,
}

/// The composition of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mix {
    kinds: [(u64, u32); KINDS],
    /// Operations.
    pub(crate) count: u32,
    /// Their expected duration together.
    pub(crate) ns: u64,
    /// The longest of them.
    pub(crate) longest: u64,
    /// Whether there is one among them that little is known of.
    pub(crate) has_unknown: bool,
    /// One of them, or the stream before it, waited for something else than the device.
    pub(crate) waited: bool,
    /// One of them was the first of its kind.
    pub(crate) first: bool,
    /// One of them may have waited for a launch that the closed gate kept.
    pub(crate) kept: bool,
    /// The expected duration of kinds that are not told apart.
    others_ns: u64,
}

/// The time of a single operation, by an event before and one behind it.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Its kind.
    pub key: u64,
    /// Nanoseconds between the two.
    pub ns: u64,
    /// For so much of that, at most, the device may have waited for the program.
    pub gap: u64,
}

/// The time that completed work takes alone, by estimate (ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Of kinds that were measured.
    pub measured: u64,
    /// Of others.
    pub guessed: u64,
    /// For so much longer than that, at least, were the others seen to run.
    pub longer: u64,
}

impl Service {
    #[inline]
    fn of(ns: u64, known: bool) -> Self {
        let (measured, guessed) = if known { (ns, 0) } else { (0, ns) };
        Self {
            measured,
            guessed,
            longer: 0,
        }
    }

    /// All of it.
    #[inline]
    pub(crate) fn all(self) -> u64 {
        let estimated = self.measured.saturating_add(self.guessed);
        estimated.saturating_add(self.longer)
    }

    /// Adds another part.
    #[inline]
    pub fn add(&mut self, other: Self) {
        self.measured = self.measured.saturating_add(other.measured);
        self.guessed = self.guessed.saturating_add(other.guessed);
        self.longer = self.longer.saturating_add(other.longer);
    }
}

impl Mix {
    /// Adds so many operations of `key`.
    #[inline]
    pub(crate) fn add(&mut self, key: u64, expected: Expected, count: u32) {
        let ns = expected.ns.saturating_mul(count.into());
        self.has_unknown |= !expected.known;
        self.count = self.count.saturating_add(count);
        self.ns = self.ns.saturating_add(ns);
        self.longest = self.longest.max(expected.ns);
        self.tell_apart(key, count, ns);
    }

    /// Takes over what another batch is made of.
    pub(crate) fn absorb(&mut self, other: &Self) {
        let each = other.ns / u64::from(other.count.max(1));
        for (key, count) in other.kinds() {
            self.tell_apart(key, count, each.saturating_mul(count.into()));
        }
        self.others_ns = self.others_ns.saturating_add(other.others_ns);
        self.has_unknown |= other.has_unknown;
        self.waited |= other.waited;
        self.first |= other.first;
        self.kept |= other.kept;
        self.count = self.count.saturating_add(other.count);
        self.ns = self.ns.saturating_add(other.ns);
        self.longest = self.longest.max(other.longest);
    }

    /// The kind of the only operation.
    pub(crate) fn only(&self) -> Option<u64> {
        let [(key, _), ..] = self.kinds;
        (self.count == 1).then_some(key)
    }

    /// So many operations of `key`, which are expected to take `ns` together, as far as there is a
    /// place for their kind.
    #[inline]
    fn tell_apart(&mut self, key: u64, count: u32, ns: u64) {
        let mut places = self.kinds.iter_mut();
        match places.find(|(known, sum)| *known == key || *sum == 0) {
            Some((known, sum)) => {
                *known = key;
                *sum += count;
            }
            None => self.others_ns = self.others_ns.saturating_add(ns),
        }
    }

    /// The kinds that are told apart, and how many operations each has.
    fn kinds(&self) -> impl Iterator<Item = (u64, u32)> {
        self.kinds.iter().copied().filter(|(_, count)| *count > 0)
    }
}

impl Estimates {
    /// The driver's time slice, in nanoseconds; 0: not known.
    pub(crate) fn set_slice(&mut self, slice: u64) {
        self.slice = slice;
    }

    /// The duration of one operation of `key`; `assumed` nanoseconds where it is unknown.
    #[inline]
    pub(crate) fn of(&self, key: u64, assumed: u64) -> Expected {
        let entry = self.known(key);
        let entry = entry.filter(|entry| entry.key != 0 && entry.mean > 0);
        entry.map_or(
            Expected {
                ns: assumed,
                in_stream: 0,
                known: false,
            },
            |entry| Expected {
                ns: entry.mean,
                in_stream: entry.in_stream(),
                known: entry.is_known(),
            },
        )
    }

    /// Learns that the batch `mix` took between `least` and `most` nanoseconds.
    pub(crate) fn learn(&mut self, mix: &Mix, least: u64, most: u64) {
        if mix.count == 0 || mix.ns == 0 {
            return;
        }
        // By the current means: they may have moved since the submission, and would move by as much
        // again.
        let (service, _) = self.service(mix);
        let expected = service.measured.saturating_add(service.guessed).max(1);
        let most = most.max(1);
        // A batch seen running for longer than expected may have run on for long before the next
        // check.
        let took = if expected < least.min(most) {
            least.saturating_mul(2).min(least / 2 + most / 2)
        } else {
            expected.min(most)
        };
        let assumed = mix.ns / u64::from(mix.count);
        for (key, _) in mix.kinds() {
            let entry = self.entry(key);
            let before = if entry.mean == 0 { assumed } else { entry.mean };
            let told = scaled(before, took, expected);
            if entry.is_timed() {
                // Of a short batch much is not its operations.
                let is_latency = took.abs_diff(expected) <= LATENCY;
                if is_latency || told.abs_diff(before) <= before / 4 {
                    continue;
                }
                // It takes another time now than when it was timed.
                entry.drop_times();
            }
            entry.mean = moved(before, told, entry.seen);
            entry.seen = entry.seen.saturating_add(1);
        }
    }

    /// An operation of `key` is submitted: whether it is to be timed by events.
    #[inline]
    pub(crate) fn submit(&mut self, key: u64) -> bool {
        self.entry(key).submit()
    }

    /// So many operations of `key` were submitted without being asked about.
    #[inline]
    pub(crate) fn submitted(&mut self, key: u64, count: u32) {
        self.entry(key).submitted(count);
    }

    /// How many more operations of `key` are not to be timed.
    #[inline]
    pub(crate) fn untimed(&mut self, key: u64) -> u32 {
        self.entry(key).untimed()
    }

    /// An operation was timed by events, while `beside` streams of the process were busy, its own
    /// among them. While another tenant may work (`contended`) nothing else teaches.
    pub(crate) fn sample(&mut self, timed: Timed, beside: u64, contended: bool) {
        if timed.ns == 0 {
            return;
        }
        let slice = if self.slice == 0 { SLICE } else { self.slice };
        let entry = self.entry(timed.key);
        self.doubted |= entry.sample(timed, beside, slice, contended);
    }

    /// Whether what is known of a key has changed so much that no figure of it should be kept.
    pub(crate) fn take_doubt(&mut self) -> bool {
        core::mem::take(&mut self.doubted)
    }

    /// `key` may mean other work than before: the next operations are timed. `false` if nothing is
    /// known of it, or that was done just now.
    pub(crate) fn doubt(&mut self, key: u64) -> bool {
        self.found(key).is_some_and(Entry::doubt)
    }

    /// `key` is another operation's from now on.
    pub(crate) fn forget(&mut self, key: u64) {
        if let Some(entry) = self.found(key) {
            *entry = Entry::default();
        }
    }

    /// Whether no operation of `key` has been launched in this `era`, as far as is known.
    #[inline]
    pub(crate) fn is_first(&self, key: u64, era: u32) -> bool {
        self.known(key).is_none_or(|entry| entry.era != era)
    }

    /// One was.
    pub(crate) fn launched(&mut self, key: u64, era: u32) {
        self.entry(key).era = era;
    }

    #[inline]
    fn known(&self, key: u64) -> Option<&Entry> {
        let set = self.sets.get(set_of(key))?;
        set.iter().find(|entry| entry.key == key)
    }

    fn found(&mut self, key: u64) -> Option<&mut Entry> {
        let set = self.sets.get_mut(set_of(key))?;
        set.iter_mut().find(|entry| entry.key == key)
    }

    /// The duration of a batch alone, by the current means; and for how long its stream has it, at
    /// least (ns).
    pub(crate) fn service(&self, mix: &Mix) -> (Service, u64) {
        let assumed = mix.ns / u64::from(mix.count.max(1));
        let (mut service, mut in_stream) = (Service::default(), 0_u64);
        for (key, count) in mix.kinds() {
            let one = self.of(key, assumed);
            let count = u64::from(count);
            service.add(Service::of(one.ns.saturating_mul(count), one.known));
            in_stream = in_stream.saturating_add(one.in_stream.saturating_mul(count));
        }
        service.add(Service::of(mix.others_ns, !mix.has_unknown));
        (service, in_stream)
    }

    /// The key's place, another's if there is none left.
    #[inline]
    fn entry(&mut self, key: u64) -> &mut Entry {
        if self.sets.is_empty() {
            self.sets = vec![[Entry::default(); WAYS]; SETS];
        }
        let set = &mut self.sets[set_of(key)];
        let known = (0..WAYS).find(|at| set[*at].key == key);
        let at = known.unwrap_or_else(|| {
            set.iter_mut().for_each(Entry::passed_over);
            let least = (0..WAYS).min_by_key(|at| set[*at].worth());
            let at = least.unwrap_or(0);
            set[at] = Entry::new(key);
            at
        });
        let entry = &mut set[at];
        entry.used();
        entry
    }
}

/// Fibonacci hashing: addresses differ in their middle bits.
#[inline]
fn set_of(key: u64) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize % SETS
}

#[cfg(test)]
mod tests;
