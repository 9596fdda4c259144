//! Tenants' own sockets under a flood. A user who opens as many connections as possible leaves
//! places for the tenant's programs. Any user who connects in a loop is served at a limited rate.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use gpushare_tests::daemon::Commands;
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{Daemon, Gpu, Tenant};
use nix::unistd::{Uid, geteuid, seteuid};

const ALICE: Uid = Uid::from_raw(65_534);
const BOB: Uid = Uid::from_raw(65_533);
const CAROL: Uid = Uid::from_raw(65_532);
const ROOT: Uid = Uid::from_raw(0);
/// The saved budget of one user, and its sustained connections per second.
const SAVED: u64 = 1024;
const A_SECOND: u64 = 200;

/// This process acts as a user that connects to the daemon; then as root again. One test at a time.
struct Is {
    _alone: MutexGuard<'static, ()>,
}

impl Is {
    fn user(user: Uid) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock();
        // A failed test has become root again, too.
        let alone = alone.unwrap_or_else(std::sync::PoisonError::into_inner);
        seteuid(user).expect("root may be anybody");
        Self { _alone: alone }
    }
}

impl Drop for Is {
    fn drop(&mut self) {
        seteuid(ROOT).expect("it was root before");
    }
}

/// A daemon of all users with two tenants of root; `None` if this user cannot act as other users,
/// which is noted under `test`.
fn machine(test: &str) -> Option<(Daemon, [Tenant; 2])> {
    if !geteuid().is_root() {
        not_runnable_here(test, "only root can be several users");
        return None;
    }
    gpushared::limits::raise_descriptors().expect("root may have as many");
    let daemon = Daemon::of_all_users(&Gpu::new("mem=16GiB"));
    let tenants =
        ["one", "other"].map(|name| daemon.tenant(name, &[("GPUSHARE_MEM_LIMIT", "1GiB")]));
    Some((daemon, tenants))
}

fn socket(tenant: &Tenant) -> PathBuf {
    tenant.folder().join("gpushare.sock")
}

fn crowd(socket: &Path, user: Uid, many: usize) -> Vec<UnixStream> {
    let _is = Is::user(user);
    let connect = |_| UnixStream::connect(socket).expect("it listens");
    (0..many).map(connect).collect()
}

#[test]
fn a_user_who_fills_a_tenants_socket_leaves_its_programs_theirs() {
    let test = "a_user_who_fills_a_tenants_socket_leaves_its_programs_theirs";
    let Some((_daemon, [one, _])) = machine(test) else {
        return;
    };
    let crowd = crowd(&socket(&one), ALICE, 1_100);
    // Its connections are greeted at once, not only when the silent connections of the crowd are
    // closed.
    drop(Commands::open(&socket(&one)));
    let mut program = one.client("quota", &[]);
    assert_eq!(program.ask("init"), "init 0");
    drop(crowd);
    program.finish().silently();
}

#[test]
fn several_users_who_fill_it_leave_another_ones_program_a_place() {
    let test = "several_users_who_fill_it_leave_another_ones_program_a_place";
    let Some((_daemon, [one, _])) = machine(test) else {
        return;
    };
    let socket = socket(&one);
    let crowds = [ALICE, BOB].map(|user| crowd(&socket, user, 600));
    for user in [CAROL, ROOT] {
        let _is = Is::user(user);
        // It gets a hello; the daemon closes a connection without a place.
        drop(Commands::open(&socket));
    }
    drop(crowds);
}

/// How often a user who connects in a loop gets a hello while root sends requests, and during which
/// time.
fn greeted(daemon: &Daemon, user: Uid, socket: &Path) -> (u64, f64) {
    let (stop, served) = (AtomicBool::default(), Arc::<AtomicU64>::default());
    let mut root = daemon.commands();
    let _is = Is::user(user);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(Commands::open(socket));
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Until the flood has used all of its saved budget and continues.
        while served.load(Ordering::Relaxed) < SAVED + A_SECOND {
            root.ask_often(&gpushare_protocol::wire::Listing::Devices.first(), 100);
        }
        stop.store(true, Ordering::Relaxed);
    });
    (
        served.load(Ordering::Relaxed),
        began.elapsed().as_secs_f64(),
    )
}

#[test]
fn a_user_who_connects_in_a_loop_is_served_at_a_limited_rate() {
    let test = "a_user_who_connects_in_a_loop_is_served_at_a_limited_rate";
    let Some((daemon, [one, other])) = machine(test) else {
        return;
    };
    for user in [ALICE, ROOT] {
        let (served, seconds) = greeted(&daemon, user, &socket(&one));
        eprintln!("user {user}: {served} in {seconds} s");
        #[expect(
            clippy::cast_precision_loss,
            reason = "small counts: no more than the rate, however slow the machine"
        )]
        let may = (SAVED + 8) as f64 + seconds * A_SECOND as f64 * 1.05;
        #[expect(clippy::cast_precision_loss, reason = "a small count")]
        let served = served as f64;
        assert!(served <= may, "user {user}: {served} in {seconds} s");
        let mut program = other.client("quota", &[]);
        assert_eq!(program.ask("init"), "init 0", "of the other tenant");
        program.finish().silently();
    }
}
