//! `gpushare bench swap`: what it costs to move tenants' memory to the host and back. It measures
//! the link without gpushare, then idle tenants that a command moves, then two tenants that do not
//! fit together and always have work. Every page is compared afterwards.

mod cycles;
mod player;
mod report;
mod worker;

pub(crate) use worker::run as worker;

use super::crew::Backend;
use super::{clock, files, host};
use crate::args::BenchSwap;
use crate::daemon;
use crate::failure::Failure;
use crate::output;
use cycles::Counted;
use gpushare_client::Talk;
use gpushare_protocol::size::Size;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{Control, Place, ResidencyRow};
use player::{Player, patience};
use report::{Idle, Link, Outcome, Pair, Small};
use std::process::ExitCode;
use std::time::Instant;

/// The memory of a tenant whose seal is timed: as little as can move.
const LITTLE: u64 = 2 << 20;
/// Pairs of a small allocation and its free that are timed, and how often. The middle one counts.
const PAIRS: (u32, usize) = (100_000, 5);
/// The most that the link is timed with.
const CARGO: u64 = 256 << 20;
/// From the start of the pair's work to the beginning of the measurement.
const WARM_UP: u64 = 1_000_000_000;
/// How often it is looked where the pair's memory is.
const GLANCE: u64 = 10_000_000;

/// Measures and shows all of it.
pub(crate) fn run(arguments: &BenchSwap) -> Result<ExitCode, Failure> {
    // A word that is no size needs no daemon to be refused.
    let given = arguments.size.as_deref().map(given).transpose()?;
    files::check([&arguments.json, &arguments.markdown])?;
    let (backend, device) = Backend::new(&arguments.gpu, Some("on"))?;
    let known = backend.devices.first();
    let known = known.ok_or_else(|| Failure::ours("there is no GPU"))?;
    if !known.vmm {
        return Err(Failure::ours(format!(
            "{device} has no virtual memory management: no memory can be moved there"
        )));
    }
    let little = Player::tenant(&backend, "little", LITTLE)?;
    let size = size(given, known.memory.min(capacity(known.uuid)?))?;
    let link = link(&backend, size)?;
    let small = small(&backend)?;
    let idle = idle(&backend, little, size, arguments)?;
    let pair = pair(&backend, size, arguments.seconds)?;
    let outcome = Outcome {
        device,
        host: host::text(),
        software: backend.soft_name().is_some(),
        size,
        link,
        small,
        idle,
        pair,
    };
    output::data(&outcome.text())?;
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&outcome).map_err(Failure::ours)?;
        output::file(path, &format!("{text}\n"))?;
    }
    if let Some(path) = &arguments.markdown {
        output::file(path, &outcome.markdown())?;
    }
    match outcome.wrong() {
        0 => Ok(ExitCode::SUCCESS),
        wrong => Err(Failure::ours(format!(
            "{wrong} pages were not what the tenants had written"
        ))),
    }
}

/// `--size`.
fn given(text: &str) -> Result<u64, Failure> {
    match Size::parse(text) {
        Ok(Size::Bytes(bytes)) => Ok(bytes),
        _ => Err(Failure::usage(format!(
            "--size={text:?} is refused; accepted: a size such as 64MiB"
        ))),
    }
}

/// The memory of each tenant: as given, else three fifths of the device, so that no two fit.
fn size(given: Option<u64>, memory: u64) -> Result<u64, Failure> {
    let size = given.unwrap_or(memory / 5 * 3).next_multiple_of(LITTLE);
    if size <= memory / 2 || size >= memory {
        return Err(Failure::usage(format!(
            "--size {} is refused: two tenants of that size must not fit on a device of {} and one must; accepted: \
             more than half of it",
            Bytes(size).human(),
            Bytes(memory).human()
        )));
    }
    Ok(size)
}

/// The memory that the daemon gives to tenants of this device. Its configuration may say less than
/// the device has.
fn capacity(uuid: [u8; 16]) -> Result<u64, Failure> {
    for mut daemon in daemon::some()? {
        let rows = daemon.devices()?;
        if let Some(row) = rows.iter().find(|row| row.uuid == uuid) {
            return Ok(row.capacity.saturating_sub(row.reserve));
        }
    }
    Err(Failure::ours("no daemon has the benchmark's device"))
}

/// Bytes a second, each way, without gpushare.
fn link(backend: &Backend, size: u64) -> Result<Link, Failure> {
    let bytes = size.min(CARGO);
    let mut bare = Player::bare(backend, bytes)?;
    let rate = |ns: u64| bytes as f64 * 1e9 / ns.max(1) as f64;
    // The first copy finds memory that nothing has touched.
    bare.writes(1)?;
    let back = rate(bare.writes(1)?);
    let (out, wrong) = bare.reads(1)?;
    match wrong {
        0 => Ok(Link {
            out: rate(out),
            back,
        }),
        _ => Err(Failure::ours("the device loses bytes without gpushare")),
    }
}

/// What small allocations cost, without gpushare and where they may move.
fn small(backend: &Backend) -> Result<Small, Failure> {
    let mut players = [
        Player::bare(backend, LITTLE)?,
        // Beside its memory there is room for the one that its small allocations are parts of.
        Player::limited(backend, "small", (LITTLE, 4 * LITTLE))?,
    ];
    let (count, runs) = PAIRS;
    let mut took = [vec![], vec![]];
    for _ in 0..runs {
        for (player, took) in players.iter_mut().zip(&mut took) {
            took.push(player.pairs(count)?);
        }
    }
    Ok(Small::new(&took))
}

/// The moves of idle tenants by command, all in nanoseconds.
fn idle(
    backend: &Backend,
    mut little: Player,
    size: u64,
    arguments: &BenchSwap,
) -> Result<Idle, Failure> {
    little.writes(2)?;
    let mut seals = Vec::new();
    for _ in 0..arguments.samples {
        seals.push(timed(suspend, &little.name, LITTLE)?);
        timed(resume, &little.name, LITTLE)?;
    }
    let (_, mut wrong) = little.reads(2)?;
    drop(little);
    let mut large = Player::tenant(backend, "large", size)?;
    large.writes(3)?;
    let (mut out, mut back) = (Vec::new(), Vec::new());
    for _ in 0..arguments.moves {
        out.push(timed(suspend, &large.name, size)?);
        back.push(timed(resume, &large.name, size)?);
    }
    wrong += large.reads(3)?.1;
    Ok(Idle::new(size, seals, out, back, wrong))
}

/// Two tenants of this size with work all the time.
fn pair(backend: &Backend, size: u64, seconds: u64) -> Result<Pair, Failure> {
    let mut players = Vec::new();
    for (name, seed) in [("one", 4), ("two", 5)] {
        let mut player = Player::tenant(backend, name, size)?;
        player.writes(seed)?;
        players.push(player);
    }
    // How long a tenant stays follows from what its moves cost, and the first ones cost more: the
    // host's memory has not been touched then.
    for player in [&players[0], &players[1]].repeat(2) {
        timed(suspend, &player.name, size)?;
        timed(resume, &player.name, size)?;
    }
    let from = clock::now() + WARM_UP;
    let to = from + seconds * 1_000_000_000;
    for player in &mut players {
        player.begin(to)?;
    }
    clock::sleep_until(from);
    let before = rows(&players)?;
    let moves = moves(&players, to)?;
    let after = rows(&players)?;
    for player in &mut players {
        player.ends()?;
    }
    let counted = Counted::of((from, to), &moves.departures);
    let mut worked = Vec::new();
    let mut wrong = 0;
    for player in &mut players {
        worked.push(player.worked(counted.window)?);
    }
    for (player, seed) in players.iter_mut().zip([4, 5]) {
        wrong += player.reads(seed)?.1;
    }
    let more = |of: fn(&ResidencyRow) -> u64| {
        let both = before.iter().zip(&after);
        both.map(|(before, after)| of(after).saturating_sub(of(before)))
            .sum()
    };
    Ok(Pair {
        seconds,
        cycles: counted.cycles,
        counted_ns: counted.length(),
        worked_ns: [worked[0], worked[1]],
        left: more(|row| row.left),
        moved: more(|row| row.moved),
        moving_ns: moves.moving,
        both_ns: moves.both,
        wrong_pages: wrong,
    })
}

/// What the pair's memory did.
#[derive(Debug, Default)]
struct Moves {
    /// How long one of the two moved, and how long one left while the other came back (ns).
    moving: u64,
    both: u64,
    /// When the first one was seen to begin to leave, by the clock.
    departures: Vec<u64>,
}

/// Looks until then.
fn moves(players: &[Player], to: u64) -> Result<Moves, Failure> {
    let (mut last, mut moves) = (clock::now(), Moves::default());
    let mut was = None;
    while last < to {
        clock::sleep_until(to.min(last + GLANCE));
        let places: Vec<Place> = rows(players)?.iter().map(|row| row.place).collect();
        let now = clock::now();
        let some = |place| places.contains(&place);
        let (out, back) = (some(Place::Leaving), some(Place::Entering));
        for (time, counts) in [
            (&mut moves.moving, out || back),
            (&mut moves.both, out && back),
        ] {
            *time += if counts { now - last } else { 0 };
        }
        let first = places.first().copied();
        if first == Some(Place::Leaving) && was != first {
            moves.departures.push(now);
        }
        (last, was) = (now, first);
    }
    Ok(moves)
}

fn suspend(name: &str) -> Control {
    let tenant = name.to_owned();
    Control::Suspend { tenant }
}

fn resume(name: &str) -> Control {
    let tenant = name.to_owned();
    Control::Resume { tenant }
}

/// Gives an order to the daemon that has the tenant of so many bytes, and waits until it is carried
/// out. How long that took, in nanoseconds.
fn timed(order: fn(&str) -> Control, tenant: &str, bytes: u64) -> Result<u64, Failure> {
    let daemon = crate::order::daemon_of(tenant)?;
    let request = order(tenant);
    let daemon = Talk::connect_within(daemon.folder(), Some(patience(bytes)));
    let mut daemon = daemon.map_err(Failure::ours)?;
    let began = Instant::now();
    daemon.call(&request)?;
    Ok(super::tenant::ns(began.elapsed()))
}

/// Where the players' memory is, in their order.
fn rows(players: &[Player]) -> Result<Vec<ResidencyRow>, Failure> {
    let mut all = Vec::new();
    // A hundred times a second: what does not serve was noted at the begin.
    for mut daemon in daemon::all().serving {
        all.extend(daemon.residency()?);
    }
    let of = |player: &Player| {
        let mut rows = all.iter();
        let row = rows.find(|row| row.name == player.name).cloned();
        row.ok_or_else(|| Failure::ours(format!("no daemon has tenant {}", player.name)))
    };
    players.iter().map(of).collect()
}
