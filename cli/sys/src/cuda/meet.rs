//! Kernels that wait for each other on several devices, as those of a collective do.

use super::{Gpu, Handle, Stream, check};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use std::ffi::{c_int, c_uint};
use std::fs::File;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ptr::from_ref;
use std::sync::atomic::{AtomicU32, Ordering};

/// `meet(uint64 ns, uint32 *own, const uint32 *peer, uint32 value)`; as for `spin`, softgpu knows
/// it by its name.
const MEET: &str = concat!(include_str!("../meet.ptx"), "\0");
/// `CU_MEMHOSTREGISTER_PORTABLE` and `CU_MEMHOSTREGISTER_DEVICEMAP`: all contexts of the process
/// see it.
const FOR_ALL: c_uint = 1 | 2;
/// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`: for another device of the process.
const REGISTERED: c_int = 712;
/// A page, the unit of registration.
const PAGE: usize = 4096;
/// One word in each line of 64 bytes.
const LINE: usize = 16;

/// Further ahead than any value that a peer waits for while it works: half of what signed
/// differences tell apart.
const FAR: u32 = 1 << 30;

/// A page of this process on which up to [`Board::PLACES`] devices say how far they are: the value
/// of the last [`Stream::meet`] each has run, zero before the first.
#[derive(Clone, Copy, Debug)]
pub struct Board(&'static Words);

#[derive(Debug)]
#[repr(C, align(4096))]
struct Words([AtomicU32; PAGE / 4]);

impl Board {
    /// Devices that find a place on it.
    pub const PLACES: usize = PAGE / 4 / LINE;

    /// The first page of a file, which several processes have. It stays mapped as long as the
    /// process lives.
    ///
    /// # Errors
    /// One sentence; a file that is shorter than a page is refused.
    pub fn shared(file: &File) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("no board: {error}");
        let length = file.metadata().map_err(|error| failed(&error))?.len();
        let page = NonZeroUsize::new(PAGE).filter(|page| length >= page.get() as u64);
        let page = page.ok_or_else(|| failed(&"its file is shorter than a page"))?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice. It is never unmapped.
        let mapped = unsafe { mmap(None, page, rights, MapFlags::MAP_SHARED, file, 0) };
        let words = mapped.map_err(|error| failed(&error))?.cast::<Words>();
        // SAFETY: a whole page at a page's boundary, mapped for ever; other processes change it by
        // atomic stores of words only.
        Ok(Self(unsafe { words.as_ref() }))
    }

    /// Marks `place` as further than any peer waits for, because its thread works no more: its
    /// stream is empty, and peers that launched more go on.
    pub fn leave(&self, place: usize, last: u32) {
        if let Some(word) = self.0.0.get(place * LINE) {
            word.store(last.wrapping_add(FAR), Ordering::SeqCst);
        }
    }
}

impl Default for Board {
    /// A new one, which lives as long as the process: the devices write to it.
    fn default() -> Self {
        Self(Box::leak(Box::new(Words(
            [const { AtomicU32::new(0) }; PAGE / 4],
        ))))
    }
}

/// One device's side of a collective.
#[derive(Debug)]
pub struct Meeting<'gpu> {
    kernel: Handle,
    own: u64,
    peer: u64,
    gpu: PhantomData<&'gpu Gpu>,
}

impl Gpu {
    /// Prepares kernels that write to the place `own` of the board and wait for `peer`. Both lie
    /// below [`Board::PLACES`].
    ///
    /// # Errors
    /// As [`Gpu::open`]; a place that is not on the board.
    pub fn meeting(&self, board: Board, own: usize, peer: usize) -> Result<Meeting<'_>, String> {
        if own.max(peer) >= Board::PLACES {
            return Err(format!("no place {} on the board", own.max(peer)));
        }
        let page = from_ref(board.0).cast_mut().cast();
        match (self.api.register)(page, PAGE, FOR_ALL) {
            REGISTERED => {}
            result => check("cuMemHostRegister", result)?,
        }
        let mut at = 0;
        let asked = (self.api.device_pointer)(&raw mut at, page, 0);
        check("cuMemHostGetDevicePointer", asked)?;
        let place = |place: usize| at + (place * LINE * 4) as u64;
        Ok(Meeting {
            kernel: self.api.kernel(MEET, c"meet")?,
            own: place(own),
            peer: place(peer),
            gpu: PhantomData,
        })
    }
}

impl<'gpu> Stream<'gpu> {
    /// Submits a kernel that takes the device for `ns`, says `value`, and then holds the device
    /// until the peer has said that or a later one: values go up by one, and around.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn meet(&self, meeting: &Meeting<'gpu>, mut ns: u64, mut value: u32) -> Result<(), String> {
        let (mut own, mut peer) = (meeting.own, meeting.peer);
        let parameters = &mut [
            (&raw mut ns).cast(),
            (&raw mut own).cast(),
            (&raw mut peer).cast(),
            (&raw mut value).cast(),
        ];
        self.start(meeting.kernel, parameters)
    }
}
