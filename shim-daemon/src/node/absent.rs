//! Settings for devices that this node does not have: one file may be of many nodes, so they are
//! told and not refused.

use gpushare_protocol::uuid::Uuid;

use super::Node;

impl Node {
    /// Warns of defaults and maxima that limit nothing, because they name no device of this node.
    pub fn warn_of_absent(&self) {
        let is_here = |uuid: Uuid| self.devices.iter().any(|device| device.uuid == uuid.0);
        for (table, set) in [("defaults", &self.defaults), ("maxima", &self.maxima)] {
            for name in absent(set, is_here) {
                tracing::warn!("[{table}]: this node has no such GPU, so {name} limits nothing");
            }
        }
    }
}

/// The variables that name a device by its UUID which is not here.
fn absent(set: &[(String, String)], is_here: impl Fn(Uuid) -> bool) -> Vec<&str> {
    let names = set.iter().map(|(name, _)| &**name);
    let is_absent = |name: &&str| {
        let device = ["_GPU_", "_MIG_"]
            .into_iter()
            .find_map(|kind| Uuid::parse(name.get(name.find(kind)? + 1..)?, '_'));
        device.is_some_and(|uuid| !is_here(uuid))
    };
    names.filter(is_absent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_for_a_gpu_of_another_node_is_told_and_others_are_not() {
        let here = "GPUSHARE_MEM_LIMIT_GPU_00000000_0000_0000_0000_000000000001";
        let other = "GPUSHARE_MEM_LIMIT_MIG_00000000_0000_0000_0000_000000000002";
        let names = [here, other, "GPUSHARE_MEM_LIMIT", "NVIDIA_GPU_MEMORY_LIMIT"];
        let set = names.map(|name| (name.to_owned(), "1GiB".to_owned()));
        assert_eq!(absent(&set, |uuid| uuid.0[15] == 1), [other]);
        assert!(absent(&set, |_| true).is_empty());
    }
}
