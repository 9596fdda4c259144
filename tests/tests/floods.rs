//! One user floods the daemon of all users with commands or connections. Other users still get
//! nearly all of the daemon's time. The test counts the flood's requests served during a fixed
//! number of root's requests; it does not measure time.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use gpushare_protocol::wire::{Control, ControlReply, Listing};
use gpushare_tests::daemon::Commands;
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{Daemon, Gpu, Tenant, assert_measured};
use nix::unistd::{Uid, geteuid, seteuid};

const ALICE: Uid = Uid::from_raw(65_534);
const ROOT: Uid = Uid::from_raw(0);
/// Connections that flood at the same time.
const FLOODERS: usize = 8;
/// Tenants, so that a list has many rows.
const TENANTS: usize = 100;

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

/// Threads that repeat one operation.
struct Flood {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    /// Each thread calls what `make` returns as often as it can.
    fn start<F: FnMut() + Send + 'static>(make: impl Fn() -> F) -> Self {
        let (stop, served) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let thread = |_| {
            let (stop, served, mut once) = (Arc::clone(&stop), Arc::clone(&served), make());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    once();
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads = (0..FLOODERS).map(thread).collect();
        Self {
            stop,
            served,
            threads,
        }
    }

    fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("it is served in the end");
        }
    }
}

fn lists(control: PathBuf) -> impl FnMut() + Send + 'static {
    let mut commands = Commands::open(&control);
    move || drop(commands.ask(&Listing::Tenants.first()))
}

fn connects(control: PathBuf) -> impl FnMut() + Send + 'static {
    move || drop(Commands::open(&control))
}

/// A daemon of all users, with tenants; `None` if this user cannot act as other users, which is
/// noted under `test`.
fn crowded(test: &str) -> Option<(Daemon, Vec<Tenant>)> {
    if !geteuid().is_root() {
        not_runnable_here(test, "only root can be several users");
        return None;
    }
    let daemon = Daemon::of_all_users(&Gpu::new("mem=80GiB"));
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1MiB"),
        ("GPUSHARE_MEM_LIMIT", "1GiB"),
    ];
    let name = |at| format!("a-tenant-with-a-name-of-some-length-{at}");
    let tenants = (0..TENANTS).map(|at| daemon.tenant(&name(at), &limits));
    let tenants = tenants.collect();
    Some((daemon, tenants))
}

/// The number of a user's flood requests served during `times` of root's requests.
fn beside<F: FnMut() + Send + 'static>(
    daemon: &Daemon,
    user: Uid,
    flood: impl Fn(PathBuf) -> F,
    (request, times): (&Control, u32),
) -> u64 {
    const AT_ONCE: u32 = 100;
    let mut root = daemon.commands();
    let _is = Is::user(user);
    let flood = Flood::start(|| flood(daemon.control()));
    let before = flood.served();
    for _ in 0..times / AT_ONCE {
        root.ask_often(request, AT_ONCE);
    }
    let served = flood.served() - before;
    flood.end();
    eprintln!("{served} of the flood beside {times} {request:?} of root's");
    served
}

#[test]
fn a_users_flood_of_commands_is_served_seldom_and_roots_is_not_held_back() {
    let test = "a_users_flood_of_commands_is_served_seldom_and_roots_is_not_held_back";
    let Some((daemon, _tenants)) = crowded(test) else {
        return;
    };
    let times = 1_000;
    let of = |user| beside(&daemon, user, lists, (&Listing::Tenants.first(), times));
    let (alices, roots) = (of(ALICE), of(ROOT));
    assert_measured!(alices < u64::from(times) / 2, "{alices}");
    assert_measured!(roots > 2 * alices, "{roots} beside {alices}");
}

#[test]
fn a_user_who_keeps_all_connections_leaves_others_theirs() {
    const BOB: Uid = Uid::from_raw(65_533);
    let test = "a_user_who_keeps_all_connections_leaves_others_theirs";
    let Some((daemon, _tenants)) = crowded(test) else {
        return;
    };
    gpushared::limits::raise_descriptors().expect("root may have as many");
    let control = daemon.control();
    let alice = Is::user(ALICE);
    let connect = |_| UnixStream::connect(&control).expect("it listens");
    let crowd: Vec<UnixStream> = (0..1_100).map(connect).collect();
    drop(alice);
    for other in [BOB, ROOT] {
        let _is = Is::user(other);
        let reply = Commands::open(&control).ask(&Listing::Devices.first());
        let is_page = matches!(reply, ControlReply::Page { .. });
        assert!(is_page, "{reply:?}");
    }
    drop(crowd);
}

#[test]
fn a_user_who_connects_without_end_does_not_hold_root_back() {
    let test = "a_user_who_connects_without_end_does_not_hold_root_back";
    let Some((daemon, _tenants)) = crowded(test) else {
        return;
    };
    let times = 10_000;
    let of = |user| beside(&daemon, user, connects, (&Listing::Devices.first(), times));
    let (alices, roots) = (of(ALICE), of(ROOT));
    assert_measured!(alices < u64::from(times) / 8, "{alices}");
    assert_measured!(roots > 2 * alices, "{roots} beside {alices}");
}
