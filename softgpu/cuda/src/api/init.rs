//! Start and version.

use crate::abi::out;

driver! {
    /// Says the version of the simulated driver, initialised or not.
    early fn cuDriverGetVersion(version: *mut i32) {
        out(version, 12080)
    }
}
