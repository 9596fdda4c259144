//! Whether the process ids that NVML lists belong to the daemon's pid namespace.
//!
//! In the machine's first pid namespace they are. In another namespace (a daemon in a container)
//! NVML may list the machine's pids or none. Every process of ours would then count twice: by its
//! charges and as an unmanaged process. There the list counts only after it has shown a process of
//! ours with at least its charges.

use std::path::Path;

use gpushare_protocol::units::Bytes;

/// Inode of the first pid namespace, fixed in the kernel (`PROC_PID_INIT_INO`).
const FIRST: &str = "pid:[4026531836]";

/// Whether pids here are the machine's own.
#[must_use]
pub fn in_first_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link == Path::new(FIRST))
}

/// See the module's page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pids {
    are_ours: bool,
}

impl Pids {
    pub(super) fn new(are_ours: bool) -> Self {
        Self { are_ours }
    }

    /// A look listed one of our pids as holding `used`, and that process has charged `charged`.
    pub(super) fn seen(&mut self, used: Bytes, charged: Bytes) {
        self.are_ours |= !used.is_zero() && used >= charged;
    }

    /// Whether a list by pid means anything here.
    pub(super) fn are_ours(self) -> bool {
        self.are_ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_protocol::units::MIB;

    #[test]
    fn a_list_counts_once_it_shows_a_process_of_ours_with_its_bytes() {
        let mut pids = Pids::new(false);
        for (used, charged) in [(0, 0), (0, 5), (4, 5)] {
            pids.seen(Bytes(used * MIB), Bytes(charged * MIB));
            assert!(!pids.are_ours(), "{used} of {charged}");
        }
        pids.seen(Bytes(6 * MIB), Bytes(5 * MIB));
        assert!(pids.are_ours());
        pids.seen(Bytes(0), Bytes(5 * MIB));
        assert!(
            pids.are_ours(),
            "a process that has ended takes nothing back"
        );
    }

    #[test]
    fn in_the_first_namespace_every_list_counts() {
        assert!(Pids::new(true).are_ours());
    }
}
