//! The clocks of time namespaces (Linux 5.6), against the machine's own.
//!
//! In such a namespace `CLOCK_MONOTONIC` and the start times in `/proc` differ from those outside
//! by offsets of the namespace: `linux.timeOffsets` of a container, or a process that was restored
//! from a checkpoint. What processes share (heartbeats, deadlines, start times) is in the machine's
//! clocks.

use std::fs;

/// Nanoseconds of a clock tick in `/proc`: `USER_HZ` is 100 on the supported machines.
const TICK: i64 = 10_000_000;

/// How far the clocks of a time namespace are ahead of the machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// Of `CLOCK_MONOTONIC`, in nanoseconds; negative if it is behind.
    pub monotonic: i64,
    /// Of `CLOCK_BOOTTIME`, which start times are on.
    pub boottime: i64,
}

impl Offsets {
    /// Those of this process. Zero where the kernel has no time namespaces, and where they cannot
    /// be known.
    #[must_use]
    pub fn here() -> Self {
        Self::known().unwrap_or_default()
    }

    /// The same; `None` where they cannot be known now: `/proc` cannot be read, or the process has
    /// made a namespace for its children and stays outside itself.
    #[must_use]
    pub fn known() -> Option<Self> {
        let link = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).ok();
        // The file shows the namespace of the children to come.
        if link("time")? != link("time_for_children")? {
            return None;
        }
        fs::read_to_string("/proc/self/timens_offsets")
            .ok()
            .map(|text| of(&text))
    }

    /// A reading of this process's `CLOCK_MONOTONIC` as the machine's own.
    #[must_use]
    pub const fn machines(self, monotonic: u64) -> u64 {
        monotonic.saturating_add_signed(self.monotonic.saturating_neg())
    }

    /// A start time of `/proc/PID/stat`, in clock ticks since boot, as the machine's own. One more
    /// than that where the offset is no whole number of ticks and the sum was rounded up.
    #[must_use]
    pub const fn machines_start(self, ticks: u64) -> u64 {
        ticks.saturating_add_signed(self.boottime.div_euclid(TICK).saturating_neg())
    }
}

/// Lines of a clock's name or number, seconds, and nanoseconds.
fn of(text: &str) -> Offsets {
    let of = |names: [&str; 2]| {
        let mut lines = text.lines().map(str::split_ascii_whitespace);
        let mut line =
            lines.find_map(|mut words| names.contains(&words.next()?).then_some(words))?;
        let [seconds, nanos] = [line.next()?, line.next()?].map(str::parse::<i64>);
        seconds
            .ok()?
            .checked_mul(1_000_000_000)?
            .checked_add(nanos.ok()?)
    };
    Offsets {
        monotonic: of(["monotonic", "1"]).unwrap_or(0),
        boottime: of(["boottime", "7"]).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespaces_clocks_are_read_as_the_machines() {
        let ahead = of("monotonic       86400         5\nboottime       86400         0\n");
        assert_eq!(ahead.monotonic, 86_400_000_000_005);
        assert_eq!(ahead.machines(86_400_000_000_105), 100);
        assert_eq!(ahead.machines_start(8_640_123), 123);
        let behind = of("monotonic          -2 500000000\nboottime          -2 500000000\n");
        assert_eq!(behind.monotonic, -1_500_000_000);
        assert_eq!(behind.machines(500_000_000), 2_000_000_000);
        assert_eq!(behind.machines_start(50), 200);
        // Of its first kernels, by number; without either; and times before boot.
        assert_eq!(of("1 3 0\n7 4 0\n"), of("monotonic 3 0\nboottime 4 0"));
        assert_eq!(of(""), Offsets::default());
        assert_eq!(ahead.machines(7), 0);
    }

    #[test]
    fn an_offset_within_a_tick_shifts_a_start_by_one_at_most() {
        for offset in [1, 9_999_999, 10_000_001, -1, -9_999_999] {
            let here = Offsets {
                monotonic: 0,
                boottime: offset,
            };
            for started in [2_000_000_000_i64, 2_000_000_001, 2_009_999_999] {
                let shown = (started + offset).div_euclid(TICK).unsigned_abs();
                let own = started.div_euclid(TICK).unsigned_abs();
                let found = here.machines_start(shown);
                assert!(found == own || found == own + 1, "{offset}: {found}");
            }
        }
    }
}
