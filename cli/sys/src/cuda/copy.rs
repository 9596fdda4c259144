//! Copies of pinned host memory to the device.

use super::{Gpu, Stream, check};
use std::marker::PhantomData;
use std::ptr::null_mut;

/// Pinned host memory, and device memory of the same size that it is copied to. Both live as long
/// as the process.
#[derive(Debug)]
pub struct Cargo<'gpu> {
    host: super::Handle,
    device: u64,
    bytes: usize,
    gpu: PhantomData<&'gpu Gpu>,
}

impl Gpu {
    /// Takes so many bytes on the host, pinned, and on the device.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn cargo(&self, bytes: usize) -> Result<Cargo<'_>, String> {
        let (mut host, mut device) = (null_mut(), 0);
        let taken = (self.api.pinned)(&raw mut host, bytes, 0);
        check("cuMemHostAlloc", taken)?;
        check("cuMemAlloc", (self.api.memory)(&raw mut device, bytes))?;
        Ok(Cargo {
            host,
            device,
            bytes,
            gpu: PhantomData,
        })
    }
}

impl<'gpu> Stream<'gpu> {
    /// Submits a copy of all of it to the device.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn copy(&self, cargo: &Cargo<'gpu>) -> Result<(), String> {
        let copy = self.gpu.api.copy;
        let copied = copy(cargo.device, cargo.host, cargo.bytes, self.handle);
        check("cuMemcpyHtoDAsync", copied)
    }
}
