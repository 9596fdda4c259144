//! The file of settings: whether there is one, and its text.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Whether there is no such file. One that cannot be reached is there: behind a link that leads
/// nowhere, or in a folder that the daemon may not enter. What it says would be lost in silence.
#[must_use]
pub fn is_absent(file: &Path) -> bool {
    let is_missing = |path: &Path| {
        let found = fs::symlink_metadata(path);
        found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    let folder = file.parent().filter(|folder| !folder.is_dir());
    // In a folder that is a link to nothing, no file is found either.
    is_missing(file) && folder.is_none_or(is_missing)
}

/// Its text.
///
/// # Errors
/// A sentence that names the file and, if it is or lies behind a link, where that leads.
pub fn text(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| {
        let mut paths = [Some(file), file.parent()].into_iter().flatten();
        let link = paths.find_map(|path| Some((path, fs::read_link(path).ok()?)));
        let leads = link.map(|(path, to)| format!(" ({} -> {})", path.display(), to.display()));
        let leads = leads.unwrap_or_default();
        format!("cannot read {}{leads}: {error}", file.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_behind_a_link_that_leads_nowhere_is_there_and_named() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let file = at("etc/config.toml");
        assert!(is_absent(&file), "its folder is not there");
        fs::create_dir(at("etc")).unwrap();
        assert!(is_absent(&file));
        symlink(at("share/config.toml"), &file).unwrap();
        assert!(!is_absent(&file));
        let refused = text(&file).unwrap_err();
        assert!(refused.contains("share/config.toml): No such"), "{refused}");
        // The same of its folder.
        fs::remove_dir_all(at("etc")).unwrap();
        symlink(at("share"), at("etc")).unwrap();
        assert!(!is_absent(&file));
        let refused = text(&file).unwrap_err();
        assert!(refused.contains("etc -> ") && refused.contains("share): No such"));
        fs::create_dir(at("share")).unwrap();
        assert!(is_absent(&file), "the link leads to an empty folder");
        fs::write(at("share/config.toml"), "reserve = \"0\"").unwrap();
        assert!(!is_absent(&file));
        assert_eq!(text(&file).unwrap(), "reserve = \"0\"");
    }
}
