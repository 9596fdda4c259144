//! The daemon's rules about containers that have a GPU and ask for nothing, as it tells them to
//! hooks for the time in which it does not answer ([ADR
//! 251](../../../docs/adr/0251-what-a-rule-allows-runs-without-the-daemon.md)).

use serde_json::{Map, Value, json};

use crate::strict;

/// The key of all rules.
const RULES: &str = "rules";
/// The key of a rule's word.
const UNLIMITED: &str = "unlimited";
/// The word by which such a container may run as it is.
pub const ALLOW: &str = "allow";
/// All words.
const WORDS: [&str; 3] = [ALLOW, "deny", "maxima"];
/// The kinds of labels that a rule's patterns are for.
const KINDS: [&str; 3] = ["namespace", "image", "user"];

/// Patterns and labels, each with its kind.
type Pairs = Vec<(String, String)>;

/// Whether all these patterns, `(kind, pattern)`, fit a container's labels. A pattern may end in
/// `*`.
#[must_use]
pub fn fit(patterns: &[(String, String)], labels: &[(String, String)]) -> bool {
    patterns.iter().all(|(kind, pattern)| {
        let mut values = labels.iter().filter(|(of, _)| of == kind);
        values.any(|(_, value)| fits(pattern, value))
    })
}

/// Whether these patterns fit each container that the `others` fit.
#[must_use]
pub fn cover(patterns: &[(String, String)], others: &[(String, String)]) -> bool {
    patterns.iter().all(|(kind, pattern)| {
        let mut others = others.iter().filter(|(of, _)| of == kind);
        // All texts that fit `ab*` begin with `ab`: `a*` covers it, as it fits such a text.
        others.any(|(_, other)| pattern == other || pattern.ends_with('*') && fits(pattern, other))
    })
}

fn fits(pattern: &str, value: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => value.starts_with(start),
        None => pattern == value,
    }
}

/// The text that says these rules, each with its patterns and its word. The first that fits counts;
/// one without patterns fits each container.
#[must_use]
pub fn text<'a>(rules: impl Iterator<Item = (&'a [(String, String)], &'a str)>) -> String {
    let rule = |(patterns, word): (&[(String, String)], &str)| {
        let pairs = patterns.iter().cloned();
        let pairs = pairs.chain([(UNLIMITED.to_owned(), word.to_owned())]);
        Value::Object(pairs.map(|(key, text)| (key, text.into())).collect())
    };
    let rules: Vec<Value> = rules.map(rule).collect();
    json!({ RULES: rules }).to_string()
}

/// Whether the rules of this text let a container with these labels run as it is. A text with
/// anything that this version does not know lets none: it may be a newer daemon's, and what is not
/// known may be what refuses the container. So does an empty one.
#[must_use]
pub fn allow(text: &[u8], labels: &[(String, String)]) -> bool {
    let rules = read(text).unwrap_or_default();
    let mut rules = rules.iter();
    let found = rules.find(|(patterns, _)| fit(patterns, labels));
    found.is_some_and(|(_, word)| word == ALLOW)
}

/// The patterns and the word of each rule, if all of the text is known.
fn read(text: &[u8]) -> Option<Vec<(Pairs, String)>> {
    let all = strict::parse(text).ok()?;
    let all = all.as_object().filter(|all| all.len() == 1)?;
    let rules = all.get(RULES)?.as_array()?;
    rules
        .iter()
        .map(|rule| self::rule(rule.as_object()?))
        .collect()
}

fn rule(rule: &Map<String, Value>) -> Option<(Pairs, String)> {
    let word = rule.get(UNLIMITED)?.as_str()?;
    let patterns = rule.iter().filter(|(key, _)| *key != UNLIMITED);
    let patterns = patterns.map(|(key, pattern)| {
        let is_known = KINDS.contains(&key.as_str());
        Some((
            key.clone(),
            pattern.as_str().filter(|_| is_known)?.to_owned(),
        ))
    });
    let patterns = patterns.collect::<Option<Pairs>>()?;
    WORDS.contains(&word).then(|| (patterns, word.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, &str)]) -> Pairs {
        let pair = |(kind, text): &(&str, &str)| ((*kind).to_owned(), (*text).to_owned());
        all.iter().map(pair).collect()
    }

    #[test]
    fn the_first_rule_that_fits_says_whether_a_container_may_run_as_it_is() {
        let rules = [
            (pairs(&[("namespace", "gpu-operator")]), "allow"),
            (
                pairs(&[("namespace", "lab"), ("image", "docker.io/*")]),
                "deny",
            ),
            (pairs(&[("namespace", "lab")]), "allow"),
            (pairs(&[("namespace", "team"), ("user", "0")]), "maxima"),
            (pairs(&[("namespace", "team")]), "allow"),
            (pairs(&[]), "deny"),
        ];
        let rules = rules.iter().map(|(patterns, word)| (&**patterns, *word));
        let told = text(rules);
        for (labels, is_allowed) in [
            (&[("namespace", "gpu-operator")][..], true),
            (&[("namespace", "gpu-operator-2")], false),
            (&[("image", "gpu-operator")], false),
            (&[("namespace", "lab"), ("image", "docker.io/a")], false),
            (&[("namespace", "lab"), ("image", "quay.io/a")], true),
            (&[("namespace", "team"), ("user", "0")], false),
            (&[("namespace", "team"), ("user", "1")], true),
            (&[], false),
        ] {
            assert_eq!(
                allow(told.as_bytes(), &pairs(labels)),
                is_allowed,
                "{labels:?}"
            );
        }
        let open = text([(&[][..], "allow")].into_iter());
        assert!(allow(open.as_bytes(), &[]));
    }

    #[test]
    fn a_text_that_is_not_wholly_known_allows_nothing() {
        let known = r#"{"rules":[{"namespace":"a","unlimited":"allow"}]}"#;
        let labels = pairs(&[("namespace", "a"), ("cgroup", "x")]);
        assert!(allow(known.as_bytes(), &labels));
        for (from, to) in [
            (known, ""),
            (known, "{}"),
            (known, "[]"),
            ("]}", "]"),
            ("]}", "],\"rules\":[]}"),
            ("]}", "],\"since\":2}"),
            ("\"rules\"", "\"rule\""),
            ("allow", "permit"),
            ("\"allow\"", "true"),
            ("\"a\"", "[\"a\"]"),
            ("\"namespace\"", "\"cgroup\":\"x\",\"namespace\""),
            (
                "{\"names",
                "{\"cgroup\":\"y\",\"unlimited\":\"deny\"},{\"names",
            ),
            (",\"unlimited\":\"allow\"", ""),
        ] {
            let changed = known.replace(from, to);
            assert_ne!(changed, known);
            assert!(!allow(changed.as_bytes(), &labels), "{changed}");
        }
    }
}
