//! Labels of SELinux, as far as confined containers need them.

use gpushare_protocol::injection::{is_containers_type, selinux_type};
use rustix::fs::getxattr;
use std::fs;
use std::path::{Path, PathBuf};

/// The longest label that is read.
const MOST: usize = 4096;

/// Which of these are there, and are of a type that not every container may read: with their types.
/// None where SELinux does not enforce, by this file.
pub(super) fn unread(enforces: &Path, paths: &[PathBuf]) -> Vec<(PathBuf, String)> {
    if !fs::read(enforces).is_ok_and(|text| text.starts_with(b"1")) {
        return Vec::new();
    }
    let there = paths.iter().filter(|path| path.exists());
    let labelled = there.map(|path| (path.clone(), type_of(path)));
    labelled
        .filter(|(_, kind)| !is_containers_type(kind))
        .collect()
}

fn type_of(path: &Path) -> String {
    let mut label = vec![0; MOST];
    let length = getxattr(path, "security.selinux", &mut label[..]).unwrap_or(0);
    label.truncate(length);
    let label = String::from_utf8_lossy(&label);
    selinux_type(&label).unwrap_or("no type").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_type_of_containers_is_found_where_selinux_enforces() {
        let place = tempfile::tempdir().unwrap();
        let [enforce, file] = ["enforce", "file"].map(|name| place.path().join(name));
        let paths = [file.clone(), place.path().join("absent")];
        for (says, found) in [(None, 0), (Some("0"), 0), (Some("1"), 1)] {
            if let Some(says) = says {
                fs::write(&enforce, says).unwrap();
                fs::write(&file, "").unwrap();
            }
            assert_eq!(unread(&enforce, &paths).len(), found, "{says:?}");
        }
        let kind = type_of(&file);
        assert_eq!(unread(&enforce, &paths), [(file, kind)]);
    }
}
