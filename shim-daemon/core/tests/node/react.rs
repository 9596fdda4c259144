//! The node's reactions to decisions, and the checks after every event.

use super::{Manners, Node, Wanted};
use gpushare_core::{
    Answer, AskId, AskKey, Bytes, Decision, DeviceId, Event, Nanos, Preemptible, ReclaimId, Signal,
    TenantId, Why,
};

/// The timers of one moment are fewer than so many.
const MOST_DUE: u32 = 10_000;

impl Node {
    /// Delivers all due mail and carries out the decisions, until none is left.
    pub(super) fn settle_mail(&mut self) {
        self.carry_out();
        while let Some(((at, number), _)) = self.mail.first_key_value()
            && *at <= self.now
        {
            let key = (*at, *number);
            let event = self.mail.remove(&key).expect("it is the first");
            self.advance();
            if !self.is_done(&event) {
                continue;
            }
            if self.trace {
                eprintln!("{:>14} {event:?}", self.now.0);
            }
            let judged = self.world.judged_by(self.now, &event);
            self.read_work(judged);
            self.world.handle(self.now, event.clone());
            self.carry_out();
            self.check(&event);
        }
    }

    /// Lets the world see how late it is. All that is due then comes to an end.
    pub(super) fn advance(&mut self) {
        let judged = self.world.judged_until(self.now);
        self.read_work(judged);
        let mut due = 0;
        while self.world.advance_once(self.now) {
            due += 1;
            assert!(due < MOST_DUE, "timers are set again without end");
        }
        self.carry_out();
    }

    /// The daemon reads in their pages whether these tenants have worked.
    pub fn read_work(&mut self, tenants: impl IntoIterator<Item = TenantId>) {
        for tenant in tenants {
            let guest = self.guests.get_mut(&tenant);
            if guest.is_some_and(|guest| std::mem::take(&mut guest.worked)) {
                self.world.worked_before(self.now, [tenant]);
            }
        }
    }

    fn carry_out(&mut self) {
        while let Some(decision) = self.world.poll_decision() {
            self.decided += 1;
            if self.trace {
                eprintln!("{:>14}   -> {decision:?}", self.now.0);
            }
            self.react(decision);
        }
    }

    fn react(&mut self, decision: Decision) {
        self.watch.notes(&decision);
        self.notes_stretch(&decision);
        match decision {
            Decision::Admit { tenant } => {
                self.guests
                    .get_mut(&tenant)
                    .expect("it registered")
                    .admitted = true;
            }
            Decision::Refuse { tenant, error } => {
                self.guests.get_mut(&tenant).expect("it registered").refused = Some(error);
            }
            Decision::SetGrant {
                tenant,
                device,
                grant,
            } => {
                if let Some(guest) = self.guests.get_mut(&tenant) {
                    guest.page.insert(device, grant);
                }
            }
            Decision::Reclaim {
                reclaim_id,
                tenant,
                device,
                to,
            } => self.reclaim(reclaim_id, tenant, device, to),
            Decision::Lease {
                tenant,
                device,
                lease,
            } => {
                if let Some(guest) = self.guests.get_mut(&tenant) {
                    guest.leases.insert(device, lease);
                }
            }
            Decision::Reside {
                tenant,
                device,
                epoch,
                order,
                drain,
            } => self.ordered((tenant, device), epoch, order, drain),
            Decision::Withhold {
                tenant,
                device,
                bytes,
            } => self.withheld(tenant, device, bytes),
            Decision::Extend { ask, until } => self.extended(ask, until),
            Decision::Answer { ask, answer } => self.answered(ask, answer),
            Decision::Resample { device } if self.devices[&device].looks_fail => (),
            Decision::Resample { device } => {
                let event = self.look_at(device);
                self.reply(event);
            }
            Decision::Signal {
                tenant,
                signal,
                why,
            } => self.signal(tenant, signal, why),
            Decision::Notice(notice) if self.thorough => self.notices.push(notice),
            Decision::Notice(_) => (),
        }
    }

    fn reclaim(&mut self, reclaim_id: ReclaimId, tenant: TenantId, device: DeviceId, to: Bytes) {
        if let Some(guest) = self.guests.get_mut(&tenant) {
            guest.page.insert(device, to);
        }
        let held = self.charged(tenant, device);
        // As a daemon does: by the last look, however long ago that was.
        let mut mine = self.processes_of(tenant);
        mine.retain(|process| !self.processes[process].unknown);
        let used = self.devices[&device].shown.as_ref().map(|shown| {
            let own = mine.iter().filter_map(|process| shown.get(process));
            own.copied().sum()
        });
        self.reply(Event::Reclaimed {
            reclaim_id,
            tenant,
            device,
            held,
            used,
        });
    }

    pub(super) fn reply(&mut self, event: Event) {
        let delay = self
            .lag
            .as_mut()
            .map_or(Nanos::ZERO, |(rng, most)| Nanos(rng.below(most.0 + 1)));
        self.post(self.now + delay, event);
    }

    /// An ask waits longer, within its bound as that is now. The bound may shrink before then.
    fn extended(&mut self, ask: AskKey, until: Nanos) {
        let device = self.asks.get(&ask).map(|wanted| wanted.device);
        let rounds = device.map(|device| self.two_rounds(device));
        if let (Some(wanted), Some(rounds)) = (self.asks.get_mut(&ask), rounds) {
            wanted.until = until;
            wanted.rounds = wanted.rounds.max(wanted.asked + rounds);
            let bound = self.world.rotation_bound(wanted.device, wanted.asked);
            assert!(
                until <= bound || wanted.first != ask,
                "I4: {ask:?} is extended until {until:?}, beyond {bound:?}"
            );
        }
    }

    fn answered(&mut self, ask: AskKey, answer: Answer) {
        // The answer may cross the news that its process is gone.
        let Some(proc) = self.processes.get_mut(&ask.0) else {
            return;
        };
        let wanted = self
            .asks
            .remove(&ask)
            .unwrap_or_else(|| panic!("{ask:?} is answered twice: {answer:?}"));
        let tenant = proc.tenant;
        self.check_wait(ask, &wanted);
        match (answer, wanted.bytes) {
            (Answer::Granted { .. }, None) if self.goes_on(ask, wanted.device) => (),
            (Answer::Granted { .. }, None) => {
                let proc = self.processes.get_mut(&ask.0).expect("it lives");
                proc.contexts
                    .insert(wanted.device, self.devices[&wanted.device].context);
                self.is_on(ask.0, wanted.device);
                self.has_context(ask.0, wanted.device);
            }
            (Answer::Granted { .. }, Some(bytes)) => {
                let charged = self.charged(tenant, wanted.device);
                let page = self.guests[&tenant]
                    .page
                    .get(&wanted.device)
                    .copied()
                    .unwrap_or_default();
                if charged + bytes > page {
                    return self.ask_again(ask, wanted, bytes);
                }
                let proc = self.processes.get_mut(&ask.0).expect("it lives");
                *proc.charged.entry(wanted.device).or_default() += bytes;
                self.is_on(ask.0, wanted.device);
            }
            (Answer::Denied(denial), _) => {
                let ending = denial == gpushare_core::Denial::Ending;
                let refused = self.guarantees && !ending && self.within_request(tenant, &wanted);
                assert!(!refused, "{wanted:?} was within its request: {denial:?}");
            }
        }
        if self.thorough {
            self.answers.insert(wanted.first, answer);
        }
    }

    /// Whether the request currently covers this allocation, and no sibling competes for the same
    /// part.
    fn within_request(&self, tenant: TenantId, wanted: &Wanted) -> bool {
        let account = self.world.account(tenant, wanted.device);
        // An ask waits for memory that its dead processes still hold as long as it states, and no
        // longer.
        let charged = self.charged(tenant, wanted.device)
            + self.devices[&wanted.device].charged_by_dead(tenant);
        let rival = |(ask, other): (&AskKey, &Wanted)| {
            let sibling = self
                .processes
                .get(&ask.0)
                .is_some_and(|proc| proc.tenant == tenant);
            sibling && other.device == wanted.device
        };
        let covered = account
            .zip(wanted.bytes)
            .is_some_and(|(account, bytes)| charged + bytes <= account.quota.request);
        covered && !self.asks.iter().any(rival)
    }

    /// A sibling was quicker: the client asks again, with the time it has left.
    fn ask_again(&mut self, ask: AskKey, wanted: Wanted, bytes: Bytes) {
        let tenant = self.processes[&ask.0].tenant;
        let again = (ask.0, AskId(self.fresh()));
        let held = self.charged(tenant, wanted.device);
        self.asks.insert(again, wanted);
        let patience = Some(self.guests[&tenant].spec.wait_timeout - (self.now - wanted.asked));
        let (process, device) = (ask.0, wanted.device);
        self.post(
            self.now,
            Event::Ask {
                process,
                device,
                ask: again.1,
                held,
                bytes,
                patience,
            },
        );
    }

    fn signal(&mut self, tenant: TenantId, signal: Signal, why: Why) {
        if let Why::Collision { device, .. } = why {
            let account = self
                .world
                .account(tenant, device)
                .expect("a victim has an account");
            assert!(
                account.in_use > account.quota.request,
                "I3: {tenant:?} is ended within its request: {account:?}"
            );
        }
        self.check_end(tenant, why);
        let Some(guest) = self.guests.get_mut(&tenant) else {
            return;
        };
        guest.signals.push(signal);
        let goes = match guest.manners {
            Manners::Polite => true,
            Manners::Stubborn => signal == Signal::Kill,
            Manners::Unkillable => false,
        };
        if goes {
            self.leave(tenant);
        }
    }

    /// As `finish`, from within a decision: the event arrives behind the decisions being carried
    /// out.
    fn leave(&mut self, tenant: TenantId) {
        for process in self.processes_of(tenant) {
            if let Some(gone) = self.kill(process) {
                self.post(self.now, gone);
            }
        }
        self.guests.remove(&tenant);
        self.returns.forget(tenant);
        self.watches_no_more(tenant);
        self.post(self.now, Event::TenantGone { tenant });
    }

    /// The tenant's own terms allow that it is ended for this.
    fn check_end(&self, tenant: TenantId, why: Why) {
        let Some(spec) = self.guests.get(&tenant).map(|guest| &guest.spec) else {
            return;
        };
        let allowed = match why {
            Why::Collision { wanted_by, .. } => {
                spec.preemptible == Preemptible::Kill && wanted_by != tenant
            }
            Why::Idle => spec.idle_end.is_some(),
            Why::RunLimit => spec.run_limit.is_some(),
        };
        assert!(allowed, "{tenant:?} is ended by {why:?}: {spec:?}");
    }

    fn check(&mut self, event: &Event) {
        if self.watch.on {
            self.check_concerned(event);
        }
        if self.thorough {
            self.world
                .check()
                .unwrap_or_else(|broken| panic!("{broken}, after {event:?}"));
            self.devices
                .keys()
                .for_each(|device| self.check_device(*device));
            self.check_waits();
            self.check_returns();
            self.check_host();
            self.check_late_cards();
        }
    }

    /// No ask waits longer than it may.
    pub fn check_waits(&self) {
        for (ask, wanted) in &self.asks {
            self.check_wait(*ask, wanted);
        }
    }

    /// An ask waits, or waited until now, no longer than it may.
    fn check_wait(&self, ask: AskKey, wanted: &Wanted) {
        let Some(proc) = self.processes.get(&ask.0) else {
            return;
        };
        let patience = self.guests[&proc.tenant].spec.wait_timeout;
        let ladder = self.policy.guarantee();
        let most = patience.max(ladder) + patience.max(ladder) + ladder;
        let latest = wanted.asked + most;
        if self.now <= latest {
            return;
        }
        let turn = self.world.rotation_bound(wanted.device, wanted.asked);
        assert!(
            self.now <= latest.max(turn).max(wanted.until),
            "I4: {ask:?} waits too long: {wanted:?}"
        );
        let rounds = wanted.asked + self.two_rounds(wanted.device);
        assert!(
            !self.is_honest(wanted.device) || self.now <= latest.max(wanted.rounds).max(rounds),
            "I4: {ask:?} waits beyond two rounds: {wanted:?}"
        );
    }

    /// From the device's side: what clients hold fits, and no tenant holds more than its page or
    /// its limit.
    pub fn check_device(&self, device: DeviceId) {
        let hardware = &self.devices[&device];
        let Some(view) = self.world.device(device) else {
            return;
        };
        let honest = self.guarantees && hardware.foreign.is_zero() && view.limbo.is_zero();
        assert!(
            !honest || view.firm <= view.usable,
            "more is promised than there is: {view:?}"
        );
        let held = self.physical(device);
        assert!(
            held <= hardware.capacity || !hardware.foreign.is_zero(),
            "{device:?} holds {held}"
        );
        for (tenant, guest) in &self.guests {
            let Some((_, quota)) = guest.spec.quotas.iter().find(|(own, _)| *own == device) else {
                continue;
            };
            let charged = self.charged(*tenant, device);
            assert!(
                charged <= quota.limit,
                "I2: {tenant:?} charged {charged} of {}",
                quota.limit
            );
            let page = guest.page.get(&device).copied().unwrap_or_default();
            let books = self
                .world
                .account(*tenant, device)
                .map_or(Bytes::ZERO, |account| account.grant);
            let dead = hardware.fixed_by_dead(*tenant);
            assert!(
                !self.guarantees || charged.max(page) + dead <= quota.limit,
                "I2: {tenant:?} charged {charged} of {page}, its dead hold {dead} of {}",
                quota.limit
            );
            assert!(
                page <= books || self.world.account(*tenant, device).is_none(),
                "page {page}, books {books}"
            );
        }
    }
}
