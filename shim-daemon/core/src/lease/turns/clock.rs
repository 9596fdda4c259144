//! Virtual time: deficit round robin without rounds.
//!
//! Each tenant has a virtual clock that advances at 1/weight of the time it is billed. The tenant
//! furthest behind is next. The difference of two clocks is the deficit between two tenants: debt
//! is a clock that is ahead, and it persists while another tenant waits. Each class of priority has
//! a mark: the clock of its tenant furthest behind among those that work or wait. A tenant that
//! returns from idling starts at the mark, so idling saves up nothing. Idling pays no debt either:
//! a tenant that was ahead when it went idle is as far ahead when it returns, less the fading.

use crate::lease::arithmetic::scaled;
use crate::lease::terms::WHOLE;
use crate::time::Nanos;
use std::collections::BTreeMap;

/// A reading of a tenant's clock, in nanoseconds of billed time × [`WHOLE`] / weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reading(pub(super) u64);

impl Reading {
    /// Later by some billed time.
    pub(super) fn after(self, billed: Nanos, weight: u64) -> Self {
        Self(self.0.saturating_add(stretch(billed, weight)))
    }

    /// Earlier by some billed time.
    pub(super) fn before(self, billed: Nanos, weight: u64) -> Self {
        Self(self.0.saturating_sub(stretch(billed, weight)))
    }

    /// Moved along with a mark that went from `old` to `new`.
    pub(super) fn moved(self, old: Self, new: Self) -> Self {
        Self(self.0.saturating_add(new.0.saturating_sub(old.0)))
    }

    /// The billed time from `earlier` to this; zero if this is not later.
    pub(super) fn since(self, earlier: Self, weight: u64) -> Nanos {
        Nanos(scaled(self.0.saturating_sub(earlier.0), weight, WHOLE))
    }
}

fn stretch(billed: Nanos, weight: u64) -> u64 {
    scaled(billed.0, WHOLE, weight)
}

/// The marks of all classes.
#[derive(Debug, Default)]
pub(super) struct Marks(BTreeMap<u16, Reading>);

impl Marks {
    /// Where a class stands.
    pub(super) fn of(&self, class: u16) -> Reading {
        self.0.get(&class).copied().unwrap_or_default()
    }

    /// Moves a class's mark forward; never back.
    pub(super) fn reach(&mut self, class: u16, reading: Reading) {
        let mark = self.0.entry(class).or_default();
        *mark = reading.max(*mark);
    }

    /// Drops classes without tenants.
    pub(super) fn keep(&mut self, used: impl Fn(u16) -> bool) {
        self.0.retain(|class, _| used(*class));
    }
}
