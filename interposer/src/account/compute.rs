//! The gate's view of the account: the source of turns, and the words in which processes keep a cap
//! by themselves.

use std::sync::atomic::Ordering;

use gpushare_pacing::cap::Bucket;
use gpushare_pacing::report::Words;
use gpushare_protocol::cap::Cap;
use gpushare_protocol::page::token::Token;
use gpushare_protocol::units::Permille;

use super::backend::Backend;
use super::join::Membership;
use crate::driver::mps;
use crate::session::Session;

/// A process's place in its tenant, as far as its time on devices goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compute {
    /// The daemon, if it gives turns to this process.
    pub(crate) session: Option<&'static Session>,
    member: &'static Membership,
}

/// This process's, once it has joined a tenant.
pub(crate) fn compute() -> Option<Compute> {
    let member = super::member()?;
    let session = match member.backend {
        Backend::Daemon(session) if !mps::is_client() => Some(session),
        Backend::Daemon(_) | Backend::File(_) => None,
    };
    Some(Compute { session, member })
}

impl Compute {
    /// Whether the tenant may ever have to wait for its turn.
    pub(crate) fn may_bind(&self) -> bool {
        // The gate's thread tells the daemon that the process works, also where no turn binds it.
        matches!(self.member.backend, Backend::Daemon(_))
            || (0..self.device_count()).any(|device_index| self.cap(device_index, None).is_some())
    }

    /// Devices in use.
    pub(crate) fn device_count(&self) -> usize {
        let last = self.member.device_indices.iter().max();
        last.map_or(0, |last| last + 1)
    }

    fn cap(&self, device_index: usize, said: Option<u32>) -> Option<Cap> {
        let device = self.member.page.devices.get(device_index)?;
        let cap = said.unwrap_or_else(|| device.cap.load(Ordering::Relaxed));
        let part = u16::try_from(cap).ok().and_then(Permille::new);
        let part = part.filter(|part| *part != Permille::WHOLE && !mps::keeps(part.get().into()));
        part.map(Cap::new)
    }

    /// The tenant's bucket on a device. `None` without a cap. A silent daemon's last value of the
    /// cap holds. An MPS client takes no turns from its daemon, and the cap is the daemon's too.
    pub(crate) fn bucket(&self, device_index: usize) -> Option<Bucket<'static>> {
        let said = match self.member.backend {
            Backend::Daemon(session) => Some(session.turn(device_index).cap),
            Backend::File(_) => None,
        };
        let cap = self.cap(device_index, said)?;
        let device = self.member.page.devices.get(device_index)?;
        Some(Bucket {
            paid_until: &device.paid_until,
            empty_at: &device.empty_at,
            cap,
        })
    }

    /// The tenant's token of a device, and this process's slot: under a daemon, which alone has
    /// tenants yield.
    pub(crate) fn token(&self, device_index: usize) -> Option<(&'static Token, usize)> {
        let device = self.member.page.devices.get(device_index)?;
        self.session.map(|_| (&device.token, self.member.slot))
    }

    /// Shows that an epoch has been drained.
    pub(crate) fn drained(&self, device_index: usize, epoch: u64) {
        if let Some(line) = self.member.row.get(device_index) {
            line.drained.store(epoch, Ordering::Relaxed);
        }
    }

    /// Publishes how much was completed, and for how long some was pending.
    pub(crate) fn reports(&self, device_index: usize, words: &Words) {
        if let Some(line) = self.member.row.get(device_index) {
            line.service.store(words.service, Ordering::Relaxed);
            line.busy.store(words.busy, Ordering::Relaxed);
            line.pending.store(words.pending.bits(), Ordering::Relaxed);
        }
    }

    /// Shows that `count` pieces of work were submitted.
    pub(crate) fn worked(&self, count: u64) {
        self.member.row[0]
            .submitted
            .fetch_add(count, Ordering::Relaxed);
    }
}
