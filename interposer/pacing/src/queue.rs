//! One stream's work that is not known to be complete, in batches with a mark behind each, and what
//! looking at the marks teaches.
//!
//! A look says of a batch only that it is complete by now, or not yet. So a run of batches is timed
//! from when the stream was last known to begin something until it was last known to be busy (at
//! least) or seen to be done (at most). The longer the run, the closer the two. Streams that are
//! busy side by side share the device: each is credited with its part of the time.

use std::collections::VecDeque;

use crate::estimate::{Estimates, Expected, Mix, Service, Timed};
use crate::ran::Ran;

/// A stream as the window knows it: context, stream, and for a thread's own default stream which
/// thread's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// The context's handle.
    pub context: usize,
    /// The stream's handle.
    pub stream: usize,
    /// The thread of a per-thread default stream, or a number for that of a green context; 0
    /// otherwise.
    pub thread: usize,
}

impl StreamKey {
    /// Stands for all work of a context, in whatever stream.
    #[inline]
    pub fn of_context(context: usize) -> Self {
        Self {
            context,
            stream: usize::MAX,
            thread: 0,
        }
    }

    /// The default stream of a green context: `converted` is its handle as a context, `primary` the
    /// handle of the primary context that it is a part of. As with a thread's own one, another
    /// thread cannot name it.
    #[inline]
    pub fn of_green(primary: usize, converted: usize) -> Self {
        Self {
            context: primary,
            stream: converted,
            thread: converted | 1,
        }
    }

    /// Whether it stands for a whole context.
    #[inline]
    pub fn is_context(&self) -> bool {
        self.stream == usize::MAX
    }
}

/// A run is learned from once its duration is known to one part in this many.
const CLOSE: u64 = 24;

/// Operations of one kind, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// How many.
    pub count: u32,
    /// The kind of the launch.
    pub key: u64,
    /// The expected duration of one.
    pub expected: Expected,
    /// It waits for something other than the device: its duration until completion is no
    /// measurement.
    pub waits: bool,
    /// It is the first of its kind. The driver may have done more for it than for a later one, so
    /// its duration is no measurement of its kind, but it is time of the device all the same.
    pub first: bool,
}

impl Op {
    /// The expected duration of all of them (ns).
    #[inline]
    pub fn ns(&self) -> u64 {
        self.expected.ns.saturating_mul(self.count.into())
    }
}

/// Batches that were completed without a pause and are timed together.
#[derive(Clone, Copy, Debug)]
struct Run {
    mix: Mix,
    /// The earliest and the latest it can have begun.
    began: (u64, u64),
    /// [`School::alone`] when it began.
    alone: u64,
}

/// Operations with one mark behind them.
#[derive(Debug)]
pub(crate) struct Batch<M> {
    pub(crate) number: u64,
    /// Its last operation, by the window's count.
    pub(crate) last: u64,
    pub(crate) mix: Mix,
    /// When its first operation was submitted.
    first: u64,
    /// `None` while the mark is being made.
    pub(crate) mark: Option<M>,
}

/// The work of one stream.
#[derive(Debug)]
pub(crate) struct Queue<M> {
    pub(crate) stream_key: StreamKey,
    /// Submitted since the last mark.
    pub(crate) unmarked: Mix,
    /// When the first of those was submitted.
    pub(crate) since: u64,
    /// The last of those, by the window's count.
    pub(crate) last: u64,
    pub(crate) marked: VecDeque<Batch<M>>,
    /// For how long, at least, it has what was submitted since it last had nothing, and had what is
    /// complete of that (ns).
    pub(crate) has: u64,
    had: u64,
    /// The run that is being timed.
    run: Run,
    /// When the device, by estimate, began the oldest remaining batch.
    working_since: u64,
    /// [`School::crowd`] and [`School::share`] then.
    crowd: u64,
    share: u64,
    /// For how long batches ran beside it meanwhile that were begun earlier and are complete, added
    /// up (ns).
    pub(crate) behind: u64,
    /// When a mark was last seen not to be passed.
    pub(crate) seen_running: u64,
    /// The composition of the batches that a check finds complete; empty between checks.
    done: Vec<Mix>,
}

/// The estimates that a look at a stream updates, and since when the device runs no other tenant's
/// work.
#[derive(Debug)]
pub(crate) struct School<'a> {
    pub(crate) estimates: &'a mut Estimates,
    /// How many streams had work, summed over the time (ns).
    pub(crate) crowd: u64,
    /// The part of the time that each of them had, summed over the time (ns).
    pub(crate) share: u64,
    /// Since when no other tenant's work was on the device, as far as is known; `u64::MAX` while
    /// some may be.
    pub(crate) alone_since: u64,
    /// For how long none was, in all (ns).
    pub(crate) alone: u64,
    /// What was submitted before the operation of this number, and ends until then, may have waited
    /// for a launch that this library kept.
    pub(crate) freed: (u64, u64),
    /// The same of a launch that the closed gate kept.
    pub(crate) kept: (u64, u64),
}

/// The result of a look at a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Expected nanoseconds of completed work.
    pub(crate) done: u64,
    /// The time by which all of it was complete, by estimate; 0 if nothing is.
    pub(crate) until: u64,
    /// Its duration alone, by the current estimates.
    pub(crate) service: Service,
    /// Since when and until when work with unknown kinds in it, now complete, was seen to have the
    /// device, at least: of the time beside other streams its part.
    pub(crate) ran: (u64, u64),
    /// For how long the stream had what is complete, at least, since it last had nothing (ns).
    pub(crate) had: u64,
    /// The last operation of the context that a mark behind all of it covers; 0 for none.
    pub(crate) for_context: u64,
    /// Some of it may have waited for a launch that this library kept.
    pub(crate) freed: bool,
    /// The oldest batch of it.
    pub(crate) first: Option<Ran>,
}

impl<M> Queue<M> {
    /// A stream that has nothing to do at `now`, with [`School::alone`], [`School::crowd`] and
    /// [`School::share`] of that time.
    pub(crate) fn new(
        stream_key: StreamKey,
        now: u64,
        alone: u64,
        (crowd, share): (u64, u64),
    ) -> Self {
        Self {
            stream_key,
            unmarked: Mix::default(),
            since: now,
            last: 0,
            marked: VecDeque::new(),
            has: 0,
            had: 0,
            run: Run {
                mix: Mix::default(),
                began: (now, now),
                alone,
            },
            working_since: now,
            crowd,
            share,
            behind: 0,
            seen_running: 0,
            done: Vec::new(),
        }
    }

    /// Nothing is under way, as far as is known.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.unmarked.count == 0 && self.marked.is_empty()
    }

    /// Expected nanoseconds of everything under way.
    #[inline]
    pub(crate) fn total(&self) -> u64 {
        let marked: u64 = self.marked.iter().map(|batch| batch.mix.ns).sum();
        self.unmarked.ns.saturating_add(marked)
    }

    /// Adds operations up to `number`, submitted at `now`.
    #[inline]
    pub(crate) fn push(&mut self, now: u64, number: u64, op: Op) {
        if self.unmarked.count == 0 {
            self.since = now;
        }
        self.last = number;
        self.unmarked.waited |= op.waits;
        self.unmarked.first |= op.first;
        let in_stream = op.expected.in_stream.saturating_mul(op.count.into());
        self.has = self.has.saturating_add(in_stream);
        self.unmarked.add(op.key, op.expected, op.count);
    }

    /// Makes a batch of the unmarked work; `covers` raises the last operation that it stands for.
    pub(crate) fn close(&mut self, number: u64, now: u64, covers: u64) {
        let mix = core::mem::take(&mut self.unmarked);
        self.marked.push_back(Batch {
            number,
            last: self.last.max(covers),
            first: if mix.count == 0 { now } else { self.since },
            mix,
            mark: None,
        });
    }

    /// Takes back a batch whose mark could not be made.
    pub(crate) fn reopen(&mut self, number: u64) {
        let found = self.marked.iter().position(|batch| batch.number == number);
        let Some(batch) = found.and_then(|at| self.marked.remove(at)) else {
            return;
        };
        if batch.mix.count == 0 {
            return;
        }
        if self.unmarked.count == 0 {
            self.last = batch.last;
        }
        self.since = batch.first;
        self.unmarked.absorb(&batch.mix);
    }

    /// Looks at the marks in order: `is_passed` is asked until it says no. Passed marks go to
    /// `passed`, which returns the time of the operation before one if it was timed. `beside`
    /// streams share the device, this one among them.
    pub(crate) fn look(
        &mut self,
        now: u64,
        beside: u64,
        school: &mut School<'_>,
        is_passed: &mut impl FnMut(&Batch<M>) -> bool,
        passed: &mut impl FnMut(M) -> Option<Timed>,
    ) -> Seen {
        let mut seen = Seen::default();
        let busy_before = self.seen_running;
        while let Some(batch) = self.marked.front() {
            if !is_passed(batch) {
                self.seen_running = now;
                break;
            }
            if let Some(mut batch) = self.marked.pop_front() {
                let freed = batch.last <= school.freed.0 && now <= school.freed.1;
                batch.mix.waited |= freed;
                batch.mix.kept |= batch.last <= school.kept.0 && now <= school.kept.1;
                seen.freed |= freed;
                seen.done = seen.done.saturating_add(batch.mix.ns);
                let ran = self.ran(now, &batch, school);
                seen.first.get_or_insert(ran);
                seen.until = self.finish(now, beside, &batch);
                let since = now.saturating_sub(self.working_since) / beside;
                self.share = school.share.saturating_sub(since);
                (self.crowd, self.behind) = (school.crowd, 0);
                self.done.push(batch.mix);
                if self.stream_key.is_context() {
                    seen.for_context = batch.last;
                }
                if let Some(timed) = batch.mark.and_then(&mut *passed)
                    && !freed
                {
                    let contended = school.alone_since == u64::MAX;
                    school.estimates.sample(timed, beside, contended);
                }
            }
        }
        if seen.until > 0 {
            seen.ran = self.learn(now, beside, busy_before, school);
        }
        for mix in self.done.drain(..) {
            let (service, in_stream) = school.estimates.service(&mix);
            seen.service.add(service);
            self.had = self.had.saturating_add(in_stream);
        }
        seen.had = self.had;
        seen
    }

    /// The program waited for everything up to operation `stamp`; if it `blocked`, that was busy
    /// until now.
    pub(crate) fn finish_until(
        &mut self,
        now: u64,
        beside: u64,
        stamp: u64,
        blocked: bool,
        school: &mut School<'_>,
        passed: &mut impl FnMut(M) -> Option<Timed>,
    ) -> Seen {
        if self.unmarked.count > 0 && self.last <= stamp {
            self.close(0, now, 0);
        }
        let before = self.seen_running;
        let is_done = |batch: &Batch<M>| batch.last <= stamp;
        if blocked && self.marked.front().is_some_and(is_done) {
            self.seen_running = now;
        }
        let seen = self.look(now, beside, school, &mut |batch| is_done(batch), passed);
        // The rest was not checked.
        if !self.marked.is_empty() && !blocked {
            self.seen_running = before;
        }
        seen
    }

    /// It will not be seen when what is under way is complete.
    pub(crate) fn teaches_nothing(&mut self) {
        let marked = self.marked.iter_mut().map(|batch| &mut batch.mix);
        let all = marked.chain([&mut self.unmarked]);
        all.for_each(|mix| mix.waited = true);
    }

    /// How long the oldest batch ran that is complete now.
    fn ran(&self, now: u64, batch: &Batch<M>, school: &School<'_>) -> Ran {
        let began = self.began(batch.first);
        let Mix {
            waited,
            kept,
            first,
            ..
        } = batch.mix;
        let says = !(waited || kept || first) && began >= school.alone_since;
        Ran {
            key: batch.mix.only().filter(|_| says),
            began,
            least: self.seen_running.saturating_sub(began),
            most: now.saturating_sub(began),
            crowd: school.crowd.saturating_sub(self.crowd),
            behind: self.behind,
        }
    }

    #[inline]
    fn began(&self, first: u64) -> u64 {
        self.working_since.max(first)
    }

    /// When the device, by estimate, began the oldest batch.
    pub(crate) fn working_since(&self) -> Option<u64> {
        self.front().map(|(first, _)| self.began(first))
    }

    /// A batch is complete, at the latest now; by estimate when?
    fn finish(&mut self, now: u64, beside: u64, batch: &Batch<M>) -> u64 {
        let began = self.working_since.max(batch.first);
        let expected = began.saturating_add(batch.mix.ns.saturating_mul(beside));
        let end = expected.max(self.seen_running).min(now.max(1));
        self.working_since = end;
        self.run.mix.absorb(&batch.mix);
        end
    }

    /// Ends the run once its duration is known closely enough, or cannot become known better. One
    /// of `beside` parts of that was its own. Returns [`Seen::ran`].
    fn learn(
        &mut self,
        now: u64,
        beside: u64,
        busy_before: u64,
        school: &mut School<'_>,
    ) -> (u64, u64) {
        let run = self.run;
        let least = busy_before.saturating_sub(run.began.1);
        let most = now.saturating_sub(run.began.0);
        let is_close = most.saturating_sub(least) <= most / CLOSE;
        if !(is_close || self.is_empty() || run.mix.has_unknown) {
            return (0, 0);
        }
        let mut ran = (0, 0);
        let is_alone = run.began.0 >= school.alone_since;
        if is_alone && !run.mix.waited && !run.mix.first {
            let most = most.div_ceil(beside);
            school.estimates.learn(&run.mix, least / beside, most);
        }
        if run.mix.has_unknown && !run.mix.waited && !run.mix.kept {
            // Beside another tenant's work, what it had to itself.
            let alone = school.alone.saturating_sub(run.alone);
            let own = if is_alone { least } else { least.min(alone) };
            ran = (run.began.1, run.began.1.saturating_add(own / beside));
        }
        // The next run began when this run ended, or when it was submitted if that was later.
        let first = match (self.marked.front(), self.unmarked.count) {
            (Some(next), _) => next.first,
            (None, 1..) => self.since,
            (None, 0) => now,
        };
        let earliest = busy_before.max(run.began.0);
        self.run = Run {
            mix: Mix::default(),
            began: (earliest.max(first), now.max(first)),
            alone: school.alone,
        };
        ran
    }

    /// Expected nanoseconds that the device has already spent on the oldest batch, with
    /// [`School::share`] of `now`.
    #[inline]
    pub(crate) fn spent(&self, now: u64, share: u64) -> u64 {
        let Some((first, ns)) = self.front() else {
            return 0;
        };
        let spent = now.saturating_sub(self.working_since.max(first));
        spent.min(share.saturating_sub(self.share)).min(ns)
    }

    /// How much longer than expected the oldest batch has been seen to take (ns).
    #[inline]
    pub(crate) fn overdue(&self, beside: u64) -> u64 {
        let Some((first, ns)) = self.front() else {
            return 0;
        };
        self.seen_running
            .saturating_sub(self.working_since.max(first))
            .saturating_sub(ns.saturating_mul(beside))
    }

    /// When all of it should be complete.
    pub(crate) fn ends_at(&self, beside: u64) -> u64 {
        let first = self.front().map_or(0, |(first, _)| first);
        let began = self.working_since.max(first);
        began.saturating_add(self.total().saturating_mul(beside))
    }

    /// Since when, by estimate, the oldest batch has been running, if its duration is not known.
    pub(crate) fn unknown_since(&self) -> Option<u64> {
        let (first, mix) = match self.marked.front() {
            Some(batch) => (batch.first, &batch.mix),
            None => (self.since, &self.unmarked),
        };
        mix.has_unknown.then(|| self.working_since.max(first))
    }

    /// Of the oldest batch, what the operation that runs needs still, by estimate, and what it has
    /// been seen to take longer (ns).
    pub(crate) fn running(&self, now: u64, share: u64, beside: u64) -> (u64, u64) {
        let mix = self
            .marked
            .front()
            .map_or(&self.unmarked, |batch| &batch.mix);
        let left = mix.ns.saturating_sub(self.spent(now, share));
        (left.min(mix.longest), self.overdue(beside))
    }

    #[inline]
    fn front(&self) -> Option<(u64, u64)> {
        match self.marked.front() {
            Some(batch) => Some((batch.first, batch.mix.ns)),
            None if self.unmarked.count > 0 => Some((self.since, self.unmarked.ns)),
            None => None,
        }
    }
}
