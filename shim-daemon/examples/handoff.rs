//! How long a turn takes to change hands: from one process's word that it has drained until the
//! other sees its turn.
//!
//! Two processes of two tenants, driven by this program, hand a device to and fro as fast as the
//! daemon lets them. The daemon runs in a process of its own, on a fake device. Nothing is
//! asserted; it prints its measurements.
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

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use gpushare_protocol::wire::ControlReply;
use gpushared::server::{CONTROL, SOCKET};
use support::gate::{Gated, now};
use support::{Daemon, Wire, create};

/// Passes a device between two processes and measures how long that takes.
#[derive(Debug, Parser)]
struct Args {
    /// Turns in all
    #[arg(long, default_value_t = 2000)]
    turns: usize,
    /// The daemon's part, in this folder
    #[arg(long, hide = true)]
    serve: Option<PathBuf>,
}

fn main() {
    let args = Args::parse();
    if let Some(folder) = args.serve {
        let _daemon = Daemon::start(&folder);
        // Until the measurement ends, however it ends.
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = start(folder.path());
    let mut owner = Wire::connect(&folder.path().join(CONTROL));
    let [mut a, mut b] = ["a", "b"]
        .map(|name| {
            let limits = [("GPUSHARE_MEM_LIMIT", "2GiB")];
            match owner.call(&create(name, &limits)) {
                ControlReply::Created { folder, .. } => Path::new(&folder).join(SOCKET),
                other => panic!("{other:?}"),
            }
        })
        .map(|socket| Gated::join(&socket));
    let (ends, given) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut taken = std::thread::scope(|scope| {
        let other = scope.spawn(|| play(&mut b, &ends, &given, usize::MAX));
        let mine = play(&mut a, &ends, &given, args.turns / 2);
        ends.store(true, Ordering::Relaxed);
        [mine, other.join().unwrap()].concat()
    });
    taken.sort_unstable();
    let at = |part: f64| taken[((taken.len() - 1) as f64 * part) as usize] as f64 / 1e3;
    println!(
        "{} handoffs: p50 {:.1} us (goal, with the gates' part: 30), p90 {:.1} us, p99 {:.1} us, max {:.1} us",
        taken.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
    drop(daemon.stdin.take());
    daemon.wait().unwrap();
}

/// Takes turns and gives each back at once. How long each took to come, in nanoseconds, since the
/// other gave its own back.
fn play(gate: &mut Gated, ends: &AtomicBool, given: &AtomicU64, turns: usize) -> Vec<u64> {
    let (mut last, mut taken) = (0, Vec::new());
    while taken.len() < turns {
        let Some(turn) = gate.get_turn(last, ends) else {
            break;
        };
        let since = given.swap(0, Ordering::Relaxed);
        if since != 0 {
            taken.push(now().saturating_sub(since));
        }
        last = turn.word.epoch();
        // The other process must have asked before this turn ends, or the turn is not handed on.
        gate.until(|turn| turn.contended || ends.load(Ordering::Relaxed));
        gate.want(last);
        given.store(now(), Ordering::Relaxed);
        gate.drained(last);
    }
    taken
}

fn start(folder: &Path) -> Child {
    let daemon = Command::new(std::env::current_exe().unwrap())
        .arg("--serve")
        .arg(folder)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while UnixStream::connect(folder.join(CONTROL)).is_err() {
        assert!(Instant::now() < deadline, "the daemon did not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon
}
