//! The node's rules for tenants that are containers: `[containers]` of `config.toml`.

use std::path::PathBuf;

use gpushare_inject::rules;
use gpushare_protocol::limits;
use gpushare_protocol::wire::{Injection, Linkage};

/// The operator's settings for containers.
#[derive(Clone, Debug, Default)]
pub struct Containers {
    /// A container that shares its cgroup with its runtime is known by its socket alone, instead of
    /// being refused.
    pub without_cgroup: bool,
    /// A container whose first program no library can be preloaded into is refused, instead of
    /// being reported.
    pub deny_unenforceable: bool,
    /// A program that finds no daemon for ten seconds starts without limits, instead of without
    /// CUDA.
    pub allow_without_daemon: bool,
    /// What becomes of a container that has a GPU and asks for nothing.
    pub unlimited: Unlimited,
    /// Further maxima, for containers of a namespace, an image or a user.
    pub rules: Vec<Rule>,
    /// Static classes: the devices and limits of every container that is given one.
    pub classes: Vec<Class>,
    /// The CDI specification that names the classes, kept current.
    pub cdi: Option<PathBuf>,
    /// The folder of the library that containers of classes get. The hook has an argument for it.
    pub library: Option<PathBuf>,
}

/// What becomes of a container that has a GPU and asks for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unlimited {
    /// It runs without limits.
    #[default]
    Allow,
    /// It is refused.
    Deny,
    /// It is a tenant with the maxima as its limits.
    Maxima,
}

impl Unlimited {
    /// As the settings say it.
    fn word(self) -> &'static str {
        match self {
            Self::Allow => rules::ALLOW,
            Self::Deny => "deny",
            Self::Maxima => "maxima",
        }
    }
}

/// A class of containers, each of which gets the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Its name, as CDI names a device.
    pub name: String,
    /// Its devices, by index, UUID or `all`.
    pub devices: Vec<String>,
    /// The variables that say its limits.
    pub environment: Vec<(String, String)>,
}

/// Maxima for some containers. The first rule that fits counts.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// `(kind, pattern)`: all of them have to fit the container's labels. A pattern may end in `*`.
    pub labels: Vec<(String, String)>,
    /// The maxima, as variables; those of the node hold beside them.
    pub maxima: Vec<(String, String)>,
    /// What becomes of one that asks for nothing, if that is said here.
    pub unlimited: Option<Unlimited>,
}

impl Rule {
    fn fits(&self, labels: &[(String, String)]) -> bool {
        rules::fit(&self.labels, labels)
    }

    /// See [`Containers::exempts`].
    fn exempts(&self) -> bool {
        let mut kinds = self.labels.iter().map(|(kind, _)| kind.as_str());
        let is_of_engine = kinds.any(|kind| kind == "namespace" || kind == "image");
        self.unlimited == Some(Unlimited::Allow) && is_of_engine
    }
}

impl Containers {
    /// The maxima of a container with these labels, on a node with these, which hold beside them. A
    /// rule's for all devices takes the place also of the node's for one.
    #[must_use]
    pub fn maxima(
        &self,
        node: &[(String, String)],
        labels: &[(String, String)],
    ) -> Vec<(String, String)> {
        let mut all = node.to_vec();
        if let Some(rule) = self.rule(labels) {
            let replaced = |name: &str| {
                let mut own = rule.maxima.iter();
                own.any(|(own, _)| limits::replaces(own, name, &[]))
            };
            all.retain(|(name, _)| !replaced(name));
            all.extend(rule.maxima.iter().cloned());
        }
        all
    }

    fn rule(&self, labels: &[(String, String)]) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.fits(labels))
    }

    /// What becomes of a container with these labels that has a GPU and asks for nothing.
    #[must_use]
    pub fn unlimited(&self, labels: &[(String, String)]) -> Unlimited {
        let ruled = self.rule(labels).and_then(|rule| rule.unlimited);
        ruled.unwrap_or(self.unlimited)
    }

    /// Whether a rule's own word lets a container with these labels run as it is, so that its
    /// processes are not ended either: by its namespace or its image, which the engine says. The
    /// node's own word is about no container in particular, and its user a container chooses.
    #[must_use]
    pub fn exempts(&self, labels: &[(String, String)]) -> bool {
        self.rule(labels).is_some_and(Rule::exempts)
    }

    /// The text that tells hooks what becomes of a container that has a GPU and asks for nothing,
    /// for the time in which no daemon answers. `None` if each may run without limits, and the
    /// daemon need not know which of them a rule means.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let of = |rule: &Rule| rule.unlimited.unwrap_or(self.unlimited);
        let ruled = self.rules.iter().map(|rule| (&*rule.labels, of(rule)));
        let all = ruled.chain([(&[][..], self.unlimited)]);
        let mut words = all.clone().map(|(_, word)| word);
        let is_mandatory = words.any(|word| word != Unlimited::Allow);
        let exempts = self.rules.iter().any(Rule::exempts);
        (is_mandatory || exempts)
            .then(|| rules::text(all.map(|(labels, word)| (labels, word.word()))))
    }

    /// Why this container's limits could not be enforced, if so.
    #[must_use]
    pub fn unenforceable(injection: &Injection) -> Option<&'static str> {
        match injection.linkage {
            Linkage::Musl => Some(
                "its first program is linked against musl, which preloads nothing from /etc/ld.so.preload",
            ),
            Linkage::Static => {
                Some("its first program is static, so that nothing can be preloaded into it")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        all.iter().map(pair).collect()
    }

    #[test]
    fn a_rules_maximum_takes_the_place_of_that_device_in_any_spelling() {
        let own = "GPUSHARE_MEM_LIMIT_MIG_a932f937_d72c_4106_c12f_20bd9faed9f6";
        let containers = Containers {
            rules: vec![Rule {
                labels: pairs(&[("namespace", "a")]),
                maxima: pairs(&[(own, "1GiB")]),
                unlimited: None,
            }],
            ..Containers::default()
        };
        let same = "GPUSHARE_MEM_LIMIT_GPU_A932F937_d72c_4106_c12f_20bd9faed9f6";
        let other = "GPUSHARE_MEM_LIMIT_GPU_b932f937_d72c_4106_c12f_20bd9faed9f6";
        let node = [
            ("GPUSHARE_MEM_LIMIT", "8GiB"),
            (same, "4GiB"),
            (other, "4GiB"),
        ];
        let found = containers.maxima(&pairs(&node), &pairs(&[("namespace", "a")]));
        assert_eq!(found, pairs(&[node[0], node[2], (own, "1GiB")]));
    }

    #[test]
    fn the_first_rule_that_fits_gives_the_maxima() {
        let rule = |labels: &[(&str, &str)], most: &str| Rule {
            labels: pairs(labels),
            maxima: pairs(&[("GPUSHARE_MEM_LIMIT", most)]),
            unlimited: None,
        };
        let containers = Containers {
            rules: vec![
                rule(&[("namespace", "a"), ("image", "docker.io/lab/*")], "1GiB"),
                rule(&[("namespace", "a")], "2GiB"),
                rule(&[("user", "1000")], "3GiB"),
            ],
            ..Containers::default()
        };
        let node = pairs(&[("GPUSHARE_MEM_LIMIT", "8GiB"), ("GPUSHARE_PRIORITY", "600")]);
        for (labels, most) in [
            (
                &[("namespace", "a"), ("image", "docker.io/lab/x:1")][..],
                "1GiB",
            ),
            (&[("namespace", "a"), ("image", "docker.io/other")], "2GiB"),
            (&[("namespace", "ab"), ("user", "1000")], "3GiB"),
            (&[("namespace", "ab")], "8GiB"),
            (&[], "8GiB"),
        ] {
            let found = containers.maxima(&node, &pairs(labels));
            let of = |name: &str| found.iter().find(|(known, _)| known == name).unwrap();
            assert_eq!(of("GPUSHARE_MEM_LIMIT").1, most, "{labels:?}");
            assert_eq!(of("GPUSHARE_PRIORITY").1, "600");
            assert_eq!(found.len(), 2);
        }
    }
}
