//! The file systems of the host, told apart from those of a container, both by tables of mounts.

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
        Ok(Self {
            table: RefCell::new(open_table()?),
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
        let table = read(&self.table)?;
        let devices = self.devices.get_or_init(|| parse(&table));
        Ok(devices.contains(&device))
    }
}

/// The table of the container's mounts, opened there and read when it is first asked, as few
/// containers need it. It says a mount's device as
/// the host's table does. `statx` may not: a subvolume of btrfs has a device number of its own.
#[derive(Debug)]
pub struct Mounted {
    table: Result<RefCell<File>, Failure>,
    text: OnceCell<String>,
}

impl Mounted {
    /// That of the mount namespace that the caller is in now.
    #[must_use]
    pub fn here() -> Self {
        Self {
            table: open_table().map(RefCell::new),
            text: OnceCell::new(),
        }
    }

    /// The device of the mount with this number; `None` if it is not in the table.
    ///
    /// # Errors
    /// If the table could not be opened, or cannot be read.
    pub fn device(&self, mount: u64) -> Result<Option<(u32, u32)>, Failure> {
        let text = match self.text.get() {
            Some(text) => text,
            None => {
                let table = self.table.as_ref();
                let text = read(table.map_err(|failure| Failure(failure.0.clone()))?)?;
                self.text.get_or_init(|| text)
            }
        };
        Ok(device_of(text, mount))
    }
}

fn open_table() -> Result<File, Failure> {
    File::open("/proc/self/mountinfo").map_err(cannot("open /proc/self/mountinfo"))
}

fn read(table: &RefCell<File>) -> Result<String, Failure> {
    let mut text = String::with_capacity(TABLE);
    let read = table.borrow_mut().read_to_string(&mut text);
    read.map_err(cannot("read /proc/self/mountinfo"))?;
    Ok(text)
}

fn parse(table: &str) -> BTreeSet<(u32, u32)> {
    table.lines().filter_map(device).collect()
}

fn device_of(table: &str, mount: u64) -> Option<(u32, u32)> {
    let number = mount.to_string();
    let mut lines = table.lines();
    device(lines.find(|line| line.split(' ').next() == Some(&number))?)
}

fn device(line: &str) -> Option<(u32, u32)> {
    let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
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
    fn a_mount_has_the_device_that_its_table_says() {
        // `statx` says 0:45 of what is there.
        let table = "77 1 0:30 /@/srv /etc rw - btrfs /dev/sda rw\n777 1 8:1 / / rw - ext4 x rw\n";
        assert_eq!(device_of(table, 77), Some((0, 30)));
        assert_eq!(device_of(table, 7), None);
        let proc = crate::rootfs::mount_of(&File::open("/proc").unwrap());
        let own = rustix::fs::stat("/proc").unwrap();
        let own = (rustix::fs::major(own.st_dev), rustix::fs::minor(own.st_dev));
        let mounted = Mounted::here();
        assert_eq!(mounted.device(proc).unwrap(), Some(own));
        assert_eq!(mounted.device(u64::MAX).unwrap(), None);
    }

    #[test]
    fn lines_that_are_no_mounts_name_no_device() {
        let table = "22 1 0:21 / /proc rw - proc proc rw\nx\n23 1 a:b / / rw\n\n24 1 8:1 / / rw - ext4 x rw\n";
        assert_eq!(parse(table), BTreeSet::from([(0, 21), (8, 1)]));
    }
}
