//! What a node allows at most, however a container's environment asks.
//!
//! Who asks for more is refused, with the variable, its value and the maximum. Who says nothing of it gets the maximum where
//! nothing would mean "no limit", and no more than it where something smaller is usual. Maxima are written in our own variables,
//! for all devices or by UUID: an ordinal is the container's own way to count.

use super::layer::{Entry, Layer, Selector, pick, surely_above};
use super::{LimitError, Limits, Owner, Policy, compute};
use crate::uuid::Uuid;
use std::ffi::OsString;
use std::time::Duration;

/// Variables that may have a maximum; the first four also with `_<UUID>`.
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
const PRIORITY: &str = "GPUSHARE_PRIORITY";
const IDLE_END: &str = "GPUSHARE_IDLE_END";
const RUN_LIMIT: &str = "GPUSHARE_RUN_LIMIT";

const ACCEPTED: &str = "GPUSHARE_MEM_LIMIT, GPUSHARE_MEM_REQUEST, GPUSHARE_SM_LIMIT, GPUSHARE_SM_REQUEST (each also with _GPU_<UUID, its dashes as _>), GPUSHARE_PRIORITY, GPUSHARE_IDLE_END, GPUSHARE_RUN_LIMIT";

/// The most a node allows.
#[derive(Clone, Debug, Default)]
pub struct Maxima {
    pub(super) memory: Layer,
    pub(super) time: Layer,
    priority: Option<u16>,
    idle_end: Option<Duration>,
    run_limit: Option<Duration>,
}

impl Maxima {
    /// Reads variables and the most that each may be.
    ///
    /// # Errors
    /// A name that can have no maximum, or a value that a container could not have either, or that is none (`off`).
    pub fn read(pairs: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self, LimitError> {
        let pairs: Vec<_> = pairs.into_iter().collect();
        let mut maxima = Self::default();
        for (name, value) in &pairs {
            let shown = name.to_string_lossy();
            let text = value.to_string_lossy();
            let refuse = |problem, accepted| LimitError::new(&*shown, &*text, problem, accepted);
            let named = NAMES.iter().position(|known| {
                let rest = shown.strip_prefix(known);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("_GPU_"))
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
        let mut all = Limits::from_env(pairs)?;
        let ours = super::table::Whose::Own;
        maxima.memory = std::mem::take(all.memory.of(ours, Owner::Gpushare as usize));
        maxima.time = std::mem::take(all.time.of(ours, compute::OURS));
        Ok(maxima)
    }

    /// Holds what does not depend on a device. `said` is what was set under a name, the environment's before the defaults'.
    pub(super) fn hold(
        &self,
        policy: &mut Policy,
        said: impl Fn(&str) -> Option<String>,
    ) -> Result<(), LimitError> {
        if let Some(most) = self.priority.filter(|most| policy.priority > *most) {
            match said(PRIORITY) {
                Some(value) => return Err(too_much(PRIORITY, &value, &most.to_string())),
                None => policy.priority = most,
            }
        }
        for (name, most, asked) in [
            (IDLE_END, self.idle_end, &mut policy.idle_end),
            (RUN_LIMIT, self.run_limit, &mut policy.run_limit),
        ] {
            let Some(most) = most else { continue };
            match (said(name), *asked) {
                (_, Some(asked)) if asked <= most => {}
                (None, _) => *asked = Some(most),
                (Some(value), _) => return Err(too_much(name, &value, &span(most))),
            }
        }
        Ok(())
    }

    /// Refuses amounts of the same kind that are above the maximum on whatever device.
    pub(super) fn check(&self, limits: &Limits) -> Result<(), LimitError> {
        let pairs = limits.memory.layers().map(|layer| (layer, &self.memory));
        let pairs = pairs.chain(limits.time.layers().map(|layer| (layer, &self.time)));
        for (layer, most) in pairs {
            let kinds = [(&layer.limit, &most.limit), (&layer.request, &most.request)];
            for (asked, most) in kinds {
                let Some(all) = most.get(&Selector::All).filter(|_| most.len() == 1) else {
                    continue;
                };
                if let Some(entry) = asked.values().find(|it| surely_above(it.size, all.size)) {
                    return Err(above_maximum(entry, all));
                }
            }
        }
        Ok(())
    }

    /// The most of one device's memory, and of what is guaranteed of it.
    pub(super) fn memory_on(&self, ordinal: u32, uuid: Uuid) -> (Option<&Entry>, Option<&Entry>) {
        on(&self.memory, ordinal, uuid)
    }

    /// The same of its time.
    pub(super) fn time_on(&self, ordinal: u32, uuid: Uuid) -> (Option<&Entry>, Option<&Entry>) {
        on(&self.time, ordinal, uuid)
    }
}

fn on(layer: &Layer, ordinal: u32, uuid: Uuid) -> (Option<&Entry>, Option<&Entry>) {
    let of = |map| pick(map, ordinal, uuid);
    (of(&layer.limit), of(&layer.request))
}

fn read(name: &OsString, value: &OsString) -> Result<Limits, LimitError> {
    Limits::from_env([(name.clone(), value.clone())])
}

/// The refusal of an amount that is above the node's maximum for it.
pub(super) fn above_maximum(asked: &Entry, most: &Entry) -> LimitError {
    too_much(&asked.variable, &asked.value, &most.value)
}

fn too_much(variable: &str, value: &str, most: &str) -> LimitError {
    LimitError::new(
        variable,
        value,
        format!("this node allows at most {most}"),
        format!("at most {most}"),
    )
}

/// A span as people write it.
fn span(span: Duration) -> String {
    let millis = span.as_millis();
    let units = [(3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let unit = units.iter().find(|(unit, _)| millis.is_multiple_of(*unit));
    unit.map_or_else(
        || format!("{millis}ms"),
        |(unit, name)| format!("{}{name}", millis / unit),
    )
}
