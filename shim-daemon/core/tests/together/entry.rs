//! The admission of a process's gate: the bounds of an open gate, kept by estimates.

use super::Gate;

/// The gate of one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// Admitted and not complete (ns, by estimate), and how many operations.
    flying: u64,
    count: u64,
    /// Admitted since everything was last complete (ns, by estimate).
    since_empty: u64,
    /// The window was full, and is not half empty yet.
    refills: bool,
}

impl Entry {
    /// Whether the next operation begins a slice, and how long that is: nothing is under way, and
    /// the tenant yields.
    pub fn begins_slice(&self, gate: Gate) -> Option<u64> {
        gate.yields().filter(|_| self.count == 0)
    }

    /// Whether an operation of `estimate` ns may go.
    pub fn admits(&mut self, gate: Gate, estimate: u64) -> bool {
        let (window, slice) = match gate {
            Gate::Free => return true,
            Gate::Closed => return false,
            Gate::Open {
                window,
                slice,
                contended,
            } => (window, slice.filter(|_| contended)),
        };
        if self.count == 0 {
            return true;
        }
        self.refills &= self.flying > window / 2;
        self.refills |= self.flying + estimate > window;
        let fits = slice.is_none_or(|slice| self.since_empty + estimate <= slice);
        fits && !self.refills
    }

    /// An operation goes.
    pub fn admit(&mut self, estimate: u64) {
        self.flying += estimate;
        self.since_empty += estimate;
        self.count += 1;
    }

    /// An operation is complete.
    pub fn complete(&mut self, estimate: u64) {
        self.flying -= estimate;
        self.count -= 1;
        if self.count == 0 {
            (self.since_empty, self.refills) = (0, false);
        }
    }

    /// Whether everything that went is complete.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}
