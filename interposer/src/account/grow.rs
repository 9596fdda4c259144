//! The slow path of a charge: more credit, from what nobody holds or from what others hold and do not use.

use std::sync::atomic::{AtomicBool, Ordering};

use gpushare_protocol::page::{Line, MAX_DEVICES, NO_LIMIT, Refusal, UNIT, take, units_within};

use super::join::Membership;
use super::{Refused, killpoint, limbo, lock};

/// Largest step of credit: 64 MiB, in units.
const STEP: u64 = (64 << 20) / UNIT;
/// A step is at most this part of the limit, so that many processes can each have one.
const STEPS: u64 = 64;

/// Charges `units` that the credit at hand does not cover; returns what was charged.
#[cold]
pub(crate) fn grow(member: &Membership, column: usize, units: u32) -> Result<u32, Refused> {
    let (Some(line), Some(device)) = (member.line(column), member.page.devices.get(column)) else {
        return Err(Refused);
    };
    line.grown.fetch_add(1, Ordering::Relaxed);
    let limit = device.limit.load(Ordering::Relaxed);
    if limit == NO_LIMIT {
        // Nobody's credit is at stake: the driver decides. A word that is full books no more, and cannot refuse.
        let booked = line.word.charge_anyway(units);
        killpoint::hit();
        return Ok(booked);
    }
    let limit = units_within(limit);
    loop {
        match attempt(member, line, column, limit, units) {
            Ok(()) => return Ok(units),
            Err(Some(charged)) if limbo::wait(member, column, limit, charged, units) => {}
            Err(charged) => {
                line.refused.fetch_add(1, Ordering::Relaxed);
                let (asked, limit, charged) = (
                    u64::from(units) * UNIT,
                    limit * UNIT,
                    charged.map(|units| units * UNIT),
                );
                tracing::info!(asked, limit, ?charged, "refused");
                return Err(Refused);
            }
        }
    }
}

/// By column: set while this process may hold credit above what its container's limit covers.
static OVERDRAWN: [AtomicBool; MAX_DEVICES] = [const { AtomicBool::new(false) }; MAX_DEVICES];

/// Books `units` that the driver took already and cannot be made to give back, above the limit if need be.
#[cold]
pub(crate) fn anyway(member: &Membership, column: usize, units: u32) -> u32 {
    let Some(line) = member.line(column) else {
        return 0;
    };
    let booked = line.word.charge_anyway(units);
    killpoint::hit();
    OVERDRAWN[column].store(true, Ordering::Release);
    booked
}

/// Gives back credit above the limit as soon as it is not in use, so that what was forced once is not free for ever.
#[inline]
pub(crate) fn pay_back(member: &Membership, column: usize) {
    if OVERDRAWN[column].load(Ordering::Relaxed) {
        pay_back_now(member, column);
    }
}

#[cold]
fn pay_back_now(member: &Membership, column: usize) {
    let (Some(line), Some(device)) = (member.line(column), member.page.devices.get(column)) else {
        return;
    };
    let limit = device.limit.load(Ordering::Relaxed);
    if limit == NO_LIMIT {
        return;
    }
    let Ok(_held) = lock::take(&member.file, &member.threads) else {
        // The next release tries again.
        return;
    };
    OVERDRAWN[column].store(false, Ordering::Release);
    let held: u64 = member
        .words(column)
        .iter()
        .map(|word| u64::from(word.load().credit))
        .sum();
    let held = held + u64::from(line.word.load().credit);
    let excess = held.saturating_sub(units_within(limit));
    let paid = line.word.reclaim(excess);
    killpoint::hit();
    if u64::from(paid) < excess {
        OVERDRAWN[column].store(true, Ordering::Release);
    }
}

/// One try under the container lock. The error is what was charged, or nothing if the lock was not to be had.
fn attempt(
    member: &Membership,
    line: &Line,
    column: usize,
    limit: u64,
    units: u32,
) -> Result<(), Option<u64>> {
    let step = STEP.min(limit / STEPS).max(1);
    let _held = lock::take(&member.file, &member.threads).map_err(|unavailable| {
        tracing::warn!(
            ?unavailable,
            "no more credit: the container lock cannot be had"
        );
        None
    })?;
    if !member.file.is_ours() {
        tracing::warn!("no more credit: the program closed our descriptor");
        return Err(None);
    }
    // Another thread may have brought credit while we waited.
    if line.word.charge(units).is_ok() {
        killpoint::hit();
        return Ok(());
    }
    take(
        &line.word,
        &member.words(column),
        limit,
        units,
        step,
        &killpoint::hit,
    )
    .map_err(|Refusal { charged }| Some(charged))
}
