//! How the library is named in `LD_PRELOAD`.
//!
//! musl's linker ends a program whose preload it cannot load, and it cannot load a glibc library.
//! glibc replaces `$LIB` in the path by its own library folder's name and musl does not. So a path
//! with `$LIB` that exists for every value is loaded by glibc and ignored by musl. The folder with
//! those paths lies beside the library, because it must outlive this run: processes left behind may
//! start others.

use crate::artefacts::INTERPOSER;
use crate::settings::Environment;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The dynamic linker's list of libraries to load first.
pub(crate) const VARIABLE: &str = "LD_PRELOAD";

/// The dynamic linker's list for every program.
pub(crate) const FILE: &str = "/etc/ld.so.preload";

/// Beside the library. Shipped in packages, made on first use in a build folder.
const FOLDER: &str = "gpushare-preload";

/// The values that `$LIB` may have: on Arch and Void, on Fedora and SUSE, on Debian and Ubuntu.
const LIBS: [&str; 4] = [
    "lib",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
];

/// The value of `LD_PRELOAD` that loads `library`: a path with `$LIB` if its folder exists or can
/// be made, else the plain path, about which musl's dynamic linker complains.
pub(crate) fn reference(library: &Path) -> PathBuf {
    let folder = library.with_file_name(FOLDER);
    match make_links(&folder, library) {
        Ok(()) => folder.join("$LIB").join(INTERPOSER),
        Err(_) => library.to_owned(),
    }
}

fn make_links(folder: &Path, library: &Path) -> io::Result<()> {
    for lib in LIBS {
        let link = folder.join(lib).join(INTERPOSER);
        if fs::canonicalize(&link).is_ok_and(|found| found == library) {
            continue;
        }
        fs::create_dir_all(folder.join(lib))?;
        let up = "../".repeat(1 + Path::new(lib).components().count());
        match symlink(Path::new(&up).join(INTERPOSER), &link) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Puts `library` first, the user's own preloads behind it. A sanitizer's runtime refuses to be
/// second, so it stays in front; another copy of our library goes.
pub(crate) fn insert(environment: &mut Environment, library: &Path) {
    let old = environment.remove(OsStr::new(VARIABLE)).unwrap_or_default();
    let kept = others(&old);
    let (first, rest): (Vec<&Path>, Vec<&Path>) = kept.partition(|entry| sanitizer(entry));
    let all: Vec<&OsStr> = first
        .into_iter()
        .chain([library])
        .chain(rest)
        .map(Path::as_os_str)
        .collect();
    environment.insert(VARIABLE.into(), all.join(OsStr::new(":")));
}

/// AddressSanitizer's settings, separated by colons (its runtime also takes commas and blanks).
const ASAN: &str = "ASAN_OPTIONS";
const LINK_ORDER: &str = "verify_asan_link_order";

/// Lets a program start whose AddressSanitizer is a library that it is linked with, as gcc does:
/// its runtime ends the program where another library is loaded before it.
pub(crate) fn allow_before_sanitizer(environment: &mut Environment) {
    let options = environment.entry(ASAN.into()).or_default();
    let given = options.as_bytes();
    if given
        .windows(LINK_ORDER.len())
        .any(|word| word == LINK_ORDER.as_bytes())
    {
        return;
    }
    if !given.is_empty() {
        options.push(":");
    }
    options.push(format!("{LINK_ORDER}=0"));
}

/// Takes our library out, for a program without gpushare. Its variables then mean nothing.
pub(crate) fn remove(environment: &mut Environment) {
    let Some(old) = environment.remove(OsStr::new(VARIABLE)) else {
        return;
    };
    let kept: Vec<&OsStr> = others(&old).map(Path::as_os_str).collect();
    if !kept.is_empty() {
        environment.insert(VARIABLE.into(), kept.join(OsStr::new(":")));
    }
}

/// Whether [`FILE`] loads our library into every program, as in a container with limits.
pub(crate) fn is_in_every_program() -> bool {
    fs::read(FILE).is_ok_and(|list| entries(&list).any(is_ours))
}

/// The libraries in a list that are not ours.
fn others(list: &OsStr) -> impl Iterator<Item = &Path> {
    entries(list.as_bytes()).filter(|entry| !is_ours(entry))
}

fn entries(list: &[u8]) -> impl Iterator<Item = &Path> {
    let entries = list.split(|byte| b": \n\t".contains(byte));
    let entries = entries.filter(|entry| !entry.is_empty());
    entries.map(|entry| Path::new(OsStr::from_bytes(entry)))
}

fn is_ours(entry: &Path) -> bool {
    entry.file_name() == Some(OsStr::new(INTERPOSER))
}

fn sanitizer(library: &Path) -> bool {
    let name = library.file_name().unwrap_or_default().to_string_lossy();
    [
        "libasan.so",
        "libtsan.so",
        "liblsan.so",
        "libubsan.so",
        "libclang_rt.",
    ]
    .iter()
    .any(|runtime| name.starts_with(runtime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_goes_first_and_the_users_own_are_kept() {
        for (old, new) in [
            (None, "/new/libgpushare.so"),
            (Some(""), "/new/libgpushare.so"),
            (Some("a.so b.so:c.so"), "/new/libgpushare.so:a.so:b.so:c.so"),
            (Some("a.so:/old/libgpushare.so"), "/new/libgpushare.so:a.so"),
            (
                Some("a.so:/usr/lib/libasan.so.8"),
                "/usr/lib/libasan.so.8:/new/libgpushare.so:a.so",
            ),
        ] {
            let mut environment: Environment = old
                .map(|old| (VARIABLE.into(), old.into()))
                .into_iter()
                .collect();
            insert(&mut environment, Path::new("/new/libgpushare.so"));
            assert_eq!(environment[OsStr::new(VARIABLE)], new, "{old:?}");
        }
    }

    #[test]
    fn without_gpushare_only_its_own_library_is_taken_out() {
        for (old, new) in [
            (None, None),
            (Some("/x/libgpushare.so"), None),
            (Some("a.so b.so"), Some("a.so:b.so")),
            (Some("/x/$LIB/libgpushare.so:a.so"), Some("a.so")),
        ] {
            let old = old.map(|old: &str| (VARIABLE.into(), old.into()));
            let mut environment: Environment = old.into_iter().collect();
            remove(&mut environment);
            let left = environment.get(OsStr::new(VARIABLE));
            assert_eq!(left.and_then(|left| left.to_str()), new);
        }
    }

    #[test]
    fn every_value_of_lib_leads_to_the_library() {
        let dir = tempfile::tempdir().unwrap();
        let library = fs::canonicalize(dir.path()).unwrap().join(INTERPOSER);
        fs::write(&library, "").unwrap();
        for _ in 0..2 {
            let reference = reference(&library);
            for lib in LIBS {
                let expanded = reference.to_str().unwrap().replace("$LIB", lib);
                assert_eq!(fs::canonicalize(expanded).unwrap(), library);
            }
        }
    }

    #[test]
    fn where_no_folder_can_be_made_the_plain_path_is_named() {
        let library = Path::new("/proc/self/no-such-folder/libgpushare.so");
        assert_eq!(reference(library), library);
    }
}
