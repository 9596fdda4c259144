//! Whether steering is worth it: the device's useful time while tenants yield or take turns, beside
//! what it is when the driver alone decides.
//!
//! The cost of steering is not known before. Each change of contexts takes time. A tenant that
//! launches little work at a time seems to have work pending all the time, and leaves most of a
//! turn idle. So steering for a tenant to which nothing was promised is tried, and given up for a
//! while where it costs more than it may, or something and is of no use: a program that is bound by
//! its launches has no more of the device while another one is held for it. The driver's own result
//! is measured anew now and then: for a moment no tenant is steered for one to which nothing was
//! promised. Yielding for a promise is not tried: the operator wants it, and pays more for it. It
//! goes on while the driver's result is measured, because it would go on where the rest is given
//! up. Turns are tried in any case: for a request they may cost as much as such yielding.
//!
//! All of this is about one set of tenants ([`Trials`](super::trials::Trials)).

use super::mean::Mean;
use super::rules::Rules;
use crate::time::Nanos;

/// How it is decided when the tenants of a device run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Regime {
    /// The driver alone.
    #[default]
    Driver,
    /// Tenants yield, or are held, for one to which nothing was promised.
    Yields,
    /// The same for one to which something was promised.
    Promised,
    /// Tenants take turns.
    Turns,
    /// The same where one that waits for each operation has a request. Only turns keep that.
    PromisedTurns,
}

impl Regime {
    /// Whether tenants take turns.
    pub(super) fn is_turns(self) -> bool {
        matches!(self, Self::Turns | Self::PromisedTurns)
    }

    /// So many thousandths of the useful time that the driver alone leaves must remain.
    fn keeps(self) -> u64 {
        match self {
            Self::PromisedTurns => Rules::KEEPS_PROMISED,
            _ => Rules::KEEPS,
        }
    }
}

/// One way of steering.
#[derive(Clone, Debug, Default)]
struct Attempt {
    /// Not before this time, and for how long it is given up next time; zero: as the first time.
    given_up: Nanos,
    pause: Nanos,
    /// The useful time in it since its last verdict, and when that was noted last. The other way of
    /// steering may come between, and the driver alone for a while.
    during: Mean,
    noted: Nanos,
    /// At its last verdict it cost something and helped no tenant.
    in_vain: bool,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Trial {
    /// Without what is tried.
    bare: Mean,
    /// That was measured on purpose, not before the steering.
    is_on_purpose: bool,
    /// How long tenants were steered since that was measured, and until when it is measured now.
    steered: Nanos,
    measured: Nanos,
    /// How long tenants were steered without a verdict, these and those before them; after a bad
    /// verdict, as long as makes it be measured at once.
    tried: Nanos,
    /// By yielding, and by turns: see [`way`].
    ways: [Attempt; 2],
}

/// Which of its [ways](Trial::ways) a regime is, other than the driver alone and promises.
fn way(regime: Regime) -> usize {
    usize::from(regime.is_turns())
}

impl Attempt {
    /// A sample under it. What is old may be of other work, and decides nothing.
    fn note(&mut self, (now, span): (Nanos, Nanos), useful: &[u64]) {
        if now > self.noted + Rules::RECENT {
            self.during = Mean::default();
        }
        self.noted = now;
        self.during.add(useful, span);
    }
}

impl Trial {
    /// Its tenants come after those of another trial. Tenants that come and go do not put off that
    /// it is measured what the driver alone leaves. After a bad verdict that is done first, so that
    /// each set of tenants is steered in vain for no longer than a trial takes.
    pub(super) fn after(self, before: &Self) -> Self {
        let tried = self.tried.max(before.tried);
        if self.bare.is_of(Rules::SURE) {
            return Self { tried, ..self };
        }
        Self {
            tried,
            steered: self.steered.max(tried),
            measured: self.measured.max(before.measured),
            ..self
        }
    }

    /// Steering may be tried at once. If it is in vain again, it is given up for longer.
    pub(super) fn begin_anew(&mut self) {
        for attempt in &mut self.ways {
            let first = Attempt::default();
            *attempt = Attempt {
                pause: attempt.pause,
                ..first
            };
        }
    }

    /// Whether this may be done now.
    pub(super) fn allows(&self, regime: Regime, now: Nanos) -> bool {
        match regime {
            Regime::Driver | Regime::Promised => true,
            _ => now >= self.ways[way(regime)].given_up.max(self.measured),
        }
    }

    /// A sample: its tenants had so much service each in `span`, in their order. `None`: it says
    /// nothing, because some of that is a guess, which adds up to the clock whatever was useful, or
    /// because only one tenant wanted the device.
    pub(super) fn note(
        &mut self,
        (now, span): (Nanos, Nanos),
        useful: Option<&[u64]>,
        regime: Regime,
    ) {
        // A promise that is kept amid what is tried is part of neither. Where one way is given up
        // it is what remains without that.
        let all = self.allows(Regime::Yields, now) && self.allows(Regime::Turns, now);
        if regime == Regime::Promised && all {
            return;
        }
        let Some(useful) = useful else {
            return;
        };
        if matches!(regime, Regime::Driver | Regime::Promised) {
            self.bare.add(useful, span);
            self.bare.keep(Rules::BARE);
            if self.bare.is_of(Rules::SURE) {
                self.steered = Nanos::ZERO;
            }
            return;
        }
        (self.steered, self.tried) = (self.steered + span, self.tried + span);
        let way = way(regime);
        self.ways[way].note((now, span), useful);
        let during = &self.ways[way].during;
        // Where so much is lost, a quarter of the time says enough.
        let is_seen = during.is_of(Nanos(Rules::TRIAL.0 / 4));
        let is_hopeless = is_seen && self.costs_more_than(during, Rules::HOPELESS);
        if is_hopeless || during.is_of(Rules::TRIAL) {
            self.judge(now, regime);
        }
        let (unknown, known) = Rules::STALE;
        let is_sure = self.bare.is_of(Rules::SURE);
        if self.steered >= if is_sure { known } else { unknown } {
            // Tenants that are seldom contended need several times to measure it.
            let goes_on = std::mem::replace(&mut self.is_on_purpose, true) && !is_sure;
            if !goes_on {
                self.bare = Mean::default();
            }
            self.steered = Nanos::ZERO;
            for attempt in &mut self.ways {
                attempt.during = Mean::default();
            }
            self.measured = now + Rules::BARE;
        }
    }

    /// Whether less than `keeps` thousandths of what the driver alone leaves are left, as far as
    /// that is known.
    fn costs_more_than(&self, during: &Mean, keeps: u64) -> bool {
        self.bare.is_of(Rules::HINT) && during.part() * 1000 < self.bare.part() * keeps
    }

    fn judge(&mut self, now: Nanos, regime: Regime) {
        let way = way(regime);
        let is_sure = self.bare.is_of(Rules::SURE);
        let keeps = match is_sure {
            true => regime.keeps(),
            false => Rules::HOPELESS,
        };
        let during = std::mem::take(&mut self.ways[way].during);
        let in_vain = is_sure
            && self.costs_more_than(&during, Rules::VAIN)
            && !during.gives(&self.bare, Rules::HELPS);
        let costs = self.costs_more_than(&during, keeps);
        let attempt = &mut self.ways[way];
        // Random arrivals alone look so now and then, but not twice.
        let is_too_much = costs || (in_vain && attempt.in_vain);
        attempt.in_vain = in_vain;
        if is_too_much {
            let (first, most) = Rules::GIVEN_UP;
            let pause = attempt.pause.max(first);
            (attempt.given_up, attempt.pause) = (now + pause, Nanos(pause.0 * 2).min(most));
            self.tried = Rules::STALE.0;
        } else if is_sure {
            attempt.pause = Nanos::ZERO;
            self.tried = Nanos::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Nanos = Rules::TICK;

    /// Samples for so long of which so many thousandths are useful: the first tenant's by the
    /// driver alone and for a promise, else half of it the second's. Returns the time after them.
    fn samples(trial: &mut Trial, from: Nanos, time: Nanos, part: u64, regime: Regime) -> Nanos {
        (1..=time.0 / TICK.0).fold(from, |now, _| {
            let now = now + TICK;
            trial.note((now, TICK), Some(&had(part, regime)), regime);
            now
        })
    }

    fn had(part: u64, regime: Regime) -> [u64; 2] {
        let all = TICK.0 * part / 1000;
        match regime {
            Regime::Driver | Regime::Promised => [all, 0],
            _ => [all / 2, all / 2],
        }
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

    /// A program that is bound by its launches has nothing of it that another one is held.
    #[test]
    fn steering_that_costs_a_little_and_helps_no_tenant_is_given_up() {
        let after = |had: [u64; 2]| {
            let (mut trial, mut now) = (Trial::default(), Nanos::ZERO);
            let (bare, with) = (([500, 380], Regime::Driver), (had, Regime::Yields));
            for (had, regime) in [bare, with, with] {
                for _ in 0..Rules::TRIAL.0 / TICK.0 {
                    now = now + TICK;
                    let had = had.map(|part| TICK.0 * part / 1000);
                    trial.note((now, TICK), Some(&had), regime);
                }
            }
            trial.allows(Regime::Yields, now)
        };
        assert!(!after([410, 390]), "91 % remain");
        assert!(after([370, 430]), "the second has 13 % more");
        assert!(after([450, 390]), "95 % remain");
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
    fn turns_that_keep_a_request_may_cost_a_quarter() {
        for (part, goes_on) in [(670, true), (650, false)] {
            let (mut trial, now) = measured(880);
            let now = samples(&mut trial, now, Rules::TRIAL, part, Regime::PromisedTurns);
            assert_eq!(trial.allows(Regime::Turns, now), goes_on, "{part}");
        }
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
        assert_eq!(now, Rules::STALE.0, "nothing to compare it with until then");
        let from = now;
        while !trial.allows(Regime::Yields, now) {
            now = samples(&mut trial, now, TICK, 880, Regime::Driver);
        }
        assert_eq!(now - from, Rules::BARE);
        let now = samples(&mut trial, now, Rules::TRIAL, 100, Regime::Yields);
        assert!(!trial.allows(Regime::Yields, now));
    }

    /// It goes on while the rest is given up, so the rest is compared with it.
    #[test]
    fn steering_for_a_promise_is_no_trial() {
        let (mut trial, now) = measured(880);
        let now = samples(&mut trial, now, Nanos::secs(30), 100, Regime::Promised);
        let now = samples(&mut trial, now, Rules::TRIAL, 800, Regime::Yields);
        assert!(trial.allows(Regime::Yields, now), "compared with 880");
        let mut now = samples(&mut trial, now, Rules::TRIAL, 700, Regime::Yields);
        while !trial.allows(Regime::Yields, now) {
            now = samples(&mut trial, now, TICK, 700, Regime::Promised);
        }
        let now = samples(&mut trial, now, Nanos::secs(5), 650, Regime::Yields);
        assert!(trial.allows(Regime::Yields, now), "compared with 700");
    }

    /// A tenant with a request was a deep queue when the driver alone was measured, and waits for
    /// each short operation now: turns leave more than what is done for it without them.
    #[test]
    fn turns_that_were_given_up_are_compared_with_what_is_done_instead() {
        let (mut trial, mut now) = measured(930);
        while trial.allows(Regime::Turns, now) {
            now = samples(&mut trial, now, TICK, 760, Regime::Turns);
        }
        while !trial.allows(Regime::Turns, now) {
            now = samples(&mut trial, now, TICK, 650, Regime::Promised);
        }
        let now = samples(&mut trial, now, Nanos::secs(5), 760, Regime::Turns);
        assert!(trial.allows(Regime::Turns, now), "compared with 650");
    }

    /// They contend for less than half of the time.
    #[test]
    fn a_measure_of_the_driver_that_is_too_short_is_completed() {
        let (mut trial, mut now) = (Trial::default(), Nanos::ZERO);
        let mut measured = 0;
        while !trial.bare.is_of(Rules::SURE) {
            while trial.allows(Regime::Yields, now) {
                now = samples(&mut trial, now, TICK, 800, Regime::Yields);
            }
            measured += 1;
            assert!(measured < 4);
            now = samples(&mut trial, now, Nanos::millis(60), 880, Regime::Driver);
            while !trial.allows(Regime::Yields, now) {
                now = now + TICK;
                trial.note((now, TICK), None, Regime::Driver);
            }
        }
        assert_eq!(measured, 2);
    }

    #[test]
    fn promises_between_do_not_put_a_verdict_off() {
        let (mut trial, mut now) = measured(880);
        for _ in 0..=Rules::TRIAL.0 / TICK.0 {
            now = samples(&mut trial, now, TICK, 880, Regime::Promised);
            now = samples(&mut trial, now, TICK, 700, Regime::Yields);
        }
        assert!(!trial.allows(Regime::Yields, now));
    }

    /// Whether a way of steering is given up within ten seconds in which turns and yielding take
    /// turns, and so many thousandths are useful.
    fn is_given_up(part: u64) -> bool {
        let (mut trial, mut now) = measured(880);
        let regimes = [Regime::Turns, Regime::Yields];
        for regime in regimes.repeat(600) {
            now = samples(&mut trial, now, Nanos(TICK.0 * 4), part, regime);
            if trial.ways.iter().any(|way| way.given_up > now) {
                return true;
            }
        }
        false
    }

    #[test]
    fn turns_and_yielding_by_turns_do_not_put_a_verdict_off() {
        assert!(is_given_up(400));
        assert!(!is_given_up(800), "it is worth it");
    }

    /// Between them the tenants' programs have changed.
    #[test]
    fn a_measure_of_steering_that_is_old_decides_nothing() {
        let mut trial = Trial::default();
        let (short, long) = (Nanos::millis(200), Nanos::secs(60));
        let now = samples(&mut trial, Nanos::ZERO, short, 400, Regime::Driver);
        let now = samples(&mut trial, now, Nanos::millis(350), 390, Regime::Yields);
        let now = samples(&mut trial, now, long, 880, Regime::Driver);
        let now = samples(&mut trial, now, short, 850, Regime::Yields);
        assert!(trial.allows(Regime::Yields, now));
    }

    #[test]
    fn steering_is_measured_anew_once_the_driver_alone_is() {
        let (mut trial, now) = measured(880);
        let long = Nanos(Rules::STALE.1.0 - Rules::TRIAL.0);
        let now = samples(&mut trial, now, long, 800, Regime::Yields);
        let mut now = samples(&mut trial, now, Nanos::millis(300), 800, Regime::Turns);
        while trial.allows(Regime::Turns, now) {
            now = samples(&mut trial, now, TICK, 800, Regime::Yields);
        }
        while !trial.allows(Regime::Turns, now) {
            now = samples(&mut trial, now, TICK, 990, Regime::Driver);
        }
        let now = samples(&mut trial, now, Nanos::millis(100), 900, Regime::Turns);
        assert!(trial.allows(Regime::Turns, now), "91 % remain");
    }

    #[test]
    fn service_that_comes_in_lumps_is_as_much() {
        let mut trial = Trial::default();
        let mut now = Nanos::ZERO;
        for part in [0, 1770].repeat(50) {
            now = samples(&mut trial, now, TICK, part, Regime::Driver);
        }
        assert_eq!(trial.bare.part(), 885);
        for part in [1620, 0].repeat(1000) {
            now = samples(&mut trial, now, TICK, part, Regime::Yields);
        }
        assert!(trial.allows(Regime::Yields, now), "92 % remain");
    }

    #[test]
    fn guesses_are_compared_with_nothing() {
        let mut trial = Trial::default();
        let mut now = Nanos::ZERO;
        for _ in 0..100 {
            now = now + TICK;
            trial.note((now, TICK), None, Regime::Driver);
        }
        let now = samples(&mut trial, now, Rules::TRIAL, 100, Regime::Yields);
        assert!(trial.allows(Regime::Yields, now));
    }

    #[test]
    fn a_short_look_at_the_driver_alone_decides_on_the_hopeless_only() {
        for (part, goes_on) in [(700, true), (440, false)] {
            let mut trial = Trial::default();
            let now = samples(
                &mut trial,
                Nanos::ZERO,
                Nanos::millis(60),
                880,
                Regime::Driver,
            );
            let now = samples(&mut trial, now, Rules::TRIAL, part, Regime::Yields);
            assert_eq!(trial.allows(Regime::Yields, now), goes_on, "{part}");
        }
    }
}
