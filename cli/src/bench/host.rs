//! Conditions of the host on which figures of real time depend.

use std::fs;

/// The number of cores and the load average of the last minute, as text.
pub(crate) fn text() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "{cores} cores, load average {}",
        load.split(' ').next().unwrap_or("unknown")
    )
}

/// Processor time of all cores since the start of the machine, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    /// Now; `None` where the kernel does not say it.
    pub(crate) fn now() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line of `/proc/stat` (proc(5)): `cpu`, then user, nice, system, idle, iowait, irq,
    /// softirq, steal, and the time of guests, which the first two contain.
    fn read(stat: &str) -> Option<Self> {
        let mut words = stat.lines().next()?.split_ascii_whitespace();
        if words.next() != Some("cpu") {
            return None;
        }
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        Some(Self {
            all: ticks.iter().sum(),
            stolen: *ticks.get(7)?,
        })
    }

    /// The fraction of the processor time since `before` in which a virtual machine's core had
    /// work, and its host ran other work.
    pub(crate) fn stolen_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_part_of_all_time_of_all_cores() {
        let before = Ticks::read("cpu  100 1 50 800 5 0 4 40 30 0\ncpu0 1 2 3\n").unwrap();
        let after = Ticks::read("cpu  150 1 70 870 5 0 4 100 60 0\n").unwrap();
        assert_eq!(before.all, 1_000, "a guest's time counts once");
        assert!((after.stolen_since(before) - 0.3).abs() < 1e-9);
        assert!(after.stolen_since(after).abs() < 1e-9);
    }

    #[test]
    fn a_kernel_that_does_not_say_it_steals_nothing_known() {
        assert_eq!(Ticks::read("cpu  100 1 50 800 5 0 4\n"), None);
        assert_eq!(Ticks::read("intr 100 1 50 800 5 0 4 40\n"), None);
        assert_eq!(Ticks::read(""), None);
    }
}
