//! The state of `top` and the effects of keys, without a terminal and without a clock.

use super::keys::Key as Pressed;
use super::rows::{Facts, Key, Row, Sort};
use gpushare_exporter::{Names, Snapshot};
use gpushare_protocol::histogram::Histogram;
use gpushare_protocol::wire::EventRecord;
use std::collections::{BTreeMap, VecDeque};

/// Over how many looks, one a period, waits are shown.
const LOOKS: usize = 60;
/// Events that are kept.
const EVENTS: usize = 200;

/// A line that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Typing {
    Filter,
    /// Flags of `set` for this tenant.
    Limits(String),
}

/// Something to do outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Change a tenant's limits, by these flags of `set`.
    Set(String, Vec<String>),
    /// End a tenant: ask it to, or at once.
    End(String, bool),
    /// Move a tenant's memory to the host, or, if it is kept there, back.
    Suspend(String, bool),
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) host: String,
    pub(super) every: String,
    pub(super) snapshot: Snapshot,
    pub(super) users: BTreeMap<u32, String>,
    pub(super) commands: BTreeMap<u32, String>,
    pub(super) events: VecDeque<EventRecord>,
    /// Milliseconds since 1970, at the last look.
    pub(super) now_ms: u64,
    past: VecDeque<BTreeMap<Key, Histogram>>,
    /// There is one look only: waits are those of the tenants' whole lives.
    pub(super) once: bool,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) typing: Option<(Typing, String)>,
    /// A tenant that is to be ended once that is confirmed; whether at once.
    pub(super) ending: Option<(String, bool)>,
    selected: Option<Key>,
    /// The selected tenant has ended: a later one of its name is another.
    has_ended: bool,
    /// The first row on the screen.
    pub(super) first: usize,
    pub(super) details: bool,
    pub(super) shows_events: bool,
    pub(super) help: bool,
    /// The outcome of what was done.
    pub(super) message: Option<String>,
    /// The last look failed: the snapshot is older.
    pub(super) stale: Option<Stale>,
    /// The names by which tenants are shown.
    pub(super) names: Names,
}

/// The age of the screen's figures, while looks fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stale {
    /// How old, in milliseconds.
    pub(super) for_ms: u64,
    /// Why no look succeeds.
    pub(super) why: String,
}

impl Model {
    /// Of this host, looked at so often.
    pub(super) fn new(host: String, every: String) -> Self {
        Self {
            host,
            every,
            ..Self::default()
        }
    }

    /// Takes over a new snapshot.
    pub(super) fn take(&mut self, snapshot: Snapshot, now_ms: u64) {
        self.leave_ended(&snapshot);
        let waits = snapshot.measures.iter().map(|row| {
            let key = (row.name.clone(), Some(row.device));
            (key, row.gate_waits)
        });
        self.past.push_back(waits.collect());
        if self.past.len() > LOOKS {
            self.past.pop_front();
        }
        (self.snapshot, self.now_ms) = (snapshot, now_ms);
        self.call();
        if self.selected.is_none() {
            self.go(|_, _| 0);
        }
    }

    /// Takes back what is about a tenant that is gone by the next look, or is another one of its
    /// name: that began later.
    fn leave_ended(&mut self, next: &Snapshot) {
        let is_over = |name: &String| {
            let (before, now) = (stage(&self.snapshot, name), stage(next, name));
            before.is_some_and(|(was_queued, before)| {
                now.is_none_or(|(is_queued, now)| match (was_queued, is_queued) {
                    // It was admitted meanwhile.
                    (true, false) => false,
                    // It left, and another one of the name queues.
                    (false, true) => true,
                    _ => now < before,
                })
            })
        };
        let is_of = |(what, _): &(Typing, String)| match what {
            Typing::Limits(tenant) => is_over(tenant),
            Typing::Filter => false,
        };
        let asked = self
            .ending
            .as_ref()
            .is_some_and(|(tenant, _)| is_over(tenant));
        let typed = self.typing.as_ref().is_some_and(is_of);
        let chosen = self
            .selected
            .as_ref()
            .is_some_and(|(name, _)| is_over(name));
        self.has_ended |= chosen;
        if asked {
            self.ending = None;
        }
        if typed {
            self.typing = None;
        }
        if asked || typed {
            self.message = Some("that tenant has ended: no order was given".to_owned());
        }
    }

    /// An event came. A daemon that is followed again begins with what it remembers.
    pub(super) fn happened(&mut self, event: EventRecord) {
        let id = |event: &EventRecord| (event.instance, event.number);
        if self.events.iter().any(|known| id(known) == id(&event)) {
            return;
        }
        self.events.push_back(event);
        if self.events.len() > EVENTS {
            self.events.pop_front();
        }
        self.call();
    }

    /// Notes what tenants are called, also those that have ended.
    fn call(&mut self) {
        self.names = Names::of(&self.snapshot.pods, &self.events);
    }

    /// The rows in order, and which of them is selected: none once the selected tenant is gone, so
    /// that no order is for another tenant than the one that was chosen.
    pub(super) fn rows(&self) -> (Vec<Row>, Option<usize>) {
        let none = BTreeMap::new();
        let earlier = self.past.front().filter(|_| self.past.len() > 1);
        let whole = self.once.then_some(&none);
        let facts = Facts {
            snapshot: &self.snapshot,
            names: &self.names,
            waits_before: earlier.or(whole),
            users: &self.users,
            commands: &self.commands,
        };
        let rows = facts.rows(&self.filter, self.sort);
        let found = self.selected.as_ref().filter(|_| !self.has_ended);
        let at = found.and_then(|key| rows.iter().position(|row| row.key == *key));
        (rows, at)
    }

    /// A key was pressed, while so many rows fit the screen.
    pub(super) fn press(&mut self, key: Pressed, page: usize) -> Option<Action> {
        if key == Pressed::Interrupt {
            return Some(Action::Quit);
        }
        if self.typing.is_some() {
            return self.type_on(key);
        }
        if let Some((tenant, at_once)) = self.ending.take() {
            return (key == Pressed::Char('y')).then_some(Action::End(tenant, at_once));
        }
        self.message = None;
        if self.help {
            self.help = false;
            return None;
        }
        let step = page.max(1);
        match key {
            Pressed::Char('q') => return Some(Action::Quit),
            Pressed::Char('?' | 'h') => self.help = true,
            Pressed::Char('o') => self.sort = self.sort.next(),
            Pressed::Char('s') => return self.suspend(),
            Pressed::Char('e') => self.shows_events = !self.shows_events,
            Pressed::Char('f' | '/') => {
                self.typing = Some((Typing::Filter, std::mem::take(&mut self.filter)));
            }
            Pressed::Char('L') => {
                if let Some(tenant) = self.chosen() {
                    self.typing = Some((Typing::Limits(tenant), "--mem-limit ".to_owned()));
                }
            }
            Pressed::Char('K') => self.ending = self.chosen().map(|tenant| (tenant, false)),
            Pressed::Char('X') => self.ending = self.chosen().map(|tenant| (tenant, true)),
            Pressed::Enter => self.details = !self.details,
            Pressed::Escape => {
                self.filter.clear();
                (self.details, self.shows_events) = (false, false);
            }
            Pressed::Up | Pressed::Char('k') => self.go(|at, _| at.saturating_sub(1)),
            Pressed::Down | Pressed::Char('j') => self.go(|at, _| at + 1),
            Pressed::PageUp => self.go(|at, _| at.saturating_sub(step)),
            Pressed::PageDown => self.go(|at, _| at + step),
            Pressed::Home => self.go(|_, _| 0),
            Pressed::End => self.go(|_, last| last),
            _ => {}
        }
        None
    }

    fn type_on(&mut self, key: Pressed) -> Option<Action> {
        let (what, mut text) = self.typing.take()?;
        match key {
            Pressed::Escape => return None,
            Pressed::Enter => {
                return match what {
                    Typing::Filter => {
                        self.filter = text;
                        None
                    }
                    Typing::Limits(tenant) => {
                        let words = text.split_whitespace().map(ToOwned::to_owned);
                        Some(Action::Set(tenant, words.collect()))
                    }
                };
            }
            Pressed::Backspace => {
                text.pop();
            }
            Pressed::Char(one) => text.push(one),
            _ => {}
        }
        if what == Typing::Filter {
            self.filter.clone_from(&text);
            if self.rows().1.is_none() {
                self.go(|_, _| 0);
            }
        }
        self.typing = Some((what, text));
        None
    }

    /// Suspends the selected tenant, or resumes it. Only memory that can move leaves the device.
    fn suspend(&mut self) -> Option<Action> {
        let tenant = self.chosen()?;
        let rows = self.snapshot.residency.iter();
        let mut own = rows.filter(|row| row.name == tenant).peekable();
        if own.peek().is_none() {
            let shown = self.names.shown(&tenant);
            let text = format!("{shown} cannot be suspended: it runs without --oversubscribe swap");
            self.message = Some(text);
            return None;
        }
        let resume = own.any(|row| row.suspended);
        Some(Action::Suspend(tenant, resume))
    }

    /// The selected tenant's name. Without one the message says so.
    fn chosen(&mut self) -> Option<String> {
        let (rows, at) = self.rows();
        let chosen = at.and_then(|at| Some(rows.get(at)?.key.0.clone()));
        if chosen.is_none() {
            self.message = Some("no tenant is chosen: use the arrow keys".to_owned());
        }
        chosen
    }

    fn go(&mut self, to: impl Fn(usize, usize) -> usize) {
        let (rows, at) = self.rows();
        let last = rows.len().saturating_sub(1);
        let at = at.map_or(0, |at| to(at, last).min(last));
        self.selected = rows.get(at).map(|row| row.key.clone());
        self.has_ended = false;
    }
}

/// Whether a tenant queues, and for how long it has, or has been admitted, in milliseconds.
fn stage(snapshot: &Snapshot, name: &str) -> Option<(bool, u64)> {
    let mut admitted = snapshot.identities.iter();
    let admitted = admitted.find(|one| one.name == *name);
    let admitted = admitted.map(|one| (false, one.age_ms));
    let mut queued = snapshot.queued.iter();
    let queued = queued.find(|one| one.name == *name);
    let queued = queued.map(|one| (true, one.for_ms));
    // It was admitted between two lists of the snapshot: that of tenants is the later one.
    let came = || snapshot.tenants.iter().any(|row| row.name == *name);
    admitted.or(queued).or_else(|| came().then_some((false, 0)))
}
