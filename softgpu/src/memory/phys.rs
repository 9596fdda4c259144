//! Physical memory with addresses: the pages, their mappings, and the counters of requested memory.

use std::sync::{Arc, Mutex, PoisonError};

use gpushare_cuda_abi::cuda::CUresult;

use super::table;
use crate::Result;
use crate::spec::PAGE;
use crate::va::{self, Backing};
use crate::world::{Device, Kind, PageRun, Share};

/// Pages of this process on one device; dropping it frees them.
#[derive(Debug)]
pub(crate) struct Pages {
    device: Arc<Device>,
    runs: Vec<PageRun>,
}

impl Pages {
    /// Takes `bytes` rounded up to whole pages.
    pub(crate) fn take(device: &Arc<Device>, kind: Kind, bytes: u64) -> Result<Self> {
        Ok(Self {
            device: Arc::clone(device),
            runs: device.take(kind, bytes.div_ceil(PAGE))?,
        })
    }

    /// The page runs.
    pub(crate) fn runs(&self) -> &[PageRun] {
        &self.runs
    }

    fn into_runs(mut self) -> Vec<PageRun> {
        std::mem::take(&mut self.runs)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if !self.runs.is_empty() {
            self.device.give(&self.runs);
        }
    }
}

/// A hold on pages: exclusive, or shared with other processes after the first export.
#[derive(Debug)]
pub(crate) struct Hold(Mutex<HoldState>);

#[derive(Debug)]
enum HoldState {
    Own(Pages),
    Shared(Arc<Share>),
    /// Sharing failed half way; this process has lost the pages.
    Lost,
}

impl Hold {
    /// Pages held by this process alone.
    pub(crate) fn own(pages: Pages) -> Self {
        Self(Mutex::new(HoldState::Own(pages)))
    }

    /// Pages that another process shared with this one.
    pub(crate) fn shared(share: Share) -> Self {
        Self(Mutex::new(HoldState::Shared(Arc::new(share))))
    }

    /// The page runs.
    pub(crate) fn runs(&self) -> Vec<PageRun> {
        match &*self.lock() {
            HoldState::Own(pages) => pages.runs().to_vec(),
            HoldState::Shared(share) => share.runs().to_vec(),
            HoldState::Lost => Vec::new(),
        }
    }

    /// Makes the pages shareable, with `tag` for the processes that join.
    pub(crate) fn share(&self, tag: &[u8]) -> Result<Arc<Share>> {
        let mut state = self.lock();
        if let HoldState::Shared(share) = &*state {
            return Ok(Arc::clone(share));
        }
        let HoldState::Own(pages) = std::mem::replace(&mut *state, HoldState::Lost) else {
            return Err(CUresult::INVALID_HANDLE);
        };
        let device = Arc::clone(&pages.device);
        let share = Arc::new(device.share(&pages.into_runs(), tag)?);
        *state = HoldState::Shared(Arc::clone(&share));
        Ok(share)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HoldState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes recorded as requested; dropping it subtracts them again.
#[derive(Debug)]
pub(crate) struct Noted {
    device: Arc<Device>,
    kind: Kind,
    bytes: u64,
}

impl Noted {
    /// Records that the application requested `bytes`.
    pub(crate) fn new(device: &Arc<Device>, kind: Kind, bytes: u64) -> Self {
        device.note(kind, signed(bytes));
        Self {
            device: Arc::clone(device),
            kind,
            bytes,
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.device.note(self.kind, -signed(self.bytes));
    }
}

pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A range of reserved addresses; dropping it unmaps its memory and releases the addresses.
#[derive(Debug)]
pub(crate) struct Reserved {
    base: u64,
    len: u64,
}

impl Reserved {
    /// Reserves `len` bytes, whole pages.
    pub(crate) fn new(len: u64) -> Result<Self> {
        Ok(Self {
            base: va::reserve(len, 0)?,
            len,
        })
    }

    /// The first address.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _exclusive = table::exclusive();
        // `release` fails only if the range is not a reservation, and this range is one.
        let _ = va::release(self.base, self.len);
    }
}

/// Addresses with pages mapped at all of them. They are inaccessible until they are published.
#[derive(Debug)]
pub(crate) struct Region {
    // Dropped in this order: first the pages are unmapped, then they are freed.
    addresses: Reserved,
    hold: Hold,
    noted: Option<Noted>,
}

impl Region {
    /// Takes pages for `bytes` and maps them at new addresses.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the device lacks the pages.
    pub(crate) fn new(device: &Arc<Device>, kind: Kind, bytes: u64) -> Result<Self> {
        let len = bytes
            .checked_next_multiple_of(PAGE)
            .ok_or(CUresult::OUT_OF_MEMORY)?;
        if len > device.capacity() {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        Self::of(device, Hold::own(Pages::take(device, kind, len)?))
    }

    /// Maps pages that are held already.
    pub(crate) fn of(device: &Device, hold: Hold) -> Result<Self> {
        let runs = hold.runs();
        let len = runs.iter().map(PageRun::bytes).sum();
        let addresses = Reserved::new(len)?;
        va::map(addresses.base, len, Backing::Pages(device, &runs), false)?;
        Ok(Self {
            addresses,
            hold,
            noted: None,
        })
    }

    /// Records `bytes` as requested by the application for as long as the region lives.
    pub(crate) fn noted(mut self, device: &Arc<Device>, kind: Kind, bytes: u64) -> Self {
        self.noted = Some(Noted::new(device, kind, bytes));
        self
    }

    /// The first address.
    pub(crate) fn base(&self) -> u64 {
        self.addresses.base
    }

    /// Bytes, whole pages.
    pub(crate) fn len(&self) -> u64 {
        self.addresses.len
    }

    /// Whether `address` is inside.
    pub(crate) fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.base()) < self.len()
    }

    /// The hold on its pages.
    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }
}
