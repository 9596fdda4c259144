//! Settings for devices that this node does not have: one file may be of many nodes, so they are
//! told and not refused.

use gpushare_protocol::uuid::Uuid;

use super::Node;

impl Node {
    /// Warns of settings that name no device of this node: defaults and maxima, also a rule's,
    /// which limit nothing, and the devices of a class, which no container can have.
    pub fn warn_of_absent(&self) {
        for text in self.absences() {
            tracing::warn!("{text}");
        }
    }

    /// What is to be warned of.
    fn absences(&self) -> Vec<String> {
        let is_here = |uuid: Uuid| self.devices.iter().any(|device| device.uuid == uuid.0);
        let tables = [("defaults", &self.defaults), ("maxima", &self.maxima)];
        let tables = tables.map(|(table, set)| (format!("[{table}]"), set));
        let rules = self.containers.rules.iter().zip(1..);
        let rules = rules.map(|(rule, number)| {
            let place = format!("[[containers.rules]] number {number}");
            (place, &rule.maxima)
        });
        let limits = tables.into_iter().chain(rules).flat_map(|(place, set)| {
            let names = absent(set, is_here).into_iter();
            names.map(move |name| {
                format!("{place}: this node has no such GPU, so {name} limits nothing")
            })
        });
        let classes = self.containers.classes.iter().flat_map(|class| {
            let names = class.devices.iter().filter(|name| *name != "all");
            let names = names.filter(|name| self.known_as(name).next().is_none());
            names.map(|name| {
                let class = &class.name;
                format!("[classes.{class}]: this node has no GPU {name:?}, so no container of the class can run")
            })
        });
        limits.chain(classes).collect()
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
    use crate::devices::{Capabilities, Device};
    use crate::node::Settings;
    use gpushare_core::Nanos;
    use gpushare_protocol::units::Bytes;

    /// What a node with one GPU warns of under these settings.
    fn warned(text: &str) -> Vec<String> {
        let settings = crate::config::read(text, Settings::default()).expect("they are accepted");
        let mut uuid = [0; 16];
        uuid[15] = 1;
        let device = Device {
            uuid,
            minor: Some(0),
            name: "GPU".to_owned(),
            capacity: Bytes::gib(16),
            capabilities: Capabilities::default(),
        };
        Node::new(&settings, vec![device], 1, Nanos::ZERO, false).absences()
    }

    const HERE: &str = "00000000-0000-0000-0000-000000000001";
    const OTHER: &str = "00000000-0000-0000-0000-000000000002";

    #[test]
    fn a_rules_maximum_for_a_gpu_of_another_node_is_told_with_its_place() {
        let rule = |uuid: &str| {
            let uuid = uuid.replace('-', "_");
            format!(
                "[[containers.rules]]\nnamespace = \"a\"\n\
                 maxima = {{ GPUSHARE_MEM_LIMIT_GPU_{uuid} = \"1GiB\" }}\n"
            )
        };
        assert!(warned(&rule(HERE)).is_empty());
        let told = warned(&format!("{}{}", rule(HERE), rule(OTHER)));
        assert_eq!(told.len(), 1, "{told:?}");
        for word in [
            "[[containers.rules]] number 2",
            "no such GPU",
            "_000000000002",
        ] {
            assert!(told[0].contains(word), "{word} in {told:?}");
        }
    }

    #[test]
    fn a_class_with_a_gpu_of_another_node_is_told_and_others_are_not() {
        let class = |device: &str| format!("[classes.half]\ndevices = [{device:?}]\n");
        let (here, other) = (format!("GPU-{HERE}"), format!("GPU-{OTHER}"));
        for known in ["0", "all", "/dev/nvidia0", &here] {
            assert!(warned(&class(known)).is_empty(), "{known}");
        }
        for absent in ["7", "/dev/nvidia1", &other] {
            let told = warned(&class(absent));
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].starts_with("[classes.half]: ") && told[0].contains(absent));
        }
    }

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
