//! The host memory that a container's cgroup allows.

use std::fs;
use std::path::Path;

use super::{Groups, KnownMounts, Mounts};

impl Mounts {
    /// The least limit of these memory cgroups and of those above them, in bytes. `None`: there is
    /// no limit, or none can be read here.
    #[must_use]
    pub fn memory(&self, groups: &Groups) -> Option<u64> {
        let limits = groups.paths().filter_map(|(hierarchy, group)| {
            let file = match hierarchy {
                "" => "memory.max",
                _ if hierarchy.split(',').any(|name| name == "memory") => "memory.limit_in_bytes",
                _ => return None,
            };
            let up = Path::new(group).ancestors();
            let limits = up.filter_map(|group| {
                let folder = self.folder(hierarchy, group.to_str()?)?;
                let text = fs::read_to_string(folder.join(file)).ok()?;
                // `max`: no limit.
                text.trim().parse::<u64>().ok()
            });
            limits.min()
        });
        limits.min()
    }
}

impl KnownMounts {
    /// As [`Mounts::memory`].
    pub fn memory(&mut self, groups: &Groups) -> Option<u64> {
        self.0.get_or_insert_with(Mounts::here).memory(groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_memory_limit_of_a_container_and_above_it_counts() {
        let mounted = tempfile::tempdir().expect("a folder");
        let root = mounted.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("it is ours");
            fs::write(path, text).expect("it is ours");
        };
        write("pod/memory.max", "4096\n");
        write("pod/one/memory.max", "8192\n");
        write("pod/two/memory.max", "max\n");
        write("free/memory.max", "max\n");
        let table = format!("30 20 0:1 / {} rw - cgroup2 cgroup2 rw\n", root.display());
        let mounts = Mounts::parse(&table);
        let of = |table: &str| mounts.memory(&Groups::parse(table));
        assert_eq!(of("0::/pod/one\n"), Some(4096), "the pod's is less");
        assert_eq!(of("0::/pod/two\n"), Some(4096));
        assert_eq!(of("0::/free\n"), None);
        assert_eq!(of("0::/../pod\n"), None, "it leads out");
    }
}
