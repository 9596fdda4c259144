//! Launches in the style of CUDA 2 and 3: block shape, shared memory and parameters are set on the
//! function, then it is launched.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

use super::function::Function;
use super::launch::{Shape, launch};
use super::params::Params;
use crate::error::Result;
use crate::exec::StreamRef;

/// The maximum size of the parameters (bytes).
const MOST: usize = 4096;

/// The launch state set on a function.
#[derive(Debug, Default)]
pub struct LegacyState {
    block: Option<[u32; 3]>,
    shared: u32,
    params: Vec<u8>,
    size: usize,
}

impl LegacyState {
    /// Sets the block's dimensions.
    ///
    /// # Errors
    /// `INVALID_VALUE` for a dimension below 1.
    pub fn set_block(&mut self, block: [i32; 3]) -> Result {
        let mut sides = [0; 3];
        for (side, given) in sides.iter_mut().zip(block) {
            *side = u32::try_from(given)
                .ok()
                .filter(|side| *side > 0)
                .ok_or(CUresult::INVALID_VALUE)?;
        }
        self.block = Some(sides);
        Ok(())
    }

    /// Sets the dynamic shared memory (bytes).
    pub fn set_shared(&mut self, bytes: u32) {
        self.shared = bytes;
    }

    /// Sets the size of the parameters (bytes).
    ///
    /// # Errors
    /// `INVALID_VALUE` for more than 4096.
    pub fn set_size(&mut self, bytes: usize) -> Result {
        self.size = Some(bytes)
            .filter(|bytes| *bytes <= MOST)
            .ok_or(CUresult::INVALID_VALUE)?;
        Ok(())
    }

    /// Sets bytes of the parameters, from `offset`.
    ///
    /// # Errors
    /// `INVALID_VALUE` if they end beyond 4096.
    pub fn set_param(&mut self, offset: usize, bytes: &[u8]) -> Result {
        let end = offset
            .checked_add(bytes.len())
            .filter(|end| *end <= MOST)
            .ok_or(CUresult::INVALID_VALUE)?;
        if self.params.len() < end {
            self.params.resize(end, 0);
        }
        self.params[offset..end].copy_from_slice(bytes);
        Ok(())
    }

    fn call(&self, grid: [u32; 2], function: &Function) -> Result<(Shape, Params)> {
        let block = self.block.ok_or(CUresult::INVALID_VALUE)?;
        let mut bytes = self.params.clone();
        bytes.resize(self.size, 0);
        let params = Params::from_bytes(&function.copied(), &bytes)?;
        Ok((
            Shape::new([grid[0], grid[1], 1], block, self.shared),
            params,
        ))
    }
}

/// Launches a function with the state set on it.
///
/// # Errors
/// `INVALID_VALUE` if no block shape was set, the parameters are too short or a dimension is below
/// 1; as [`launch`].
pub fn launch_set(stream: &StreamRef, function: Arc<Function>, width: i32, height: i32) -> Result {
    let side = |given: i32| u32::try_from(given).map_err(|_| CUresult::INVALID_VALUE);
    let grid = [side(width)?, side(height)?];
    let (shape, params) = function.legacy().call(grid, &function)?;
    launch(stream, function, shape, params)
}
