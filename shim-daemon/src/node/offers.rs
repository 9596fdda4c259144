//! Ranges that are stored in files, and that their processes have not dropped yet.
//!
//! A process drops a range, or has its bytes in the file forgotten, before it has it stored again.
//! A process that asks again has not heard of that yet: it is refused once, because its word about
//! the former place is still to come. In each case a range has one place at most.

use std::collections::BTreeMap;

use gpushare_core::ProcessId;
use gpushare_protocol::wire::Stored;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// Where the bytes of each range are, by process and place in the memory file.
    stored: BTreeMap<(ProcessId, u64), Stored>,
    /// The same the other way, by process, file and place in it.
    ranges: BTreeMap<(ProcessId, u64, u64), u64>,
}

impl Offers {
    /// A process is told that this range is stored.
    pub(super) fn add(&mut self, process: ProcessId, offset: u64, stored: Stored) {
        self.take(process, offset);
        self.stored.insert((process, offset), stored);
        self.ranges.insert(place(process, stored), offset);
    }

    /// A range of a process is the process's no more, or is stored anew: where its bytes are, if
    /// the process was told that they are stored.
    pub(super) fn take(&mut self, process: ProcessId, offset: u64) -> Option<Stored> {
        let stored = self.stored.remove(&(process, offset))?;
        self.ranges.remove(&place(process, stored));
        Some(stored)
    }

    /// These bytes are wanted no more.
    pub(super) fn forget(&mut self, process: ProcessId, stored: Stored) {
        if let Some(offset) = self.ranges.remove(&place(process, stored)) {
            self.stored.remove(&(process, offset));
        }
    }

    /// A process has ended.
    pub(super) fn forget_all(&mut self, process: ProcessId) {
        let own = self.stored.range((process, 0)..=(process, u64::MAX));
        let own: Vec<u64> = own.map(|((_, offset), _)| *offset).collect();
        for offset in own {
            self.take(process, offset);
        }
    }
}

fn place(process: ProcessId, stored: Stored) -> (ProcessId, u64, u64) {
    (process, stored.file, stored.at)
}
