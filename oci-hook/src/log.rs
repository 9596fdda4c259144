//! The file in which an engine looks for the reason why a call of its runtime failed. containerd's
//! shim and Podman's conmon tell what is there; what the runtime writes to its standard error is
//! the container's own output for them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::OFlags;

use crate::wrapper::has_value;

/// Where the call of a runtime has its failures written, and in which form.
#[derive(Debug, PartialEq, Eq)]
pub struct Log {
    file: PathBuf,
    json: bool,
}

impl Log {
    /// The log that the options before the subcommand name; `None` where they name no file.
    #[must_use]
    pub fn of(arguments: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut arguments = arguments.into_iter();
        let (mut file, mut json) = (None, false);
        while let Some(argument) = arguments.next() {
            let text = argument.as_bytes();
            if !text.starts_with(b"-") {
                break;
            }
            let sign = text.iter().position(|byte| *byte == b'=');
            let (option, value) = match sign {
                Some(at) => (&text[..at], Some(OsStr::from_bytes(&text[at + 1..]).into())),
                None if has_value(text) => (text, arguments.next()),
                None => (text, None),
            };
            match (option, value) {
                (b"--log" | b"-log" | b"-l", Some(value)) => file = path(&value),
                (b"--log-format" | b"-log-format", Some(value)) => json = value == "json",
                _ => {}
            }
        }
        file.map(|file| Self { file, json })
    }

    /// Adds an error as runc writes it.
    ///
    /// # Errors
    /// If the file cannot be written, also where it is a pipe that nothing reads.
    pub fn add(&self, message: &str) -> io::Result<()> {
        let time = jiff::Timestamp::now().as_second();
        let time = jiff::Timestamp::from_second(time).map_err(io::Error::other)?;
        let line = if self.json {
            serde_json::json!({"level": "error", "msg": message, "time": time.to_string()})
                .to_string()
        } else {
            let message = message.replace('\\', "\\\\").replace('"', "\\\"");
            format!("time=\"{time}\" level=error msg=\"{message}\"")
        };
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut file = File::options()
            .append(true)
            .create(true)
            .mode(0o644)
            .custom_flags(flags.bits().cast_signed())
            .open(&self.file)?;
        file.write_all(format!("{line}\n").as_bytes())
    }
}

/// The file that a value of the option means: crun has other places too, as in `journald:NAME`.
fn path(value: &OsStr) -> Option<PathBuf> {
    let text = value.as_bytes();
    let elsewhere = [&b"journald:"[..], b"syslog:"];
    if text.is_empty() || elsewhere.iter().any(|place| text.starts_with(place)) {
        return None;
    }
    let text = text.strip_prefix(b"file:").unwrap_or(text);
    Some(OsStr::from_bytes(text).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_named_by_the_options_before_the_subcommand() {
        for (arguments, expected) in [
            (
                &["--log", "/l", "--log-format", "json", "create"][..],
                Some(("/l", true)),
            ),
            (
                &["--log-format=json", "--log=/l", "create"],
                Some(("/l", true)),
            ),
            (
                &["-log", "/l", "-log-format", "text", "run"],
                Some(("/l", false)),
            ),
            (
                &["--gpushare-runtime=/r", "-l", "l", "create"],
                Some(("l", false)),
            ),
            (
                &["--root", "--log=/x", "--log", "/l", "run"],
                Some(("/l", false)),
            ),
            (&["--log=file:/l", "create"], Some(("/l", false))),
            (&["--log=journald:c1", "create"], None),
            (
                &["--log-format", "json", "create", "--log", "/l", "id"],
                None,
            ),
            (&["create", "--bundle", "/b", "id"], None),
            (&["--log"], None),
            (&[], None),
        ] {
            let expected = expected.map(|(file, json)| Log {
                file: file.into(),
                json,
            });
            let found = Log::of(arguments.iter().map(OsString::from));
            assert_eq!(found, expected, "{arguments:?}");
        }
    }
}
