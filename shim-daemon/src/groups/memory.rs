//! The host memory that memory cgroups allow, and what of it is left.

use std::path::Path;

use super::{Groups, KnownMounts, Mounts};
use crate::small_file;

/// A memory cgroup with a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limited {
    /// Its path.
    pub group: String,
    /// The limit, in bytes.
    pub limit: u64,
    /// The part of the limit that is not used, or is used by what the kernel takes back before it
    /// ends a process: copies of files.
    pub left: u64,
}

/// The names of a hierarchy's files.
struct Names {
    /// `high` slows a process down where `max` ends it: as much as is above both is of no use.
    limits: &'static [&'static str],
    usage: &'static str,
    /// The rows of `memory.stat` about what is taken back.
    taken_back: &'static [&'static str],
}

const UNIFIED: Names = Names {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    taken_back: &["active_file", "inactive_file", "slab_reclaimable"],
};
const FIRST: Names = Names {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    taken_back: &["total_active_file", "total_inactive_file"],
};

impl Names {
    fn of(hierarchy: &str) -> Option<&'static Self> {
        match hierarchy {
            "" => Some(&UNIFIED),
            _ if hierarchy.split(',').any(|name| name == "memory") => Some(&FIRST),
            _ => None,
        }
    }
}

/// A number that is the whole text of a file. `max` is none.
fn number(path: &Path) -> Option<u64> {
    small_file::text(path).ok()?.trim().parse().ok()
}

impl Mounts {
    /// The least limit of these memory cgroups and of those above them, in bytes. `None`: there is
    /// no limit, or none can be read here.
    #[must_use]
    pub fn memory(&self, groups: &Groups) -> Option<u64> {
        let limits = groups.paths().filter_map(|(hierarchy, group)| {
            let hard = Names::of(hierarchy)?.limits[0];
            let up = Path::new(group).ancestors();
            let limits =
                up.filter_map(|group| number(&self.folder(hierarchy, group.to_str()?)?.join(hard)));
            limits.min()
        });
        limits.min()
    }

    /// Those of these memory cgroups and of those above them that have a limit.
    pub(crate) fn memory_left(&self, groups: &Groups) -> Vec<Limited> {
        let mut found = vec![];
        for (hierarchy, group) in groups.paths() {
            let Some(names) = Names::of(hierarchy) else {
                continue;
            };
            for group in Path::new(group).ancestors().filter_map(Path::to_str) {
                let folder = self.part(hierarchy, group);
                found.extend(folder.and_then(|folder| limited(group, &folder, names)));
            }
        }
        found
    }
}

fn limited(group: &str, folder: &Path, names: &Names) -> Option<Limited> {
    let limits = names.limits.iter();
    let limit = limits.filter_map(|name| number(&folder.join(name))).min()?;
    let used = number(&folder.join(names.usage))?;
    let rows = small_file::text(folder.join("memory.stat")).unwrap_or_default();
    let taken_back = rows.lines().filter_map(|row| {
        let (name, bytes) = row.split_once(' ')?;
        let is_one = names.taken_back.contains(&name);
        is_one.then(|| bytes.trim().parse::<u64>().ok()).flatten()
    });
    let taken_back = taken_back.fold(0, u64::saturating_add);
    Some(Limited {
        group: group.to_owned(),
        limit,
        left: limit.saturating_sub(used.saturating_sub(taken_back)),
    })
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
    use std::fs;

    /// Writes a file of a hierarchy.
    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("it is ours");
        fs::write(path, text).expect("it is ours");
    }

    /// The room below each limit of a process there, in KiB.
    fn left(root: &Path, mounted: &str, table: &str) -> Vec<(String, u64, u64)> {
        let row = format!(
            "30 20 0:1 {}\n",
            mounted.replace("ROOT", &root.display().to_string())
        );
        let found = Mounts::parse(&row).memory_left(&Groups::parse(table));
        let found = found.into_iter();
        found
            .map(|one| (one.group, one.limit >> 10, one.left >> 10))
            .collect()
    }

    fn kib(number: u64) -> String {
        format!("{}\n", number << 10)
    }

    const V2: &str = "/ ROOT rw - cgroup2 cgroup2 rw";
    const V1: &str = "/ ROOT rw - cgroup cgroup rw,memory";

    #[test]
    fn what_a_cgroup_and_those_above_it_have_left_is_without_files() {
        let mounted = tempfile::tempdir().expect("a folder");
        let root = mounted.path();
        write(root, "slice/memory.max", &kib(8192));
        write(root, "slice/memory.current", &kib(6144));
        write(
            root,
            "slice/memory.stat",
            "anon 7\nactive_file 1048576\nshmem 9999999\n",
        );
        write(root, "slice/one/memory.max", &kib(4096));
        write(root, "slice/one/memory.high", "max\n");
        write(root, "slice/one/memory.current", &kib(1024));
        write(root, "slice/two/memory.max", "max\n");
        write(root, "slice/two/memory.high", &kib(2048));
        write(root, "slice/two/memory.current", &kib(3072));
        let above = ("/slice".to_owned(), 8192, 3072);
        let own = |name: &str, limit, left| (format!("/slice/{name}"), limit, left);
        let of = |table: &str| left(root, V2, table);
        assert_eq!(
            of("0::/slice/one\n"),
            [own("one", 4096, 3072), above.clone()]
        );
        assert_eq!(of("0::/slice/two\n"), [own("two", 2048, 0), above.clone()]);
        assert_eq!(of("0::/slice/none\n"), [above]);
        assert_eq!(of("0::/none\n"), []);
        assert_eq!(of("4:memory:/slice/one\n"), [], "another hierarchy's");
    }

    #[test]
    fn the_first_hierarchies_say_what_is_left_in_files_of_their_own() {
        let mounted = tempfile::tempdir().expect("a folder");
        let root = mounted.path();
        write(root, "one/memory.limit_in_bytes", &kib(4096));
        write(root, "one/memory.usage_in_bytes", &kib(3072));
        write(
            root,
            "one/memory.stat",
            "inactive_file 4096\ntotal_inactive_file 1048576\n",
        );
        let one = || vec![("/one".to_owned(), 4096, 2048)];
        assert_eq!(left(root, V1, "4:memory:/one\n1:cpu:/one\n"), one());
        assert_eq!(left(root, V1, "4:cpu:/one\n"), []);
    }

    #[test]
    fn a_container_is_shown_its_own_part_of_a_hierarchy() {
        let mounted = tempfile::tempdir().expect("a folder");
        let root = mounted.path();
        write(root, "memory.limit_in_bytes", &kib(4096));
        write(root, "memory.usage_in_bytes", &kib(1024));
        let part = "/docker/one ROOT rw - cgroup cgroup rw,memory";
        let one = vec![("/docker/one".to_owned(), 4096, 3072)];
        assert_eq!(left(root, part, "4:memory:/docker/one\n"), one);
        assert_eq!(left(root, part, "4:memory:/docker/other\n"), []);
        // Shown from outside the namespace of cgroups.
        let outer = "/.. ROOT rw - cgroup2 cgroup2 rw";
        assert_eq!(left(root, outer, "0::/\n"), []);
    }

    #[test]
    fn the_least_memory_limit_of_a_container_and_above_it_counts() {
        let mounted = tempfile::tempdir().expect("a folder");
        let root = mounted.path();
        let write = |path: &str, text: &str| write(root, path, text);
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
