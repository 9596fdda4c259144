//! Mounts as descriptors: of a thing of the host, detached, and put into another mount namespace.
//!
//! # Safety
//! System calls that have no safe wrapper, on a descriptor and a structure that outlive them, or on
//! numbers.
#![allow(
    unsafe_code,
    reason = "mount_setattr and setfsuid have no safe wrapper"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use gpushare_inject::{Mount, Place};
use gpushare_protocol::injection::{LIBRARY_NAME, is_open};
use rustix::fs::{
    FileType, Mode, OFlags, ResolveFlags, StatVfsMountFlags, fstat, fstatvfs, open, openat2,
};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::thread::{
    LinkNameSpaceType, ThreadNameSpaceType, move_into_link_name_space, move_into_thread_name_spaces,
};

use crate::bundle::trust_hosts;
use crate::{Failure, cannot};

/// A thing of the host as a mount that is nowhere yet: read-only, without devices and set-user-id
/// programs, and private.
///
/// # Errors
/// If it is not there, not of root or this user, the library's folder without a library that
/// programs of all users can load, an empty file, or the kernel lacks the calls (5.12).
pub fn detached(mount: &Mount) -> Result<OwnedFd, Failure> {
    let source = &mount.source;
    let mut flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let kind = match mount.place.is_folder {
        true => FileType::Directory,
        false => FileType::RegularFile,
    };
    if mount.place.is_folder {
        flags |= OFlags::DIRECTORY;
    }
    let held =
        open(Path::new(source), flags, Mode::empty()).map_err(cannot(&format!("open {source}")))?;
    trust_hosts(&held, kind, source)?;
    if !mount.place.is_folder {
        says_something(&held, source)?;
    }
    if mount.place == Place::LIBRARY {
        holds_library(&held, source)?;
    }
    // The flag for an empty path is AT_EMPTY_PATH, as for the other calls.
    let empty = OpenTreeFlags::from_bits_retain(libc::AT_EMPTY_PATH.cast_unsigned());
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | empty;
    let tree = open_tree(&held, "", flags).map_err(cannot(&format!("take {source} as a mount")))?;
    restrict(tree.as_fd()).map_err(cannot(&format!(
        "mount {source} read-only (mount_setattr, since Linux 5.12)"
    )))?;
    Ok(tree)
}

/// Whether this is a folder of the host from which each program can load the library.
///
/// # Errors
/// As [`detached`].
pub fn is_library(folder: &str) -> Result<(), Failure> {
    // An engine follows a link.
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let held =
        open(Path::new(folder), flags, Mode::empty()).map_err(cannot(&format!("open {folder}")))?;
    trust_hosts(&held, FileType::Directory, folder)?;
    holds_library(&held, folder)
}

/// Refuses a folder from which not every program of the container could load the library: the
/// dynamic linker would start it without, and so without limits.
fn holds_library(folder: &OwnedFd, source: &str) -> Result<(), Failure> {
    let name = format!("{source}/{LIBRARY_NAME}");
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    // A link that leads out of the folder leads to nothing in the container.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let library = openat2(folder, LIBRARY_NAME, flags, Mode::empty(), resolve)
        .map_err(cannot(&format!("open {name}")))?;
    trust_hosts(&library, FileType::RegularFile, &name)?;
    for (held, name, is_folder) in [(folder, source, true), (&library, name.as_str(), false)] {
        let found = fstat(held).map_err(cannot(&format!("look at {name}")))?;
        is_open(name, found.st_mode, is_folder).map_err(Failure)?;
    }
    may_be_mapped(&library, &name)
}

/// Refuses a library on a file system without programs: a mount of it has the option, too.
fn may_be_mapped(library: &OwnedFd, name: &str) -> Result<(), Failure> {
    let found = fstatvfs(library).map_err(cannot(&format!("look at {name}")))?;
    match found.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        true => Err(Failure(format!(
            "{name} is on a file system that is mounted with noexec: programs could not load it and would run without limits"
        ))),
        false => Ok(()),
    }
}

/// Refuses a preload file without a line, which the daemon had no room to write: no program of the
/// container would load the library.
fn says_something(file: &OwnedFd, source: &str) -> Result<(), Failure> {
    let found = fstat(file).map_err(cannot(&format!("look at {source}")))?;
    match found.st_size {
        0 => Err(Failure(format!(
            "{source} is empty: programs of the container would run without limits"
        ))),
        _ => Ok(()),
    }
}

/// Puts a detached mount over what `target` is.
///
/// # Errors
/// If the kernel refuses.
pub fn attach(tree: &OwnedFd, target: &OwnedFd, name: &str) -> Result<(), Failure> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", target, "", flags).map_err(cannot(&format!("mount {name}")))
}

/// The mount namespace that this process is in.
///
/// # Errors
/// If `/proc` does not tell.
pub fn own_namespace() -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    open("/proc/self/ns/mnt", flags, Mode::empty()).map_err(cannot("open this mount namespace"))
}

/// Moves this process, which has one thread, into a mount namespace.
///
/// # Errors
/// If this process may not.
pub fn enter(namespace: &OwnedFd) -> Result<(), Failure> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(cannot("enter a mount namespace"))
}

/// Moves this process, which has one thread, into the mount namespace of the process of a pidfd.
///
/// # Errors
/// If that process has ended, or this process may not.
pub fn enter_that_of(process: &OwnedFd) -> Result<(), Failure> {
    move_into_thread_name_spaces(process.as_fd(), ThreadNameSpaceType::MOUNT)
        .map_err(cannot("enter the container's mount namespace"))
}

/// Takes a step on files as another user, who may do less.
pub fn as_user<T>(user: u32, group: u32, step: impl FnOnce() -> T) -> T {
    // SAFETY: no memory is involved; the thread's own user for files is put back below.
    let (own_group, own) = unsafe { (libc::setfsgid(group), libc::setfsuid(user)) };
    let done = step();
    // SAFETY: as above.
    unsafe {
        libc::setfsuid(own.cast_unsigned());
        libc::setfsgid(own_group.cast_unsigned());
    }
    done
}

/// Read-only, no devices, no set-user-id programs, no propagation: `mount_setattr(2)`.
fn restrict(tree: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    // SAFETY: an empty C string and a structure that outlive the call, of the size that it says.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn an_empty_preload_file_is_refused_and_one_with_a_line_is_not() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("ld.so.preload");
        for (text, refused) in [("", true), ("/usr/lib/gpushare/libgpushare.so\n", false)] {
            std::fs::write(&path, text).unwrap();
            let file = std::fs::File::open(&path).unwrap().into();
            let told = says_something(&file, "it");
            assert_eq!(told.is_err_and(|why| why.0.contains("is empty")), refused);
        }
    }
}
