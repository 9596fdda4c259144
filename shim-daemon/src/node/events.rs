//! Past events, kept for `events`: a bounded ring, and the connections that follow it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gpushare_core::{DeviceId, Nanos, TenantId};
use gpushare_protocol::wire::{ControlReply, EventCountRow, EventDevice, EventRecord, Fact};

use super::event_budget::{Budgets, LEFT_OUT, LeftOut};
use super::tenant::index;
use super::{ConnId, Effect, Node};

/// Events kept for a follower that comes later.
const KEPT: usize = 1024;

/// The longest text of an event, and the longest of its words, in bytes; the rest is cut.
const LONGEST: usize = 4096;

/// A fact of an event, under its name.
pub(super) type Told = (&'static str, Fact);

/// An amount of an event.
pub(super) fn number(name: &'static str, amount: u64) -> Told {
    (name, Fact::Number(amount))
}

/// A name or a reason of an event.
pub(super) fn word(name: &'static str, text: impl Into<String>) -> Told {
    (name, Fact::Word(text.into()))
}

/// A connection that follows, and the request it follows by.
pub type Follower = (ConnId, u32);

/// The ring and its followers.
#[derive(Debug, Default)]
pub(super) struct Events {
    past: VecDeque<Arc<EventRecord>>,
    followers: Vec<Follower>,
    /// Events so far.
    number: u64,
    /// What may be told of tenants and users.
    pub(super) budgets: Budgets,
    /// The refused container that was told last, with why.
    pub(super) refused: Option<(String, String)>,
    /// The refused containers of classes that were told.
    pub(super) refused_in_classes: BTreeSet<String>,
    /// Events of each kind so far, told or left out.
    counts: BTreeMap<&'static str, u64>,
    /// How often the journal lacks events.
    gaps: u64,
    /// When it was last told that descriptors cannot be passed.
    cannot_pass: Option<Nanos>,
}

/// How often that is told at most.
const EACH_CANNOT_PASS: Nanos = Nanos::secs(60);

/// The kind that the journal itself tells.
const JOURNAL_LOST: &str = "journal-lost";

impl Events {
    /// As many of the last ones, oldest first, as there are.
    fn last(&self, many: u32) -> Vec<Arc<EventRecord>> {
        let many = usize::try_from(many).unwrap_or(KEPT);
        let skipped = self.past.len().saturating_sub(many);
        self.past.iter().skip(skipped).cloned().collect()
    }
}

/// A text as it is told: cut where it is too long, and without control characters, because users
/// say parts of it and terminals show it.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for letter in text.chars() {
        match letter.is_control() {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
        if shown.len() > LONGEST {
            shown.truncate(shown.floor_char_boundary(LONGEST - 3));
            shown.push('…');
            break;
        }
    }
    shown
}

impl Node {
    pub(super) fn event(
        &mut self,
        kind: &'static str,
        tenant: Option<TenantId>,
        device: Option<DeviceId>,
        text: String,
    ) {
        self.event_with(kind, (tenant, device), text, &[]);
    }

    /// An event with its numbers. One that a tenant's programs or a user's commands cause is left
    /// out where they cause too many.
    pub(super) fn event_with(
        &mut self,
        kind: &'static str,
        (tenant, device): (Option<TenantId>, Option<DeviceId>),
        text: String,
        facts: &[Told],
    ) {
        self.count_event(kind);
        if let Some(tenant) = tenant {
            let now = self.world.now();
            let of = (tenant, self.owner(tenant));
            if !self.events.budgets.allows(now, kind, of) {
                return;
            }
        }
        self.put_event(kind, (tenant, device), text, facts);
    }

    /// The kernel let this daemon pass no descriptors to a process, which therefore has no pages,
    /// or no host memory. Whichever process asks, it is not the cause: that is told at no tenant's
    /// cost.
    pub fn cannot_pass(&mut self, now: Nanos) {
        let last = self.events.cannot_pass;
        if last.is_none_or(|last| now >= last + EACH_CANNOT_PASS) {
            self.events.cannot_pass = Some(now);
            let text = format!(
                "no process can be registered: {}",
                crate::connection::Closed::InFlight
            );
            self.event("not-registered", None, None, text);
        }
    }

    /// Counts an event, told or left out.
    pub(super) fn count_event(&mut self, kind: &'static str) {
        *self.events.counts.entry(kind).or_default() += 1;
    }

    /// How often the journal lacks events, as it says now.
    pub fn set_journal_gaps(&mut self, gaps: u64) {
        self.events.gaps = gaps;
    }

    /// How many events there were of each kind that there can be.
    pub(super) fn event_counts(&self) -> Vec<EventCountRow> {
        let mut counts = self.events.counts.clone();
        for kind in EventRecord::KINDS {
            counts.entry(kind).or_default();
        }
        counts.insert(JOURNAL_LOST, self.events.gaps);
        let row = |(kind, count): (&str, u64)| EventCountRow {
            kind: kind.to_owned(),
            count,
        };
        counts.into_iter().map(row).collect()
    }

    /// Once a second: tells which events of tenants were left out, and forgets tenants that have
    /// ended.
    pub(super) fn tell_left_out(&mut self, now: Nanos) {
        let tenants = &self.tenants;
        let budgets = &mut self.events.budgets;
        budgets.tidy(now, |tenant| tenants.contains_key(&tenant));
        for tenant in budgets.tenants() {
            self.tell_left_out_of(now, tenant, false);
        }
        for (user, left_out) in self.events.budgets.take_left_out_of_users(now) {
            let whose = format!(" of user {user}");
            let user = number("user", user.into());
            self.put_left_out(now, (None, &whose), &left_out, vec![user]);
        }
        if let Some(left_out) = self.events.budgets.take_left_out_of_refused(now) {
            self.put_left_out(now, (None, " of refused containers"), &left_out, Vec::new());
        }
    }

    /// The same for one tenant, whose end it may be.
    pub(super) fn tell_left_out_of(&mut self, now: Nanos, tenant: TenantId, end: bool) {
        if let Some(left_out) = self.events.budgets.take_left_out(now, tenant, end) {
            self.put_left_out(now, (Some(tenant), ""), &left_out, Vec::new());
        }
    }

    fn put_left_out(
        &mut self,
        now: Nanos,
        (tenant, whose): (Option<TenantId>, &str),
        left_out: &LeftOut,
        more: Vec<Told>,
    ) {
        let all: u64 = left_out.kinds.values().sum();
        let kinds = left_out.kinds.iter();
        let kinds: Vec<String> = kinds
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        let kinds = kinds.join(", ");
        let text = format!(
            "too many events{whose} in {}: {all} more are not told ({kinds})",
            (now - left_out.since).human()
        );
        let mut facts = vec![number("count", all), word("kinds", kinds)];
        facts.extend(more);
        self.event_with(LEFT_OUT, (tenant, None), text, &facts);
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a label for people: nothing is decided by it"
    )]
    pub(super) fn put_event(
        &mut self,
        kind: &str,
        (tenant, device): (Option<TenantId>, Option<DeviceId>),
        text: String,
        facts: &[Told],
    ) {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.events.number += 1;
        let device = device.or_else(|| self.only_device(tenant?));
        // One about a tenant on several devices is about each of them.
        let several = match (tenant, device) {
            (Some(tenant), None) => self.gpus_of(tenant),
            _ => None,
        };
        let facts = facts.iter().chain(&several);
        let record = Arc::new(EventRecord {
            instance: self.instance,
            number: self.events.number,
            at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            kind: kind.to_owned(),
            tenant: tenant.map(|tenant| self.name(tenant)),
            device: device.and_then(index).and_then(|at| {
                Some(EventDevice {
                    uuid: self.devices.get(at)?.uuid,
                    index: u32::try_from(at).ok()?,
                })
            }),
            text: shown(&text),
            facts: facts
                .map(|(name, fact)| match fact {
                    Fact::Word(word) => ((*name).to_owned(), Fact::Word(shown(word))),
                    other => ((*name).to_owned(), other.clone()),
                })
                .collect(),
        });
        self.effect(Effect::Event {
            to: self.events.followers.clone(),
            record: Arc::clone(&record),
            is_new: true,
        });
        self.events.past.push_back(record);
        if self.events.past.len() > KEPT {
            self.events.past.pop_front();
        }
    }

    /// The device of a tenant that has one.
    fn only_device(&self, tenant: TenantId) -> Option<DeviceId> {
        match *self.tenants.get(&tenant)?.device_ids() {
            [device] => Some(device),
            _ => None,
        }
    }

    /// Tells a connection the past events and, if it may follow, those to come. If it may not, that
    /// is said first: what asks for the past alone need not heed it.
    pub(super) fn follow(&mut self, (to, id): (ConnId, u32), past: u32) {
        // A connection gets each event once.
        self.unfollow(to);
        match self.may_follow(to) {
            Ok(()) => self.events.followers.push((to, id)),
            Err(error) => {
                let reply = ControlReply::Error(error);
                self.effect(Effect::Command { to, id, reply });
            }
        }
        for record in self.events.last(past) {
            self.effect(Effect::Event {
                to: vec![(to, id)],
                record,
                is_new: false,
            });
        }
    }

    pub(super) fn followers(&self) -> impl Iterator<Item = ConnId> {
        self.events.followers.iter().map(|(to, ..)| *to)
    }

    pub(super) fn unfollow(&mut self, connection: ConnId) {
        self.events.followers.retain(|(to, ..)| *to != connection);
    }

    /// A tenant's name, for messages.
    pub(super) fn name(&self, tenant: TenantId) -> String {
        let known = self.tenants.get(&tenant);
        known.map_or_else(|| "(ended)".to_owned(), |known| known.name().to_owned())
    }

    /// A device's name, for messages.
    pub(super) fn device_name(&self, device: DeviceId) -> String {
        let known = index(device).and_then(|at| Some((at, self.devices.get(at)?)));
        known.map_or_else(
            || "a lost device".to_owned(),
            |(at, known)| format!("device {at} ({})", known.name),
        )
    }
}
