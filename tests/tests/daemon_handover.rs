//! Memory that one tenant frees reaches the next tenant that waits for it.

use std::thread;
use std::time::{Duration, Instant};

use gpushare_tests::{Daemon, GIB, Gpu, Guest, Tenant, alloc};

const ROUNDS: usize = 25;

/// How the holder releases its memory.
#[derive(Clone, Copy, Debug)]
enum Giving {
    Frees,
    Ends,
}

/// A new holder of 10 GiB, after the daemon has seen it.
fn holder(daemon: &Daemon, tenant: &Tenant) -> Guest {
    let mut holder = tenant.client("quota", &[]).started();
    assert_eq!(holder.ask(&alloc(10 * GIB)), "alloc 0");
    // The daemon measures the context when it sees its context and its memory.
    daemon.until("a", |row| row.overhead > 0 && row.overhead < GIB / 4);
    holder
}

fn give_back(mut holder: Guest, giving: Giving) -> Option<Guest> {
    match giving {
        Giving::Frees => {
            assert_eq!(holder.ask("free 1"), "free 0");
            Some(holder)
        }
        Giving::Ends => {
            holder.kill();
            None
        }
    }
}

fn hand_over(spec: &str, giving: Giving) -> Vec<Duration> {
    let gpu = Gpu::new(spec);
    let daemon = Daemon::start(&gpu);
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "12GiB"),
    ];
    let (first, second) = (daemon.tenant("a", &limits), daemon.tenant("b", &limits));
    let mut b = second.client("quota", &[]).started();
    let mut a = holder(&daemon, &first);
    let mut taken = Vec::new();
    for _ in 0..ROUNDS {
        b.send(&alloc(10 * GIB));
        daemon.until_one_waits("b");
        let start = Instant::now();
        let kept = give_back(a, giving);
        assert_eq!(b.line(), "alloc 0");
        taken.push(start.elapsed());
        assert_eq!(b.ask("free 1"), "free 0");
        a = match kept {
            Some(mut kept) => {
                assert_eq!(kept.ask(&alloc(10 * GIB)), "alloc 0");
                kept
            }
            None => holder(&daemon, &first),
        };
    }
    told_once(&daemon);
    taken.sort_unstable();
    taken
}

/// Each wait reports each of its states once. The waiting program has three waits at most. A
/// program that replaces an ended one waits for its context, and for steps, as well.
fn told_once(daemon: &Daemon) {
    let waits = daemon.commands().follow(1024);
    let marker = daemon.tenant("last", &[]);
    let told = waits.take_while(|event| event.tenant.as_deref() != Some("last"));
    let told = told.filter(|event| event.kind == "waiting").count();
    drop(marker);
    assert!(
        (ROUNDS..=6 * ROUNDS).contains(&told),
        "{told} for {ROUNDS} waits"
    );
}

#[test]
fn memory_given_back_is_handed_on_and_each_state_of_a_wait_told_once() {
    // A handover is mostly a wait. Each kind has a machine of its own.
    let specs = ["mem=16GiB", "mem=16GiB,linger=0", "mem=16GiB,linger=40"];
    thread::scope(|scope| {
        for (spec, giving) in specs
            .map(|spec| [(spec, Giving::Frees), (spec, Giving::Ends)])
            .concat()
        {
            scope.spawn(move || {
                let taken = hand_over(spec, giving);
                let (median, most) = (taken[ROUNDS / 2], taken[ROUNDS - 1]);
                println!("{spec}, {giving:?}: median {median:?}, most {most:?} of {ROUNDS}");
            });
        }
    });
}
