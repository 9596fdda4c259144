//! A driver that is newer than the library: its new functions are not hooked, so nothing holds them
//! while memory is away.

use gpushare_cuda_abi::symbols::NEWEST_VERSION;

use crate::driver::calls;
use crate::driver::captures::unnoticed;

/// Says so in the log, where it is.
pub(super) fn look() {
    let Ok(driver) = unnoticed(calls::driver_version) else {
        return;
    };
    if u32::try_from(driver).is_ok_and(is_newer) {
        tracing::warn!(
            driver,
            known = NEWEST_VERSION,
            "the driver is newer than gpushare: functions that are new in it are not held while \
             memory moves"
        );
    }
}

/// Whether a driver of this version may have functions that the table lacks.
const fn is_newer(driver: u32) -> bool {
    driver > NEWEST_VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_newer_from_the_version_behind_the_tables_on() {
        assert!(!is_newer(NEWEST_VERSION));
        assert!(is_newer(NEWEST_VERSION + 10));
        assert!(!is_newer(0));
    }
}
