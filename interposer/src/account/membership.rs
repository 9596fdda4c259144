//! A process's place in its tenant.

use std::sync::Mutex;

use gpushare_protocol::page::{Line, MAX_DEVICES, NO_LIMIT, Page, Writer};
use gpushare_protocol::paths::TenantName;

use super::backend::Backend;
use super::lock_file::LockFile;
use super::views::Shown;

/// A process's place in its tenant.
#[derive(Debug)]
pub(crate) struct Membership {
    /// The tenant's name.
    pub(crate) name: TenantName,
    /// The backend: where its page lives and which component grants memory.
    pub(crate) backend: Backend,
    /// Its page.
    pub(crate) page: &'static Page,
    /// Our row of the page.
    pub(crate) slot: usize,
    /// How this process names itself where sums are remembered.
    pub(crate) writer: Writer,
    /// Its lines, by device.
    pub(crate) row: &'static [Line; MAX_DEVICES],
    /// Keeps our threads in line before they poll the tenant lock, by the file in it.
    pub(crate) threads: Mutex<LockFile>,
    /// The `device_index` of each device the program sees.
    pub(crate) device_indices: Vec<usize>,
    /// By device: the limits that this process's own environment lowers.
    pub(crate) own: [Own; MAX_DEVICES],
    /// By device: the free memory shown so far.
    pub(crate) shown: [Shown; MAX_DEVICES],
}

/// A process's own limits on a device, from its environment: they may lower the tenant's. Bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Ceiling, [`NO_LIMIT`] for the tenant's.
    pub(crate) limit: u64,
    /// Most that is shown as the total.
    pub(crate) view_total: u64,
    /// Its view shows the request.
    pub(crate) by_request: bool,
}

impl Own {
    /// Nothing is lowered.
    pub(crate) const NONE: Self = Self {
        limit: NO_LIMIT,
        view_total: u64::MAX,
        by_request: false,
    };
}
