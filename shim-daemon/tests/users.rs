//! One daemon for all users of a machine: every user registers and lists tenants, each changes its
//! own, and privileges of root are refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use crate::driver::{Backend, Driver, FIRST};
use gpushare_core::{Nanos, TenantId};
use gpushare_protocol::wire::{
    Control, ControlReply, Cursor, ErrorCode, EventRecord, Fact, Listing, Register, Reply, Rows,
};
use gpushared::devices::Devices as _;
use gpushared::node::{Client, ConnId, Effect, Node, Registration, Settings};
use gpushared::peer::{Peer, inspect};

const ALICE: Option<u32> = Some(1001);
const BOB: Option<u32> = Some(1002);
const ROOT: Option<u32> = None;

/// A node that distinguishes commands by user.
struct Machine {
    node: Node,
    last: u64,
    made: Vec<(TenantId, Registration)>,
    /// What happened, as it was written down.
    told: Vec<Arc<EventRecord>>,
}

impl Machine {
    fn new() -> Self {
        let devices = Driver::of(Backend::Misc).list().unwrap();
        let node = Node::new(&Settings::default(), devices, 1, Nanos::secs(100), false);
        Self {
            node,
            last: 0,
            made: Vec::new(),
            told: Vec::new(),
        }
    }

    fn connection(&mut self) -> ConnId {
        self.last += 1;
        ConnId(self.last)
    }

    /// The reply to a command of this user.
    fn ask(&mut self, user: Option<u32>, request: &Control) -> ControlReply {
        let from = self.connection();
        self.node.command_came(from, "/user.slice", user);
        self.node.command(Nanos::secs(100), from, 1, request);
        let mut answer = None;
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Command { to, reply, .. } if to == from => answer = Some(reply),
                Effect::Listen {
                    tenant,
                    registration,
                } => self.made.push((tenant, *registration)),
                Effect::Event { record, .. } => self.told.push(record),
                _ => {}
            }
        }
        answer.unwrap()
    }

    fn create(&mut self, user: Option<u32>, more: &[(&str, &str)]) -> ControlReply {
        let limits = [("GPUSHARE_MEM_LIMIT", "1GiB")];
        let environment = limits.iter().chain(more);
        let create = Control::Create {
            name: Some("shared".to_owned()),
            environment: environment
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            devices: vec![FIRST],
        };
        self.ask(user, &create)
    }

    fn set(&mut self, user: Option<u32>, variable: &str, value: &str) -> ControlReply {
        let set = Control::Set {
            tenant: "shared".to_owned(),
            changes: vec![(variable.to_owned(), value.to_owned())],
        };
        self.ask(user, &set)
    }

    /// Whether a process of this user may join the tenant.
    fn joins(&mut self, uid: u32) -> bool {
        let pid = std::process::id();
        let client = Client {
            connection: self.connection(),
            tenant: self.made[0].0,
            process: None,
            gated: false,
            moves: false,
        };
        let peer = Peer {
            pid: pid.cast_signed(),
            uid,
            pidfd: inspect(pid).unwrap().pidfd,
            cgroup: "/user.slice".to_owned(),
            groups: gpushared::groups::Groups::default(),
        };
        let register = Register {
            pid,
            presents_page: false,
            slot: None,
        };
        let registered = self
            .node
            .register(Nanos::secs(100), client, (1, &register), peer, None);
        let refused = std::iter::from_fn(|| self.node.poll_effect()).any(|effect| {
            matches!(effect, Effect::Client { reply: Reply::Error(error), .. } if error.code == ErrorCode::Forbidden)
        });
        assert_ne!(registered.is_some(), refused);
        registered.is_some()
    }
}

#[track_caller]
fn forbidden(reply: &ControlReply) -> &str {
    match reply {
        ControlReply::Error(error) if error.code == ErrorCode::Forbidden => &error.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_user_registers_joins_and_changes_what_is_theirs() {
    let mut machine = Machine::new();
    for _ in 0..2 {
        let reply = machine.create(ALICE, &[]);
        assert!(matches!(reply, ControlReply::Created { .. }), "{reply:?}");
    }
    assert_eq!(machine.made[0].1.owner, ALICE);
    assert_eq!(
        machine.set(ALICE, "GPUSHARE_MEM_LIMIT", "2GiB"),
        ControlReply::Done
    );
    assert!(machine.joins(1001) && machine.joins(0));
}

#[test]
fn another_user_sees_it_and_neither_joins_nor_changes_it() {
    let mut machine = Machine::new();
    machine.create(ALICE, &[]);
    let attach = Control::Attach {
        tenant: "shared".to_owned(),
    };
    let created = machine.create(BOB, &[]);
    let set = machine.set(BOB, "GPUSHARE_MEM_LIMIT", "2GiB");
    for (refused, has_name) in [(created, true), (set, false)] {
        let told = forbidden(&refused);
        assert!(
            told.contains("tenant shared is not yours but user 1001's"),
            "{told}"
        );
        assert_eq!(told.contains("--name"), has_name, "{told}");
    }
    forbidden(&machine.ask(BOB, &attach));
    assert!(!machine.joins(1002));
    let rows = machine.ask(BOB, &Listing::Tenants.first());
    assert!(
        matches!(rows, ControlReply::Page { rows: Rows::Tenants(rows), .. } if rows[0].name == "shared")
    );
    assert_eq!(
        machine.set(ROOT, "GPUSHARE_MEM_LIMIT", "2GiB"),
        ControlReply::Done
    );
}

#[test]
fn the_machines_tenant_takes_no_process_or_command_of_a_session() {
    let mut machine = Machine::new();
    machine.create(ROOT, &[]);
    assert!(!machine.joins(1001) && !machine.joins(65_534));
    assert!(machine.joins(0));
    let told = machine.set(ALICE, "GPUSHARE_MEM_LIMIT", "2GiB");
    assert!(
        forbidden(&told).contains("not yours but root's"),
        "{told:?}"
    );
}

#[test]
fn a_priority_above_the_usual_is_for_root_to_give() {
    let mut machine = Machine::new();
    let refused = machine.create(ALICE, &[("GPUSHARE_PRIORITY", "501")]);
    assert!(forbidden(&refused).contains("GPUSHARE_PRIORITY=501"));
    let reply = machine.create(ALICE, &[("GPUSHARE_PRIORITY", "400")]);
    assert!(matches!(reply, ControlReply::Created { .. }), "{reply:?}");
    forbidden(&machine.set(ALICE, "GPUSHARE_PRIORITY", "1000"));
    assert_eq!(
        machine.set(ROOT, "GPUSHARE_PRIORITY", "1000"),
        ControlReply::Done
    );
    // The priority that root gave stays: its owner joins with it, and changes what is hers.
    let joins = machine.create(ALICE, &[("GPUSHARE_PRIORITY", "1000")]);
    assert!(matches!(joins, ControlReply::Created { .. }), "{joins:?}");
    forbidden(&machine.create(BOB, &[("GPUSHARE_PRIORITY", "1000")]));
    assert_eq!(
        machine.set(ALICE, "GPUSHARE_MEM_LIMIT", "2GiB"),
        ControlReply::Done
    );
}

#[test]
fn a_user_may_have_so_many_tenants_and_others_still_have_theirs() {
    let mut machine = Machine::new();
    let mut create = |user, name: String| {
        let create = Control::Create {
            name: Some(name),
            environment: vec![],
            devices: vec![FIRST],
        };
        // The connection stays: it keeps the tenant.
        machine.ask(user, &create)
    };
    for at in 0..256 {
        let reply = create(ALICE, format!("alice-{at}"));
        assert!(matches!(reply, ControlReply::Created { .. }), "{reply:?}");
    }
    match create(ALICE, "alice-256".to_owned()) {
        ControlReply::Error(error) => {
            assert_eq!(error.code, ErrorCode::Full);
            assert!(error.message.contains("256"), "{}", error.message);
        }
        other => panic!("{other:?}"),
    }
    for (user, name) in [(BOB, "bob"), (ROOT, "root")] {
        let reply = create(user, name.to_owned());
        assert!(matches!(reply, ControlReply::Created { .. }), "{reply:?}");
    }
}

#[test]
fn a_user_may_end_its_own_tenants_only() {
    let mut machine = Machine::new();
    machine.create(ALICE, &[]);
    let end = |tenant: &str| Control::End {
        tenant: tenant.to_owned(),
        kill: false,
    };
    forbidden(&machine.ask(BOB, &end("shared")));
    assert_eq!(machine.ask(ALICE, &end("shared")), ControlReply::Done);
    assert_eq!(machine.ask(ROOT, &end("shared")), ControlReply::Done);
    let unknown = machine.ask(ROOT, &end("other"));
    let is = matches!(&unknown, ControlReply::Error(error) if error.code == ErrorCode::NotFound);
    assert!(is, "{unknown:?}");
}

impl Machine {
    /// The events of this kind and tenant that a command is told that comes now.
    fn past(&mut self, kind: &str, tenant: &str) -> usize {
        let from = self.connection();
        let follow = Control::Follow { past: 1024 };
        self.node.command_came(from, "/user.slice", None);
        self.node.command(Nanos::secs(100), from, 1, &follow);
        let mut all = 0;
        while let Some(effect) = self.node.poll_effect() {
            if let Effect::Event { record, .. } = effect {
                let is_its = record.tenant.as_deref() == Some(tenant);
                all += usize::from(record.kind == kind && is_its);
            }
        }
        self.node.command_ended(Nanos::secs(100), from);
        all
    }

    /// A tenant of this user, whose command stays.
    fn has(&mut self, user: Option<u32>, name: &str) -> ConnId {
        let create = Control::Create {
            name: Some(name.to_owned()),
            environment: vec![],
            devices: vec![FIRST],
        };
        let reply = self.ask(user, &create);
        assert!(matches!(reply, ControlReply::Created { .. }), "{reply:?}");
        ConnId(self.last)
    }

    /// A change of the tenant "hers" with a text of its user's choice. The event of that.
    fn names_a_socket(&mut self, path: &str) -> Arc<EventRecord> {
        let set = Control::Set {
            tenant: "hers".to_owned(),
            changes: vec![("GPUSHARE_SOCKET".to_owned(), path.to_owned())],
        };
        assert_eq!(self.ask(ALICE, &set), ControlReply::Done);
        let told = self.told.iter().rfind(|one| one.kind == "set");
        Arc::clone(told.unwrap())
    }
}

/// As many connections as a user may follow events over.
const FOLLOWERS: usize = 16;

impl Machine {
    /// A connection of this user follows events, and is told those that were. Its place among what
    /// it is told of the refusal, if it may not.
    fn follows(&mut self, user: Option<u32>, from: ConnId) -> Option<usize> {
        self.node.command_came(from, "/user.slice", user);
        self.follows_again(from)
    }

    fn follows_again(&mut self, from: ConnId) -> Option<usize> {
        let follow = Control::Follow { past: 1024 };
        self.node.command(Nanos::secs(100), from, 1, &follow);
        let told: Vec<Effect> = std::iter::from_fn(|| self.node.poll_effect()).collect();
        let past = |effect: &&Effect| matches!(effect, Effect::Event { is_new: false, .. });
        assert!(told.iter().filter(past).count() > 0, "{told:?}");
        told.iter().position(|effect| {
            matches!(effect, Effect::Command { to, id: 1, reply: ControlReply::Error(error) }
                if *to == from && error.code == ErrorCode::Full && error.can_retry)
        })
    }

    /// The connections that are told of an event that happens now.
    fn told(&mut self) -> Vec<ConnId> {
        let from = self.connection();
        self.node.command_came(from, "/user.slice", ROOT);
        let create = Control::Create {
            name: Some(format!("tenant-{}", self.last)),
            environment: vec![],
            devices: vec![FIRST],
        };
        self.node.command(Nanos::secs(100), from, 1, &create);
        let effects = std::iter::from_fn(|| self.node.poll_effect());
        let mut told = effects.filter_map(|effect| match effect {
            Effect::Event {
                to, is_new: true, ..
            } => Some(to),
            _ => None,
        });
        let first = told.next().unwrap();
        first.into_iter().map(|(to, ..)| to).collect()
    }
}

#[test]
fn a_user_follows_events_over_a_few_connections() {
    let mut machine = Machine::new();
    machine.has(ROOT, "one");
    let all: Vec<ConnId> = (0..=FOLLOWERS).map(|_| machine.connection()).collect();
    let (last, first) = all.split_last().unwrap();
    for from in first {
        assert_eq!(machine.follows(ALICE, *from), None);
    }
    // What was is told to this one, too: `why` asks for no more.
    assert_eq!(machine.follows(ALICE, *last), Some(0));
    assert_eq!(machine.follows_again(first[0]), None, "it has a place");
    let mut told = machine.told();
    told.sort();
    assert_eq!(told, first);
    machine.node.command_ended(Nanos::secs(100), first[3]);
    assert_eq!(machine.follows_again(*last), None);
    assert!(machine.told().contains(last));
}

/// As many connections as all users but root together may follow events over.
const ALL_FOLLOWERS: usize = 64;

#[test]
fn users_without_end_follow_events_over_a_bounded_crowd() {
    let mut machine = Machine::new();
    machine.has(ROOT, "one");
    let users = 0..u32::try_from(ALL_FOLLOWERS).unwrap();
    let first: Vec<ConnId> = users.clone().map(|_| machine.connection()).collect();
    for (user, from) in users.zip(&first) {
        assert_eq!(machine.follows(Some(100_000 + user), *from), None);
    }
    let last = machine.connection();
    assert_eq!(machine.follows(BOB, last), Some(0), "the past is told");
    for _ in 0..ALL_FOLLOWERS {
        let from = machine.connection();
        assert_eq!(machine.follows(ROOT, from), None);
    }
    assert_eq!(machine.told().len(), 2 * ALL_FOLLOWERS);
    machine.node.command_ended(Nanos::secs(100), first[3]);
    assert_eq!(machine.follows_again(last), None);
}

#[test]
fn followers_of_one_user_take_no_place_of_another_or_of_root() {
    let mut machine = Machine::new();
    machine.has(ROOT, "one");
    for user in [ALICE, ROOT, BOB, ROOT, ROOT] {
        for _ in 0..FOLLOWERS {
            let from = machine.connection();
            assert_eq!(machine.follows(user, from), None);
        }
    }
    assert_eq!(machine.told().len(), 5 * FOLLOWERS);
}

/// Commands that a user can send without end, and the events that they cause.
fn floods(name: &str) -> [(&'static str, Control); 2] {
    let tenant = name.to_owned();
    let changes = vec![("GPUSHARE_IDLE_AFTER".to_owned(), "5s".to_owned())];
    let attach = Control::Attach {
        tenant: tenant.clone(),
    };
    let set = Control::Set { tenant, changes };
    [("attached", attach), ("set", set)]
}

#[test]
fn a_users_commands_without_end_leave_others_events_in_the_ring() {
    let mut machine = Machine::new();
    machine.has(BOB, "bobs");
    machine.has(ALICE, "hers");
    for (_, flood) in floods("hers") {
        for _ in 0..3_000 {
            machine.ask(ALICE, &flood);
        }
    }
    for at in 0..2_000 {
        let command = machine.has(ALICE, &format!("t{at}"));
        machine.node.command_ended(Nanos::secs(100), command);
    }
    assert_eq!(machine.past("admitted", "bobs"), 1);
    let written = machine.told.len();
    assert!(written <= 512, "{written} events of one user are written");
}

#[test]
fn what_a_user_floods_with_is_counted_and_anothers_is_told() {
    let mut machine = Machine::new();
    machine.has(BOB, "bobs");
    machine.has(ALICE, "hers");
    let [(_, attach), _] = floods("hers");
    for _ in 0..3_000 {
        machine.ask(ALICE, &attach);
    }
    let told = machine.past("attached", "hers");
    for (kind, command) in floods("bobs") {
        machine.ask(BOB, &command);
        assert_eq!(machine.past(kind, "bobs"), 1);
    }
    machine.node.tick(Nanos::secs(120));
    machine.ask(ROOT, &Listing::Tenants.first());
    let left_out = machine
        .told
        .iter()
        .rfind(|one| one.kind == "events-left-out");
    let left_out = left_out.expect("the rest is counted");
    let count = left_out.facts.iter().find(|(name, _)| name == "count");
    let count = count.map(|(_, fact)| fact.clone());
    let expected = Fact::Number(3_000 - u64::try_from(told).unwrap());
    assert_eq!(count, Some(expected), "{left_out:?}");
    assert!(left_out.text.contains("user 1001"), "{left_out:?}");
    let (of, from) = (Listing::EventCounts, Cursor::default());
    let ControlReply::Page { rows, .. } = machine.ask(ROOT, &Control::Page { of, from }) else {
        panic!("no page")
    };
    let Rows::EventCounts(rows) = rows else {
        panic!("{rows:?}")
    };
    let attached = rows.iter().find(|row| row.kind == "attached");
    let all = attached.map(|row| row.count);
    assert_eq!(all, Some(3_001), "told or left out: hers and bob's one");
}

#[test]
fn the_operators_commands_and_a_few_of_a_user_are_all_told() {
    for (user, many) in [(ROOT, 3_000), (ALICE, 100)] {
        let mut machine = Machine::new();
        machine.has(user, "own");
        let [(_, attach), _] = floods("own");
        for _ in 0..many {
            machine.ask(user, &attach);
        }
        let told = machine.told.iter().filter(|one| one.kind == "attached");
        assert_eq!(told.count(), many);
    }
}

#[test]
fn a_fact_is_no_longer_than_an_event_may_be() {
    let mut machine = Machine::new();
    machine.has(ALICE, "hers");
    let set = machine.names_a_socket(&format!("/{}", "x".repeat(60_000)));
    let [(_, Fact::Word(changes))] = &set.facts[..] else {
        panic!("{set:?}")
    };
    for said in [changes, &set.text] {
        assert!((4_000..=4_096).contains(&said.len()), "{}", said.len());
    }
}

#[test]
fn an_event_has_no_control_characters_whatever_a_user_says() {
    let mut machine = Machine::new();
    machine.has(ALICE, "hers");
    let set = machine.names_a_socket("/\u{1b}]0;x\u{7}\n\u{e9}");
    let says = r"GPUSHARE_SOCKET=/\u{1b}]0;x\u{7}\né".to_owned();
    assert_eq!(set.text, format!("now has {says}"));
    assert_eq!(set.facts, [("changes".to_owned(), Fact::Word(says))]);
}
