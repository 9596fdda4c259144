//! Rows of a page of the previous daemon that no process has presented.
//!
//! All that stands in them is the tenant's word: any process of it writes there, at any time. To
//! see which process has a pid reads its `stat`, which on newer kernels waits while it is within
//! `exec`, and costs time for each row. So the tenant's lane does that, once at a time.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use gpushare_protocol::page::MAX_SLOTS;

use super::{Tenant, Unseen};
use crate::init::{is_free, runs};

/// Such a row, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    slot: usize,
    pid: u64,
    /// When its process started, in clock ticks since boot. 0: a daemon ended before it had looked
    /// at the process. Then any process with this pid counts: a row too many is freed when that
    /// ends, and a row too few is memory that nobody counts.
    start: u64,
}

impl Row {
    /// Those whose processes have ended. It may wait for the processes that have their pids.
    #[must_use]
    pub fn dead(rows: &[Self]) -> Vec<Self> {
        // Many rows may name one process.
        let mut known = BTreeMap::new();
        let mut lives = |row: &Self| {
            let of = || {
                let start = Some(row.start).filter(|start| *start != 0);
                u32::try_from(row.pid).is_ok_and(|pid| runs(pid, start))
            };
            *known.entry((row.pid, row.start)).or_insert_with(of)
        };
        let dead = rows.iter().filter(|row| !lives(row));
        dead.copied().collect()
    }

    /// Whether no process has the pid. It waits for nothing.
    fn is_free(&self) -> bool {
        u32::try_from(self.pid).map_or(true, is_free)
    }
}

impl Tenant {
    /// Notes the rows that are taken in the page of the previous daemon. A row that is taken later,
    /// or changes, is a process's own work: no daemon had such a process.
    pub(super) fn note_rows(&mut self) {
        let slots = 0..MAX_SLOTS;
        self.unclaimed = slots.filter_map(|slot| self.unclaimed_row(slot)).collect();
    }

    /// Those of them that are taken still, by no process that is known here. A live process that
    /// has not presented its row yet (a stopped one, perhaps) keeps it.
    fn unclaimed_rows(&mut self) -> Vec<Row> {
        let mut rows = std::mem::take(&mut self.unclaimed);
        rows.retain(|row| self.is_unclaimed(row));
        self.unclaimed.clone_from(&rows);
        rows
    }

    fn is_unclaimed(&self, row: &Row) -> bool {
        self.unclaimed_row(row.slot).as_ref() == Some(row)
    }

    /// The row of a process that has not presented it yet, in a page of the previous daemon.
    pub(in crate::node) fn late_slot(&self, pid: u32, start: u64) -> Option<usize> {
        let mut rows = self.unclaimed.iter().filter(|row| self.is_unclaimed(row));
        let found = rows.find(|row| {
            let began = [0, start].contains(&row.start);
            row.pid == u64::from(pid) && began
        });
        found.map(|row| row.slot)
    }

    fn unclaimed_row(&self, slot: usize) -> Option<Row> {
        let header = self.usage.view().slots.get(slot)?;
        let is_taken = header.taken.load(Ordering::Acquire) != 0;
        (is_taken && !self.slots.contains_key(&slot)).then(|| Row {
            slot,
            pid: header.generation.load(Ordering::Relaxed),
            start: header.start.load(Ordering::Relaxed),
        })
    }

    /// The rows that are to be looked at now: none while others of the tenant are.
    pub(in crate::node) fn rows_to_look_at(&mut self) -> Vec<Row> {
        if self.rows_looked_at {
            return Vec::new();
        }
        let rows = self.unclaimed_rows();
        self.rows_looked_at = !rows.is_empty();
        rows
    }

    /// Its page is as it came from the previous daemon.
    #[cfg(test)]
    pub(in crate::node) fn may_have_rows(&mut self) {
        self.note_rows();
        self.counts_dead = true;
    }

    /// They were looked at.
    pub(in crate::node) fn rows_looked_at(&mut self) {
        self.rows_looked_at = false;
    }

    /// Empties the rows of which no process has the pid, and returns their charges if they count.
    pub(in crate::node) fn clear_free_rows(&mut self) -> Vec<Unseen> {
        let mut rows = self.unclaimed_rows();
        rows.retain(Row::is_free);
        self.clear_rows(&rows)
    }

    /// Empties the rows of processes that died while no daemon ran, and returns their charges if
    /// they count.
    pub(in crate::node) fn clear_rows(&mut self, dead: &[Row]) -> Vec<Unseen> {
        let mut cleared = Vec::new();
        for row in dead {
            // It may be another's by now.
            if !self.is_unclaimed(row) {
                continue;
            }
            if self.counts_dead {
                let devices = 0..self.device_ids.len();
                let lines = devices.filter_map(|at| self.usage.view().line(row.slot, at));
                let charged = lines.map(|line| line.word.load().charged).collect();
                let pid = row.pid;
                cleared.push(Unseen { pid, charged });
            }
            self.clear(row.slot);
        }
        // A process may write the same into them again.
        self.unclaimed.retain(|row| !dead.contains(row));
        cleared
    }
}
