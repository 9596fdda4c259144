//! A device's time: the hard cap (`GPUSHARE_SM_LIMIT`) and the guaranteed share
//! (`GPUSHARE_SM_REQUEST`).
//!
//! They are kept as parts of a whole in the same layers as memory, so that devices, precedence,
//! refusals and the stable text follow one rule. A cap of 100 % is none, and reads as if it had not
//! been said.

use super::amounts::Amounts;
use super::error::LimitError;
use super::layer::{Entry, Layer, above};
use super::maxima::{Maxima, above_maximum};
use super::setting::Setting;
use crate::size::Size;
use crate::units::Permille;
use crate::uuid::Uuid;

/// The values that our variables and flags accept.
pub(super) const ACCEPTED: &str =
    "a percentage of the device's time, 1 to 100, with at most one decimal (30, 30%, 12.5)";

/// Millionths of a percent, which [`Size::Percent`] counts, in a thousandth of the whole.
const MILLIONTHS: u64 = 100_000;

/// The whole of a device's time.
pub(super) const THOUSANDTHS: u64 = 1000;

/// The owners of variables, highest precedence first.
#[derive(Clone, Copy)]
enum Owner {
    Gpushare,
    Hami,
    Mps,
}

/// Owners of compute variables.
pub(super) const OWNERS: usize = 3;

/// The index of our own variables.
pub(super) const OURS: usize = Owner::Gpushare as usize;

/// A tenant's part of one device's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComputeLimits {
    /// Most of the device's time, also when alone. `None`: no cap.
    pub limit: Option<Permille>,
    /// Guaranteed while other tenants want the device too. `None`: an equal share.
    pub request: Option<Permille>,
}

/// A percentage as people write it, in thousandths.
pub(super) fn parse(text: &str) -> Option<Permille> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let (whole, tenth) = match number.split_once('.') {
        None => (number, "0"),
        Some(parts) => parts,
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(tenth) || whole.len() > 3 || tenth.len() > 1 {
        return None;
    }
    let tenths = whole.parse::<u16>().ok()? * 10 + tenth.parse::<u16>().ok()?;
    Permille::new(tenths).filter(|_| tenths >= 10)
}

pub(super) fn sm_limit(time: &mut Amounts<OWNERS>, set: &Setting<'_>) -> Result<(), LimitError> {
    let part = parse(set.value).ok_or_else(|| refused(set))?;
    let entry = entry(set, part);
    let ours = time.of(set.whose, Owner::Gpushare as usize);
    ours.limit.insert(set.device, entry);
    Ok(())
}

pub(super) fn sm_request(time: &mut Amounts<OWNERS>, set: &Setting<'_>) -> Result<(), LimitError> {
    let part = parse(set.value).ok_or_else(|| refused(set))?;
    let entry = entry(set, part);
    let ours = time.of(set.whose, Owner::Gpushare as usize);
    ours.request.insert(set.device, entry);
    Ok(())
}

/// HAMi: whole percentages; empty, 0 and 100 are off.
pub(super) fn hami(time: &mut Amounts<OWNERS>, set: &Setting<'_>) -> Result<(), LimitError> {
    let digits = set.value.bytes().all(|byte| byte.is_ascii_digit());
    let percent = match set.value {
        "" => Some(0),
        value => value.parse::<u16>().ok().filter(|_| digits),
    };
    match percent.map(|percent| (percent, percent.checked_mul(10).and_then(Permille::new))) {
        Some((0, _)) => Ok(()),
        Some((_, Some(part))) => {
            let entry = entry(set, part);
            let theirs = time.of(set.whose, Owner::Hami as usize);
            theirs.limit.insert(set.device, entry);
            Ok(())
        }
        _ => Err(set.refuse(
            "not understood as a percentage",
            "a whole percentage, 1 to 100; 0 or empty for no cap",
        )),
    }
}

/// MPS: a percentage with decimals; empty and 100 are off. It binds where MPS does not run: under
/// MPS the driver keeps it. Digits below a tenth of a percent are dropped.
pub(super) fn mps(time: &mut Amounts<OWNERS>, set: &Setting<'_>) -> Result<(), LimitError> {
    let text = set.value.trim();
    if text.is_empty() {
        return Ok(());
    }
    let percent = text.parse::<f64>().ok();
    let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to 1000"
    )]
    let part = percent.and_then(|percent| Permille::new((percent * 10.0).max(10.0) as u16));
    let Some(part) = part else {
        let accepted = "a percentage above 0 and up to 100; empty for none";
        return Err(set.refuse("not understood as a percentage", accepted));
    };
    let entry = entry(set, part);
    let theirs = time.of(set.whose, Owner::Mps as usize);
    theirs.limit.insert(set.device, entry);
    Ok(())
}

fn refused(set: &Setting<'_>) -> LimitError {
    set.refuse(wrong(set.value), ACCEPTED)
}

/// Why a text is no percentage that is accepted.
pub(super) fn wrong(text: &str) -> &'static str {
    let number = text.strip_suffix('%').unwrap_or(text);
    let plain = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    match number.parse::<f64>() {
        Ok(number) if plain && !(1.0..=100.0).contains(&number) => "out of range",
        _ => "not understood as a percentage",
    }
}

fn entry(set: &Setting<'_>, part: Permille) -> Entry {
    set.entry(Size::Percent(u64::from(part.get()) * MILLIONTHS))
}

fn part(entry: &Entry) -> Option<Permille> {
    match entry.size {
        Size::Percent(part) => Permille::new(u16::try_from(part / MILLIONTHS).ok()?),
        Size::Bytes(_) => None,
    }
}

/// The limits on the time of one device.
pub(super) fn limits(
    (time, maxima): (&Amounts<OWNERS>, &Maxima),
    ordinal: u32,
    uuid: Uuid,
) -> Result<ComputeLimits, LimitError> {
    let (limit, request) = time.on(ordinal, uuid);
    let (most, most_request) = maxima.time_on(ordinal, uuid);
    let limit = limit.map(|limit| limit.under(most, THOUSANDTHS));
    let own_limit = limit.as_ref().filter(|limit| limit.is_own());
    let bounds = || [most_request, most, own_limit].into_iter().flatten();
    let request = request.map(|request| request.under(bounds(), THOUSANDTHS));
    for (asked, most) in [(&limit, most), (&request, most_request), (&request, most)] {
        if let (Some(asked), Some(most)) = (asked, most)
            && part(asked) > part(most)
        {
            return Err(above_maximum(asked, most));
        }
    }
    let found = ComputeLimits {
        limit: limit
            .as_ref()
            .or(most)
            .and_then(part)
            .filter(|part| *part != Permille::WHOLE),
        request: request.as_ref().and_then(part),
    };
    match (&limit, &request) {
        (Some(limit), Some(request)) if found.limit.is_some() && found.request > found.limit => {
            Err(above(request, limit))
        }
        _ => Ok(found),
    }
}

/// Whether a layer says anything: caps of 100 % everywhere are none.
pub(super) fn says_something(layer: &Layer) -> bool {
    !layer.request.is_empty() || layer.limit.values().any(caps)
}

/// Whether a limit is a cap: one of 100 % is none.
pub(super) fn caps(entry: &Entry) -> bool {
    part(entry) != Some(Permille::WHOLE)
}

#[cfg(test)]
mod tests;
