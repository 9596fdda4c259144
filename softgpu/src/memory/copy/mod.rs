//! Copies, as descriptions that can be checked when the call is made, kept in a graph, and run when
//! their turn comes.
//!
//! # Safety
//! Running a transfer moves bytes by pointer. Driver memory is checked against the address table
//! under [`table::still`], which keeps mappings in place while the bytes move; host memory the
//! driver does not know is the caller's promise, as in the real API.
#![allow(
    unsafe_code,
    reason = "moves bytes by address, which is what a copy engine does"
)]

mod describe;
mod issue;
mod place;

use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

pub use issue::{SourceOrder, op};
pub use place::{Place, Shape, Side};

use super::table;
use crate::Result;
use crate::va::{Access, Fault};

/// A copy of a box of bytes from one place to another.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// Where from.
    pub src: Side,
    /// Where to.
    pub dst: Side,
    /// How much.
    pub shape: Shape,
}

impl Transfer {
    /// A copy of `len` bytes in one row.
    pub fn linear(dst: Place, src: Place, len: u64) -> Self {
        Self {
            src: Side::line(src),
            dst: Side::line(dst),
            shape: Shape {
                width: len,
                height: 1,
                depth: 1,
            },
        }
    }

    /// The same with both sides begun so many bytes later in their rows.
    pub fn shifted(mut self, dst: u64, src: u64) -> Self {
        self.dst.x = self.dst.x.saturating_add(dst);
        self.src.x = self.src.x.saturating_add(src);
        self
    }

    /// Bytes moved.
    pub fn bytes(&self) -> u64 {
        self.shape.total().unwrap_or(0)
    }

    /// What the driver can tell when the call is made.
    ///
    /// # Errors
    /// `INVALID_VALUE` for strides that do not fit or a range that is not all the driver's,
    /// `INVALID_HANDLE` for an unknown array.
    pub fn check(&self) -> Result {
        if self.shape.total().is_none() {
            return Err(CUresult::INVALID_VALUE);
        }
        if self.bytes() == 0 {
            return Ok(());
        }
        self.src.check(self.shape)?;
        self.dst.check(self.shape)
    }

    /// Copies pageable source memory aside, so that the caller may change it as soon as the call
    /// returns.
    pub fn staged(mut self) -> Self {
        if matches!(self.src.place, Place::Pageable(_)) && self.bytes() > 0 {
            self.stage();
        }
        self
    }

    /// Reads the source now.
    fn stage(&mut self) {
        let mut bytes = vec![0u8; usize::try_from(self.bytes()).unwrap_or(0)];
        let (width, height) = (self.shape.width, self.shape.height);
        let aside = Self {
            src: self.src.clone(),
            dst: Side {
                place: Place::Pageable(bytes.as_mut_ptr().expose_provenance()),
                x: 0,
                y: 0,
                z: 0,
                pitch: width,
                rows: height,
            },
            shape: self.shape,
        };
        if aside.run().is_ok() {
            self.src = Side {
                place: Place::Staged(Arc::new(bytes)),
                x: 0,
                y: 0,
                z: 0,
                pitch: width,
                rows: height,
            };
        }
    }

    /// Moves the bytes.
    ///
    /// # Errors
    /// A fault where driver memory is not there (any more), or not all of it.
    pub fn run(&self) -> std::result::Result<(), Fault> {
        if self.bytes() == 0 {
            return Ok(());
        }
        let _still = table::still();
        let src = self.src.rows(self.shape, Access::Read)?;
        let dst = self.dst.rows(self.shape, Access::Write)?;
        let Shape {
            width,
            height,
            depth,
        } = self.shape;
        let whole_slices = src.pitch == width && dst.pitch == width;
        let (run, rows) = if whole_slices {
            (width * height, 1)
        } else {
            (width, height)
        };
        for z in 0..depth {
            for y in 0..rows {
                let from = src
                    .first
                    .wrapping_add(offset(z * src.slice + y * src.pitch));
                let to = dst
                    .first
                    .wrapping_add(offset(z * dst.slice + y * dst.pitch));
                // SAFETY: driver memory was checked for the whole box just now and `_still` keeps
                // it mapped; host memory is valid by the caller's promise. `copy` allows the two to
                // overlap.
                unsafe { std::ptr::copy(from, to, offset(run)) };
            }
        }
        Ok(())
    }
}

fn offset(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
