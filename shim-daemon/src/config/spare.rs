//! `unmanaged_spare`: the cgroups of which no process is ended.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// A cgroup as it is written.
#[derive(Debug)]
pub(super) struct Group(String);

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        let names = text.strip_prefix('/').map(|names| names.split('/'));
        let is_name = |name: &str| !matches!(name, "" | "." | "..");
        if names.is_some_and(|mut names| names.all(is_name)) {
            return Ok(Self(text));
        }
        Err(D::Error::custom(format!(
            "{text:?} is refused; accepted: a cgroup as /proc/PID/cgroup has it, such as \
             /system.slice/nvidia-mps.service"
        )))
    }
}

pub(super) fn names(groups: Vec<Group>) -> Vec<String> {
    groups.into_iter().map(|Group(name)| name).collect()
}
