//! Tenants that lie about their turns, with real kernels: their neighbour loses no more than
//! COMPUTE.md says. The figures are printed; the assertions hold on a busy machine too. That a
//! liar gets no more turns than its neighbour is asserted in virtual time
//! (`shim-daemon/core/tests/holders.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gpushare_protocol::page::lease::{LeaseState, LeaseWord};
use gpushare_protocol::wire::Request;
use gpushare_tests::guest::plain;
use gpushare_tests::turns::{Onlooker, Seen};
use gpushare_tests::{Daemon, Gpu, Guest, Tenant, Watch, assert_measured, clients, until};

/// The pause between two reports of a liar.
const PAUSE: Duration = Duration::from_micros(200);

/// The lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// It reports that it has drained as soon as its turn is closed, and its kernels continue.
    Drained,
    /// It never reports that it has drained.
    Mute,
    /// It reports all the time, of every turn, that it wants the turn.
    Wants,
}

/// The liar's reports, on a thread.
struct Liar {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Liar {
    fn start(tenant: &Tenant, lie: Lie) -> Self {
        let mut page = Onlooker::of(tenant);
        page.opens();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || lies(&mut page, lie, &stopped));
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lies(page: &mut Onlooker, lie: Lie, stopped: &AtomicBool) {
    let device_index = 0;
    let mut last = LeaseWord::default();
    while !stopped.load(Ordering::Relaxed) {
        let word = page.word();
        let epoch = word.epoch();
        let mut said = Vec::new();
        if word != last && word.state() == LeaseState::Closed {
            if lie != Lie::Mute {
                said.push(Request::Drained {
                    device_index,
                    epoch,
                });
            }
            said.push(Request::Wanted {
                device_index,
                epoch,
            });
        }
        if lie == Lie::Wants {
            let epochs = [epoch.saturating_sub(1), epoch, epoch + 1];
            said.extend(epochs.map(|epoch| Request::Wanted {
                device_index,
                epoch,
            }));
        }
        last = word;
        if !said.iter().all(|request| page.says(request)) {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

fn working(mut guest: Guest) -> Guest {
    assert_eq!(guest.ask("init"), "init 0");
    assert_eq!(guest.ask("work 500000"), "work 0");
    guest
}

/// Nanoseconds in which these processes had the device while the first tenant had its turn.
fn had(seen: &Seen, pid: u64) -> u64 {
    let turns = seen.leases[0].iter().filter(|stretch| stretch.is_turn());
    let spells = || {
        seen.spells
            .iter()
            .filter(|spell| u64::try_from(spell.pid) == Ok(pid))
    };
    let both = turns.flat_map(|turn| spells().map(move |spell| (turn, spell)));
    both.map(|(turn, spell)| {
        spell
            .to
            .min(turn.to)
            .saturating_sub(spell.from.max(turn.from))
    })
    .sum()
}

/// An honest tenant next to a lying one whose kernels run all the time.
fn beside(lie: Lie, watched: impl Fn(&Daemon, &mut Guest)) {
    let gpu = Gpu::new("");
    let daemon = Daemon::in_turns(&gpu);
    let (good, liar) = (daemon.tenant("good", &[]), daemon.tenant("liar", &[]));
    // The liar's kernels come from a process without a gate.
    let mut kernels = working(Guest::start(plain(&gpu, &clients::compile("turns", &[]))));
    let mut honest = working(good.client("turns", &[]));
    // A process has one registration, the last one: the liar's.
    let watch = Watch::begin(&gpu, &[&good, &liar]);
    let _lies = Liar::start(&liar, lie);
    until("they take turns", || daemon.share("liar").turns > 0);
    watched(&daemon, &mut honest);
    let seen = watch.end();
    let (own, others) = (
        had(&seen, honest.number("pid")),
        had(&seen, kernels.number("pid")),
    );
    eprintln!(
        "{lie:?}: of {} ms of its own turns the honest one had {} ms, the liar {} ms; {:?} {:?}",
        (own + others) / 1_000_000,
        own / 1_000_000,
        others / 1_000_000,
        daemon.share("good"),
        daemon.share("liar"),
    );
    assert!(own > 0, "it works in its turns");
    honest.stops();
    kernels.kill();
}

/// While the honest tenant has sixty more turns, the liar has at most twice as many: on a busy
/// machine the honest one may ask late.
fn turns_are_shared(daemon: &Daemon, honest: &mut Guest) {
    let before = (daemon.share("good").turns, daemon.share("liar").turns);
    let count = honest.number("count");
    daemon.turns_go_round(&["good"], 60);
    let after = (daemon.share("good").turns, daemon.share("liar").turns);
    let (mine, its) = (after.0 - before.0, after.1 - before.1);
    assert_measured!(its <= 2 * mine, "{its} turns of the liar's beside {mine}");
    assert!(honest.number("count") > count);
}

#[test]
fn a_tenant_that_falsely_reports_drained_gets_at_most_twice_the_turns() {
    beside(Lie::Drained, turns_are_shared);
}

#[test]
fn a_liar_that_always_wants_gets_at_most_twice_the_turns() {
    beside(Lie::Wants, turns_are_shared);
}

#[test]
fn a_tenant_that_never_reports_drained_is_passed_over() {
    beside(Lie::Mute, |daemon, honest| {
        honest.goes_on(500);
        until("it is noticed", || daemon.share("liar").overruns > 0);
        honest.goes_on(500);
    });
}
