//! `GPUSHARE_LOG`, tried before a program starts: the library itself is silent where it cannot open
//! what the variable names, and a fault that is looked for would seem not to be there.

use crate::settings::Environment;
use gpushare_protocol::limits::LimitError;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The variable.
const LOG: &str = "GPUSHARE_LOG";

/// Refuses a value that the library could not open. Opens as the library does, so a file that is
/// not there is made.
pub(crate) fn check(environment: &Environment) -> Result<(), LimitError> {
    let value = environment.get(OsStr::new(LOG));
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    let number = value.to_str().and_then(|text| text.parse::<i32>().ok());
    let problem = match number {
        Some(number) if Path::new(&format!("/proc/self/fd/{number}")).exists() => return Ok(()),
        Some(_) => "no such descriptor is open".to_owned(),
        None => match opens(Path::new(value)) {
            Ok(()) => return Ok(()),
            Err(error) => format!("it cannot be opened to append: {error}"),
        },
    };
    Err(LimitError {
        variable: LOG.to_owned(),
        value: value.to_string_lossy().into_owned(),
        problem,
        accepted: "a path, or the number of an open descriptor".to_owned(),
    })
}

/// Does not wait for the reader of a pipe.
fn opens(path: &Path) -> Result<(), Error> {
    let mut options = File::options();
    options.append(true).create(true).mode(0o600);
    options.custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY);
    match options.open(path) {
        Err(error) if error.raw_os_error() == Some(nix::libc::ENXIO) => Ok(()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        opened => opened.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str) -> Result<(), String> {
        let environment = [(LOG.into(), value.into())].into();
        super::check(&environment).map_err(|error| error.to_string())
    }

    #[test]
    fn a_log_that_cannot_be_opened_is_refused_by_its_variable() {
        for (value, why) in [
            ("/nonexistent/x", "No such file"),
            ("/", "Is a directory"),
            ("987654", "no such descriptor"),
        ] {
            let refused = check(value).unwrap_err();
            let begins = format!("{LOG}={value:?} ");
            assert!(
                refused.starts_with(&begins) && refused.contains(why),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_log_that_can_be_opened_is_taken_and_so_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        std::fs::write(&file, "kept").unwrap();
        for value in ["", "2", &file.to_string_lossy(), "/dev/null"] {
            check(value).unwrap();
        }
        assert_eq!(std::fs::read(file).unwrap(), b"kept");
        assert!(super::check(&Environment::new()).is_ok());
    }
}
