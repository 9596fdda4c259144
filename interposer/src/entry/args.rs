//! A program's pointers as arguments: types through which safe code reads and writes.
//!
//! Each type is the C pointer itself (`repr(transparent)`), so it is passed on to the driver with
//! its original bits. A null pointer is a valid value: a read through it gives `None`, a write
//! through it is dropped. Nothing is read before it is requested, and it is copied then. The driver
//! may answer an invalid call without looking at this argument; a hook that would look first must
//! prevent that.
//!
//! # Safety
//! A value comes from one of two places.
//! - An exported function got it. The program then keeps the C function's contract: the pointer is
//!   null, or what the driver is to read or write for this call lies there until the call ends.
//! - [`In::to`] and its like made it of a reference of ours, which the lifetime keeps alive.
//!
//! No other assumption is made about that memory: it need not be aligned, and its bytes need not
//! make sense ([`Plain`]). A program whose other thread writes there meanwhile races with the
//! driver, too.
#![allow(
    unsafe_code,
    reason = "reads and writes through the program's pointers"
)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::marker::PhantomData;
use core::{fmt, mem, ptr};

use gpushare_cuda_abi::cuda::*;
use gpushare_cuda_abi::nvml::*;

use super::Status;

/// C types of which any bytes are a value.
///
/// # Safety
/// Numbers, raw pointers and handles, function pointers that may be null, and structures and unions
/// of these.
pub(crate) unsafe trait Plain: Copy {
    /// Of zeros.
    fn zeroed() -> Self {
        // SAFETY: zeros are bytes, and any bytes are a value of the type.
        unsafe { mem::zeroed() }
    }
}

macro_rules! plain {
    ($($ty:ty)*) => {$(
        // SAFETY: declared with C types of numbers and pointers only, in this crate's ABI.
        unsafe impl Plain for $ty {}
    )*};
}

plain! { u8
    u32 u64 usize *mut c_void CUpointer_attribute
    CUcontext CUstream CUgreenCtx CUevent CUarray CUmipmappedArray CUmodule CUlibrary CUmemoryPool
    CUgraphExec CUdriverProcAddressQueryResult
    CUDA_ARRAY_DESCRIPTOR CUDA_ARRAY_DESCRIPTOR_v1 CUDA_ARRAY3D_DESCRIPTOR CUDA_ARRAY3D_DESCRIPTOR_v1
    CUDA_GRAPH_INSTANTIATE_PARAMS CUDA_LAUNCH_PARAMS
    CUDA_MEMCPY2D_v1 CUDA_MEMCPY2D_v2 CUDA_MEMCPY3D_v1 CUDA_MEMCPY3D_v2 CUDA_MEMCPY3D_PEER_v1
    CUarrayMapInfo CUctxCreateParams CUmemLocation CUgraphNodeParams CUlaunchConfig CUmemAllocationProp CUmemPoolProps
    nvmlMemory_t nvmlMemory_v2_t nvmlProcessDetailList_t nvmlProcessesUtilizationInfo_t
    nvmlEncoderSessionInfo_t nvmlFBCSessionInfo_t nvmlAccountingStats_t nvmlAccountingStats_v2_t
    nvmlProcessInfo_v1_t nvmlProcessInfo_v2_t nvmlProcessDetail_v1_t
    nvmlProcessUtilizationSample_t nvmlProcessUtilizationInfo_v1_t
}

/// Declares a type of pointers.
macro_rules! pointer {
    ($(#[$doc:meta])* $name:ident(*$mutability:tt $($lifetime:tt)*)) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub(crate) struct $name<'a, T>(*$mutability T, PhantomData<$($lifetime)* T>);

        impl<T> Clone for $name<'_, T> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<'_, T> {}

        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Pointer::fmt(&self.0, f)
            }
        }
    };
}

pointer! {
    /// Something the program has for the driver to read.
    In(*const &'a)
}

pointer! {
    /// A place the program gave for an answer.
    Out(*mut &'a mut)
}

pointer! {
    /// Something the program has for the driver to read, and to change.
    InOut(*mut &'a mut)
}

impl<'a, T: Plain> In<'a, T> {
    /// Of ours.
    pub(crate) fn to(value: &'a T) -> Self {
        Self(value, PhantomData)
    }

    /// Nothing.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self(ptr::null(), PhantomData)
    }

    /// The program's value; `None` for a null pointer.
    #[inline(always)]
    pub(crate) fn read(self) -> Option<T> {
        // SAFETY: not null, so the program, or a reference of ours, has a `T` there for the driver
        // to read. It is copied as bytes, which need no alignment, and any are a `T`.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }
}

impl<'a, T: Plain> Out<'a, T> {
    /// A place of ours.
    pub(crate) fn to(place: &'a mut T) -> Self {
        Self(place, PhantomData)
    }

    /// No place.
    pub(crate) fn none() -> Self {
        Self(ptr::null_mut(), PhantomData)
    }

    /// Whether the program gave no place.
    #[inline(always)]
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Whether it is the same place.
    #[inline(always)]
    pub(crate) fn is(self, other: Self) -> bool {
        ptr::eq(self.0, other.0)
    }

    /// The driver's value; `None` for a null pointer. Only meaningful after the driver has
    /// succeeded.
    #[inline(always)]
    pub(crate) fn read_back(self) -> Option<T> {
        // SAFETY: not null, so there is room for a `T`, which the driver could write, and any bytes
        // are one, those before it wrote too: they are another language's, or a reference of ours.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// The driver's value if `answer` is a success.
    #[inline(always)]
    pub(crate) fn after(self, answer: impl Status) -> Option<T> {
        if answer.succeeded() {
            self.read_back()
        } else {
            None
        }
    }

    /// Replaces the driver's value by one of ours.
    #[inline(always)]
    pub(crate) fn write(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so there is room for a `T` that the driver may write. As bytes,
            // which need no alignment.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

impl<'a, T: Plain> InOut<'a, T> {
    /// The first of several of ours, which may be taken for one longer structure.
    pub(crate) fn first_of(values: &'a mut [T]) -> Self {
        Self(values.as_mut_ptr(), PhantomData)
    }

    /// Of ours.
    pub(crate) fn to(place: &'a mut T) -> Self {
        Self(place, PhantomData)
    }

    /// The current value; `None` for a null pointer.
    #[inline(always)]
    pub(crate) fn read(self) -> Option<T> {
        // SAFETY: as for `In`, of which it has the promise.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// Changes the value.
    #[inline(always)]
    pub(crate) fn write(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: as for `Out`, of which it has the promise.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

/// A place the program gave for an attribute of a pointer: as wide as the attribute says.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct AttributeOut<'a>(*mut c_void, PhantomData<&'a mut c_void>);

impl<'a> AttributeOut<'a> {
    /// An entry of a list of them.
    pub(super) fn entry(place: *mut c_void) -> Self {
        Self(place, PhantomData)
    }

    /// Writes an attribute that is an address, a handle or a size: one of eight bytes.
    pub(crate) fn write_long(self, value: u64) {
        Out::<u64>(self.0.cast(), PhantomData::<&'a mut u64>).write(value);
    }

    /// Clears the first byte of an attribute that is yes or no, which the driver has written: an
    /// integer or a single byte, by its caller.
    pub(crate) fn write_no(self) {
        Out::<u8>(self.0.cast(), PhantomData::<&'a mut u8>).write(0);
    }
}

impl fmt::Debug for AttributeOut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.0, f)
    }
}

/// A string of the program's, or none.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text<'a>(*const c_char, PhantomData<&'a c_char>);

impl<'a> Text<'a> {
    /// The string; `None` where the program gave none.
    pub(crate) fn read(self) -> Option<&'a CStr> {
        // SAFETY: not null, so the program has a string there, as long as the call takes.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.0, f)
    }
}

/// Arguments that a hook may choose when it calls the driver itself. Whatever their value, the
/// driver answers, and accesses only memory that the types above point to. No raw pointers. A
/// handle counts as a number that the driver gave; hooks invent none.
pub(crate) trait Passed {}

/// Stands for the compiler's look at an argument's type.
pub(crate) const fn passed<T: Passed>() {}

impl<T> Passed for In<'_, T> {}
impl<T> Passed for Out<'_, T> {}
impl<T> Passed for InOut<'_, T> {}
impl Passed for Text<'_> {}
impl Passed for AttributeOut<'_> {}

macro_rules! passed {
    ($($ty:ty)*) => {$(impl Passed for $ty {})*};
}

passed! { CUmemAllocationHandleType CUmemLocation CUmem_advise CUmem_range_attribute u32 i32 u64 usize CUstream CUmemoryPool CUgraph CUpointer_attribute nvmlDevice_t }

/// A pointer that a hook passes on as it came and never looks behind.
#[repr(transparent)]
pub(crate) struct Opaque<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T> Clone for Opaque<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Opaque<'_, T> {}

impl<T> fmt::Debug for Opaque<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.0, f)
    }
}

impl<T> Passed for Opaque<'_, T> {}

impl<'a> Opaque<'a, c_void> {
    /// The file descriptor that the driver has written there.
    pub(crate) fn descriptor(self) -> Option<c_int> {
        Out::<u32>(self.0.cast(), PhantomData::<&'a mut u32>)
            .read_back()
            .map(u32::cast_signed)
    }
}

/// The event that a node of these parameters records; `None` for a node of another type.
pub(crate) fn recorded_event(params: &CUgraphNodeParams) -> Option<CUevent> {
    if params.type_ != CUgraphNodeType::EVENT_RECORD {
        return None;
    }
    // SAFETY: the type says that this member of the union is there; any bytes are one.
    Some(unsafe { params.anon.eventRecord.event })
}

/// The array of an entry of `cuMemMapArrayAsync`, or mipmapped array, as a number, and the memory.
pub(crate) fn mapped(info: &CUarrayMapInfo) -> (u64, CUmemGenericAllocationHandle) {
    // SAFETY: both members of the one union are a handle, which is a pointer; the other union has
    // this member only.
    let (array, memory) = unsafe { (info.resource.array, info.memHandle.memHandle) };
    (array.0.expose_provenance() as u64, memory)
}

/// The region that an entry of `cuMemMapArrayAsync` names: the kind of its subresource, level and
/// layer; offsets; extents. Of a mip tail the offset and the size of its bytes.
pub(crate) fn region(info: &CUarrayMapInfo) -> ([u32; 3], [u64; 3], [u64; 3]) {
    let kind = info.subresourceType;
    if kind == CUarraySparseSubresourceType::MIPTAIL {
        // SAFETY: plain numbers, which any bytes are; the kind says that they are these.
        let tail = unsafe { info.subresource.miptail };
        return (
            [kind.0, 0, tail.layer],
            [tail.offset, 0, 0],
            [tail.size, 1, 1],
        );
    }
    // SAFETY: as above.
    let level = unsafe { info.subresource.sparseLevel };
    let from = [level.offsetX, level.offsetY, level.offsetZ];
    let extent = [level.extentWidth, level.extentHeight, level.extentDepth];
    (
        [kind.0, level.level, level.layer],
        from.map(u64::from),
        extent.map(u64::from),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_read_as_none_and_written_to_without_effect() {
        let none = Out::<'_, u64>::none();
        assert!(none.is_null());
        none.write(7);
        assert_eq!(none.read_back(), None);
        assert_eq!(In::<'_, u32>::none().read(), None);
        assert_eq!(Text(ptr::null(), PhantomData).read(), None);
    }

    #[test]
    fn a_place_need_not_be_aligned() {
        let mut bytes = [0_u8; 12];
        let odd = bytes.as_mut_ptr().wrapping_add(1).cast::<u64>();
        let place = Out(odd, PhantomData);
        place.write(0x0102_0304_0506_0708);
        assert_eq!(place.read_back(), Some(0x0102_0304_0506_0708));
        let place = InOut(odd, PhantomData);
        place.write(9);
        assert_eq!(place.read(), Some(9));
        assert_eq!(bytes[0], 0);
        assert_eq!(bytes[9..], [0; 3]);
    }

    #[test]
    fn an_answer_is_read_only_after_success() {
        let mut value = 5_u64;
        let place = Out::to(&mut value);
        assert_eq!(place.after(CUresult::INVALID_VALUE), None);
        assert_eq!(place.after(CUresult::SUCCESS), Some(5));
    }

    #[test]
    fn an_event_is_read_only_of_a_node_that_records() {
        let mut params = CUgraphNodeParams::zeroed();
        params.type_ = CUgraphNodeType::EVENT_RECORD;
        assert_eq!(recorded_event(&params), Some(CUevent::NULL));
        params.type_ = CUgraphNodeType::KERNEL;
        assert_eq!(recorded_event(&params), None);
    }
}
