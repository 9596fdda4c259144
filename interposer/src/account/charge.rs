//! A charge in the making: booked before the driver is asked, rolled back unless it is kept.

use gpushare_protocol::page::{MAX_UNITS, UNIT, units_for};

use super::grow::{self, Asking};
use super::{Refused, killpoint, member};
use crate::driver::device::DeviceKey;
use crate::session::Deadline;

/// Bytes in units of 512: the charge of an allocation, credited when it is freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Units(pub(crate) u32);

impl Units {
    /// In bytes.
    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.0) * UNIT
    }
}

/// A booking for an allocation that the driver is about to be asked for. Dropped, it is undone.
#[derive(Debug)]
#[must_use = "a charge that is not kept is rolled back"]
pub(crate) struct Charge {
    device: DeviceKey,
    units: Units,
}

/// Books `bytes` on `device`, in whole units.
///
/// # Errors
/// [`Refused`] if the tenant's charges would exceed its limit, or the memory that can be had now.
/// Nothing has changed then.
#[inline]
pub(crate) fn charge(device: DeviceKey, bytes: u64, call: &Deadline) -> Result<Charge, Refused> {
    charge_asking(device, bytes, Asking::Now, call)
}

/// Books `bytes` of the credit that this process has: no lock is taken, and nothing is waited for.
/// `None` where that is not enough.
pub(crate) fn charge_of_credit(device: DeviceKey, bytes: u64) -> Option<Charge> {
    let units = Units(units_for(bytes)?);
    let member = member()?;
    member.line(device.index())?.word.charge(units.0).ok()?;
    killpoint::hit();
    member.changed(device.index());
    Some(Charge { device, units })
}

/// As [`charge`], but no daemon is asked.
///
/// # Errors
/// As [`charge`].
#[inline]
pub(crate) fn charge_unasked(
    device: DeviceKey,
    bytes: u64,
    call: &Deadline,
) -> Result<Charge, Refused> {
    let asking = if super::can_wait() {
        Asking::Never
    } else {
        Asking::Now
    };
    charge_asking(device, bytes, asking, call)
}

/// An empty booking, for a size that is known only afterwards. It needs no credit: the word of a
/// tenant above a lowered limit has none.
///
/// # Errors
/// [`Refused`] if there is no account to book in.
#[inline]
pub(crate) fn charge_nothing(device: DeviceKey) -> Result<Charge, Refused> {
    let line = member().and_then(|member| member.line(device.index()));
    let units = Units(0);
    line.map(|_| Charge { device, units }).ok_or(Refused)
}

/// As [`charge`]; where a daemon could make room in time, the thread waits for it as the
/// tenant's limits say.
///
/// # Errors
/// [`Refused`] when that time is over, or at once above the limit.
#[cold]
pub(crate) fn charge_waiting(
    device: DeviceKey,
    bytes: u64,
    call: &Deadline,
) -> Result<Charge, Refused> {
    charge_asking(device, bytes, Asking::Waiting, call)
}

#[inline]
fn charge_asking(
    device: DeviceKey,
    bytes: u64,
    asking: Asking,
    call: &Deadline,
) -> Result<Charge, Refused> {
    let units = units_for(bytes).unwrap_or(MAX_UNITS);
    let units = Units(book(device, units, asking, call)?);
    Ok(Charge { device, units })
}

/// Releases a charge, once the driver has taken the bytes back.
#[inline]
pub(crate) fn release(device: DeviceKey, units: Units) {
    if units.0 == 0 {
        return;
    }
    let Some(member) = member() else { return };
    if let Some(line) = member.line(device.index()) {
        line.word.release(units.0);
        killpoint::hit();
        member.changed(device.index());
        grow::released(member, device.index());
    }
}

/// Books `units`; returns them, or less where there is no limit and the word is full.
#[inline]
fn book(device: DeviceKey, units: u32, asking: Asking, call: &Deadline) -> Result<u32, Refused> {
    let member = member().ok_or(Refused)?;
    let line = member.line(device.index()).ok_or(Refused)?;
    let booked = if line.word.charge(units).is_ok() {
        killpoint::hit();
        units
    } else {
        grow::grow(member, device.index(), units, asking, call)?
    };
    member.changed(device.index());
    Ok(booked)
}

impl Charge {
    /// Units that no account has booked: to test what is done with a charge.
    #[cfg(test)]
    pub(crate) fn of_no_account(device: DeviceKey, units: Units) -> Self {
        Self { device, units }
    }

    /// The booked units.
    pub(crate) fn units(&self) -> Units {
        self.units
    }

    /// Corrects the booking to the `bytes` that the driver took. Callers may hold locks: nothing is
    /// waited for but the tenant's lock, and no signal handler runs meanwhile.
    ///
    /// # Errors
    /// [`Refused`] if that is more than was booked and the rest does not fit; the booking is
    /// unchanged.
    pub(crate) fn settle(&mut self, bytes: u64) -> Result<(), Refused> {
        let actual = units_for(bytes).unwrap_or(MAX_UNITS);
        match actual.checked_sub(self.units.0) {
            Some(0) => {}
            Some(more) => self.units.0 += book(self.device, more, Asking::Never, &Deadline::new())?,
            None => {
                release(self.device, Units(self.units.0 - actual));
                self.units = Units(actual);
            }
        }
        Ok(())
    }

    /// As [`Self::settle`] at the end of a call that fails if this does: then that is an allocation
    /// refused.
    ///
    /// # Errors
    /// As [`Self::settle`].
    pub(crate) fn settle_or_refuse(&mut self, bytes: u64) -> Result<(), Refused> {
        let settled = self.settle(bytes);
        if settled.is_err() {
            super::count_refusal(self.device, bytes);
        }
        settled
    }

    /// Corrects the booking to `bytes` that the driver took and cannot be made to give back, above
    /// the limit if need be.
    pub(crate) fn settle_anyway(&mut self, bytes: u64) {
        if self.settle(bytes).is_ok() {
            return;
        }
        let actual = units_for(bytes).unwrap_or(MAX_UNITS);
        if let Some(member) = member() {
            let missing = actual.saturating_sub(self.units.0);
            self.units.0 += grow::anyway(member, self.device.index(), missing);
        }
    }

    /// Makes the booking permanent. The returned units are to be released when the driver has taken
    /// the bytes back.
    #[inline]
    pub(crate) fn keep(self) -> Units {
        let units = self.units;
        core::mem::forget(self);
        units
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        release(self.device, self.units);
    }
}
