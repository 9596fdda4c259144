//! The slow path of a charge: more credit, from free memory or from the unused credit of other
//! processes.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::time::Duration;

use gpushare_protocol::page::{Line, MAX_DEVICES, Refusal, UNIT, take, units_within};

use crate::guest::background::Uncancelled;
use crate::guest::frames::Undisturbed;
use crate::session::Deadline;

use super::join::Membership;
use super::limbo::Short;
use super::lock::Unavailable;
pub(crate) use super::room::Asking;
use super::room::{self, Patience};
use super::{Refused, killpoint, lock};

/// Largest step of credit: 64 MiB, in units.
const STEP: u64 = (64 << 20) / UNIT;
/// A step is at most this part of the limit, so that many processes can each have one.
const STEPS: u64 = 64;

/// How long a release waits for the lock: a free must not be delayed by its holder.
const BRIEFLY: Duration = Duration::from_millis(10);

/// Charges `units` that the available credit does not cover; returns the charged units.
#[cold]
pub(crate) fn grow(
    member: &Membership,
    device_index: usize,
    units: u32,
    asking: Asking,
    call: &Deadline,
) -> Result<u32, Refused> {
    let Some(line) = member.line(device_index) else {
        return Err(Refused);
    };
    let _uncancelled = Uncancelled::begin();
    let limit = member.limit(device_index);
    if member.backend.ceiling(device_index, limit).is_none() {
        // Credit does not matter here: the driver decides. A word at its maximum books no more, and
        // cannot refuse.
        let booked = line.word.charge_anyway(units);
        killpoint::hit();
        return Ok(booked);
    }
    // The caller's lock must not be left by a jump out of a wait for the tenant's.
    let _undisturbed = (asking == Asking::Never).then(Undisturbed::begin);
    let mut patience = Patience::new(asking, call);
    loop {
        let charged = match attempt(
            member,
            line,
            device_index,
            limit,
            units,
            patience.for_lock(member),
        ) {
            Ok(()) => return Ok(units),
            Err(charged) => charged,
        };
        if let Some(charged) = charged {
            let limit = units_within(limit);
            let short = Short {
                device_index,
                limit,
                charged,
                own: u64::from(line.word.load().charged),
                units,
            };
            if room::make(member, short, &mut patience) {
                continue;
            }
        }
        let (asked, charged) = (u64::from(units) * UNIT, charged.map(|units| units * UNIT));
        tracing::info!(asked, limit, ?charged, ?asking, "refused");
        return Err(Refused);
    }
}

/// By device: the actions after a release.
static AFTER_RELEASE: [AtomicU8; MAX_DEVICES] = [const { AtomicU8::new(0) }; MAX_DEVICES];
/// This process may hold credit above its tenant's limit.
const OVERDRAWN: u8 = 1;
/// A daemon wants releases reported if an ask waits.
const TOLD: u8 = 2;

/// From now on releases are reported to the daemon where an ask waits for memory.
pub(super) fn tell_releases() {
    for device_index in &AFTER_RELEASE {
        device_index.fetch_or(TOLD, Ordering::Release);
    }
}

/// Books `units` that the driver took already and cannot be made to give back, above the limit if
/// need be.
#[cold]
pub(crate) fn anyway(member: &Membership, device_index: usize, units: u32) -> u32 {
    let Some(line) = member.line(device_index) else {
        return 0;
    };
    let booked = line.word.charge_anyway(units);
    killpoint::hit();
    member.changed(device_index);
    AFTER_RELEASE[device_index].fetch_or(OVERDRAWN, Ordering::Release);
    booked
}

/// The actions after a release. Credit above the limit is given back as soon as it is unused, so
/// that a forced charge does not leave lasting credit. If an ask waits for the memory, the daemon
/// is told.
#[inline]
pub(crate) fn released(member: &Membership, device_index: usize) {
    let due = AFTER_RELEASE[device_index].load(Ordering::Relaxed);
    if due != 0 {
        after_release(member, device_index, due);
    }
}

#[cold]
fn after_release(member: &Membership, device_index: usize, due: u8) {
    // The lock's file and the bell are used by calls at which a thread may be cancelled; a free is
    // none.
    let _uncancelled = Uncancelled::begin();
    if due & OVERDRAWN != 0 {
        pay_back(member, device_index);
    }
    member.backend.freed(device_index);
}

#[cold]
fn pay_back(member: &Membership, device_index: usize) {
    let Some(line) = member.line(device_index) else {
        return;
    };
    let Some(ceiling) = member
        .backend
        .ceiling(device_index, member.limit(device_index))
    else {
        return;
    };
    // As in `grow`: arenas are followed, and give back, with their books locked.
    let _undisturbed = Undisturbed::begin();
    let Ok(_held) = lock::take_within(&member.backend, &member.threads, BRIEFLY) else {
        // The next release tries again.
        return;
    };
    AFTER_RELEASE[device_index].fetch_and(!OVERDRAWN, Ordering::AcqRel);
    let excess = member.credit(device_index).saturating_sub(ceiling);
    let paid = line.word.reclaim(excess);
    killpoint::hit();
    if u64::from(paid) < excess {
        AFTER_RELEASE[device_index].fetch_or(OVERDRAWN, Ordering::AcqRel);
    }
}

/// One attempt under the tenant lock. The error is the charged amount, or nothing if the lock was
/// not available.
fn attempt(
    member: &Membership,
    line: &Line,
    device_index: usize,
    limit: u64,
    units: u32,
    patience: Duration,
) -> Result<(), Option<u64>> {
    let held = lock::take_within(&member.backend, &member.threads, patience);
    let _held = held.map_err(|unavailable| {
        match &unavailable {
            Unavailable::Lost(why) if why.kind() == ErrorKind::NotFound => tracing::warn!(
                "no more credit: the tenant has lost its books, which were removed, perhaps when its user logged out"
            ),
            _ => tracing::warn!(
                ?unavailable,
                "no more credit: the tenant lock cannot be had"
            ),
        }
        None
    })?;
    // Another thread may have brought credit while we waited.
    if line.word.charge(units).is_ok() {
        killpoint::hit();
        return Ok(());
    }
    let ceiling = member.backend.ceiling(device_index, limit).ok_or(None)?;
    let step = STEP.min(ceiling / STEPS).max(1);
    let words = member.words(device_index);
    take(&line.word, &words, ceiling, units, step, &killpoint::hit)
        .map_err(|Refusal { charged }| Some(charged))?;
    still_covered(member, line, device_index, limit, units, ceiling)
}

/// Checks the allowance again, after credit was raised. A daemon that lowers a grant stores it
/// first and reads the credit afterwards, so one of the two sees the other: credit taken here too
/// late is given back.
fn still_covered(
    member: &Membership,
    line: &Line,
    device_index: usize,
    limit: u64,
    units: u32,
    ceiling: u64,
) -> Result<(), Option<u64>> {
    fence(Ordering::SeqCst);
    let now = member
        .backend
        .ceiling(device_index, limit)
        .unwrap_or(u64::MAX);
    if now >= ceiling {
        return Ok(());
    }
    let excess = member.credit(device_index).saturating_sub(now);
    if excess == 0 {
        return Ok(());
    }
    line.word.release(units);
    killpoint::hit();
    // A sum taken in between has counted units that are not charged.
    member.changed(device_index);
    line.word.reclaim(excess);
    killpoint::hit();
    Err(Some(member.charged(device_index)))
}
