//! Turns on a device, over real sockets and pages: gates played by hand, the daemon as it is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::gate::Gated;
use crate::support::{Client, Daemon, FakeDevices, Wire, until};
use gpushare_core::{LeasePolicy, Nanos, Policy};
use gpushare_protocol::page::lease::LeaseState;
use gpushare_protocol::wire::*;
use gpushared::node::Settings;
use gpushared::server::Reload;
use nix::sys::eventfd::EventFd;

const HOUR: Nanos = Nanos::secs(3600);

/// A daemon that waits this long for a tenant to drain.
fn daemon(folder: &Path, overrun: Nanos) -> Daemon {
    let policy = LeasePolicy::turns();
    dealing(folder, LeasePolicy { overrun, ..policy })
}

/// A daemon that deals turns so.
fn dealing(folder: &Path, lease: LeasePolicy) -> Daemon {
    let base = Settings::default();
    let policy = Policy {
        lease,
        ..base.policy
    };
    let settings = Settings { policy, ..base };
    Daemon::with_settings(folder, FakeDevices::default(), settings)
}

fn share(percent: &'static str) -> [(&'static str, &'static str); 2] {
    [
        ("GPUSHARE_MEM_LIMIT", "2GiB"),
        ("GPUSHARE_SM_REQUEST", percent),
    ]
}

const PLAIN: [(&str, &str); 1] = [("GPUSHARE_MEM_LIMIT", "2GiB")];

fn shares(wire: &mut Wire) -> Vec<ShareRow> {
    match wire.call(&Listing::Shares.first()) {
        ControlReply::Page {
            rows: Rows::Shares(rows),
            ..
        } => rows,
        other => panic!("{other:?}"),
    }
}

/// Waits for an event of this kind about this tenant.
fn event(daemon: &Daemon, kind: &str, tenant: &str) -> EventRecord {
    let mut wire = daemon.command();
    let id = wire.ask(&Control::Follow { past: 1000 });
    loop {
        match wire.answer(id) {
            ControlReply::Event(row)
                if row.kind == kind && row.tenant.as_deref() == Some(tenant) =>
            {
                return row;
            }
            ControlReply::Event(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Set for ever when it is dropped, also by a panic: no thread continues to work for a test that
/// has ended.
#[derive(Default)]
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// From when to when a program held the device, turn by turn: until it ends or has had so many
/// turns.
fn take_turns(gate: &mut Gated, ends: &AtomicBool, turns: usize) -> Vec<(u64, u64)> {
    let (mut last, mut held) = (0, Vec::new());
    while held.len() < turns
        && let Some((epoch, from, to)) = gate.take_turn(last, ends)
    {
        last = epoch;
        held.push((from, to));
    }
    held
}

fn sum(held: &[(u64, u64)]) -> u64 {
    held.iter().map(|(from, to)| to - from).sum()
}

/// Lets two programs that always have work take turns, until the first has had `turns` of them.
/// Returns the spans in which each held the device.
fn contend(first: &mut Gated, second: &mut Gated, turns: usize) -> [Vec<(u64, u64)>; 2] {
    std::thread::scope(|scope| {
        let ends = Ends::default();
        let flag = Arc::clone(&ends.0);
        let other = scope.spawn(move || take_turns(second, &flag, usize::MAX));
        let held = take_turns(first, &AtomicBool::new(false), turns);
        drop(ends);
        [held, other.join().unwrap()]
    })
}

#[test]
fn one_alone_is_free_and_two_take_turns_by_weight_never_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), HOUR);
    let (_a, a) = daemon.tenant("a", &share("70"));
    let (_b, b) = daemon.tenant("b", &share("30"));
    let mut a = Gated::join(&a);
    assert_eq!(a.turn().word.state(), LeaseState::Free);
    let mut b = Gated::join(&b);
    let [first, mut second] = contend(&mut a, &mut b, 30);
    let end = first.last().unwrap().1;
    second.retain(|(_, to)| *to <= end);
    // Tests in virtual time check the shares; a machine that stalls would change them here.
    let part = sum(&first) as f64 / (sum(&first) + sum(&second)) as f64;
    println!("the first had {part:.2} of the time");
    let mut all = [first, second].concat();
    all.sort_unstable();
    for pair in all.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two held at once: {pair:?}");
    }
    let rows = shares(&mut daemon.command());
    let weights: Vec<_> = rows.iter().map(|row| (row.weight, row.overruns)).collect();
    assert_eq!(weights, [(700, 0), (300, 0)]);
    assert!(rows.iter().all(|row| row.turns > 0), "{rows:?}");
}

#[test]
fn the_last_one_left_is_free_again() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), HOUR);
    let (_a, a) = daemon.tenant("a", &PLAIN);
    let (_b, b) = daemon.tenant("b", &PLAIN);
    let mut gate = Gated::join(&a);
    let mut other = Keeper::start(&b);
    gate.make_way();
    other.holds();
    other.kill();
    gate.until(|turn| turn.word.state() == LeaseState::Free);
}

#[test]
fn a_holder_that_says_nothing_is_passed_over_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), Nanos::millis(10));
    let (_a, a) = daemon.tenant("mute", &PLAIN);
    let (_b, b) = daemon.tenant("other", &PLAIN);
    let mute = Gated::join(&a);
    let mut other = Gated::join(&b);
    // It had the device for itself and goes on as if it had.
    other.get_turn(0, &AtomicBool::new(false)).unwrap();
    assert_eq!(mute.turn().word.state(), LeaseState::Closed);
    let row = event(&daemon, "overrun", "mute");
    assert!(row.text.contains("not drained"), "{}", row.text);
    let rows = shares(&mut daemon.command());
    assert!(rows[0].overruns >= 1 && rows[1].overruns == 0, "{rows:?}");
}

#[test]
fn a_holder_that_dies_frees_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), HOUR);
    let (_a, a) = daemon.tenant("dies", &PLAIN);
    let (_b, b) = daemon.tenant("lives", &PLAIN);
    let mut lives = Gated::join(&b);
    let mut holder = Keeper::start(&a);
    lives.make_way();
    holder.holds();
    let closed = lives.turn().word;
    assert_eq!(closed.state(), LeaseState::Closed, "one at a time");
    let epoch = closed.epoch();
    lives.say(&Request::Wanted {
        device_index: 0,
        epoch,
    });
    holder.kill();
    lives.until(|turn| turn.word.state() != LeaseState::Closed);
}

#[test]
fn a_cap_is_shown_and_kept_by_one_alone_and_set_changes_it() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), HOUR);
    let (_owner, socket) = daemon.tenant("capped", &[("GPUSHARE_SM_LIMIT", "30")]);
    let mut gate = Gated::join(&socket);
    let shown = gate.until(|turn| turn.word.state() != LeaseState::Free);
    assert_eq!(shown.cap, 300);
    assert!(gate.heartbeat() > 0, "a new page is no stale one");
    let held = take_turns(&mut gate, &AtomicBool::new(false), 40);
    // The bucket may be full at first, and a late wake-up only makes it less.
    // Whole cycles: a turn is paid for before the next one starts.
    let (last, dry) = held[10..].split_last().unwrap();
    let over = last.0 - dry.first().unwrap().0;
    let part = sum(dry) as f64 / over as f64;
    assert!(part < 0.5, "{part}: {held:?}");
    let mut command = daemon.command();
    let limit = |value: &str| Control::Set {
        tenant: "capped".to_owned(),
        changes: vec![("GPUSHARE_SM_LIMIT".to_owned(), value.to_owned())],
    };
    let reply: ControlReply = command.call(&limit("100"));
    assert_eq!(reply, ControlReply::Done);
    let free = gate.until(|turn| turn.word.state() == LeaseState::Free);
    assert_eq!(free.cap, 0);
    let reply: ControlReply = command.call(&limit("half"));
    assert!(matches!(reply, ControlReply::Error(_)), "{reply:?}");
}

#[test]
fn a_file_read_again_changes_how_long_turns_are_while_programs_run() {
    let folder = tempfile::tempdir().unwrap();
    let bell = Arc::new(EventFd::new().unwrap());
    let ours = Arc::clone(&bell);
    let reload = Reload {
        bell: bell.as_fd().try_clone_to_owned().unwrap(),
        read: Box::new(move || {
            ours.read().unwrap();
            let text = "[compute]\nsharing = \"turns\"\nprofile = \"interactive\"";
            gpushared::config::read(text, Settings::default()).map(Some)
        }),
    };
    let turns = "[compute]\nsharing = \"turns\"";
    let settings = gpushared::config::read(turns, Settings::default()).unwrap();
    let devices = FakeDevices::default();
    let daemon = Daemon::with_file(folder.path(), devices, settings, Some(reload));
    let (_a, a) = daemon.tenant("a", &PLAIN);
    let (_b, b) = daemon.tenant("b", &PLAIN);
    let (mut a, mut b) = (Gated::join(&a), Gated::join(&b));
    let mut last = || {
        let [held, _] = contend(&mut a, &mut b, 3);
        let (from, to) = held[2];
        to - from
    };
    until("turns take 20 ms", || last() > 15_000_000);
    bell.write(1).unwrap();
    until("turns take 5 ms", || last() < 15_000_000);
}

#[test]
fn a_library_without_a_gate_takes_no_turns_and_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), HOUR);
    let (_a, a) = daemon.tenant("old", &PLAIN);
    let (_b, b) = daemon.tenant("new", &PLAIN);
    let mut old = Client::register(&a);
    assert!(matches!(old.open(), Reply::Granted { .. }));
    let mut gate = Gated::join(&b);
    event(&daemon, "ungated", "old");
    // It is the only tenant that takes turns, so it is not delayed.
    gate.get_turn(0, &AtomicBool::new(false)).unwrap();
    let rows = shares(&mut daemon.command());
    assert_eq!(
        rows.iter().map(|row| row.ungated).collect::<Vec<_>>(),
        [1, 0]
    );
}

/// Everything a gate can say, of turns that were, may be and never will be.
fn flood(wire: &mut Wire, epoch: u64, ends: &AtomicBool) {
    let mut frames = Vec::new();
    for forged in [0, 1, epoch, epoch + 1, epoch + 1000, u64::MAX] {
        for device_index in [0, 1, 15, 16, 255] {
            let epoch = forged;
            for request in [
                Request::Wanted {
                    device_index,
                    epoch,
                },
                Request::Idle {
                    device_index,
                    epoch,
                },
                Request::Busy {
                    device_index,
                    epoch,
                },
                Request::Drained {
                    device_index,
                    epoch,
                },
            ] {
                encode(7, &request, &mut frames).unwrap();
            }
        }
    }
    let mut sent = 0;
    while !ends.load(Ordering::Relaxed) {
        // The daemon reads it slower than it is written: that is what bounds it.
        sent += std::io::Write::write(&mut wire.socket, &frames[sent..]).unwrap_or(0);
        sent %= frames.len();
    }
}

#[test]
fn floods_of_forged_reports_cost_others_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), HOUR);
    let (_a, a) = daemon.tenant("a", &PLAIN);
    let (_b, b) = daemon.tenant("b", &PLAIN);
    let (_c, c) = daemon.tenant("liar", &PLAIN);
    let (mut a, mut b) = (Gated::join(&a), Gated::join(&b));
    // The liar has no context: all it says is about turns it has not.
    let mut liars: Vec<Client> = (0..4)
        .map(|_| Client::register_with(&c, Hello::GATED))
        .collect();
    let epoch = a.turn().word.epoch();
    let held = std::thread::scope(|scope| {
        let ends = Ends::default();
        for liar in &mut liars {
            let ends = Arc::clone(&ends.0);
            let bound = Some(std::time::Duration::from_millis(100));
            liar.wire.socket.set_write_timeout(bound).unwrap();
            scope.spawn(move || flood(&mut liar.wire, epoch, &ends));
        }
        contend(&mut a, &mut b, 20)
    });
    let [first, second] = held.map(|held| sum(&held) as f64);
    let part = first / (first + second);
    println!("the first had {part:.2} of the time");
    let rows = shares(&mut daemon.command());
    assert_eq!(rows.iter().map(|row| row.overruns).sum::<u64>(), 0);
    assert_eq!(rows[2].turns, 0, "{rows:?}");
}

#[test]
fn turns_of_a_new_daemon_are_above_those_of_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let first = daemon(folder.path(), HOUR);
    let (_a, a) = first.tenant("a", &PLAIN);
    let (_b, b) = first.tenant("b", &PLAIN);
    let (mut gate, mut other) = (Gated::join(&a), Gated::join(&b));
    contend(&mut gate, &mut other, 3);
    let old = gate.turn().word.epoch();
    drop(first);
    let second = daemon(folder.path(), HOUR);
    let mut client = gate.client;
    let reply = client.reconnect_with(&a, Hello::GATED);
    assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
    client.wire.descriptors.truncate(1);
    let mut gate = Gated::map(client);
    assert_eq!(gate.turn().word.state(), LeaseState::Free);
    assert!(gate.heartbeat() > 0, "a new page is no stale one");
    assert!(matches!(gate.client.open(), Reply::Granted { .. }));
    // New processes come once the old ones have had their time.
    let (_d, d) = second.tenant("d", &PLAIN);
    let mut newcomer = Gated::join_after_recovery(&d);
    // A report about an old turn has no effect.
    gate.drained(old);
    gate.until(|turn| turn.word.state() != LeaseState::Free);
    assert!(gate.turn().word.epoch() > old);
    contend(&mut gate, &mut newcomer, 3);
}

/// A process that takes one turn and never gives it back.
struct Keeper {
    process: Child,
    says: BufReader<ChildStdout>,
}

impl Keeper {
    /// Starts it and waits until it has a context.
    fn start(socket: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "turns::a_process_that_keeps_its_turn",
                "--ignored",
            ])
            .arg("--nocapture")
            .env(CHILD, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(process.stdout.take().unwrap());
        let mut keeper = Self { process, says };
        keeper.until("joined");
        keeper
    }

    fn until(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim_end() != word {
            line.clear();
            assert!(self.says.read_line(&mut line).unwrap() > 0, "no {word}");
        }
    }

    /// Waits until it has its turn.
    fn holds(&mut self) {
        self.until("holds");
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Set for a child: where its tenant's socket is.
const CHILD: &str = "GPUTEST_TURNS_CHILD";

/// The child: a process that takes one turn, says so, and never gives it back.
#[test]
#[ignore = "the process other tests start"]
fn a_process_that_keeps_its_turn() {
    let Some(socket) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let mut gate = Gated::join(&socket);
    println!("\njoined");
    gate.get_turn(0, &AtomicBool::new(false)).unwrap();
    println!("\nholds");
    std::io::stdin().lines().for_each(drop);
}
