//! The tenants that want a device at an instant, and what is so for all of them.

use super::rules::Rules;
use super::tenant::Tenant;
use crate::ids::TenantId;
use crate::lease::arithmetic::any_of;
use crate::time::Nanos;

/// See the module's page.
#[derive(Debug)]
pub(super) struct Contenders<'a> {
    /// Tenants with work that may run now.
    pending: &'a [(TenantId, &'a Tenant)],
    /// The highest class among them. A gang that is closed counts only beside other closed ones:
    /// nothing is left to others in its place.
    pub(super) highest: u16,
    /// Some of those that may run are of a lower class.
    pub(super) classes: bool,
    /// They are of several classes, those of closed gangs among them: a guarantee is due also while
    /// the gang is closed that had its time.
    several: bool,
    /// The tenant of the highest class among those that may be back any moment, because they were
    /// active a moment ago.
    pub(super) expected: Option<(TenantId, &'a Tenant)>,
    /// That is a higher class than one of them has.
    pub(super) higher: bool,
    /// The tenants that always want the device take turns.
    pub(super) turns: bool,
    /// Tenants may yield to one to which nothing was promised.
    pub(super) yields: bool,
}

impl<'a> Contenders<'a> {
    /// The pending tenants, of all those that are `active`. `turns`: they may take turns; `yields`:
    /// they may yield to one to which nothing was promised. `None` if none is pending.
    pub(super) fn of(
        pending: &'a [(TenantId, &'a Tenant)],
        active: impl Iterator<Item = (TenantId, &'a Tenant)>,
        (turns, yields): (bool, bool),
        now: Nanos,
    ) -> Option<Self> {
        let classes = || pending.iter().map(|(_, tenant)| tenant.class());
        let may_run = pending.iter().filter(|(_, tenant)| !tenant.is_barred());
        let may_run = may_run.map(|(_, tenant)| tenant.class()).max();
        let (lowest, highest) = (classes().min()?, may_run.or_else(|| classes().max())?);
        let expected = active.filter(|(_, other)| other.is_expected(now) && !other.is_closed());
        let expected = expected.max_by_key(|(_, other)| other.class());
        Some(Self {
            pending,
            highest,
            classes: lowest < highest,
            several: classes().any(|class| class > lowest),
            expected,
            higher: expected.is_some_and(|(_, other)| lowest < other.class()),
            turns: turns && take_turns(pending, highest),
            yields,
        })
    }

    /// Those that steering helps. Among the tenants of one class the lag keeps the guarantees. A
    /// tenant that may not be helped keeps no help from another.
    pub(super) fn helped(&self) -> impl Iterator<Item = (TenantId, &'a Tenant)> {
        let may_be = |one: &Tenant| self.yields || self.is_promised(one) || self.takes_turns(one);
        let all = self.pending.iter().copied();
        all.filter(move |(_, one)| one.is_helped(self.classes) && may_be(one))
    }

    /// Whether the operator promised something to it: a share, or a higher class.
    pub(super) fn is_promised(&self, tenant: &Tenant) -> bool {
        self.higher || self.classes || tenant.account.has_promise()
    }

    /// The tenant that has to get its guarantee now, beside tenants of other classes: the one that
    /// is owed most. One that asks for less than its part is due for ever, and must not stand
    /// before the others. The one that gets it now is `kept` until another is owed a turn more:
    /// otherwise those of equal parts would alternate at each sample. No tenant repays one whose
    /// claims are doubted.
    pub(super) fn due(&self, kept: Option<TenantId>) -> Option<(TenantId, &'a Tenant)> {
        let keeps = |id: TenantId| if kept == Some(id) { 1000 } else { 0 };
        let due = self.helped().filter(|_| self.several);
        let due = due.filter(|(_, one)| !one.is_doubted());
        let due = due.filter_map(|(id, one)| Some((one.own.due? + keeps(id), (id, one))));
        due.max_by_key(|(owed, _)| *owed).map(|(_, due)| due)
    }

    /// Whether a tenant always wants the device.
    pub(super) fn stays(&self, tenant: &Tenant) -> bool {
        tenant.is_dense() || (self.turns && tenant.loops())
    }

    /// Whether others wait in its turns.
    pub(super) fn takes_turns(&self, tenant: &Tenant) -> bool {
        self.turns && self.stays(tenant) && !tenant.is_doubted()
    }

    /// Whether one of the highest class that waits for each operation has a request.
    pub(super) fn loop_has_request(&self) -> bool {
        has_request(self.pending, self.highest)
    }

    /// How many of the tenants do not always want the device.
    pub(super) fn visitors(&self) -> u64 {
        let all = self.pending.iter();
        all.filter(|(_, one)| !self.stays(one)).count() as u64
    }

    /// Whether they want more of the device than there is, as far as that is to be known for the
    /// one that is `behind`. For one without a request one of them must want it all the time. A
    /// request is also kept where they do so together, if one of them would fill most of the device
    /// alone: that one has pauses, and what it does without them it takes from the request.
    pub(super) fn is_contended(&self, behind: &Tenant) -> bool {
        let all = || self.pending.iter().map(|(_, tenant)| *tenant);
        let fills = |one: &Tenant| one.own.habit.service() >= Rules::TURNS;
        let presences = all().map(|one| one.own.habit.presence());
        let present = match behind.account.has_promise() && all().any(fills) {
            true => presences.fold(0, any_of),
            false => presences.max().unwrap_or(0),
        };
        let saturated = present >= Rules::SATURATED;
        self.higher || (self.pending.len() > 1 && (self.turns || saturated))
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
    let (weight, service) = (
        sum(|one| one.account.weight),
        sum(|one| one.account.weight * one.own.habit.service()),
    );
    let above = pending.iter().any(|(_, tenant)| tenant.class() < class);
    let fills = above || all.iter().any(|tenant| tenant.is_dense());
    let least = if above {
        Rules::TURNS_ABOVE
    } else if has_request(pending, class) {
        Rules::TURNS_PROMISED
    } else {
        Rules::TURNS
    };
    let is_worth_it = !fills || service >= weight * least;
    let free = |tenant: &Tenant| tenant.bond().is_none() && !tenant.own.done.guessed;
    let free = all.iter().all(|tenant| free(tenant));
    let loops = all.iter().any(|tenant| tenant.loops());
    (above || all.len() > 1) && loops && free && is_worth_it
}

/// Whether a tenant of a class that waits for each operation has a request.
fn has_request(pending: &[(TenantId, &Tenant)], class: u16) -> bool {
    let mut all = pending.iter().map(|(_, tenant)| *tenant);
    all.any(|one| one.class() == class && one.loops() && one.account.has_promise())
}
