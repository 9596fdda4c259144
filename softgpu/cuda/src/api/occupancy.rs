//! Occupancy.
//!
//! # Safety
//! `unsafe` calls the caller's function that returns the shared memory of a block size.
#![allow(unsafe_code, reason = "the caller's callback is a C function")]

use gpushare_cuda_abi::cuda::{CUfunction, CUlaunchConfig, CUoccupancyB2DSize, CUresult};
use softgpu::Result;
use softgpu::context;
use softgpu::module::{self, occupancy};

use crate::abi::{input, out, required};

fn unsigned<T: TryInto<u32>>(value: T) -> Result<u32> {
    value.try_into().map_err(|_| CUresult::INVALID_VALUE)
}

fn signed(value: u32) -> Result<i32> {
    i32::try_from(value).map_err(|_| CUresult::INVALID_VALUE)
}

fn active_blocks(blocks: *mut i32, f: CUfunction, threads: i32, shared: usize) -> Result {
    required(blocks)?;
    module::function(&context::current()?, f)?;
    let threads = unsigned(threads)?;
    if threads == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    out(
        blocks,
        signed(occupancy::blocks_per_sm(
            threads,
            unsigned(shared).unwrap_or(u32::MAX),
        ))?,
    )
}

fn best_block(
    grid: *mut i32,
    block: *mut i32,
    f: CUfunction,
    sizes: CUoccupancyB2DSize,
    shared: usize,
    limit: i32,
) -> Result {
    required(grid)?;
    required(block)?;
    let function = module::function(&context::current()?, f)?;
    let shared_of = |threads: u32| {
        let bytes = match sizes {
            // SAFETY: the caller's function accepts any block size and returns bytes.
            Some(sizes) => unsafe { sizes(i32::try_from(threads).unwrap_or(i32::MAX)) },
            None => shared,
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    };
    let sm = function.context().device().spec().sm;
    let (blocks, threads) = occupancy::best_block(sm, unsigned(limit)?, shared_of);
    out(grid, signed(blocks)?)?;
    out(block, signed(threads)?)
}

fn config_of(config: *const CUlaunchConfig, f: CUfunction) -> Result<(u32, u32, u32)> {
    let config = input(config)?;
    let function = module::function(&context::current()?, f)?;
    let threads = config
        .blockDimX
        .saturating_mul(config.blockDimY)
        .saturating_mul(config.blockDimZ);
    if !(1..=1024).contains(&threads) {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok((
        threads,
        config.sharedMemBytes,
        function.context().device().spec().sm,
    ))
}

driver! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut i32, f: CUfunction, threads: i32, shared: usize) {
        active_blocks(blocks, f, threads, shared)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: *mut i32, f: CUfunction, threads: i32, shared: usize, flags: u32) {
        if flags > 1 {
            return Err(CUresult::INVALID_VALUE);
        }
        active_blocks(blocks, f, threads, shared)
    }

    fn cuOccupancyMaxPotentialBlockSize(grid: *mut i32, block: *mut i32, f: CUfunction, sizes: CUoccupancyB2DSize, shared: usize, limit: i32) {
        best_block(grid, block, f, sizes, shared, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(grid: *mut i32, block: *mut i32, f: CUfunction, sizes: CUoccupancyB2DSize, shared: usize, limit: i32, flags: u32) {
        if flags > 1 {
            return Err(CUresult::INVALID_VALUE);
        }
        best_block(grid, block, f, sizes, shared, limit)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(bytes: *mut usize, f: CUfunction, blocks: i32, threads: i32) {
        required(bytes)?;
        let function = module::function(&context::current()?, f)?;
        let shared = occupancy::shared_for(unsigned(blocks)?, unsigned(threads)?).ok_or(CUresult::INVALID_VALUE)?;
        // No more than a launch of this function may ask for.
        let shared = shared.min(function.attributes().dynamic_shared());
        out(bytes, usize::try_from(shared).map_err(|_| CUresult::INVALID_VALUE)?)
    }

    fn cuOccupancyMaxPotentialClusterSize(size: *mut i32, f: CUfunction, config: *const CUlaunchConfig) {
        required(size)?;
        config_of(config, f)?;
        // The portable maximum (compute capability 9.0).
        out(size, 8)
    }

    /// Clusters of eight blocks.
    fn cuOccupancyMaxActiveClusters(count: *mut i32, f: CUfunction, config: *const CUlaunchConfig) {
        required(count)?;
        let (threads, shared, sm) = config_of(config, f)?;
        out(count, signed(sm * occupancy::blocks_per_sm(threads, shared) / 8)?)
    }
}
