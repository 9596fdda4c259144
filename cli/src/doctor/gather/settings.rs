//! Whether the next start of the machine's daemon would take its settings.

use crate::artefacts;
use crate::child::{GRACE, Group, end, text, within};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where the machine's daemon reads its settings, if its unit does not name a file.
const SETTINGS: &str = "/etc/gpushare/config.toml";
/// Longest to wait for systemd's answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The file that the machine's daemon reads at its next start. Nothing where systemd says nothing
/// of the unit.
pub(super) fn file() -> Option<PathBuf> {
    file_of(&shown()?)
}

/// Whether a rule for containers in the file asks for a namespace or an image. Of a file that this
/// user does not see, or that is wrong, nothing is known.
pub(super) fn has_pod_rules(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    let settings: Value = toml::from_str(&text).unwrap_or_default();
    let mut rules = settings["containers"]["rules"]
        .as_array()
        .into_iter()
        .flatten();
    rules.any(|rule| {
        ["namespace", "image"]
            .iter()
            .any(|key| !rule[key].is_null())
    })
}

/// Why a start would refuse the settings that are in the file now. The daemon that serves may have
/// others: it refused a reload, or was not told. Of a file that this user does not see nothing is
/// known.
pub(super) fn refused(file: &Path) -> Option<String> {
    let is_file = file.is_file() && File::open(file).is_ok();
    let mut check = Command::new(is_file.then(|| artefacts::find(artefacts::DAEMON).ok())??);
    check.arg("--config").arg(file).arg("--check-config");
    let done = check.stdin(Stdio::null()).output();
    let done = done.ok().filter(|done| done.status.code() == Some(78))?;
    let said = String::from_utf8_lossy(&done.stderr);
    Some(said.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The unit's program, as `systemctl show` prints it.
fn shown() -> Option<String> {
    let mut ask = Command::new("systemctl");
    ask.args(["show", "-p", "ExecStart", "gpushared.service"]);
    let ask = ask.stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = ask.stdout(Stdio::piped()).spawn().ok()?;
    if within(&mut child, PATIENCE).is_none() {
        end(&mut child, Group::Ours, GRACE);
        return None;
    }
    Some(text(child.stdout.take()))
}

/// The file that such a program reads. systemd shows a variable as it is written, and a blank
/// without quotes: no file has the path then, or the one that has it is taken.
fn file_of(shown: &str) -> Option<PathBuf> {
    let (_, arguments) = shown.split_once("argv[]=")?;
    let arguments = arguments.split(" ;").next()?;
    let mut words = arguments.split(' ');
    let named = words.find_map(|word| match word.strip_prefix("--config")? {
        "" => Some(None),
        rest => rest.strip_prefix('=').map(Some),
    });
    let file = match named {
        None => SETTINGS,
        Some(Some(file)) => file,
        Some(None) => words.next()?,
    };
    Some(Path::new(file).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_are_those_of_the_file_that_the_unit_names() {
        for (flags, file) in [
            ("", SETTINGS),
            (" --config /srv/a.toml", "/srv/a.toml"),
            (" --capacity 8GiB --config=/srv/b.toml", "/srv/b.toml"),
            (" --config ${CONF} --capacity 8GiB", "${CONF}"),
        ] {
            let shown = format!(
                "ExecStart={{ path=/usr/bin/gpushared ; argv[]=/usr/bin/gpushared{flags} ; \
                 ignore_errors=no ; pid=7 }}\n"
            );
            assert_eq!(file_of(&shown).unwrap(), Path::new(file));
        }
    }

    #[test]
    fn rules_for_pods_are_those_of_a_namespace_or_an_image() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        assert!(!has_pod_rules(&file));
        for (keys, is_pods) in [
            ("namespace = \"a\"", true),
            ("user = \"7\"\nimage = \"a/*\"", true),
            ("user = \"7\"", false),
            ("image = ", false),
        ] {
            let text =
                format!("[[containers.rules]]\nuser = \"1\"\n[[containers.rules]]\n{keys}\n");
            fs::write(&file, text).unwrap();
            assert_eq!(has_pod_rules(&file), is_pods, "{keys}");
        }
    }

    #[test]
    fn nothing_is_known_of_a_unit_that_systemd_does_not_know() {
        for shown in ["", "ExecStart=\n"] {
            assert_eq!(file_of(shown), None);
        }
    }
}
