//! `[containers]`: the node's rules for tenants that are containers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use gpushare_inject::{cdi, rules};
use gpushare_protocol::injection::DEVICE_FILE;
use gpushare_protocol::limits::{Limits, Maxima};
use gpushare_protocol::uuid::Uuid;
use serde::Deserialize;

use super::{NO_HOST, Variables};
use crate::containers::{Class, Containers, Rule, Unlimited};

/// A limit of memory.
const MEMORY: &str = "GPUSHARE_MEM_LIMIT";

/// The section as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Section {
    /// A container without a cgroup of its own.
    no_cgroup: NoCgroup,
    /// A container whose limits cannot be enforced.
    unenforceable: Unenforceable,
    /// A program that finds no daemon when it starts.
    on_daemon_loss: OnDaemonLoss,
    /// A container that has a GPU and asks for nothing.
    unlimited: UnlimitedWord,
    /// Maxima for some.
    rules: Vec<Row>,
    /// Where the CDI specification of the classes is kept current.
    cdi: Option<PathBuf>,
    /// The folder of the library that containers of classes get. The hook has an argument for it.
    library: Option<PathBuf>,
}

/// A class as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassRow {
    #[serde(default)]
    devices: Vec<String>,
    #[serde(default)]
    limits: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum NoCgroup {
    #[default]
    Refuse,
    Socket,
}

#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Unenforceable {
    #[default]
    Warn,
    Deny,
}

#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum OnDaemonLoss {
    #[default]
    Deny,
    Allow,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum UnlimitedWord {
    #[default]
    Allow,
    Deny,
    Maxima,
}

impl From<UnlimitedWord> for Unlimited {
    fn from(word: UnlimitedWord) -> Self {
        match word {
            UnlimitedWord::Allow => Self::Allow,
            UnlimitedWord::Deny => Self::Deny,
            UnlimitedWord::Maxima => Self::Maxima,
        }
    }
}

/// A rule as it is written: at least one of the first three.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    namespace: Option<String>,
    image: Option<String>,
    user: Option<String>,
    #[serde(default)]
    maxima: BTreeMap<String, String>,
    unlimited: Option<UnlimitedWord>,
}

impl Section {
    /// The rules, none of which is surely above the node's `maxima`, which hold beside them.
    pub(super) fn rules(
        &self,
        classes: &BTreeMap<String, ClassRow>,
        [defaults, maxima]: [&Variables; 2],
    ) -> Result<Containers, String> {
        for (name, path) in [("cdi", &self.cdi), ("library", &self.library)] {
            if let Some(path) = path.as_ref().filter(|path| !path.is_absolute()) {
                return Err(format!(
                    "[containers]: {name} = {path:?} is refused; accepted: an absolute path"
                ));
            }
        }
        let rows = self.rules.iter().zip(1..);
        let rules = rows.map(|(row, number)| {
            row.rule(maxima)
                .map_err(|why| format!("[[containers.rules]] number {number}: {why}"))
        });
        let rules = rules.collect::<Result<Vec<_>, _>>()?;
        refuse_hidden(&rules)?;
        Ok(Containers {
            without_cgroup: self.no_cgroup == NoCgroup::Socket,
            deny_unenforceable: self.unenforceable == Unenforceable::Deny,
            allow_without_daemon: self.on_daemon_loss == OnDaemonLoss::Allow,
            unlimited: self.unlimited.into(),
            rules,
            classes: classes
                .iter()
                .map(|(name, row)| row.class(name, [defaults, maxima]))
                .collect::<Result<_, _>>()?,
            cdi: self.cdi.clone(),
            library: self.library.clone(),
        })
    }
}

impl ClassRow {
    fn class(&self, name: &str, [defaults, maxima]: [&Variables; 2]) -> Result<Class, String> {
        let refused = |why: String| format!("[classes.{name}]: {why}");
        if !cdi::is_name(name) {
            return Err(refused(
                "it is no name of a class; accepted: 1 to 40 letters and digits, and _ - . inside"
                    .to_owned(),
            ));
        }
        if let Some(device) = self.devices.iter().find(|device| !names_device(device)) {
            return Err(refused(format!(
                "devices: {device:?} is refused; accepted: indices, UUIDs, device files such as {DEVICE_FILE}0, and all"
            )));
        }
        let environment: Variables = self.limits.clone().into_iter().collect();
        if let Some((name, value)) = environment.iter().find(|(name, _)| !Limits::reads(name)) {
            return Err(refused(format!(
                "{name} = {value:?} is refused: there is no such limit; accepted: the variables of a tenant's limits"
            )));
        }
        let failed = |error: gpushare_protocol::limits::LimitError| refused(error.to_string());
        let most = Maxima::read(pairs(maxima)).map_err(failed)?;
        let limits = Limits::from_env_under(pairs(&environment), pairs(defaults), most);
        if let Some(gang) = &limits.map_err(failed)?.policy().gang {
            return Err(refused(format!(
                "GPUSHARE_GANG = {gang:?} is refused: the containers of a class are not one job; accepted: GPUSHARE_GANG in the environment of the containers of one job"
            )));
        }
        Ok(Class {
            name: name.to_owned(),
            devices: self.devices.clone(),
            environment,
        })
    }
}

/// Whether a node may have a device of this name. Which devices it has is known once it runs.
fn names_device(name: &str) -> bool {
    let number = name.strip_prefix(DEVICE_FILE).unwrap_or(name);
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number || name == "all" || Uuid::parse(name, '-').is_some()
}

/// Refuses a class by which memory would move, on a node that has no host memory for it. `defaults`
/// and `maxima` are the node's.
pub(super) fn refuse_moves(
    classes: &[Class],
    defaults: &Variables,
    maxima: &Variables,
) -> Result<(), String> {
    for Class {
        name, environment, ..
    } in classes
    {
        let refused = |why: String| format!("[classes.{name}]: {why}");
        let failed = |error: gpushare_protocol::limits::LimitError| refused(error.to_string());
        let most = Maxima::read(pairs(maxima)).map_err(failed)?;
        let limits = Limits::from_env_under(pairs(environment), pairs(defaults), most);
        if let Some(error) = limits.map_err(failed)?.policy().refuse_moves(NO_HOST) {
            return Err(refused(error.to_string()));
        }
    }
    Ok(())
}

/// Refuses `unlimited = "maxima"` where neither maxima nor defaults limit memory: such a container
/// would be a tenant with the whole device.
pub(super) fn refuse_unlimited(
    containers: &Containers,
    defaults: &Variables,
    maxima: &Variables,
) -> Result<(), String> {
    let limits_memory =
        |all: &Variables| Limits::from_env(pairs(all)).is_ok_and(|all| all.limits_memory());
    if limits_memory(defaults) || limits_memory(maxima) {
        return Ok(());
    }
    let refused = |place: &str, sections: &str| {
        Err(format!(
            "{place}: unlimited = \"maxima\" is refused: nothing limits such a container's memory; accepted: with a {MEMORY} in {sections}"
        ))
    };
    if containers.unlimited == Unlimited::Maxima {
        return refused("[containers]", "[maxima] or [defaults]");
    }
    let mut rules = containers.rules.iter().zip(1..);
    let open = rules.find(|(rule, _)| {
        rule.unlimited == Some(Unlimited::Maxima) && !limits_memory(&rule.maxima)
    });
    match open {
        Some((_, number)) => refused(
            &format!("[[containers.rules]] number {number}"),
            "its maxima, [maxima] or [defaults]",
        ),
        None => Ok(()),
    }
}

fn pairs(all: &Variables) -> Vec<(OsString, OsString)> {
    let pair = |(name, value): &(String, String)| (name.into(), value.into());
    all.iter().map(pair).collect()
}

/// The forms in which a rule may name what it is about.
const NAMED: &str = "accepted: a name, or its beginning and *";
/// The same of a user, which a container's configuration has as a number.
const USER: &str = "accepted: the uid inside the container, such as 1000, or its beginning and *";

/// Refuses a pattern that fits no container: its rule would hold for none, in silence.
fn refuse_pattern(kind: &str, pattern: &str) -> Result<(), String> {
    let start = pattern.strip_suffix('*');
    let (text, is_whole) = (start.unwrap_or(pattern), start.is_none());
    let (fits_some, accepted) = match kind {
        "user" => (is_uid(text, is_whole), USER),
        _ => (!pattern.is_empty() && !text.contains('*'), NAMED),
    };
    match fits_some {
        true => Ok(()),
        false => Err(format!("{kind} = {pattern:?} is refused; {accepted}")),
    }
}

/// Refuses a rule of which an earlier one takes each container: it would hold for none, in silence.
fn refuse_hidden(rules: &[Rule]) -> Result<(), String> {
    let hidden = rules.iter().enumerate().find_map(|(at, rule)| {
        let mut earlier = rules.iter().take(at);
        let first = earlier.position(|first| rules::cover(&first.labels, &rule.labels))?;
        Some((rule, at + 1, first + 1))
    });
    let Some((rule, number, first)) = hidden else {
        return Ok(());
    };
    let labels = rule.labels.iter();
    let labels = labels.map(|(kind, pattern)| format!("{kind} = {pattern:?}"));
    let labels = labels.collect::<Vec<_>>().join(", ");
    Err(format!(
        "[[containers.rules]] number {number}: {labels} is refused: number {first} fits each of its containers, and the first rule that fits counts; accepted: before it"
    ))
}

/// Whether some uid is this text, or begins with it.
fn is_uid(text: &str, is_whole: bool) -> bool {
    match text.parse::<u32>() {
        Ok(uid) => uid.to_string() == text,
        Err(_) => text.is_empty() && !is_whole,
    }
}

impl Row {
    fn rule(&self, node: &Variables) -> Result<Rule, String> {
        let labels = [
            ("namespace", &self.namespace),
            ("image", &self.image),
            ("user", &self.user),
        ];
        let labels = labels
            .into_iter()
            .filter_map(|(kind, pattern)| Some((kind.to_owned(), pattern.clone()?)));
        let labels: Vec<_> = labels.collect();
        if labels.is_empty() {
            return Err(
                "it says of no container that it is about it; accepted: namespace, image, user"
                    .to_owned(),
            );
        }
        for (kind, pattern) in &labels {
            refuse_pattern(kind, pattern)?;
        }
        let own: Variables = self.maxima.clone().into_iter().collect();
        let failed = |error: gpushare_protocol::limits::LimitError| error.to_string();
        Maxima::read(pairs(&own)).map_err(failed)?;
        let node = Maxima::read(pairs(node)).map_err(failed)?;
        Limits::from_env_under(pairs(&own), [], node).map_err(failed)?;
        Ok(Rule {
            labels,
            maxima: own,
            unlimited: self.unlimited.map(Unlimited::from),
        })
    }
}
