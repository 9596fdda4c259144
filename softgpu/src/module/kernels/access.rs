//! Memory access of kernels: a checked range of numbers, each read or written atomically.
//!
//! `unsafe` turns addresses into atomics. [`DeviceSlice::new`] guarantees the invariant: the range
//! is published for this device with the required access right, so the shadow address is mapped
//! for its whole length. A launch holds [`memory::still`], so no mapping is removed meanwhile. With
//! atomics, races between kernels, copies and the host affect values and are not undefined
//! behaviour.
#![allow(unsafe_code, reason = "device memory is accessed by address")]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use gpushare_cuda_abi::cuda::CUresult;

use crate::context::Context;
use crate::error::Result;
use crate::memory;
use crate::va::Access;

/// A type of number in device memory.
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
                // SAFETY: the caller guarantees that it is mapped and aligned.
                unsafe { <$atomic>::from_ptr(at) }.load(Ordering::Relaxed)
            }
            unsafe fn set(at: *mut Self, value: Self) {
                // SAFETY: the caller guarantees that it is mapped, writable and aligned.
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
pub(crate) struct DeviceSlice<T> {
    base: *mut T,
    len: usize,
    numbers: PhantomData<T>,
}

impl<T: Cell> DeviceSlice<T> {
    /// The `len` numbers at `addr`, for work of `context`.
    ///
    /// # Errors
    /// `MISALIGNED_ADDRESS`, or `ILLEGAL_ADDRESS` if part of the range does not allow this access.
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

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number at `index`, which is below [`len`](Self::len).
    pub(crate) fn get(&self, index: usize) -> T {
        assert!(index < self.len);
        // SAFETY: in the range, which is mapped; its base is aligned, and so is every element.
        unsafe { T::get(self.base.add(index)) }
    }

    /// Writes the number at `index`, which is below [`len`](Self::len). The range must have been
    /// checked for writing.
    pub(crate) fn set(&self, index: usize, value: T) {
        assert!(index < self.len);
        // SAFETY: as for `get`; write access was checked.
        unsafe { T::set(self.base.add(index), value) };
    }
}
