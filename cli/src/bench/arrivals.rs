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

    /// The due time of the next request.
    pub(crate) fn due(&self) -> u64 {
        self.due
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
        assert_eq!(requests.due(), 1_000);
        requests.done(1_050);
        assert_eq!((requests.due(), requests.missed(0, 9_999)), (1_100, 0));
        requests.done(1_350);
        assert_eq!((requests.due(), requests.missed(0, 9_999)), (1_400, 2));
        assert_eq!(requests.missed(1_250, 1_300), 0, "due at 1200 and 1300");
    }

    #[test]
    fn without_a_period_the_next_request_is_due_at_once() {
        let mut requests = Requests::new(0, Arrivals::Regular, 1, 5);
        requests.done(70);
        assert_eq!((requests.due(), requests.missed(0, 99)), (70, 0));
    }

    #[test]
    fn random_arrivals_keep_their_mean_and_wait_for_those_before() {
        let mut requests = Requests::new(1_000, Arrivals::Poisson, 7, 0);
        (0..20_000).for_each(|_| requests.done(u64::MAX));
        let mean = requests.due() as f64 / 20_000.0;
        assert!((mean - 1_000.0).abs() < 30.0, "{mean}");
        let due = requests.due();
        assert_eq!(requests.sent(due + 500), due, "it waits since it was due");
        assert_eq!(requests.missed(0, u64::MAX), 0);
    }

    #[test]
    fn different_seeds_have_different_arrivals() {
        let first = |seed| {
            let mut requests = Requests::new(1_000, Arrivals::Poisson, seed, 0);
            requests.done(0);
            requests.due()
        };
        assert_ne!(first(1), first(2));
        assert_eq!(first(3), first(3));
    }
}
