//! The processor time that a worker's process uses between two moments.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::fs;

/// Processor time between two moments, to the precision of the worker's checks of the clock.
#[derive(Debug, Default)]
pub(super) struct Meter {
    pub(super) from: u64,
    pub(super) to: u64,
    begin: Option<(u64, u64)>,
    end: Option<(u64, u64)>,
}

impl Meter {
    pub(super) fn span(&mut self, from: u64, to: u64) {
        (self.from, self.to) = (from, to);
    }

    pub(super) fn tick(&mut self, now: u64) {
        if self.begin.is_none() && now >= self.from {
            self.begin = Some((processor_time(), own_threads()));
        }
        if self.end.is_none() && now >= self.to {
            self.end = Some((processor_time(), own_threads()));
        }
    }

    /// Nothing where no check fell between the two moments: all that was used came before.
    pub(super) fn used(&self) -> (u64, u64) {
        let Some(begin) = self.begin else {
            return (0, 0);
        };
        let end = self
            .end
            .unwrap_or_else(|| (processor_time(), own_threads()));
        (end.0.saturating_sub(begin.0), end.1.saturating_sub(begin.1))
    }
}

fn processor_time() -> u64 {
    let used =
        getrusage(UsageWho::RUSAGE_SELF).map(|usage| usage.user_time() + usage.system_time());
    used.map_or(0, |time| {
        u64::try_from(time.num_microseconds() * 1000).unwrap_or(0)
    })
}

/// Processor time of the threads that gpushare's library runs in this process, by their names (ns).
fn own_threads() -> u64 {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    // This program's first thread has that name too.
    let first = std::process::id().to_string();
    tasks
        .filter(|task| *task.file_name() != *first)
        .filter(|task| {
            fs::read_to_string(task.path().join("comm"))
                .is_ok_and(|name| name.starts_with("gpushare"))
        })
        .filter_map(|task| {
            let spent = fs::read_to_string(task.path().join("schedstat")).ok()?;
            spent.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burn() {
        let begin = processor_time();
        while processor_time() < begin + 2_000_000 {}
    }

    #[test]
    fn processor_time_before_the_first_moment_is_not_counted() {
        let mut meter = Meter::default();
        meter.span(10, 20);
        burn();
        // A process whose requests are so far apart that it checks the clock in none of the time.
        assert_eq!(meter.used(), (0, 0));
        meter.tick(9);
        assert_eq!(meter.used(), (0, 0));
        meter.tick(10);
        burn();
        assert!(meter.used().0 >= 2_000_000);
        meter.tick(20);
        let used = meter.used();
        burn();
        assert_eq!(meter.used(), used);
    }
}
