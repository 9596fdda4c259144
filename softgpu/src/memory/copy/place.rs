//! One side of a transfer: its place, its row layout, and its bytes at execution.

use std::sync::Arc;

use crate::Result;
use crate::memory::array::{self, Array};
use crate::memory::table;
use crate::va::{self, Access, Fault};
use gpushare_cuda_abi::cuda::CUresult;

/// The place of one side of a transfer.
#[derive(Debug, Clone)]
pub enum Place {
    /// Host memory that the driver does not know, by its address.
    Pageable(usize),
    /// An address of driver memory: linear, pool, mapped, managed, pinned or registered.
    Address(u64),
    /// A CUDA array, by its handle.
    Array(usize),
    /// A staging copy of pageable memory, made during the call.
    Staged(Arc<Vec<u8>>),
}

impl Place {
    /// The meaning of an address under unified addressing: driver memory if the driver knows it or
    /// it is a device address, else pageable memory.
    pub fn unified(address: u64) -> Self {
        if table::known(address) || va::is_device(address) {
            Self::Address(address)
        } else {
            Self::Pageable(usize::try_from(address).unwrap_or(usize::MAX))
        }
    }
}

/// One side: its place, the corner of the box, and the distances between rows and slices.
#[derive(Debug, Clone)]
pub struct Side {
    /// The place.
    pub place: Place,
    /// Bytes from the start of a row.
    pub x: u64,
    /// Rows from the start of a slice.
    pub y: u64,
    /// Slices.
    pub z: u64,
    /// Bytes from one row to the next. Unused for arrays.
    pub pitch: u64,
    /// Rows from one slice to the next. Unused for arrays.
    pub rows: u64,
    /// The ordinal of the device with whose rights it is accessed; `None`: any device's.
    pub by: Option<u32>,
}

/// The box to copy: bytes in a row, rows, slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes in a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// Slices.
    pub depth: u64,
}

impl Shape {
    /// The total size in bytes; `None` on overflow.
    pub(crate) fn total(self) -> Option<u64> {
        self.width.checked_mul(self.height)?.checked_mul(self.depth)
    }
}

/// A side resolved to memory: a pointer to the box's corner, and the distances between rows and
/// between slices.
pub(super) struct Rows {
    pub(super) first: *mut u8,
    pub(super) pitch: u64,
    pub(super) slice: u64,
}

impl Side {
    /// A side that is one row of bytes.
    pub(crate) fn line(place: Place) -> Self {
        Self {
            place,
            x: 0,
            y: 0,
            z: 0,
            pitch: 0,
            rows: 1,
            by: None,
        }
    }

    /// The offset of the corner, and the length from there to the last byte; `None` on overflow.
    fn span(&self, shape: Shape) -> Option<(u64, u64)> {
        let slice = self.pitch.checked_mul(self.rows)?;
        let corner = slice
            .checked_mul(self.z)?
            .checked_add(self.pitch.checked_mul(self.y)?)?
            .checked_add(self.x)?;
        let last = slice
            .checked_mul(shape.depth - 1)?
            .checked_add(self.pitch.checked_mul(shape.height - 1)?)?
            .checked_add(shape.width)?;
        Some((corner, last))
    }

    /// The range of driver memory from the first byte of the box to its last; `None` for other
    /// places.
    pub(crate) fn range(&self, shape: Shape) -> Option<(u64, u64)> {
        let Place::Address(base) = self.place else {
            return None;
        };
        if shape.total() == Some(0) {
            return None;
        }
        let (corner, len) = self.span(shape)?;
        Some((base.checked_add(corner)?, len))
    }

    /// Checks what the driver can check when the call is made: strides that fit the box, the range
    /// against the driver's allocations, and the device's rights to it.
    pub(crate) fn check(&self, shape: Shape, access: Access) -> Result {
        if let Place::Array(handle) = self.place {
            let store = array::store(handle).ok_or(CUresult::INVALID_HANDLE)?;
            return store
                .contains(self, shape)
                .then_some(())
                .ok_or(CUresult::INVALID_VALUE);
        }
        let rows_fit = shape.height <= 1 && shape.depth <= 1
            || self.pitch >= self.x.saturating_add(shape.width);
        let slices_fit = shape.depth <= 1 || self.rows >= self.y.saturating_add(shape.height);
        let Some((corner, len)) = self.span(shape) else {
            return Err(CUresult::INVALID_VALUE);
        };
        if !(rows_fit && slices_fit) {
            return Err(CUresult::INVALID_VALUE);
        }
        match &self.place {
            Place::Address(base) if !table::covers(base.wrapping_add(corner), len) => {
                Err(CUresult::INVALID_VALUE)
            }
            Place::Address(base)
                if self.by.is_some_and(|ordinal| {
                    !table::reaches(ordinal, base.wrapping_add(corner), len, access)
                }) =>
            {
                Err(CUresult::INVALID_VALUE)
            }
            Place::Pageable(0) => Err(CUresult::INVALID_VALUE),
            _ => Ok(()),
        }
    }

    /// Its array, if it is one that exists.
    pub(super) fn array(&self) -> Option<Arc<Array>> {
        match &self.place {
            Place::Array(handle) => array::store(*handle),
            _ => None,
        }
    }

    /// The memory, resolved at execution.
    pub(super) fn rows(&self, shape: Shape, access: Access) -> std::result::Result<Rows, Fault> {
        let (corner, len) = self.span(shape).unwrap_or((0, u64::MAX));
        let strided = |first| Rows {
            first,
            pitch: self.pitch,
            slice: self.pitch * self.rows,
        };
        match &self.place {
            Place::Pageable(base) => Ok(strided(at(*base, corner))),
            Place::Address(base) => {
                table::engine_bytes(self.by, base.wrapping_add(corner), len, access).map(strided)
            }
            Place::Staged(bytes) => Ok(strided(at(bytes.as_ptr().expose_provenance(), corner))),
            Place::Array(handle) => {
                let store = array::store(*handle).ok_or(Fault {
                    addr: 0,
                    absent: true,
                })?;
                array_rows(&store, self, shape, access)
            }
        }
    }
}

fn array_rows(
    store: &Array,
    side: &Side,
    shape: Shape,
    access: Access,
) -> std::result::Result<Rows, Fault> {
    let fault = Fault {
        addr: store.address(),
        absent: true,
    };
    if !store.contains(side, shape) {
        return Err(fault);
    }
    let (pitch, slice) = (store.pitch(), store.slice());
    let corner = slice * side.z + pitch * side.y + side.x;
    let len = slice * (shape.depth - 1) + pitch * (shape.height - 1) + shape.width;
    let first = table::engine_bytes(None, store.address() + corner, len, access)?;
    Ok(Rows {
        first,
        pitch,
        slice,
    })
}

fn at(base: usize, offset: u64) -> *mut u8 {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    std::ptr::with_exposed_provenance_mut(base.wrapping_add(offset))
}
