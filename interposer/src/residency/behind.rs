//! All work on a device that was submitted before a free, and whether it is complete.
//!
//! A context in which no mark can be put is tried again at each look: it may be just released by
//! another thread, or the driver may lack room for an event. Work in it is never taken for
//! complete. Only the end of the context ends that work too.

use std::time::Duration;

use super::kept_marks;
use super::marked::{self, Capturing, Extent, Mark};
use crate::driver::contexts::{self, Life};
use crate::driver::device::DeviceKey;
use crate::gate::marks::Relaxed;
use crate::gate::seal;
use crate::guest::clock;
use crate::guest::frames;

/// How often a free looks whether the work before it is complete.
const LOOK: Duration = Duration::from_micros(50);
/// How long a free tries to put a mark (ns).
const PATIENCE: u64 = 10_000_000_000;

/// Work on a device.
#[derive(Debug)]
pub(super) struct Behind {
    device_index: usize,
    marks: Vec<Mark>,
    /// Contexts whose work is not marked yet.
    unmarked: Vec<Life>,
    /// Those in which work that has no name is not marked yet.
    unnamed: Vec<Life>,
    /// The count of stream memory operations before the marks were put.
    operations: u64,
    /// The marks that were kept before.
    kept: u64,
    /// At the last look there was work that no mark stood behind.
    is_unknown: bool,
}

impl Behind {
    /// All that is submitted to a device until the first look.
    pub(super) fn all(device_index: usize) -> Self {
        Self {
            device_index,
            marks: Vec::new(),
            unmarked: contexts::alive_on(device_index),
            unnamed: Vec::new(),
            operations: seal::operations(),
            kept: 0,
            is_unknown: false,
        }
    }

    /// Marks the contexts that are not marked yet. In relaxed mode.
    fn mark(&mut self) {
        let Self {
            marks,
            unmarked,
            unnamed,
            ..
        } = self;
        unmarked.retain(
            |life| match marked::mark(*life, marks, Capturing::PassedBy) {
                Ok(Extent::All) => false,
                Ok(Extent::Named) => {
                    unnamed.push(*life);
                    false
                }
                Err(_) => true,
            },
        );
        // After the streams were listed: one that went before has kept its mark.
        self.kept = kept_marks::so_far();
    }

    /// Whether that work is complete.
    pub(super) fn is_passed(&mut self) -> bool {
        let _relaxed = Relaxed::enter();
        if !self.unmarked.is_empty() {
            self.mark();
        }
        self.is_unknown =
            !self.unmarked.is_empty() || kept_marks::is_unknown(self.device_index, self.kept);
        loop {
            let passed = marked::are_passed(&mut self.marks)
                & kept_marks::are_passed(|index| index == self.device_index, self.kept);
            if !passed || !self.unmarked.is_empty() {
                return false;
            }
            if self.unnamed.is_empty() {
                return true;
            }
            let operations = seal::operations();
            if operations != self.operations {
                // A stream may wait for a value again: its wait must have a mark first.
                self.operations = operations;
                self.unmarked.append(&mut self.unnamed);
                self.is_unknown = true;
                return false;
            }
            let Self { marks, unnamed, .. } = self;
            unnamed.retain(|life| marked::mark_unnamed(*life, marks, Capturing::PassedBy).is_err());
            if !self.unnamed.is_empty() {
                self.is_unknown = true;
                return false;
            }
        }
    }

    /// All that is submitted to a device until now.
    pub(super) fn now(device: DeviceKey) -> Self {
        let mut work = Self::all(device.index());
        // The first look puts the marks.
        let _ = work.is_passed();
        work
    }

    /// Waits until it is complete. Outside of all passages of the seal, also while the process is
    /// sealed.
    ///
    /// # Errors
    /// Itself: for long a context could not be marked.
    pub(super) fn awaited(mut self) -> Result<(), Self> {
        let mut end = None;
        while !self.is_passed() {
            if self.is_unknown {
                let now = clock::now();
                if now >= *end.get_or_insert_with(|| now.saturating_add(PATIENCE)) {
                    tracing::warn!("work cannot be followed: what is freed is given back later");
                    return Err(self);
                }
            } else {
                // A free waits for marked work, however long that takes.
                end = None;
            }
            frames::sleep(LOOK);
        }
        Ok(())
    }

    /// It is not asked about any more.
    pub(super) fn over(mut self) {
        marked::unmark(&mut self.marks);
    }
}

/// Waits for all work on a device, also such that no hook saw, by events behind it: a wait for a
/// stream or a context would invalidate a capture that begins there meanwhile. Outside of all
/// passages, also while the process is sealed: to record an event and to ask it touches no device
/// memory that can be away, and the program itself may do both (the symbol table's `follow`). A
/// passage round it would keep the process from being sealed for as long as the work takes.
///
/// # Errors
/// That work: it is unknown which of it runs. Memory that it may use is given back when it is over
/// ([`later`](super::later)).
pub(super) fn await_all(device: DeviceKey) -> Result<(), Behind> {
    Behind::all(device.index()).awaited()
}
