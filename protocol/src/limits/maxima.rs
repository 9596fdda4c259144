//! The maxima of a node, which bound every tenant's limits.
//!
//! A value above the maximum is refused, with the variable, its value and the maximum. Unset limits
//! default to the maximum where unset would mean "no limit"; a node's default above the maximum is
//! the maximum. Maxima are written in our own variables, for all devices or by UUID, because
//! ordinals are relative to a tenant.

use super::compute;
use super::error::LimitError;
use super::layer::{Entry, Layer, PerDevice, Selector, pick, surely_above};
use super::policy::Policy;
use crate::size::Size;
use crate::uuid::Uuid;
use std::time::Duration;

pub(super) const PRIORITY: &str = "GPUSHARE_PRIORITY";
pub(super) const IDLE_END: &str = "GPUSHARE_IDLE_END";
pub(super) const RUN_LIMIT: &str = "GPUSHARE_RUN_LIMIT";

/// The most a node allows.
#[derive(Clone, Debug, Default)]
pub struct Maxima {
    /// All of these hold, each where it has a maximum for a device.
    pub(super) memory: Vec<Layer>,
    pub(super) time: Vec<Layer>,
    pub(super) priority: Option<u16>,
    pub(super) idle_end: Option<Duration>,
    pub(super) run_limit: Option<Duration>,
}

impl Maxima {
    /// These, and no more than `others` allow.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        fn lower<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            one.into_iter().chain(other).min()
        }
        self.memory.extend(others.memory);
        self.time.extend(others.time);
        Self {
            priority: lower(self.priority, others.priority),
            idle_end: lower(self.idle_end, others.idle_end),
            run_limit: lower(self.run_limit, others.run_limit),
            ..self
        }
    }

    /// Bounds the values that do not depend on a device. `said` are the values that the
    /// environment sets under a name.
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
    pub(super) fn check<'a>(
        &'a self,
        memory: impl Iterator<Item = &'a Layer>,
        time: impl Iterator<Item = &'a Layer>,
    ) -> Result<(), LimitError> {
        let of = |layer: &'a Layer, all: &'a [Layer]| all.iter().map(move |most| (layer, most));
        let pairs = memory.flat_map(|layer| of(layer, &self.memory));
        let pairs = pairs.chain(time.flat_map(|layer| of(layer, &self.time)));
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

    /// The maxima of one device's memory limit and request, the lowest where it has `capacity`.
    pub(super) fn memory_on(
        &self,
        ordinal: u32,
        uuid: Uuid,
        capacity: u64,
    ) -> (Option<&Entry>, Option<&Entry>) {
        on(&self.memory, ordinal, uuid, capacity)
    }

    /// All maxima of its request of memory, of which the lowest holds.
    pub(super) fn requests_on(&self, ordinal: u32, uuid: Uuid) -> impl Iterator<Item = Size> {
        let layers = self.memory.iter();
        layers.filter_map(move |layer| Some(pick(&layer.request, ordinal, uuid)?.size))
    }

    /// The maxima of one device's time.
    pub(super) fn time_on(&self, ordinal: u32, uuid: Uuid) -> (Option<&Entry>, Option<&Entry>) {
        on(&self.time, ordinal, uuid, compute::THOUSANDTHS)
    }
}

fn on(
    layers: &[Layer],
    ordinal: u32,
    uuid: Uuid,
    capacity: u64,
) -> (Option<&Entry>, Option<&Entry>) {
    let lowest = |of: fn(&Layer) -> &PerDevice| {
        let all = layers.iter();
        let all = all.filter_map(|layer| pick(of(layer), ordinal, uuid));
        all.min_by_key(|most| most.size.on(capacity))
    };
    (lowest(|layer| &layer.limit), lowest(|layer| &layer.request))
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
