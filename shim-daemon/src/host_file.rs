//! The memory files of the host store.
//!
//! To change one waits for its process: a process that writes to the file holds it, for as long as
//! it takes to read what it writes, and that may be a file whose server does not answer. So the
//! loop looks at a file only, and all else is done on the lane of its tenant.

use std::fs::File;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::stat::fstat;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::ftruncate;

use crate::connection::Passed;
use crate::foreign::{Foreign, Lane};
use crate::pages::{PagesError, failed, memfd, size_seals};

/// A process's part of the host store: a memory file of far more bytes than are ever allocated,
/// which cannot change its size. Ranges of it are allocated as they are given.
#[derive(Debug)]
pub struct HostFile(Arc<Foreign>);

/// Its size: sparse, so that each place in it is valid for ever.
pub(crate) const HOST_FILE: i64 = 1 << 62;

impl HostFile {
    /// Makes one, with nothing allocated.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn create(lane: &Lane) -> Result<Self, PagesError> {
        let file = memfd(c"gpushare-host").map_err(failed("make shared memory"))?;
        ftruncate(&file, HOST_FILE).map_err(failed("size shared memory"))?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(size_seals())).map_err(failed("seal shared memory"))?;
        Ok(Self(Arc::new(Foreign::new(file, lane))))
    }

    /// Takes a file that a client of an earlier daemon presents. If refused, it is closed on its
    /// lane: the kernel frees all its memory in its last close.
    ///
    /// # Errors
    /// If it is not ordinary shared memory, sealed and sized as ours.
    pub fn adopt(file: Foreign) -> Result<Self, PagesError> {
        // Seals first: only memory has any, and only memory may be looked at here.
        let seals = fcntl(file.file(), FcntlArg::F_GET_SEALS).unwrap_or(0);
        if !SealFlag::from_bits_truncate(seals).contains(size_seals()) {
            return Err(PagesError::Unsealed);
        }
        let system = fstatfs(file.file()).map_err(failed("inspect the descriptor"))?;
        if system.filesystem_type() != TMPFS_MAGIC {
            return Err(PagesError::Unsealed);
        }
        let found = fstat(file.file()).map_err(failed("inspect the descriptor"))?;
        if found.st_size != HOST_FILE {
            return Err(PagesError::Size {
                found: found.st_size,
                expected: usize::try_from(HOST_FILE).unwrap_or(usize::MAX),
            });
        }
        Ok(Self(Arc::new(file)))
    }

    /// The lane on which it is changed.
    #[must_use]
    pub fn lane(&self) -> &Lane {
        self.0.lane()
    }

    /// Allocates a range of it, all zero. For the lane.
    ///
    /// # Errors
    /// If the host has too little memory.
    pub fn allocate(&self, offset: u64, bytes: u64) -> Result<(), PagesError> {
        let allocated = self.change(FallocateFlags::empty(), offset, bytes);
        if allocated.is_err() {
            // A part may have been.
            let _ = self.release(offset, bytes);
        }
        allocated.map_err(failed("allocate shared memory"))
    }

    /// Gives the memory of a range back, whatever is mapped: it reads as zero from then on. It is
    /// done on the lane, after all that was wanted of the file before.
    pub fn give_back(self: &Arc<Self>, offset: u64, bytes: u64) {
        self.give_back_each([(offset, bytes)]);
    }

    /// The same of each of these ranges.
    pub fn give_back_each(
        self: &Arc<Self>,
        ranges: impl IntoIterator<Item = (u64, u64)> + Send + 'static,
    ) {
        let file = Arc::clone(self);
        self.lane().run(move || {
            for (offset, bytes) in ranges {
                if let Err(error) = file.release(offset, bytes) {
                    tracing::warn!(%error, "host memory stays allocated until a process ends");
                }
            }
        });
    }

    /// The same of all of it.
    pub fn give_all_back(self: &Arc<Self>) {
        self.give_back(0, HOST_FILE.unsigned_abs());
    }

    fn release(&self, offset: u64, bytes: u64) -> Result<(), PagesError> {
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let released = self.change(hole, offset, bytes);
        released.map_err(failed("free shared memory"))
    }

    fn change(&self, how: FallocateFlags, offset: u64, bytes: u64) -> Result<(), Errno> {
        let number = |number| i64::try_from(number).map_err(|_| Errno::EFBIG);
        fallocate(self.file(), how, number(offset)?, number(bytes)?)
    }

    /// Bytes of it that are allocated.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn allocated(&self) -> Result<u64, PagesError> {
        let found = fstat(self.file()).map_err(failed("inspect shared memory"))?;
        Ok(u64::try_from(found.st_blocks).unwrap_or(0) * 512)
    }

    /// The file, to copy from and to.
    #[must_use]
    pub fn file(&self) -> &File {
        self.0.file()
    }

    /// The same, to be sent to its process.
    #[must_use]
    pub fn passed(&self) -> Passed {
        Passed::Shared(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    use crate::foreign::Lanes;
    use crate::pages::UsagePage;

    #[test]
    fn host_memory_comes_back_by_its_file_and_by_no_other() {
        let lane = Lanes::default().own();
        let adopt = |file| HostFile::adopt(Foreign::new(file, &lane));
        let one = HostFile::create(&lane).unwrap();
        one.allocate(1 << 42, 4096).unwrap();
        let again = adopt(one.file().try_clone().unwrap().into()).unwrap();
        assert_eq!(again.allocated().unwrap(), 4096);
        again.release(1 << 42, 4096).unwrap();
        assert_eq!(one.allocated().unwrap(), 0);
        let page = UsagePage::create().unwrap();
        let page = page.descriptor().try_clone_to_owned().unwrap();
        assert!(adopt(page).is_err());
        let plain = OwnedFd::from(tempfile::tempfile().unwrap());
        assert!(adopt(plain).is_err());
    }

    /// Whether a descriptor of this process leads to the memory file of this name.
    fn is_open(name: &str) -> bool {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let mut all = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        all.any(|link| link.starts_with(format!("/memfd:{name} (deleted)")))
    }

    #[test]
    fn a_memory_file_that_is_refused_is_closed_on_its_lane() {
        let lane = Lanes::default().own();
        let unsealed = memfd(c"refused-unsealed").unwrap();
        let short = memfd(c"refused-short").unwrap();
        fcntl(&short, FcntlArg::F_ADD_SEALS(size_seals())).unwrap();
        let go = lane.stands();
        for (file, name) in [(unsealed, "refused-unsealed"), (short, "refused-short")] {
            assert!(HostFile::adopt(Foreign::new(file, &lane)).is_err());
            assert!(is_open(name), "{name}");
        }
        drop(go);
        let (done, is_done) = std::sync::mpsc::channel();
        lane.run(move || done.send(()).unwrap());
        is_done.recv().unwrap();
        assert!(!is_open("refused-unsealed") && !is_open("refused-short"));
    }
}
