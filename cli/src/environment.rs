//! `gpushare env`: the plan as shell commands or JSON.
//!
//! A shell cannot keep a registration with a daemon, so what is printed is what `run --daemon off`
//! sets. Inside a registered tenant the programs stay in that.

use crate::args::Env;
use crate::failure::Failure;
use crate::links::Links;
use crate::plan::{self, Plan};
use crate::settings::Environment;
use crate::{daemon, output, preload, registered};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::{env, fs};

/// Prints what differs from our own environment. The links of a software GPU are left behind: the
/// shell needs them.
pub(crate) fn print(arguments: Env) -> Result<ExitCode, Failure> {
    let inherited: Environment = env::vars_os().collect();
    let mut plan = plan::make(&arguments.share, inherited.clone())?;
    if !registered::inherited(&plan.environment) {
        let why = "a program that a shell starts has none; use `gpushare run`";
        registered::check_without_daemon(&arguments.share, &plan.limits, why)?;
        daemon::check_apart(&plan, "use `gpushare run` to join it")?;
        plan.tenant.mark(&mut plan.environment);
        lasting(&mut plan.environment);
        note_daemon(&plan);
    }
    let set: BTreeMap<&OsString, &OsString> = plan
        .environment
        .iter()
        .filter(|(name, value)| inherited.get(*name) != Some(value))
        .collect();
    let unset: Vec<&OsString> = inherited
        .keys()
        .filter(|name| !plan.environment.contains_key(*name))
        .collect();
    let text = if arguments.json {
        let set: BTreeMap<String, String> = set
            .into_iter()
            .map(|(name, value)| Ok((text(name)?, text(value)?)))
            .collect::<Result<_, Failure>>()?;
        let unset = unset
            .into_iter()
            .map(|name| text(name))
            .collect::<Result<Vec<_>, _>>()?;
        json!({ "set": set, "unset": unset }).to_string()
    } else {
        let exports = set
            .into_iter()
            .map(|(name, value)| Ok(format!("export {}={}", text(name)?, quote(&text(value)?))));
        let unsets = unset
            .into_iter()
            .map(|name| Ok(format!("unset {}", text(name)?)));
        exports
            .chain(unsets)
            .collect::<Result<Vec<_>, Failure>>()?
            .join("\n")
    };
    output::data(&text)?;
    if let Some(kept) = plan.links.and_then(Links::keep) {
        output::note(&format!(
            "the software GPU's links are in {}; remove it when you are done",
            kept.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Has the preload name the library's links to the version that is current, in place of today's
/// version: the shell maps neither, so that an upgrade would not know that its programs need that
/// one. Left as it is where these links are not there, or lead elsewhere.
fn lasting(environment: &mut Environment) {
    let Some(list) = environment.get_mut(OsStr::new(preload::VARIABLE)) else {
        return;
    };
    let named = list.to_str().unwrap_or_default();
    let entries = named.split(':').map(|entry| {
        let lasting = across_upgrades(entry);
        lasting.unwrap_or_else(|| entry.to_owned())
    });
    let entries: Vec<String> = entries.collect();
    if !named.is_empty() {
        *list = entries.join(":").into();
    }
}

/// The name across upgrades of a library that is named in the folder of its version:
/// `LIB/versions/V/gpushare-preload/$LIB/libgpushare.so` is `LIB/gpushare-preload/…`.
fn across_upgrades(entry: &str) -> Option<String> {
    let (folder, rest) = entry.split_once("/versions/")?;
    let (version, rest) = rest.split_once('/')?;
    let own = format!("{folder}/versions/{version}/{rest}");
    let lasting = format!("{folder}/{rest}");
    let leads = |path: &str| fs::canonicalize(path.replace("$LIB", "lib")).ok();
    let is_same = leads(&own).is_some() && leads(&own) == leads(&lasting);
    (rest.starts_with("gpushare-preload/") && is_same).then_some(lasting)
}

/// After a failure of `env` with shell commands: the shell command `false`. `eval "$(gpushare env
/// …)"` loses our exit status and would succeed with nothing set, that is, without a limit.
pub(crate) fn fail_shell() {
    if env::args_os().nth(1).is_some_and(|name| name == "env") {
        // Standard output may be closed; our exit status says the same.
        let _ = output::data("false");
    }
}

/// Says that the machine's daemon will not know of the programs.
fn note_daemon(plan: &Plan) {
    if plan.gpu.is_real() && daemon::is_on_machine() {
        output::note(
            "note: this machine's daemon will not know of programs that are started so: nothing is guaranteed to them, and their \
             limits are kept by the library alone; `gpushare run` registers a program",
        );
    }
}

fn text(text: &OsStr) -> Result<String, Failure> {
    text.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::ours(format!(
            "{} is no UTF-8, so it cannot be printed; use `gpushare run`",
            text.display()
        ))
    })
}

/// A value as one POSIX shell word.
fn quote(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_value_is_one_shell_word() {
        for value in ["", "a b", "$HOME `id` \"x\"", "it's", "a\nb"] {
            let shell = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quote(value))])
                .output();
            assert_eq!(shell.unwrap().stdout, value.as_bytes());
        }
    }

    #[test]
    fn a_shell_names_the_current_version_and_not_the_one_of_today() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| format!("{}/{path}", folder.path().display());
        let links = |place: &str, to: &str| {
            let path = at(&format!("{place}gpushare-preload/lib"));
            fs::create_dir_all(&path).unwrap();
            std::os::unix::fs::symlink(at(to), format!("{path}/libgpushare.so")).unwrap();
        };
        for version in ["versions/1/", "versions/2/"] {
            let library = format!("{version}libgpushare.so");
            links(version, &library);
            fs::write(at(&library), "").unwrap();
        }
        let named = |place: &str| at(&format!("{place}gpushare-preload/$LIB/libgpushare.so"));
        let printed = |entry: String| {
            let list = format!("/a/libasan.so:{entry}:b.so");
            let mut environment = Environment::from([(preload::VARIABLE.into(), list.into())]);
            lasting(&mut environment);
            let list = environment[OsStr::new(preload::VARIABLE)].to_str().unwrap();
            let entry = list.strip_prefix("/a/libasan.so:").unwrap();
            entry.strip_suffix(":b.so").unwrap().to_owned()
        };
        // An installation of before has no such links.
        assert_eq!(printed(named("versions/1/")), named("versions/1/"));
        links("", "versions/1/libgpushare.so");
        assert_eq!(printed(named("versions/1/")), named(""));
        for other in [
            named("versions/2/"),
            named(""),
            "/x/libgpushare.so".to_owned(),
        ] {
            assert_eq!(printed(other.clone()), other);
        }
        let mut none = Environment::new();
        lasting(&mut none);
        assert!(none.is_empty());
    }
}
