//! Device memory with known contents, for benchmarks that lose no byte: it is written and read back
//! in blocks through pinned host memory.

use super::{Gpu, check};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// The bytes of one copy.
const BLOCK: usize = 16 << 20;
/// The bytes of a small allocation.
const SMALL: usize = 512;
/// One value for each page of a block tells it from all other pages.
const PAGE: usize = 4096;

/// Memory of the device, and one block of pinned host memory. Both live as long as the process.
#[derive(Debug)]
pub struct Memory<'gpu> {
    gpu: &'gpu Gpu,
    device: u64,
    bytes: usize,
    block: &'static mut [u8],
}

impl Gpu {
    /// Takes so many bytes on the device.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn memory(&self, bytes: usize) -> Result<Memory<'_>, String> {
        let mut host = null_mut();
        let taken = (self.api.pinned)(&raw mut host, BLOCK, 0);
        check("cuMemHostAlloc", taken)?;
        // SAFETY: the driver gave this many bytes, this process alone has them, and they are never
        // given back. All bytes are values of `u8`.
        let block = unsafe {
            std::ptr::write_bytes(host.cast::<u8>(), 0, BLOCK);
            std::slice::from_raw_parts_mut(host.cast::<u8>(), BLOCK)
        };
        let device = self.taken(bytes)?;
        Ok(Memory {
            gpu: self,
            device,
            bytes,
            block,
        })
    }
}

impl Gpu {
    /// Takes a small allocation and frees it, so many times. How long each took, both together.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn small_pairs(&self, count: u32) -> Result<Duration, String> {
        // Beside it another one lives, as in a program.
        let kept = self.taken(SMALL)?;
        let began = Instant::now();
        for _ in 0..count {
            let at = self.taken(SMALL)?;
            check("cuMemFree", (self.api.free)(at))?;
        }
        let took = began.elapsed();
        check("cuMemFree", (self.api.free)(kept))?;
        Ok(took / count.max(1))
    }
}

impl Memory<'_> {
    /// Writes contents that follow from `seed`. How long the copies took.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn write(&mut self, seed: u64) -> Result<Duration, String> {
        self.each(|memory, at, length| {
            memory.mark(seed, at, length);
            let (api, to) = (&memory.gpu.api, memory.device + at as u64);
            let began = Instant::now();
            check(
                "cuMemcpyHtoD",
                (api.to_device)(to, memory.block.as_ptr().cast(), length),
            )?;
            Ok((began.elapsed(), 0))
        })
        .map(|(took, _)| took)
    }

    /// Reads all of it back. How long the copies took, and the pages that are not as
    /// [`Memory::write`] left them.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn read(&mut self, seed: u64) -> Result<(Duration, u64), String> {
        self.each(|memory, at, length| {
            let (api, from) = (&memory.gpu.api, memory.device + at as u64);
            let began = Instant::now();
            check(
                "cuMemcpyDtoH",
                (api.to_host)(memory.block.as_mut_ptr().cast(), from, length),
            )?;
            Ok((began.elapsed(), memory.differ(seed, at, length)))
        })
    }

    /// Copies by `copy`, block by block: the time and the differences of all.
    fn each(
        &mut self,
        copy: impl Fn(&mut Self, usize, usize) -> Result<(Duration, u64), String>,
    ) -> Result<(Duration, u64), String> {
        let (mut took, mut wrong) = (Duration::ZERO, 0);
        for at in (0..self.bytes).step_by(BLOCK) {
            let one = copy(self, at, BLOCK.min(self.bytes - at))?;
            (took, wrong) = (took + one.0, wrong + one.1);
        }
        Ok((took, wrong))
    }

    fn mark(&mut self, seed: u64, at: usize, length: usize) {
        for (page, bytes) in self.block[..length].chunks_mut(PAGE).enumerate() {
            let word = value(seed, at / PAGE + page).to_le_bytes();
            let end = bytes.len();
            for part in [0..8.min(end), end - 8.min(end)..end] {
                let length = part.len();
                bytes[part].copy_from_slice(&word[..length]);
            }
        }
    }

    fn differ(&self, seed: u64, at: usize, length: usize) -> u64 {
        let pages = self.block[..length].chunks(PAGE).enumerate();
        let wrong = pages.filter(|(page, bytes)| {
            let word = value(seed, at / PAGE + page).to_le_bytes();
            let part = 8.min(bytes.len());
            let middle = &bytes[part..bytes.len() - part];
            bytes[..part] != word[..part]
                || bytes[bytes.len() - part..] != word[..part]
                || middle.iter().any(|byte| *byte != 0)
        });
        wrong.count() as u64
    }
}

/// The first and the last eight bytes of a page; between them are zeros.
fn value(seed: u64, page: usize) -> u64 {
    let mixed = (seed ^ (page as u64).rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29 | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_pages_of_two_seeds_have_one_value() {
        let all = [1, 2].map(|seed| (0..10_000).map(move |page| value(seed, page)));
        let values: BTreeSet<u64> = all.into_iter().flatten().collect();
        assert_eq!(values.len(), 20_000);
    }
}
