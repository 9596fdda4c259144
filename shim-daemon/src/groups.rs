//! A process's place in every cgroup hierarchy, and which of these places tell one container from
//! all others.
//!
//! A table is that of `/proc/<pid>/cgroup`, as the daemon's cgroup namespace shows it. Paths are
//! compared, so those that lead out of that namespace (`/../…`) serve as well.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Paths by hierarchy: its controllers or its name (`memory`, `cpu,cpuacct`, `name=systemd`), empty
/// for the unified one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups(BTreeMap<String, String>);

impl Groups {
    /// Parses a `/proc/<pid>/cgroup`. Lines of another form are ignored.
    #[must_use]
    pub fn parse(table: &str) -> Self {
        let row = |line: &str| {
            let mut parts = line.splitn(3, ':');
            let (_, hierarchy, path) = (parts.next()?, parts.next()?, parts.next()?);
            path.starts_with('/')
                .then(|| (hierarchy.to_owned(), path.to_owned()))
        };
        Self(table.lines().filter_map(row).collect())
    }

    /// Whether it names no hierarchy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a process that is here is in `container` or below it, in each of its hierarchies.
    /// Nothing is in a container that has no hierarchy.
    #[must_use]
    pub fn are_within(&self, container: &Self) -> bool {
        let inside = |(hierarchy, group): (&String, &String)| {
            self.0.get(hierarchy).is_some_and(|own| below(own, group))
        };
        !container.is_empty() && container.0.iter().all(inside)
    }

    /// The places that are a container's own: those in which no process of `others` (the daemon,
    /// the container's runtime) is. The root of a hierarchy is nobody's own.
    #[must_use]
    pub fn apart_from(&self, others: &[&Self]) -> Self {
        let is_own = |(hierarchy, group): &(&String, &String)| {
            let mut beside = others.iter().filter_map(|other| other.0.get(*hierarchy));
            *group != "/" && !beside.any(|other| below(other, group))
        };
        let own = self.0.iter().filter(is_own);
        Self(own.map(|(h, g)| (h.clone(), g.clone())).collect())
    }

    /// Whether it is below what systemd gives this user to make cgroups in. Nobody else but root
    /// can put a process there, and this user can freeze and end what is there, whatever its user.
    #[must_use]
    pub fn are_of_user(&self, user: u32) -> bool {
        let own = format!("/user.slice/user-{user}.slice/user@{user}.service/");
        let unified = self.0.get("");
        unified.is_some_and(|group| group.starts_with(&own))
    }

    /// A part of each path, where there is one.
    #[must_use]
    pub fn parts<'a>(&'a self, part: impl Fn(&'a str) -> Option<&'a str>) -> Self {
        let some = |(hierarchy, group): (&'a String, &'a String)| {
            Some((hierarchy.clone(), part(group)?.to_owned()))
        };
        Self(self.0.iter().filter_map(some).collect())
    }

    /// The same hierarchies as `other` has, as they are here.
    #[must_use]
    pub fn in_those_of(&self, other: &Self) -> Self {
        let mut kept = self.clone();
        kept.0
            .retain(|hierarchy, _| other.0.contains_key(hierarchy));
        kept
    }

    /// Whether these have a place in every hierarchy of `other`.
    #[must_use]
    pub fn are_in_all_of(&self, other: &Self) -> bool {
        other
            .0
            .keys()
            .all(|hierarchy| self.0.contains_key(hierarchy))
    }

    /// Whether both are the same place wherever both are known, and that is somewhere.
    #[must_use]
    pub fn meet(&self, other: &Self) -> bool {
        let both = self.0.iter().filter(|(h, _)| other.0.contains_key(*h));
        let same: Vec<bool> = both
            .map(|(h, group)| other.0.get(h) == Some(group))
            .collect();
        !same.is_empty() && same.iter().all(|same| *same)
    }

    /// The length of the longest path: of two containers that a process is within, the one with the
    /// longer path is the inner one.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.values().map(String::len).max().unwrap_or(0)
    }

    /// All paths.
    pub fn paths(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(h, group)| (h.as_str(), group.as_str()))
    }
}

impl std::fmt::Display for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut paths: Vec<&str> = self.0.values().map(String::as_str).collect();
        paths.sort_unstable();
        paths.dedup();
        match paths.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&paths.join(", ")),
        }
    }
}

/// Whether a path is that of a group, or of one below it.
pub(crate) fn below(path: &str, group: &str) -> bool {
    let ((above, names), (group_above, group_names)) = (parted(path), parted(group));
    if group_names.is_empty() {
        // The root of the daemon's cgroup namespace, or so many levels above it.
        return above <= group_above;
    }
    let rest = names.strip_prefix(group_names);
    above == group_above && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// How many levels a path leads out of the daemon's cgroup namespace, and the names behind that.
fn parted(path: &str) -> (usize, &str) {
    let (mut levels, mut names) = (0, path);
    while let Some(rest) = names.strip_prefix("/..") {
        if !rest.is_empty() && !rest.starts_with('/') {
            break;
        }
        (levels, names) = (levels + 1, rest);
    }
    (levels, names.strip_suffix('/').unwrap_or(names))
}

/// Where hierarchies are mounted, by a `/proc/<pid>/mountinfo`.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Vec<Mount>);

/// The mount of a hierarchy, or of a part of it.
#[derive(Clone, Debug)]
struct Mount {
    /// The controllers of the hierarchy, and its name.
    names: Vec<String>,
    /// The group that is mounted, `/` for a whole hierarchy.
    root: String,
    point: PathBuf,
}

impl Mounts {
    /// The mounts of hierarchies in this table.
    #[must_use]
    pub fn parse(table: &str) -> Self {
        let row = |line: &str| {
            let (front, back) = line.split_once(" - ")?;
            let mut front = front.split(' ').skip(3);
            let (root, point) = (front.next()?, front.next()?);
            let mut back = back.split(' ');
            let (kind, options) = (back.next()?, back.nth(1)?);
            let names = match kind {
                "cgroup2" => vec![String::new()],
                "cgroup" => options.split(',').map(str::to_owned).collect(),
                _ => return None,
            };
            Some(Mount {
                names,
                root: root.to_owned(),
                point: PathBuf::from(point),
            })
        };
        Self(table.lines().filter_map(row).collect())
    }

    /// Those that this process sees now.
    #[must_use]
    pub fn here() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    /// The folder of a group in a mount of its whole hierarchy.
    fn folder(&self, hierarchy: &str, group: &str) -> Option<PathBuf> {
        let mount = self.mounts_of(hierarchy).find(|mount| mount.root == "/")?;
        mount.folder(group)
    }

    /// As [`Mounts::folder`], or in a mount of a part of the hierarchy, as a container has it.
    fn part(&self, hierarchy: &str, group: &str) -> Option<PathBuf> {
        let own = || self.mounts_of(hierarchy).find_map(|own| own.folder(group));
        self.folder(hierarchy, group).or_else(own)
    }

    fn mounts_of(&self, hierarchy: &str) -> impl Iterator<Item = &Mount> {
        let wanted: Vec<&str> = hierarchy.split(',').collect();
        self.0.iter().filter(move |mount| {
            let mut wanted = wanted.iter();
            wanted.all(|one| mount.names.iter().any(|name| name == one))
        })
    }

    /// The inode of each place that can be seen, by hierarchy.
    #[must_use]
    pub fn inodes(&self, groups: &Groups) -> BTreeMap<String, u64> {
        let inode = |(hierarchy, group): (&str, &str)| {
            let found = fs::symlink_metadata(self.folder(hierarchy, group)?).ok()?;
            Some((hierarchy.to_owned(), found.ino()))
        };
        groups.paths().filter_map(inode).collect()
    }
}

impl Mount {
    /// Where a group is in it.
    fn folder(&self, group: &str) -> Option<PathBuf> {
        let ((above, root), (out, names)) = (parted(&self.root), parted(group));
        let is_here = above == 0 && out == 0 && below(group, &self.root);
        let rest = is_here.then(|| names.strip_prefix(root))??;
        (!rest.split('/').any(|part| part == ".."))
            .then(|| self.point.join(rest.trim_start_matches('/')))
    }
}

/// The mounts of hierarchies as they were read last. The table of mounts names every container's
/// file systems as well, and hierarchies are hardly ever mounted later.
#[derive(Debug, Default)]
pub struct KnownMounts(Option<Mounts>);

impl From<Mounts> for KnownMounts {
    fn from(mounts: Mounts) -> Self {
        Self(Some(mounts))
    }
}

impl KnownMounts {
    /// As [`Mounts::inodes`], by the table as it was read last.
    pub fn seen(&self, groups: &Groups) -> BTreeMap<String, u64> {
        let known = self.0.as_ref().map(|mounts| mounts.inodes(groups));
        known.unwrap_or_default()
    }

    /// As [`Mounts::inodes`]. The table is read again if a place is not seen.
    pub fn inodes(&mut self, groups: &Groups) -> BTreeMap<String, u64> {
        let known = self.seen(groups);
        match known.len() == groups.paths().count() {
            true => known,
            false => self.0.insert(Mounts::here()).inodes(groups),
        }
    }
}

mod memory;
#[cfg(test)]
mod tests;
