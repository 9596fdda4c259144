//! Reads maxima in the grammar of limits: a value that no tenant could set is no maximum either.

use super::compute;
use super::error::LimitError;
use super::maxima::{IDLE_END, Maxima, PRIORITY, RUN_LIMIT};
use super::model::{Limits, Owner};
use super::setting::Whose;
use super::table;
use std::ffi::OsString;

/// Variables that may have a maximum; the first four also with `_GPU_<UUID>` or `_MIG_<UUID>`.
const NAMES: [&str; 7] = [
    "GPUSHARE_MEM_LIMIT",
    "GPUSHARE_MEM_REQUEST",
    "GPUSHARE_SM_LIMIT",
    "GPUSHARE_SM_REQUEST",
    PRIORITY,
    IDLE_END,
    RUN_LIMIT,
];
const PER_DEVICE: usize = 4;
/// How the UUID begins in the name of a GPU's, or a MIG instance's, own maximum.
const OF_DEVICE: [&str; 2] = ["_GPU_", "_MIG_"];

const ACCEPTED: &str = "GPUSHARE_MEM_LIMIT, GPUSHARE_MEM_REQUEST, GPUSHARE_SM_LIMIT, GPUSHARE_SM_REQUEST (each also with _GPU_<UUID, its dashes as _> or _MIG_<UUID>), GPUSHARE_PRIORITY, GPUSHARE_IDLE_END, GPUSHARE_RUN_LIMIT";

impl Maxima {
    /// Reads variables and the most that each may be.
    ///
    /// # Errors
    /// A name that can have no maximum, or a value that a tenant could not have either, or that
    /// is none (`off`).
    pub fn read(pairs: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self, LimitError> {
        let pairs: Vec<_> = pairs.into_iter().collect();
        let mut maxima = Self::default();
        for (name, value) in &pairs {
            let shown = name.to_string_lossy();
            let text = value.to_string_lossy();
            let refuse = |problem, accepted| LimitError::new(&*shown, &*text, problem, accepted);
            let named = NAMES.iter().position(|known| {
                let rest = shown.strip_prefix(known);
                rest.is_some_and(|rest| {
                    rest.is_empty() || OF_DEVICE.iter().any(|kind| rest.starts_with(kind))
                })
            });
            let Some(row) = named.filter(|row| *row < PER_DEVICE || shown == NAMES[*row]) else {
                return Err(refuse("it cannot have a maximum", ACCEPTED));
            };
            if text == "off" && row >= PER_DEVICE {
                return Err(refuse("that is no maximum", "a span of time such as 8h"));
            }
            match NAMES[row] {
                PRIORITY => maxima.priority = Some(read(name, value)?.policy.priority),
                IDLE_END => maxima.idle_end = read(name, value)?.policy.idle_end,
                RUN_LIMIT => maxima.run_limit = read(name, value)?.policy.run_limit,
                _ => {}
            }
        }
        let mut all = limits(pairs)?;
        let ours = Whose::Own;
        maxima.memory = vec![std::mem::take(
            all.memory.of(ours, Owner::Gpushare as usize),
        )];
        maxima.time = vec![std::mem::take(all.time.of(ours, compute::OURS))];
        Ok(maxima)
    }
}

fn limits(pairs: Vec<(OsString, OsString)>) -> Result<Limits, LimitError> {
    table::read(pairs, [])?.checked()
}

fn read(name: &OsString, value: &OsString) -> Result<Limits, LimitError> {
    limits(vec![(name.clone(), value.clone())])
}
