//! A process's place in its container.

use std::sync::Mutex;

use gpushare_protocol::page::{Line, MAX_DEVICES, Mark, NO_LIMIT, Page};
use gpushare_protocol::paths::ContainerName;

use super::backend::Backend;
use super::views::Shown;

/// A process's place in its container.
#[derive(Debug)]
pub(crate) struct Membership {
    /// The container's name.
    pub(crate) name: ContainerName,
    /// Where its page lives and who says what it may hold.
    pub(crate) backend: Backend,
    /// Its page.
    pub(crate) page: &'static Page,
    /// Our row of the page.
    pub(crate) slot: usize,
    /// How this process names itself where sums are remembered.
    pub(crate) mark: Mark,
    /// Its lines, by column.
    pub(crate) row: &'static [Line; MAX_DEVICES],
    /// Keeps our threads in line before they poll the container lock.
    pub(crate) threads: Mutex<()>,
    /// Column of each device the program sees.
    pub(crate) columns: Vec<usize>,
    /// By column: what this process's own environment lowers.
    pub(crate) own: [Own; MAX_DEVICES],
    /// By column: what has been shown as free.
    pub(crate) shown: [Shown; MAX_DEVICES],
}

/// What one process's environment makes of its container's limits on a device: it may lower them. Bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Ceiling, [`NO_LIMIT`] for the container's.
    pub(crate) limit: u64,
    /// Most that is shown as the total.
    pub(crate) view_total: u64,
    /// It is told the request.
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
