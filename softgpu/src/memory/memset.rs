//! Memsets as descriptions: they are checked when the call is made, stored in graph nodes, and
//! executed in stream order.
//!
//! # Safety
//! Executing a memset writes through a pointer into driver memory that was just checked, under
//! [`table::still`].
#![allow(unsafe_code, reason = "writes bytes by address, as a copy engine does")]

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{CUDA_MEMSET_NODE_PARAMS_v2, CUresult, CUstream};

use super::managed::{Accessed, Manner};
use super::{pointer, table};
use crate::Result;
use crate::context::Context;
use crate::exec::{self, Cost, DefaultStream, Kind, Op, Raw};
use crate::va::{Access, Fault};

/// A memset: rows of equal elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// Address of the first element.
    pub dst: u64,
    /// Bytes from one row to the next; unused for a single row.
    pub pitch: u64,
    /// The element; for 1- and 2-byte elements the low bytes are used.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: u8,
    /// Elements in a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
}

impl Fill {
    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.row().saturating_mul(self.height)
    }

    /// Whether the memory is on the host. Such a memset is complete when the call returns.
    pub fn on_host(&self) -> bool {
        table::find(self.dst).is_some_and(|(_, record)| !record.on_device())
    }

    /// Checks what the driver can check when a call for the device with the ordinal `by` is made.
    ///
    /// # Errors
    /// `INVALID_VALUE` for an illegal element size, alignment, pitch or range, or a range that the
    /// device may not write.
    pub fn check(&self, by: u32) -> Result {
        let element = u64::from(self.element);
        let aligned = matches!(element, 1 | 2 | 4)
            && self.dst.is_multiple_of(element)
            && (self.height <= 1 || self.pitch.is_multiple_of(element));
        let fits = self.height <= 1 || self.pitch >= self.row();
        if !aligned || !fits {
            return Err(CUresult::INVALID_VALUE);
        }
        let Some(span) = self.span() else {
            return Err(CUresult::INVALID_VALUE);
        };
        let reached =
            || table::covers(self.dst, span) && table::reaches(by, self.dst, span, Access::Write);
        (span == 0 || reached())
            .then_some(())
            .ok_or(CUresult::INVALID_VALUE)
    }

    /// Writes the elements, for the device with the ordinal `by`.
    ///
    /// # Errors
    /// A fault if part of the memory is not mapped any more, or the device may not write it.
    pub fn run(&self, by: u32) -> std::result::Result<(), Fault> {
        let span = self.span().unwrap_or(u64::MAX);
        if span == 0 {
            return Ok(());
        }
        let _still = table::still();
        let first = table::engine_bytes(Some(by), self.dst, span, Access::Write)?;
        let pattern = self.value.to_le_bytes();
        for y in 0..self.height {
            let row = first.wrapping_add(usize::try_from(y * self.pitch).unwrap_or(usize::MAX));
            let width = usize::try_from(self.row()).unwrap_or(0);
            // SAFETY: the whole span was checked just now and `_still` keeps it mapped; nothing in
            // this process holds a Rust reference into driver memory.
            let row = unsafe { std::slice::from_raw_parts_mut(row, width) };
            write_pattern(row, &pattern[..usize::from(self.element)]);
        }
        Ok(())
    }

    /// The memset as an operation.
    pub fn op(self, context: &Context) -> Op {
        let node = CUDA_MEMSET_NODE_PARAMS_v2 {
            dst: self.dst,
            pitch: usize::try_from(self.pitch).unwrap_or(usize::MAX),
            value: self.value,
            elementSize: u32::from(self.element),
            width: usize::try_from(self.width).unwrap_or(usize::MAX),
            height: usize::try_from(self.height).unwrap_or(usize::MAX),
            ctx: context.handle(),
        };
        let by = context.device().ordinal();
        Op::new(
            Kind::Fill(Raw(node)),
            Cost::OnDevice(self.bytes()),
            move || self.run(by).map_err(Into::into),
        )
    }

    /// Submits it to a stream. Waits for completion if the memory is host memory or has
    /// `SYNC_MEMOPS` set; otherwise returns at once, for the synchronous functions too.
    ///
    /// # Errors
    /// The errors of the arguments, of capture or of failed work.
    pub fn issue(self, context: &Arc<Context>, stream: CUstream, default: DefaultStream) -> Result {
        self.check(context.device().ordinal())?;
        let stream = exec::resolve(context, stream, default)?;
        let wait =
            (self.on_host() || pointer::sync_memops(self.dst)) && !exec::is_capturing(&stream)?;
        if self.bytes() == 0 && !exec::is_capturing(&stream)? {
            Ok(())
        } else if wait {
            exec::run(context, &stream, self.op(context))
        } else {
            exec::submit(context, &stream, self.op(context))
        }
    }

    fn row(&self) -> u64 {
        self.width.saturating_mul(u64::from(self.element))
    }

    /// Bytes from the first to the last byte written; `None` on overflow.
    fn span(&self) -> Option<u64> {
        if self.width == 0 || self.height == 0 {
            return Some(0);
        }
        let row = self.width.checked_mul(u64::from(self.element))?;
        (self.height - 1)
            .checked_mul(if self.height > 1 { self.pitch } else { 0 })?
            .checked_add(row)
    }
}

/// The operation of a memset node.
///
/// # Errors
/// As [`Fill::check`].
pub fn op(context: &Arc<Context>, node: &CUDA_MEMSET_NODE_PARAMS_v2) -> Result<Op> {
    let fill = Fill {
        dst: node.dst,
        pitch: node.pitch as u64,
        value: node.value,
        element: u8::try_from(node.elementSize).map_err(|_| CUresult::INVALID_VALUE)?,
        width: node.width as u64,
        height: node.height as u64,
    };
    fill.check(context.device().ordinal())?;
    Ok(fill.op(context))
}

/// The range that a memset node writes.
pub(crate) fn accesses(node: &CUDA_MEMSET_NODE_PARAMS_v2) -> Vec<Accessed> {
    let rows = (node.height as u64).saturating_sub(1);
    let row = (node.width as u64).saturating_mul(node.elementSize.into());
    let bytes = rows.saturating_mul(node.pitch as u64).saturating_add(row);
    vec![(node.dst, bytes, Manner::Write)]
}

fn write_pattern(row: &mut [u8], pattern: &[u8]) {
    if pattern.iter().all(|byte| *byte == pattern[0]) {
        row.fill(pattern[0]);
    } else {
        // The row is a whole number of patterns. The loop copies what it has written: element by
        // element it took a twentieth of all time that the tests compute.
        let mut written = pattern.len().min(row.len());
        row[..written].copy_from_slice(&pattern[..written]);
        while written < row.len() {
            let more = written.min(row.len() - written);
            row.copy_within(..more, written);
            written += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fill, write_pattern};

    #[test]
    fn a_pattern_of_several_bytes_repeats_along_the_row() {
        let mut row = [0u8; 8];
        write_pattern(&mut row, &[1, 2, 3, 4]);
        assert_eq!(row, [1, 2, 3, 4, 1, 2, 3, 4]);
        let mut row = [0u8; 20];
        write_pattern(&mut row, &[1, 2, 3, 4]);
        assert!(row.chunks(4).all(|element| element == [1, 2, 3, 4]));
        let mut row = [0u8; 8];
        write_pattern(&mut row, &[7, 7]);
        assert_eq!(row, [7; 8]);
    }

    #[test]
    fn a_misaligned_or_overlapping_fill_is_refused() {
        let fill = Fill {
            dst: 0x1001,
            pitch: 0,
            value: 0,
            element: 4,
            width: 1,
            height: 1,
        };
        assert!(fill.check(0).is_err());
        let overlapping = Fill {
            dst: 0x1000,
            pitch: 4,
            value: 0,
            element: 4,
            width: 2,
            height: 2,
        };
        assert!(overlapping.check(0).is_err());
    }

    #[test]
    fn an_empty_memset_succeeds_at_any_address() {
        let fill = Fill {
            dst: 0,
            pitch: 0,
            value: 0,
            element: 1,
            width: 0,
            height: 1,
        };
        assert!(fill.check(0).is_ok());
        assert!(fill.run(0).is_ok());
    }
}
