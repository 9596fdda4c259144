//! The useful part of a device's time, over the last while, and each tenant's part of that.

use crate::lease::arithmetic::scaled;
use crate::time::Nanos;

/// Useful time in a span (ns). Completions come in lumps, so a single sample may have more useful
/// time than it is long.
#[derive(Clone, Debug, Default)]
pub(super) struct Mean {
    /// By tenant, in the order of their set.
    useful: Vec<u64>,
    span: u64,
}

impl Mean {
    /// A sample: what each tenant was served.
    pub(super) fn add(&mut self, useful: &[u64], span: Nanos) {
        if self.useful.len() < useful.len() {
            self.useful.resize(useful.len(), 0);
        }
        for (sum, part) in self.useful.iter_mut().zip(useful) {
            *sum = sum.saturating_add(*part);
        }
        self.span += span.0;
    }

    /// Forgets so much that it is of no longer a span than this.
    pub(super) fn keep(&mut self, most: Nanos) {
        if self.span > most.0 {
            for sum in &mut self.useful {
                *sum = scaled(*sum, most.0, self.span);
            }
            self.span = most.0;
        }
    }

    /// The useful part of the time, in thousandths.
    pub(super) fn part(&self) -> u64 {
        let useful = self
            .useful
            .iter()
            .fold(0, |all: u64, part| all.saturating_add(*part));
        scaled(useful, 1000, self.span)
    }

    /// Whether some tenant has so many thousandths of what it has in `other`, or more.
    pub(super) fn gives(&self, other: &Self, thousandths: u64) -> bool {
        let before = other.useful.iter().copied().chain(std::iter::repeat(0));
        self.useful.iter().zip(before).any(|(now, before)| {
            let before = scaled(before, thousandths, 1000);
            *now > 0 && scaled(*now, other.span, self.span) >= before
        })
    }

    pub(super) fn is_of(&self, span: Nanos) -> bool {
        self.span >= span.0
    }
}
