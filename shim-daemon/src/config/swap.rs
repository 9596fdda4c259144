//! `[swap]`: host memory for tenants whose memory leaves the devices.

use std::path::PathBuf;

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
    spill: Option<Folder>,
    /// The most of it there.
    spill_limit: Option<Amount>,
    /// Whether a tenant begins to return while its victims still leave.
    duplex: Option<bool>,
}

/// The path of a folder.
#[derive(Debug)]
struct Folder(PathBuf);

impl<'de> Deserialize<'de> for Folder {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        let path = PathBuf::from(&text);
        if !path.is_absolute() {
            return Err(D::Error::custom(format!(
                "{text:?} is refused; accepted: the absolute path of a folder, such as \
                 /var/lib/gpushare/spill"
            )));
        }
        Ok(Self(path))
    }
}

impl Section {
    /// Applies what is written to the brain's terms. Returns the folder for what the host has no
    /// room for.
    ///
    /// # Errors
    /// A sentence, if one of its values means nothing without another.
    pub(super) fn apply(&self, policy: &mut SwapPolicy) -> Result<Option<PathBuf>, String> {
        if let Some(Amount(host)) = self.host {
            policy.host = host;
        }
        policy.duplex = self.duplex.unwrap_or(policy.duplex);
        let folder = self.spill.as_ref().map(|Folder(path)| path.clone());
        let refused = |why: &str| Err(format!("[swap]: {why}"));
        match (&folder, &self.spill_limit) {
            (None, None) => Ok(None),
            (Some(_), None) => {
                refused("spill needs spill_limit, the most bytes in that folder, such as 256GiB")
            }
            (None, Some(_)) => refused("spill_limit needs spill, the folder"),
            (Some(_), Some(_)) if self.host.is_none() => {
                refused("spill needs host: memory passes the host on its way to the folder")
            }
            // Nothing swaps.
            (Some(_), Some(_)) if policy.host.is_zero() => Ok(None),
            (Some(_), Some(Amount(limit))) => {
                policy.spill = *limit;
                Ok(folder)
            }
        }
    }
}
