//! Copies as descriptions: they are checked when the call is made, stored in graph nodes, and
//! executed in stream order.
//!
//! # Safety
//! Executing a transfer moves bytes by pointer. Driver memory is checked against the address table
//! under [`table::still`], which keeps mappings in place while the bytes move. The caller
//! guarantees host memory that the driver does not know, as in the real API.
#![allow(unsafe_code, reason = "moves bytes by address, as a copy engine does")]

mod describe;
mod issue;
mod place;

use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

pub(crate) use issue::{Home, accesses, home_of, homes};
pub use issue::{SourceOrder, op};
pub use place::{Place, Shape, Side};

use super::table;
use crate::Result;
use crate::context::Context;
use crate::va::{Access, Fault};

/// A copy of a box of bytes from one place to another.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// The source.
    pub src: Side,
    /// The destination.
    pub dst: Side,
    /// The size of the box.
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

    /// The same copy with each side moved by so many bytes in its row.
    pub fn shifted(mut self, dst: u64, src: u64) -> Self {
        self.dst.x = self.dst.x.saturating_add(dst);
        self.src.x = self.src.x.saturating_add(src);
        self
    }

    /// The same copy between contexts: each side is accessed with the rights of its context's
    /// device.
    pub fn between(mut self, dst: &Context, src: &Context) -> Self {
        self.dst.by = Some(dst.device().ordinal());
        self.src.by = Some(src.device().ordinal());
        self
    }

    /// The same copy in a context, unless it is one between contexts. A driver fails copies of
    /// mapped or pool memory that the current context's device may not access, whatever the
    /// direction; plain memory has no such limit.
    pub fn of(mut self, context: &Context) -> Self {
        let ordinal = context.device().ordinal();
        self.dst.by.get_or_insert(ordinal);
        self.src.by.get_or_insert(ordinal);
        self
    }

    /// Bytes moved.
    pub fn bytes(&self) -> u64 {
        self.shape.total().unwrap_or(0)
    }

    /// Checks what the driver can check when the call is made.
    ///
    /// # Errors
    /// `INVALID_VALUE` for illegal strides, a range that is not in one driver allocation, or one
    /// that the device may not access; `INVALID_HANDLE` for an unknown array.
    pub fn check(&self) -> Result {
        if self.shape.total().is_none() {
            return Err(CUresult::INVALID_VALUE);
        }
        if self.bytes() == 0 {
            return Ok(());
        }
        self.src.check(self.shape, Access::Read)?;
        self.dst.check(self.shape, Access::Write)
    }

    /// Copies a pageable source to a staging buffer, so that the caller may change the source when
    /// the call returns.
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
                by: None,
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
                by: None,
            };
        }
    }

    /// Moves the bytes.
    ///
    /// # Errors
    /// A fault if part of the driver memory is not mapped any more.
    pub fn run(&self) -> std::result::Result<(), Fault> {
        if self.bytes() == 0 {
            return Ok(());
        }
        // An array that is destroyed meanwhile goes after the bytes have moved.
        let _kept = [&self.src, &self.dst].map(Side::array);
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
                // SAFETY: driver memory was just checked for the whole box and `_still` keeps it
                // mapped; the caller guarantees host memory. `copy` allows the two to overlap.
                unsafe { std::ptr::copy(from, to, offset(run)) };
            }
        }
        Ok(())
    }
}

fn offset(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
