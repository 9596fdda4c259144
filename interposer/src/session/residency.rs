//! The daemon's orders about the process's memory, and the process's reports.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use gpushare_protocol::page::residency::{Movability, Orders};
use gpushare_protocol::wire::{Request, Spot};

use super::{Session, pages};
use crate::guest::descriptor::Descriptor;

impl Session {
    /// Whether and how the daemon may have this tenant's memory moved. It says so before a process
    /// registers, and never otherwise.
    pub(crate) fn movability(&self) -> Movability {
        self.control().movability()
    }

    /// The order in force about a device.
    pub(crate) fn orders(&self, device_index: usize) -> Orders {
        let device = self.control().devices.get(device_index);
        device.map_or_else(Orders::default, |device| device.order())
    }

    /// Asks for so much more of the host store. What is given is found by
    /// [`take_host_ranges`](Self::take_host_ranges) later.
    pub(crate) fn ask_host_range(&self, device_index: usize, bytes: u64) {
        let Ok(device_index) = u8::try_from(device_index) else {
            return;
        };
        let id = self.asks.number();
        self.range_refused.store(false, Ordering::Release);
        self.range_asked.store(id, Ordering::Release);
        let line = self.line();
        let request = Request::HostRange {
            device_index,
            bytes,
        };
        self.send(line.as_ref(), id, &request);
    }

    /// Whether the last request for a range was refused.
    pub(crate) fn host_was_refused(&self) -> bool {
        self.range_refused.load(Ordering::Acquire)
    }

    /// The daemon refuses a request. For the control thread.
    pub(super) fn was_refused(&self, id: u32) {
        if self.range_asked.load(Ordering::Acquire) == id {
            self.range_refused.store(true, Ordering::Release);
        }
    }

    /// Ranges of the host store that the daemon has given since: where they are mapped, their
    /// places in the daemon's file, and their lengths. They stay mapped until their taker unmaps
    /// them.
    pub(crate) fn take_host_ranges(&self) -> Vec<(usize, u64, u64)> {
        core::mem::take(&mut *self.ranges.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A range was given by this file, in answer to the mover's question or in advance. For the
    /// control thread.
    pub(super) fn has_range(&self, id: u32, file: Descriptor, (offset, bytes): (u64, u64)) {
        // In this order: a question is the mover's first, and is replaced later.
        if !self.was_fetched(id, &file, (offset, bytes)) {
            if self.is_too_late(id) {
                // Until it is dropped the daemon counts it as fetched, and may give no other.
                self.gives_up(Spot::memory(offset), &Request::HostDrop { offset, bytes });
            } else {
                self.was_given(&file, (offset, bytes));
            }
        }
        self.keep_memory(file);
    }

    /// A range was given in advance, by the file in this descriptor.
    fn was_given(&self, file: &Descriptor, (offset, bytes): (u64, u64)) {
        match pages::host_range(file, offset, bytes) {
            Ok(address) => {
                self.has(Spot::memory(offset));
                let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
                ranges.push((address, offset, bytes));
            }
            Err(error) => self.is_of_no_use(&error, (offset, bytes)),
        }
    }

    /// A range that was given cannot be mapped: it goes back at once, or it would count as this
    /// process's for ever.
    pub(super) fn is_of_no_use(&self, error: &io::Error, (offset, bytes): (u64, u64)) {
        tracing::warn!(%error, "the host memory given is of no use");
        self.gives_up(Spot::memory(offset), &Request::HostDrop { offset, bytes });
    }

    /// Says something about the process's memory. It is lost where there is no daemon. Whether
    /// it was sent.
    pub(crate) fn says(&self, request: &Request) -> bool {
        let line = self.line();
        self.says_on(line.as_ref(), request)
    }

    pub(super) fn says_on(&self, line: Option<&Arc<Descriptor>>, request: &Request) -> bool {
        self.send(line, self.asks.number(), request)
    }

    /// Says that the program asked to share memory that can move. Whether there is a daemon to hear
    /// it: one that is just leaving does not.
    pub(crate) fn says_unshared(&self, device_index: u8) -> bool {
        self.is_connected() && self.says(&Request::Unshared { device_index })
    }
}
