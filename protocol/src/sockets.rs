//! Sockets in folders whose path is too long for a socket's address.
//!
//! The kernel takes 107 bytes (`sockaddr_un`, unix(7)). A runtime folder, a GPU world's name and a
//! tenant's name of 64 bytes are longer together; such a socket is reached through a descriptor
//! of its folder.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest path of a socket in bytes: `sun_path` less its closing zero.
const LONGEST: usize = 107;

/// Calls `with` with a path of the socket `name` in `folder` that an address can hold. Valid during
/// the call only.
///
/// # Errors
/// If the folder cannot be opened, and whatever `with` returns.
pub fn at<T>(
    folder: &Path,
    name: &str,
    with: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let path = folder.join(name);
    if path.as_os_str().as_bytes().len() <= LONGEST {
        return with(&path);
    }
    let held = File::open(folder)?;
    with(&PathBuf::from(format!(
        "/proc/self/fd/{}/{name}",
        held.as_raw_fd()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_socket_is_reached_however_long_its_folders_path() {
        let dir = tempfile::tempdir().unwrap();
        for depth in [0, 1, 5] {
            let folder = dir.path().join("f".repeat(40 * depth));
            std::fs::create_dir_all(&folder).unwrap();
            let listener = at(&folder, "a.sock", |path| UnixListener::bind(path)).unwrap();
            assert!(folder.join("a.sock").exists());
            let mut caller = at(&folder, "a.sock", |path| UnixStream::connect(path)).unwrap();
            caller.write_all(b"x").unwrap();
            let mut heard = [0];
            listener.accept().unwrap().0.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"x");
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        for length in [1, 200] {
            let folder = Path::new("/nonexistent").join("f".repeat(length));
            let error = at(&folder, "a.sock", |path| UnixStream::connect(path)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }
}
