//! Looks at devices: which are under way, what was charged when they began, what the last showed.

use std::collections::{BTreeMap, BTreeSet};

use gpushare_core::ProcessId;
use gpushare_protocol::units::Bytes;

/// The charges of processes when a look began, and the result of the last look.
#[derive(Debug, Default)]
struct Began {
    under_way: bool,
    /// Another look was requested while one was under way, which may have begun too early to answer
    /// it.
    again: bool,
    charged: BTreeMap<ProcessId, Bytes>,
    /// The memory of each process in the last look.
    shown: BTreeMap<ProcessId, Bytes>,
}

/// See the module's page. Devices are indices.
#[derive(Debug, Default)]
pub(super) struct Looks {
    began: BTreeMap<usize, Began>,
    /// Those that are gone for good.
    lost: BTreeSet<usize>,
}

impl Looks {
    /// A look is to begin while so much is `charged`. False: one is under way, and another follows
    /// it.
    pub(super) fn begin(&mut self, device: usize, charged: BTreeMap<ProcessId, Bytes>) -> bool {
        let began = self.began.entry(device).or_default();
        if began.under_way {
            began.again = true;
            return false;
        }
        (began.under_way, began.charged) = (true, charged);
        true
    }

    /// A look has ended. What was charged when it began, and whether another is wanted; `None` if
    /// none began.
    pub(super) fn end(&mut self, device: usize) -> Option<(BTreeMap<ProcessId, Bytes>, bool)> {
        let began = self.began.get_mut(&device)?;
        began.under_way = false;
        let again = std::mem::take(&mut began.again);
        Some((std::mem::take(&mut began.charged), again))
    }

    /// What a look showed for each process.
    pub(super) fn show(&mut self, device: usize, shown: BTreeMap<ProcessId, Bytes>) {
        self.began.entry(device).or_default().shown = shown;
    }

    /// A dead process counts as shown on a device until that has been looked at: a look at another
    /// must not forget it.
    pub(super) fn remember(&mut self, device: usize, process: ProcessId, bytes: Bytes) {
        let began = self.began.entry(device).or_default();
        began.shown.insert(process, bytes);
    }

    /// What the last look at a device showed. `None`: there was none.
    pub(super) fn shown(&self, device: usize) -> Option<&BTreeMap<ProcessId, Bytes>> {
        self.began.get(&device).map(|began| &began.shown)
    }

    /// Whether the last look at any other device showed a process.
    pub(super) fn show_elsewhere(&self, device: usize, process: ProcessId) -> bool {
        let mut others = self.began.iter().filter(|(other, _)| **other != device);
        others.any(|(_, began)| began.shown.contains_key(&process))
    }

    /// A device is gone for good. False: that is known.
    pub(super) fn lose(&mut self, device: usize) -> bool {
        self.lost.insert(device)
    }

    pub(super) fn is_lost(&self, device: usize) -> bool {
        self.lost.contains(&device)
    }
}
