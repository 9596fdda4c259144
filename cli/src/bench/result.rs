//! The outcome of an experiment as data. The JSON output has this form.

use super::judge;
use super::log::Log;
use super::measure::{self, Handoffs, InLine, Newcomer, Percentiles, Span};
use super::preset::Experiment;
use super::tenant::{Arrivals, Mode, Tenant};
use super::truth::{self, Look};
use super::turns::{Had, Turns};
use serde::Serialize;

/// One experiment.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) about: String,
    /// The GPU, if the experiment used several: there is one outcome for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gpu: Option<u32>,
    pub(crate) seconds: f64,
    pub(crate) tenants: Vec<Row>,
    /// Useful time: the time that the completed kernels of all tenants take alone, per elapsed
    /// time.
    pub(crate) useful: f64,
    /// The sum of rates: the sum of each tenant's completed work relative to its work alone. One
    /// means that sharing has neither cost nor gain for tenants that each fill the device.
    pub(crate) rates: Option<f64>,
    /// Fraction of the time in which no tenant had the device, in exclusive turns.
    pub(crate) idle: Option<f64>,
    /// The part of it that the tenants themselves leave idle: each tenant's idle time when alone,
    /// in proportion to its share.
    pub(crate) idle_own: Option<f64>,
    /// `idle` by the software GPU's counters.
    pub(crate) idle_served: Option<f64>,
    /// The cost of sharing: one minus the sum of each tenant's performance relative to running
    /// alone.
    pub(crate) overhead: Option<f64>,
    /// How often the device's mode changed, if its tenants share it at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode_changes_a_minute: Option<f64>,
    pub(crate) handoffs: Vec<Handoffs>,
    /// The fraction of the host's processor time that its own host gave to other machines: where
    /// it is large, the figures say little. `None` if the kernel does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stolen: Option<f64>,
    /// The same while the tenants were measured alone; of the tenant with most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) alone_stolen: Option<f64>,
}

impl Outcome {
    /// Its name.
    pub(crate) fn title(&self) -> String {
        let gpu = self.gpu.map(|gpu| format!(" on GPU {gpu}"));
        format!("{}{}", self.name, gpu.unwrap_or_default())
    }
}

/// One tenant. Shares are fractions of one device.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) tenant: Tenant,
    pub(crate) pids: Vec<u32>,
    /// Useful time, by its own count: the time that its completed kernels take alone, per elapsed
    /// time.
    pub(crate) device: f64,
    /// Device time that it requests, if it makes requests at its own pace.
    pub(crate) asked: Option<f64>,
    /// Launches completed per second; `None` for a tenant that only copies.
    pub(crate) launches_per_s: Option<f64>,
    /// Bytes copied to the device per second, for a tenant that copies.
    pub(crate) copied_per_s: Option<f64>,
    /// For a tenant that starts and stops.
    pub(crate) newcomer: Option<Newcomer>,
    /// `device` by the software GPU's counters.
    pub(crate) served: Option<f64>,
    /// `device` when alone and without guarantees and caps.
    pub(crate) alone: Option<f64>,
    /// Its fraction of what all tenants got.
    pub(crate) share: f64,
    /// The unit of that fraction, see [`judge::Unit`]: `device`, `alone` or `served`.
    pub(crate) by: &'static str,
    /// The fraction that it should get; `None` if priorities decide.
    pub(crate) entitled: Option<f64>,
    /// The difference of the two, in percentage points.
    pub(crate) error_pp: Option<f64>,
    /// `error_pp` by the software GPU's counters.
    pub(crate) error_served_pp: Option<f64>,
    /// Collectives per second, for a gang.
    pub(crate) collectives_per_s: Option<f64>,
    /// Turns that it had, and overruns, by the daemon's counters; none without a daemon.
    #[serde(flatten)]
    pub(crate) turns: Option<Turns>,
    /// How often it was held, on a device that tenants share at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holds: Option<u64>,
    /// Device time in each second.
    pub(crate) seconds: Vec<f64>,
    /// By how much the worst second is above the cap, in percentage points; zero if none is. Of one
    /// that is alone and could always have more it is the one farthest from the cap: below it less
    /// than zero.
    pub(crate) cap_error_pp: Option<f64>,
    /// From launch to completion, for a tenant that waits for its launches. A random arrival counts
    /// from its due time.
    pub(crate) latency: Option<Percentiles>,
    /// The same, less the time of the kernel itself.
    pub(crate) waited: Option<Percentiles>,
    /// Of that, in the calls that launch it. `None` for random arrivals, which count from their due
    /// times.
    pub(crate) launching: Option<Percentiles>,
    /// Periods without a request because the previous request took longer, for tenants with regular
    /// pauses.
    pub(crate) missed: Option<u64>,
    /// Requests in line at the end, for a tenant with random arrivals. If there are any, its waits
    /// are at least so long, and longer in a longer run.
    pub(crate) in_line: Option<InLine>,
    /// Cores that its processes used, driver and benchmark included.
    pub(crate) cores: f64,
    /// Cores that gpushare's own threads in them used.
    pub(crate) own_cores: f64,
}

/// All measurements on one GPU.
pub(crate) struct Measured {
    /// The experiment, with the tenants of this GPU.
    pub(crate) experiment: Experiment,
    /// See [`Outcome::gpu`].
    pub(crate) gpu: Option<u32>,
    /// Its UUID.
    pub(crate) device: [u8; 16],
    pub(crate) span: Span,
    pub(crate) logs: Vec<(usize, Log)>,
    /// The daemon's counters for each tenant.
    pub(crate) turns: Vec<Option<Turns>>,
    pub(crate) looks: Option<(Look, Look)>,
    /// Device time per elapsed time of each tenant when alone.
    pub(crate) alone: Option<Vec<f64>>,
    /// See [`Outcome::alone_stolen`].
    pub(crate) alone_stolen: Option<f64>,
    /// How the daemon let them have the device; `None` without one, and where that is not known.
    pub(crate) had: Option<Had>,
    /// See [`Outcome::stolen`].
    pub(crate) stolen: Option<f64>,
}

impl Measured {
    /// Whether tenants have the device in gpushare's turns. Otherwise kernels of several tenants
    /// overlap, and the end of one does not show the begin of the next.
    fn in_turns(&self) -> bool {
        self.had == Some(Had::InTurns)
    }

    /// How often the mode of a device changed that the tenants share at the same time.
    fn changes(&self) -> Option<u64> {
        match self.had {
            Some(Had::Together(changes)) => Some(changes),
            Some(Had::InTurns) | None => None,
        }
    }

    fn of(&self, tenant: usize) -> impl Iterator<Item = &Log> + Clone {
        self.logs
            .iter()
            .filter(move |(at, _)| *at == tenant)
            .map(|(_, log)| log)
    }

    fn per_time(&self, ns: u64) -> f64 {
        ns as f64 / self.span.ns().max(1) as f64
    }

    fn served(&self, pids: &[u32]) -> Option<f64> {
        self.looks
            .as_ref()
            .map(|(before, after)| truth::served(before, after, self.device, pids))
    }

    /// The figures.
    pub(crate) fn outcome(self) -> Outcome {
        let mut rows: Vec<Row> = (0..self.experiment.tenants.len())
            .map(|at| self.row(at))
            .collect();
        judge::judge(&mut rows, self.in_turns());
        let served = rows
            .iter()
            .map(|row| row.served)
            .collect::<Option<Vec<f64>>>();
        let busy = rows
            .iter()
            .all(|row| row.tenant.is_busy() && row.tenant.cap.is_none());
        let kernels = rows.iter().filter(|row| row.tenant.launch_ns() > 0);
        let rates: Option<f64> = kernels
            .map(|row| Some(row.device / row.alone.filter(|alone| *alone > 0.0)?))
            .sum();
        let rates = rates.filter(|_| self.alone.is_some());
        let names: Vec<&str> = rows.iter().map(|row| row.tenant.name.as_str()).collect();
        let handoffs = measure::handoffs(&self.logs, &names, self.span);
        let logs = self.logs.iter().map(|(_, log)| log);
        let idle = self.per_time(measure::idle(logs, self.span));
        let leaves =
            |row: &Row| Some(row.device * (1.0 / row.alone.filter(|alone| *alone > 0.0)? - 1.0));
        let own: Option<f64> = rows.iter().map(leaves).sum();
        let in_turns = self.in_turns();
        Outcome {
            idle_own: own.filter(|_| in_turns && rows.iter().all(|row| row.tenant.is_busy())),
            seconds: self.span.ns() as f64 / 1e9,
            idle: in_turns.then_some(idle),
            mode_changes_a_minute: self.changes().map(|changes| self.per_time(changes) * 60e9),
            idle_served: served.map(|served| (1.0 - served.iter().sum::<f64>()).max(0.0)),
            overhead: rates
                .filter(|_| busy && rows.len() > 1)
                .map(|rates| 1.0 - rates),
            useful: rows.iter().map(|row| row.device).sum(),
            rates,
            handoffs: if in_turns { handoffs } else { Vec::new() },
            tenants: rows,
            gpu: self.gpu,
            stolen: self.stolen,
            alone_stolen: self.alone_stolen,
            name: self.experiment.name,
            about: self.experiment.about,
        }
    }

    fn row(&self, at: usize) -> Row {
        let tenant = self.experiment.tenants[at].clone();
        let pids: Vec<u32> = self.of(at).map(|log| log.pid).collect();
        let part = |span| measure::device_time(self.of(at), span) as f64 / span.ns().max(1) as f64;
        let seconds: Vec<f64> = measure::seconds(self.span).map(part).collect();
        let fills = self.experiment.tenants.len() == 1 && tenant.fills();
        let worst = |cap: u32| worst_second(&seconds, f64::from(cap), fills);
        let waits = tenant.waits();
        let turns = self.turns.get(at).copied().flatten();
        let regular = waits && !tenant.is_busy() && tenant.arrivals == Arrivals::Regular;
        let random = waits && !tenant.is_busy() && tenant.arrivals == Arrivals::Poisson;
        let gang = tenant.mode == Mode::Gang;
        let launches = part(self.span) * 1e9 / tenant.launch_ns().max(1) as f64;
        let copied = measure::copied(self.of(at), self.span) as f64 / self.span.ns().max(1) as f64;
        let stays = tenant.churn.is_zero();
        let latency = measure::latency(self.of(at), self.span).filter(|_| waits);
        let own = tenant.launch_ns() * u64::from(tenant.launches());
        let cpu = |ns: fn(&Log) -> u64| self.per_time(self.of(at).map(ns).sum());
        Row {
            device: part(self.span),
            // The counters no longer contain a process that has exited.
            served: self.served(&pids).filter(|_| stays),
            asked: tenant.asks().filter(|_| stays),
            launches_per_s: Some(launches).filter(|_| tenant.launch_ns() > 0),
            copied_per_s: Some(copied * 1e9).filter(|_| tenant.chunk() > 0),
            newcomer: measure::newcomer(self.of(at), self.span),
            alone: self.alone.as_ref().map(|alone| alone[at]),
            share: 0.0,
            by: "device",
            entitled: None,
            error_pp: None,
            error_served_pp: None,
            cap_error_pp: tenant.cap.map(worst).filter(|_| !seconds.is_empty()),
            waited: latency.map(|latency| Percentiles {
                p50_ns: latency.p50_ns.saturating_sub(own),
                p99_ns: latency.p99_ns.saturating_sub(own),
                p999_ns: latency.p999_ns.saturating_sub(own),
                max_ns: latency.max_ns.saturating_sub(own),
                ..latency
            }),
            latency,
            launching: measure::launching(self.of(at), self.span).filter(|_| waits && !random),
            missed: regular.then(|| self.of(at).map(|log| log.missed).sum()),
            in_line: random.then(|| measure::in_line(self.of(at))),
            collectives_per_s: Some(launches).filter(|_| gang),
            turns: turns.filter(|_| self.in_turns()),
            holds: turns
                .filter(|_| self.changes().is_some())
                .map(|had| had.turns),
            cores: cpu(|log| log.cpu_ns),
            own_cores: cpu(|log| log.own_cpu_ns),
            seconds,
            pids,
            tenant,
        }
    }
}

/// See [`Row::cap_error_pp`]. `fills`: without the cap it would have all of the device.
fn worst_second(seconds: &[f64], cap: f64, fills: bool) -> f64 {
    let off = seconds.iter().map(|part| part * 100.0 - cap);
    let off = off.filter(|off| fills || *off > 0.0);
    let worst = off.max_by(|one, other| one.abs().total_cmp(&other.abs()));
    worst.unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
