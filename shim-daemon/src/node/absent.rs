//! Settings that the devices of this node do not go with: one file may be of many nodes, so they
//! are told and not refused.

use gpushare_core::DeviceId;
use gpushare_protocol::limits::Limits;
use gpushare_protocol::uuid::Uuid;

use super::Node;
use super::host_memory::machine_holds;
use super::specs::Whose;

/// Variables and their values.
type Variables = [(String, String)];

impl Node {
    /// Warns of settings that name no device of this node: defaults and maxima, also a rule's,
    /// which limit nothing, and the devices of a class, which no container can have. Warns also of
    /// limits of a class, and of defaults, by which nobody is admitted.
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
        limits.chain(classes).chain(self.impossible()).collect()
    }

    /// The classes whose limits no device of this node can give, and the defaults.
    fn impossible(&self) -> Vec<String> {
        let is_here = |name: &String| name == "all" || self.known_as(name).next().is_some();
        let classes = self.containers.classes.iter();
        // A device that is not here is told already.
        let classes = classes.filter(|class| class.devices.iter().all(is_here));
        let classes = classes.filter_map(|class| {
            let why = self.why_impossible(&class.environment, &class.devices)?;
            Some(format!(
                "[classes.{}]: no container can have it: {why}",
                class.name
            ))
        });
        let alone = self.why_impossible(&[], &["all".to_owned()]);
        let alone = alone.filter(|_| !self.defaults.is_empty());
        let alone =
            alone.map(|why| format!("[defaults]: a tenant that says nothing is refused: {why}"));
        alone.into_iter().chain(classes).collect()
    }

    /// Why there can be no tenant with these variables on these devices.
    fn why_impossible(&self, environment: &Variables, devices: &[String]) -> Option<String> {
        let device_ids = match self.devices_named(devices, &[]) {
            Ok(device_ids) => device_ids,
            Err(error) => return Some(error.message),
        };
        match self.parse(environment, &self.maxima) {
            Err(error) => Some(error.message),
            Ok(limits) => self.why_refused(&limits, devices, &device_ids),
        }
    }

    fn why_refused(
        &self,
        limits: &Limits,
        devices: &[String],
        device_ids: &[DeviceId],
    ) -> Option<String> {
        let limited = self.may_limit(devices, device_ids);
        let spec = self
            .are_seen(limits, &limited, |_| true)
            .and_then(|()| self.spec(limits, device_ids, &Whose::of(None, &[])));
        let spec = match spec.and_then(|spec| machine_holds(limits, &spec).map(|()| spec)) {
            Ok(spec) => spec,
            Err(error) => return Some(error.message),
        };
        let error = self.world.could_hold(&spec).err()?;
        Some(self.words_for(Some(limits), device_ids, &error))
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
                "[[containers.rules]]\nnamespace = \"{uuid}\"\n\
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
    fn a_class_that_no_container_can_have_is_told_and_others_are_not() {
        let class =
            |limits: &str| format!("[classes.one]\ndevices = [\"0\"]\nlimits = {{ {limits} }}\n");
        let under = "[maxima]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n";
        let default = "[defaults]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n";
        for (limits, node) in [
            ("GPUSHARE_MEM_LIMIT = \"50%\"", ""),
            ("GPUSHARE_MEM_LIMIT = \"100%\"", ""),
            ("GPUSHARE_MEM_LIMIT = \"50%\"", under),
            ("GPUSHARE_MEM_LIMIT_0 = \"1GiB\"", default),
            ("", default),
        ] {
            let told = warned(&format!("{node}{}", class(limits)));
            assert!(told.is_empty(), "{limits}: {told:?}");
        }
        for (limits, node, words) in [
            (
                "GPUSHARE_MEM_LIMIT = \"16GiB\"",
                "",
                "can guarantee at most",
            ),
            (
                "GPUSHARE_MEM_REQUEST = \"17GiB\"",
                "",
                "cannot be guaranteed",
            ),
            (
                "GPUSHARE_MEM_LIMIT_1 = \"1GiB\"",
                "",
                "GPUSHARE_MEM_LIMIT_1",
            ),
            ("GPUSHARE_MEM_LIMIT = \"60%\"", under, "at most 8GiB"),
            (
                "GPUSHARE_MEM_REQUEST = \"9GiB\"",
                default,
                "GPUSHARE_MEM_LIMIT=8GiB",
            ),
        ] {
            let told = warned(&format!("{node}{}", class(limits)));
            assert_eq!(told.len(), 1, "{limits}: {told:?}");
            let start = "[classes.one]: no container can have it: ";
            assert!(
                told[0].starts_with(start) && told[0].contains(words),
                "{told:?}"
            );
        }
    }

    #[test]
    fn defaults_that_no_tenant_can_have_are_told_and_others_are_not() {
        let defaults = |more: &str| format!("[swap]\nhost = \"1GiB\"\n[defaults]\n{more}\n");
        for fine in [
            "GPUSHARE_MEM_LIMIT = \"16GiB\"",
            "GPUSHARE_SM_LIMIT = \"50\"",
        ] {
            assert!(warned(&defaults(fine)).is_empty(), "{fine}");
        }
        let managed = "GPUSHARE_OVERSUBSCRIBE = \"uvm\"\nGPUSHARE_MEM_LIMIT = \"900TiB\"";
        let told = warned(&defaults(managed));
        assert_eq!(told.len(), 1, "{told:?}");
        let start = "[defaults]: a tenant that says nothing is refused: ";
        assert!(told[0].starts_with(start), "{told:?}");
        assert!(told[0].contains("the machine has "), "{told:?}");
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
