//! The way back, by the mover's thread, while the process is sealed: all physical memory first, or
//! none; then map, give access and copy, a part at a time. While a part is copied the next one is
//! mapped and its copies begin. Where the daemon withholds some of the memory, the physical memory
//! of the rest comes first, and that of the others as it is allowed.
//!
//! Until the last copy is complete the host's copies are the valid ones, so a return is undone by
//! dropping what it made. No lock is held while the driver is called.

use std::collections::BTreeSet;

use gpushare_cuda_abi::cuda::{CUmemGenericAllocationHandle, CUresult};
use gpushare_pacing::mover::Moved;

use super::blocks::{Chunk, New, Valid, physical};
use super::copies::{
    Begun, Lane, PART, Place, Streams, Uncopied, begun, copied, each_piece, length,
};
use super::failed;
use super::memory::blocks;
use super::own::is_number;
use super::own_moves;
use super::peers::open;
use super::spent::Spent;
use super::stored::Fetched;
use crate::driver::vmm;
use crate::gate::seal;

/// A part whose copies were begun.
#[derive(Debug)]
struct Part {
    list: Vec<Place>,
    copies: Begun,
}

/// The pieces of a part that are copied: the allocation, the chunk's place in it, and the piece's
/// place in that.
type Copied = BTreeSet<(u64, usize, usize)>;

/// A device's way back.
#[derive(Debug, Default)]
pub(super) struct Entering {
    part: Option<Part>,
    lane: Lane,
    /// Copies of an earlier try, which may be under way still.
    under_way: Begun,
    /// The part that is next waits for a range in a file; these of its pieces are copied.
    waits: Option<Copied>,
}

impl Entering {
    /// [`Self::tried`]. What a failed context had is given up, and the others' memory comes back.
    pub(super) fn step(
        &mut self,
        streams: &mut Streams,
        fetched: &mut Fetched,
        device_index: usize,
        withheld: u64,
    ) -> Moved {
        match self.tried(streams, fetched, device_index, withheld) {
            Moved::Failed(_) if failed::give_up(device_index, streams) => Moved::Some,
            moved => moved,
        }
    }

    /// Begins the copies of some chunks, and waits for those before: of all chunks but so many
    /// bytes, which are `withheld`. The first time it takes the physical memory of all that is not.
    fn tried(
        &mut self,
        streams: &mut Streams,
        fetched: &mut Fetched,
        device_index: usize,
        withheld: u64,
    ) -> Moved {
        if seal::is_lost() {
            // A part of it is gone: the rest is of no use without.
            self.waits = None;
            return Moved::Failed(0);
        }
        if self.waits.is_some() && fetched.is_to_come() {
            return Moved::Some;
        }
        let copied = self.waits.take().unwrap_or_default();
        // Not beside those of an earlier try: they would bring old bytes after the last copy, or
        // those of another chunk whose pieces are in the same place.
        if !self.has_landed() {
            return Moved::Failed(0);
        }
        if let Err(why) = own_moves::mend(device_index) {
            tracing::warn!(?why, "memory could not be mapped again yet");
            self.undo(fetched, device_index);
            return Moved::Failed(0);
        }
        let held = match take_all(device_index, withheld) {
            Ok(held) => held,
            Err(bytes) => {
                self.undo(fetched, device_index);
                return Moved::Failed(bytes);
            }
        };
        let before = self.part.take();
        let next = self.begin(streams, fetched, (device_index, copied), before.as_ref());
        let is_last = before.is_none();
        let ended = before.map_or(Ok(()), Part::end);
        match (next, ended) {
            (Err(_), Ok(())) if self.waits.is_some() => Moved::Some,
            (Ok(None), Ok(())) if is_last && held => Moved::Withheld,
            (Ok(None), Ok(())) if is_last => {
                fetched.release();
                blocks().has_entered(device_index);
                Moved::All
            }
            (Ok(next), Ok(())) => {
                self.part = next;
                Moved::Some
            }
            (next, ended) => {
                self.waits = None;
                let next = next.and_then(|part| part.map_or(Ok(()), |part| part.copies.awaited()));
                self.dropped([next, ended], fetched, device_index);
                Moved::Failed(0)
            }
        }
    }

    /// Whether the copies of the tries before are over. Waits for them as long as the driver does.
    pub(super) fn has_landed(&mut self) -> bool {
        let answer = self.under_way.are_over();
        if let Err(why) = answer {
            tracing::warn!(
                ?why,
                "copies to the device may be under way: memory stays away"
            );
        }
        answer.is_ok()
    }

    /// Whether the next step takes an answer of the daemon's.
    pub(super) fn waits(&self) -> bool {
        self.waits.is_some()
    }

    /// Waits for the copies that are under way. Their chunks are copied again.
    pub(super) fn lands(&mut self) {
        if let Some(part) = self.part.take()
            && let Err(Uncopied::UnderWay(_, copies)) = part.copies.awaited()
        {
            self.under_way.join(copies);
        }
    }

    /// Gives up what the return has made: the host's copies are the valid ones.
    pub(super) fn undo(&mut self, fetched: &mut Fetched, device_index: usize) {
        self.waits = None;
        let part = self.part.take();
        let landed = part.map_or(Ok(()), |part| part.copies.awaited());
        let before = core::mem::take(&mut self.under_way).awaited();
        if landed.is_ok() && before.is_ok() {
            fetched.release();
            undo(device_index);
        } else {
            self.dropped([before, landed], fetched, device_index);
        }
    }

    /// The device is lost: no copy there is waited for again, and none changes anything.
    pub(super) fn give_up(&mut self, fetched: &mut Fetched, device_index: usize) {
        self.lands();
        self.under_way = Begun::default();
        self.undo(fetched, device_index);
    }

    /// Copies failed: what the return has made is given up, unless one of them may be under way
    /// still. That memory is not unmapped; the next return goes on with it.
    fn dropped(
        &mut self,
        copies: [Result<(), Uncopied>; 2],
        fetched: &mut Fetched,
        device_index: usize,
    ) {
        let failures: Vec<Uncopied> = copies.into_iter().filter_map(Result::err).collect();
        let why: Vec<_> = failures.iter().map(Uncopied::why).collect();
        tracing::warn!(?why, "memory could not be brought back: it stays away");
        let mut are_over = true;
        for failure in failures {
            if let Uncopied::UnderWay(_, copies) = failure {
                self.under_way.join(copies);
                are_over = false;
            }
        }
        if are_over {
            fetched.release();
            undo(device_index);
        } else {
            fetched.abandon();
        }
    }

    /// The process opens. Nothing is under way, or the device is lost.
    pub(super) fn opens(&mut self) {
        self.under_way = Begun::default();
    }

    /// The next part, of which these pieces are `copied`.
    fn begin(
        &mut self,
        streams: &mut Streams,
        fetched: &mut Fetched,
        (device_index, copied): (usize, Copied),
        before: Option<&Part>,
    ) -> Result<Option<Part>, Uncopied> {
        let list = to_copy(device_index, before);
        if list.is_empty() {
            return Ok(None);
        }
        for (base, index, chunk) in &list {
            make_accessible(*base, *index, chunk).map_err(Uncopied::Refused)?;
        }
        let has_stored = blocks().store.has_stored();
        // A range that was fetched goes when the next one comes: its copies are awaited at once.
        let copies = if has_stored {
            self.fetches(streams, fetched, &list, copied)?;
            Begun::default()
        } else {
            self.lane = self.lane.other();
            begun(streams, self.lane, &list, |_, chunk, stream| {
                let Valid::Host(pieces) = &chunk.valid else {
                    return Ok(());
                };
                each_piece(
                    chunk,
                    pieces,
                    |piece| fetched.address(piece, stream),
                    |host, at, bytes| vmm::to_device(at, host, bytes, stream),
                )
            })?
        };
        Ok(Some(Part { list, copies }))
    }

    /// Copies a part of which a piece may be in a file. Where the daemon has not brought that back
    /// yet, those before it are copied, and the next step goes on behind them.
    fn fetches(
        &mut self,
        streams: &mut Streams,
        fetched: &mut Fetched,
        list: &[Place],
        mut done: Copied,
    ) -> Result<(), Uncopied> {
        let made = copied(streams, list, |place, chunk, stream| {
            let (base, index, _) = list[place];
            let Valid::Host(pieces) = &chunk.valid else {
                return Ok(());
            };
            let mut at = chunk.at;
            for (number, piece) in pieces.iter().enumerate() {
                let key = (base, index, number);
                if !done.contains(&key) {
                    let host = fetched.address(*piece, stream)?;
                    vmm::to_device(at, host, length(piece.bytes), stream)?;
                    done.insert(key);
                }
                at += piece.bytes;
            }
            Ok(())
        });
        if matches!(made, Err(Uncopied::Refused(CUresult::NOT_READY))) && fetched.is_asked() {
            self.waits = Some(done);
        }
        made
    }
}

impl Part {
    /// Waits for the copies; the chunks are as the program left them.
    fn end(self) -> Result<(), Uncopied> {
        self.copies.awaited()?;
        for (base, _, chunk) in &self.list {
            if is_number(*base)
                && let Some(new) = chunk.new
            {
                own_moves::map(*base, new.handle).map_err(Uncopied::Refused)?;
            }
        }
        let mut blocks = blocks();
        for (base, index, _) in self.list {
            if let Some(new) = blocks.new_of(base, index) {
                new.copied = true;
            }
        }
        Ok(())
    }
}

/// Chunks that have physical memory, are not copied, and are not among those of the part before.
fn to_copy(device_index: usize, before: Option<&Part>) -> Vec<Place> {
    let is_under_way = |chunk: &Chunk| {
        let mut lists = before.into_iter().flat_map(|part| &part.list);
        lists.any(|(_, _, entering)| entering.at == chunk.at)
    };
    blocks().some(device_index, PART, |chunk| {
        chunk.new.is_some_and(|new| !new.copied) && !is_under_way(chunk)
    })
}

/// Takes the last ones off the list, of so many bytes at least. Whether there are some.
fn withhold(list: &mut Vec<Place>, withheld: u64) -> bool {
    let mut bytes = 0;
    while bytes < withheld
        && let Some((_, _, chunk)) = list.pop()
    {
        bytes += chunk.bytes;
    }
    bytes > 0
}

/// Physical memory for all chunks on the host that have none, but those withheld. Whether some are.
/// `Err`: so many bytes were not to be had.
fn take_all(device_index: usize, withheld: u64) -> Result<bool, u64> {
    let bare = |chunk: &Chunk| matches!(chunk.valid, Valid::Host(_)) && chunk.new.is_none();
    let mut list = blocks().some(device_index, u64::MAX, bare);
    let held = withhold(&mut list, withheld);
    for (place, (base, index, chunk)) in list.iter().enumerate() {
        let made = made_anew(*base, length(chunk.bytes));
        let Some(Ok(handle)) = made else {
            return Err(list[place..].iter().map(|(_, _, chunk)| chunk.bytes).sum());
        };
        if let Some(chunk) = blocks().chunk(*base, *index) {
            chunk.new = Some(New {
                handle,
                mapped: false,
                copied: false,
            });
        }
    }
    Ok(held)
}

fn made_anew(base: u64, bytes: usize) -> Option<Result<CUmemGenericAllocationHandle, CUresult>> {
    let (ordinal, props, of_pool) = {
        let blocks = blocks();
        let props = blocks.owns.map.get(&base).map(|own| own.props);
        let block = blocks.map.get(&base);
        let of_pool = block.is_some_and(|block| block.pool.is_some());
        (blocks.ordinal(base)?, props, of_pool)
    };
    Some(match props {
        Some(props) => vmm::create_as(ordinal, bytes, props.handle_types, props.rdma),
        None => physical(ordinal, of_pool, bytes),
    })
}

fn make_accessible(base: u64, index: usize, chunk: &Chunk) -> Result<(), CUresult> {
    let Some(new) = chunk.new else {
        return Ok(());
    };
    if is_number(base) {
        return own_moves::open_window(base, new.handle);
    }
    if !new.mapped {
        vmm::map(chunk.at, length(chunk.bytes), new.handle)?;
        if let Some(new) = blocks().new_of(base, index) {
            new.mapped = true;
        }
    }
    let block = blocks().map.get(&base).cloned();
    let block = block.ok_or(CUresult::INVALID_VALUE)?;
    open(chunk.at, chunk.bytes, &block)
}

/// No copy is under way.
fn undo(device_index: usize) {
    let list = blocks().some(device_index, u64::MAX, |chunk| chunk.new.is_some());
    for (base, index, chunk) in list {
        let Some(new) = chunk.new else {
            continue;
        };
        // While the addresses are taken nothing else can be mapped there: it stays part of a return
        // that the next one goes on with.
        let stays = if is_number(base) {
            own_moves::undo(base).is_err()
        } else {
            new.mapped && vmm::unmap(chunk.at, length(chunk.bytes)).is_err()
        };
        if stays {
            if let Some(new) = blocks().new_of(base, index) {
                new.copied = false;
            }
            continue;
        }
        Spent::chunk(None, new.handle).give_up();
        if let Some(chunk) = blocks().chunk(base, index) {
            chunk.new = None;
        }
    }
}
