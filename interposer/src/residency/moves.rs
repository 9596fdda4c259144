//! The moves themselves, by the mover's thread alone, while the process is sealed and drained.
//!
//! On the way out: copy, wait for the copy, unmap, release. Until the copy is complete the device's
//! is the valid one. On the way back: all physical memory first, or none; then map, give access and
//! copy, a part at a time. Where the daemon withholds a part, the physical memory of the rest comes
//! first, and that of the part as it is allowed. Until the last is complete the host's copies are
//! the valid ones, so a return is undone by dropping what it made. No lock is held while the driver
//! is called.

use std::collections::BTreeMap;

use gpushare_cuda_abi::cuda::{
    CUcontext, CUmemGenericAllocationHandle, CUresult, CUstream, CUstream_flags,
};
use gpushare_pacing::mover::Moved;

use super::blocks::{CHUNK, Chunk, New, Valid};
use super::host::{Found, Piece};
use super::memory::{blocks, open};
use super::own::is_number;
use super::own_moves;
use super::slabs;
use super::spent::{self, Spent};
use super::stored::Fetched;
use crate::driver::calls;
use crate::driver::current::CurrentContext;
use crate::driver::streams;
use crate::driver::vmm;
use crate::gate::marks::is_over;
use crate::gate::seal;

/// Streams of ours for the copies, by context. They go with their contexts.
#[derive(Debug, Default)]
pub(super) struct Streams(BTreeMap<usize, CUstream>);

impl Streams {
    /// The stream of the current context.
    fn of(&mut self, context: CUcontext) -> Result<CUstream, CUresult> {
        let key = context.0.addr();
        if let Some(stream) = self.0.get(&key) {
            return Ok(*stream);
        }
        let made = calls::create_stream(CUstream_flags::NON_BLOCKING)?;
        self.0.insert(key, made);
        Ok(made)
    }

    /// Forgets them: their contexts may have ended since.
    pub(super) fn forget(&mut self) {
        for (context, stream) in core::mem::take(&mut self.0) {
            let context = CUcontext(core::ptr::with_exposed_provenance_mut(context));
            if let Ok(_current) = CurrentContext::make(context) {
                let _ = calls::destroy_stream(stream);
            }
        }
    }
}

/// How often the driver is asked to wait for copies, where it refuses.
const WAITS: usize = 8;

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Why copies were not made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Uncopied {
    /// None of them is under way.
    Refused(CUresult),
    /// The driver does not say when those that it has begun are complete.
    UnderWay(CUresult),
}

impl Uncopied {
    pub(super) fn why(self) -> CUresult {
        match self {
            Self::Refused(why) | Self::UnderWay(why) => why,
        }
    }
}

/// Runs `copies` in the contexts of their chunks, and waits for them. `which` gives the chunk's
/// copy.
pub(super) fn copied(
    streams: &mut Streams,
    list: &[(u64, usize, Chunk)],
    mut copy: impl FnMut(usize, &Chunk, CUstream) -> Result<(), CUresult>,
) -> Result<(), Uncopied> {
    let mut by_context: BTreeMap<usize, (CUcontext, Vec<usize>)> = BTreeMap::new();
    for (place, (base, ..)) in list.iter().enumerate() {
        let handle = context_for(*base);
        let handle = handle.ok_or(Uncopied::Refused(CUresult::INVALID_VALUE))?;
        let of = by_context.entry(handle.0.addr());
        of.or_insert((handle, Vec::new())).1.push(place);
    }
    for (context, places) in by_context.into_values() {
        let _current = CurrentContext::make(context).map_err(Uncopied::Refused)?;
        let stream = streams.of(context).map_err(Uncopied::Refused)?;
        let made = places
            .into_iter()
            .try_for_each(|place| copy(place, &list[place].2, stream));
        // Also behind a refusal: those before it use memory of ours.
        awaited(stream)?;
        made.map_err(Uncopied::Refused)?;
    }
    Ok(())
}

/// A context in which an allocation can be copied: its own, or one of its device.
fn context_for(base: u64) -> Option<CUcontext> {
    let device = {
        let blocks = blocks();
        match blocks.map.get(&base) {
            Some(block) if block.pool.is_none() => return Some(block.handle),
            Some(block) => block.device,
            None => blocks.owns.map.get(&base)?.device,
        }
    };
    let contexts = streams::contexts_on(device.index());
    contexts.first().map(|(context, _)| *context)
}

/// Maps what is copied through windows of ours.
fn windows(list: &[(u64, usize, Chunk)]) -> Result<(), CUresult> {
    for (base, _, chunk) in list {
        if is_number(*base)
            && let Valid::Device(handle) = chunk.valid
        {
            own_moves::open_window(*base, handle)?;
        }
    }
    Ok(())
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

/// Waits until our copies are complete. Where the driver refuses to wait, they may still be under
/// way, on memory that is about to be given up: it is asked again, unless nothing runs any more.
fn awaited(stream: CUstream) -> Result<(), Uncopied> {
    let mut last = CUresult::UNKNOWN;
    for _ in 0..WAITS {
        match vmm::await_stream(stream) {
            Ok(()) => return Ok(()),
            Err(why) if is_over(why) => return Err(Uncopied::Refused(why)),
            Err(why) => last = why,
        }
    }
    Err(Uncopied::UnderWay(last))
}

/// Copies between a chunk and its pieces, in their order.
fn each_piece(
    chunk: &Chunk,
    pieces: &[Piece],
    mut address: impl FnMut(Piece) -> Result<usize, CUresult>,
    mut copy: impl FnMut(usize, u64, usize) -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let mut at = chunk.at;
    for piece in pieces {
        let host = address(*piece)?;
        copy(host, at, length(piece.bytes))?;
        at += piece.bytes;
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

/// Moves some chunks of a device to the host.
pub(super) fn leave(streams: &mut Streams, device_index: usize) -> Moved {
    slabs::drop_empty(device_index);
    let (list, pieces) = {
        let mut blocks = blocks();
        blocks.measure(device_index);
        let on_device = |chunk: &Chunk| matches!(chunk.valid, Valid::Device(_));
        let list = blocks.some(device_index, CHUNK, on_device);
        let mut pieces = Vec::with_capacity(list.len());
        for (_, _, chunk) in &list {
            match blocks.store.take(chunk.used) {
                Some(taken) => pieces.push(taken),
                None => {
                    let missing = chunk.used - blocks.store.free();
                    pieces
                        .into_iter()
                        .for_each(|taken| blocks.store.give(taken));
                    return Moved::Failed(missing);
                }
            }
        }
        (list, pieces)
    };
    if list.is_empty() {
        // Memory that the driver did not take back is offered again, before the daemon counts on
        // it.
        spent::again();
        return Moved::All;
    }
    let copies = windows(&list).map_err(Uncopied::Refused).and_then(|()| {
        copied(streams, &list, |place, chunk, stream| {
            each_piece(chunk, &pieces[place], mapped, |host, at, bytes| {
                vmm::to_host(host, at, bytes, stream)
            })
        })
    });
    if let Err(uncopied) = copies {
        let why = uncopied.why();
        tracing::warn!(?why, "memory could not be copied to the host: it stays");
        let mut blocks = blocks();
        for taken in pieces {
            match uncopied {
                Uncopied::Refused(_) => blocks.store.give(taken),
                // A copy may still write there: nothing else is ever put there.
                Uncopied::UnderWay(_) => blocks.store.lose(&taken),
            }
        }
        return Moved::Failed(0);
    }
    let mut failed = false;
    for ((base, index, chunk), taken) in list.into_iter().zip(pieces) {
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
        return Moved::Failed(0);
    }
    Moved::Some
}

/// Brings some chunks of a device back, all but so many bytes, which are `withheld`. The first time
/// it takes the physical memory of all that is not.
pub(super) fn enter(
    streams: &mut Streams,
    fetched: &mut Fetched,
    device_index: usize,
    withheld: u64,
) -> Moved {
    if seal::is_lost() {
        // A part of it is gone: the rest is of no use without.
        return Moved::Failed(0);
    }
    if let Err(why) = own_moves::mend(device_index) {
        tracing::warn!(?why, "memory could not be mapped again yet");
        return Moved::Failed(0);
    }
    let bare = |chunk: &Chunk| matches!(chunk.valid, Valid::Host(_)) && chunk.new.is_none();
    let mut missing = blocks().some(device_index, u64::MAX, bare);
    let held = withhold(&mut missing, withheld);
    if !missing.is_empty()
        && let Err(bytes) = take_all(&missing)
    {
        undo(device_index);
        return Moved::Failed(bytes);
    }
    let to_copy = |chunk: &Chunk| chunk.new.is_some_and(|new| !new.copied);
    let list = blocks().some(device_index, CHUNK, to_copy);
    if list.is_empty() && held {
        return Moved::Withheld;
    }
    if list.is_empty() {
        fetched.release();
        commit(device_index);
        return Moved::All;
    }
    let brought = list
        .iter()
        .try_for_each(|(base, index, chunk)| make_accessible(*base, *index, chunk))
        .map_err(Uncopied::Refused)
        .and_then(|()| {
            copied(streams, &list, |_, chunk, stream| {
                let Valid::Host(pieces) = &chunk.valid else {
                    return Ok(());
                };
                each_piece(
                    chunk,
                    pieces,
                    |piece| fetched.address(piece, stream),
                    |host, at, bytes| vmm::to_device(at, host, bytes, stream),
                )
            })
        });
    if let Err(uncopied) = brought {
        let why = uncopied.why();
        tracing::warn!(?why, "memory could not be brought back: it stays away");
        // Memory that a copy may still write to is not unmapped. The next return goes on with it.
        match uncopied {
            Uncopied::Refused(_) => {
                fetched.release();
                undo(device_index);
            }
            Uncopied::UnderWay(_) => fetched.abandon(),
        }
        return Moved::Failed(0);
    }
    for (base, _, chunk) in &list {
        if is_number(*base)
            && let Some(new) = chunk.new
            && let Err(why) = own_moves::map(*base, new.handle)
        {
            tracing::warn!(?why, "memory could not be mapped again: it stays away");
            undo(device_index);
            return Moved::Failed(0);
        }
    }
    let mut blocks = blocks();
    for (base, index, _) in list {
        if let Some(new) = blocks
            .chunk(base, index)
            .and_then(|chunk| chunk.new.as_mut())
        {
            new.copied = true;
        }
    }
    Moved::Some
}

/// Takes the last ones off the list, of so many bytes at least. Whether there are some.
fn withhold(list: &mut Vec<(u64, usize, Chunk)>, withheld: u64) -> bool {
    let mut bytes = 0;
    while bytes < withheld
        && let Some((_, _, chunk)) = list.pop()
    {
        bytes += chunk.bytes;
    }
    bytes > 0
}

/// Physical memory for all of these. `Err`: so many bytes were not to be had.
fn take_all(list: &[(u64, usize, Chunk)]) -> Result<(), u64> {
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
    Ok(())
}

fn made_anew(base: u64, bytes: usize) -> Option<Result<CUmemGenericAllocationHandle, CUresult>> {
    let (ordinal, props) = {
        let blocks = blocks();
        let props = blocks.owns.map.get(&base).map(|own| own.props);
        (blocks.ordinal(base)?, props)
    };
    Some(match props {
        Some(props) => vmm::create_as(ordinal, bytes, props.handle_types, props.rdma),
        None => vmm::create(ordinal, bytes),
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
        if let Some(new) = blocks()
            .chunk(base, index)
            .and_then(|chunk| chunk.new.as_mut())
        {
            new.mapped = true;
        }
    }
    let block = blocks().map.get(&base).cloned();
    let block = block.ok_or(CUresult::INVALID_VALUE)?;
    open(chunk.at, chunk.bytes, &block)?;
    if block.sync_memops {
        vmm::set_sync_memops(chunk.at, true)?;
    }
    Ok(())
}

fn commit(device_index: usize) {
    blocks().has_entered(device_index);
}

/// Gives up what a return has made: the host's copies are the valid ones.
pub(super) fn undo(device_index: usize) {
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
            if let Some(new) = blocks()
                .chunk(base, index)
                .and_then(|chunk| chunk.new.as_mut())
            {
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
