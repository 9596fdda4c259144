//! Device memory for the interpreter: one number at a time, each access atomic.
//!
//! `unsafe` turns addresses into atomics. [`DeviceMemory::find`] guarantees the invariant: the
//! range is published for this device with the required access right, so the address is mapped for
//! its whole length while the guard of [`still`](crate::memory::still) that the memory borrows is
//! held. The interpreter's contract is that an address is a multiple of the access's size. With
//! atomics, races between kernels, copies and the host affect values and are not undefined
//! behaviour.
#![allow(unsafe_code, reason = "device memory is accessed by address")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use softgpu_ptx::{Fault, Machine, Memory};

use crate::context::Context;
use crate::exec::clock;
use crate::memory::managed::{self, Accessed, Manner};
use crate::spec::PAGE;
use crate::va::{self, Access};

/// Ranges that are remembered.
const REMEMBERED: usize = 8;

/// A range that may be accessed.
#[derive(Debug, Clone, Copy)]
struct Known {
    base: u64,
    len: u64,
    writes: bool,
    /// The distance from its addresses to its bytes.
    shift: u64,
}

/// The memory that kernels of one context access while a guard keeps the mappings.
#[derive(Debug)]
pub(super) struct DeviceMemory<'a, G> {
    context: &'a Context,
    known: [Option<Known>; REMEMBERED],
    next: usize,
    touched: Vec<Accessed>,
    _still: &'a G,
}

impl<'a, G> DeviceMemory<'a, G> {
    /// The memory of a context; `still` is the guard that keeps the mappings.
    pub(super) fn new(context: &'a Context, still: &'a G) -> Self {
        let known = [None; REMEMBERED];
        Self {
            context,
            known,
            next: 0,
            touched: Vec::new(),
            _still: still,
        }
    }

    /// The parts of memory that were accessed and may be managed.
    pub(super) fn touched(self) -> Vec<Accessed> {
        self.touched
    }

    /// Where the bytes of an access are.
    fn find(&mut self, address: u64, bytes: u32, access: Access) -> Result<u64, Fault> {
        let bytes = u64::from(bytes);
        let writes = access == Access::Write;
        let holds = |known: &&Known| {
            let inside = address.wrapping_sub(known.base);
            inside < known.len && bytes <= known.len - inside && (known.writes || !writes)
        };
        if let Some(known) = self.known.iter().flatten().find(holds) {
            return Ok(address.wrapping_add(known.shift));
        }
        let device = self.context.device();
        va::check(device.ordinal(), address, bytes, access).map_err(|_| Fault::Illegal)?;
        let at = va::bytes(address, bytes).map_err(|_| Fault::Illegal)?;
        let at = at.expose_provenance() as u64;
        let (base, range) = va::find(address).ok_or(Fault::Illegal)?;
        let mut known = Known {
            base,
            len: range.len,
            writes,
            shift: at.wrapping_sub(address),
        };
        if managed::exists() {
            // Managed memory comes page by page.
            let page = (address & !(PAGE - 1)).max(base);
            let len = (base + range.len - page).min(PAGE - page % PAGE);
            let manner = if writes { Manner::Write } else { Manner::Read };
            self.touched.push((page, len, manner));
            (known.base, known.len) = (page, len);
        }
        self.known[self.next] = Some(known);
        self.next = (self.next + 1) % REMEMBERED;
        Ok(at)
    }
}

/// The pointer of an address that [`DeviceMemory::find`] returned.
fn pointer<T>(at: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(usize::try_from(at).expect("addresses are 64 bits here"))
}

impl<G> Memory for DeviceMemory<'_, G> {
    fn load(&mut self, address: u64, bytes: u32) -> Result<u64, Fault> {
        let at = self.find(address, bytes, Access::Read)?;
        // SAFETY: `find` guarantees that the bytes are mapped, and the interpreter that the address
        // is a multiple of their number; the distance to the bytes is one of whole pages.
        Ok(unsafe {
            match bytes {
                1 => AtomicU8::from_ptr(pointer(at))
                    .load(Ordering::Acquire)
                    .into(),
                2 => AtomicU16::from_ptr(pointer(at))
                    .load(Ordering::Acquire)
                    .into(),
                4 => AtomicU32::from_ptr(pointer(at))
                    .load(Ordering::Acquire)
                    .into(),
                _ => AtomicU64::from_ptr(pointer(at)).load(Ordering::Acquire),
            }
        })
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lowest bytes are written"
    )]
    fn store(&mut self, address: u64, bytes: u32, value: u64) -> Result<(), Fault> {
        let at = self.find(address, bytes, Access::Write)?;
        // SAFETY: as for `load`; write access was checked.
        unsafe {
            match bytes {
                1 => AtomicU8::from_ptr(pointer(at)).store(value as u8, Ordering::Release),
                2 => AtomicU16::from_ptr(pointer(at)).store(value as u16, Ordering::Release),
                4 => AtomicU32::from_ptr(pointer(at)).store(value as u32, Ordering::Release),
                _ => AtomicU64::from_ptr(pointer(at)).store(value, Ordering::Release),
            }
        }
        Ok(())
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lowest bytes are written"
    )]
    fn update(
        &mut self,
        address: u64,
        bytes: u32,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        let at = self.find(address, bytes, Access::Write)?;
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        // SAFETY: as for `store`.
        let old = unsafe {
            match bytes {
                1 => AtomicU8::from_ptr(pointer(at))
                    .fetch_update(set, fetch, |old| Some(change(old.into()) as u8))
                    .map(u64::from)
                    .ok(),
                2 => AtomicU16::from_ptr(pointer(at))
                    .fetch_update(set, fetch, |old| Some(change(old.into()) as u16))
                    .map(u64::from)
                    .ok(),
                4 => AtomicU32::from_ptr(pointer(at))
                    .fetch_update(set, fetch, |old| Some(change(old.into()) as u32))
                    .map(u64::from)
                    .ok(),
                _ => AtomicU64::from_ptr(pointer(at))
                    .fetch_update(set, fetch, |old| Some(change(old)))
                    .ok(),
            }
        };
        old.ok_or(Fault::Illegal)
    }
}

impl<G> Machine for DeviceMemory<'_, G> {
    fn now(&mut self) -> u64 {
        clock::now()
    }
}
