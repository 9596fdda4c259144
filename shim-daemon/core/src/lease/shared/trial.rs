//! Whether steering is worth it: the device's useful time while tenants yield or take turns, beside
//! what it is when the driver alone decides.
//!
//! The cost of steering is not known before. Each change of contexts takes time. A tenant that
//! launches little work at a time seems to have work pending all the time, and leaves most of a
//! turn idle. So steering for a tenant to which nothing was promised is tried, and given up for a
//! while where it costs more than it may. The driver's own result is measured anew now and then:
//! for a moment no tenant is steered.

use super::rules::Rules;
use crate::time::Nanos;

/// How it is decided when the tenants of a device run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Regime {
    /// The driver alone.
    Driver,
    /// Tenants yield, or are held.
    Yields,
    /// Tenants take turns.
    Turns,
}

/// One way of steering.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// Not before this time, and for how long it is given up next time.
    given_up: Nanos,
    pause: Nanos,
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Trial {
    /// The part of the time that is useful by the driver alone, in thousandths: a mean of so many
    /// samples with so many active tenants.
    bare: u64,
    samples: u64,
    active: usize,
    /// When that must be measured again, and until when it is.
    stale: Nanos,
    measured: Nanos,
    /// The regime, and its useful time in a span of that length (ns).
    regime: Regime,
    during: (u64, u64),
    yields: Attempt,
    turns: Attempt,
}

impl Default for Attempt {
    fn default() -> Self {
        let (given_up, pause) = (Nanos::ZERO, Rules::GIVEN_UP.0);
        Self { given_up, pause }
    }
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            bare: 0,
            samples: 0,
            active: 0,
            stale: Nanos::ZERO,
            measured: Nanos::ZERO,
            regime: Regime::Driver,
            during: (0, 0),
            yields: Attempt::default(),
            turns: Attempt::default(),
        }
    }
}

impl Trial {
    /// Whether this may be done now.
    pub(super) fn allows(&self, regime: Regime, now: Nanos) -> bool {
        let given_up = match regime {
            Regime::Driver => Nanos::ZERO,
            Regime::Yields => self.yields.given_up,
            Regime::Turns => self.turns.given_up,
        };
        now >= given_up.max(self.measured)
    }

    /// A sample: so many tenants were `active`, and had so much service together in `span`.
    pub(super) fn note(
        &mut self,
        (now, span): (Nanos, Nanos),
        useful: u64,
        (active, regime): (usize, Regime),
    ) {
        if active != self.active {
            (self.active, self.samples) = (active, 0);
            self.stale = now + Rules::STALE.0;
        }
        if regime != self.regime {
            (self.regime, self.during) = (regime, (0, 0));
        }
        if regime == Regime::Driver {
            self.samples = (self.samples + 1).min(Rules::BARE);
            let part = useful.saturating_mul(1000) / span.0.max(1);
            self.bare = (self.bare * (self.samples - 1) + part.min(1000)) / self.samples;
            if self.samples >= Rules::SAMPLES {
                self.stale = now + Rules::STALE.1;
            }
            return;
        }
        self.during = (self.during.0 + useful, self.during.1 + span.0);
        if self.during.1 >= Rules::TRIAL.0 || self.is_hopeless() {
            self.judge(now, regime);
        }
        if now >= self.stale {
            self.samples = 0;
            self.measured = now + Nanos(Rules::TICK.0 * Rules::BARE);
            self.stale = self.measured + Rules::STALE.0;
        }
    }

    /// Whether so much is lost that a quarter of the time says enough.
    fn is_hopeless(&self) -> bool {
        let (useful, all) = self.during;
        let part = useful.saturating_mul(1000) / all.max(1);
        let is_known = self.samples >= Rules::SAMPLES;
        is_known && all >= Rules::TRIAL.0 / 4 && part * 1000 < self.bare * Rules::HOPELESS
    }

    fn judge(&mut self, now: Nanos, regime: Regime) {
        let (useful, all) = std::mem::take(&mut self.during);
        let part = useful.saturating_mul(1000) / all.max(1);
        let attempt = match regime {
            Regime::Turns => &mut self.turns,
            _ => &mut self.yields,
        };
        if self.samples < Rules::SAMPLES {
            return;
        }
        if part * 1000 >= self.bare * Rules::KEEPS {
            attempt.pause = Rules::GIVEN_UP.0;
            return;
        }
        attempt.given_up = now + attempt.pause;
        attempt.pause = Nanos(attempt.pause.0 * 2).min(Rules::GIVEN_UP.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Nanos = Rules::TICK;

    /// Samples for so long of which so many thousandths are useful. Returns the time after them.
    fn samples(trial: &mut Trial, from: Nanos, time: Nanos, part: u64, regime: Regime) -> Nanos {
        (1..=time.0 / TICK.0).fold(from, |now, _| {
            let now = now + TICK;
            trial.note((now, TICK), TICK.0 * part / 1000, (2, regime));
            now
        })
    }

    fn measured(part: u64) -> (Trial, Nanos) {
        let mut trial = Trial::default();
        let now = samples(
            &mut trial,
            Nanos::ZERO,
            Nanos::millis(100),
            part,
            Regime::Driver,
        );
        (trial, now)
    }

    #[test]
    fn steering_goes_on_while_it_is_worth_it() {
        let (mut trial, now) = measured(880);
        let now = samples(&mut trial, now, Nanos::secs(30), 800, Regime::Yields);
        assert!(trial.allows(Regime::Yields, now));
    }

    #[test]
    fn steering_that_costs_too_much_is_given_up_for_longer_each_time() {
        for regime in [Regime::Yields, Regime::Turns] {
            let (mut trial, mut now) = measured(880);
            let mut pause = Rules::GIVEN_UP.0;
            for _ in 0..10 {
                while trial.allows(regime, now) {
                    now = samples(&mut trial, now, TICK, 700, regime);
                }
                let given_up = now;
                while !trial.allows(regime, now) {
                    now = samples(&mut trial, now, TICK, 880, Regime::Driver);
                }
                assert!(now - given_up >= pause, "{now:?}");
                pause = Nanos(pause.0 * 2).min(Rules::GIVEN_UP.1);
            }
            assert_eq!(pause, Rules::GIVEN_UP.1);
        }
    }

    #[test]
    fn steering_that_costs_half_is_given_up_sooner() {
        let given_up_after = |part| {
            let (mut trial, from) = measured(880);
            let mut now = from;
            while trial.allows(Regime::Turns, now) {
                now = samples(&mut trial, now, TICK, part, Regime::Turns);
            }
            now - from
        };
        assert_eq!(given_up_after(700), Rules::TRIAL);
        assert_eq!(given_up_after(440), Nanos(Rules::TRIAL.0 / 4));
    }

    #[test]
    fn turns_that_cost_too_much_leave_yielding_as_it_is() {
        let (mut trial, now) = measured(880);
        let now = samples(&mut trial, now, Rules::TRIAL, 700, Regime::Turns);
        assert!(!trial.allows(Regime::Turns, now));
        assert!(trial.allows(Regime::Yields, now));
    }

    #[test]
    fn what_steering_is_compared_with_is_measured_after_some_seconds() {
        let mut trial = Trial::default();
        let mut now = Nanos::ZERO;
        while trial.allows(Regime::Yields, now) {
            now = samples(&mut trial, now, TICK, 100, Regime::Yields);
        }
        assert_eq!(
            now,
            Rules::STALE.0 + TICK,
            "nothing to compare it with until then"
        );
        let from = now;
        while !trial.allows(Regime::Yields, now) {
            now = samples(&mut trial, now, TICK, 880, Regime::Driver);
        }
        assert_eq!(now - from, Nanos(TICK.0 * Rules::BARE));
        let now = samples(&mut trial, now, Rules::TRIAL, 100, Regime::Yields);
        assert!(!trial.allows(Regime::Yields, now));
    }

    #[test]
    fn another_number_of_tenants_is_measured_anew() {
        let (mut trial, now) = measured(880);
        trial.note((now + TICK, TICK), 0, (3, Regime::Yields));
        let now = samples(&mut trial, now + TICK, Rules::TRIAL, 100, Regime::Yields);
        assert!(trial.allows(Regime::Yields, now));
    }
}
