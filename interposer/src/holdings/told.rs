//! What one thread was told of its requests for memory: which ran out, which were refused before
//! they would have waited, and since when a chain of ever smaller ones has waited. Why so: ADR 58
//! and ADR 47.

use std::time::{Duration, Instant};

use crate::driver::device::DeviceKey;

/// Sizes that a thread's early refusals are remembered of.
const SIZES: usize = 4;
/// A smaller request this long after one that ran out is one of its own: an allocator that tries
/// less does so at once.
const SOON: Duration = Duration::from_secs(10);
/// The call that asks, and the bytes that the program names in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `cuMemAlloc`.
    Linear(u64),
    /// `cuMemCreate`. One allocation may be many of these, one after the other.
    Physical(u64),
    /// An allocation from a pool.
    Pool(u64),
    /// Another one.
    Other,
}

impl Call {
    /// A bit by kind of call.
    pub(super) fn bit(self) -> u8 {
        match self {
            Self::Linear(_) => 1,
            Self::Physical(_) => 2,
            Self::Pool(_) => 4,
            Self::Other => 8,
        }
    }
}

/// A thread's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) device: DeviceKey,
    /// What it is charged.
    pub(super) bytes: u64,
    pub(super) call: Call,
}

/// A request that ran out of memory.
#[derive(Clone, Copy, Debug)]
struct Failed {
    request: Request,
    /// How often the process had freed by then.
    frees: u64,
    /// When that was.
    at: Instant,
    /// Since when it had waited, or those that it went on with; `None`: it had not.
    since: Option<Instant>,
}

/// What a request that begins shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Begun {
    /// The process frees memory after an out-of-memory, and asks again.
    pub(super) shows_a_cache: bool,
    /// A refusal that is not counted has been answered with the retry.
    pub(super) answers: Option<Request>,
    /// One whose retry does not come.
    pub(super) unanswered: Option<Request>,
}

/// The recent requests of one thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// Its last request, if that ran out of memory.
    failed: Option<Failed>,
    /// Its last request, if that was refused early.
    early: Option<Request>,
    /// Its last request, if that was refused at the limit and is not counted yet.
    uncounted: Option<Request>,
    /// Its current request, if that is the retry after an early refusal or one of the like that
    /// follow: physical memory is asked for in pieces.
    retry: Option<Request>,
    /// Since when the requests have waited that its current one goes on with.
    since: Option<Instant>,
    /// The kinds of calls whose early refusals had no retry, by [`Call::bit`].
    ends: u8,
    /// Requests that met a wait, and how often the process had freed when they last did.
    met: [Option<(Request, u64)>; SIZES],
    /// The oldest of them.
    oldest: usize,
}

impl Told {
    pub(super) const NOTHING: Self = Self {
        failed: None,
        early: None,
        uncounted: None,
        retry: None,
        since: None,
        ends: 0,
        met: [None; SIZES],
        oldest: 0,
    };

    /// Whether the thread's next request is of interest.
    pub(super) fn watches(&self) -> bool {
        self.failed.is_some()
            || self.early.is_some()
            || self.uncounted.is_some()
            || self.retry.is_some()
            || self.since.is_some()
    }

    /// A request begins, at `now`; so often has the process freed.
    pub(super) fn begins(&mut self, request: Request, frees: u64, now: Instant) -> Begun {
        let (mut answers, mut unanswered) = (None, None);
        let goes_on = self.retry == Some(request) && matches!(request.call, Call::Physical(_));
        let (early, uncounted) = (self.early.take(), self.uncounted.take());
        match early.or(uncounted) {
            Some(refused) if refused == request => answers = Some(refused),
            refused => unanswered = refused,
        }
        self.retry = (answers.is_some() || goes_on).then_some(request);
        if let Some(early) = early.filter(|_| unanswered.is_some()) {
            self.ends |= early.call.bit();
        }
        let failed = self.failed.take();
        let same = |failed: &Failed| failed.request == request && failed.frees != frees;
        let less = |failed: &Failed| {
            failed.request.device == request.device
                && request.bytes < failed.request.bytes
                && failed.frees == frees
                && now.saturating_duration_since(failed.at) < SOON
        };
        self.since = failed.filter(less).and_then(|failed| failed.since);
        Begun {
            shows_a_cache: failed.is_some_and(|failed| same(&failed)),
            answers,
            unanswered,
        }
    }

    /// Since when the requests have waited that the current one goes on with: each smaller than the
    /// one before, with nothing granted or freed in between.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// The request has run out of memory, after a wait `since` then if it had one.
    pub(super) fn ran_out(
        &mut self,
        request: Request,
        frees: u64,
        (since, now): (Option<Instant>, Instant),
    ) {
        self.retry = None;
        self.failed = Some(Failed {
            request,
            frees,
            at: now,
            since: self.since.take().or(since),
        });
    }

    /// An allocation of physical memory is complete, or was given back. The next one is another,
    /// though its pieces are as large.
    pub(super) fn pieces_end(&mut self) {
        let of_pieces = |request: Request| matches!(request.call, Call::Physical(_));
        self.retry = self.retry.filter(|retry| !of_pieces(*retry));
        for met in &mut self.met {
            *met = met.filter(|(request, _)| !of_pieces(*request));
        }
    }

    /// The request would wait now: whether it is refused instead. Once for a size, and once more
    /// only after the process has freed something since; never where the thread has not asked
    /// again before.
    pub(super) fn refuses(&mut self, request: Request, frees: u64) -> bool {
        let met = self
            .met
            .iter()
            .position(|met| met.is_some_and(|(size, _)| size == request));
        let known = met.and_then(|at| self.met[at]) == Some((request, frees));
        let at = met.unwrap_or(self.oldest);
        self.met[at] = Some((request, frees));
        if met.is_none() {
            self.oldest = (at + 1) % SIZES;
        }
        if known || self.retry == Some(request) || self.ends & request.call.bit() != 0 {
            return false;
        }
        self.early = Some(request);
        true
    }

    /// The request is refused at the limit: whether it is counted only if no retry follows. Not
    /// where it is the retry: then what counts is this answer.
    pub(super) fn may_ask_again(&mut self, request: Request) -> bool {
        let may = self.retry != Some(request);
        self.uncounted = may.then_some(request);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn linear(bytes: u64) -> Request {
        Request {
            device: DeviceKey::default(),
            bytes,
            call: Call::Linear(bytes),
        }
    }

    fn page(bytes: u64) -> Request {
        Request {
            call: Call::Physical(bytes),
            ..linear(bytes)
        }
    }

    fn begins(told: &mut Told, request: Request, frees: u64) -> Begun {
        told.begins(request, frees, Instant::now())
    }

    fn runs_out(told: &mut Told, request: Request, frees: u64) {
        told.ran_out(request, frees, (None, Instant::now()));
    }

    #[test]
    fn freeing_and_asking_again_after_an_out_of_memory_shows_a_cache() {
        let mut told = Told::NOTHING;
        assert!(!begins(&mut told, linear(8), 0).shows_a_cache);
        runs_out(&mut told, linear(8), 0);
        assert!(told.watches());
        assert!(begins(&mut told, linear(8), 3).shows_a_cache);
        assert!(!told.watches());
    }

    #[test]
    fn a_pools_requests_that_are_charged_alike_are_not_the_same() {
        for (next, shows) in [(8, true), (7, false)] {
            let pooled = |named| Request {
                call: Call::Pool(named),
                ..linear(32)
            };
            let mut told = Told::NOTHING;
            runs_out(&mut told, pooled(8), 0);
            let begun = begins(&mut told, pooled(next), 3);
            assert_eq!(begun.shows_a_cache, shows);
        }
    }

    #[test]
    fn asking_again_without_a_free_or_for_another_size_does_not() {
        for (next, frees) in [(8, 0), (4, 1)] {
            let mut told = Told::NOTHING;
            runs_out(&mut told, linear(8), 0);
            assert!(!begins(&mut told, linear(next), frees).shows_a_cache);
            assert!(
                !begins(&mut told, linear(8), 5).shows_a_cache,
                "it is the next request that counts"
            );
        }
    }

    #[test]
    fn the_request_that_follows_an_early_refusal_waits() {
        let mut told = Told::NOTHING;
        begins(&mut told, linear(8), 0);
        assert!(told.refuses(linear(8), 0));
        let begun = begins(&mut told, linear(8), 5);
        assert_eq!(begun.answers, Some(linear(8)));
        assert_eq!(begun.unanswered, None);
        assert!(
            !told.refuses(linear(8), 5),
            "though the cache was freed meanwhile"
        );
    }

    #[test]
    fn a_size_is_refused_again_only_after_a_free() {
        let mut told = Told::NOTHING;
        assert!(told.refuses(linear(8), 0));
        begins(&mut told, linear(8), 1);
        assert!(!told.refuses(linear(8), 1));
        begins(&mut told, linear(8), 1);
        assert!(!told.refuses(linear(8), 1), "nothing was freed since");
        begins(&mut told, linear(8), 2);
        assert!(told.refuses(linear(8), 2));
    }

    #[test]
    fn a_retry_that_need_not_wait_is_one_too() {
        let mut told = Told::NOTHING;
        assert!(told.refuses(linear(8), 0));
        // It fits now, and never comes to a wait.
        begins(&mut told, linear(8), 1);
        begins(&mut told, linear(8), 2);
        assert!(told.refuses(linear(8), 2));
    }

    #[test]
    fn each_piece_of_the_retry_waits_whichever_comes_to_it() {
        let mut told = Told::NOTHING;
        assert!(told.refuses(page(20), 0));
        runs_out(&mut told, page(20), 0);
        // Others free meanwhile.
        for frees in 5..9 {
            begins(&mut told, page(20), frees);
        }
        assert!(!told.refuses(page(20), 9));
        begins(&mut told, page(20), 10);
        assert!(!told.refuses(page(20), 11));
    }

    #[test]
    fn pieces_after_the_retry_are_refused_early_again() {
        let ends: [fn(&mut Told); 2] = [Told::pieces_end, |told| {
            runs_out(told, page(20), 1);
        }];
        for end in ends {
            let mut told = Told::NOTHING;
            assert!(told.refuses(page(20), 0));
            begins(&mut told, page(20), 1);
            assert!(!told.refuses(page(20), 1));
            end(&mut told);
            begins(&mut told, page(20), 2);
            assert!(told.refuses(page(20), 2));
        }
    }

    #[test]
    fn the_next_allocation_of_pieces_need_not_follow_a_free() {
        let mut told = Told::NOTHING;
        assert!(told.refuses(page(20), 0));
        begins(&mut told, page(20), 1);
        assert!(!told.refuses(page(20), 1));
        told.pieces_end();
        begins(&mut told, page(20), 1);
        assert!(told.refuses(page(20), 1));
    }

    #[test]
    fn another_size_is_refused_by_itself() {
        let mut told = Told::NOTHING;
        for bytes in [1, 2, 3, 4, 5] {
            begins(&mut told, linear(bytes), 0);
            assert!(told.refuses(linear(bytes), 0));
            begins(&mut told, linear(bytes), 0);
        }
        assert!(!told.refuses(linear(5), 0));
    }

    #[test]
    fn an_early_refusal_without_a_retry_is_its_kinds_last() {
        let mut told = Told::NOTHING;
        assert!(told.refuses(page(20), 0));
        let begun = begins(&mut told, linear(8), 0);
        assert_eq!(begun.unanswered, Some(page(20)));
        assert_eq!(begun.answers, None);
        assert!(told.refuses(linear(8), 0), "another kind of call");
        begins(&mut told, linear(8), 0);
        begins(&mut told, page(2), 1);
        assert!(!told.refuses(page(2), 1));
    }

    #[test]
    fn a_refusal_at_the_limit_counts_with_its_retry_or_without_one() {
        let mut told = Told::NOTHING;
        begins(&mut told, linear(8), 0);
        assert!(told.may_ask_again(linear(8)));
        runs_out(&mut told, linear(8), 0);
        assert!(told.watches());
        // It fits now, after the cache was freed.
        assert_eq!(begins(&mut told, linear(8), 1).answers, Some(linear(8)));
        assert!(!told.may_ask_again(linear(8)), "or does not, which counts");
        runs_out(&mut told, linear(8), 1);
        assert_eq!(begins(&mut told, linear(4), 1).unanswered, None);
        assert!(told.may_ask_again(linear(4)));
        runs_out(&mut told, linear(4), 1);
        let begun = begins(&mut told, linear(2), 1);
        assert_eq!((begun.answers, begun.unanswered), (None, Some(linear(4))));
        assert!(told.refuses(linear(2), 1), "it ends no early refusals");
    }

    #[test]
    fn ever_smaller_requests_go_on_with_the_first_ones_wait() {
        let mut told = Told::NOTHING;
        let start = Instant::now();
        told.begins(linear(100), 0, start);
        assert_eq!(told.since(), None);
        told.ran_out(linear(100), 0, (Some(start), start + 30 * SECOND));
        for (bytes, seconds) in [(90, 30), (81, 31), (73, 32)] {
            let now = start + seconds * SECOND;
            told.begins(linear(bytes), 0, now);
            assert_eq!(told.since(), Some(start));
            told.ran_out(linear(bytes), 0, (Some(now), now + SECOND));
        }
        told.begins(linear(66), 0, start + 34 * SECOND);
        // It was granted.
        told.begins(linear(50), 0, start + 34 * SECOND);
        assert_eq!(told.since(), None);
        assert!(!told.watches());
    }

    #[test]
    fn a_request_has_its_own_wait_unless_it_is_smaller_and_comes_at_once() {
        let start = Instant::now();
        let soon = start + SECOND;
        for (bytes, frees, now) in [
            (100, 0, soon),
            (101, 0, soon),
            (90, 1, soon),
            (90, 0, start + SOON),
        ] {
            let mut told = Told::NOTHING;
            told.ran_out(linear(100), 0, (Some(start), start));
            told.begins(linear(bytes), frees, now);
            assert_eq!(told.since(), None, "{bytes}");
        }
        let mut told = Told::NOTHING;
        // It was refused without a wait.
        told.ran_out(linear(100), 0, (None, start));
        told.begins(linear(90), 0, soon);
        assert_eq!(told.since(), None);
    }
}
