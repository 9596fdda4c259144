//! Carries out the brain's decisions, in their order.

use gpushare_core::{
    Answer, AskKey, Decision, Denial, DeviceId, Event, Nanos, Notice, Signal, TenantId, TenantSpec,
    Why,
};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{ControlReply, ErrorCode, Refusal, Reply, WireError};
use nix::sys::signal::Signal as Posix;

use super::events::{Told, number, word};
use super::processes::Process;
use super::tenant::index;
use super::{Effect, Node};

impl Node {
    /// Carries out all decisions, including those that result from carrying them out.
    pub(super) fn carry_out(&mut self, now: Nanos) {
        self.mind_rotation(now);
        while let Some(decision) = self.world.poll_decision() {
            match decision {
                Decision::Admit { tenant } => self.admit(now, tenant),
                Decision::Refuse { tenant, error } => {
                    self.refuse(tenant, &self.words(tenant, &error));
                }
                Decision::SetGrant {
                    tenant,
                    device,
                    grant,
                } => self.set_grant(tenant, device, grant),
                Decision::Reclaim {
                    reclaim_id,
                    tenant,
                    device,
                    to,
                } => {
                    let held = self.lower_grant(tenant, device, to);
                    let used = self.used_by(tenant, device);
                    let event = Event::Reclaimed {
                        reclaim_id,
                        tenant,
                        device,
                        held,
                        used,
                    };
                    self.world.handle(now, event);
                }
                Decision::Lease {
                    tenant,
                    device,
                    lease,
                } => {
                    self.note_lease(now, tenant, device, lease);
                    self.set_lease(tenant, device, lease);
                }
                Decision::Reside {
                    tenant,
                    device,
                    epoch,
                    order,
                    drain,
                } => self.set_order(tenant, device, (epoch, order), drain),
                Decision::Withhold {
                    tenant,
                    device,
                    bytes,
                } => self.withhold(tenant, device, bytes),
                // The asker waits for its answer however long that takes.
                Decision::Extend { ask, until } => self.extended(ask, until),
                Decision::Answer { ask, answer } => self.answer(now, ask, answer),
                Decision::Resample { device } => {
                    if let Some(device) = index(device) {
                        self.look(device);
                    }
                }
                Decision::Signal {
                    tenant,
                    signal,
                    why,
                } => self.signal(tenant, signal, &why),
                Decision::Notice(notice) => self.note(now, &notice),
            }
        }
        self.show_waiters();
        self.wake_gates();
        self.answer_moves();
    }

    fn set_grant(&mut self, tenant: TenantId, device: DeviceId, grant: Bytes) {
        if let Some(known) = self.tenants.get(&tenant)
            && let Some(device_index) = known.device_index(device)
        {
            known.grant(device_index, grant);
        }
    }

    fn lower_grant(&mut self, tenant: TenantId, device: DeviceId, to: Bytes) -> Bytes {
        let Some(known) = self.tenants.get(&tenant) else {
            return Bytes::ZERO;
        };
        let account = self.world.account(tenant, device);
        let ceiling = account.map_or(Bytes::MAX, |account| account.ceiling);
        known
            .device_index(device)
            .map_or(Bytes::ZERO, |device_index| {
                let late = |process| self.processes.get(process).is_some_and(Process::is_late);
                known.lower(device_index, (to, ceiling), late)
            })
    }

    fn answer(&mut self, now: Nanos, ask: AskKey, answer: Answer) {
        self.settled(now, ask, &answer);
        let Some((to, id)) = self.asks.take(ask) else {
            return;
        };
        let reply = match answer {
            Answer::Granted { grant } => Reply::Granted { grant: grant.0 },
            Answer::Denied(denial) => Reply::Refused(refusal(denial)),
        };
        self.reply(to, id, reply);
    }

    /// Ends a tenant: signals its processes by their pidfds, and tells the command that runs it
    /// why.
    fn signal(&mut self, tenant: TenantId, signal: Signal, why: &Why) {
        if signal == Signal::Terminate {
            let known = self.tenants.get_mut(&tenant);
            if known.is_some_and(|known| known.tally_mut().is_ended()) {
                self.counted.ended(why);
            }
        }
        let (text, facts) = (self.reason(tenant, why), self.facts_of(why));
        self.send_signal(tenant, signal, text, facts);
    }

    /// Signals a tenant's processes, and tells the commands that run it why.
    pub(super) fn send_signal(
        &mut self,
        tenant: TenantId,
        signal: Signal,
        text: String,
        mut facts: Vec<Told>,
    ) {
        let posix = match signal {
            Signal::Terminate => Posix::SIGTERM,
            Signal::Kill => Posix::SIGKILL,
        };
        facts.insert(0, word("signal", posix.as_str()));
        let text_of_event = format!("{posix}: {text}");
        self.event_with("ended", (Some(tenant), None), text_of_event, &facts);
        let Some(known) = self.tenants.get(&tenant) else {
            return;
        };
        let owners: Vec<_> = known.owners().collect();
        // A user's tenant may have become other users' programs: that user, by whose command or
        // limits this is, may not end those.
        let user = known.registration().owner;
        let may_end = |pid: u32| user.is_none_or(|user| crate::peer::may_end(pid, user));
        for process in known
            .members()
            .filter_map(|member| self.processes.get(member))
            .filter(|process| may_end(process.pid()))
        {
            // A process that has already exited needs no signal.
            let _ = crate::peer::signal(&process.peer().pidfd, posix);
        }
        self.signal_awaited(tenant, posix);
        // Last, because its end ends all others of its pid namespace without a signal of theirs.
        let known = self.tenants.get(&tenant);
        let init = known.and_then(|known| known.contained()?.init());
        if let Some(init) = init.filter(|init| may_end(init.identity.pid)) {
            let _ = crate::peer::signal(&init.pidfd, posix);
        }
        for to in owners {
            let reply = ControlReply::End {
                signal: posix as i32,
                why: text.clone(),
            };
            self.effect(Effect::Command { to, id: 0, reply });
        }
    }

    fn reason(&self, tenant: TenantId, why: &Why) -> String {
        let spec = self.world.spec(tenant);
        let span =
            |of: fn(&TenantSpec) -> Option<Nanos>| spec.and_then(of).unwrap_or(Nanos::ZERO).human();
        match why {
            Why::Collision {
                device,
                wanted_by,
                charged,
                overhead,
            } => format!(
                "tenant {} needs memory that this one borrowed above its request: {} charged and {} of overhead on {}",
                self.name(*wanted_by),
                charged.human(),
                overhead.human(),
                self.device_name(*device),
            ),
            Why::Idle => format!(
                "no GPU work for its idle end of {}",
                span(|spec| spec.idle_end)
            ),
            Why::RunLimit => format!("its run limit of {}", span(|spec| spec.run_limit)),
        }
    }

    fn refuse(&mut self, tenant: TenantId, error: &str) {
        if self.world.spec(tenant).is_some() {
            // It is as before: what is refused is a change of its limits, and `set` says so.
            self.refused = Some(error.to_owned());
            return;
        }
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let pending = known.take_pending();
        if pending.is_empty() {
            self.refused = Some(error.to_owned());
        }
        if !known.is_admitted() {
            self.tenants.remove(&tenant);
            self.let_go();
        }
        for (to, id) in pending {
            let reply = ControlReply::Error(WireError::new(ErrorCode::BadLimits, error));
            self.effect(Effect::Command { to, id, reply });
        }
    }

    fn note(&mut self, now: Nanos, notice: &Notice) {
        if self.note_move(now, notice) {
            return;
        }
        let mut facts = Vec::new();
        let (kind, tenant, device, text) = match notice {
            Notice::Queued { tenant } => {
                let why = self.waits_for(*tenant);
                self.tell_queued(*tenant, &why);
                ("queued", Some(*tenant), None, why)
            }
            Notice::Waiting {
                ask, device, short, ..
            } => {
                let tenant = self.processes.get(ask.0).map(|process| process.tenant());
                facts.push(number("short_bytes", short.0));
                let known = tenant.and_then(|id| self.tenants.get_mut(&id));
                let before = known.and_then(|known| known.tally_mut().waits(*ask, now));
                // Another resolver lets it wait now: it is the same wait.
                facts.extend(before.map(|waited| number("waited_ms", waited.0 / 1_000_000)));
                let text = match short.is_zero() {
                    true => "an allocation waits for memory that is being given back".to_owned(),
                    false => format!("an allocation waits: {} are missing", short.human()),
                };
                ("waiting", tenant, Some(*device), text)
            }
            Notice::Overdrawn {
                device,
                by,
                unmanaged,
            } => {
                facts.push(number("over_bytes", by.0));
                facts.push(number("unmanaged_bytes", unmanaged.0));
                let text = format!(
                    "{} more in use than may be, {} of it by processes that are none of ours: nothing new is granted",
                    by.human(),
                    unmanaged.human()
                );
                ("overdrawn", None, Some(*device), text)
            }
            Notice::Balanced { device } => (
                "balanced",
                None,
                Some(*device),
                "the books hold again".to_owned(),
            ),
            Notice::Excess {
                tenant,
                device,
                bytes,
            } => {
                facts.push(number("over_bytes", bytes.0));
                let text = format!("holds {} more than it was granted", bytes.human());
                ("excess", Some(*tenant), Some(*device), text)
            }
            Notice::Lapsed {
                process,
                tenant,
                device,
                bytes,
            } => {
                let pid = self.processes.get(*process).map_or(0, |known| known.pid());
                let text = format!(
                    "the device never showed process {pid}: {} reserved for its context are released",
                    bytes.human()
                );
                ("lapsed", Some(*tenant), Some(*device), text)
            }
            Notice::Idle { tenant } => ("idle", Some(*tenant), None, "no GPU work".to_owned()),
            Notice::Active { tenant } => ("active", Some(*tenant), None, "works again".to_owned()),
            Notice::EndsSoon { tenant, at, why } => {
                let text = format!(
                    "will be ended in {}: {}",
                    (*at - now).human(),
                    self.reason(*tenant, why)
                );
                self.tell_ends_soon(*tenant, &text);
                ("ends-soon", Some(*tenant), None, text)
            }
            Notice::Spared { tenant } => {
                if let Some(known) = self.tenants.get_mut(tenant) {
                    known.tally_mut().lives_on();
                }
                let text = "is not ended: the reason for it is gone".to_owned();
                ("spared", Some(*tenant), None, text)
            }
            Notice::Overrun {
                tenant,
                device,
                after,
            } => {
                let text = format!(
                    "has not drained {} ms after its turn: it now shares the device, and the time it takes is billed to it",
                    after.0 / 1_000_000
                );
                ("overrun", Some(*tenant), Some(*device), text)
            }
            Notice::Ungated { tenant, device } => (
                "ungated",
                Some(*tenant),
                Some(*device),
                match self.tenants.get(tenant) {
                    Some(known) if self.has_mps_clients(known) => {
                        "a process that is an MPS client takes no turns: MPS shares its compute"
                    }
                    _ => "a process with a library without a gate takes no turns",
                }
                .to_owned(),
            ),
            // Those of moves, above.
            Notice::Leaving { .. }
            | Notice::Left { .. }
            | Notice::Returned { .. }
            | Notice::DidNotLeave { .. }
            | Notice::LeftLess { .. }
            | Notice::Silent { .. }
            | Notice::SlowReturn { .. }
            | Notice::NoReturn { .. }
            | Notice::HostFull { .. }
            | Notice::Thrashing { .. }
            | Notice::Settled { .. }
            | Notice::Suspended { .. }
            | Notice::Resumed { .. } => return,
            Notice::WillNotYield { tenant } => (
                "will-not-yield",
                Some(*tenant),
                None,
                "is still there long after SIGKILL".to_owned(),
            ),
        };
        self.event_with(kind, (tenant, device), text, &facts);
    }

    /// Tells all that still wait for admission once it is not the previous daemon's programs they
    /// wait for.
    pub(super) fn tell_queued_after_recovery(&mut self) {
        let queued = self
            .tenants
            .iter()
            .filter(|(_, known)| !known.is_admitted());
        let queued: Vec<TenantId> = queued.map(|(id, _)| *id).collect();
        for tenant in queued {
            let why = self.waits_for(tenant);
            self.tell_queued(tenant, &why);
        }
    }

    fn tell_ends_soon(&mut self, tenant: TenantId, why: &str) {
        let owners = self.tenants.get(&tenant).map(|known| known.owners());
        for to in owners.into_iter().flatten().collect::<Vec<_>>() {
            let reply = ControlReply::EndsSoon {
                why: why.to_owned(),
            };
            self.effect(Effect::Command { to, id: 0, reply });
        }
    }

    fn tell_queued(&mut self, tenant: TenantId, why: &str) {
        let pending = self
            .tenants
            .get(&tenant)
            .map(|known| known.pending().to_vec());
        for (to, id) in pending.unwrap_or_default() {
            let reply = ControlReply::Queued {
                why: why.to_owned(),
            };
            self.effect(Effect::Command { to, id, reply });
        }
    }
}

fn refusal(denial: Denial) -> Refusal {
    match denial {
        Denial::OverLimit { limit } => Refusal::OverLimit { limit: limit.0 },
        Denial::NoRoom { .. } => Refusal::NoMemory,
        Denial::TimedOut { waited } => Refusal::TimedOut {
            waited_ms: waited.0 / 1_000_000,
        },
        Denial::Cycle => Refusal::BrokeCycle,
        Denial::NoQuota => Refusal::NoQuota,
        Denial::Ending => Refusal::Ending,
        Denial::TooMany => Refusal::TooMany,
        Denial::DeviceLost => Refusal::DeviceLost,
    }
}
