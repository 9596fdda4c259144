//! The time in which each process's kernels ran, as NVML samples it: also of a tenant that is alone
//! on a device, which the gates do not bill.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample;

/// The longest time that one sample stands for (nvmlUtilization_t: "between 1 second and 1/6
/// second depending on the product").
const LONGEST_US: u64 = 1_000_000;
/// The shortest time between two questions about a device: the driver has no newer sample before.
const APART: Duration = Duration::from_millis(500);

/// The last question about one device.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    /// The end of the newest sample, in microseconds since the epoch.
    newest_us: u64,
}

/// The last question about each device, by the device's number.
#[derive(Debug, Default)]
pub(super) struct Activity(BTreeMap<usize, Asked>);

impl Activity {
    /// Nanoseconds of each process since the last question. Empty where the driver has no newer
    /// samples, or none at all (MIG).
    pub(super) fn since_last(
        &mut self,
        index: usize,
        device: &nvml_wrapper::Device<'_>,
    ) -> Vec<(u32, u64)> {
        let at = Instant::now();
        let known = self.0.get(&index).copied();
        if known.is_some_and(|asked| at.duration_since(asked.at) < APART) {
            return Vec::new();
        }
        // The first question only finds out how far the driver's samples go.
        let since_us = known.map_or(0, |asked| asked.newest_us);
        let samples = device
            .process_utilization_stats(since_us)
            .unwrap_or_default();
        let samples: Vec<Sampled> = samples.iter().map(Sampled::from).collect();
        let newest = samples.iter().map(|sample| sample.end_us).max();
        let newest_us = since_us.max(newest.unwrap_or(0));
        self.0.insert(index, Asked { at, newest_us });
        match known {
            Some(_) => busy(since_us, &samples),
            None => Vec::new(),
        }
    }
}

/// A sample of one process.
#[derive(Clone, Copy, Debug)]
struct Sampled {
    pid: u32,
    end_us: u64,
    /// The part of the sample's time in which its kernels ran.
    percent: u32,
}

impl From<&ProcessUtilizationSample> for Sampled {
    fn from(sample: &ProcessUtilizationSample) -> Self {
        Self {
            pid: sample.pid,
            end_us: sample.timestamp,
            percent: sample.sm_util.min(100),
        }
    }
}

/// Nanoseconds by pid. A sample stands for the time since the one before it of the same process.
fn busy(since_us: u64, samples: &[Sampled]) -> Vec<(u32, u64)> {
    let mut sorted: Vec<Sampled> = samples.to_vec();
    sorted.sort_by_key(|sample| (sample.pid, sample.end_us));
    let mut found: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for sample in sorted.iter().filter(|sample| sample.end_us > since_us) {
        let (before, sum) = found.entry(sample.pid).or_insert((since_us, 0));
        let took_us = (sample.end_us - *before).min(LONGEST_US);
        *sum += took_us * u64::from(sample.percent) * 10;
        *before = sample.end_us;
    }
    let sums = found.into_iter().map(|(pid, (_, sum))| (pid, sum));
    sums.filter(|(_, sum)| *sum > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pid: u32, end_us: u64, percent: u32) -> Sampled {
        Sampled {
            pid,
            end_us,
            percent,
        }
    }

    #[test]
    fn a_sample_stands_for_the_time_since_the_one_before() {
        let samples = [
            sample(7, 1_500_000, 100),
            sample(7, 1_250_000, 40),
            sample(8, 1_500_000, 10),
        ];
        // 0.25 s at 40 %, then 0.25 s at 100 %; 0.5 s at 10 %.
        let expected = [(7, 350_000_000), (8, 50_000_000)];
        assert_eq!(busy(1_000_000, &samples), expected);
    }

    #[test]
    fn a_sample_after_a_pause_stands_for_a_second_at_most() {
        let samples = [sample(7, 60_000_000, 50)];
        assert_eq!(busy(1_000_000, &samples), [(7, 500_000_000)]);
    }

    #[test]
    fn an_old_or_an_idle_sample_counts_nothing() {
        let samples = [sample(7, 1_000_000, 100), sample(8, 1_500_000, 0)];
        assert_eq!(busy(1_000_000, &samples), []);
    }
}
