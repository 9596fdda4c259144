//! The name by which a tenant is shown. The tenant of a container has the container's id as its
//! name, 64 digits, and is shown by its pod where the daemon knows that.

use std::collections::BTreeMap;

use gpushare_protocol::wire::{EventRecord, PodRow};

/// Digits of a container's id, and those of them that are shown: as many as engines show.
const ID: usize = 64;
const SHOWN: usize = 12;

/// The names of tenants as they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<String, String>);

impl Names {
    /// With the pods of tenants that are there, and of those that these events tell of.
    pub fn of<'a>(pods: &[PodRow], events: impl IntoIterator<Item = &'a EventRecord>) -> Self {
        let mut names = Self::default();
        for event in events {
            names.learn(event);
        }
        names.add(pods);
        names
    }

    /// Takes these pods, too.
    pub fn add(&mut self, pods: &[PodRow]) {
        for row in pods {
            self.know(&row.name, [&row.namespace, &row.pod, &row.container]);
        }
    }

    /// Takes the pod that an event tells of its tenant, if it does.
    fn learn(&mut self, event: &EventRecord) {
        let Some(tenant) = &event.tenant else {
            return;
        };
        let word = |name| event.word_of(name).unwrap_or_default();
        self.know(tenant, ["namespace", "pod", "container"].map(word));
    }

    fn know(&mut self, tenant: &str, parts: [&str; 3]) {
        let text = path(parts);
        // A namespace alone tells no tenant from another.
        if !parts[1].is_empty() {
            self.0.insert(tenant.to_owned(), text);
        }
    }

    /// A tenant as it is shown: `NAMESPACE/POD/CONTAINER`, of which an engine may not have told
    /// all; else its name, and of a container's id the first digits.
    #[must_use]
    pub fn shown<'a>(&'a self, tenant: &'a str) -> &'a str {
        self.pod(tenant).unwrap_or_else(|| short(tenant))
    }

    /// A sentence with each container's id in it as it is shown.
    #[must_use]
    pub fn in_text(&self, text: &str) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while let Some(from) = rest.find(is_digit) {
            let (before, word) = rest.split_at(from);
            let end = word.find(|one| !is_digit(one)).unwrap_or(word.len());
            let (word, after) = word.split_at(end);
            out.push_str(before);
            out.push_str(if is_id(word) { self.shown(word) } else { word });
            rest = after;
        }
        out.push_str(rest);
        out
    }

    /// The pod of a tenant, if it is known.
    #[must_use]
    pub fn pod(&self, tenant: &str) -> Option<&str> {
        self.0.get(tenant).map(String::as_str)
    }
}

/// A name, and of a container's id the first digits.
fn short(name: &str) -> &str {
    match is_id(name) {
        true => name.get(..SHOWN).unwrap_or(name),
        false => name,
    }
}

/// Whether a name is a container's id, as engines make them.
fn is_id(name: &str) -> bool {
    name.len() == ID && name.chars().all(is_digit)
}

fn is_digit(one: char) -> bool {
    matches!(one, '0'..='9' | 'a'..='f')
}

fn path(parts: [&str; 3]) -> String {
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use gpushare_protocol::wire::Fact;

    use super::*;

    fn pod(name: &str, [namespace, pod, container]: [&str; 3]) -> PodRow {
        PodRow {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: container.to_owned(),
        }
    }

    #[test]
    fn a_tenant_is_its_pod_or_the_beginning_of_its_id_or_its_name() {
        let id = |digit: &str| digit.repeat(ID);
        let pods = [
            pod(&id("a"), ["team", "web-0", "main"]),
            pod(&id("b"), ["team", "web-1", ""]),
            pod(&id("c"), ["team", "", "main"]),
        ];
        let ended = EventRecord {
            instance: 1,
            number: 1,
            at_ms: 1,
            kind: "gone".to_owned(),
            tenant: Some(id("d")),
            device: None,
            text: String::new(),
            facts: [("namespace", "lab"), ("pod", "job"), ("container", "x")]
                .map(|(name, word)| (name.to_owned(), Fact::Word(word.to_owned())))
                .to_vec(),
        };
        let names = Names::of(&pods, [&ended]);
        for (name, shown) in [
            (id("a"), "team/web-0/main"),
            (id("b"), "team/web-1"),
            // Its engine did not say the pod.
            (id("c"), "cccccccccccc"),
            (id("d"), "lab/job/x"),
            (id("e"), "eeeeeeeeeeee"),
            (id("A"), &id("A")),
            ("train".to_owned(), "train"),
            ("é".repeat(ID / 2), &"é".repeat(ID / 2)),
        ] {
            assert_eq!(names.shown(&name), shown);
        }
    }

    #[test]
    fn ids_in_a_sentence_become_tenants_and_nothing_else_is_changed() {
        let id = "a".repeat(ID);
        let names = Names::of(&[pod(&id, ["team", "web-0", "main"])], []);
        for (text, shown) in [
            (format!("ended for {id}, é"), "ended for team/web-0/main, é"),
            (id.clone(), "team/web-0/main"),
            (
                format!("{} is faded", "b".repeat(ID)),
                "bbbbbbbbbbbb is faded",
            ),
            (format!("{id}0"), &*format!("{id}0")),
            ("abcdef 12 GiB".to_owned(), "abcdef 12 GiB"),
            (String::new(), ""),
        ] {
            assert_eq!(names.in_text(&text), shown);
        }
    }
}
