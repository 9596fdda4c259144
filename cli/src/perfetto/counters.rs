//! Counters of a trace: what was charged and granted on each GPU, and each tenant's parts of the
//! time.

use super::Trace;
use gpushare_protocol::wire::{GrantsRow, SeriesRow, UseRow};
use serde_json::{Value, json};

/// The moments of so many values with this step, the last one `age_ms` ago, in microseconds.
fn moments(many: usize, step_ms: u64, age_ms: u64, now_ms: u64) -> impl Iterator<Item = u64> {
    let last = now_ms.saturating_sub(age_ms);
    let back = (0..many as u64).rev();
    back.map(move |steps| last.saturating_sub(steps * step_ms) * 1000)
}

impl Trace {
    /// The values of a series. A tenant's part of the time is that of its use (`has_uses`) where
    /// the daemon tells it: that counts what it had alone, too.
    pub(super) fn count(&mut self, row: &SeriesRow, has_uses: bool, now_ms: u64) {
        let gpu = self.gpu(row.device);
        let charged = format!("charged by {}", self.names.shown(&row.name));
        let moments = || moments(row.charged_mib.len(), row.step_ms, row.age_ms, now_ms);
        for (ts, mib) in moments().zip(&row.charged_mib) {
            self.counter(gpu, ts, &charged, &json!({"bytes": u64::from(*mib) << 20}));
        }
        let of = (&*row.name, row.device);
        self.part(of, "waited", moments().zip(&row.waited));
        if !has_uses {
            self.part(of, "had", moments().zip(&row.held));
        }
    }

    /// A tenant's part of the time, and its memory off the device.
    pub(super) fn count_use(&mut self, row: &UseRow, now_ms: u64) {
        let gpu = self.gpu(row.device);
        let moments = || moments(row.had.len(), row.step_ms, row.age_ms, now_ms);
        self.part((&row.name, row.device), "had", moments().zip(&row.had));
        if row.away_mib.iter().any(|mib| *mib > 0) {
            let away = format!("of {} off the GPU", self.names.shown(&row.name));
            for (ts, mib) in moments().zip(&row.away_mib) {
                self.counter(gpu, ts, &away, &json!({"bytes": u64::from(*mib) << 20}));
            }
        }
    }

    /// Parts of a device's time. Each device has counters of its own: those of one name are one.
    /// Nothing of a device that the tenant has not used.
    fn part<'a>(
        &mut self,
        (name, device): (&str, [u8; 16]),
        what: &str,
        values: impl Iterator<Item = (u64, &'a u16)>,
    ) {
        let values: Vec<_> = values.collect();
        if values.iter().all(|(_, part)| **part == 0) {
            return;
        }
        let tenant = self.tenant(name);
        let title = format!("part of the time of {}, %", super::short(device));
        for (ts, part) in values {
            self.counter(tenant, ts, &title, &json!({what: f64::from(*part) / 10.0}));
        }
    }

    /// The tenant's grants.
    pub(super) fn count_grants(&mut self, row: &GrantsRow, now_ms: u64) {
        let gpu = self.gpu(row.device);
        let granted = format!("granted to {}", self.names.shown(&row.name));
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
    use super::super::{Kept, trace};
    use super::*;
    use std::collections::BTreeMap;

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

    fn series(device: u8, held: &[u16]) -> SeriesRow {
        SeriesRow {
            name: "web".to_owned(),
            device: [device; 16],
            step_ms: 10_000,
            age_ms: 500,
            charged_mib: vec![0; held.len()],
            held: held.to_vec(),
            waited: vec![0; held.len()],
        }
    }

    /// The values of a tenant's counter, by the counter's name: the last value of a name at a
    /// moment is the one that is shown.
    fn shown(trace: &Value, what: &str) -> BTreeMap<(String, u64), f64> {
        let counters = of(trace, "C").into_iter();
        let value = |event: &Value| {
            let name = event["name"].as_str()?.to_owned();
            Some(((name, event["ts"].as_u64()?), event["args"][what].as_f64()?))
        };
        counters.filter_map(value).collect()
    }

    #[test]
    fn each_gpu_has_a_counter_of_a_tenants_time_and_unused_ones_none() {
        let kept = Kept {
            series: vec![
                series(1, &[900, 800]),
                series(2, &[100, 0]),
                series(3, &[0, 0]),
            ],
            ..Kept::default()
        };
        let had = shown(&trace(&[], &kept, 20_500), "had");
        let at = |gpu: &str, ts: u64| {
            let name = format!("part of the time of GPU-{gpu}, %");
            had.get(&(name, ts * 1_000_000)).copied()
        };
        assert_eq!(
            [at("01010101", 10), at("01010101", 20)],
            [Some(90.0), Some(80.0)]
        );
        assert_eq!(
            [at("02020202", 10), at("02020202", 20)],
            [Some(10.0), Some(0.0)]
        );
        assert_eq!(had.len(), 4, "{had:?}");
    }

    #[test]
    fn the_time_that_one_had_alone_is_in_the_counter_and_memory_off_the_gpu() {
        let uses = UseRow {
            name: "web".to_owned(),
            device: [1; 16],
            step_ms: 10_000,
            age_ms: 500,
            had: vec![0, 930],
            on_mib: vec![4, 0],
            away_mib: vec![0, 4],
        };
        let kept = Kept {
            series: vec![series(1, &[0, 0])],
            uses: vec![uses],
            ..Kept::default()
        };
        let trace = trace(&[], &kept, 20_500);
        let had: Vec<f64> = shown(&trace, "had").into_values().collect();
        assert_eq!(had, [0.0, 93.0]);
        let away = shown(&trace, "bytes");
        let name = "of web off the GPU".to_owned();
        assert_eq!(away.get(&(name, 20_000_000)), Some(&f64::from(4 << 20)));
    }
}
