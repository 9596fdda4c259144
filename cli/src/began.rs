//! When a process began.

use crate::when;
use std::fs;

/// The kernel shows the times of processes in hundredths of a second.
const TICK_MS: u64 = 10;

/// When a process began, in milliseconds since 1970. `None` if this pid namespace does not show it.
pub(crate) fn began_ms(pid: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let age = age_ms(&String::from_utf8_lossy(&stat), &uptime)?;
    Some(when::now_ms().saturating_sub(age))
}

/// The age of a process by its `stat` and the machine's `uptime`, which count from the same moment.
fn age_ms(stat: &str, uptime: &str) -> Option<u64> {
    // The name may contain anything, also parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let start: u64 = fields.nth(19)?.parse().ok()?;
    let (whole, hundredths) = uptime.split_whitespace().next()?.split_once('.')?;
    let now = whole.parse::<u64>().ok()? * 100 + hundredths.parse::<u64>().ok()?;
    Some(now.saturating_sub(start) * TICK_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_a_process_is_counted_from_its_start() {
        let stat = format!("7 (a) b) S{} 250 9 9", " 0".repeat(18));
        assert_eq!(age_ms(&stat, "4.75 9.99\n"), Some(2_250));
        assert_eq!(age_ms(&stat, "1.00 9.99\n"), Some(0));
        assert_eq!(age_ms("7 (a) S 0", "4.75 9.99\n"), None);
        assert_eq!(age_ms(&stat, ""), None);
    }

    #[test]
    fn a_process_that_is_there_has_begun_and_one_that_is_not_has_not() {
        let began = began_ms(std::process::id()).unwrap();
        assert!(began > 0 && began <= when::now_ms());
        assert_eq!(began_ms(0), None);
    }
}
