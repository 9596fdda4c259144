//! `[containers]`: the node's rules for tenants that are containers.

use std::collections::BTreeMap;
use std::ffi::OsString;

use gpushare_protocol::limits::{Limits, Maxima};
use serde::Deserialize;

use super::Variables;
use crate::containers::{Containers, Rule};

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
    /// Maxima for some.
    rules: Vec<Row>,
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

/// A rule as it is written: at least one of the first three.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    namespace: Option<String>,
    image: Option<String>,
    user: Option<String>,
    #[serde(default)]
    maxima: BTreeMap<String, String>,
}

impl Section {
    /// The rules, none of which allows more than the node's `maxima`.
    pub(super) fn rules(&self, maxima: &Variables) -> Result<Containers, String> {
        let rules = self.rules.iter().zip(1..);
        let rules = rules.map(|(row, number)| {
            row.rule(maxima)
                .map_err(|why| format!("[[containers.rules]] number {number}: {why}"))
        });
        Ok(Containers {
            without_cgroup: self.no_cgroup == NoCgroup::Socket,
            deny_unenforceable: self.unenforceable == Unenforceable::Deny,
            allow_without_daemon: self.on_daemon_loss == OnDaemonLoss::Allow,
            rules: rules.collect::<Result<_, _>>()?,
        })
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
            return Err("it says of no container that it is about it; accepted: namespace, image, user, each a name or its beginning and *".to_owned());
        }
        let pairs = |all: &Variables| -> Vec<(OsString, OsString)> {
            let pair = |(name, value): &(String, String)| (name.into(), value.into());
            all.iter().map(pair).collect()
        };
        let own: Variables = self.maxima.clone().into_iter().collect();
        let failed = |error: gpushare_protocol::limits::LimitError| error.to_string();
        Maxima::read(pairs(&own)).map_err(failed)?;
        let node = Maxima::read(pairs(node)).map_err(failed)?;
        Limits::from_env_under(pairs(&own), [], node).map_err(failed)?;
        Ok(Rule {
            labels,
            maxima: own,
        })
    }
}
