//! The file systems of the host, told apart from those of a container.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

use crate::{Failure, cannot};

/// Bytes of a mount table that one read takes. A node with a hundred containers has about 64 KiB.
const TABLE: usize = 64 << 10;

/// The devices of the file systems that a mount namespace has. The table is opened in that
/// namespace and read when it is first asked, because a table of a busy node takes as long as all
/// else that the hook does, and most containers need none.
#[derive(Debug)]
pub struct HostDevices {
    table: RefCell<File>,
    devices: OnceCell<BTreeSet<(u32, u32)>>,
}

impl HostDevices {
    /// Those of the mount namespace that the caller is in now.
    ///
    /// # Errors
    /// If `/proc` does not tell.
    pub fn here() -> Result<Self, Failure> {
        let table = File::open("/proc/self/mountinfo");
        Ok(Self {
            table: RefCell::new(table.map_err(cannot("open /proc/self/mountinfo"))?),
            devices: OnceCell::new(),
        })
    }

    /// Whether `(major, minor)` is one of them.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn contains(&self, device: (u32, u32)) -> Result<bool, Failure> {
        if let Some(devices) = self.devices.get() {
            return Ok(devices.contains(&device));
        }
        let mut table = String::with_capacity(TABLE);
        self.table
            .borrow_mut()
            .read_to_string(&mut table)
            .map_err(cannot("read /proc/self/mountinfo"))?;
        let devices = self.devices.get_or_init(|| parse(&table));
        Ok(devices.contains(&device))
    }
}

fn parse(table: &str) -> BTreeSet<(u32, u32)> {
    let device = |line: &str| {
        let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    table.lines().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_the_own_mounts_are_known_and_others_are_not() {
        let host = HostDevices::here().unwrap();
        let proc = rustix::fs::stat("/proc").unwrap();
        let device = (
            rustix::fs::major(proc.st_dev),
            rustix::fs::minor(proc.st_dev),
        );
        assert!(host.contains(device).unwrap());
        // Asked again, from what was read.
        assert!(host.contains(device).unwrap());
        assert!(!host.contains((4095, 77)).unwrap());
    }

    #[test]
    fn lines_that_are_no_mounts_name_no_device() {
        let table = "22 1 0:21 / /proc rw - proc proc rw\nx\n23 1 a:b / / rw\n\n24 1 8:1 / / rw - ext4 x rw\n";
        assert_eq!(parse(table), BTreeSet::from([(0, 21), (8, 1)]));
    }
}
