//! Many clients that allocate and free all the time, while daemons and clients are killed.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use gpushare_tests::{Daemon, GIB, Gpu, Guest, MIB, Tenant};

const TENANTS: [&str; 5] = ["a", "b", "c", "d", "e"];
const CLIENTS: usize = 50;
const HUNDRED: usize = 100;
/// The memory that each of a hundred clients holds, and its context.
const PIECE: u64 = 64 * MIB;
const CONTEXT: u64 = 16 * MIB;
const LIMIT: u64 = 2 * GIB;

struct Stopped {
    held: u64,
    served: u64,
}

fn start(tenant: &Tenant, seed: usize) -> Guest {
    let mut guest = tenant.client("churn", &[]);
    guest.send(&format!("start {seed} {}", 200 * MIB));
    guest
}

/// Lets the daemon measure a context, so that later contexts do not reserve room for the largest
/// possible one.
fn measure_a_context(daemon: &Daemon, tenant: &Tenant, name: &str) -> Guest {
    let first = tenant.client("quota", &[]).started();
    daemon.until(name, |row| row.overhead > 0 && row.overhead < 64 * MIB);
    first
}

/// Fifty working clients in five tenants; they end when they are dropped.
fn fifty(daemon: &Daemon) -> (Vec<Tenant>, Vec<Guest>) {
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "2GiB"),
        ("GPUSHARE_WAIT_TIMEOUT", "300ms"),
    ];
    let tenants: Vec<Tenant> = TENANTS
        .iter()
        .map(|name| daemon.tenant(name, &limits))
        .collect();
    measure_a_context(daemon, &tenants[0], TENANTS[0])
        .finish()
        .silently();
    let mut guests: Vec<Guest> = (0..CLIENTS)
        .map(|at| start(&tenants[at % TENANTS.len()], at))
        .collect();
    for guest in &mut guests {
        assert_eq!(guest.line(), "start 0");
    }
    (tenants, guests)
}

fn stop(guest: &mut Guest) -> Stopped {
    let answer = guest.line();
    let numbers: Vec<u64> = answer
        .split(' ')
        .skip(1)
        .map(|word| word.parse().expect("a number"))
        .collect();
    assert_eq!(numbers[2], 0, "only served or out of memory: {answer}");
    Stopped {
        held: numbers[0],
        served: numbers[1],
    }
}

/// Watches the software GPU's counters for a while.
fn let_pass(daemon: &Daemon, time: Duration) {
    let (end, mut commands) = (Instant::now() + time, daemon.commands());
    while Instant::now() < end {
        for name in TENANTS {
            // `None`: a process changed its charge between two readings.
            if let Some(charged) = commands.charged(name) {
                assert!(charged <= LIMIT, "{name}: {charged}");
            }
        }
    }
}

#[test]
fn fifty_busy_clients_outlive_their_daemons_within_their_limits() {
    let gpu = Gpu::new("mem=16GiB,ctx=16MiB");
    let mut daemon = Daemon::start(&gpu);
    let (_tenants, mut guests) = fifty(&daemon);
    for _ in 0..3 {
        let_pass(&daemon, Duration::from_millis(300));
        daemon.kill();
        daemon.restart();
    }
    for name in TENANTS {
        daemon.until(name, |row| row.processes.len() == CLIENTS / TENANTS.len());
    }
    let_pass(&daemon, Duration::from_millis(300));
    for guest in &mut guests {
        guest.send("stop");
    }
    let mut held = [0; TENANTS.len()];
    for (at, guest) in guests.iter_mut().enumerate() {
        let stopped = stop(guest);
        assert!(stopped.served > 0, "every tenant gets a turn");
        held[at % TENANTS.len()] += stopped.held;
    }
    for (name, held) in TENANTS.iter().zip(held) {
        daemon.until(name, |row| row.charged == held);
    }
    let device = gpu.truth();
    assert_eq!(device.requested_now, held.iter().sum::<u64>());
    let most = LIMIT * TENANTS.len() as u64;
    assert!(
        device.requested_peak <= most,
        "{} of {most} were held",
        device.requested_peak
    );
    guests.into_iter().for_each(|guest| drop(guest.finish()));
}

#[test]
fn once_programs_had_time_to_come_back_fifty_books_are_exact() {
    let gpu = Gpu::new("mem=16GiB,ctx=16MiB");
    // Fifty programs need more than the usual two seconds where other tests have the processors.
    let mut daemon = Daemon::configured(&gpu, "recovery = \"8s\"\n");
    let (_tenants, mut guests) = fifty(&daemon);
    daemon.kill();
    for guest in &mut guests {
        guest.send("stop");
    }
    let mut held = [0; TENANTS.len()];
    for (at, guest) in guests.iter_mut().enumerate() {
        held[at % TENANTS.len()] += stop(guest).held;
    }
    daemon.restart();
    // A newcomer is admitted when the daemon stops waiting for programs to register again. From
    // then on no request must wait for that.
    let _newcomer = daemon.tenant("newcomer", &[("GPUSHARE_MEM_REQUEST", "64MiB")]);
    for (name, held) in TENANTS.iter().zip(held) {
        // One that the machine held up comes back later.
        let row = daemon.until(name, |row| row.processes.len() == CLIENTS / TENANTS.len());
        assert_eq!(row.charged, held, "{name}");
    }
    guests.into_iter().for_each(|guest| drop(guest.finish()));
}

#[test]
fn a_hundred_killed_with_survivors_leave_nothing_granted_twice() {
    let gpu = Gpu::new("mem=16GiB,ctx=16MiB");
    let daemon = Daemon::start(&gpu);
    let alloc = format!("alloc {PIECE}");
    let limits = &[
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "16GiB"),
        ("GPUSHARE_ON_COLLISION", "fail"),
    ];
    let tenants: Vec<Tenant> = TENANTS[..2]
        .iter()
        .map(|name| daemon.tenant(name, limits))
        .collect();
    measure_a_context(&daemon, &tenants[0], TENANTS[0])
        .finish()
        .silently();
    let mut guests: Vec<Guest> = (0..HUNDRED)
        .map(|at| tenants[at % 2].client("quota", &[]))
        .collect();
    let mut survivors = [Vec::new(), Vec::new()];
    for (at, guest) in guests.iter_mut().enumerate() {
        assert_eq!(guest.ask("init"), "init 0");
        assert_eq!(guest.ask(&alloc), "alloc 0");
        if at % 3 == 0 {
            let forked = guest.ask("fork");
            let pid = forked
                .strip_prefix("fork ")
                .and_then(|pid| pid.parse().ok());
            survivors[at % 2].push(Pid::from_raw(pid.expect("a pid")));
        }
    }
    guests.into_iter().for_each(Guest::kill);
    let kept = survivors
        .each_ref()
        .map(|pids| pids.len() as u64 * (PIECE + CONTEXT));
    for (name, kept) in TENANTS.iter().zip(kept) {
        daemon.until(name, |row| row.processes.is_empty() && row.limbo == kept);
    }
    // The survivors' memory is not granted again, not even to their own tenant.
    let mut late = tenants[0].client("quota", &[]).started();
    let filled = late.ask(&format!("fill {PIECE}"));
    let count = filled
        .split(' ')
        .nth(1)
        .and_then(|count| count.parse::<u64>().ok());
    let count = count.expect("a count");
    let kept: u64 = kept.iter().sum();
    let granted: u64 = TENANTS[..2]
        .iter()
        .map(|name| daemon.row(name))
        .map(|row| row.grant + row.overhead + row.limbo)
        .sum();
    assert!(granted <= 16 * GIB, "{granted} are promised");
    assert!(
        count * PIECE + kept + 2 * GIB > 16 * GIB,
        "{filled}: memory that is free and not reserved for the other can be had"
    );
    for pid in survivors.into_iter().flatten() {
        kill(pid, Signal::SIGKILL).expect("it lives");
    }
    daemon.until(TENANTS[1], |row| {
        (row.limbo, row.charged, row.overhead) == (0, 0, 0)
    });
    daemon.until(TENANTS[0], |row| {
        row.limbo == 0 && row.charged == count * PIECE
    });
    assert_eq!(late.ask("check"), format!("check {count}"));
}

#[test]
fn clients_killed_by_the_dozen_leave_nothing_behind() {
    let gpu = Gpu::new("mem=16GiB,ctx=16MiB");
    let daemon = Daemon::start(&gpu);
    let limits = [("GPUSHARE_MEM_LIMIT", "2GiB")];
    let tenants: Vec<Tenant> = TENANTS
        .iter()
        .map(|name| daemon.tenant(name, &limits))
        .collect();
    measure_a_context(&daemon, &tenants[0], TENANTS[0])
        .finish()
        .silently();
    for round in 0..3 {
        let mut guests: Vec<Guest> = (0..25)
            .map(|at| start(&tenants[at % TENANTS.len()], round * 100 + at))
            .collect();
        for guest in &mut guests {
            assert_eq!(guest.line(), "start 0");
        }
        let_pass(&daemon, Duration::from_millis(100));
        guests.into_iter().for_each(Guest::kill);
    }
    for name in TENANTS {
        daemon.until(name, |row| {
            row.charged == 0 && row.limbo == 0 && row.overhead == 0 && row.processes.is_empty()
        });
    }
    let mut guest = tenants[0].client("quota", &[]).started();
    assert_eq!(guest.ask(&format!("fill {}", 256 * MIB)), "fill 8 2");
}
