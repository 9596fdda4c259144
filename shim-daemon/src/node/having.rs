//! What a process has of the host's memory and in files, as it says on a new connection. What it
//! gave up, or was given, while its connection broke was not heard.

use std::collections::BTreeSet;
use std::ops::Range;

use gpushare_core::{Nanos, ProcessId};
use gpushare_protocol::wire::{Spot, Stored};

use super::{Client, Node};

/// The most places that are read of one message. A library says 512 in each.
const MOST: usize = 1024;

impl Node {
    /// Of these spots, a process has only those. What this daemon gave it of the others is given
    /// up. The end of a job sees to what that works at.
    pub(super) fn has_only(
        &mut self,
        now: Nanos,
        (client, process): (Client, ProcessId),
        about: Range<Spot>,
        spots: &[Spot],
    ) {
        if spots.len() > MOST {
            // A frame has room for 80 times as many, and any order: to sort them takes the loop
            // milliseconds. What it has stays counted.
            let count = spots.len();
            tracing::debug!(
                ?process,
                count,
                "more places in a message than any library says"
            );
            return;
        }
        let moves = &mut self.residency;
        moves.storing.tells(process, client.connection);
        let had: BTreeSet<Spot> = spots.iter().copied().collect();
        let storing = &moves.storing;
        let is_lost = |spot: Spot| {
            about.contains(&spot) && !had.contains(&spot) && !storing.is_worked_at(process, spot)
        };
        let ranges = moves.host.ranges(process);
        let ranges = ranges.filter(|(offset, _)| is_lost(Spot::memory(*offset)));
        let ranges: Vec<_> = ranges.collect();
        let stored = storing.places(process);
        let mut stored: Vec<Stored> = stored.filter(|one| is_lost(one.spot())).collect();
        // It has closed these. The places in them are not known here.
        let is_closed = |file: u64| {
            let (first, last) = (Spot { file, at: 0 }, Spot { file, at: u64::MAX });
            about.start <= first && last < about.end && had.range(first..=last).next().is_none()
        };
        let shown = storing.presented_by(process);
        let shown = shown.chain(self.inspecting.files_of(process));
        let closed = shown.filter(|file| is_closed(*file));
        stored.extend(closed.map(Stored::all_of));
        let memory = match about.end.file {
            0 => about.start.at..about.end.at,
            _ => about.start.at..u64::MAX,
        };
        if about.start.file == 0 {
            let named = had.iter().filter(|spot| spot.file == 0);
            let named: Vec<u64> = named.map(|spot| spot.at).collect();
            self.residency.host.has_only(process, memory, &named);
        }
        for (offset, bytes) in ranges {
            // Whatever was stored of it was taken, or is among the stored places.
            self.residency.storing.offers.take(process, offset);
            self.residency.host.drop_range(process, offset, bytes.0);
        }
        let had_some = !self.stored_of(client.tenant).is_zero();
        for stored in stored {
            self.forget_stored(process, stored);
        }
        self.tell_held(client.tenant);
        if had_some {
            self.note_fetched(client.tenant);
        }
        self.tend_host(now);
    }

    /// Gives back what was put off. Counts what lies in earlier daemons' files, once no memory is
    /// being allocated or given back there.
    pub(super) fn tend_files(&mut self) {
        self.residency.host.give_back_more();
        for process in self.residency.host.unsure() {
            let Some(known) = self.processes.get(process) else {
                continue;
            };
            let tenant = known.tenant();
            if self.residency.storing.is_given_some(process) {
                continue;
            }
            let most = self.could_be_given(tenant, process);
            if self.residency.host.recount(process, most) {
                self.tell_held(tenant);
            }
        }
    }

    /// Whether what a process gives up over this connection was heard already, by what it said to
    /// have over a newer one. The place may be another range's by now.
    pub(super) fn is_outdated(&self, client: Client, process: ProcessId) -> bool {
        let storing = &self.residency.storing;
        storing.is_outdated(process, client.connection)
    }
}
