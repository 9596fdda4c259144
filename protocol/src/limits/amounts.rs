//! Amounts of one kind (memory, time): what each owner says in an environment, and a node's
//! defaults below it.

use super::error::LimitError;
use super::layer::{Entry, Layer, pick};
use super::setting::Whose;
use crate::uuid::Uuid;
use std::fmt;

/// Layers by owner, first wins.
#[derive(Clone, Debug)]
pub(super) struct Amounts<const OWNERS: usize> {
    own: [Layer; OWNERS],
    defaults: [Layer; OWNERS],
}

impl<const OWNERS: usize> Default for Amounts<OWNERS> {
    fn default() -> Self {
        let none = || std::array::from_fn(|_| Layer::default());
        Self {
            own: none(),
            defaults: none(),
        }
    }
}

impl<const OWNERS: usize> Amounts<OWNERS> {
    /// The layer of an owner's values.
    pub(super) fn of(&mut self, whose: Whose, owner: usize) -> &mut Layer {
        match whose {
            Whose::Own => &mut self.own[owner],
            Whose::Default => &mut self.defaults[owner],
        }
    }

    /// The layers of all owners, then all defaults.
    pub(super) fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.own.iter().chain(&self.defaults)
    }

    pub(super) fn any(&self) -> bool {
        self.layers().any(|layer| !layer.is_empty())
    }

    /// Refuses a request above its owner's limit where that does not depend on a device.
    pub(super) fn check(&self) -> Result<(), LimitError> {
        self.layers().try_for_each(Layer::check)
    }

    /// Limit and request of one device; a default only for the one of the two that the environment
    /// leaves open.
    pub(super) fn on(&self, ordinal: u32, uuid: Uuid) -> (Option<Entry>, Option<Entry>) {
        let (limit, request) = block(&self.own, ordinal, uuid);
        let (usual_limit, usual_request) = block(&self.defaults, ordinal, uuid);
        (limit.or(usual_limit), request.or(usual_request))
    }

    /// Writes the layers that can apply, each after `kind`, and the defaults that can, marked where
    /// they stand below others. An empty layer is left out where no default could take its place.
    pub(super) fn write(
        &self,
        out: &mut fmt::Formatter<'_>,
        kind: &str,
        say: impl Fn(&Layer) -> bool,
    ) -> fmt::Result {
        let open = self.left_open();
        let alone = open.iter().all(Layer::is_empty);
        let mut below = "";
        for layer in effective(&self.own) {
            if say(layer) || !alone && !layer.is_empty() {
                write!(out, " {kind}{layer}")?;
                below = "default";
            }
        }
        effective(&open)
            .filter(|layer| say(layer))
            .try_for_each(|layer| write!(out, " {kind}{below}{layer}"))
    }

    /// The defaults without those that the environment overrides for every device.
    fn left_open(&self) -> [Layer; OWNERS] {
        let first = self.own.iter().find(|layer| !layer.is_empty());
        let mut open = self.defaults.clone();
        for layer in &mut open {
            if first.is_some_and(Layer::limits_all) {
                layer.limit.clear();
            }
            if first.is_some_and(Layer::requests_for_all) {
                layer.request.clear();
            }
        }
        open
    }
}

/// The values for a device of the first owner that has any.
fn block(layers: &[Layer], ordinal: u32, uuid: Uuid) -> (Option<Entry>, Option<Entry>) {
    let of = |layer: &Layer| {
        let limit = pick(&layer.limit, ordinal, uuid).cloned();
        let request = pick(&layer.request, ordinal, uuid).cloned();
        (limit.is_some() || request.is_some()).then_some((limit, request))
    };
    layers.iter().find_map(of).unwrap_or_default()
}

/// The layers that can apply: none below a layer that covers every device.
fn effective(layers: &[Layer]) -> impl Iterator<Item = &Layer> {
    let last = layers.iter().position(Layer::answers_for_all);
    layers
        .iter()
        .take(last.map_or(layers.len(), |last| last + 1))
}
