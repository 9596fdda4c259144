//! The way out, by the mover's thread, while the process is sealed and drained: copy a part, wait
//! for the copies, unmap, release. While a part is copied the one before is unmapped and released.
//! Until a chunk is unmapped the device's copy is the valid one. No lock is held while the driver
//! is called.

use gpushare_cuda_abi::cuda::{CUmemGenericAllocationHandle, CUresult};
use gpushare_pacing::mover::Moved;

use super::blocks::{Blocks, Chunk, Valid};
use super::copies::{Begun, Lane, PART, Place, Streams, Uncopied, begun, each_piece, length};
use super::host::{Found, Piece};
use super::memory::blocks;
use super::own::is_number;
use super::own_moves;
use super::slabs;
use super::spent::{self, Spent};
use crate::driver::vmm;

/// A part whose copies were begun, and where they go.
#[derive(Debug)]
struct Part {
    list: Vec<Place>,
    pieces: Vec<Vec<Piece>>,
    copies: Begun,
}

/// A device's way out.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    part: Option<Part>,
    lane: Lane,
    /// Copies of parts that were given up, which may be under way still.
    under_way: Begun,
}

impl Leaving {
    /// Begins the copies of some chunks, and ends the move of those before.
    pub(super) fn step(&mut self, streams: &mut Streams, device_index: usize) -> Moved {
        // No memory is unmapped that a copy may read.
        if let Err(why) = self.under_way.are_over() {
            tracing::warn!(?why, "copies to the host may be under way: memory stays");
            return Moved::Failed(0);
        }
        if self.part.is_none() {
            slabs::drop_empty(device_index);
        }
        let before = self.part.take();
        let next = self.begin(streams, device_index, before.as_ref());
        let is_last = before.is_none();
        let ended = before.map_or(Ok(true), Part::end);
        let is_out = ended.unwrap_or_else(|under_way| {
            self.under_way.join(under_way);
            false
        });
        match next {
            Err(missing) => Moved::Failed(missing),
            Ok(next) if !is_out => {
                self.part = next;
                self.give_up();
                Moved::Failed(0)
            }
            Ok(None) if is_last => {
                // Memory that the driver did not take back is offered again, before the daemon
                // counts on it.
                spent::again();
                Moved::All
            }
            Ok(next) => {
                self.part = next;
                Moved::Some
            }
        }
    }

    /// Waits for the copies that are under way. Their chunks stay on the device.
    pub(super) fn give_up(&mut self) {
        let Some(part) = self.part.take() else { return };
        match part.copies.awaited() {
            Ok(()) => give_back(&mut blocks(), part.pieces),
            Err(uncopied) => self.under_way.join(stays(uncopied, part.pieces)),
        }
    }

    /// Bytes that count as on the device and have their room on the host already.
    pub(super) fn taken(&self) -> u64 {
        let list = self.part.iter().flat_map(|part| &part.list);
        list.map(|(_, _, chunk)| chunk.bytes).sum()
    }

    /// The process opens: what is under way reads memory that stays. The next drain stands behind
    /// it where the driver has one event behind all work of a context. Why: ADR 244.
    pub(super) fn opens(&mut self) {
        self.under_way = Begun::default();
    }

    /// The next part; `Err`: it failed for lack of so many bytes of the host's, 0 if the cause is
    /// another.
    fn begin(
        &mut self,
        streams: &mut Streams,
        device_index: usize,
        before: Option<&Part>,
    ) -> Result<Option<Part>, u64> {
        let (list, pieces) = {
            let mut blocks = blocks();
            blocks.measure(device_index);
            to_leave(&mut blocks, device_index, before)?
        };
        if list.is_empty() {
            return Ok(None);
        }
        self.lane = self.lane.other();
        let copies = windows(&list).map_err(Uncopied::Refused).and_then(|()| {
            begun(streams, self.lane, &list, |place, chunk, stream| {
                each_piece(chunk, &pieces[place], mapped, |host, at, bytes| {
                    vmm::to_host(host, at, bytes, stream)
                })
            })
        });
        match copies {
            Ok(copies) => Ok(Some(Part {
                list,
                pieces,
                copies,
            })),
            Err(uncopied) => {
                self.under_way.join(stays(uncopied, pieces));
                Err(0)
            }
        }
    }
}

impl Part {
    /// Waits for the copies, and takes the chunks off the device. Whether all were; `Err`: those
    /// copies may be under way.
    fn end(self) -> Result<bool, Begun> {
        if let Err(uncopied) = self.copies.awaited() {
            return Err(stays(uncopied, self.pieces));
        }
        let mut failed = false;
        for ((base, index, chunk), taken) in self.list.into_iter().zip(self.pieces) {
            let Valid::Device(handle) = chunk.valid else {
                continue;
            };
            // Mapped memory stays the valid copy.
            if failed || unmapped(base, &chunk, handle).is_err() {
                failed = true;
                blocks().store.give(taken);
                continue;
            }
            blocks().has_left(base, index, taken);
            Spent::chunk(None, handle).give_up();
        }
        if failed {
            tracing::warn!("memory could not be unmapped: it stays");
        }
        Ok(!failed)
    }
}

/// Chunks that are on the device, and not among those of the part before; and room for them.
/// `Err`: so many bytes are missing for all that is left.
fn to_leave(
    blocks: &mut Blocks,
    device_index: usize,
    before: Option<&Part>,
) -> Result<(Vec<Place>, Vec<Vec<Piece>>), u64> {
    let is_under_way = |chunk: &Chunk| {
        let mut lists = before.into_iter().flat_map(|part| &part.list);
        lists.any(|(_, _, leaving)| leaving.at == chunk.at)
    };
    let is_left = |chunk: &Chunk| matches!(chunk.valid, Valid::Device(_)) && !is_under_way(chunk);
    let list = blocks.some(device_index, PART, is_left);
    let mut pieces = Vec::with_capacity(list.len());
    for (_, _, chunk) in &list {
        let Some(taken) = blocks.store.take(chunk.used) else {
            give_back(blocks, pieces);
            let left = blocks.some(device_index, u64::MAX, is_left);
            let needed: u64 = left.iter().map(|(_, _, chunk)| chunk.used).sum();
            return Err(needed.saturating_sub(blocks.store.free()));
        };
        pieces.push(taken);
    }
    Ok((list, pieces))
}

/// The chunks of copies that failed stay on the device. Returns those that may be under way.
fn stays(uncopied: Uncopied, pieces: Vec<Vec<Piece>>) -> Begun {
    let why = uncopied.why();
    tracing::warn!(?why, "memory could not be copied to the host: it stays");
    match uncopied {
        Uncopied::Refused(_) => {
            give_back(&mut blocks(), pieces);
            Begun::default()
        }
        // A copy may still write there: nothing else is ever put there.
        Uncopied::UnderWay(_, copies) => {
            let mut blocks = blocks();
            pieces.iter().for_each(|taken| blocks.store.lose(taken));
            copies
        }
    }
}

fn give_back(blocks: &mut Blocks, pieces: Vec<Vec<Piece>>) {
    for taken in pieces {
        blocks.store.give(taken);
    }
}

/// Maps what is copied through windows of ours.
fn windows(list: &[Place]) -> Result<(), CUresult> {
    for (base, _, chunk) in list {
        if is_number(*base)
            && let Valid::Device(handle) = chunk.valid
        {
            own_moves::open_window(*base, handle)?;
        }
    }
    Ok(())
}

/// The address of a piece that is mapped.
fn mapped(piece: Piece) -> Result<usize, CUresult> {
    match blocks().store.find(piece) {
        Found::At(address) => Ok(address),
        Found::Stored(..) | Found::Nowhere => Err(CUresult::INVALID_VALUE),
    }
}

/// Undoes all mappings of a chunk on the device.
fn unmapped(
    base: u64,
    chunk: &Chunk,
    handle: CUmemGenericAllocationHandle,
) -> Result<(), CUresult> {
    if is_number(base) {
        own_moves::unmap(base, handle)
    } else {
        vmm::unmap(chunk.at, length(chunk.bytes))
    }
}

#[cfg(test)]
mod tests;
