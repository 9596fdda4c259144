//! One owner's variables of one kind (memory, time): a limit and a request, each for all devices,
//! by ordinal and by UUID.

use super::error::LimitError;
use super::setting::Whose;
use crate::size::Size;
use crate::units::MAX_DEVICES;
use crate::uuid::Uuid;
use std::collections::BTreeMap;
use std::fmt;

/// Which device a value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Selector {
    /// Every device without a value of its own.
    All,
    /// The device with this ordinal, as the program sees it, below [`MAX_DEVICES`].
    Ordinal(u32),
    /// The device with this UUID.
    Uuid(Uuid),
}

impl Selector {
    /// Parses a device's name in a flag, an MPS list (`-` as separator) or a variable's suffix
    /// (`_`). `0` but not `00`.
    pub fn parse(text: &str, separator: char) -> Option<Self> {
        if let Some(uuid) = Uuid::parse(text, separator) {
            return Some(Self::Uuid(uuid));
        }
        let ordinal: u32 = text.parse().ok().filter(|ordinal| *ordinal < MAX_DEVICES)?;
        (ordinal.to_string() == text).then_some(Self::Ordinal(ordinal))
    }

    /// The variable that says for this device what `base` says for all.
    pub fn variable(self, base: &str) -> String {
        match self {
            Self::All => base.to_owned(),
            device => format!("{base}_{}", device.to_string().replace('-', "_")),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => out.write_str("all"),
            Self::Ordinal(ordinal) => ordinal.fmt(out),
            Self::Uuid(uuid) => uuid.fmt(out),
        }
    }
}

/// A size and where it was read.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) size: Size,
    pub(super) variable: String,
    pub(super) value: String,
    pub(super) whose: Whose,
}

impl Entry {
    /// A node's default gives way where it is above any of these `bounds` on a device of
    /// `capacity`: the tenant has not asked for it. An environment's own amount stays.
    pub(super) fn under<'a>(
        mut self,
        bounds: impl IntoIterator<Item = &'a Self>,
        capacity: u64,
    ) -> Self {
        let lowest = bounds.into_iter().map(|bound| bound.size);
        let lowest = lowest.min_by_key(|size| size.on(capacity));
        if let Some(lowest) = lowest.filter(|_| self.whose == Whose::Default)
            && self.size.on(capacity) > lowest.on(capacity)
        {
            self.size = lowest;
        }
        self
    }

    /// Whether the environment itself says it.
    pub(super) fn is_own(&self) -> bool {
        self.whose == Whose::Own
    }
}

pub(super) type PerDevice = BTreeMap<Selector, Entry>;

/// One owner's limits and requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    pub(super) limit: PerDevice,
    pub(super) request: PerDevice,
}

/// The device's UUID wins over its ordinal, and that over the plain value.
pub(super) fn pick(map: &PerDevice, ordinal: u32, uuid: Uuid) -> Option<&Entry> {
    [
        Selector::Uuid(uuid),
        Selector::Ordinal(ordinal),
        Selector::All,
    ]
    .iter()
    .find_map(|selector| map.get(selector))
}

impl Layer {
    pub(super) fn is_empty(&self) -> bool {
        self.limit.is_empty() && self.request.is_empty()
    }

    /// Limits, then requests, each with the device that it is for.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Selector, &Entry)> {
        self.limit.iter().chain(&self.request)
    }

    pub(super) fn answers_for_all(&self) -> bool {
        self.limits_all() || self.requests_for_all()
    }

    pub(super) fn limits_all(&self) -> bool {
        self.limit.contains_key(&Selector::All)
    }

    pub(super) fn requests_for_all(&self) -> bool {
        self.request.contains_key(&Selector::All)
    }

    /// Refuses a request above the limit wherever that does not depend on a device: for all, and
    /// for each named device as long as no other name could mean the same one.
    pub(super) fn check(&self) -> Result<(), LimitError> {
        let names = || self.limit.keys().chain(self.request.keys());
        let ordinals = names().any(|name| matches!(name, Selector::Ordinal(_)));
        let uuids = names().any(|name| matches!(name, Selector::Uuid(_)));
        let sure = |name: &&Selector| match name {
            Selector::All => true,
            Selector::Ordinal(_) => !uuids,
            Selector::Uuid(_) => !ordinals,
        };
        names().filter(sure).try_for_each(|name| {
            let of =
                |map: &'_ PerDevice| map.get(name).or_else(|| map.get(&Selector::All)).cloned();
            match (of(&self.limit), of(&self.request)) {
                (Some(limit), Some(request)) if surely_above(request.size, limit.size) => {
                    Err(above(&request, &limit))
                }
                _ => Ok(()),
            }
        })
    }
}

/// Bytes and parts compare with their like; across the two only the device can tell.
pub(super) fn surely_above(request: Size, limit: Size) -> bool {
    match (request, limit) {
        (Size::Bytes(request), Size::Bytes(limit))
        | (Size::Percent(request), Size::Percent(limit)) => request > limit,
        _ => false,
    }
}

/// The refusal of a request above its limit.
pub(super) fn above(request: &Entry, limit: &Entry) -> LimitError {
    LimitError::new(
        &request.variable,
        &request.value,
        format!(
            "the request is above the limit, {}={}",
            limit.variable, limit.value
        ),
        "a request of at most the limit, or a higher limit",
    )
}

impl fmt::Display for Layer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        out.write_str("[")?;
        for (what, map) in [("limit", &self.limit), ("request", &self.request)] {
            for (device, entry) in map {
                write!(out, "{separator}{what}.{device}={}", entry.size)?;
                separator = " ";
            }
        }
        out.write_str("]")
    }
}
