//! Whether the host has room for memory that the daemon takes in advance.
//!
//! A page of a memory file that does not fit is no error of the call that wants it: the kernel
//! ends a process for it, of the daemon's memory cgroup or of the whole machine. So the daemon
//! looks before it takes ([ADR
//! 227](../../docs/adr/0227-the-daemon-looks-before-it-takes-host-memory.md)).

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use gpushare_protocol::units::{Bytes, MIB};

use crate::groups::{Groups, Mounts};
use crate::small_file;

/// The least that stays free: the daemon itself needs some, and others take some meanwhile.
const LEAST: u64 = 64 * MIB;
/// The part of a bound that stays free.
const PART: u64 = 64;

/// What stays free beside memory that comes back from a file: for the daemon itself alone. The part
/// above is what it comes back to.
const LEAST_OF_RETURNS: u64 = LEAST / 2;

/// The use of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For a move that is to come, after which so many bytes are to fit still.
    Advance(u64),
    /// For bytes of a file, which go on to their device at once.
    Return,
}

/// Something that bounds the memory which the daemon can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Its name in a sentence.
    pub whose: String,
    /// All of its memory, in bytes.
    pub most: u64,
    /// What can be taken before the kernel ends a process.
    pub left: u64,
}

impl Bound {
    /// The part of it that stays free.
    fn kept(&self) -> u64 {
        (self.most / PART).max(LEAST)
    }

    /// Why so many bytes more do not fit, if they do not.
    #[must_use]
    pub fn lacks(&self, bytes: u64, purpose: Purpose) -> Option<String> {
        let (spare, kept) = match purpose {
            Purpose::Advance(spare) => (spare, self.kept()),
            Purpose::Return => (0, LEAST_OF_RETURNS),
        };
        let bytes = bytes.saturating_add(spare);
        let fits = bytes.checked_add(kept).is_some_and(|all| all <= self.left);
        let [bytes, left, most, kept] =
            [bytes, self.left, self.most, kept].map(|bytes| Bytes(bytes).human());
        let whose = &self.whose;
        (!fits).then(|| {
            format!("{bytes} do not fit: {whose} has {left} left of {most}, and {kept} stay free")
        })
    }

    /// Why a plan for so many bytes cannot be kept, if it cannot.
    #[must_use]
    pub fn never_has(&self, bytes: u64) -> Option<String> {
        let empty = Self {
            left: self.most,
            ..self.clone()
        };
        let [bytes_, most, kept] =
            [bytes, self.most, self.kept()].map(|bytes| Bytes(bytes).human());
        let whose = &self.whose;
        let text =
            format!("{whose} has {most}, of which {kept} stay free, and {bytes_} are planned");
        empty.lacks(bytes, Purpose::Advance(0)).map(|_| text)
    }
}

/// The bounds of the memory that this process can take.
#[derive(Debug)]
pub struct HostRoom {
    proc: PathBuf,
    mounts: OnceLock<Mounts>,
    /// Bytes that are being taken now: they may not count yet.
    under_way: AtomicU64,
}

/// Bytes that are being taken, until this is dropped.
#[derive(Debug)]
pub struct Taking<'a>(&'a HostRoom, u64);

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(self.1, Ordering::SeqCst);
    }
}

impl Default for HostRoom {
    fn default() -> Self {
        Self {
            proc: PathBuf::from("/proc"),
            mounts: OnceLock::new(),
            under_way: AtomicU64::new(0),
        }
    }
}

impl HostRoom {
    /// As if the kernel told about memory in this folder, and hierarchies were mounted so. For
    /// tests.
    #[must_use]
    pub fn told(proc: &Path, mounts: Mounts) -> Self {
        Self {
            proc: proc.to_owned(),
            mounts: OnceLock::from(mounts),
            ..Self::default()
        }
    }

    /// Begins to take so many bytes.
    ///
    /// # Errors
    /// A sentence: whose memory they do not fit.
    pub fn take(&self, bytes: u64, purpose: Purpose) -> Result<Taking<'_>, String> {
        let others = self.under_way.fetch_add(bytes, Ordering::SeqCst);
        let taking = Taking(self, bytes);
        let all = others.saturating_add(bytes);
        let bounds = self.bounds();
        let lacks = bounds.iter().find_map(|bound| bound.lacks(all, purpose));
        lacks.map_or(Ok(taking), Err)
    }

    /// Why a plan for so many bytes cannot be kept.
    #[must_use]
    pub fn never_has(&self, bytes: u64) -> Vec<String> {
        let bounds = self.bounds().into_iter();
        bounds.filter_map(|bound| bound.never_has(bytes)).collect()
    }

    /// What can be read of them now.
    fn bounds(&self) -> Vec<Bound> {
        let machine = small_file::text(self.proc.join("meminfo"));
        let machine = machine.ok().and_then(|text| of_machine(&text));
        let groups = small_file::text(self.proc.join("self/cgroup"));
        let groups = Groups::parse(&groups.unwrap_or_default());
        let limited = self.mounts.get_or_init(Mounts::here).memory_left(&groups);
        let limited = limited.into_iter().map(|one| Bound {
            whose: format!("the daemon's memory cgroup {}", one.group),
            most: one.limit,
            left: one.left,
        });
        machine.into_iter().chain(limited).collect()
    }
}

/// The machine, by its `/proc/meminfo`.
fn of_machine(text: &str) -> Option<Bound> {
    let row = |name: &str| {
        let mut rows = text.lines();
        let row = rows.find_map(|row| row.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = row.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(Bound {
        whose: "the machine".to_owned(),
        most: row("MemTotal")?,
        left: row("MemAvailable")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_protocol::units::GIB;

    const AHEAD: Purpose = Purpose::Advance(0);

    fn bound(most: u64, left: u64) -> Bound {
        Bound {
            whose: "the machine".to_owned(),
            most,
            left,
        }
    }

    #[test]
    fn bytes_fit_where_a_part_stays_free_beside_them() {
        for (most, left, bytes, fits) in [
            (GIB, 128 * MIB, 64 * MIB, true),
            (GIB, 128 * MIB - 1, 64 * MIB, false),
            (64 * GIB, 2 * GIB, GIB, true),
            (64 * GIB, 2 * GIB, GIB + 1, false),
            (GIB, GIB, u64::MAX, false),
            (GIB, 0, 0, false),
        ] {
            let bound = bound(most, left);
            assert_eq!(
                bound.lacks(bytes, AHEAD).is_none(),
                fits,
                "{bound:?}, {bytes}"
            );
        }
        let told = bound(64 * GIB, GIB).lacks(64 * MIB, AHEAD).unwrap();
        let words = "64 MiB do not fit: the machine has 1 GiB left of 64 GiB, and 1 GiB stay free";
        assert_eq!(told, words);
    }

    #[test]
    fn bytes_that_come_back_have_the_part_that_others_leave_free() {
        for (left, fits) in [(96 * MIB, true), (96 * MIB - 1, false)] {
            let bound = bound(2048 * GIB, left);
            let fitted = bound.lacks(64 * MIB, Purpose::Return).is_none();
            assert_eq!(fitted, fits, "{left}");
            assert!(bound.lacks(64 * MIB, AHEAD).is_some());
        }
    }

    #[test]
    fn a_plan_is_compared_with_all_memory_and_not_with_what_is_left() {
        let bound = bound(64 * GIB, 0);
        assert_eq!(bound.never_has(63 * GIB), None);
        let told = bound.never_has(64 * GIB).unwrap();
        for word in [
            "the machine has 64 GiB",
            "1 GiB stay free",
            "64 GiB are planned",
        ] {
            assert!(told.contains(word), "{word} in {told}");
        }
    }

    #[test]
    fn what_is_being_taken_elsewhere_is_no_more_there() {
        let proc = tempfile::tempdir().unwrap();
        let rows = "MemTotal: 1048576 kB\nMemFree: 5 kB\nMemAvailable: 262144 kB\n";
        std::fs::write(proc.path().join("meminfo"), rows).unwrap();
        let room = HostRoom::told(proc.path(), Mounts::default());
        let first = room.take(128 * MIB, AHEAD).unwrap();
        assert!(room.take(128 * MIB, AHEAD).is_err());
        let second = room.take(64 * MIB, AHEAD).unwrap();
        drop((first, second));
        assert!(
            room.take(128 * MIB, Purpose::Advance(65 * MIB)).is_err(),
            "no spare"
        );
        assert!(room.take(128 * MIB, Purpose::Advance(64 * MIB)).is_ok());
    }

    #[test]
    fn a_machine_that_tells_nothing_bounds_nothing() {
        let proc = tempfile::tempdir().unwrap();
        let room = HostRoom::told(proc.path(), Mounts::default());
        assert!(room.take(u64::MAX, AHEAD).is_ok());
        assert_eq!(room.never_has(u64::MAX), [""; 0]);
        assert_eq!(of_machine("MemTotal: 5 kB\nMemAvailable: 5 MB\n"), None);
    }

    #[test]
    fn this_machine_tells_how_much_it_has_left() {
        let bounds = HostRoom::default().bounds();
        assert!(
            bounds[0].left > 0 && bounds[0].left <= bounds[0].most,
            "{bounds:?}"
        );
    }
}
