//! The results of a run, for each tenant and for the device.

use super::Gate;
use super::client::Client;
use softgpu::model::Given;

/// A tenant's results.
#[derive(Clone, Debug, Default)]
pub struct TenantReport {
    /// Device time that it had (ns).
    pub given: u64,
    /// Time that its completed operations take alone (ns).
    pub useful: u64,
    /// Time that the operations it wanted to launch take alone, missed periods counted (ns).
    pub asked: u64,
    /// Requests that are complete, and periods that had none.
    pub done: u64,
    pub missed: u64,
    /// From the arrival of a request to its completion, ascending (ns).
    pub waits: Vec<u64>,
    /// How often its gate changed between free, open, open with a slice, and closed.
    pub gate_changes: u64,
}

impl TenantReport {
    /// The wait that `thousandths` of the requests did not exceed: 500, 990, 999 (ns). A tenant
    /// without a complete request has no wait, not a short one: it fails the test.
    pub fn wait(&self, thousandths: usize) -> u64 {
        self.wait_if_any(thousandths)
            .expect("no request of this tenant was complete")
    }

    /// The same; `None` if no request was complete.
    pub fn wait_if_any(&self, thousandths: usize) -> Option<u64> {
        let at = (self.waits.len() * thousandths).div_ceil(1_000);
        self.waits.get(at.saturating_sub(1)).copied()
    }

    /// Its service relative to its demand, percent.
    pub fn of_asked(&self) -> f64 {
        percent(self.useful, self.asked)
    }
}

/// The results of a span of time on a device.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How long it was (ns).
    pub time: u64,
    /// Device time given to tenants (ns).
    pub busy: u64,
    /// Device time spent on changes from one context to another (ns).
    pub changing: u64,
    /// Time in which no tenant had the device while a tenant had work pending (ns).
    pub idle_pending: u64,
    /// The longest time in which no tenant had the device while a request was open (ns).
    pub longest_idle: u64,
    pub tenants: Vec<TenantReport>,
}

impl Report {
    /// Device time that was given, percent.
    pub fn used(&self) -> f64 {
        percent(self.busy, self.time)
    }

    /// Device time that a tenant had, percent.
    pub fn share(&self, tenant: usize) -> f64 {
        percent(self.tenants[tenant].given, self.time)
    }

    /// Time of a tenant's completed operations, percent of the time that passed.
    pub fn useful(&self, tenant: usize) -> f64 {
        percent(self.tenants[tenant].useful, self.time)
    }

    /// The same of all tenants.
    pub fn all_useful(&self) -> f64 {
        let all = self.tenants.iter().map(|tenant| tenant.useful).sum();
        percent(all, self.time)
    }

    /// Time idle while work was pending, percent.
    pub fn idle(&self) -> f64 {
        percent(self.idle_pending, self.time)
    }
}

fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

/// Counts while time passes.
#[derive(Debug, Default)]
pub struct Meter {
    from: u64,
    report: Report,
    /// The current time without a tenant on the device (ns).
    idle: u64,
}

impl Meter {
    pub fn tenants(&self) -> usize {
        self.report.tenants.len()
    }

    /// There is a tenant of this number.
    pub fn add(&mut self, tenant: usize) {
        let tenants = self.tenants().max(tenant + 1);
        self.report.tenants.resize(tenants, TenantReport::default());
    }

    /// `time` ns have passed in which the device gave `given`, work was `pending` or not, and a
    /// request `open` or not.
    pub fn passed(
        &mut self,
        time: u64,
        given: &[Given],
        tenant: impl Fn(usize) -> usize,
        pending: bool,
        open: bool,
    ) {
        let mut had = 0;
        for stretch in given {
            let length = stretch.to - stretch.from;
            had += length;
            match stretch.seat {
                None => self.report.changing += length,
                Some(seat) => {
                    self.report.busy += length;
                    self.report.tenants[tenant(seat.0)].given += length;
                }
            }
        }
        let idle = time - had;
        self.report.idle_pending += if pending { idle } else { 0 };
        self.idle = match (open, had) {
            (true, 0) => self.idle + idle,
            (true, _) => idle,
            (false, _) => 0,
        };
        self.report.longest_idle = self.report.longest_idle.max(self.idle);
    }

    pub fn gate_changes(&mut self, tenant: usize, from: Gate, to: Gate) {
        let kind = |gate| match gate {
            Gate::Free => 0,
            Gate::Open { slice: None, .. } => 1,
            Gate::Open { slice: Some(_), .. } => 2,
            Gate::Closed => 3,
        };
        self.report.tenants[tenant].gate_changes += u64::from(kind(from) != kind(to));
    }

    /// The counts since the last call, at `now`.
    pub fn report(&mut self, now: u64, clients: &mut [Client]) -> Report {
        for client in clients {
            let tally = std::mem::take(&mut client.tally);
            let tenant = &mut self.report.tenants[client.who.tenant];
            tenant.useful += tally.useful;
            tenant.asked += tally.asked;
            tenant.done += tally.done;
            tenant.missed += tally.missed;
            tenant.waits.extend(tally.waits);
        }
        for tenant in &mut self.report.tenants {
            tenant.waits.sort_unstable();
        }
        let tenants = vec![TenantReport::default(); self.tenants()];
        let fresh = Report {
            tenants,
            ..Report::default()
        };
        let mut report = std::mem::replace(&mut self.report, fresh);
        report.time = now - self.from;
        self.from = now;
        report
    }
}

#[test]
fn the_wait_is_by_nearest_rank() {
    let tenant = TenantReport {
        waits: (1..=1_000).collect(),
        ..TenantReport::default()
    };
    assert_eq!(
        [1, 500, 990, 999, 1_000].map(|at| tenant.wait(at)),
        [1, 500, 990, 999, 1_000]
    );
}

#[test]
#[should_panic = "no request of this tenant was complete"]
fn no_requests_are_no_short_waits() {
    let tenant = TenantReport::default();
    assert_eq!(tenant.wait_if_any(990), None);
    tenant.wait(990);
}
