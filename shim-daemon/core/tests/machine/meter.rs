//! The real use of a device, from the device's side: which tenant ran when, which delayed which,
//! and the wasted time.

use gpushare_core::{Nanos, TenantId};
use std::collections::BTreeMap;

/// A millisecond: the grain of sliding windows.
pub const GRAIN: u64 = 1_000_000;

#[derive(Debug, Default)]
pub struct Meter {
    /// Time of the device that each tenant had: its kernels ran, or it was its turn and it left
    /// the device idle.
    pub had: BTreeMap<TenantId, u64>,
    /// Kernels' time alone.
    pub ran: BTreeMap<TenantId, u64>,
    /// The shares of a perfect scheduler: each instant split by weight among the tenants with
    /// demand.
    pub ideal: BTreeMap<TenantId, f64>,
    /// Kernels' time by grains of a millisecond.
    pub grains: BTreeMap<TenantId, Vec<u64>>,
    /// All of the time; the time in which a launch waited or ran; and the time in which a launch
    /// waited and none ran.
    pub total: u64,
    pub wanted: u64,
    pub wasted: u64,
    /// From a launch that had to wait to its start, by tenant.
    pub waits: BTreeMap<TenantId, Vec<u64>>,
    /// Marks' time.
    pub marks: u64,
}

impl Meter {
    pub fn run(&mut self, tenant: TenantId, at: Nanos, time: u64) {
        *self.had.entry(tenant).or_default() += time;
        *self.ran.entry(tenant).or_default() += time;
        let grains = self.grains.entry(tenant).or_default();
        let grain = usize::try_from(at.0 / GRAIN).expect("a short test");
        if grains.len() <= grain {
            grains.resize(grain + 1, 0);
        }
        grains[grain] += time;
    }

    /// A tenant's part of all that was had.
    pub fn share(&self, tenant: TenantId) -> f64 {
        let all: u64 = self.had.values().sum();
        self.had.get(&tenant).copied().unwrap_or(0) as f64 / all.max(1) as f64
    }

    /// How far a tenant is from its ideal, in parts of the total time.
    pub fn error(&self, tenant: TenantId) -> f64 {
        let had = self.had.get(&tenant).copied().unwrap_or(0) as f64;
        (had - self.ideal.get(&tenant).copied().unwrap_or(0.0)) / self.total.max(1) as f64
    }

    /// The least and the most a tenant's kernels ran in any window of a second after `from`, in
    /// parts of it.
    pub fn windows(&self, tenant: TenantId, from: Nanos) -> (f64, f64) {
        let grains =
            &self.grains[&tenant][usize::try_from(from.0 / GRAIN).expect("a short test")..];
        let mut sum: u64 = grains[..1000].iter().sum();
        let (mut least, mut most) = (sum, sum);
        for end in 1000..grains.len() - 1 {
            sum = sum + grains[end] - grains[end - 1000];
            (least, most) = (least.min(sum), most.max(sum));
        }
        (least as f64 / 1e9, most as f64 / 1e9)
    }

    /// A quantile of the waits, in microseconds. No wait at all is no short wait: it fails the
    /// test.
    pub fn wait(&mut self, tenant: TenantId, permille: usize) -> u64 {
        let waits = self.waits.entry(tenant).or_default();
        assert!(!waits.is_empty(), "{tenant:?} never had to wait");
        waits.sort_unstable();
        let at = (waits.len() * permille / 1000).min(waits.len() - 1);
        waits[at] / 1000
    }
}

#[test]
#[should_panic = "never had to wait"]
fn no_waits_are_no_short_waits() {
    Meter::default().wait(TenantId(1), 990);
}
