//! How a batch of one stream ran beside those of others.

/// A batch that is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    /// Its kind, if it was one operation of which only the device decided how long it ran, and no
    /// other tenant had that.
    pub(crate) key: Option<u64>,
    /// When the device, by estimate, began it.
    pub(crate) began: u64,
    /// How long it ran, at least and at most (ns).
    pub(crate) least: u64,
    pub(crate) most: u64,
    /// How many streams had work meanwhile, its own among them, summed over the time (ns).
    pub(crate) crowd: u64,
    /// The same of batches in other streams that were begun before it.
    pub(crate) behind: u64,
}

impl Ran {
    /// How many streams had work.
    pub(crate) fn beside(&self) -> u64 {
        in_all(self.crowd, self.most).max(1)
    }

    /// How many of them run side by side, if it was not delayed: at least it and what was begun
    /// before it. Later work waits where streams are in each other's way. Where they begin
    /// one after another, half of them began before it on the average.
    pub(crate) fn side_by_side(&self) -> u64 {
        (1 + 2 * in_all(self.behind, self.most)).min(self.beside())
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.crowd <= self.most.saturating_add(self.most / 8)
    }
}

/// How many there were of which `sum` is summed over `time`: three quarters of one count as one.
fn in_all(sum: u64, time: u64) -> u64 {
    sum.saturating_add(time / 4) / time.max(1)
}
