//! The times of a tenant's requests. The caller passes the time; there is no clock here.

use super::tenant::Arrivals;

/// The moments at which requests are due. All times are nanoseconds of one clock.
#[derive(Debug)]
pub(crate) struct Requests {
    every: u64,
    arrivals: Arrivals,
    due: u64,
    random: u64,
    /// The due times of periods without a request, because the previous request took longer.
    missed: Vec<u64>,
}

impl Requests {
    /// The first request is due at `now`; `every` is the time between two requests, or its mean.
    /// Zero: a request is due when the previous one is done. `seed` determines random arrivals.
    pub(crate) fn new(every: u64, arrivals: Arrivals, seed: u64, now: u64) -> Self {
        Self {
            every,
            arrivals,
            due: now,
            // A xorshift generator must not begin at zero.
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            missed: Vec::new(),
        }
    }

    /// The due time of the next request; `None` if no more are made: from `end` on no neighbour
    /// works any more, and a request that is served then shows nothing of sharing.
    pub(crate) fn next(&self, now: u64, end: u64) -> Option<u64> {
        (now < end && self.due < end).then_some(self.due)
    }

    /// How long those requests had waited at `end` that were due from `from` to `to` and were not
    /// made by then. Only random arrivals stand in line.
    pub(crate) fn in_line(mut self, (from, to): (u64, u64), end: u64) -> Vec<u64> {
        let mut waited = Vec::new();
        while self.arrivals == Arrivals::Poisson && self.every > 0 && self.due < to.min(end) {
            if self.due >= from {
                waited.push(end - self.due);
            }
            self.due += self.gap();
        }
        waited
    }

    /// The time at which a request made at `now` counts as made. Random arrivals queue behind
    /// earlier ones.
    pub(crate) fn sent(&self, now: u64) -> u64 {
        match self.arrivals {
            Arrivals::Regular => now,
            Arrivals::Poisson => self.due.min(now),
        }
    }

    /// Notes that the request was complete at `now`.
    pub(crate) fn done(&mut self, now: u64) {
        match self.arrivals {
            _ if self.every == 0 => self.due = now,
            Arrivals::Poisson => self.due += self.gap(),
            Arrivals::Regular => {
                self.due += self.every;
                while self.due < now {
                    self.missed.push(self.due);
                    self.due += self.every;
                }
            }
        }
    }

    /// The number of periods due from `from` to `to` that had no request.
    pub(crate) fn missed(&self, from: u64, to: u64) -> u64 {
        let within = self.missed.iter().filter(|due| (from..to).contains(*due));
        within.count() as u64
    }

    /// A time from an exponential distribution.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most 45 times the mean, which is at most 10 s"
    )]
    fn gap(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // The upper 53 bits, from above zero to one.
        let uniform = ((self.random >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        (-uniform.ln() * self.every as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_outlasts_periods_misses_them() {
        let mut requests = Requests::new(100, Arrivals::Regular, 1, 1_000);
        assert_eq!(requests.due, 1_000);
        requests.done(1_050);
        assert_eq!((requests.due, requests.missed(0, 9_999)), (1_100, 0));
        requests.done(1_350);
        assert_eq!((requests.due, requests.missed(0, 9_999)), (1_400, 2));
        assert_eq!(requests.missed(1_250, 1_300), 0, "due at 1200 and 1300");
    }

    #[test]
    fn without_a_period_the_next_request_is_due_at_once() {
        let mut requests = Requests::new(0, Arrivals::Regular, 1, 5);
        requests.done(70);
        assert_eq!((requests.due, requests.missed(0, 99)), (70, 0));
    }

    #[test]
    fn random_arrivals_keep_their_mean_and_wait_for_those_before() {
        let mut requests = Requests::new(1_000, Arrivals::Poisson, 7, 0);
        (0..20_000).for_each(|_| requests.done(u64::MAX));
        let mean = requests.due as f64 / 20_000.0;
        assert!((mean - 1_000.0).abs() < 30.0, "{mean}");
        let due = requests.due;
        assert_eq!(requests.sent(due + 500), due, "it waits since it was due");
        assert_eq!(requests.missed(0, u64::MAX), 0);
    }

    /// Serves requests, each of which takes so long, until `end`. Returns when each was due and
    /// complete.
    fn served(requests: &mut Requests, takes: u64, end: u64) -> Vec<(u64, u64)> {
        let (mut now, mut served) = (0, Vec::new());
        while let Some(due) = requests.next(now, end) {
            now = now.max(due) + takes;
            served.push((due, now));
            requests.done(now);
        }
        served
    }

    #[test]
    fn requests_that_are_in_line_at_the_end_are_not_served_after_it() {
        let mut requests = Requests::new(1_000, Arrivals::Poisson, 7, 0);
        let served = served(&mut requests, 2_000, 1_000_000);
        let (oldest, complete) = *served.last().unwrap();
        assert!((1_000_000..1_002_000).contains(&complete), "{complete}");
        // Half of the requests were made. The other half waits, and the first of it is the oldest.
        let line = requests.in_line((0, 900_000), 1_000_000);
        assert!((300..500).contains(&line.len()), "{}", line.len());
        assert!(line.is_sorted_by(|one, other| one >= other));
        assert!(line[0] <= 1_000_000 - oldest && line[0] > 450_000);
        assert!(*line.last().unwrap() >= 100_000, "due before the span ends");
    }

    #[test]
    fn a_line_that_is_empty_at_the_end_has_no_requests() {
        for arrivals in [Arrivals::Poisson, Arrivals::Regular] {
            let mut requests = Requests::new(1_000, arrivals, 7, 0);
            let served = served(&mut requests, 1, 1_000_000);
            assert!(served.len() > 900, "{}", served.len());
            assert!(requests.in_line((0, 900_000), 1_000_000).is_empty());
        }
        // A regular request that is late is missed, and stands in no line.
        let mut slow = Requests::new(1_000, Arrivals::Regular, 7, 0);
        assert_eq!(served(&mut slow, 700_000, 1_000_000).len(), 2);
        assert!(slow.in_line((0, 2_000_000), 1_000_000).is_empty());
    }

    #[test]
    fn different_seeds_have_different_arrivals() {
        let first = |seed| {
            let mut requests = Requests::new(1_000, Arrivals::Poisson, seed, 0);
            requests.done(0);
            requests.due
        };
        assert_ne!(first(1), first(2));
        assert_eq!(first(3), first(3));
    }
}
