//! The time in which each process's kernels ran, as NVML samples it: also of a tenant that is alone
//! on a device, which the gates do not bill.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpushare_core::Nanos;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample;

use super::Busy;

/// The longest time that one sample stands for (nvmlUtilization_t: "between 1 second and 1/6
/// second depending on the product").
const LONGEST_US: u64 = 1_000_000;
/// The shortest time between two questions about a device: the driver has no newer sample before.
const APART: Duration = Duration::from_millis(500);

/// After so long without a newer sample all samples are asked for. They bear the wall clock, and
/// while that is behind the newest one, because it was set back, none is newer.
const QUIET: Duration = Duration::from_secs(10);

/// The last question about one device.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    /// The last one to which the driver said what ran, or that nothing did.
    told: Instant,
    /// The end of the newest sample, in microseconds since the epoch.
    newest_us: u64,
    /// When that sample came, or all were asked for.
    since: Instant,
}

impl Asked {
    /// The end of the newest sample that is not asked for.
    fn after_us(&self, at: Instant) -> u64 {
        match at.duration_since(self.since) < QUIET {
            true => self.newest_us,
            false => 0,
        }
    }

    /// With the answer to that question.
    fn answered(self, at: Instant, tells: bool, samples: &[Sampled]) -> Self {
        let had_all = self.after_us(at) == 0;
        let newest = samples.iter().map(|sample| sample.end_us).max();
        let newest = newest.filter(|newest| had_all || *newest > self.newest_us);
        Self {
            at,
            told: if tells { at } else { self.told },
            newest_us: newest.unwrap_or(self.newest_us),
            since: match had_all || newest.is_some() {
                true => at,
                false => self.since,
            },
        }
    }
}

/// The last question about each device, by the device's number.
#[derive(Debug, Default)]
pub(super) struct Activity {
    asked: BTreeMap<usize, Asked>,
    /// Whether the driver has samples of a device. An answer with samples is for good: what is
    /// counted of a tenant must not come and go.
    has: BTreeMap<usize, bool>,
}

impl Activity {
    /// The time of each process since the last answer. Empty where the driver has no newer samples;
    /// `None` where it has none at all (MIG, some virtual GPUs).
    pub(super) fn since_last(
        &mut self,
        index: usize,
        device: &nvml_wrapper::Device<'_>,
    ) -> Option<Busy> {
        self.asked_at(index, Instant::now(), |after_us| {
            let samples = device.process_utilization_stats(after_us)?;
            Ok(possible(&samples))
        })
    }

    /// The same at this time, of a driver that is asked for the samples after one.
    fn asked_at(
        &mut self,
        index: usize,
        at: Instant,
        ask: impl FnOnce(u64) -> Result<Vec<Sampled>, NvmlError>,
    ) -> Option<Busy> {
        let known = self.asked.get(&index).copied();
        if known.is_some_and(|asked| at.duration_since(asked.at) < APART) {
            return self.has_any(index).then(Busy::default);
        }
        // The first question only finds out how far the driver's samples go.
        let first = Asked {
            at,
            told: at,
            newest_us: 0,
            since: at,
        };
        let asked = known.unwrap_or(first);
        let answer = ask(asked.after_us(at));
        match &answer {
            Ok(_) | Err(NvmlError::NotFound) => {
                self.has.insert(index, true);
            }
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => {
                self.has.entry(index).or_insert(false);
            }
            // Another time it may answer.
            Err(_) => {}
        }
        let tells = matches!(answer, Ok(_) | Err(NvmlError::NotFound));
        let samples = answer.unwrap_or_default();
        self.asked
            .insert(index, asked.answered(at, tells, &samples));
        self.has_any(index).then(|| match known {
            Some(asked) => Busy {
                span: if tells {
                    since(asked.told, at)
                } else {
                    Nanos::ZERO
                },
                ran: busy(asked.newest_us, &samples),
            },
            None => Busy::default(),
        })
    }

    fn has_any(&self, index: usize) -> bool {
        self.has.get(&index) != Some(&false)
    }
}

/// The time between two questions.
fn since(told: Instant, at: Instant) -> Nanos {
    let passed = at.duration_since(told).as_nanos();
    Nanos(u64::try_from(passed).unwrap_or(u64::MAX))
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
            percent: sample.sm_util,
        }
    }
}

/// Those that can be true: drivers are known to answer with rows of more than 100 %, of processes
/// that are not there.
fn possible(samples: &[ProcessUtilizationSample]) -> Vec<Sampled> {
    let all = samples.iter().map(Sampled::from);
    all.filter(|sample| sample.percent <= 100).collect()
}

/// The time of each pid. A sample stands for the time since the one before it of the same process.
fn busy(since_us: u64, samples: &[Sampled]) -> Vec<(u32, Nanos)> {
    let mut sorted: Vec<Sampled> = samples.to_vec();
    sorted.sort_by_key(|sample| (sample.pid, sample.end_us));
    let mut found: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for sample in sorted.iter().filter(|sample| sample.end_us > since_us) {
        let (before, sum) = found.entry(sample.pid).or_insert((since_us, 0));
        let took_us = (sample.end_us - *before).min(LONGEST_US);
        *sum += took_us * u64::from(sample.percent) * 10;
        *before = sample.end_us;
    }
    let sums = found.into_iter().map(|(pid, (_, sum))| (pid, Nanos(sum)));
    sums.filter(|(_, sum)| *sum > Nanos::ZERO).collect()
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
        let expected = [(7, Nanos::millis(350)), (8, Nanos::millis(50))];
        assert_eq!(busy(1_000_000, &samples), expected);
    }

    /// What the driver says of these processes, if it is possible: their kernels in percent.
    fn believed(percents: &[u32]) -> Vec<(u32, Nanos)> {
        let said = (1..)
            .zip(percents)
            .map(|(pid, percent)| ProcessUtilizationSample {
                pid,
                timestamp: 2_000_000,
                sm_util: *percent,
                mem_util: 0,
                enc_util: 0,
                dec_util: 0,
            });
        let said: Vec<_> = said.collect();
        busy(1_000_000, &possible(&said))
    }

    #[test]
    fn more_than_all_of_the_time_is_no_sample() {
        assert_eq!(believed(&[101, u32::MAX, 2_147_483_632]), []);
        assert_eq!(believed(&[101, 100]), [(2, Nanos::secs(1))]);
    }

    #[test]
    fn a_sample_after_a_pause_stands_for_a_second_at_most() {
        let samples = [sample(7, 60_000_000, 50)];
        assert_eq!(busy(1_000_000, &samples), [(7, Nanos::millis(500))]);
    }

    #[test]
    fn an_old_or_an_idle_sample_counts_nothing() {
        let samples = [sample(7, 1_000_000, 100), sample(8, 1_500_000, 0)];
        assert_eq!(busy(1_000_000, &samples), []);
    }

    /// What is counted, second by second, of a process that always computes, by a clock that is set
    /// back by so many seconds after the fifth. The driver keeps the samples of 20 s.
    fn counted(set_back: u64) -> Vec<u64> {
        let (mut activity, began) = (Activity::default(), Instant::now());
        let mut kept = Vec::new();
        let seconds = (0..60).map(|second| {
            let back = if second > 5 { set_back } else { 0 };
            kept.push(sample(7, (10_000 + second - back) * 1_000_000, 50));
            let at = began + Duration::from_secs(second);
            let last = kept.len().saturating_sub(20);
            let ask = |after_us| {
                let samples = kept[last..].iter().copied();
                Ok(samples.filter(|one| one.end_us > after_us).collect())
            };
            let found = activity.asked_at(0, at, ask).unwrap();
            found.ran.iter().map(|(_, took)| took.0 / 1_000_000).sum()
        });
        seconds.collect()
    }

    #[test]
    fn a_clock_that_goes_on_has_every_second_counted_once() {
        assert_eq!(counted(0)[1..], [500; 59]);
    }

    #[test]
    fn a_clock_that_was_set_back_has_seconds_counted_again_soon() {
        let counted = counted(3_600);
        assert_eq!((counted[5], counted[6]), (500, 0));
        // Those of before are first to leave the driver.
        assert_eq!(counted[40..], [500; 20]);
    }

    /// What the driver answers, second by second: whether each look has samples, if only none that
    /// are newer.
    fn tells(answers: Vec<Result<Vec<Sampled>, NvmlError>>) -> Vec<bool> {
        let (mut activity, began) = (Activity::default(), Instant::now());
        let all = (0_u64..).zip(answers).flat_map(|(second, answer)| {
            let at = began + Duration::from_secs(second);
            let asked = activity.asked_at(0, at, |_| answer);
            let soon = activity.asked_at(0, at, |_| panic!("it is asked again at once"));
            [asked, soon].map(|found| found.is_some())
        });
        all.collect()
    }

    #[test]
    fn a_driver_that_refuses_its_samples_has_none() {
        let lacking = || NvmlError::FailedToLoadSymbol("a version of the driver".to_owned());
        assert_eq!(tells(vec![Err(NvmlError::NotSupported)]), [false; 2]);
        let answers = vec![Err(lacking()), Err(NvmlError::Unknown)];
        assert_eq!(tells(answers), [false; 4]);
    }

    #[test]
    fn a_driver_that_has_answered_has_samples_whatever_comes_later() {
        for first in [Ok(vec![]), Err(NvmlError::NotFound)] {
            let later = [NvmlError::Unknown, NvmlError::NotSupported];
            let later = later.map(Err);
            let answers = std::iter::once(first).chain(later).collect();
            assert_eq!(tells(answers), [true; 6]);
        }
        // Until it has said so, an error is of the moment.
        let answers = vec![Err(NvmlError::Unknown), Ok(vec![])];
        assert_eq!(tells(answers), [true; 4]);
    }

    #[test]
    fn a_pause_of_a_process_costs_nothing_that_comes_after_it() {
        let (mut activity, began) = (Activity::default(), Instant::now());
        let mut ask = |second, samples: Vec<Sampled>| {
            let at = began + Duration::from_secs(second);
            activity.asked_at(0, at, |_| Ok(samples)).unwrap().ran
        };
        let old = sample(7, 1_000_000, 50);
        assert_eq!(ask(0, vec![old]), []);
        (1..60).for_each(|second| assert_eq!(ask(second, vec![]), []));
        let new = sample(7, 60_500_000, 50);
        assert_eq!(ask(60, vec![old, new]), [(7, Nanos::millis(500))]);
    }

    /// The time that each answer is of, where the questions come at these milliseconds.
    #[test]
    fn an_answer_is_of_the_time_since_the_answer_before() {
        let (mut activity, began) = (Activity::default(), Instant::now());
        let mut span = |at, answer| {
            let at = began + Duration::from_millis(at);
            activity.asked_at(0, at, |_| answer).unwrap().span
        };
        let none = || Err(NvmlError::NotFound);
        assert_eq!(span(0, none()), Nanos::ZERO, "it is the first");
        assert_eq!(span(1_000, none()), Nanos::secs(1), "nothing ran");
        assert_eq!(span(1_100, Ok(vec![])), Nanos::ZERO, "it was not asked");
        assert_eq!(span(2_000, Err(NvmlError::Unknown)), Nanos::ZERO);
        assert_eq!(span(3_000, Ok(vec![])), Nanos::secs(2));
    }
}
