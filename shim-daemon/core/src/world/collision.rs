//! A collision: a wanted grant that does not fit now.
//!
//! In order: unused grants of other tenants are reclaimed; then the freed memory is looked at again
//! (the reclaim's answer leads back to `settle`); within its request the asker takes back borrowed
//! memory; then its own resolvers, in its order.

use super::World;
use super::ladder::Claim;
use super::moves::movers::Asker;
use super::pending::{Pending, Want};
use super::settle::Pass;
use crate::decision::{Answer, Denial, Notice, Why};
use crate::ids::{AskKey, DeviceId, TenantId};
use crate::ledger::Account;
use crate::resolver::{Burst, Candidate, Case, Resolve, Resolver, Verdict};
use crate::room::Room;
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;
use std::cell::LazyCell;

impl World {
    /// Starts steps that may make room, or refuses. Returns how much of the free memory lower asks
    /// must leave to this one. It excludes bytes on their way, which are counted already.
    pub(super) fn collide(
        &mut self,
        pass: &mut Pass,
        ask: AskKey,
        pending: &Pending,
        need: Room,
        guaranteed: bool,
    ) -> Room {
        let missing = self.missing(pass, pending, need, guaranteed);
        let mut all = pass.coming.prompt;
        let asker = Some(pending.tenant);
        if !(missing - all).is_zero() && pass.called_back != asker {
            // A further context is beside the tenant's grant, so what it has freed makes room, too.
            let except = asker.filter(|_| !pending.want.is_more());
            all += match guaranteed {
                true => self.reclaim_unused(pass.device, except, missing - all),
                false => self.reclaim_spared(pass.device, except, missing - all),
            };
            // Some bytes stay uncovered because no tenant has more unused grants.
            pass.called_back = asker.filter(|_| !(missing - all).is_zero());
        }
        let short = missing - all;
        let counts_on_it = if short.is_zero() {
            self.tell_waiting(ask, Bytes::ZERO, None);
            true
        } else {
            self.resolve(pass, ask, pending, short, guaranteed)
        };
        pass.coming.prompt = if counts_on_it { all - missing } else { all };
        if counts_on_it { need - missing } else { need }
    }

    /// The bytes missing for `need` behind all asks that rank above it.
    fn missing(&self, pass: &Pass, pending: &Pending, need: Room, guaranteed: bool) -> Room {
        let Some(books) = self.ledger.get(pass.device) else {
            return need;
        };
        let kept = self.kept_from(pending, guaranteed);
        let overdrawn = books.total() - Room::both(books.usable());
        let short = need + pass.above + overdrawn + kept - books.slack();
        Room {
            taken: if need.taken.is_zero() {
                Bytes::ZERO
            } else {
                short.taken
            },
            firm: if need.firm.is_zero() {
                Bytes::ZERO
            } else {
                short.firm
            },
        }
    }

    /// Asks the policies. `short` is missing even when all unused grants are back. Returns whether
    /// the ask counts on the bytes on their way. An ask that would still lack bytes does not, so
    /// that other asks may use them.
    pub(super) fn resolve(
        &mut self,
        pass: &mut Pass,
        ask: AskKey,
        pending: &Pending,
        short: Room,
        guaranteed: bool,
    ) -> bool {
        let lasting = pass.coming.lasting.min(short);
        let rest = short - lasting;
        let physical = matches!(pending.want, Want::Physical { .. });
        let priority = self.tenants.priority(pending.tenant);
        let mut turn = false;
        let policies = self.policies(pending, guaranteed);
        for (at, by) in policies.iter().copied().enumerate() {
            let last = at + 1 == policies.len();
            let verdict = self.ask_policy(by, pass, (pending, guaranteed), (short, rest), physical);
            let counts = rest.is_zero() || matches!(verdict, Verdict::End(_) | Verdict::Move(_));
            match verdict {
                Verdict::Pass => continue,
                // A tenant that did not leave is waited for only where nothing else helps.
                Verdict::Turn { certain: false, .. } if !last => continue,
                Verdict::Turn { at, certain } => {
                    turn = certain;
                    self.wait_turn_until(pass.device, at);
                    self.tell_waiting(ask, rest.taken, Some(Resolver::Swap));
                }
                Verdict::Move(victims) => {
                    let given = self.move_all(pass.device, &victims, pending.tenant);
                    if given < rest.taken {
                        pass.candidates = None;
                        continue;
                    }
                    pass.forget();
                    pass.coming.lasting = pass.coming.lasting - lasting;
                    pass.coming.lasting.taken += given - rest.taken;
                    turn = true;
                    self.tell_waiting(ask, Bytes::ZERO, Some(Resolver::Swap));
                }
                Verdict::Refuse => break,
                Verdict::Wait => {
                    if self.guesses_on(pass.device) {
                        pass.looks = true;
                        self.look_for_guesses(pass.device);
                    }
                    if rest.is_zero() {
                        pass.coming.lasting = pass.coming.lasting - lasting;
                    }
                    self.tell_waiting(ask, rest.taken.max(rest.firm), by);
                    self.timers
                        .set_no_later(Timer::Cycle, self.timers.now() + self.policy.cycle_grace);
                }
                Verdict::End(victims) => {
                    let given = self.end_all(pass.device, &victims, pending.tenant);
                    pass.forget();
                    pass.coming.lasting = pass.coming.lasting - lasting;
                    pass.coming.lasting.taken += given - rest.taken;
                    pass.claims.push(Claim {
                        guaranteed,
                        priority,
                    });
                    if guaranteed && !victims.is_empty() {
                        self.extend(ask);
                    }
                    self.tell_waiting(ask, Bytes::ZERO, by);
                }
            }
            self.asks.set_turn(ask, turn);
            return counts;
        }
        self.asks.set_turn(ask, false);
        if !physical && self.is_to_be_looked_at(pass.device, pending) {
            pass.looks = true;
            return false;
        }
        let short = short.taken.max(short.firm);
        self.answer(ask, Answer::Denied(Denial::NoRoom { short }));
        false
    }

    /// The policies to ask, in order. `None` takes back bursts. Within its request a tenant is
    /// never refused by its own resolvers; it waits.
    fn policies(&self, pending: &Pending, guaranteed: bool) -> Vec<Option<Resolver>> {
        if guaranteed {
            return vec![None, Some(Resolver::Wait)];
        }
        let known = self.tenants.get(pending.tenant);
        known
            .into_iter()
            .flat_map(|known| &known.spec().on_collision)
            .map(|resolver| Some(*resolver))
            .collect()
    }

    fn ask_policy(
        &mut self,
        by: Option<Resolver>,
        pass: &mut Pass,
        (pending, guaranteed): (&Pending, bool),
        (short, rest): (Room, Room),
        physical: bool,
    ) -> Verdict {
        let (device, above) = (pass.device, pass.above.taken);
        // Where tenants move, memory that equals get first is lent to them: its turn comes too.
        let promised = match by {
            Some(Resolver::Swap) => short.firm - self.lasting(device).0.firm,
            _ => rest.firm,
        };
        let asker = Asker {
            tenant: pending.tenant,
            guaranteed,
            since: pending.since,
            rotates: pending.turn,
        };
        let moves = matches!(by, None | Some(Resolver::Swap));
        let movers = match moves {
            true => self.movers(device, asker, pass.before(asker.tenant)),
            false => Vec::new(),
        };
        // It is summed over the whole node, and few asks come to it.
        let host = LazyCell::new(|| self.host_for(None));
        let alone = || {
            let short = rest.taken - above;
            let asker = (pending.tenant, pass.before(pending.tenant));
            self.fits_alone(device, asker, short, || host.1, &movers)
        };
        let alone = moves && alone();
        let candidates = match by {
            None | Some(Resolver::Priority) => self.looked_up(pass, pending.tenant, physical),
            _ => Vec::new(),
        };
        let case = Case {
            priority: self.tenants.priority(pending.tenant),
            short: rest.taken,
            borrowed: promised.is_zero(),
            patience: pending.until - self.timers.now(),
            ladder: self.policy.ladder(),
            candidates: &candidates,
            movers: &movers,
            guaranteed,
            now: self.timers.now(),
            host: if movers.is_empty() {
                Bytes::ZERO
            } else {
                host.0
            },
            room: self.residency.host.free(),
            alone,
        };
        let verdict = match by {
            Some(resolver) => resolver.policy().resolve(&case),
            None => Burst.resolve(&case),
        };
        if by == Some(Resolver::Swap) && verdict == Verdict::Pass && self.is_full_for(&case) {
            let (wanted, needed) = (case.short, self.host_needed(&case));
            self.tell_host_full(device, wanted, needed);
        }
        verdict
    }

    /// [`Self::candidates`], looked up once for the asks of a walk as far as none of them changes
    /// what tenants hold.
    fn looked_up(&self, pass: &mut Pass, asker: TenantId, physical: bool) -> Vec<Candidate> {
        let known = pass.candidates.take().filter(|(of, _)| *of == physical);
        let fresh = || (physical, self.all_candidates(pass.device, physical));
        let (_, all) = pass.candidates.insert(known.unwrap_or_else(fresh));
        all.iter()
            .filter(|one| one.tenant != asker)
            .copied()
            .collect()
    }

    /// Tenants that may be ended to get memory back here for this asker.
    pub(super) fn candidates(
        &self,
        device: DeviceId,
        asker: TenantId,
        physical: bool,
    ) -> Vec<Candidate> {
        let mut all = self.all_candidates(device, physical);
        all.retain(|one| one.tenant != asker);
        all
    }

    /// The same for any asker: they use more than their request and allowed it.
    fn all_candidates(&self, device: DeviceId, physical: bool) -> Vec<Candidate> {
        let Some(books) = self.ledger.get(device) else {
            return Vec::new();
        };
        let gives = |account: &Account| match physical {
            true => account.held_by_driver(),
            false => account.held(),
        };
        let candidate = |(tenant, account): (TenantId, &Account)| {
            let known = self.tenants.get(tenant)?;
            let free_to_choose = known.may_be_ended(self.timers.now());
            (free_to_choose && known.has_processes()).then(|| Candidate {
                tenant,
                priority: known.spec().priority,
                idle: known.is_idle() && !self.call_waits(tenant),
                gives: gives(account) - self.leaving_of(tenant, device)
                    + self.comes_for(tenant, device),
                destroys: self.in_use_everywhere(tenant),
            })
        };
        let borrowers = books
            .accounts()
            .filter(|(_, account)| account.loan.killable && account.over_request());
        borrowers.filter_map(candidate).collect()
    }

    fn in_use_everywhere(&self, tenant: TenantId) -> Bytes {
        let known = self.tenants.get(tenant).into_iter();
        let quotas = known.flat_map(|known| &known.spec().quotas);
        let accounts = quotas.filter_map(|(device, _)| self.ledger.account(*device, tenant));
        accounts.map(|account| account.in_use).sum()
    }

    /// Begins to end the victims. Returns the memory that the device gets back for that.
    pub(super) fn end_all(
        &mut self,
        device: DeviceId,
        victims: &[TenantId],
        wanted_by: TenantId,
    ) -> Bytes {
        let mut given = Bytes::ZERO;
        for victim in victims {
            let account = self.ledger.account(device, *victim);
            let Some(account) = account else { continue };
            given +=
                account.held() - self.leaving_of(*victim, device) + self.comes_for(*victim, device);
            let (charged, overhead) = (account.in_use + account.excess, account.overhead);
            self.end(
                *victim,
                Why::Collision {
                    device,
                    wanted_by,
                    charged,
                    overhead,
                },
            );
        }
        given
    }

    /// Records why an ask waits, and reports a change.
    pub(super) fn tell_waiting(&mut self, ask: AskKey, short: Bytes, by: Option<Resolver>) {
        let Some(pending) = self.asks.waits_for(ask, short, by) else {
            return;
        };
        let (device, until) = (pending.device, pending.until);
        self.notice(Notice::Waiting {
            ask,
            device,
            short,
            until,
            by,
        });
    }
}
