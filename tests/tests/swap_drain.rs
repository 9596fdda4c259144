//! With the real daemon and the real library: a tenant whose submitted work takes longer to end
//! than its first time for that leaves in a longer one. One whose work never ends stays.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gpushare_protocol::wire::Place;
use gpushare_tests::{Daemon, Gpu, Guest, Tenant, until};

const NODE: &str = "first_context = \"4MiB\"\n[swap]\nhost = \"2GiB\"\n";
/// Room for one tenant of 128 MiB, and for no half of a second one.
const DEVICE: &str = "mem=170MiB,ctx=2MiB";
const LIMIT: (&str, &str) = ("GPUSHARE_MEM_LIMIT", "150MiB");
/// Longer than the moves and the times to drain take on a busy machine.
const PATIENCE: (&str, &str) = ("GPUSHARE_WAIT_TIMEOUT", "240s");
/// A kernel that needs its memory for half a second, and how many are queued at least: together
/// they take longer than the first time to drain, two seconds.
const KERNEL: &str = "hold 1 500000000";
const QUEUED: usize = 6;

fn tenant(daemon: &Daemon, name: &str, resolvers: &str) -> (Tenant, Guest) {
    let terms = [LIMIT, PATIENCE, ("GPUSHARE_ON_COLLISION", resolvers)];
    let tenant = daemon.tenant(name, &terms);
    let guest = tenant.client("moves", &[]);
    (tenant, guest)
}

/// One more kernel, once so many only are queued.
fn step(guest: &mut Guest, number: usize) {
    guest.does(KERNEL);
    guest.does(&format!("record {} 1", number % 8));
    if number >= QUEUED {
        guest.does(&format!("sync {}", (number - QUEUED) % 8));
    }
}

#[test]
fn a_tenant_with_seconds_of_work_queued_takes_turns() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::configured(&gpu, NODE);
    let (_one, mut first) = tenant(&daemon, "one", "swap");
    let (_two, mut second) = tenant(&daemon, "two", "swap");
    first.does("init");
    first.does("make 1 1");
    let (steps, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
    let works = |more: usize| {
        let before = steps.load(Ordering::Relaxed);
        until("the first works", || {
            steps.load(Ordering::Relaxed) >= before + more
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let number = steps.load(Ordering::Relaxed);
                step(&mut first, number);
                steps.store(number + 1, Ordering::Relaxed);
            }
        });
        works(QUEUED + 1);
        second.does("init");
        let stayed = daemon.events("did-not-leave").len();
        assert!(stayed > 0, "its first time to drain is too short");
        works(QUEUED + 1);
        assert_eq!(daemon.residency("two").place, Place::Out);
        ends.store(true, Ordering::Relaxed);
    });
    assert!(daemon.residency("one").left >= 1 && daemon.residency("two").left >= 1);
    first.does("wait 1");
}

#[test]
fn a_tenant_whose_work_never_ends_stays_until_it_does() {
    let gpu = Gpu::new(DEVICE);
    let daemon = Daemon::configured(&gpu, NODE);
    let (_one, mut first) = tenant(&daemon, "one", "swap");
    let (_two, mut second) = tenant(&daemon, "two", "swap,fail");
    for order in ["init", "make 1 1", "make 2 1", "await 1"] {
        first.does(order);
    }
    assert_eq!(second.ask("init"), "init 2");
    assert!(!daemon.events("did-not-leave").is_empty());
    assert_eq!(daemon.residency("one").left, 0);
    for order in ["write 2", "wait 1"] {
        first.does(order);
    }
    until("it leaves once its work has ended", || {
        second.ask("init") == "init 0"
    });
    assert_eq!(daemon.residency("one").left, 1);
    first.does("setnow 4096");
}
