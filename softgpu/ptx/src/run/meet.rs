//! Meetings of a warp: shuffles, votes and their like. They take place when each thread of the mask
//! that has not ended has come to the same one.

use super::block::{Block, Slot};
use super::space::changed;
use super::thread::{At, State, Thread};
use crate::code::Meeting;

/// Threads of a warp.
const WARP: usize = 32;

impl Block {
    /// Holds the meetings for which all have come, and ends the looks; whether there was one.
    pub(super) fn release_meetings(&mut self) -> bool {
        let mut released = false;
        for warp in self.slots.chunks_mut(WARP) {
            released |= look(warp);
            let mut held = 0_u32;
            for lane in 0..warp.len() {
                if held >> lane & 1 == 0
                    && let Some(group) = group(warp, lane)
                {
                    hold(warp, group);
                    held |= group;
                    released = true;
                }
            }
        }
        released
    }
}

fn live(slot: &mut Slot) -> Option<&mut Thread> {
    if let Slot::Live(thread) = slot {
        Some(thread)
    } else {
        None
    }
}

fn part(slot: &Slot) -> Option<At> {
    if let Slot::Live(thread) = slot
        && let State::Meets(at) = thread.state()
    {
        return Some(at);
    }
    None
}

/// Ends the looks at the active threads: those at the same place are active together.
fn look(warp: &mut [Slot]) -> bool {
    let place = |slot: &Slot| match slot {
        Slot::Live(thread) => match thread.state() {
            State::Looks(d) => Some((
                thread.here.function,
                thread.here.pc,
                thread.callers.len(),
                d,
            )),
            _ => None,
        },
        _ => None,
    };
    let places: Vec<_> = warp.iter().map(place).collect();
    for (lane, mine) in places.iter().enumerate() {
        let Some((function, pc, depth, d)) = mine else {
            continue;
        };
        let same = |other: &Option<(usize, usize, usize, _)>| {
            other.is_some_and(|(f, p, n, _)| (f, p, n) == (*function, *pc, *depth))
        };
        let mask = places
            .iter()
            .enumerate()
            .filter(|(_, other)| same(other))
            .fold(0_u64, |mask, (at, _)| mask | 1 << at);
        if let Some(thread) = live(&mut warp[lane]) {
            thread.set(*d, mask);
            thread.state = Some(State::Ready);
        }
    }
    places.iter().any(Option::is_some)
}

/// The lanes that meet with this one, if all have come.
fn group(warp: &[Slot], lane: usize) -> Option<u32> {
    let mine = part(&warp[lane])?;
    let mut group = 0;
    for (at, slot) in warp
        .iter()
        .enumerate()
        .filter(|(at, _)| mine.mask >> at & 1 == 1)
    {
        match slot {
            Slot::Ended => continue,
            slot => {
                let other = part(slot)?;
                // A form without a mask waits for all threads of the warp.
                if other.of != mine.of || other.mask & mine.mask != mine.mask {
                    return None;
                }
                group |= 1 << at;
            }
        }
    }
    Some(group)
}

/// Gives each lane of the group its results.
fn hold(warp: &mut [Slot], group: u32) {
    let parts: Vec<(usize, At)> = warp
        .iter()
        .enumerate()
        .filter(|(lane, _)| group >> lane & 1 == 1)
        .filter_map(|(lane, slot)| Some((lane, part(slot)?)))
        .collect();
    for (lane, at) in &parts {
        let (d, p) = result(*lane, at, &parts);
        if let Some(thread) = live(&mut warp[*lane]) {
            thread.set(at.d, d);
            thread.set(at.p, u64::from(p));
            thread.state = Some(State::Ready);
        }
    }
}

/// The two results of a lane.
fn result(lane: usize, at: &At, parts: &[(usize, At)]) -> (u64, bool) {
    let tests = || parts.iter().map(|(_, other)| other.test);
    let lanes = |of: &dyn Fn(&At) -> bool| {
        parts
            .iter()
            .filter(|(_, other)| of(other))
            .fold(0_u64, |mask, (lane, _)| mask | 1 << lane)
    };
    match at.of {
        Meeting::ShflUp | Meeting::ShflDown | Meeting::ShflBfly | Meeting::ShflIdx => {
            shuffled(lane, at, parts)
        }
        Meeting::VoteAll => (u64::from(tests().all(|test| test)), false),
        Meeting::VoteAny => (u64::from(tests().any(|test| test)), false),
        Meeting::VoteUni => (u64::from(tests().all(|test| test == at.test)), false),
        Meeting::VoteBallot => (lanes(&|other| other.test), false),
        Meeting::MatchAny => (lanes(&|other| other.a == at.a), false),
        Meeting::MatchAll => {
            let same = parts.iter().all(|(_, other)| other.a == at.a);
            (if same { lanes(&|_| true) } else { 0 }, same)
        }
        Meeting::Redux(change) => {
            let all = parts.iter().skip(1).map(|(_, other)| other.a);
            let first = parts.first().map_or(0, |(_, first)| first.a);
            (
                all.fold(first, |sum, value| changed(change, at.ty, sum, (value, 0))),
                false,
            )
        }
        Meeting::Elect => {
            let leader = parts.first().map_or(lane, |(leader, _)| *leader);
            (leader as u64, leader == lane)
        }
        Meeting::Sync => (0, false),
    }
}

/// The value of another lane, and whether the lane is in range: `b` is the distance or the lane,
/// `c` has the limit in bits 0 to 4 and the mask of the segment in bits 8 to 12.
fn shuffled(lane: usize, at: &At, parts: &[(usize, At)]) -> (u64, bool) {
    let lane = u32::try_from(lane).unwrap_or(0);
    let (by, limit, segment) = (at.b & 31, at.c & 31, at.c >> 8 & 31);
    let most = (lane & segment) | (limit & !segment);
    let least = lane & segment;
    let (from, in_range) = match at.of {
        // For an upward shuffle the limit is the lowest lane.
        Meeting::ShflUp => (lane.wrapping_sub(by), lane >= by && lane - by >= most),
        Meeting::ShflDown => (lane + by, lane + by <= most),
        Meeting::ShflBfly => (lane ^ by, (lane ^ by) <= most),
        _ => {
            let from = least | (by & !segment);
            (from, from <= most)
        }
    };
    let from = if in_range { from } else { lane };
    let found = parts
        .iter()
        .find(|(other, _)| u32::try_from(*other) == Ok(from));
    (found.map_or(at.a, |(_, other)| other.a), in_range)
}
