//! Limits and preferences that an application sets on a context. They are stored and reported. A
//! heap larger than a new context's costs memory ([`device_heap`](crate::module::device_heap)); all
//! other sizes are part of the context's overhead.

use gpushare_cuda_abi::cuda::{CUlimit, CUresult};

use crate::error::Result;

/// All flags that `cuCtxCreate` accepts: the scheduling bits, `MAP_HOST`, `LMEM_RESIZE_TO_MAX`, the
/// two core dump bits, `SYNC_MEMOPS`.
pub const CTX_FLAGS: u32 = 0xff;
/// The maximum size of the persisting part of the L2 cache (the value that an H100 reports).
const MAX_PERSISTING_L2: u64 = 32 << 20;

/// Limits and preferences of one context.
#[derive(Debug, Clone)]
pub struct Settings {
    limits: [u64; 7],
    /// `CUfunc_cache`.
    pub cache: u32,
    /// `CUsharedconfig`.
    pub shared: u32,
}

impl Default for Settings {
    /// The values that a new context reports on a data centre GPU.
    fn default() -> Self {
        let limits = [
            1024,    // STACK_SIZE
            1 << 20, // PRINTF_FIFO_SIZE
            8 << 20, // MALLOC_HEAP_SIZE
            2,       // DEV_RUNTIME_SYNC_DEPTH
            2048,    // DEV_RUNTIME_PENDING_LAUNCH_COUNT
            64,      // MAX_L2_FETCH_GRANULARITY
            0,       // PERSISTING_L2_CACHE_SIZE
        ];
        Self {
            limits,
            cache: 0,
            shared: 1,
        }
    }
}

impl Settings {
    /// One limit.
    ///
    /// # Errors
    /// `UNSUPPORTED_LIMIT` for a limit that this device does not have, `INVALID_VALUE` for an
    /// unknown limit.
    pub fn limit(&self, limit: CUlimit) -> Result<u64> {
        self.limits
            .get(index(limit)?)
            .copied()
            .ok_or(CUresult::UNSUPPORTED_LIMIT)
    }

    /// Sets one limit, rounded to a value that the device supports.
    ///
    /// # Errors
    /// As [`limit`](Self::limit).
    pub fn set_limit(&mut self, limit: CUlimit, value: u64) -> Result {
        let place = self
            .limits
            .get_mut(index(limit)?)
            .ok_or(CUresult::UNSUPPORTED_LIMIT)?;
        *place = match limit {
            CUlimit::STACK_SIZE => value.next_multiple_of(16),
            CUlimit::MAX_L2_FETCH_GRANULARITY => value.min(128),
            CUlimit::PERSISTING_L2_CACHE_SIZE => value.min(MAX_PERSISTING_L2),
            _ => value,
        };
        Ok(())
    }
}

fn index(limit: CUlimit) -> Result<usize> {
    match limit {
        // Device-side synchronisation was removed with compute capability 9.0.
        CUlimit::DEV_RUNTIME_SYNC_DEPTH => Err(CUresult::UNSUPPORTED_LIMIT),
        _ if limit.0 < CUlimit::MAX.0 => Ok(limit.0 as usize),
        _ => Err(CUresult::INVALID_VALUE),
    }
}
