//! Counters of a trace: what was charged and granted on each GPU, and each tenant's parts of the
//! time.

use super::Trace;
use gpushare_protocol::wire::{GrantsRow, SeriesRow};
use serde_json::{Value, json};

/// The moments of so many values with this step, the last one `age_ms` ago, in microseconds.
fn moments(many: usize, step_ms: u64, age_ms: u64, now_ms: u64) -> impl Iterator<Item = u64> {
    let last = now_ms.saturating_sub(age_ms);
    let back = (0..many as u64).rev();
    back.map(move |steps| last.saturating_sub(steps * step_ms) * 1000)
}

impl Trace {
    /// The values of a series.
    pub(super) fn count(&mut self, row: &SeriesRow, now_ms: u64) {
        let (gpu, tenant) = (self.gpu(row.device), self.tenant(&row.name));
        let charged = format!("charged by {}", row.name);
        let moments = moments(row.charged_mib.len(), row.step_ms, row.age_ms, now_ms);
        for (at, (ts, mib)) in moments.zip(&row.charged_mib).enumerate() {
            let part = |parts: &[u16]| f64::from(parts.get(at).copied().unwrap_or(0)) / 10.0;
            self.counter(gpu, ts, &charged, &json!({"bytes": u64::from(*mib) << 20}));
            let parts = json!({"had": part(&row.held), "waited": part(&row.waited)});
            self.counter(tenant, ts, "part of the time, %", &parts);
        }
    }

    /// The tenant's grants.
    pub(super) fn count_grants(&mut self, row: &GrantsRow, now_ms: u64) {
        let gpu = self.gpu(row.device);
        let granted = format!("granted to {}", row.name);
        let moments = moments(row.grant_mib.len(), row.step_ms, row.age_ms, now_ms);
        for (ts, mib) in moments.zip(&row.grant_mib) {
            self.counter(gpu, ts, &granted, &json!({"bytes": u64::from(*mib) << 20}));
        }
    }

    fn counter(&mut self, pid: u32, ts: u64, name: &str, values: &Value) {
        self.events
            .push(json!({"ph": "C", "pid": pid, "ts": ts, "name": name, "args": values}));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{group, of, story};
    use super::*;

    #[test]
    fn counters_end_when_the_last_value_was_taken() {
        let trace = story();
        let gpu = json!(group(&trace, "GPU-07070707-0707-0707-0707-070707070707"));
        let counters = of(&trace, "C");
        let named = |name: &str| {
            let of_gpu = counters.iter().filter(|event| event["pid"] == gpu);
            let of_name = of_gpu.filter(|event| event["name"] == name);
            let value = |event: &&&Value| (event["ts"].as_u64(), event["args"]["bytes"].as_u64());
            of_name.map(|event| value(&event)).collect::<Vec<_>>()
        };
        let at = |seconds: u64, mib: u64| (Some(seconds * 1_000_000), Some(mib << 20));
        assert_eq!(named("charged by web"), [at(10, 0), at(20, 512)]);
        assert_eq!(named("granted to web"), [at(10, 256), at(20, 768)]);
        let parts = counters
            .iter()
            .filter(|event| event["args"]["had"] == json!(25.0));
        assert_eq!(parts.count(), 1);
    }
}
