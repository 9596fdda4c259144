//! A thread with a descriptor table of its own: descriptors that the program's other threads close
//! stay open there.
//!
//! Programs that become daemons close descriptors that they did not open. The control thread's
//! connection, bell and page must outlive that, or the process would have no place with its daemon
//! any more. So that thread takes its own copy of the table of descriptors ([`part`]).
//!
//! The copies of the program's descriptors are closed there, because their other ends notice
//! otherwise that a pipe or a socket is still open. Each close is told to the file system, though,
//! as if the program had closed its own: one of a network, or in user space, then writes back what
//! it has, or completes an upload; a message queue forgets whom to notify. Such copies stay until
//! the program has closed its own ([`Left`]).

use core::ffi::{c_int, c_uint};
use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use crate::guest::sys::{self, close_range};

/// `CLOSE_RANGE_UNSHARE` of the kernel's `linux/close_range.h`, since Linux 5.9.
const UNSHARE: c_uint = 1 << 1;

/// The descriptors of this process's first thread, which are the program's.
const THEIRS: &str = "/proc/self/fd";
/// Those of the calling thread.
const OURS: &str = "/proc/thread-self/fd";

/// The numbers below this are tried one by one where `/proc` does not list the open ones. It is as
/// many as systems usually let a program have.
const TRIED: c_int = 1 << 16;

/// File systems that do nothing when a descriptor is closed and others of the same open file are
/// left: `f_type` of `statfs(2)`, from the kernel's `linux/magic.h` and the file systems' own
/// headers.
const LOCAL: [u64; 28] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xca45_1a4e, // Bcachefs
    0x2fc1_2fc1, // ZFS
    0xf2f5_2010, // F2FS
    0x7371_7368, // SquashFS
    0xe0f5_e1e2, // EROFS
    0x9660,      // ISO 9660
    0x4d44,      // FAT
    0x794c_7630, // overlayfs
    0x0102_1994, // tmpfs and memory files
    0x8584_58f6, // ramfs
    0x9584_58f6, // huge pages, memory files of them
    0x5345_434d, // secret memory
    0x444d_4142, // DMA buffers
    0x474d_454d, // a virtual machine's memory
    0x0904_1934, // files without a place
    0x5049_4446, // processes
    0x6e73_6673, // namespaces
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6367_7270, // cgroups, version 2
    0x0027_e0eb, // version 1
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xcafe_4a11, // BPF
];

/// Gives the calling thread a table of its own, with copies of all open descriptors. `false` where
/// the system refuses; nothing has changed then.
pub(super) fn part() -> bool {
    // Nothing has the highest number, so the first call closes nothing. It is the one that
    // sandboxes allow; the second one is older.
    close_range(c_int::MAX, c_int::MAX, UNSHARE) || sys::unshare_descriptors()
}

/// The copies of the program's descriptors in the calling thread's own table.
#[derive(Debug)]
pub(super) struct Copies(Vec<c_int>);

impl Copies {
    /// All that are open but the library's own, `kept`. No file is asked for anything. Called
    /// before the thread opens any.
    pub(super) fn but(kept: &[c_int]) -> Self {
        let listed = || {
            let names = fs::read_dir(OURS).ok()?.flatten();
            let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            Some(numbers.collect())
        };
        let numbers: Vec<c_int> = listed().unwrap_or_else(|| (0..TRIED).collect());
        // The list had a descriptor of its own, which is closed by now.
        let copies = numbers
            .into_iter()
            .filter(|number| !kept.contains(number) && sys::is_open(*number));
        Self(copies.collect())
    }

    /// Closes those that no file system hears of. May wait for the server of one.
    pub(super) fn close(self) -> Left {
        let (files, others): (Vec<_>, Vec<_>) = self.0.into_iter().partition(|number| {
            // One that does not say it is closed: it is none that file systems know.
            sys::is_regular(*number).unwrap_or(false)
        });
        others.into_iter().for_each(sys::close);
        let is_local = |number: c_int| {
            sys::file_system(number).is_ok_and(|file_system| LOCAL.contains(&file_system))
        };
        let (local, left): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|number| is_local(*number));
        local.into_iter().for_each(sys::close);
        Left(left)
    }
}

/// Copies of files whose file system would hear of it if one were closed before the program's own.
#[derive(Debug)]
pub(super) struct Left(Vec<c_int>);

impl Left {
    /// Whether there is none.
    pub(super) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Closes those that the program has open no more. Where that is not known, all stay.
    pub(super) fn look(&mut self) {
        let Some(theirs) = files_of(THEIRS) else {
            return;
        };
        self.0.retain(|number| {
            // Another file of the same name is as good as the same one: it is closed some time.
            let file = fs::read_link(format!("{OURS}/{number}"));
            let stays = file.map_or(true, |file| theirs.contains(&file));
            if !stays {
                sys::close(*number);
            }
            stays
        });
    }
}

/// The names of the open files in a table; `None` where it cannot be read, or nothing is in it: the
/// thread has gone.
fn files_of(table: &str) -> Option<HashSet<PathBuf>> {
    let entries = fs::read_dir(table).ok()?.flatten();
    let files = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let files: HashSet<PathBuf> = files.collect();
    (!files.is_empty()).then_some(files)
}

/// The calling thread's id in the kernel.
pub(super) fn this_thread() -> c_int {
    c_int::try_from(sys::this_thread()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn a_thread_keeps_its_own_and_closes_nothing_of_the_others() {
        let [ours, theirs] = [(); 2].map(|()| File::open("/dev/null").unwrap());
        let local = File::open("/proc/self/status").unwrap();
        let (kept, gone) = (ours.as_raw_fd(), [theirs.as_raw_fd(), local.as_raw_fd()]);
        let (there, here) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            let apart = scope.spawn(|| {
                let apart = part();
                if apart {
                    let _left = Copies::but(&[kept]).close();
                }
                let seen = (sys::is_open(kept), gone.map(sys::is_open));
                there.wait();
                here.wait();
                (apart, seen, sys::is_open(kept))
            });
            there.wait();
            assert!(
                sys::is_open(kept) && gone.into_iter().all(sys::is_open),
                "the other threads' table is whole"
            );
            drop(ours);
            here.wait();
            let (apart, seen, still) = apart.join().unwrap();
            if apart {
                assert_eq!((seen, still), ((true, [false; 2]), true));
            } else {
                eprintln!("not runnable here: no thread has descriptors of its own");
                assert_eq!(seen, (true, [true; 2]));
            }
        });
    }

    #[test]
    fn a_copy_that_is_left_stays_while_the_program_has_the_file_open() {
        let (file, path) = tempfile::NamedTempFile::new().unwrap().keep().unwrap();
        let other = file.try_clone().unwrap();
        let number = file.as_raw_fd();
        let (asked, told) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let apart = part();
                let mut left = Left(vec![number]);
                for () in asked.1 {
                    if apart {
                        left.look();
                    }
                    told.0.send(apart.then(|| sys::is_open(number))).unwrap();
                }
            });
            let look = || {
                asked.0.send(()).unwrap();
                told.1.recv().unwrap()
            };
            let Some(first) = look() else {
                eprintln!("not runnable here: no thread has descriptors of its own");
                drop(asked.0);
                return;
            };
            drop(file);
            let second = look();
            drop(other);
            let third = look();
            drop(asked.0);
            assert_eq!((first, second, third), (true, Some(true), Some(false)));
        });
        fs::remove_file(path).unwrap();
    }
}
