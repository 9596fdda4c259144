//! The moves themselves, by the mover's thread alone, while the process is sealed and drained.
//!
//! On the way out: copy, wait for the copy, unmap, release. Until the copy is complete the device's
//! is the valid one. On the way back: all physical memory first, or none; then map, give access and
//! copy, a part at a time. Until the last is complete the host's copies are the valid ones, so a
//! return is undone by dropping what it made. No lock is held while the driver is called.

use std::collections::BTreeMap;

use gpushare_cuda_abi::cuda::{CUcontext, CUresult, CUstream, CUstream_flags};
use gpushare_pacing::mover::Moved;

use super::blocks::{CHUNK, Chunk, New, Valid};
use super::host::{Piece, STEP};
use super::memory::blocks;
use crate::driver::calls;
use crate::driver::current::CurrentContext;
use crate::driver::marking;
use crate::driver::vmm;
use crate::gate::marks::is_over;
use crate::session::Session;

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

/// Runs `copies` in the contexts of their chunks, and waits for them. `which` gives the chunk's
/// copy.
fn copied(
    streams: &mut Streams,
    list: &[(u64, usize, Chunk)],
    mut copy: impl FnMut(usize, &Chunk, CUstream) -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let mut by_context: BTreeMap<usize, (CUcontext, Vec<usize>)> = BTreeMap::new();
    for (place, (base, ..)) in list.iter().enumerate() {
        let handle = blocks().map.get(base).map(|block| block.handle);
        let handle = handle.ok_or(CUresult::INVALID_VALUE)?;
        let of = by_context.entry(handle.0.addr());
        of.or_insert((handle, Vec::new())).1.push(place);
    }
    for (context, places) in by_context.into_values() {
        let _current = CurrentContext::make(context)?;
        let stream = streams.of(context)?;
        let made = places
            .into_iter()
            .try_for_each(|place| copy(place, &list[place].2, stream));
        // Also behind a refusal: those before it use memory of ours.
        let waited = awaited(stream);
        made.and(waited)?;
    }
    Ok(())
}

/// Waits until our copies are complete. Where the driver refuses to wait, they may still be under
/// way, on memory that is about to be given up: it is asked again, unless nothing runs any more.
fn awaited(stream: CUstream) -> Result<(), CUresult> {
    let mut last = Ok(());
    for _ in 0..WAITS {
        last = vmm::await_stream(stream);
        match last {
            Err(why) if !is_over(why) => {}
            done => return done,
        }
    }
    last
}

/// Copies between a chunk and its pieces, in their order.
fn each_piece(
    chunk: &Chunk,
    pieces: &[Piece],
    mut copy: impl FnMut(usize, u64, usize) -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let mut at = chunk.at;
    for piece in pieces {
        let host = blocks().store.address(*piece);
        copy(host, at, length(piece.bytes))?;
        at += piece.bytes;
    }
    Ok(())
}

/// Moves some chunks of a device to the host.
pub(super) fn leave(streams: &mut Streams, device_index: usize) -> Moved {
    let (list, pieces) = {
        let mut blocks = blocks();
        let on_device = |chunk: &Chunk| matches!(chunk.valid, Valid::Device(_));
        let list = blocks.some(device_index, CHUNK, on_device);
        let mut pieces = Vec::with_capacity(list.len());
        for (_, _, chunk) in &list {
            match blocks.store.take(chunk.bytes) {
                Some(taken) => pieces.push(taken),
                None => {
                    let missing = chunk.bytes - blocks.store.free();
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
        return Moved::All;
    }
    let copies = copied(streams, &list, |place, chunk, stream| {
        each_piece(chunk, &pieces[place], |host, at, bytes| {
            vmm::to_host(host, at, bytes, stream)
        })
    });
    if let Err(why) = copies {
        tracing::warn!(?why, "memory could not be copied to the host: it stays");
        let mut blocks = blocks();
        pieces
            .into_iter()
            .for_each(|taken| blocks.store.give(taken));
        return Moved::Failed(0);
    }
    let mut failed = false;
    for ((base, index, chunk), taken) in list.into_iter().zip(pieces) {
        let Valid::Device(handle) = chunk.valid else {
            continue;
        };
        // Mapped memory stays the valid copy.
        if failed || vmm::unmap(chunk.at, length(chunk.bytes)).is_err() {
            failed = true;
            blocks().store.give(taken);
            continue;
        }
        blocks().has_left(base, index, taken);
        let _ = calls::release_physical(handle);
    }
    if failed {
        tracing::warn!("memory could not be unmapped: it stays");
        return Moved::Failed(0);
    }
    Moved::Some
}

/// Brings some chunks of a device back; the first time it takes the physical memory of all.
pub(super) fn enter(streams: &mut Streams, device_index: usize) -> Moved {
    let bare = |chunk: &Chunk| matches!(chunk.valid, Valid::Host(_)) && chunk.new.is_none();
    let missing = blocks().some(device_index, u64::MAX, bare);
    if !missing.is_empty()
        && let Err(bytes) = take_all(&missing)
    {
        undo(device_index);
        return Moved::Failed(bytes);
    }
    let to_copy = |chunk: &Chunk| chunk.new.is_some_and(|new| !new.copied);
    let list = blocks().some(device_index, CHUNK, to_copy);
    if list.is_empty() {
        commit(device_index);
        return Moved::All;
    }
    let brought = list
        .iter()
        .try_for_each(|(base, index, chunk)| make_accessible(*base, *index, chunk))
        .and_then(|()| {
            copied(streams, &list, |_, chunk, stream| {
                let Valid::Host(pieces) = &chunk.valid else {
                    return Ok(());
                };
                each_piece(chunk, pieces, |host, at, bytes| {
                    vmm::to_device(at, host, bytes, stream)
                })
            })
        });
    if let Err(why) = brought {
        tracing::warn!(?why, "memory could not be brought back: it stays away");
        undo(device_index);
        return Moved::Failed(0);
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

/// Physical memory for all of these. `Err`: so many bytes were not to be had.
fn take_all(list: &[(u64, usize, Chunk)]) -> Result<(), u64> {
    for (place, (base, index, chunk)) in list.iter().enumerate() {
        let ordinal = blocks().map.get(base).map(|block| block.ordinal);
        let made = ordinal.map(|ordinal| vmm::create(ordinal, length(chunk.bytes)));
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

fn make_accessible(base: u64, index: usize, chunk: &Chunk) -> Result<(), CUresult> {
    let Some(new) = chunk.new else {
        return Ok(());
    };
    if !new.mapped {
        vmm::map(chunk.at, length(chunk.bytes), new.handle)?;
        if let Some(new) = blocks()
            .chunk(base, index)
            .and_then(|chunk| chunk.new.as_mut())
        {
            new.mapped = true;
        }
    }
    let (devices, sync_memops) = {
        let blocks = blocks();
        let block = blocks.map.get(&base).ok_or(CUresult::INVALID_VALUE)?;
        (blocks.accessors(block), block.sync_memops)
    };
    vmm::give_access(chunk.at, length(chunk.bytes), &devices)?;
    if sync_memops {
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
        if new.mapped {
            let _ = vmm::unmap(chunk.at, length(chunk.bytes));
        }
        let _ = calls::release_physical(new.handle);
        if let Some(chunk) = blocks().chunk(base, index) {
            chunk.new = None;
        }
    }
}

/// In the background: asks for more of the host store as there is more to move, takes what was
/// given, and has the driver pin it.
pub(super) fn provide(session: &Session, asked: &mut Asked, now: u64, sealed: bool) {
    for (address, bytes) in session.take_host_ranges() {
        blocks().store.add(address, bytes);
        *asked = Asked::default();
    }
    asked.waits &= now < asked.until && !session.host_was_refused();
    let (device_index, wanted) = {
        let blocks = blocks();
        let wanted: u64 = blocks.movable.iter().sum();
        let device_index = blocks.movable.iter().position(|bytes| *bytes > 0);
        (
            device_index.unwrap_or(0),
            wanted.saturating_sub(blocks.store.bytes()),
        )
    };
    if wanted > 0 && now >= asked.until {
        asked.until = now.saturating_add(Asked::PATIENCE);
        asked.waits = true;
        session.ask_host_range(device_index, wanted.next_multiple_of(STEP));
    }
    if sealed {
        return;
    }
    let context = blocks().map.values().next().map(|block| block.handle);
    let Some(context) = context else { return };
    let Some((address, bytes)) = blocks().store.next_to_pin() else {
        return;
    };
    let pinned = marking::keeping(context, || vmm::register_host(address, bytes));
    let pinned = pinned.unwrap_or(Err(CUresult::INVALID_CONTEXT));
    if let Err(why) = pinned {
        tracing::warn!(?why, "host memory is not pinned: moves will be slow");
    }
}

/// A request for host memory that is not answered yet.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Another is sent then (ns).
    until: u64,
    /// An answer may come.
    pub(super) waits: bool,
}

impl Asked {
    /// How long an answer is waited for (ns).
    const PATIENCE: u64 = 1_000_000_000;
}
