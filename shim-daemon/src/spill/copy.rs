//! The copies, a part at a time, and their checksums.

use std::fs::File;
use std::hash::Hasher as _;
use std::io;
use std::os::unix::fs::FileExt;

use gpushare_protocol::wire::Stored;
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use nix::sys::statvfs::fstatvfs;
use twox_hash::XxHash3_64;

/// How much is copied at once.
const PART: usize = 1 << 20;

/// Why bytes were not copied.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The system refused.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The host's memory did not take them. The file has them still.
    #[error("the host's memory cannot be written: {0}")]
    Host(io::Error),
    /// The host has no room for them. The file has them still.
    #[error("{0}")]
    NoRoom(String),
    /// The bytes in the file are not those that were stored.
    #[error("the checksum of what was read is {found:016x}, and {stored:016x} was stored")]
    Sum {
        /// The checksum of what was read.
        found: u64,
        /// The checksum when it was stored.
        stored: u64,
    },
}

/// Whether a disk has so much left for a user, beside what it keeps for root. Root's own bytes may
/// lie there, and so the daemon has to ask: the kernel refuses it nothing.
///
/// # Errors
/// `ENOSPC` if not, and if the file system does not say.
pub(super) fn fits_users(file: &File, bytes: u64) -> Result<(), Failed> {
    let disk = fstatvfs(file).map_err(io::Error::from)?;
    let left = disk.blocks_available().saturating_mul(disk.fragment_size());
    match is_left(disk.blocks(), left, bytes) {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ENOSPC).into()),
    }
}

/// A file system without a size has no blocks, and no part of them for anybody.
fn is_left(blocks: u64, left: u64, bytes: u64) -> bool {
    blocks == 0 || bytes <= left
}

/// Stores `bytes` bytes of the host in a file, and returns once they are on the disk: only then may
/// they be given up in memory. Returns their checksum.
///
/// # Errors
/// If the disk is full or fails. What was written is given back then.
pub fn store(
    (host, offset): (&File, u64),
    (file, at): (&File, u64),
    bytes: u64,
) -> Result<u64, Failed> {
    let written = write(host, offset, (file, at), bytes);
    if written.is_err() {
        // The disk is full, or does not work: what could be done about it was done.
        let _ = forget(file, at, bytes);
    }
    written
}

fn write(host: &File, offset: u64, (file, at): (&File, u64), bytes: u64) -> Result<u64, Failed> {
    // A full disk shows before anything is written.
    let (from, length) = (signed(at)?, signed(bytes)?);
    match fallocate(file, FallocateFlags::empty(), from, length) {
        Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP) => (),
        Err(error) => return Err(io::Error::from(error).into()),
    }
    let sum = each_part(bytes, |done, part| {
        host.read_exact_at(part, offset + done)?;
        Ok(file.write_all_at(part, at + done)?)
    })?;
    file.sync_data()?;
    // The point is to free memory, also that of the disk's cache.
    let _ = posix_fadvise(file, from, length, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    Ok(sum)
}

/// Brings stored bytes back into the host's memory, and compares them with their checksum.
///
/// # Errors
/// [`Failed::Sum`] if they are other bytes, [`Failed::System`] if they cannot be read,
/// [`Failed::Host`] if there is no memory to read them to.
pub fn fetch(file: &File, stored: Stored, (host, offset): (&File, u64)) -> Result<u64, Failed> {
    let found = each_part(stored.bytes, |done, part| {
        file.read_exact_at(part, stored.at + done)?;
        host.write_all_at(part, offset + done).map_err(Failed::Host)
    })?;
    let (from, length) = (signed(stored.at)?, signed(stored.bytes)?);
    let _ = posix_fadvise(file, from, length, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    match found == stored.sum {
        true => Ok(found),
        false => Err(Failed::Sum {
            found,
            stored: stored.sum,
        }),
    }
}

/// Gives the place of stored bytes back to the disk.
///
/// # Errors
/// If the file system has no holes, or the file can only be read.
pub(crate) fn forget(file: &File, at: u64, bytes: u64) -> io::Result<()> {
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(file, hole, signed(at)?, signed(bytes)?).map_err(io::Error::from)
}

fn each_part(
    bytes: u64,
    mut copy: impl FnMut(u64, &mut [u8]) -> Result<(), Failed>,
) -> Result<u64, Failed> {
    let mut buffer = vec![0; PART];
    let mut hasher = XxHash3_64::new();
    let mut done = 0;
    while done < bytes {
        let length = usize::try_from(bytes - done).unwrap_or(PART).min(PART);
        let part = &mut buffer[..length];
        copy(done, part)?;
        hasher.write(part);
        done += length as u64;
    }
    Ok(hasher.finish())
}

fn signed(number: u64) -> io::Result<i64> {
    i64::try_from(number).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The host's memory with `bytes` at 4096, and an empty file.
    fn scene(bytes: &[u8]) -> (File, File) {
        let host = tempfile::tempfile().unwrap();
        host.write_all_at(bytes, 4096).unwrap();
        (host, tempfile::tempfile().unwrap())
    }

    fn stored(host: &File, file: &File, bytes: u64) -> Stored {
        let sum = store((host, 4096), (file, 8192), bytes).unwrap();
        Stored {
            file: 1,
            at: 8192,
            bytes,
            sum,
        }
    }

    fn bytes(length: usize) -> Vec<u8> {
        let byte = |at: usize| u8::try_from((at * 7 + at / 251) % 256).unwrap();
        (0..length).map(byte).collect()
    }

    #[test]
    fn stored_bytes_come_back_as_they_were() {
        for length in [1, 4096, PART, PART + 1, 3 * PART + 77] {
            let all = bytes(length);
            let (host, file) = scene(&all);
            let one = stored(&host, &file, length as u64);
            host.write_all_at(&vec![0; length], 4096).unwrap();
            fetch(&file, one, (&host, 65536)).unwrap();
            let mut back = vec![0; length];
            host.read_exact_at(&mut back, 65536).unwrap();
            assert!(back == all, "{length} bytes");
        }
    }

    #[test]
    fn one_changed_bit_anywhere_is_found() {
        let length = PART + 4096;
        let (host, file) = scene(&bytes(length));
        let one = stored(&host, &file, length as u64);
        for at in [0, 1, 4095, PART - 1, PART, length - 1] {
            let mut byte = [0];
            file.read_exact_at(&mut byte, 8192 + at as u64).unwrap();
            file.write_all_at(&[byte[0] ^ 4], 8192 + at as u64).unwrap();
            let failed = fetch(&file, one, (&host, 0)).unwrap_err();
            assert!(matches!(failed, Failed::Sum { .. }), "{failed}");
            file.write_all_at(&byte, 8192 + at as u64).unwrap();
            fetch(&file, one, (&host, 0)).unwrap();
        }
        let other = Stored { at: 4096, ..one };
        assert!(fetch(&file, other, (&host, 0)).is_err(), "another place");
    }

    #[test]
    fn what_a_disk_keeps_for_root_is_no_room_for_a_users_file() {
        for (blocks, left, fits) in [(100, 8192, true), (100, 8191, false), (0, 0, true)] {
            assert_eq!(is_left(blocks, left, 8192), fits, "{blocks} {left}");
        }
        let file = tempfile::tempfile().unwrap();
        assert!(fits_users(&file, 4096).is_ok());
        let failed = fits_users(&file, u64::MAX).unwrap_err();
        assert!(failed.to_string().contains("No space"), "{failed}");
    }

    #[test]
    fn a_file_that_is_cut_short_is_an_error() {
        let (host, file) = scene(&bytes(8192));
        let one = stored(&host, &file, 8192);
        file.set_len(8192 + 4096).unwrap();
        let failed = fetch(&file, one, (&host, 0)).unwrap_err();
        assert!(matches!(failed, Failed::System(_)), "{failed}");
    }

    #[test]
    fn memory_that_takes_no_bytes_is_no_fault_of_the_file() {
        let (host, file) = scene(&bytes(8192));
        let one = stored(&host, &file, 8192);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let failed = fetch(&file, one, (&full, 0)).unwrap_err();
        assert!(matches!(failed, Failed::Host(_)), "{failed}");
        fetch(&file, one, (&host, 65536)).unwrap();
    }

    #[test]
    fn a_forgotten_place_is_the_disks_again() {
        let (host, file) = scene(&bytes(PART));
        stored(&host, &file, PART as u64);
        let blocks =
            |file: &File| std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
        assert!(blocks(&file) * 512 >= PART as u64);
        forget(&file, 8192, PART as u64).unwrap();
        assert_eq!(blocks(&file), 0);
    }
}
