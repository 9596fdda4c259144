//! What the software GPU's books say of the turns: while one container has its turn nothing of another's runs, whatever its threads do.

use std::time::{Duration, Instant};

use gpushare_protocol::wire::{Control, ControlReply, ShareRow};
use gpushare_tests::turns::Seen;
use gpushare_tests::{Container, Daemon, Gpu, Guest, Watch};

/// The longest a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);
/// Turns each container must have had: a gate that closed seldom shows little.
const TURNS: u64 = 60;

/// Short turns, and nobody is let in beside another however long that takes to drain: the machine may be busy.
fn strict(gpu: &Gpu) -> (tempfile::TempDir, Daemon) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("config.toml");
    let text = "[compute]\nprofile = \"interactive\"\noverrun = \"1h\"\n";
    std::fs::write(&config, text).expect("the folder is writable");
    let config = config.to_string_lossy().into_owned();
    let daemon = Daemon::with(gpu, &["--config", &config]);
    (folder, daemon)
}

fn shares(daemon: &Daemon) -> Vec<ShareRow> {
    match daemon.commands().ask(&Control::Shares) {
        ControlReply::Shares(rows) => rows,
        other => panic!("{other:?}"),
    }
}

/// Waits until every container has had so many turns more.
#[track_caller]
fn turns_go_round(daemon: &Daemon, more: u64) -> Vec<ShareRow> {
    let before = shares(daemon);
    let end = Instant::now() + PATIENCE;
    loop {
        let now = shares(daemon);
        let mut both = before.iter().zip(&now);
        if both.all(|(before, now)| now.turns >= before.turns + more) {
            return now;
        }
        assert!(Instant::now() < end, "turns do not go round: {now:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn started(container: &Container) -> Guest {
    let mut guest = container.client("turns", &[]);
    assert_eq!(guest.ask("init"), "init 0");
    guest
}

fn pid(guest: &mut Guest) -> i32 {
    let answer = guest.ask("pid");
    let pid = answer.strip_prefix("pid ").and_then(|pid| pid.parse().ok());
    pid.unwrap_or_else(|| panic!("{answer}"))
}

/// Asserts that nothing of one's ran while another had its turn. `pids` are each container's processes.
#[track_caller]
fn nobody_runs_in_anothers_turn(seen: &Seen, pids: &[Vec<i32>]) {
    for (mine, leases) in pids.iter().zip(&seen.leases) {
        let turns: Vec<_> = leases.iter().filter(|stretch| stretch.is_turn()).collect();
        let long: u64 = turns.iter().map(|turn| turn.to - turn.from).sum();
        let of = |pid: i32| mine.contains(&pid);
        let own = seen.spells.iter().filter(|spell| of(spell.pid));
        let own = own.filter(|spell| turns.iter().any(|turn| turn.meets(spell)));
        let own = own.count();
        println!(
            "{} turns seen, {} ms in all, with {own} spells of its own",
            turns.len(),
            long / 1_000_000
        );
        assert!(own > 0 && turns.len() > 1, "nothing was seen");
        let others = seen
            .spells
            .iter()
            .filter(|spell| spell.pid != 0 && !of(spell.pid));
        for spell in others {
            let turn = turns.iter().find(|turn| turn.meets(spell));
            assert!(
                turn.is_none(),
                "{spell:?} within {turn:?}, the turn of {mine:?}"
            );
        }
    }
}

#[test]
fn nothing_of_one_runs_in_the_turn_of_another_whatever_its_threads_launch() {
    let gpu = Gpu::new("");
    let (_folder, daemon) = strict(&gpu);
    let (one, two) = (daemon.container("one", &[]), daemon.container("two", &[]));
    let (mut a, mut b) = (started(&one), started(&two));
    for guest in [&mut a, &mut b] {
        assert_eq!(guest.ask("storm 6 60000"), "storm 0");
    }
    turns_go_round(&daemon, 2);
    let watch = Watch::begin(&gpu, &[&one, &two]);
    let rows = turns_go_round(&daemon, TURNS);
    let seen = watch.end();
    let closings: u64 = rows.iter().map(|row| row.turns).sum();
    println!("{closings} turns dealt, {} spells", seen.spells.len());
    assert!(rows.iter().all(|row| row.overruns == 0), "{rows:?}");
    nobody_runs_in_anothers_turn(&seen, &[vec![pid(&mut a)], vec![pid(&mut b)]]);
    for mut guest in [a, b] {
        assert_eq!(guest.ask("calm"), "calm 0");
        guest.finish().silently();
    }
}
