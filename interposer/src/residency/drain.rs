//! Whether a sealed process has drained: no call that can touch device memory is in the driver, and
//! all submitted work is complete.
//!
//! Nothing is waited for in the driver: an event goes behind every stream of every context, and is
//! asked. Stream memory operations go on until those events are passed. Then they are held too. If
//! one came meanwhile, its stream may have more to do, and all begins anew. Where each stream has
//! an event of its own, work that has no name is marked then, and waited for in the same way.
//!
//! A device that is lost has no work, and its contexts take no mark. Where one is lost while its
//! marks are asked, all begins anew without it.

use gpushare_pacing::mover::Drained;
use gpushare_protocol::page::MAX_DEVICES;
use gpushare_protocol::wire::Obstacle;

use super::kept_marks;
use super::marked::{self, Capturing, Extent, Mark, Unmarked};
use super::memory::blocks;
use crate::driver::captures;
use crate::driver::contexts::{self, Life};
use crate::gate::seal;

/// A drain since the seal was set.
#[derive(Debug, Default)]
pub(super) struct Drain {
    stage: Stage,
    marks: Vec<Mark>,
    /// The devices that were lost when the marks were put.
    lost: [bool; MAX_DEVICES],
    /// Contexts in which work that has no name is not marked yet.
    unnamed: Vec<Life>,
    /// The count of stream memory operations before the marks were put.
    operations: u64,
    /// The marks that were kept before.
    kept: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Calls may be in the driver.
    #[default]
    Calls,
    /// Marks stand behind the work.
    Work,
    /// They are passed. Stream memory operations are held.
    Held,
}

impl Drain {
    /// One look. The seal of the device must be set.
    pub(super) fn look(&mut self, device_index: usize) -> Drained {
        loop {
            match self.stage {
                Stage::Calls if !seal::is_still() => return Drained::No(Obstacle::Call),
                Stage::Calls => {
                    if captures::any() {
                        return Drained::Never(Obstacle::Capture);
                    }
                    self.operations = seal::operations();
                    if let Err(why) = self.mark() {
                        return self.anew(why);
                    }
                    self.stage = Stage::Work;
                }
                // Marks there may never be passed.
                Stage::Work if self.lost != blocks().lost => self.over(),
                Stage::Work => {
                    let passed = marked::are_passed(&mut self.marks)
                        & kept_marks::are_passed(|index| !self.lost[index], self.kept);
                    if !passed {
                        return Drained::No(Obstacle::Work);
                    }
                    seal::hold_operations(device_index, true);
                    self.stage = Stage::Held;
                }
                Stage::Held if !seal::is_still() => return Drained::No(Obstacle::Call),
                Stage::Held if seal::operations() != self.operations => {
                    // Held by another device's drain they stay held.
                    seal::hold_operations(device_index, false);
                    self.unnamed.clear();
                    self.stage = Stage::Calls;
                    return Drained::No(Obstacle::Work);
                }
                Stage::Held if self.unnamed.is_empty() => return Drained::Yes,
                Stage::Held => {
                    let marked = self.mark_unnamed();
                    // Work without a name may wait for one of them.
                    seal::hold_operations(device_index, false);
                    if let Err(why) = marked {
                        return self.anew(why);
                    }
                    self.stage = Stage::Work;
                }
            }
        }
    }

    /// The seal is taken away, or was set anew.
    pub(super) fn over(&mut self) {
        marked::unmark(&mut self.marks);
        *self = Self::default();
    }

    /// A mark could not be put.
    fn anew(&mut self, why: Unmarked) -> Drained {
        self.over();
        match why {
            Unmarked::Captures => Drained::Never(Obstacle::Capture),
            Unmarked::Now => Drained::No(Obstacle::Driver),
        }
    }

    /// Puts marks behind all work of all contexts, as far as it has a name.
    fn mark(&mut self) -> Result<(), Unmarked> {
        self.unnamed.clear();
        let lost = blocks().lost;
        self.lost = lost;
        let devices = (0..MAX_DEVICES).filter(|device_index| !lost[*device_index]);
        for life in devices.flat_map(contexts::alive_on) {
            match marked::mark(life, &mut self.marks, Capturing::Reported)? {
                Extent::All => {}
                Extent::Named => self.unnamed.push(life),
            }
        }
        // After the streams were listed: one that went before has kept its mark.
        self.kept = kept_marks::so_far();
        Ok(())
    }

    /// And behind the rest, while nothing can begin.
    fn mark_unnamed(&mut self) -> Result<(), Unmarked> {
        for life in core::mem::take(&mut self.unnamed) {
            marked::mark_unnamed(life, &mut self.marks, Capturing::Reported)?;
        }
        Ok(())
    }
}
