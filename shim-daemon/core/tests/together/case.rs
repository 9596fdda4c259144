//! The same programs on the bare driver and steered by the daemon's brain.

use std::collections::BTreeMap;

use gpushare_core::{Compute, LeasePolicy, Nanos, Permille, Sharing};

use super::{Brain, MS, NoSteering, Pace, Program, Report, Rig, S, Steering, US};

/// The lengths of the driver's time slice at which the table must hold (ns).
pub const SLICES: [u64; 2] = [MS, 2 * MS];

/// The times of an H100 (`docs/results/2026-11-26-verify-NVIDIA-H100-80GB-HBM3.md`).
pub const H100: Pace = Pace {
    slice: 2090 * US,
    switch: 150 * US,
    preempt: 150 * US,
};

/// Tenants with their programs and terms, and a device.
#[derive(Clone, Debug)]
pub struct Case {
    pub what: String,
    pub pace: Pace,
    /// Tenant and program of each process.
    pub programs: Vec<(usize, Program)>,
    pub terms: BTreeMap<usize, (u16, Compute)>,
    pub warm_up: u64,
    pub time: u64,
    pub seed: u64,
}

/// The results of a run that was steered.
#[derive(Clone, Debug)]
pub struct Steered {
    pub report: Report,
    /// How often the mode changed in the whole run.
    pub changes: u64,
}

/// The results of a bare run and of a steered run.
#[derive(Clone, Debug)]
pub struct Pair {
    pub bare: Report,
    pub steered: Report,
    pub changes: u64,
}

impl Case {
    /// One tenant for each program; ten seconds are measured after one.
    pub fn new(what: &str, programs: &[Program]) -> Self {
        Self {
            what: what.to_owned(),
            pace: Pace::default(),
            programs: programs.iter().cloned().enumerate().collect(),
            terms: BTreeMap::new(),
            warm_up: S,
            time: 10 * S,
            seed: 1,
        }
    }

    /// One more process of `tenant`.
    pub fn process(mut self, tenant: usize, program: Program) -> Self {
        self.programs.push((tenant, program));
        self
    }

    /// A tenant's class and share.
    pub fn of(mut self, tenant: usize, class: u16, compute: Compute) -> Self {
        self.terms.insert(tenant, (class, compute));
        self
    }

    /// Requests of the tenants in percent, in order.
    pub fn requests(self, percent: &[u16]) -> Self {
        let all = percent.iter().enumerate();
        all.fold(self, |case, (at, percent)| {
            case.of(at, 500, request(*percent))
        })
    }

    /// The driver's time slice.
    pub fn slice(mut self, slice: u64) -> Self {
        self.pace.slice = slice;
        self
    }

    /// The device's time for a change of contexts.
    pub fn switch(mut self, switch: u64) -> Self {
        self.pace.switch = switch;
        self
    }

    /// The times of an H100.
    pub fn h100(mut self) -> Self {
        self.pace = H100;
        self
    }

    /// Other durations: the warm-up, and the measured time.
    pub fn times(self, warm_up: u64, time: u64) -> Self {
        Self {
            warm_up,
            time,
            ..self
        }
    }

    /// Under this steering, with nothing run yet.
    pub fn rig<B: Steering>(&self, steering: B) -> Rig<B> {
        let mut rig = Rig::new(self.pace, steering, self.seed);
        for (tenant, program) in &self.programs {
            rig.add_to(*tenant, program.clone());
        }
        rig
    }

    /// The brain for these tenants.
    pub fn brain(&self) -> Brain {
        let policy = LeasePolicy {
            sharing: Sharing::Together,
            slice: Nanos(self.pace.slice),
            switch: Nanos(self.pace.switch),
            ..LeasePolicy::default()
        };
        let mut brain = Brain::new(policy);
        brain.terms.clone_from(&self.terms);
        brain
    }

    /// Without steering.
    pub fn bare(&self) -> Report {
        let report = self.rig(NoSteering).measured(self.warm_up, self.time);
        print(&format!("{} bare", self.title()), &report, "");
        report
    }

    /// Under the brain, which was checked after every event.
    pub fn steered(&self) -> Steered {
        let mut rig = self.rig(self.brain());
        let report = rig.measured(self.warm_up, self.time);
        assert_eq!(rig.steering.broken, None, "{}", self.what);
        let (mode, changes) = rig.steering.changes();
        let modes = format!("{mode:?}, {changes} changes");
        print(&format!("{} steered", self.title()), &report, &modes);
        Steered { report, changes }
    }

    pub fn pair(&self) -> Pair {
        let bare = self.bare();
        let steered = self.steered();
        Pair {
            bare,
            steered: steered.report,
            changes: steered.changes,
        }
    }

    fn title(&self) -> String {
        let (slice, switch) = (self.pace.slice / US, self.pace.switch / US);
        format!("{} L={slice} switch={switch}", self.what)
    }
}

impl Pair {
    /// Useful time, percent of the bare driver's.
    pub fn useful_of_bare(&self) -> f64 {
        100.0 * self.steered.all_useful() / self.bare.all_useful()
    }

    /// Asserts that no request of a tenant waits more than twice as long as on the bare driver, at
    /// the 99th percentile. Some tenant must have requests; a deep queue has none.
    pub fn assert_waits(&self, what: &str) {
        let has_requests = |at: &usize| self.bare.tenants[*at].wait_if_any(990).is_some();
        let all: Vec<usize> = (0..self.bare.tenants.len()).filter(has_requests).collect();
        assert!(!all.is_empty(), "{what}: no tenant has requests");
        for at in all {
            self.assert_waits_of(what, at);
        }
    }

    /// The same of one tenant.
    pub fn assert_waits_of(&self, what: &str, at: usize) {
        let (bare, steered) = (&self.bare.tenants[at], &self.steered.tenants[at]);
        let (bare, steered) = (bare.wait(990), steered.wait(990));
        assert!(steered <= 2 * bare, "{what}: {at} {steered}, bare {bare}");
    }
}

/// A share of so many percent.
pub fn request(percent: u16) -> Compute {
    let request = Permille::new(percent * 10);
    Compute {
        request,
        limit: None,
    }
}

/// A cap of so many percent.
pub fn limit(percent: u16) -> Compute {
    let limit = Permille::new(percent * 10);
    Compute {
        request: None,
        limit,
    }
}

/// Asserts a figure in percent, within so many points.
pub fn near(what: &str, had: f64, expected: f64, within: f64) {
    let far = (had - expected).abs();
    assert!(
        far <= within,
        "{what}: {had:.2}, expected {expected:.2} within {within}"
    );
}

/// Asserts that a figure is at least so much.
pub fn at_least(what: &str, had: f64, least: f64) {
    assert!(had >= least, "{what}: {had:.2}, expected at least {least}");
}

#[allow(clippy::print_stdout, reason = "figures for people")]
fn print(what: &str, report: &Report, modes: &str) {
    let mut line = format!(
        "{what:48} used {:5.1} useful {:5.1} idle {:4.1} longest {:4} us |",
        report.used(),
        report.all_useful(),
        report.idle(),
        report.longest_idle / US
    );
    for (at, tenant) in report.tenants.iter().enumerate() {
        let useful = report.useful(at);
        line += &format!(" {useful:5.2}% ({:.1}% of asked)", tenant.of_asked());
        for (name, thousandths) in [("p99", 990), ("p99.9", 999)] {
            if let Some(wait) = tenant.wait_if_any(thousandths) {
                line += &format!(" {name} {} us", wait / US);
            }
        }
        line.push(';');
    }
    println!("{line} {modes}");
}
