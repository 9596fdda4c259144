//! Whether the tenants run together, yield to a tenant that is behind, or are held for it.
//!
//! Modes rise one step at a time and fall after a calm period, which grows if they soon rise again.
//! Each tenant's gate follows from the mode and from the tenant that is behind, at every sample.

use super::case::Case;
use super::changes::Changes;
use super::contenders::Contenders;
use super::expected::yield_to_expected;
use super::filler::{earns, filler};
use super::gate::{Aim, Gate};
use super::neighbours::hold_at_once;
use super::rules::{Rules, Visits};
use super::tenant::{State, Tenant};
use super::trial::Regime;
use super::trials::Trials;
use crate::ids::TenantId;
use crate::lease::roster::Roster;
use crate::lease::view::Mode;
use crate::time::Nanos;
use std::collections::BTreeMap;

/// The mode and its hysteresis.
#[derive(Debug, Default)]
pub(super) struct Steering {
    mode: Mode,
    /// Since when it is in its mode.
    since: Nanos,
    /// Since when a lower mode would do.
    calm: Option<Nanos>,
    /// How long that must be so; zero: as the first time. See [`Self::quiet`].
    quiet: Nanos,
    /// When it was last relaxed.
    relaxed: Option<Nanos>,
    /// Of the mode.
    changes: Changes,
    /// The steering in force.
    regime: Regime,
    /// The tenant that gets its guarantee against higher classes.
    due: Option<TenantId>,
    /// The tenant that is behind, and its class.
    behind: Option<(TenantId, u16)>,
    /// Whether steering without a promise is worth its cost.
    trials: Trials,
    /// Since when no two tenants are active. The mode is kept meanwhile, for as long as a calm.
    alone: Option<Nanos>,
}

impl Steering {
    /// A tenant alone is not steered, whatever mode is kept.
    pub(super) fn mode(&self) -> Mode {
        match self.alone {
            Some(_) => Mode::Together,
            None => self.mode,
        }
    }

    pub(super) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Whether one of this class is held for the tenant that is behind, ahead of its own class or
    /// not.
    pub(super) fn outranks(&self, class: u16) -> bool {
        self.behind
            .is_some_and(|(_, behind)| self.due.is_some() || class < behind)
    }

    /// Whether this tenant gets its guarantee against higher classes.
    pub(super) fn is_due(&self, tenant: TenantId) -> bool {
        self.due == Some(tenant)
    }

    /// Whether the tenants take turns now.
    pub(super) fn takes_turns(&self) -> bool {
        self.regime.is_turns()
    }

    /// Whether the tenant that is behind is one of these.
    pub(super) fn is_for(&self, tenants: &[TenantId]) -> bool {
        self.behind.is_some_and(|(id, _)| tenants.contains(&id))
    }

    /// A sample: the tenants had so much service each in the last span. `None`: that says nothing.
    /// `recent`: those that had work not long ago.
    pub(super) fn note(
        &mut self,
        times: (Nanos, Nanos),
        useful: Option<&[u64]>,
        recent: Vec<TenantId>,
    ) {
        self.trials.note(times, useful, (recent, self.regime));
    }

    /// The terms of a tenant changed: see [`Trials::terms_changed`].
    pub(super) fn terms_changed(&mut self, tenant: TenantId) {
        self.trials.terms_changed(tenant);
    }

    /// How long a lower mode must do before it is taken.
    fn quiet(&self) -> Nanos {
        self.quiet.max(Rules::QUIET.0)
    }

    /// No tenant needs steering.
    fn rest(&mut self, now: Nanos) {
        if self.mode != Mode::Together {
            self.go(Mode::Together, now);
        }
    }

    fn go(&mut self, mode: Mode, now: Nanos) {
        self.mode = mode;
        (self.since, self.calm) = (now, None);
        self.changes.note(now);
    }

    /// Moves to the mode that is wanted: up a step at once, down after a calm.
    fn follow(&mut self, want: Mode, now: Nanos) {
        if want > self.mode {
            if let Some(relaxed) = self.relaxed.take() {
                let quiet = self.quiet();
                let soon = now < relaxed + Nanos(quiet.0 * 4);
                self.quiet = match soon {
                    true => Nanos(quiet.0 * 2).min(Rules::QUIET.1),
                    false => Nanos::ZERO,
                };
            }
            let next = match self.mode {
                Mode::Together => Mode::Yield,
                Mode::Yield | Mode::Hold => Mode::Hold,
            };
            self.go(next, now);
        } else if want == self.mode {
            self.calm = None;
        } else {
            let calm = *self.calm.get_or_insert(now);
            if now >= calm + self.quiet() {
                let lower = match self.mode {
                    Mode::Hold => Mode::Yield,
                    Mode::Yield | Mode::Together => Mode::Together,
                };
                self.relaxed = Some(now);
                self.go(lower, now);
            }
        }
    }

    /// The target gates of all tenants. `active` are the steerable tenants that are not idle.
    pub(super) fn steer(
        &mut self,
        tenants: &Roster<State>,
        active: &[TenantId],
        rules: &Rules,
        now: Nanos,
    ) -> BTreeMap<TenantId, Aim> {
        let open = |(id, _)| (id, Gate::Noted.own());
        let mut gates: BTreeMap<TenantId, Aim> = tenants.iter().map(open).collect();
        if let [alone] = active {
            let free = tenants
                .get(*alone)
                .is_some_and(|tenant| !tenant.account.is_capped() && !tenant.is_asked(now));
            if free {
                gates.insert(*alone, Gate::Free.own());
            }
        }
        let pending: Vec<(TenantId, &Tenant)> = active
            .iter()
            .filter_map(|id| Some((*id, tenants.get(*id)?)))
            .filter(|(_, tenant)| tenant.is_pending(now) && !tenant.account.is_throttled())
            .collect();
        let case = match self.is_alone(active, now) {
            true => None,
            false => self.found(&pending, (tenants, active), rules, now),
        };
        let was = std::mem::replace(&mut self.regime, Regime::Driver);
        // Only turns hold tenants that are not behind. Where they are given up, the driver decides.
        let ends = was.is_turns() && !self.trials.allows(was, now);
        let case = case.filter(|_| !ends);
        if ends {
            self.rest(now);
        }
        let behind = case.as_ref().map(|case| case.behind);
        self.behind = behind.map(|(id, tenant)| (id, tenant.class()));
        match case {
            None if self.alone.is_some() => {}
            None => self.follow(Mode::Together, now),
            Some(case) => {
                self.follow(case.want, now);
                self.regime = match self.mode {
                    Mode::Together => Regime::Driver,
                    Mode::Hold if case.turns && case.loop_has_request => Regime::PromisedTurns,
                    Mode::Hold if case.turns => Regime::Turns,
                    _ if case.is_promised(&pending) => Regime::Promised,
                    _ => Regime::Yields,
                };
                self.apply(&case, &pending, rules, &mut gates);
                if self.mode != Mode::Together && case.due.is_none() {
                    hold_at_once(&case, &pending, rules, &mut gates);
                }
                if self.mode != Mode::Together {
                    yield_to_expected(&case, &pending, rules, &mut gates);
                }
                self.judge(&pending, rules, &mut gates, now);
            }
        }
        for (id, tenant) in tenants.iter() {
            if tenant.account.is_throttled() {
                gates.insert(id, Gate::Shut.own());
            }
        }
        gates
    }

    /// Whether no two tenants are active. The mode is kept for one that pauses for less than a
    /// calm: on its return it is found as it was.
    fn is_alone(&mut self, active: &[TenantId], now: Nanos) -> bool {
        let alone = active.len() < 2;
        let since = match alone {
            true => Some(*self.alone.get_or_insert(now)),
            false => self.alone.take(),
        };
        if since.is_some_and(|since| now >= since + self.quiet()) {
            self.rest(now);
        }
        alone
    }

    /// A tenant that may wait for each operation runs as if alone until that is known: turns depend
    /// on it, and work that a gate bounds does not tell it.
    fn judge(
        &self,
        pending: &[(TenantId, &Tenant)],
        rules: &Rules,
        gates: &mut BTreeMap<TenantId, Aim>,
        now: Nanos,
    ) {
        if rules.switch == Nanos::ZERO || self.takes_turns() {
            return;
        }
        for (id, _) in pending
            .iter()
            .filter(|(_, one)| one.own.habit.is_unjudged(now))
        {
            gates.insert(*id, Gate::Noted.own());
        }
    }

    /// The case for steering, as far as steering is known to cost no more than it may. Where that
    /// is none, and nothing was promised, the driver alone decides at once.
    fn found<'a>(
        &mut self,
        pending: &'a [(TenantId, &'a Tenant)],
        (tenants, active): (&'a Roster<State>, &[TenantId]),
        rules: &Rules,
        now: Nanos,
    ) -> Option<Case<'a>> {
        let known = || {
            active
                .iter()
                .filter_map(|id| Some((*id, tenants.get(*id)?)))
        };
        let active = || known().map(|(_, tenant)| tenant);
        let is_free = rules.switch == Nanos::ZERO;
        let turns = !is_free && self.trials.allows(Regime::Turns, now);
        let yields = is_free || self.trials.allows(Regime::Yields, now);
        let all = Contenders::of(pending, known(), (turns, yields), now);
        let case = all.and_then(|all| self.case(&all, rules, now));
        let due = case.as_ref().filter(|case| case.due.is_some());
        self.due = due.map(|case| case.behind.0);
        let promised = || {
            pending
                .iter()
                .any(|(_, tenant)| tenant.account.has_promise())
        };
        // A higher class at its cap is back within some milliseconds, and finds the mode as it was.
        let lowest = pending.iter().map(|(_, tenant)| tenant.class()).min();
        let pauses = |above: &Tenant| {
            let higher = lowest.is_some_and(|lowest| lowest < above.class());
            higher && above.account.is_throttled() && above.is_expected(now)
        };
        let paused = || active().any(pauses);
        // So does a lower class that works now and then.
        let highest = pending.iter().map(|(_, tenant)| tenant.class()).max();
        let outranks = |one: &Tenant| {
            let lower = highest.is_some_and(|highest| one.class() < highest);
            lower && one.is_recent(now)
        };
        let keeps = || promised() || paused() || active().any(outranks);
        if case.is_none() && !yields && !keeps() {
            self.rest(now);
        }
        case
    }

    /// The tenant that is behind, and the remedy.
    fn case<'a>(&self, all: &Contenders<'a>, rules: &Rules, now: Nanos) -> Option<Case<'a>> {
        let due = all.due(self.due);
        let (behind, tenant) = due.or_else(|| self.first(all, rules, now))?;
        let lag = match due {
            Some(_) => rules.hold_at(),
            None => tenant.behind(),
        };
        let turns = all.takes_turns(tenant) && due.is_none();
        Some(Case {
            behind: (behind, tenant),
            due: due.and_then(|(_, tenant)| tenant.own.due),
            turns,
            loops_stay: all.turns,
            loop_has_request: all.loop_has_request(),
            visits: Visits {
                visitors: all.visitors(),
                contexts: 1,
                promised: all.is_promised(tenant),
                dense: all.stays(tenant),
                presence: tenant.own.habit.presence(),
                far: self.mode == Mode::Hold,
            },
            equals: all.yields || turns || due.is_some() || tenant.account.has_promise(),
            works: match turns {
                true => tenant.is_at_work(),
                false => tenant.own.done.works || tenant.members.waits(),
            },
            want: self.wanted(all, tenant, (lag, turns), rules, now),
            lag,
            expected: all.expected,
        })
    }

    /// The tenant of the highest class with the most lag. Tenants that leave gaps come before dense
    /// ones, because the dense tenant with the most lag fills the gaps. Those with a request come
    /// before the others: their lag is bounded, and several are behind by as much as is remembered.
    fn first<'a>(
        &self,
        all: &Contenders<'a>,
        rules: &Rules,
        now: Nanos,
    ) -> Option<(TenantId, &'a Tenant)> {
        // A turn ends where another tenant is behind by so much more. After the longest time it
        // goes on only as long as its tenant is behind.
        let keeps = |tenant: &Tenant| {
            let has_turn = all.turns && all.stays(tenant) && !tenant.is_shut();
            if !has_turn || self.mode != Mode::Hold {
                return 0;
            }
            let had = now - tenant.own.since;
            if had < rules.longest_turn() {
                rules.turn()
            } else if had < rules.last_turn() && tenant.behind() > 0 {
                0
            } else {
                i64::MIN / 2
            }
        };
        let highest = all.helped().filter(|(_, one)| one.class() == all.highest);
        highest.max_by_key(|(_, tenant)| {
            let behind = tenant.behind().saturating_add(keeps(tenant));
            let goes_first = !all.stays(tenant) && tenant.goes_first(rules);
            (
                goes_first,
                goes_first && tenant.account.has_promise(),
                behind,
            )
        })
    }

    /// The mode that would repay the tenant behind its `lag`, in turns or not.
    fn wanted(
        &self,
        all: &Contenders<'_>,
        behind: &Tenant,
        (lag, turns): (i64, bool),
        rules: &Rules,
        now: Nanos,
    ) -> Mode {
        let patient = self.mode == Mode::Yield && now < self.since + rules.patience();
        // A mode persists until the device is calm.
        let least = match self.mode {
            Mode::Together => behind.yielded_to_at(rules),
            Mode::Yield | Mode::Hold => rules.calm_below(),
        };
        let holds = turns
            || (lag >= rules.hold_at() && !patient)
            || (self.mode == Mode::Hold && lag >= least);
        if !all.is_contended(behind) {
            Mode::Together
        } else if behind.is_silent() {
            Mode::Yield
        } else if holds && !behind.is_doubted() {
            Mode::Hold
        } else if all.higher || lag >= least {
            Mode::Yield
        } else {
            Mode::Together
        }
    }

    /// Tenants ahead of the one that is behind yield or are held.
    fn apply(
        &self,
        case: &Case<'_>,
        pending: &[(TenantId, &Tenant)],
        rules: &Rules,
        gates: &mut BTreeMap<TenantId, Aim>,
    ) {
        if self.mode == Mode::Together {
            return;
        }
        let (by, first) = case.behind;
        let (class, earns_it) = (first.class(), earns(first));
        let stays = |tenant: &Tenant| case.stays(tenant);
        let ahead = pending.iter().copied().filter(|one| case.steers(*one));
        let ahead: Vec<(TenantId, &Tenant)> = ahead.collect();
        let weights: u64 = ahead.iter().map(|(_, tenant)| tenant.account.weight).sum();
        // Beside a tenant that has just paused, a hold would leave the device idle.
        let holds = self.mode == Mode::Hold && earns_it && case.works;
        // A guarantee takes the time of deep queues first. A tenant that leaves gaps, and is of a
        // higher class or is owed something itself, gets meanwhile what it asks for, as long as the
        // rest repays the guarantee.
        let ranks = |tenant: &Tenant| tenant.class() > class || tenant.own.due.is_some();
        let repaid = case.due.is_some_and(|owed| owed < Rules::UNPAID);
        let passes = |tenant: &Tenant| repaid && ranks(tenant) && !stays(tenant);
        // A lower class has what one leaves that always wants the device and is of a higher class,
        // also where that one is not behind.
        let keeps = |tenant: &Tenant| {
            let queues = tenant.is_dense() && tenant.own.done.works;
            let loops = case.loops_stay && tenant.loops() && tenant.is_at_work();
            let may = tenant.runs() && !tenant.is_barred();
            earns(tenant) && may && (queues || loops)
        };
        let kept = pending.iter().filter(|(_, tenant)| keeps(tenant));
        let kept = kept.map(|(_, tenant)| tenant.class()).max().unwrap_or(0);
        let filler = if case.visits.dense {
            None
        } else {
            filler(&ahead, kept, rules)
        };
        // A class promises nothing against its own.
        let promised = case.visits.promised && (first.account.has_promise() || kept < class);
        let contexts = match filler {
            Some(_) => 1,
            None => ahead.len() as u64,
        };
        let all = rules.yield_slice(&Visits {
            promised,
            contexts,
            ..case.visits
        });
        for (id, tenant) in &ahead {
            let slice = Nanos(all.0 * tenant.account.weight / weights.max(1));
            let slice = if filler.is_some() { all } else { slice };
            let takes_turns = case.turns && stays(tenant);
            let repays = takes_turns || tenant.is_shut() || case.lag >= rules.yield_at();
            let held = match filler {
                _ if passes(tenant) => false,
                // The slices of tenants that yield at the same time add up. So at most one dense
                // tenant yields, the filler, and the other dense tenants are held.
                Some((other, filler)) if other != *id => {
                    let is_second = tenant.is_dense() && tenant.class() <= filler.class();
                    holds || is_second || tenant.class() < kept
                }
                Some(_) => tenant.class() < kept,
                None => (holds && repays) || (!earns_it && tenant.class() < kept),
            };
            let is_unknown = |tenant: &Tenant| tenant.own.done.guessed;
            // Slices of work of unknown length give each context a part that no measured work
            // shows.
            let is_blind = case.visits.dense && is_unknown(first) && is_unknown(tenant);
            let gate = if held {
                Gate::Shut
            } else if is_blind {
                Gate::Noted
            } else {
                Gate::Slice(slice.max(rules.least_slice()))
            };
            gates.insert(*id, gate.of(by));
        }
    }
}
