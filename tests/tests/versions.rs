//! A running tenant keeps its library for months. Tested: an earlier build's library under this
//! daemon, this library under that daemon, and daemons of both builds in sequence. Second tier,
//! because it builds the earlier commit.

use std::path::PathBuf;

use gpushare_tests::runnable::prepared;
use gpushare_tests::{Daemon, GIB, Gpu, Guest, Tenant, artefacts};

/// The last commit whose protocol has minor 0.
const PREVIOUS: &str = "b5bbaee";
const GRANTED: &str = "alloc 0";
const REFUSED: &str = "alloc 2";
const BURST: [(&str, &str); 3] = [
    ("GPUSHARE_MEM_REQUEST", "1GiB"),
    ("GPUSHARE_MEM_LIMIT", "12GiB"),
    ("GPUSHARE_WAIT_TIMEOUT", "20s"),
];

/// A daemon and a library of one build.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    pub(crate) daemon: PathBuf,
    pub(crate) library: PathBuf,
}

impl Build {
    /// That of an earlier commit; `None`, which is noted, if it cannot be built.
    pub(crate) fn of_commit(test: &str, commit: &str) -> Option<Self> {
        let folder = prepared(test, "previous.sh", &[commit])?;
        Some(Self {
            daemon: folder.join("gpushared"),
            library: folder.join("libgpushare.so"),
        })
    }

    pub(crate) fn this() -> Self {
        Self {
            daemon: artefacts::gpushared(),
            library: artefacts::interposer(),
        }
    }
}

/// The earlier build and this one.
fn builds(test: &str) -> Option<[Build; 2]> {
    Some([Build::of_commit(test, PREVIOUS)?, Build::this()])
}

fn ready(tenant: &Tenant, build: &Build) -> Guest {
    let mut guest = tenant.client_of_build(&build.library, "quota");
    assert_eq!(guest.ask("init"), "init 0", "{build:?}");
    guest
}

fn alloc(bytes: u64) -> String {
    format!("alloc {bytes}")
}

/// Two bursts collide: the second waits, and is served when the first frees. A request above its
/// limit is refused at once.
fn collide(daemon: &Daemon, libraries: [&Build; 2]) {
    let (a, b) = (daemon.tenant("a", &BURST), daemon.tenant("b", &BURST));
    let (mut a, mut b) = (ready(&a, libraries[0]), ready(&b, libraries[1]));
    assert_eq!(a.ask(&alloc(10 * GIB)), GRANTED);
    assert_eq!(b.ask(&alloc(13 * GIB)), REFUSED, "above its limit");
    b.send(&alloc(10 * GIB));
    daemon.until_one_waits("b");
    assert_eq!(a.ask("free 1"), "free 0");
    assert_eq!(b.line(), GRANTED);
    daemon.until("b", |row| row.charged == 10 * GIB);
    for guest in [a, b] {
        guest.finish().silently();
    }
}

#[test]
#[ignore = "builds an earlier commit"]
fn a_collision_is_settled_between_builds() {
    let Some([previous, this]) = builds("a_collision_is_settled_between_builds") else {
        return;
    };
    for (daemon, libraries) in [
        (&this, [&previous, &previous]),
        (&this, [&previous, &this]),
        (&previous, [&this, &this]),
        (&previous, [&this, &previous]),
    ] {
        let gpu = Gpu::new("mem=16GiB");
        collide(&Daemon::of_build(&gpu, daemon.daemon.clone()), libraries);
    }
}

/// A daemon of one build is followed by one of the other, under clients of both.
fn follow(first: &Build, next: &Build) {
    let gpu = Gpu::new("mem=16GiB");
    let mut daemon = Daemon::of_build(&gpu, first.daemon.clone());
    let tenants = [daemon.tenant("a", &BURST), daemon.tenant("b", &BURST)];
    let mut guests = [ready(&tenants[0], first), ready(&tenants[0], next)];
    for guest in &mut guests {
        assert_eq!(guest.ask(&alloc(4 * GIB)), GRANTED);
    }
    let mut waiter = ready(&tenants[1], first);
    waiter.send(&alloc(9 * GIB));
    daemon.until_one_waits("b");
    daemon.replace(next.daemon.clone());
    let row = daemon.until("a", |row| row.processes.len() == 2 && row.charged > 0);
    assert_eq!(row.charged, 8 * GIB, "the books are exact");
    assert_eq!(guests[0].ask("check"), "check 1");
    for guest in &mut guests {
        assert_eq!(guest.ask("free 1"), "free 0");
    }
    assert_eq!(
        waiter.line(),
        GRANTED,
        "the waiting ask is served by the next daemon"
    );
    let mut late = ready(&tenants[1], next);
    assert_eq!(late.ask(&alloc(4 * GIB)), REFUSED, "9 of 12 GiB are taken");
    daemon.until("b", |row| {
        row.charged == 9 * GIB && row.processes.len() == 2
    });
}

#[test]
#[ignore = "builds an earlier commit"]
fn a_daemon_of_another_build_takes_over_clients_of_both() {
    let test = "a_daemon_of_another_build_takes_over_clients_of_both";
    let Some([previous, this]) = builds(test) else {
        return;
    };
    follow(&previous, &this);
    follow(&this, &previous);
}
