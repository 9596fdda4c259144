//! Tiles of sparse arrays: which part of an array an allocation is mapped into.
//!
//! A program maps regions and unmaps others, which may be parts of them or reach over several. So a
//! hold is kept with its region, and what is unmapped or mapped over is cut out of it: the regions
//! of an array never overlap.

use super::{Binding, Credit, Holding, Physical};

/// A box of tiles in one subresource of a sparse array. Of a mip tail its bytes, in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Region {
    /// The kind of the subresource, its level and layer.
    of: [u32; 3],
    from: [u64; 3],
    to: [u64; 3],
}

impl Region {
    /// Orders before all others.
    const FIRST: Self = Self {
        of: [0; 3],
        from: [0; 3],
        to: [0; 3],
    };
    /// Orders behind all others.
    const LAST: Self = Self {
        of: [u32::MAX; 3],
        from: [u64::MAX; 3],
        to: [u64::MAX; 3],
    };

    /// From `from` on, as far as `extent`; a dimension that the array lacks may have an extent of
    /// 0.
    pub(crate) fn new(of: [u32; 3], from: [u64; 3], extent: [u64; 3]) -> Self {
        let mut to = from;
        for (end, extent) in to.iter_mut().zip(extent) {
            *end = end.saturating_add(extent.max(1));
        }
        Self { of, from, to }
    }

    fn width(&self) -> u64 {
        self.to[0] - self.from[0]
    }

    fn overlaps(&self, other: &Self) -> bool {
        let along =
            |axis: usize| self.from[axis] < other.to[axis] && other.from[axis] < self.to[axis];
        self.of == other.of && (0..3).all(along)
    }

    /// The parts of this region that a region which overlaps it does not cover.
    fn without(mut self, hole: &Self) -> Vec<Self> {
        let mut left = Vec::new();
        for axis in 0..3 {
            if self.from[axis] < hole.from[axis] {
                let mut before = self;
                before.to[axis] = hole.from[axis];
                left.push(before);
                self.from[axis] = hole.from[axis];
            }
            if hole.to[axis] < self.to[axis] {
                let mut behind = self;
                behind.from[axis] = hole.to[axis];
                left.push(behind);
                self.to[axis] = hole.to[axis];
            }
        }
        left
    }
}

/// All tiles of an array.
pub(crate) fn all(array: u64) -> (Binding, Binding) {
    let at = |region| Binding::Array(array, region);
    (at(Region::FIRST), at(Region::LAST))
}

impl Physical {
    /// Memory is behind a region of an array from now on: the credits of what was there, and is
    /// nowhere else.
    pub(crate) fn tiles_held(
        &mut self,
        holding: Holding,
        array: u64,
        region: Region,
    ) -> Vec<Credit> {
        let mut gone = self.tiles_gone(array, &region);
        let [kind, ..] = region.of;
        let widest = self.widest.entry(kind).or_default();
        *widest = region.width().max(*widest);
        gone.extend(self.held(holding, Binding::Array(array, region), 1));
        gone
    }

    /// Nothing is behind a region of an array any more: the credits.
    pub(crate) fn tiles_gone(&mut self, array: u64, region: &Region) -> Vec<Credit> {
        // Most programs unmap what they have mapped. No other region overlaps that.
        if let Some((_, id)) = self.holds.remove(&Binding::Array(array, *region)) {
            return self.let_go(id);
        }
        let cut: Vec<(Region, u64)> = self
            .near(array, region)
            .filter(|(its, _)| its.overlaps(region))
            .collect();
        let mut gone = Vec::new();
        for (its, id) in cut {
            self.holds.remove(&Binding::Array(array, its));
            for part in its.without(region) {
                self.hold(id);
                self.holds.insert(Binding::Array(array, part), (1, id));
            }
            gone.extend(self.let_go(id));
        }
        gone
    }

    /// The regions of an array that may overlap one: those of its subresource which begin left of
    /// its end, and reach it if they are as wide as any.
    fn near(&self, array: u64, region: &Region) -> impl Iterator<Item = (Region, u64)> {
        let [kind, ..] = region.of;
        let widest = self.widest.get(&kind).copied().unwrap_or(0);
        let at = |left| {
            let first = Region {
                of: region.of,
                from: [left, 0, 0],
                to: [0; 3],
            };
            Binding::Array(array, first)
        };
        let left = region.from[0].saturating_add(1).saturating_sub(widest);
        let tiles = self.holds.range(at(left)..at(region.to[0]));
        tiles.filter_map(|(place, (_, id))| match place {
            Binding::Array(_, its) => Some((*its, *id)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
