//! Copies of pinned host memory to the device, copies within the device, and memsets there.

use super::{Gpu, Stream, check};
use std::marker::PhantomData;
use std::ptr::null_mut;

/// Memory that is copied, or a value, and device memory that it is copied to. The memory lives as
/// long as the process.
#[derive(Debug)]
pub struct Cargo<'gpu> {
    from: From,
    device: u64,
    bytes: usize,
    gpu: PhantomData<&'gpu Gpu>,
}

#[derive(Debug)]
enum From {
    Host(super::Handle),
    Device(u64),
    Value(u8),
}

impl Gpu {
    /// Takes so many bytes on the host, pinned, and on the device.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn cargo(&self, bytes: usize) -> Result<Cargo<'_>, String> {
        let mut host = null_mut();
        let taken = (self.api.pinned)(&raw mut host, bytes, 0);
        check("cuMemHostAlloc", taken)?;
        self.cargo_from(From::Host(host), bytes)
    }

    /// Takes so many bytes twice on the device.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn cargo_within(&self, bytes: usize) -> Result<Cargo<'_>, String> {
        let from = From::Device(self.taken(bytes)?);
        self.cargo_from(from, bytes)
    }

    /// Takes so many bytes on the device, to be set to a value.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn cargo_set(&self, bytes: usize) -> Result<Cargo<'_>, String> {
        self.cargo_from(From::Value(0x5a), bytes)
    }

    fn cargo_from(&self, from: From, bytes: usize) -> Result<Cargo<'_>, String> {
        let device = self.taken(bytes)?;
        Ok(Cargo {
            from,
            device,
            bytes,
            gpu: PhantomData,
        })
    }

    pub(super) fn taken(&self, bytes: usize) -> Result<u64, String> {
        let mut device = 0;
        check("cuMemAlloc", (self.api.memory)(&raw mut device, bytes))?;
        Ok(device)
    }
}

impl<'gpu> Stream<'gpu> {
    /// Submits a copy or a memset of all of it.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn copy(&self, cargo: &Cargo<'gpu>) -> Result<(), String> {
        let (api, to) = (&self.gpu.api, cargo.device);
        match cargo.from {
            From::Host(host) => {
                let copied = (api.copy)(to, host, cargo.bytes, self.handle);
                check("cuMemcpyHtoDAsync", copied)
            }
            From::Device(from) => {
                let copied = (api.copy_within)(to, from, cargo.bytes, self.handle);
                check("cuMemcpyDtoDAsync", copied)
            }
            From::Value(value) => {
                let set = (api.set)(to, value, cargo.bytes, self.handle);
                check("cuMemsetD8Async", set)
            }
        }
    }
}
