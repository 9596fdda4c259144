//! Barriers of a block. A barrier without a number of threads waits for all that have not ended.

use super::block::{Block, Slot};
use super::thread::State;
use crate::code::Tally;

impl Block {
    /// Releases the barriers for which all have come; whether there was one.
    pub(super) fn release_barriers(&mut self) -> bool {
        let mut released = false;
        for id in 0..16 {
            released |= self.release_barrier(id);
        }
        released
    }

    fn release_barrier(&mut self, wanted: u32) -> bool {
        let (mut come, mut votes, mut expected) = (0, 0, None);
        for slot in &self.slots {
            if let Slot::Live(thread) = slot
                && let State::Barrier {
                    id, count, vote, ..
                } = thread.state()
                && id == wanted
            {
                come += 1;
                votes += u32::from(vote);
                expected = expected.max(count);
            }
        }
        let told = &mut self.told[usize::try_from(wanted).unwrap_or(0)];
        let all = u32::try_from(self.alive).unwrap_or(u32::MAX);
        if come == 0 || come + *told < expected.unwrap_or(all) {
            return false;
        }
        *told = 0;
        for slot in &mut self.slots {
            if let Slot::Live(thread) = slot
                && let State::Barrier { id, tally, d, .. } = thread.state()
                && id == wanted
            {
                let value = match tally {
                    Tally::Nothing => 0,
                    Tally::Popc => votes,
                    Tally::And => u32::from(votes == come),
                    Tally::Or => u32::from(votes > 0),
                };
                if tally != Tally::Nothing {
                    thread.set(d, u64::from(value));
                }
                thread.state = Some(State::Ready);
            }
        }
        true
    }
}
