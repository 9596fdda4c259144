//! Occupancy: how many blocks fit on a multiprocessor, with the limits of compute capability 9.0
//! and kernels of modelled size.

use super::attributes::MAX_SHARED;

/// Maximum resident threads of a multiprocessor.
const SM_THREADS: u32 = 2048;
/// Maximum resident blocks of a multiprocessor.
const SM_BLOCKS: u32 = 32;
/// Shared memory of a multiprocessor, and the part the system reserves for each block (bytes).
const SM_SHARED: u32 = 228 << 10;
const BLOCK_RESERVE: u32 = 1 << 10;

/// The number of blocks of `threads` threads and `shared` bytes that are resident on one
/// multiprocessor; 0 if no block fits.
pub fn blocks_per_sm(threads: u32, shared: u32) -> u32 {
    if threads == 0 || threads > 1024 || shared > MAX_SHARED {
        return 0;
    }
    let by_threads = SM_THREADS / threads.next_multiple_of(32);
    let by_shared = SM_SHARED / (shared + BLOCK_RESERVE);
    SM_BLOCKS.min(by_threads).min(by_shared)
}

/// The largest block of at most `limit` threads (0: no limit) with the best occupancy, if a block
/// of `threads` threads uses `shared(threads)` bytes; and the number of such blocks that fill a
/// device of `sm` multiprocessors: (blocks, threads).
pub fn best_block(sm: u32, limit: u32, shared: impl Fn(u32) -> u32) -> (u32, u32) {
    let limit = if limit == 0 { 1024 } else { limit.min(1024) };
    let whole = (1..=(limit - 1) / 32).rev().map(|warps| warps * 32);
    let fill = |threads: u32| blocks_per_sm(threads, shared(threads)) * threads;
    let best = std::iter::once(limit)
        .chain(whole)
        .fold((0, 0), |best: (u32, u32), threads| {
            let filled = fill(threads);
            if filled > best.0 {
                (filled, threads)
            } else {
                best
            }
        });
    let threads = best.1.max(1);
    (sm * blocks_per_sm(threads, shared(threads)), threads)
}

/// Dynamic shared memory available to each of `blocks` blocks of `threads` threads on one
/// multiprocessor (bytes); `None` if the blocks do not fit.
pub fn shared_for(blocks: u32, threads: u32) -> Option<u32> {
    if blocks == 0 || blocks > blocks_per_sm(threads, 0) {
        return None;
    }
    Some((SM_SHARED / blocks - BLOCK_RESERVE).min(MAX_SHARED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_blocks_and_shared_memory_each_set_a_limit() {
        assert_eq!(blocks_per_sm(1024, 0), 2);
        assert_eq!(blocks_per_sm(33, 0), 32);
        assert_eq!(blocks_per_sm(32, 100 << 10), 2);
        assert_eq!(blocks_per_sm(1025, 0), 0);
        assert_eq!(blocks_per_sm(32, 228 << 10), 0);
        assert_eq!(best_block(4, 0, |_| 0), (8, 1024));
        assert_eq!(best_block(4, 48, |_| 0).1, 48);
        assert_eq!(shared_for(2, 1024), Some(113 << 10));
        assert_eq!(shared_for(3, 1024), None);
    }
}
