//! The host memory that a program started here can have.

use std::fs::read_to_string;
use std::path::Path;

/// The most host memory (bytes) that this process and its children can have, and whose limit that
/// is. Where nothing can be read there is none.
pub(crate) fn most() -> (u64, &'static str) {
    let group = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = of_groups(Path::new("/sys/fs/cgroup"), &group);
    let machine = read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = of_machine(&machine).unwrap_or(u64::MAX);
    match group {
        Some(group) if group <= machine => (group, "the memory cgroup"),
        _ => (machine, "the machine"),
    }
}

/// The least limit of the memory cgroup that `groups` names (as `/proc/PID/cgroup` does) and of
/// those above it, below the folder where they are mounted.
fn of_groups(mounted: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        let path = path.trim_start_matches('/');
        match controllers {
            "" => least(mounted, path, "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                least(&mounted.join("memory"), path, "memory.limit_in_bytes")
            }
            _ => None,
        }
    });
    limits.min()
}

fn least(mounted: &Path, path: &str, file: &str) -> Option<u64> {
    let groups = Path::new(path).ancestors();
    let limits = groups.filter_map(|group| {
        let text = read_to_string(mounted.join(group).join(file)).ok()?;
        // `max`: no limit.
        text.trim().parse().ok()
    });
    limits.min()
}

/// All memory of the machine, by `/proc/meminfo`.
fn of_machine(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_least_limit_up_the_tree_of_cgroups_counts() {
        let mounted = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = mounted.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "4096\n");
        write("a/b/memory.max", "8192\n");
        write("a/b/c/memory.max", "max\n");
        write("memory/x/memory.limit_in_bytes", "1000\n");
        let of = |text| of_groups(mounted.path(), text);
        assert_eq!(of("0::/a/b/c\n"), Some(4096));
        assert_eq!(of("0::/\n"), None, "the root has no limit");
        assert_eq!(of("5:cpu:/x\n4:cpuset,memory:/x/y\n0::/\n"), Some(1000));
        assert_eq!(of(""), None);
    }

    #[test]
    fn the_memory_of_the_machine_is_read() {
        let text = "MemFree: 5 kB\nMemTotal:       2048 kB\n";
        assert_eq!(of_machine(text), Some(2 << 20));
        assert_eq!(of_machine("MemFree: 5 kB\n"), None);
        assert!(most().0 > 1 << 20);
    }
}
