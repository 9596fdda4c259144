//! Amounts of one kind (memory, time): what each owner says in an environment, and a node's
//! defaults below it.

use super::error::LimitError;
use super::layer::{Entry, Layer, Selector, pick};
use super::setting::Whose;
use crate::size::Size;
use crate::uuid::Uuid;
use std::fmt;

/// Layers by owner, first wins.
#[derive(Clone, Debug)]
pub(super) struct Amounts<const OWNERS: usize> {
    own: [Layer; OWNERS],
    defaults: [Layer; OWNERS],
}

/// Limit and request of a device, as one owner says them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) device: Selector,
    pub(super) limit: Option<Size>,
    pub(super) request: Option<Size>,
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

    /// The layers of what the environment says.
    pub(super) fn own(&self) -> impl Iterator<Item = &Layer> {
        self.own.iter()
    }

    /// The layers of all owners, then all defaults.
    pub(super) fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.own.iter().chain(&self.defaults)
    }

    /// The layers of what the environment says that can apply to a device.
    pub(super) fn effective_own(&self) -> impl Iterator<Item = &Layer> {
        effective(&self.own)
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

    /// What the environment says in aliases, of each of these devices of which it says nothing in
    /// our own variables; once for all where that is the same.
    pub(super) fn said_by_aliases(&self, devices: &[[u8; 16]]) -> Vec<Said> {
        let Some((ours, aliases)) = self.own.split_first() else {
            return Vec::new();
        };
        let said = |(ordinal, uuid): (u32, &[u8; 16])| {
            let uuid = Uuid(*uuid);
            let own = [&ours.limit, &ours.request].map(|map| pick(map, ordinal, uuid));
            let (limit, request) = match own {
                [None, None] => block(aliases, ordinal, uuid),
                _ => (None, None),
            };
            Said {
                device: Selector::Uuid(uuid),
                limit: limit.map(|entry| entry.size),
                request: request.map(|entry| entry.size),
            }
        };
        let said: Vec<Said> = (0..).zip(devices).map(said).collect();
        let for_all = said.first().map(|first| Said {
            device: Selector::All,
            ..*first
        });
        let is_one = |other: &Said| {
            for_all.is_some_and(|all| (all.limit, all.request) == (other.limit, other.request))
        };
        match ours.is_empty() && said.iter().all(is_one) {
            true => for_all.into_iter().collect(),
            false => said,
        }
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
