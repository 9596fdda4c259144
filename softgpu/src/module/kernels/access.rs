//! How kernels touch memory: a checked range of numbers, each read or written at once.
//!
//! # Safety
//! `unsafe` turns addresses into atomics. Invariant, kept by [`Region::new`]: the range is
//! published for this device with the needed right, so the shadow address is mapped for its whole
//! length; a launch holds [`memory::still`], so no mapping goes away under it. Atomics make races
//! between kernels, copies and the host a matter of values, not of undefined behaviour.
#![allow(unsafe_code, reason = "device memory is reached by address")]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use gpushare_cuda_abi::cuda::CUresult;

use crate::context::Context;
use crate::error::Result;
use crate::memory;
use crate::va::Access;

/// A number that memory is made of.
pub(crate) trait Cell: Copy {
    /// Reads the number at `at`.
    ///
    /// # Safety
    /// `at` is mapped and aligned for it.
    unsafe fn get(at: *mut Self) -> Self;
    /// Writes the number at `at`.
    ///
    /// # Safety
    /// `at` is mapped, writable and aligned for it.
    unsafe fn set(at: *mut Self, value: Self);
}

macro_rules! cells {
    ($($number:ty as $atomic:ty;)*) => {$(
        impl Cell for $number {
            unsafe fn get(at: *mut Self) -> Self {
                // SAFETY: the caller says it is mapped and aligned.
                unsafe { <$atomic>::from_ptr(at) }.load(Ordering::Relaxed)
            }
            unsafe fn set(at: *mut Self, value: Self) {
                // SAFETY: the caller says it is mapped, writable and aligned.
                unsafe { <$atomic>::from_ptr(at) }.store(value, Ordering::Relaxed);
            }
        }
    )*};
}

cells! {
    u8 as AtomicU8;
    u32 as AtomicU32;
    u64 as AtomicU64;
}

/// A checked range.
pub(crate) struct Region<T> {
    base: *mut T,
    len: usize,
    numbers: PhantomData<T>,
}

impl<T: Cell> Region<T> {
    /// The `len` numbers at `addr`, for work of `context`.
    ///
    /// # Errors
    /// `MISALIGNED_ADDRESS`, or `ILLEGAL_ADDRESS` if any of it may not be touched so.
    pub(crate) fn new(context: &Context, addr: u64, len: u64, access: Access) -> Result<Self> {
        let size = size_of::<T>() as u64;
        if len == 0 {
            return Ok(Self {
                base: std::ptr::dangling_mut(),
                len: 0,
                numbers: PhantomData,
            });
        }
        if !addr.is_multiple_of(size) {
            return Err(CUresult::MISALIGNED_ADDRESS);
        }
        let bytes = len.checked_mul(size).ok_or(CUresult::ILLEGAL_ADDRESS)?;
        addr.checked_add(bytes).ok_or(CUresult::ILLEGAL_ADDRESS)?;
        let base = memory::bytes(context.device().ordinal(), addr, bytes, access)?.cast();
        Ok(Self {
            base,
            len: usize::try_from(len).map_err(|_| CUresult::ILLEGAL_ADDRESS)?,
            numbers: PhantomData,
        })
    }

    /// How many numbers.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number at `index`, which is below [`len`](Self::len).
    pub(crate) fn get(&self, index: usize) -> T {
        assert!(index < self.len);
        // SAFETY: in the range, which is mapped and whose base and so every number is aligned.
        unsafe { T::get(self.base.add(index)) }
    }

    /// Writes the number at `index`, which is below [`len`](Self::len), in a range made for
    /// writing.
    pub(crate) fn set(&self, index: usize, value: T) {
        assert!(index < self.len);
        // SAFETY: as for `get`; the right to write was checked.
        unsafe { T::set(self.base.add(index), value) };
    }
}
