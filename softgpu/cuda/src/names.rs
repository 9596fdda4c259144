//! The output of the build script: the implemented functions, and bodies for all others.
//!
//! # Safety
//! The declarations only serve to take addresses; nothing here calls them.
#![allow(
    unsafe_code,
    reason = "declares the exported functions to take their addresses"
)]

include!(concat!(env!("OUT_DIR"), "/names.rs"));

/// The address of an implemented function by its exported name.
pub(crate) fn implemented(symbol: &str) -> Option<unsafe extern "C" fn()> {
    let index = IMPLEMENTED
        .binary_search_by(|(name, _)| (*name).cmp(symbol))
        .ok()?;
    Some(IMPLEMENTED[index].1)
}
