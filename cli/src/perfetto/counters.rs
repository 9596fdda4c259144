//! Counters of a trace: what was charged and granted on each GPU, and each tenant's parts of the
//! time.

use super::Trace;
use gpushare_protocol::wire::SeriesRow;
use serde_json::{Value, json};

/// When a row's values were taken.
#[derive(Clone, Copy)]
struct Looks {
    many: usize,
    step_ms: u64,
    age_ms: u64,
    now_ms: u64,
}

impl Looks {
    /// In microseconds: the last `age_ms` ago, the others a step before each other.
    fn moments(self) -> impl Iterator<Item = u64> {
        let last = self.now_ms.saturating_sub(self.age_ms);
        let back = (0..self.many as u64).rev();
        back.map(move |steps| last.saturating_sub(steps * self.step_ms) * 1000)
    }

    /// Where the tenant has ended: until when its last value counts, a step after it. The daemon
    /// looks at a tenant that is there once a step, up to half a second late.
    fn end(self) -> Option<u64> {
        let has_ended = self.age_ms > self.step_ms + self.step_ms / 5;
        let last = self.now_ms.saturating_sub(self.age_ms);
        has_ended.then(|| (last + self.step_ms) * 1000)
    }
}

/// A counter's values in one row: a group's, by its name and that of the value.
#[derive(Debug)]
pub(super) struct Counted {
    pid: u32,
    name: String,
    what: &'static str,
    /// The first and the last value's moments, and until when the last one counts, if it ends.
    from: u64,
    to: u64,
    end: Option<u64>,
}

impl Counted {
    /// Whether this has a value of that counter at that moment.
    fn has(&self, other: &Self, at: u64) -> bool {
        let is_same = (self.pid, &*self.name, self.what) == (other.pid, &*other.name, other.what);
        is_same && self.from <= at && self.end.is_none_or(|end| at < end)
    }
}

impl Trace {
    /// The values of a series. A tenant's part of the time counts what it had alone, too.
    pub(super) fn count(&mut self, row: &SeriesRow, now_ms: u64) {
        let gpu = self.gpu(row.device);
        let name = self.names.shown(&row.name).to_owned();
        let looks = Looks {
            many: row.charged_mib.len(),
            step_ms: row.step_ms,
            age_ms: row.age_ms,
            now_ms,
        };
        self.bytes(gpu, &format!("charged by {name}"), looks, &row.charged_mib);
        self.bytes(gpu, &format!("granted to {name}"), looks, &row.grant_mib);
        if row.away_mib.iter().any(|mib| *mib > 0) {
            self.bytes(gpu, &format!("of {name} off the GPU"), looks, &row.away_mib);
        }
        let of = (&*row.name, row.device);
        self.part(of, "waited", looks, &row.waited);
        self.part(of, "had", looks, &row.had);
    }

    /// Parts of a device's time. Each device has counters of its own: those of one name are one.
    /// Nothing of a device that the tenant has not used.
    fn part(
        &mut self,
        (name, device): (&str, [u8; 16]),
        what: &'static str,
        looks: Looks,
        parts: &[u16],
    ) {
        if parts.iter().all(|part| *part == 0) {
            return;
        }
        let tenant = self.tenant(name);
        let title = format!("part of the time of {}, %", super::short(device));
        let values = parts.iter().map(|part| json!(f64::from(*part) / 10.0));
        self.values((tenant, &title, what), looks, values);
    }

    fn bytes(&mut self, pid: u32, name: &str, looks: Looks, mib: &[u32]) {
        let values = mib.iter().map(|mib| json!(u64::from(*mib) << 20));
        self.values((pid, name, "bytes"), looks, values);
    }

    fn values(
        &mut self,
        (pid, name, what): (u32, &str, &'static str),
        looks: Looks,
        values: impl Iterator<Item = Value>,
    ) {
        let moments: Vec<u64> = looks.moments().collect();
        let (Some(from), Some(to)) = (moments.first(), moments.last()) else {
            return;
        };
        self.counted.push(Counted {
            pid,
            name: name.to_owned(),
            what,
            from: *from,
            to: *to,
            end: looks.end(),
        });
        for (ts, value) in moments.into_iter().zip(values) {
            self.counter((pid, name, what), ts, &value);
        }
    }

    /// Ends the counters of tenants that have ended: a counter keeps its value until its next one.
    /// Where another tenant of the shown name goes on there, as a pod's next container, it has that
    /// one's.
    pub(super) fn end_counters(&mut self) {
        let counted = std::mem::take(&mut self.counted);
        for one in &counted {
            let Some(end) = one.end.filter(|end| *end > one.to) else {
                continue;
            };
            if !counted.iter().any(|other| other.has(one, end)) {
                self.counter((one.pid, &one.name, one.what), end, &json!(0));
            }
        }
    }

    fn counter(&mut self, (pid, name, what): (u32, &str, &str), ts: u64, value: &Value) {
        self.events
            .push(json!({"ph": "C", "pid": pid, "ts": ts, "name": name, "args": {what: value}}));
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
            grant_mib: vec![0; held.len()],
            had: held.to_vec(),
            on_mib: vec![0; held.len()],
            away_mib: vec![0; held.len()],
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
        let row = SeriesRow {
            had: vec![0, 930],
            on_mib: vec![4, 0],
            away_mib: vec![0, 4],
            ..series(1, &[0, 0])
        };
        let kept = Kept {
            series: vec![row],
            ..Kept::default()
        };
        let trace = trace(&[], &kept, 20_500);
        let had: Vec<f64> = shown(&trace, "had").into_values().collect();
        assert_eq!(had, [0.0, 93.0]);
        let away = shown(&trace, "bytes");
        let name = "of web off the GPU".to_owned();
        assert_eq!(away.get(&(name, 20_000_000)), Some(&f64::from(4 << 20)));
    }

    /// The values shown of a tenant whose rows have these ages, each of two values.
    fn aged(ages_ms: &[u64]) -> Value {
        let series = ages_ms.iter().map(|age_ms| SeriesRow {
            age_ms: *age_ms,
            charged_mib: vec![1, 2],
            grant_mib: vec![3, 3],
            away_mib: vec![1, 2],
            ..series(1, &[900, 800])
        });
        let kept = Kept {
            series: series.collect(),
            ..Kept::default()
        };
        trace(&[], &kept, 100_000)
    }

    /// The moments in seconds at which each counter is 0.
    fn zeros(trace: &Value, what: &str) -> BTreeMap<String, Vec<u64>> {
        let mut zeros: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for ((name, ts), value) in shown(trace, what) {
            let of = zeros.entry(name).or_default();
            if value == 0.0 {
                of.push(ts / 1_000_000);
            }
        }
        zeros
    }

    #[test]
    fn counters_of_a_tenant_that_has_ended_end_a_step_after_its_last_value() {
        for (what, counters) in [("bytes", 3), ("had", 1)] {
            let ended = zeros(&aged(&[50_000]), what);
            assert_eq!(ended.len(), counters, "{ended:?}");
            assert!(ended.values().all(|at| *at == [60]), "{ended:?}");
            // A tenant that is there: its last value counts until now.
            for age in [0, 9_900, 10_500] {
                let there = zeros(&aged(&[age]), what);
                assert_eq!(there.len(), counters);
                assert!(there.values().all(Vec::is_empty), "{age}: {there:?}");
            }
        }
    }

    #[test]
    fn a_tenant_of_the_same_name_goes_on_with_the_counter() {
        // From 40 s on, where the first one's last value counts until 50 s; and from 80 s on.
        let next = zeros(&aged(&[60_000, 50_000]), "bytes");
        assert!(next.values().all(|at| *at == [60]), "{next:?}");
        let later = zeros(&aged(&[60_000, 10_000]), "bytes");
        assert!(later.values().all(|at| *at == [50]), "{later:?}");
    }
}
