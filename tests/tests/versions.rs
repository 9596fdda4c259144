//! A daemon and a library of different major versions do not talk, and each says so. A program
//! that runs keeps what it has, and goes on. Tested with a daemon that the test plays, and, in the
//! second tier, with the build of an earlier commit.

use std::fs;
use std::path::PathBuf;

use gpushare_protocol::wire::{MAJOR, Request};
use gpushare_tests::runnable::prepared;
use gpushare_tests::{Daemon, Dealer, GIB, Gpu, Guest, MIB, Tenant, artefacts, until, until_some};

/// The last commit of major version 1.
const PREVIOUS: &str = "5e937042";
const LIMITS: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_REQUEST", "1GiB"),
    ("GPUSHARE_MEM_LIMIT", "12GiB"),
];

fn alloc(bytes: u64) -> String {
    format!("alloc {bytes}")
}

/// A program that gets no CUDA says why in one line, and lives on.
fn is_refused(mut guest: Guest, [theirs, ours]: [u16; 2]) {
    assert_eq!(guest.ask("init"), "init 1", "it has no CUDA");
    let told = guest.finish().stderr;
    let versions = format!("the daemon speaks protocol {theirs}, this library");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains(&versions), "{told}");
    assert!(told.contains(&ours.to_string()), "{told}");
}

#[test]
fn a_program_gets_no_cuda_under_a_daemon_of_another_major() {
    for major in [MAJOR - 1, MAJOR + 1] {
        let mut dealer = Dealer::start(&Gpu::new(""));
        dealer.come_back_of(major);
        is_refused(dealer.client("quota"), [major, MAJOR]);
        assert_eq!(dealer.rivals().registrations(), 0);
    }
}

#[test]
fn a_program_goes_on_when_its_next_daemon_is_of_another_major() {
    for major in [MAJOR - 1, MAJOR + 1] {
        let mut dealer = Dealer::start(&Gpu::new(""));
        let mut guest = dealer.client("quota");
        guest.does("init");
        assert_eq!(guest.ask(&alloc(MIB)), "alloc 0");
        dealer.leave();
        let before = dealer.rivals().connections();
        dealer.come_back_of(major);
        until("it greets", || dealer.rivals().connections() > before);
        // Within what the last daemon granted.
        assert_eq!(guest.ask(&alloc(MIB)), "alloc 0");
        assert_eq!(guest.ask("check"), "check 2");
        assert_eq!(guest.ask("free 1"), "free 0");
        assert_eq!(dealer.rivals().registrations(), 1, "it says no more");
        dealer.come_back_of(MAJOR);
        dealer.hears_some(|said| matches!(said, Request::Adopted { .. }).then_some(()));
        assert_eq!(guest.ask("check"), "check 1");
        guest.finish().silently();
    }
}

/// A daemon and a library of one build.
#[derive(Clone, Debug)]
struct Build {
    daemon: PathBuf,
    library: PathBuf,
}

/// That of the earlier commit, and this one; `None`, which is noted, if that cannot be built.
fn builds(test: &str) -> Option<[Build; 2]> {
    let folder = prepared(test, "previous.sh", &[PREVIOUS])?;
    let previous = Build {
        daemon: folder.join("gpushared"),
        library: folder.join("libgpushare.so"),
    };
    let this = Build {
        daemon: artefacts::gpushared(),
        library: artefacts::interposer(),
    };
    Some([previous, this])
}

fn client(tenant: &Tenant, build: &Build) -> Guest {
    tenant.client_of_build(&build.library, "quota")
}

#[test]
#[ignore = "builds an earlier commit"]
fn a_library_and_a_daemon_of_two_majors_refuse_each_other() {
    let test = "a_library_and_a_daemon_of_two_majors_refuse_each_other";
    let Some([previous, this]) = builds(test) else {
        return;
    };
    let daemon = Daemon::start(&Gpu::new(""));
    let tenant = daemon.tenant("a", &LIMITS);
    is_refused(client(&tenant, &previous), [MAJOR, 1]);
    client(&tenant, &this).does("init");
}

/// Its memory counts as unmanaged, as the device shows it.
#[test]
#[ignore = "builds an earlier commit"]
fn a_program_of_an_earlier_major_goes_on_and_is_told_of() {
    let test = "a_program_of_an_earlier_major_goes_on_and_is_told_of";
    let Some([previous, this]) = builds(test) else {
        return;
    };
    let mut daemon = Daemon::start(&Gpu::new("mem=16GiB"));
    let tenant = daemon.tenant("a", &LIMITS);
    daemon.replace(previous.daemon.clone());
    let mut guest = client(&tenant, &previous);
    guest.does("init");
    assert_eq!(guest.ask(&alloc(4 * GIB)), "alloc 0");
    let kept = tenant.folder().join("../../registered/a.json");
    let pid = format!("\"pid\":{}", guest.id());
    until("the daemon has written it down", || {
        fs::read_to_string(&kept).is_ok_and(|kept| kept.contains(&pid))
    });
    daemon.replace(this.daemon);
    let told = until_some("it is told of", || {
        let mut past = daemon.commands().past().into_iter();
        past.find(|event| event.kind == "not-registered")
    });
    for part in [
        &guest.id().to_string(),
        "protocol 1, this daemon 2",
        "end it",
    ] {
        assert!(told.text.contains(part), "{part}: {}", told.text);
    }
    until("its memory counts", || daemon.unmanaged() >= 4 * GIB);
    assert_eq!(guest.ask("check"), "check 1");
    assert_eq!(guest.ask("free 1"), "free 0");
    assert_eq!(guest.ask(&alloc(GIB)), "alloc 0", "its grant is in force");
    assert_eq!(guest.ask(&alloc(13 * GIB)), "alloc 2", "above its limit");
    guest.finish().silently();
}
