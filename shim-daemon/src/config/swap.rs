//! `[swap]`: host memory for tenants whose memory leaves the devices.

use gpushare_core::SwapPolicy;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{Amount, amount_or_nothing};

/// The section as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Section {
    /// The most host memory for tenants that are out, all devices together.
    #[serde(deserialize_with = "amount_or_nothing")]
    host: Option<Amount>,
    /// A folder for what the host has no room for.
    #[serde(rename = "folder")]
    _folder: Folder,
}

/// Where a full host would spill to. No build can do that yet.
#[derive(Debug, Default)]
struct Folder;

impl<'de> Deserialize<'de> for Folder {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        Err(D::Error::custom(format!(
            "{text:?} is refused: this release cannot spill memory to a folder yet; leave folder \
             out, and where the host budget is full the next resolver decides"
        )))
    }
}

impl Section {
    pub(super) fn apply(&self, policy: &mut SwapPolicy) {
        if let Some(Amount(host)) = self.host {
            policy.host = host;
        }
    }
}
