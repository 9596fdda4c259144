//! Whether the tenants run together, yield to a tenant that is behind, or are held for it.
//!
//! Modes rise one step at a time and fall after a calm period, which grows if they soon rise again.
//! Each tenant's gate follows from the mode and from the tenant that is behind, at every sample.

use super::rules::{Rules, Visits};
use super::tenant::{Gate, Tenant};
use super::trial::{Regime, Trial};
use crate::ids::TenantId;
use crate::lease::roster::Roster;
use crate::lease::view::Mode;
use crate::time::Nanos;
use std::collections::BTreeMap;

/// The mode and its hysteresis.
#[derive(Debug)]
pub(super) struct Steering {
    mode: Mode,
    /// Since when it is in its mode.
    since: Nanos,
    /// Since when a lower mode would do.
    calm: Option<Nanos>,
    /// How long that must be so.
    quiet: Nanos,
    /// When it was last relaxed.
    relaxed: Option<Nanos>,
    /// How often the mode changed.
    changes: u64,
    /// The steering in force.
    regime: Regime,
    /// Whether steering without a promise is worth its cost.
    trial: Trial,
}

impl Default for Steering {
    fn default() -> Self {
        Self {
            mode: Mode::Together,
            since: Nanos::ZERO,
            calm: None,
            quiet: Rules::QUIET.0,
            relaxed: None,
            changes: 0,
            regime: Regime::Driver,
            trial: Trial::default(),
        }
    }
}

/// The tenant that is behind, and the remedy.
struct Case {
    behind: TenantId,
    class: u16,
    due: bool,
    /// It always wants the device.
    stays: bool,
    /// It and others like it take turns.
    turns: bool,
    visits: Visits,
    /// It has completed no operation for long.
    silent: bool,
    works: bool,
    want: Mode,
    lag: i64,
}

impl Steering {
    /// The mode, and how often it changed.
    pub(super) fn mode(&self) -> (Mode, u64) {
        (self.mode, self.changes)
    }

    /// A sample: so many tenants were active, and had so much service together in the last `span`.
    pub(super) fn note(&mut self, times: (Nanos, Nanos), useful: u64, active: usize) {
        self.trial.note(times, useful, (active, self.regime));
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
        self.changes += 1;
    }

    /// Moves to the mode that is wanted: up a step at once, down after a calm.
    fn follow(&mut self, want: Mode, now: Nanos) {
        if want > self.mode {
            let soon = |at: Nanos| now < at + Nanos(self.quiet.0 * 4);
            let (first, most) = Rules::QUIET;
            if let Some(relaxed) = self.relaxed.take() {
                self.quiet = if soon(relaxed) {
                    Nanos(self.quiet.0 * 2).min(most)
                } else {
                    first
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
            if now >= calm + self.quiet {
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
        tenants: &Roster<Tenant>,
        active: &[TenantId],
        rules: &Rules,
        now: Nanos,
    ) -> BTreeMap<TenantId, Gate> {
        let mut gates: BTreeMap<TenantId, Gate> =
            tenants.iter().map(|(id, _)| (id, Gate::Noted)).collect();
        if let [alone] = active {
            let free = tenants
                .get(*alone)
                .is_some_and(|tenant| !tenant.is_capped());
            if free {
                gates.insert(*alone, Gate::Free);
            }
        }
        let pending: Vec<(TenantId, &Tenant)> = active
            .iter()
            .filter_map(|id| Some((*id, tenants.get(*id)?)))
            .filter(|(_, tenant)| tenant.is_pending(now) && !tenant.is_throttled())
            .collect();
        let case = if active.len() < 2 {
            None
        } else {
            self.case(&pending, tenants, active, rules, now)
        };
        let case = case.filter(|case| self.is_worth_it(case, rules, now));
        let was = std::mem::replace(&mut self.regime, Regime::Driver);
        // Only turns hold tenants that are not behind. Where they are given up, the driver decides.
        let ends = was == Regime::Turns && !self.trial.allows(Regime::Turns, now);
        let case = case.filter(|_| !ends);
        if ends {
            self.rest(now);
        }
        match case {
            None if active.len() < 2 => self.rest(now),
            None => self.follow(Mode::Together, now),
            Some(case) => {
                self.follow(case.want, now);
                self.regime = match self.mode {
                    Mode::Together => Regime::Driver,
                    Mode::Hold if case.turns => Regime::Turns,
                    _ => Regime::Yields,
                };
                self.apply(&case, &pending, rules, &mut gates);
                self.expect(&pending, (tenants, active), rules, &mut gates);
            }
        }
        for (id, tenant) in tenants.iter() {
            if tenant.is_throttled() {
                gates.insert(id, Gate::Shut);
            }
        }
        gates
    }

    /// Whether what steering for this case costs is known to be no more than it may. Otherwise the
    /// driver alone decides at once.
    fn is_worth_it(&mut self, case: &Case, rules: &Rules, now: Nanos) -> bool {
        let is_free = rules.switch == Nanos::ZERO || case.visits.promised || case.turns;
        if is_free || self.trial.allows(Regime::Yields, now) {
            return true;
        }
        self.rest(now);
        false
    }

    /// A tenant of a higher class that pauses may be back any moment: the others yield to it as if
    /// it were pending.
    fn expect(
        &self,
        pending: &[(TenantId, &Tenant)],
        (tenants, active): (&Roster<Tenant>, &[TenantId]),
        rules: &Rules,
        gates: &mut BTreeMap<TenantId, Gate>,
    ) {
        let higher = active.iter().filter_map(|id| tenants.get(*id));
        let higher = higher
            .filter(|tenant| tenant.has_worked() && !tenant.is_throttled() && !tenant.is_barred());
        let Some(first) = higher.max_by_key(|tenant| tenant.class()) else {
            return;
        };
        if self.mode == Mode::Together || first.is_silent() {
            return;
        }
        let slice = rules.yield_slice(&Visits {
            visitors: 1,
            promised: true,
            dense: false,
            presence: first.presence(),
            far: false,
        });
        for (id, tenant) in pending {
            let gate = gates.get_mut(id).filter(|gate| **gate == Gate::Noted);
            if let Some(gate) = gate.filter(|_| tenant.class() < first.class()) {
                *gate = Gate::Slice(slice);
            }
        }
    }

    /// The tenant that is behind: one with a due guarantee, else the tenant of the highest class
    /// with the most lag. Tenants that leave gaps come before dense ones, because the dense tenant
    /// with the most lag fills the gaps.
    fn case(
        &self,
        pending: &[(TenantId, &Tenant)],
        tenants: &Roster<Tenant>,
        active: &[TenantId],
        rules: &Rules,
        now: Nanos,
    ) -> Option<Case> {
        let highest = pending.iter().map(|(_, tenant)| tenant.class()).max()?;
        // Among the tenants of one class the lag keeps the guarantees.
        let classes = pending.iter().any(|(_, tenant)| tenant.class() < highest);
        let helped = |tenant: &Tenant| tenant.is_helped(classes);
        let due = pending
            .iter()
            .find(|(_, tenant)| tenant.is_due() && helped(tenant))
            .filter(|_| classes);
        let turns = self.trial.allows(Regime::Turns, now) && take_turns(pending, highest);
        let stays = |tenant: &Tenant| tenant.is_dense() || (turns && tenant.loops());
        // A turn ends where another tenant is behind by so much more, or after the longest time.
        let keeps = |tenant: &Tenant| {
            if !turns || !stays(tenant) || self.mode != Mode::Hold || tenant.is_shut() {
                return 0;
            }
            let is_over = now >= tenant.history().0 + rules.longest_turn();
            if is_over { i64::MIN / 2 } else { rules.turn() }
        };
        let first = pending
            .iter()
            .filter(|(_, tenant)| tenant.class() == highest && helped(tenant))
            .max_by_key(|(_, tenant)| {
                let behind = tenant.behind().saturating_add(keeps(tenant));
                (!stays(tenant) && tenant.goes_first(rules), behind)
            });
        let (behind, tenant) = due.or(first)?;
        let others = pending.len() > 1;
        let busiest = pending.iter().map(|(_, tenant)| tenant.presence()).max();
        let saturated = turns || busiest.is_some_and(|presence| presence >= Rules::SATURATED);
        let lag = if due.is_some() {
            rules.hold_at()
        } else {
            tenant.behind()
        };
        // A higher class that was active a moment ago may be back any moment.
        let higher = active
            .iter()
            .filter_map(|id| tenants.get(*id))
            .filter(|other| other.has_worked())
            .any(|other| pending.iter().any(|(_, low)| low.class() < other.class()));
        let patient = self.mode == Mode::Yield && now < self.since + rules.patience();
        // A mode persists until the device is calm.
        let least = match self.mode {
            Mode::Together => tenant.yielded_to_at(rules),
            Mode::Yield | Mode::Hold => rules.calm_below(),
        };
        let contended = higher || (others && saturated);
        let silent = tenant.is_silent();
        let turns = turns && stays(tenant) && due.is_none();
        let want = if !contended {
            Mode::Together
        } else if silent {
            Mode::Yield
        } else if turns
            || (lag >= rules.hold_at() && !patient)
            || (self.mode == Mode::Hold && lag >= least)
        {
            Mode::Hold
        } else if higher || lag >= least {
            Mode::Yield
        } else {
            Mode::Together
        };
        Some(Case {
            behind: *behind,
            class: tenant.class(),
            due: due.is_some(),
            stays: stays(tenant),
            turns,
            visits: Visits {
                visitors: pending.iter().filter(|(_, one)| !stays(one)).count() as u64,
                promised: due.is_some() || higher || classes || tenant.has_promise(),
                dense: stays(tenant),
                presence: tenant.presence(),
                far: self.mode == Mode::Hold,
            },
            silent,
            works: if turns {
                tenant.is_at_work()
            } else {
                tenant.works() || tenant.waits()
            },
            want,
            lag,
        })
    }

    /// Tenants ahead of the one that is behind yield or are held.
    fn apply(
        &self,
        case: &Case,
        pending: &[(TenantId, &Tenant)],
        rules: &Rules,
        gates: &mut BTreeMap<TenantId, Gate>,
    ) {
        if self.mode == Mode::Together {
            return;
        }
        let stays = |tenant: &Tenant| tenant.is_dense() || (case.turns && tenant.loops());
        let ahead: Vec<(TenantId, &Tenant)> = pending
            .iter()
            .copied()
            .filter(|(id, tenant)| {
                // Tenants with deep queues yield or are held beside a tenant that leaves gaps,
                // ahead or not.
                let fills = (case.turns || !case.stays) && stays(tenant);
                let steered = case.due || tenant.class() < case.class || tenant.lag() < 0 || fills;
                *id != case.behind && steered
            })
            .collect();
        let weights: u64 = ahead.iter().map(|(_, tenant)| tenant.weight()).sum();
        let all = rules.yield_slice(&case.visits);
        // Beside a tenant that has just paused, a hold would leave the device idle.
        let holds = self.mode == Mode::Hold && !case.silent && case.works;
        let filler = if case.stays {
            None
        } else {
            filler(&ahead, rules)
        };
        for (id, tenant) in &ahead {
            let slice = Nanos(all.0 * tenant.weight() / weights.max(1));
            let slice = if filler.is_some() { all } else { slice };
            let takes_turns = case.turns && stays(tenant);
            let repays = takes_turns || tenant.is_shut() || case.lag >= rules.yield_at();
            let held = match filler {
                // The slices of tenants that yield at the same time add up. So at most one dense
                // tenant yields, the filler, and the other dense tenants are held.
                Some(filler) if filler != *id => holds || tenant.is_dense(),
                Some(_) => false,
                None => holds && repays,
            };
            let gate = if held {
                Gate::Shut
            } else {
                Gate::Slice(slice.max(rules.least_slice()))
            };
            gates.insert(*id, gate);
        }
    }
}

/// Whether the tenants of a class that always want the device take turns with it: one of them waits
/// for each of its operations, so that the driver would change contexts after each. Lower classes
/// have none. Beside a tenant that leaves no gaps, what turns leave idle must be worth that.
fn take_turns(pending: &[(TenantId, &Tenant)], class: u16) -> bool {
    let wants = |tenant: &&Tenant| tenant.class() == class && (tenant.is_dense() || tenant.loops());
    let all = pending.iter().map(|(_, tenant)| *tenant);
    let all: Vec<&Tenant> = all.filter(wants).collect();
    let sum = |part: fn(&Tenant) -> u64| all.iter().map(|tenant| part(tenant)).sum::<u64>();
    let (weight, service) = (sum(Tenant::weight), sum(|one| one.weight() * one.service()));
    let above = pending.iter().any(|(_, tenant)| tenant.class() < class);
    let fills = above || all.iter().any(|tenant| tenant.is_dense());
    let least = if above {
        Rules::TURNS_ABOVE
    } else {
        Rules::TURNS
    };
    let is_worth_it = !fills || service >= weight * least;
    let free = |tenant: &Tenant| tenant.bond().is_none() && tenant.is_known();
    let free = all.iter().all(|tenant| free(tenant));
    let loops = all.iter().any(|tenant| tenant.loops());
    (above || all.len() > 1) && loops && free && is_worth_it
}

/// Chooses the tenant that keeps the device busy beside one that leaves gaps: among the working
/// dense tenants the one least ahead. It is kept until it is more than a slice further ahead than
/// another.
fn filler(ahead: &[(TenantId, &Tenant)], rules: &Rules) -> Option<TenantId> {
    let now = |tenant: &Tenant| matches!(tenant.gate(), Gate::Slice(_));
    let stays = |tenant: &Tenant| if now(tenant) { rules.yield_at() / 2 } else { 0 };
    let open = ahead.iter().filter(|(_, tenant)| !tenant.is_barred());
    let first = open.max_by_key(|(_, tenant)| {
        let lag = tenant.lag() + stays(tenant);
        (tenant.works(), tenant.is_dense(), lag)
    });
    first.map(|(id, _)| *id)
}
