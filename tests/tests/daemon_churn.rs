//! Many clients that allocate and free all the time, while daemons and clients are killed.

use std::time::{Duration, Instant};

use gpushare_tests::{Container, Daemon, GIB, Gpu, Guest, MIB};

const CONTAINERS: [&str; 5] = ["a", "b", "c", "d", "e"];
const CLIENTS: usize = 50;
const LIMIT: u64 = 2 * GIB;

struct Stopped {
    held: u64,
    served: u64,
}

fn start(container: &Container, seed: usize) -> Guest {
    let mut guest = container.client("churn", &[]);
    guest.send(&format!("start {seed} {}", 200 * MIB));
    guest
}

/// Lets the daemon learn what a context takes here, so that the next ones need not wait for room for the largest.
fn measure_a_context(daemon: &Daemon, container: &Container, name: &str) -> Guest {
    let mut first = container.client("quota", &[]);
    assert_eq!(first.ask("init"), "init 0");
    daemon.until(name, |row| row.overhead > 0 && row.overhead < 64 * MIB);
    first
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

/// Watches the books for a while.
fn let_pass(daemon: &Daemon, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        for name in CONTAINERS {
            let row = daemon.row(name);
            assert!(row.charged <= LIMIT, "{row:?}");
        }
    }
}

#[test]
fn fifty_busy_clients_outlive_their_daemons_within_their_limits() {
    let gpu = Gpu::new("mem=16GiB,ctx=16MiB");
    let mut daemon = Daemon::start(&gpu);
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "2GiB"),
        ("GPUSHARE_WAIT_TIMEOUT", "300ms"),
    ];
    let containers: Vec<Container> = CONTAINERS
        .iter()
        .map(|name| daemon.container(name, &limits))
        .collect();
    measure_a_context(&daemon, &containers[0], CONTAINERS[0])
        .finish()
        .silently();
    let mut guests: Vec<Guest> = (0..CLIENTS)
        .map(|at| start(&containers[at % CONTAINERS.len()], at))
        .collect();
    for guest in &mut guests {
        assert_eq!(guest.line(), "start 0");
    }
    for _ in 0..3 {
        let_pass(&daemon, Duration::from_millis(300));
        daemon.kill();
        daemon.restart();
    }
    for name in CONTAINERS {
        daemon.until(name, |row| {
            row.processes.len() == CLIENTS / CONTAINERS.len()
        });
    }
    let_pass(&daemon, Duration::from_millis(300));
    for guest in &mut guests {
        guest.send("stop");
    }
    let mut held = [0; CONTAINERS.len()];
    for (at, guest) in guests.iter_mut().enumerate() {
        let stopped = stop(guest);
        assert!(stopped.served > 0, "everybody gets a turn");
        held[at % CONTAINERS.len()] += stopped.held;
    }
    for (name, held) in CONTAINERS.iter().zip(held) {
        daemon.until(name, |row| row.charged == held);
    }
    let truth = softgpu::inspect::snapshot(gpu.name()).unwrap().unwrap();
    let device = &truth.devices[0];
    assert_eq!(device.requested_now, held.iter().sum::<u64>());
    assert!(device.requested_peak <= LIMIT * CONTAINERS.len() as u64);
    guests.into_iter().for_each(|guest| drop(guest.finish()));
}

#[test]
fn clients_killed_by_the_dozen_leave_nothing_behind() {
    let gpu = Gpu::new("mem=16GiB,ctx=16MiB");
    let daemon = Daemon::start(&gpu);
    let limits = [("GPUSHARE_MEM_LIMIT", "2GiB")];
    let containers: Vec<Container> = CONTAINERS
        .iter()
        .map(|name| daemon.container(name, &limits))
        .collect();
    measure_a_context(&daemon, &containers[0], CONTAINERS[0])
        .finish()
        .silently();
    for round in 0..3 {
        let mut guests: Vec<Guest> = (0..25)
            .map(|at| start(&containers[at % CONTAINERS.len()], round * 100 + at))
            .collect();
        for guest in &mut guests {
            assert_eq!(guest.line(), "start 0");
        }
        let_pass(&daemon, Duration::from_millis(100));
        guests.into_iter().for_each(Guest::kill);
    }
    for name in CONTAINERS {
        daemon.until(name, |row| {
            row.charged == 0 && row.limbo == 0 && row.overhead == 0 && row.processes.is_empty()
        });
    }
    let mut guest = containers[0].client("quota", &[]);
    assert_eq!(guest.ask("init"), "init 0");
    assert_eq!(guest.ask(&format!("fill {}", 256 * MIB)), "fill 8 2");
}
