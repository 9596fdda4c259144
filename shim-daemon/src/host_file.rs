//! The memory files of the host store.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::stat::fstat;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::ftruncate;

use crate::pages::{PagesError, failed, memfd, size_seals};

/// A process's part of the host store: a memory file of far more bytes than are ever allocated,
/// which cannot change its size. Ranges of it are allocated as they are given.
#[derive(Debug)]
pub struct HostFile(File);

/// Its size: sparse, so that each place in it is valid for ever.
const HOST_FILE: i64 = 1 << 62;

impl HostFile {
    /// Makes one, with nothing allocated.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn create() -> Result<Self, PagesError> {
        let file = memfd(c"gpushare-host").map_err(failed("make shared memory"))?;
        ftruncate(&file, HOST_FILE).map_err(failed("size shared memory"))?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(size_seals())).map_err(failed("seal shared memory"))?;
        Ok(Self(File::from(file)))
    }

    /// Takes one that a client of an earlier daemon presents.
    ///
    /// # Errors
    /// If it is not ordinary shared memory, sealed and sized as ours.
    pub fn adopt(file: OwnedFd) -> Result<Self, PagesError> {
        let seals = fcntl(&file, FcntlArg::F_GET_SEALS).unwrap_or(0);
        // Only memory has seals. Another file system may ask its server, which need not answer.
        if !SealFlag::from_bits_truncate(seals).contains(size_seals()) {
            return Err(PagesError::Unsealed);
        }
        let system = fstatfs(file.as_fd()).map_err(failed("inspect the descriptor"))?;
        if system.filesystem_type() != TMPFS_MAGIC {
            return Err(PagesError::Unsealed);
        }
        let found = fstat(&file).map_err(failed("inspect the descriptor"))?;
        if found.st_size != HOST_FILE {
            return Err(PagesError::Size {
                found: found.st_size,
                expected: usize::try_from(HOST_FILE).unwrap_or(usize::MAX),
            });
        }
        Ok(Self(File::from(file)))
    }

    /// Allocates a range of it, all zero.
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

    /// Gives the memory of a range back, whatever is mapped: it reads as zero from then on.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn release(&self, offset: u64, bytes: u64) -> Result<(), PagesError> {
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let released = self.change(hole, offset, bytes);
        released.map_err(failed("free shared memory"))
    }

    fn change(&self, how: FallocateFlags, offset: u64, bytes: u64) -> Result<(), Errno> {
        let number = |number| i64::try_from(number).map_err(|_| Errno::EFBIG);
        fallocate(&self.0, how, number(offset)?, number(bytes)?)
    }

    /// Bytes of it that are allocated.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn allocated(&self) -> Result<u64, PagesError> {
        let found = fstat(&self.0).map_err(failed("inspect shared memory"))?;
        Ok(u64::try_from(found.st_blocks).unwrap_or(0) * 512)
    }

    /// The file, to copy from and to.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.0
    }

    /// A descriptor of it for its process.
    ///
    /// # Errors
    /// If there is none to be had.
    pub fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::UsagePage;

    #[test]
    fn host_memory_comes_back_by_its_file_and_by_no_other() {
        let one = HostFile::create().unwrap();
        one.allocate(1 << 42, 4096).unwrap();
        let again = HostFile::adopt(one.descriptor().unwrap()).unwrap();
        assert_eq!(again.allocated().unwrap(), 4096);
        again.release(1 << 42, 4096).unwrap();
        assert_eq!(one.allocated().unwrap(), 0);
        let page = UsagePage::create().unwrap();
        let page = page.descriptor().try_clone_to_owned().unwrap();
        assert!(HostFile::adopt(page).is_err());
        let plain = OwnedFd::from(tempfile::tempfile().unwrap());
        assert!(HostFile::adopt(plain).is_err());
    }
}
