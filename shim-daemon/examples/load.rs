//! Measures the latency of asks and the daemon's cost: many connected clients, an open loop of
//! asks, then an idle phase.
//!
//! The daemon runs in a process of its own, on a fake device. The load runs on one thread that
//! never sleeps, so that it is not late itself. An ask's time counts from its *due* time, so it
//! includes the wait behind slow asks. Nothing is asserted; `scripts/bench.sh` prints this output.
#![allow(
    clippy::unwrap_used,
    reason = "a measurement that cannot go on has failed"
)]
#![allow(
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "it prints its measurements; its numbers are small and positive"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use gpushare_protocol::units::MIB;
use gpushare_protocol::wire::{
    Ask, Control, ControlReply, Decoder, Listing, Reply, Request, Rows, decode, encode,
};
use gpushared::server::{CONTROL, SOCKET};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use support::gate::Gated;
use support::{Client, Daemon, Wire, create};

/// Asks of a daemon by many clients, and their cost.
#[derive(Debug, Parser)]
struct Args {
    /// Connected processes
    #[arg(long, default_value_t = 1000)]
    clients: usize,
    /// Tenants they are in; the device has 16 GiB
    #[arg(long, default_value_t = 20)]
    tenants: usize,
    /// Asks a second, all clients together
    #[arg(long, default_value_t = 2000)]
    rate: u32,
    /// How long they ask, and how long they then do nothing
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// MiB of the largest ask; if all tenants at that size do not fit, grants have to be taken
    /// back from others
    #[arg(long, default_value_t = 96)]
    most: u64,
    /// Tenants beside them that take turns on the device all the time
    #[arg(long, default_value_t = 2)]
    turns: usize,
    /// Only start the daemon in this folder and connect, print the daemon's pid, and stay until the
    /// standard input ends: for `scripts/bench_observe.sh`
    #[arg(long)]
    hold: Option<std::path::PathBuf>,
    /// The daemon's part, in this folder
    #[arg(long, hide = true)]
    serve: Option<std::path::PathBuf>,
    /// Act as the clients that take turns, with the daemon in this folder
    #[arg(long, hide = true)]
    play: Option<std::path::PathBuf>,
}

fn main() {
    let args = Args::parse();
    gpushared::limits::raise_descriptors().unwrap();
    if let Some(folder) = args.serve {
        let _daemon = Daemon::start(&folder);
        // Until the measurement ends, however it ends.
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        return;
    }
    if let Some(folder) = args.play {
        return play(&folder, args.turns);
    }
    if let Some(folder) = &args.hold {
        return hold(folder, &args);
    }
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path());
    let pid = daemon.id();
    idle("idle, no client connected", pid, args.seconds);
    let (_owner, clients) = connect(folder.path(), &args);
    let players = part(
        "--play",
        folder.path(),
        &["--turns", &args.turns.to_string()],
    );
    let before = cpu(pid);
    let (mut taken, lost) = load(&clients, &args);
    let used = (cpu(pid) - before).as_secs_f64() / f64::from(args.seconds);
    taken.sort_unstable();
    let at = |part: f64| taken[((taken.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    println!(
        "{} clients, {} tenants, {} asks/s of up to {} MiB for {} s: {} answered, {lost} not",
        args.clients,
        args.tenants,
        args.rate,
        args.most,
        args.seconds,
        taken.len()
    );
    println!(
        "  latency from when it was due: p50 {:.1} us (goal 50), p99 {:.1} us (goal 1000), p99.9 {:.1} us, max {:.1} us",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    println!(
        "  daemon: {:.2} % of a core, {}",
        used * 100.0,
        resident(pid)
    );
    show_turns(folder.path());
    stop(players);
    idle("idle, all connected", pid, args.seconds);
    drop(clients);
    stop(daemon);
}

/// A daemon with its tenants and clients, for others to look at.
fn hold(folder: &Path, args: &Args) {
    let daemon = start(folder);
    let (owner, clients) = connect(folder, args);
    println!("{}", daemon.id());
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop((owner, clients));
    stop(daemon);
}

fn start(folder: &Path) -> Child {
    let daemon = part("--serve", folder, &[]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while UnixStream::connect(folder.join(CONTROL)).is_err() {
        assert!(Instant::now() < deadline, "the daemon did not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon
}

/// A part of the measurement in a process of its own, until its input ends.
fn part(name: &str, folder: &Path, arguments: &[&str]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .arg(name)
        .arg(folder)
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap()
}

fn stop(mut part: Child) {
    drop(part.stdin.take());
    part.wait().unwrap();
}

/// Programs that always have work, a tenant each, until this process's input ends.
fn play(folder: &Path, tenants: usize) {
    let mut owner = Wire::connect(&folder.join(CONTROL));
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..tenants {
            let limits = [("GPUSHARE_MEM_LIMIT", "64MiB")];
            let socket = match owner.call(&create(&format!("turn-{number}"), &limits)) {
                ControlReply::Created { folder, .. } => Path::new(&folder).join(SOCKET),
                other => panic!("{other:?}"),
            };
            let (mut gate, ends) = (Gated::join(&socket), &ends);
            scope.spawn(move || {
                let mut last = 0;
                while let Some((epoch, ..)) = gate.take_turn(last, ends) {
                    last = epoch;
                }
            });
        }
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        ends.store(true, Ordering::Relaxed);
    });
}

fn show_turns(folder: &Path) {
    match Wire::connect(&folder.join(CONTROL)).call(&Listing::Shares.first()) {
        ControlReply::Page {
            rows: Rows::Shares(rows),
            ..
        } => {
            for row in rows.iter().filter(|row| row.turns > 1) {
                println!(
                    "  {}: {} turns, {} overruns, {:.1} % of the last {:.1} s",
                    row.name,
                    row.turns,
                    row.overruns,
                    f64::from(row.held) / 10.0,
                    row.over_ms as f64 / 1e3
                );
            }
        }
        other => panic!("{other:?}"),
    }
}

/// Nearly all of it is a burst, so grants move. A context of each is promised too: more tenants
/// do not fit the device.
const LIMITS: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_REQUEST", "1MiB"),
    ("GPUSHARE_MEM_LIMIT", "8GiB"),
];

/// Registers the tenants and then the clients, each with a connection of its own.
fn connect(folder: &Path, args: &Args) -> (Wire, Vec<Client>) {
    let mut owner = Wire::connect(&folder.join(CONTROL));
    let sockets: Vec<_> = (0..args.tenants)
        .map(|number| {
            let request: Control = create(&format!("load-{number}"), &LIMITS);
            match owner.call(&request) {
                ControlReply::Created { folder, .. } => Path::new(&folder).join(SOCKET),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    let clients =
        (0..args.clients).map(|number| Client::register(&sockets[number % sockets.len()]));
    (owner, clients.collect())
}

/// The open loop. Returns the times of those answered, and how many were not within ten seconds of
/// the end.
fn load(clients: &[Client], args: &Args) -> (Vec<Duration>, usize) {
    let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
    for (number, client) in (0..).zip(clients) {
        client.wire.socket.set_nonblocking(true).unwrap();
        epoll
            .add(
                &client.wire.socket,
                EpollEvent::new(EpollFlags::EPOLLIN, number),
            )
            .unwrap();
    }
    let mut decoders: Vec<Decoder> = clients.iter().map(|_| Decoder::default()).collect();
    let (total, start) = (
        args.rate * args.seconds,
        Instant::now() + Duration::from_millis(50),
    );
    let due = |number: u32| start + Duration::from_secs(1) * number / args.rate;
    let end = due(total) + Duration::from_secs(10);
    let (mut sent, mut taken, mut random) = (0, Vec::new(), 0x9e37_79b9_7f4a_7c15_u64);
    let mut ready = [EpollEvent::empty(); 64];
    while taken.len() < total as usize && Instant::now() < end {
        while sent < total && due(sent) <= Instant::now() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let client = &clients[(random >> 32) as usize % clients.len()];
            ask(
                &client.wire.socket,
                FIRST + sent,
                (1 + random % args.most) * MIB,
            );
            sent += 1;
        }
        let count = epoll.wait(&mut ready, EpollTimeout::ZERO).unwrap();
        for event in &ready[..count] {
            let at = event.data() as usize;
            for number in answers(&clients[at].wire.socket, &mut decoders[at]) {
                taken.push(due(number).elapsed());
            }
        }
    }
    let lost = total as usize - taken.len();
    (taken, lost)
}

/// Ids of measured asks begin here: registering used lower ones.
const FIRST: u32 = 1000;

fn ask(mut socket: &UnixStream, id: u32, bytes: u64) {
    let wanted = Ask {
        device_index: 0,
        held: 0,
        bytes,
        patience_ms: None,
    };
    let mut frame = Vec::new();
    encode(id, &Request::Ask(wanted), &mut frame).unwrap();
    socket.write_all(&frame).unwrap();
}

/// The asks that the received data answers.
fn answers(mut socket: &UnixStream, decoder: &mut Decoder) -> Vec<u32> {
    let mut buffer = [0; 4096];
    let read = socket.read(&mut buffer).unwrap();
    assert!(read > 0, "the daemon closed a connection");
    decoder.push(&buffer[..read]);
    let frames = std::iter::from_fn(|| decoder.next_frame().unwrap());
    frames
        .map(|(id, body)| match decode(id, &body).unwrap() {
            Reply::Granted { .. } => id - FIRST,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn idle(name: &str, pid: u32, seconds: u32) {
    let (before, time) = (cpu(pid), Duration::from_secs(seconds.into()));
    std::thread::sleep(time);
    let share = (cpu(pid) - before).as_secs_f64() / time.as_secs_f64() * 100.0;
    println!(
        "{name}: {share:.3} % of a core (goal 0.1), {}",
        resident(pid)
    );
}

/// Processor time of all its threads so far, as the scheduler counted it.
fn cpu(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanos = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    Duration::from_nanos(threads.map(|thread| nanos(thread.unwrap())).sum())
}

/// Memory in use: its own, and pages it shares with clients.
fn resident(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kib = |name: &str| -> f64 {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        line.trim_end_matches("kB").trim().parse().unwrap()
    };
    let mib = |name| kib(name) / 1024.0;
    format!(
        "{:.1} MiB resident (goal 20), {:.1} of it shared with clients",
        mib("VmRSS:"),
        mib("RssShmem:")
    )
}
