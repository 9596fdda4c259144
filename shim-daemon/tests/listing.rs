//! Lists longer than a frame: page by page, each tenant, device and process once, whatever
//! registers or ends meanwhile. A follower gets all past events.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::net::UnixStream;

use crate::driver::{Backend, Driver};
use crate::support::{Daemon, GPU, create};
use gpushare_core::{Nanos, TenantId};
use gpushare_protocol::limits::Selector;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::*;
use gpushared::devices::Devices as _;
use gpushared::node::{Client, ConnId, Effect, Node, Settings};
use gpushared::peer::{Peer, inspect};

const NOW: Nanos = Nanos::secs(100);

struct Crowd {
    node: Node,
    last: u64,
    made: Vec<TenantId>,
}

impl Crowd {
    fn new() -> Self {
        let devices = Driver::of(Backend::Misc).list().unwrap();
        let node = Node::new(&Settings::default(), devices, 1, NOW, false);
        let (last, made) = (0, Vec::new());
        Self { node, last, made }
    }

    fn ask(&mut self, request: &Control) -> ControlReply {
        self.last += 1;
        let from = ConnId(self.last);
        self.node.command(NOW, from, 1, request);
        let mut answer = None;
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Command { to, reply, .. } if to == from => answer = Some(reply),
                Effect::Listen { tenant, .. } if !self.made.contains(&tenant) => {
                    self.made.push(tenant);
                }
                _ => {}
            }
        }
        answer.unwrap()
    }

    fn tenant(&mut self) {
        let name = format!("{:-<60}{:04}", "a-long-name", self.made.len());
        // Without a request: there is room for any number.
        let reply = self.ask(&create(&name, &[("GPUSHARE_RUN_LIMIT", "1h")]));
        assert!(matches!(reply, ControlReply::Created { .. }), "{reply:?}");
    }

    fn process(&mut self, tenant: TenantId) {
        self.last += 1;
        // A process has one registration: each has a pid of its own, and all the one pidfd there
        // is.
        let pid = 1_000_000 + u32::try_from(self.last).unwrap();
        let client = Client {
            connection: ConnId(self.last),
            tenant,
            process: None,
            gated: false,
            moves: false,
        };
        let peer = Peer {
            pid: pid.cast_signed(),
            uid: 0,
            pidfd: inspect(std::process::id()).unwrap().pidfd,
            cgroup: "/".to_owned(),
            groups: gpushared::groups::Groups::default(),
        };
        let register = Register {
            pid,
            presents_page: false,
            slot: None,
        };
        let registered = self.node.register(NOW, client, (1, &register), peer, None);
        assert!(registered.is_some());
        while self.node.poll_effect().is_some() {}
    }

    fn page(&mut self, of: Listing, from: Cursor) -> (Rows, Option<Cursor>) {
        let reply = self.ask(&Control::Page { of, from });
        let mut frame = Vec::new();
        encode(1, &reply, &mut frame).expect("each page fits a frame");
        match reply {
            ControlReply::Page { rows, next } => (rows, next),
            other => panic!("{other:?}"),
        }
    }

    /// All pages; between them, `meanwhile`.
    fn pages(&mut self, of: Listing, mut meanwhile: impl FnMut(&mut Self)) -> Vec<Rows> {
        let (mut from, mut all) = (Cursor::default(), Vec::new());
        loop {
            let (rows, next) = self.page(of, from);
            all.push(rows);
            assert!(all.len() < 1000, "it ends");
            let Some(next) = next else {
                return all;
            };
            from = next;
            meanwhile(self);
        }
    }
}

/// How many processes each tenant's row has on each device, all pages together.
fn processes(pages: &[Rows]) -> BTreeMap<(String, [u8; 16]), usize> {
    let mut all = BTreeMap::new();
    for rows in pages {
        let Rows::Tenants(rows) = rows else {
            panic!("{rows:?}")
        };
        for row in rows {
            *all.entry((row.name.clone(), row.device)).or_default() += row.processes.len();
        }
    }
    all
}

#[test]
fn every_row_is_in_one_page_and_every_page_in_a_frame() {
    let mut crowd = Crowd::new();
    (0..210).for_each(|_| crowd.tenant());
    let devices = match &crowd.pages(Listing::Devices, |_| {})[..] {
        [Rows::Devices(rows)] => rows.len(),
        other => panic!("{other:?}"),
    };
    for (of, each) in [
        (Listing::Tenants, devices),
        (Listing::Shares, devices),
        (Listing::Ends, 1),
    ] {
        let pages = crowd.pages(of, |_| {});
        assert!(pages.len() > 1 || of == Listing::Ends, "{of:?}");
        let mut names = pages.iter().flat_map(names).collect::<Vec<_>>();
        names.sort();
        assert_eq!(names.len(), 210 * each, "{of:?}");
        names.dedup();
        assert_eq!(names.len(), 210 * each, "{of:?}");
    }
}

/// The rows' tenants, each with its device where it has a row for each.
fn names(rows: &Rows) -> Vec<(String, [u8; 16])> {
    match rows {
        Rows::Tenants(rows) => rows
            .iter()
            .map(|row| (row.name.clone(), row.device))
            .collect(),
        Rows::Shares(rows) => rows
            .iter()
            .map(|row| (row.name.clone(), row.device))
            .collect(),
        Rows::Ends(rows) => rows.iter().map(|row| (row.name.clone(), [0; 16])).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_row_with_more_processes_than_a_page_goes_on_in_the_next() {
    let mut crowd = Crowd::new();
    (0..3).for_each(|_| crowd.tenant());
    for tenant in crowd.made.clone() {
        (0..512).for_each(|_| crowd.process(tenant));
    }
    let pages = crowd.pages(Listing::Tenants, |_| {});
    assert!(pages.len() > 1);
    let found = processes(&pages);
    let devices = found.len() / 3;
    assert!(devices > 0 && found.len() == 3 * devices);
    assert!(found.values().all(|count| *count == 512), "{found:?}");
}

#[test]
fn what_is_there_throughout_is_listed_once_while_others_come() {
    let mut crowd = Crowd::new();
    (0..100).for_each(|_| crowd.tenant());
    let first = crowd.made.clone();
    for tenant in first {
        (0..20).for_each(|_| crowd.process(tenant));
    }
    let before = processes(&crowd.pages(Listing::Tenants, |_| {}));
    let during = crowd.pages(Listing::Tenants, |crowd| {
        crowd.tenant();
        let last = *crowd.made.last().unwrap();
        crowd.process(last);
    });
    let during = processes(&during);
    for (key, count) in &before {
        assert_eq!(during.get(key), Some(count), "{key:?}");
    }
}

#[test]
fn a_cursor_that_means_nothing_ends_the_list() {
    let mut crowd = Crowd::new();
    crowd.tenant();
    let from = Cursor {
        tenant: u64::MAX,
        device: u32::MAX,
        process: u64::MAX,
    };
    for of in [
        Listing::Tenants,
        Listing::Devices,
        Listing::Shares,
        Listing::Ends,
    ] {
        let (rows, next) = crowd.page(of, from);
        let empty = match rows {
            Rows::Tenants(rows) => rows.is_empty(),
            Rows::Devices(rows) => rows.is_empty(),
            Rows::Shares(rows) => rows.is_empty(),
            Rows::Ends(rows) => rows.is_empty(),
            other => panic!("{other:?}"),
        };
        assert!(empty && next.is_none(), "{of:?}");
    }
}

/// Changes as long as an event tells them.
fn long(round: usize) -> Vec<(String, String)> {
    let name = Selector::Uuid(Uuid(GPU)).variable("GPUSHARE_MEM_LIMIT");
    let value = format!("{}MiB", 1024 + round % 7);
    vec![(name, value); 60]
}

#[test]
fn who_follows_is_told_all_of_the_past_and_then_what_they_asked_next() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1MiB"),
        ("GPUSHARE_MEM_LIMIT", "1GiB"),
    ];
    let (mut command, _socket) = daemon.tenant("one", &limits);
    for round in 0..1_100 {
        let set = Control::Set {
            tenant: "one".to_owned(),
            changes: long(round),
        };
        assert_eq!(command.call::<_, ControlReply>(&set), ControlReply::Done);
    }
    let mut follower = daemon.command();
    let follow = follower.ask(&Control::Follow { past: u32::MAX });
    let end = follower.ask(&Listing::Devices.first());
    // When this is answered, the daemon has begun to send to the follower, which has read nothing.
    let _: ControlReply = command.call(&Listing::Devices.first());
    let (mut told, mut bytes) = (0, 0);
    loop {
        if told == 1024 {
            break;
        }
        let ControlReply::Event(event) = follower.answer(follow) else {
            panic!("an event")
        };
        told += 1;
        bytes += event.text.len();
    }
    assert!(
        bytes > 2 << 20,
        "more than a connection may leave unread: {bytes}"
    );
    let reply: ControlReply = follower.answer(end);
    let is_page = matches!(reply, ControlReply::Page { .. });
    assert!(is_page, "{reply:?}");
    let set = Control::Set {
        tenant: "one".to_owned(),
        changes: long(1),
    };
    assert_eq!(command.call::<_, ControlReply>(&set), ControlReply::Done);
    let live: ControlReply = follower.answer(follow);
    assert!(matches!(live, ControlReply::Event(_)), "{live:?}");
}

#[test]
fn what_was_asked_with_the_past_is_answered_while_new_events_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (mut command, _socket) = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "1GiB")]);
    let mut set = |round| {
        let set = Control::Set {
            tenant: "one".to_owned(),
            changes: long(round),
        };
        assert_eq!(command.call::<_, ControlReply>(&set), ControlReply::Done);
    };
    (0..1_100).for_each(&mut set);
    let mut follower = daemon.command();
    // At once, so that the daemon reads them together.
    let (mut frames, [follow, end]) = (Vec::new(), [1, 2]);
    encode(follow, &Control::Follow { past: u32::MAX }, &mut frames).unwrap();
    encode(end, &Listing::Devices.first(), &mut frames).unwrap();
    follower.socket.write_all(&frames).unwrap();
    // The socket is never so empty that the daemon is told of it: each new event finds that there
    // is room, and sends what waits.
    for round in 0..300 {
        assert!(follower.read());
        if follower.has_answer(end) {
            return;
        }
        set(round);
    }
    panic!("the request lies in the daemon");
}

#[test]
fn a_follower_that_never_reads_is_cut_off_and_others_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (mut command, _socket) = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "1GiB")]);
    let mut silent = daemon.command();
    silent.ask(&Control::Follow { past: u32::MAX });
    let mut closed = false;
    for round in 0..6_000 {
        let set = Control::Set {
            tenant: "one".to_owned(),
            changes: long(round),
        };
        assert_eq!(command.call::<_, ControlReply>(&set), ControlReply::Done);
        closed = round % 100 == 0 && hung_up(&silent.socket);
        if closed {
            break;
        }
    }
    assert!(closed, "it may not keep the daemon's memory for ever");
}

fn hung_up(socket: &UnixStream) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
}
