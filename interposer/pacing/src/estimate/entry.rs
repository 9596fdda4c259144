//! The record of one key: its mean, the times behind it, and the doubt about it.

use super::means::scaled;
use super::{EXACT, LEARNED, SAMPLES, Timed};

/// Of a key one operation in so many is timed by events, beside its first ones.
const TIMED: u32 = 256;
/// The same while too few times are known, because some could not be taken.
const TIMED_SOON: u32 = 16;
/// Operations that are timed one after another because of a doubt, at most: some times cannot be
/// taken.
const TRIES: u8 = 2 * SAMPLES;

/// A record that was not used while so many other keys came into its set gives way first, however
/// much is known of it: its function may never be launched again.
const STALE: u8 = 200;

/// An operation of half a slice and more, which is interrupted nearly always, takes less than so
/// many times its mean, and less than so many slices: up to seven other tenants have a slice each
/// for each slice that it needs, and one more.
const INTERRUPTED: u64 = 16;

/// The unit of [`Entry::spread`]: sixteenths.
const SPREAD: u64 = 16;

/// The record of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    /// The key, 0 for none.
    pub(super) key: u64,
    /// How many other keys have come into its set since it was last used.
    newcomers: u8,
    /// The era in which one was last launched, 0 for none.
    pub(super) era: u32,
    /// Nanoseconds of one operation.
    pub(super) mean: u64,
    /// Operations since the last timed one.
    untimed: u32,
    /// Operations so far.
    ops: u8,
    /// Lessons by batches.
    pub(super) seen: u8,
    /// Times by events, and where the next one goes.
    pub(super) taken: u8,
    next: u8,
    /// Times in a row that were as long as the driver's slice, and much longer than the mean.
    too_long: u8,
    doubt: Doubt,
    /// So many times until it can be in doubt again, because an operation whose time varies is not
    /// to be timed always. More than one: they are taken because of the doubt.
    settled: u8,
    /// Nanoseconds of single operations, the last ones: the operation's part of the time.
    samples: [u32; SAMPLES as usize],
    /// How many streams were busy then.
    beside: [u8; SAMPLES as usize],
    /// How many times its part of the time an operation is in its stream, at least (sixteenths).
    spread: u16,
}

/// The times that are taken because a mean is in doubt.
#[derive(Clone, Copy, Debug, Default)]
struct Doubt {
    /// So many are to be taken yet.
    due: u8,
    /// So many operations are timed for that, at most.
    tries: u8,
    /// How many were less than half the mean.
    short: u8,
    /// The two shortest, without the time for which the device may have waited.
    least: [u32; 2],
    /// The two shortest, with it.
    most: [u32; 2],
}

impl Doubt {
    fn new() -> Self {
        Self {
            due: SAMPLES,
            tries: TRIES,
            short: 0,
            least: [u32::MAX; 2],
            most: [u32::MAX; 2],
        }
    }
}

/// Puts `ns` in its place among the two shortest.
fn keep_shortest(shortest: &mut [u32; 2], ns: u32) {
    let [first, second] = *shortest;
    *shortest = if ns < first {
        [ns, first]
    } else {
        [first, second.min(ns)]
    };
}

impl Entry {
    /// The least of a set gives way to a new key: one that is stale, else by how much is known.
    pub(super) fn worth(&self) -> (bool, u8) {
        (self.newcomers < STALE, self.seen.max(self.taken))
    }

    pub(super) fn passed_over(&mut self) {
        self.newcomers = self.newcomers.saturating_add(1);
    }

    pub(super) fn used(&mut self) {
        self.newcomers = 0;
    }

    /// Of an operation that nothing is known of.
    pub(super) fn new(key: u64) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }

    #[inline]
    pub(super) fn is_known(&self) -> bool {
        self.seen >= LEARNED || self.taken >= LEARNED
    }

    /// An operation is submitted: whether it is to be timed.
    #[inline]
    pub(super) fn submit(&mut self) -> bool {
        let timed = self.ops < LEARNED || self.untimed >= self.timed_every() - 1;
        if self.doubt.due > 0 {
            self.doubt.tries = self.doubt.tries.saturating_sub(1);
        }
        self.untimed = if timed { 0 } else { self.untimed + 1 };
        self.ops = self.ops.saturating_add(1);
        timed
    }

    /// So many were submitted without a question.
    #[inline]
    pub(super) fn submitted(&mut self, count: u32) {
        self.untimed = self.untimed.saturating_add(count);
        let count = count.try_into().unwrap_or(u8::MAX);
        self.ops = self.ops.saturating_add(count);
    }

    /// How many more are not to be timed.
    #[inline]
    pub(super) fn untimed(&self) -> u32 {
        (self.timed_every() - 1).saturating_sub(self.untimed)
    }

    /// One operation in so many is timed, after the first ones.
    #[inline]
    fn timed_every(&self) -> u32 {
        if self.doubt.due > 0 && self.doubt.tries > 0 {
            1
        } else if self.taken < LEARNED {
            TIMED_SOON
        } else {
            TIMED
        }
    }

    /// Whether its duration is known exactly by events.
    pub(super) fn is_timed(&self) -> bool {
        self.taken >= LEARNED && self.mean >= EXACT
    }

    /// Its times by events do not hold any more.
    pub(super) fn drop_times(&mut self) {
        (self.taken, self.next, self.spread) = (0, 0, 0);
    }

    /// For how long an operation is in its stream, at least (ns); 0 where nothing is known.
    #[inline]
    pub(super) fn in_stream(&self) -> u64 {
        if !self.is_known() {
            return 0;
        }
        let spread = u64::from(self.spread).max(SPREAD);
        self.mean.saturating_mul(spread) / SPREAD
    }

    /// How many times the `quartile` the shortest of the timed operations was in its stream
    /// (sixteenths). While an operation is in its stream it has only its part of the device.
    fn spread(&self, quartile: u64) -> u16 {
        let count = usize::from(self.taken.min(SAMPLES));
        let times = self.samples.iter().zip(&self.beside).take(count);
        let whole = times.map(|(ns, beside)| u64::from(*ns) * u64::from(*beside));
        let spread = scaled(SPREAD, whole.min().unwrap_or(0), quartile);
        u16::try_from(spread).unwrap_or(u16::MAX)
    }

    /// The lower quartile of the times by events.
    fn quartile(&self) -> u64 {
        let count = usize::from(self.taken.min(SAMPLES));
        let mut samples = self.samples;
        let samples = &mut samples[..count];
        samples.sort_unstable();
        let at = count.saturating_sub(1) / 4;
        samples.get(at).map_or(0, |ns| u64::from(*ns))
    }

    /// An operation was timed while `beside` streams were busy, where the driver's slice is `slice`
    /// nanoseconds. Whether what is known of it has changed much.
    pub(super) fn sample(
        &mut self,
        timed: Timed,
        beside: u64,
        slice: u64,
        contended: bool,
    ) -> bool {
        let (most, gap) = (timed.ns / beside.max(1), timed.gap / beside.max(1));
        let least = most.saturating_sub(gap);
        let beside = u8::try_from(beside).unwrap_or(u8::MAX);
        // The time that starts a doubt is the first of its times.
        let mut doubted = self.differs(least, most) && self.doubt();
        let is_doubtful = self.settled > 1;
        self.settled = self.settled.saturating_sub(1);
        if is_doubtful {
            self.doubt.due = self.doubt.due.saturating_sub(1);
        }
        // An interruption makes a time longer, never shorter.
        let proves_shorter = is_doubtful && most < self.mean / 2;
        match (u32::try_from(least), u32::try_from(most)) {
            (Ok(least), Ok(short)) if most < slice || proves_shorter => {
                self.too_long = 0;
                if is_doubtful {
                    self.weigh(least, short);
                } else {
                    self.took(least, short, beside, contended);
                }
            }
            _ => doubted |= self.was_too_long(least, slice),
        }
        if is_doubtful && self.settled == 1 {
            doubted |= self.settle(beside, contended);
        }
        doubted
    }

    /// The mean is in doubt from now on. `false` if nothing is known, or that was looked into just
    /// now.
    pub(super) fn doubt(&mut self) -> bool {
        let doubts = self.is_known() && self.settled == 0;
        if doubts {
            (self.doubt, self.settled) = (Doubt::new(), SAMPLES + 1);
        }
        doubts
    }

    /// One of the times of a doubt.
    fn weigh(&mut self, least: u32, most: u32) {
        keep_shortest(&mut self.doubt.least, least);
        keep_shortest(&mut self.doubt.most, most);
        self.doubt.short += u8::from(u64::from(most) < self.mean / 2);
    }

    /// The times of a doubt are taken. The mean is too short if all but one of them are much
    /// longer, also without the time for which the device may have waited: some may be longer
    /// because the operation was interrupted. It is too long if half of them are much shorter: an
    /// operation whose time varies has a short one now and then. Returns whether it was wrong.
    fn settle(&mut self, beside: u8, contended: bool) -> bool {
        let [_, least] = self.doubt.least;
        let [_, most] = self.doubt.most;
        let is_longer = least < u32::MAX && u64::from(least) > self.mean + self.mean / 2;
        let is_shorter = self.doubt.short >= SAMPLES / 2;
        let is_wrong = is_longer || is_shorter;
        if is_wrong {
            let ns = if is_longer { least } else { most };
            self.samples = [ns; SAMPLES as usize];
            self.beside = [beside; SAMPLES as usize];
            (self.taken, self.next) = (SAMPLES, 0);
            self.believe(contended);
        }
        is_wrong
    }

    /// Whether a time by events is far from the mean.
    fn differs(&self, least: u64, most: u64) -> bool {
        least >= EXACT && least / 2 > self.mean || most >= EXACT && most < self.mean / 2
    }

    /// A time by events that is shorter than the driver's slice. Of what is known it says only by
    /// how much it is too long or too short, at least.
    fn took(&mut self, least: u32, most: u32, beside: u8, contended: bool) {
        let known = u32::try_from(self.mean).unwrap_or(u32::MAX);
        let ns = if self.is_known() {
            known.clamp(least, most)
        } else {
            most
        };
        let next = usize::from(self.next % SAMPLES);
        (self.samples[next], self.beside[next]) = (ns, beside);
        self.next = self.next.wrapping_add(1);
        self.taken = self.taken.saturating_add(1);
        self.believe(contended);
    }

    fn believe(&mut self, contended: bool) {
        let quartile = self.quartile();
        self.spread = self.spread(quartile);
        if contended || self.seen < LEARNED || quartile >= EXACT {
            self.mean = quartile;
        }
    }

    /// A time as long as the driver's slice was taken. After several in a row the mean, which is
    /// much shorter, is that of other work: nothing is known. Returns whether that is so now.
    fn was_too_long(&mut self, least: u64, slice: u64) -> bool {
        let longest = INTERRUPTED.saturating_mul(self.mean.max(slice));
        if !self.is_known() || self.mean >= slice / 2 && least < longest {
            self.too_long = 0;
            return false;
        }
        self.too_long += 1;
        let is_lost = self.too_long >= SAMPLES;
        if is_lost {
            *self = Self {
                era: self.era,
                ops: self.ops,
                ..Self::new(self.key)
            };
        }
        is_lost
    }
}
