//! The useful part of a device's time where tenants swap: whole programs, some of which only
//! copy, that allocate and free in each round, that begin and end at different times.
//!
//! The ideal is that all programs run one after the other: a card of 1.5 GiB holds one of 1 GiB.

use crate::node::Node;
use crate::node::program::{Script, Stage, Step};
use crate::node::swap::swapping;
use gpushare_core::{Bytes, Nanos};

const GIB: Bytes = Bytes(1 << 30);
/// A round of a program that only computes.
const COMPUTES: Nanos = Nanos::millis(50);
/// A link on which a tenant of 1 GiB moves in a second, and one on which it takes 50 ms.
const LINKS: [u64; 2] = [1 << 30, 20 << 30];

fn millis(count: u64) -> Nanos {
    Nanos::millis(count)
}

/// A program that begins when it may and never ends.
fn script(first: &[Step], round: &[Step]) -> Script {
    Script {
        begins: Nanos::ZERO,
        first: first.to_vec(),
        round: round.to_vec(),
        rounds: u64::MAX,
        priority: 500,
    }
}

/// Allocates all its memory, then computes without end.
fn computes() -> Script {
    script(&[Step::Alloc(GIB)], &[Step::Compute(COMPUTES)])
}

/// Allocates all its memory, then copies without end.
fn copies() -> Script {
    script(&[Step::Alloc(GIB)], &[Step::Copy(millis(50))])
}

/// Allocates, copies, computes and frees in each round.
fn iterates() -> Script {
    let round = [
        Step::Alloc(GIB),
        Step::Copy(millis(200)),
        Step::Compute(millis(800)),
        Step::Free(GIB),
    ];
    script(&[], &round)
}

/// Allocates its memory in four pieces with work between, as one that loads a model does, then
/// computes with a piece that it frees and takes again.
fn by_pieces() -> Script {
    let piece = Bytes(GIB.0 / 4);
    let first = [Step::Alloc(piece), Step::Copy(millis(50))].repeat(4);
    let round = [
        Step::Compute(millis(500)),
        Step::Free(piece),
        Step::Alloc(piece),
    ];
    script(&first, &round)
}

/// Does so again in each round, and frees all of it after five seconds of work.
fn by_pieces_again() -> Script {
    let piece = Bytes(GIB.0 / 4);
    let allocs = [Step::Alloc(piece), Step::Copy(millis(50))].repeat(4);
    let frees = [Step::Free(piece)].repeat(4);
    let round = [allocs, vec![Step::Compute(millis(5_000))], frees].concat();
    script(&[], &round)
}

/// These programs on a card of one and a half, each beginning so much after the one before.
fn stage(scripts: &[Script], link: u64, stagger: Nanos) -> Stage {
    let (node, device) = Node::swaps(1536, 64);
    let mut stage = Stage::new(node, device, link);
    for (script, at) in scripts.iter().zip(0..) {
        let begins = Nanos(stagger.0 * at);
        stage.add(
            Script {
                begins,
                ..script.clone()
            },
            swapping(device, 1024),
        );
    }
    stage
}

/// Runs them and prints what came of it: the useful thousandths.
fn useful(name: &str, stage: &mut Stage, time: Nanos) -> u64 {
    let wall = stage.run(time);
    let (useful, (moves, moving)) = (stage.useful(wall), stage.moves());
    let wait = stage.longest_wait();
    eprintln!(
        "{name}: {useful} thousandths useful of {} s, {moves} left, {} thousandths moving, \
         the longest wait {wait} thousandths of its bound",
        wall.0 / 1_000_000_000,
        moving.0 * 1000 / wall.0,
    );
    assert!(
        wait <= 1000,
        "{name}: a wait of {wait} thousandths of its bound"
    );
    useful
}

/// Asserts that nine tenths of the time are useful on both links.
fn is_useful(name: &str, scripts: &[Script], time: Nanos) {
    for link in LINKS {
        let mut stage = stage(scripts, link, millis(700));
        let useful = useful(&format!("{name} at {} GiB/s", link >> 30), &mut stage, time);
        assert!(useful >= 900, "{name}: {useful} thousandths");
        let ((moves, moving), wall) = (stage.moves(), stage.took);
        assert!(
            moving.0 * 9 <= wall.0,
            "{name}: {moving:?} of moves in {wall:?}"
        );
        let trip = 2 * GIB.0 * 1_000_000_000 / link;
        let most = wall.0 / (8 * trip) + scripts.len() as u64;
        assert!(moves <= most, "{name}: {moves} left, {most} at most");
    }
}

#[test]
fn five_backlogged_tenants_have_nine_tenths_of_the_device() {
    is_useful("five that compute", &vec![computes(); 5], Nanos::secs(400));
}

#[test]
fn twelve_that_wait_longer_than_idle_ones_stay_their_time() {
    is_useful(
        "twelve that compute",
        &vec![computes(); 12],
        Nanos::secs(600),
    );
}

#[test]
fn five_that_only_copy_have_nine_tenths_of_the_device() {
    is_useful("five that copy", &vec![copies(); 5], Nanos::secs(400));
}

#[test]
fn five_that_allocate_and_free_each_round_lose_a_tenth_at_most() {
    is_useful("five that iterate", &vec![iterates(); 5], Nanos::secs(400));
}

#[test]
fn five_that_allocate_by_pieces_lose_a_tenth_at_most() {
    is_useful("five by pieces", &vec![by_pieces(); 5], Nanos::secs(400));
}

/// A tenant that has freed a piece just before it leaves takes it again. Were there room only for
/// the rest, two would come in with three pieces each, and one of them would leave at once.
#[test]
fn five_by_pieces_lose_a_tenth_at_most_however_they_begin() {
    for stagger in (500..=1000).step_by(100) {
        let mut stage = stage(&vec![by_pieces(); 5], LINKS[0], millis(stagger));
        let useful = useful("five by pieces", &mut stage, Nanos::secs(400));
        let ((_, moving), wall) = (stage.moves(), stage.took);
        assert!(useful >= 900 && moving.0 * 9 <= wall.0, "{stagger} ms");
    }
}

/// A round of five seconds beside moves of two: were each to lose its turn when it frees all, the
/// next one would come in and have three of four pieces when the first wants its own again.
#[test]
fn five_that_take_all_pieces_anew_each_round_lose_a_tenth_at_most() {
    for link in LINKS {
        let mut stage = stage(&vec![by_pieces_again(); 5], link, millis(700));
        let useful = useful("five by pieces again", &mut stage, Nanos::secs(300));
        assert!(useful >= 900, "{useful} thousandths");
    }
}

#[test]
fn a_mix_of_programs_has_nine_tenths_of_the_device() {
    let mix = [computes(), copies(), iterates(), by_pieces(), computes()];
    is_useful("a mix", &mix, Nanos::secs(400));
}

#[test]
fn five_that_end_take_a_tenth_longer_than_one_after_the_other() {
    let ends = [3_u64, 10, 30, 60, 90].map(|seconds| Script {
        rounds: seconds * (1_000_000_000 / COMPUTES.0),
        ..computes()
    });
    is_useful("five that end", &ends, Nanos::secs(1_000));
}

/// Each visit costs two round trips, its own and its victim's, and the time until it is seen to be
/// idle. At a call every 20 s that leaves 819 thousandths of the slow link's device at best, and of
/// the other's 990, of which the rotation of the others takes a part in twelve.
#[test]
fn an_interactive_tenant_is_in_soon_and_costs_little_more_than_its_moves() {
    let asks = Script {
        priority: 900,
        ..script(
            &[Step::Alloc(GIB)],
            &[Step::Compute(millis(100)), Step::Pause(millis(20_000))],
        )
    };
    for (link, least) in LINKS.into_iter().zip([770, 860]) {
        let mut scripts = vec![asks.clone()];
        scripts.extend(vec![computes(); 4]);
        let mut stage = stage(&scripts, link, millis(700));
        let wall = stage.run(Nanos::secs(400));
        let (useful, (moves, _)) = (stage.useful(wall), stage.moves());
        let waits = stage.programs[0].waited.iter().map(|(waited, _)| *waited);
        let longest = waits.max().unwrap_or_default();
        eprintln!(
            "one of five interactive: {useful} thousandths, {moves} left, it waits {longest:?}"
        );
        assert!(useful >= least, "{useful} thousandths");
        let trip = Nanos(2 * GIB.0 * 1_000_000 / link * 1_000);
        assert!(longest <= Nanos(trip.0 * 4) + millis(1_000), "{longest:?}");
    }
}
