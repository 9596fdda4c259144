//! A tenant by less than its name. That of a container is its id, 64 hexadecimal digits, which
//! nobody types; and who looks for a pod does not know the id.

use crate::daemon::{self, Talk};
use crate::failure::Failure;
use gpushare_client::TalkError;
use gpushare_protocol::wire::{EventRecord, PodRow};
use std::collections::{BTreeMap, BTreeSet};

/// The fewest digits of an id: as many as engines show.
const DIGITS: usize = 12;
/// The most names that a failure lists.
const LISTED: usize = 5;

/// The short forms in which a command may name a tenant.
enum Short<'a> {
    /// The beginning of a container's id.
    Id(&'a str),
    /// A pod: its namespace and its name; or one of its containers.
    Pod(&'a str, &'a str, Option<&'a str>),
}

impl<'a> Short<'a> {
    /// `None`: the word can only be a name.
    fn of(word: &'a str) -> Option<Self> {
        // No tenant's name has a slash.
        if let Some((namespace, rest)) = word.split_once('/') {
            let (pod, container) = match rest.split_once('/') {
                Some((pod, container)) => (pod, Some(container)),
                None => (rest, None),
            };
            return Some(Self::Pod(namespace, pod, container));
        }
        let is_id = word.len() >= DIGITS && is_hexadecimal(word);
        is_id.then_some(Self::Id(word))
    }

    fn is(&self, name: &str, pod: &Pod) -> bool {
        match self {
            Self::Id(begin) => {
                name.starts_with(begin) || in_class(name).is_some_and(|id| begin.starts_with(id))
            }
            Self::Pod(namespace, wanted, container) => {
                (&*pod.0, &*pod.1) == (*namespace, *wanted)
                    && container.is_none_or(|container| container == pod.2)
            }
        }
    }
}

/// The beginning of its container's id in the name of a tenant of a class: `CLASS-3f9c0d5512e1`,
/// where that was taken with a number behind it.
fn in_class(name: &str) -> Option<&str> {
    let (before, last) = name.rsplit_once('-')?;
    let is_id = |part: &&str| part.len() == DIGITS && is_hexadecimal(part);
    let numbered = || {
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
        let (_, id) = before.rsplit_once('-')?;
        is_number.then_some(id)
    };
    Some(last)
        .filter(is_id)
        .or_else(|| numbered().filter(is_id))
}

/// A pod's namespace and name, and the container's name in it.
type Pod = (String, String, String);
/// Names of tenants, each with its pod; empty where that is not known.
type Tenants = BTreeMap<String, Pod>;

/// Whether a word may be short for a name.
pub(crate) fn may_be_short(word: &str) -> bool {
    Short::of(word).is_some()
}

/// Whether a tenant's name is a container's id.
pub(crate) fn is_container(name: &str) -> bool {
    name.len() == 64 && is_hexadecimal(name)
}

/// Whether all of it are digits as ids have them.
fn is_hexadecimal(word: &str) -> bool {
    word.bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of the tenant that a command is about: the word itself, or what it is short for among
/// the tenants that daemons have.
///
/// # Errors
/// If it is short for several.
pub(crate) fn of_living(word: &str) -> Result<String, Failure> {
    if !may_be_short(word) {
        return Ok(word.to_owned());
    }
    // Without a daemon the command itself says so.
    let mut daemons = daemon::some().unwrap_or_default();
    let found = among_living(word, &mut daemons)?;
    Ok(found.unwrap_or_else(|| word.to_owned()))
}

/// The tenant of these daemons that the word is short for; `None`: of none.
///
/// # Errors
/// If it is short for several.
pub(crate) fn among_living(word: &str, daemons: &mut [Talk]) -> Result<Option<String>, Failure> {
    let mut all = Tenants::new();
    if may_be_short(word) {
        // The command itself says which of them it lost.
        let told = daemons.iter_mut().filter_map(|daemon| of(daemon).ok());
        all.extend(told.flatten());
    }
    chosen(word, &all)
}

/// A daemon's tenants.
fn of(daemon: &mut Talk) -> Result<Tenants, TalkError> {
    let (status, tenants) = (daemon.status()?, daemon.tenants()?);
    let names = status.into_iter().map(|row| row.name);
    let names = names.chain(tenants.into_iter().map(|row| row.name));
    let mut all: Tenants = names.map(|name| (name, Pod::default())).collect();
    let pods = daemon.pods()?.into_iter();
    all.extend(pods.map(|row| (row.name, (row.namespace, row.pod, row.container))));
    Ok(all)
}

/// The same among the tenants that these events are about.
///
/// # Errors
/// If it is short for several.
pub(crate) fn among_past(word: &str, past: &[EventRecord]) -> Result<Option<String>, Failure> {
    let mut all = Tenants::new();
    add_past(&mut all, past);
    chosen(word, &all)
}

/// Adds the tenants that events are about.
fn add_past(all: &mut Tenants, past: &[EventRecord]) {
    for record in past {
        let Some(name) = &record.tenant else { continue };
        let pod = all.entry(name.clone()).or_default();
        if let Some(told) = pod_of(record) {
            *pod = told;
        }
    }
}

/// The pod that an event tells of its tenant.
fn pod_of(record: &EventRecord) -> Option<Pod> {
    let of = |name| record.word_of(name).map(str::to_owned);
    let (namespace, pod) = of("namespace").zip(of("pod"))?;
    Some((namespace, pod, of("container").unwrap_or_default()))
}

/// The names of all tenants that a word means, of those that daemons have and that events are
/// about: also each of a pod's containers, and of those that it had before. Empty: of none.
pub(crate) fn meant(word: &str, daemons: &mut [Talk], past: &[EventRecord]) -> BTreeSet<String> {
    let told = daemons.iter_mut().filter_map(|daemon| of(daemon).ok());
    let mut all: Tenants = told.flatten().collect();
    add_past(&mut all, past);
    all_of(word, &all)
}

fn all_of(word: &str, all: &Tenants) -> BTreeSet<String> {
    if all.contains_key(word) {
        return BTreeSet::from([word.to_owned()]);
    }
    let short = Short::of(word);
    let fits =
        |(name, pod): &(&String, &Pod)| short.as_ref().is_some_and(|short| short.is(name, pod));
    let found = all.iter().filter(fits);
    found.map(|(name, _)| name.clone()).collect()
}

/// Whether an event is about a tenant that a word is short for, as far as the event itself tells.
pub(crate) fn is_meant(word: &str, record: &EventRecord) -> bool {
    let pod = pod_of(record).unwrap_or_default();
    let short = Short::of(word).zip(record.tenant.as_ref());
    short.is_some_and(|(short, name)| short.is(name, &pod))
}

fn chosen(word: &str, all: &Tenants) -> Result<Option<String>, Failure> {
    let Some(short) = Short::of(word).filter(|_| !all.contains_key(word)) else {
        return Ok(None);
    };
    let fits = |(name, pod): &(&String, &Pod)| short.is(name, pod);
    let mut found: Vec<&str> = all
        .iter()
        .filter(fits)
        .map(|(name, _)| name.as_str())
        .collect();
    let many = found.len();
    if many < 2 {
        return Ok(found.pop().map(str::to_owned));
    }
    let more = many.saturating_sub(LISTED);
    found.truncate(LISTED);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Err(Failure::ours(format!(
        "{word} is short for {many} tenants: {}{more}; name the one that is meant",
        found.join(", ")
    )))
}

/// A pod as it is shown: `NAMESPACE/POD (CONTAINER)`, of which an engine may not have told all.
pub(crate) fn pod_text(row: &PodRow) -> String {
    let parts = [&*row.namespace, &*row.pod];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    match &*row.container {
        "" => parts.join("/"),
        container => format!("{} ({container})", parts.join("/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "3f9c0d5512e1aa";
    const SECOND: &str = "3f9c0d5512e1bb";

    fn tenants() -> Tenants {
        let pod =
            |namespace: &str, pod: &str| (namespace.to_owned(), pod.to_owned(), "main".to_owned());
        let all = [
            (FIRST, pod("team", "web-0")),
            (SECOND, pod("team", "web-1")),
            ("0123456789abcd", pod("lab", "two")),
            ("0123456789abce", pod("lab", "two")),
            ("train", Pod::default()),
        ];
        let all = all.into_iter();
        all.map(|(name, pod)| (name.to_owned(), pod)).collect()
    }

    #[test]
    fn twelve_digits_of_an_id_or_a_pod_name_a_tenant_where_it_is_one() {
        for (word, name) in [
            ("3f9c0d5512e1a", Some(FIRST)),
            ("team/web-1", Some(SECOND)),
            ("team/web-1/main", Some(SECOND)),
            ("team/web-1/other", None),
            // Too short, no id, or of no tenant.
            ("3f9c0d5512e", None),
            ("3F9C0D5512E1A", None),
            ("trai", None),
            ("3f9c0d5512e1c", None),
            ("other/web-1", None),
            ("team/web", None),
            // A whole name is itself.
            (FIRST, None),
            ("train", None),
        ] {
            let found = chosen(word, &tenants()).expect("at most one");
            assert_eq!(found.as_deref(), name, "{word}");
        }
    }

    #[test]
    fn the_digits_of_a_containers_id_name_it_also_in_a_class() {
        let names = [
            "half-aa0123456789",
            "a-b-bb0123456789-7",
            "job-cc01234567",
            "x-dd012345678901",
        ];
        let all = names.map(|name| (name.to_owned(), Pod::default()));
        let all = Tenants::from(all);
        for (word, name) in [
            ("aa0123456789", Some(names[0])),
            ("aa0123456789ffff", Some(names[0])),
            ("bb0123456789", Some(names[1])),
            ("aa012345678", None),
            ("ab0123456789", None),
            ("cc01234567ff", None),
            ("dd0123456789", None),
        ] {
            let found = chosen(word, &all).expect("at most one");
            assert_eq!(found.as_deref(), name, "{word}");
        }
    }

    #[test]
    fn what_is_short_for_several_tenants_is_refused_with_their_names() {
        for (word, both) in [
            ("3f9c0d5512e1", [FIRST, SECOND]),
            ("lab/two", ["0123456789abcd", "0123456789abce"]),
        ] {
            let told = chosen(word, &tenants()).expect_err("two").message;
            assert!(both.iter().all(|name| told.contains(name)), "{told}");
            assert!(told.starts_with(word), "{told}");
        }
    }

    #[test]
    fn an_ended_tenant_is_found_by_the_pod_that_its_events_tell() {
        use gpushare_protocol::wire::Fact;
        let event = |name: &str, facts: &[(&str, &str)]| EventRecord {
            instance: 1,
            number: 1,
            at_ms: 1,
            kind: "gone".to_owned(),
            tenant: Some(name.to_owned()),
            device: None,
            text: String::new(),
            facts: facts
                .iter()
                .map(|(name, word)| ((*name).to_owned(), Fact::Word((*word).to_owned())))
                .collect(),
        };
        let pod = [("namespace", "team"), ("pod", "web-0")];
        let past = [event(FIRST, &pod), event(SECOND, &[]), event(FIRST, &[])];
        let found = |word| among_past(word, &past).expect("at most one");
        assert_eq!(found("team/web-0").as_deref(), Some(FIRST));
        assert_eq!(found("3f9c0d5512e1b").as_deref(), Some(SECOND));
        assert_eq!(found("team/web-1"), None);
    }

    #[test]
    fn a_word_means_all_containers_that_a_pod_had_or_one_name_or_nothing() {
        for (word, names) in [
            ("lab/two", &["0123456789abcd", "0123456789abce"][..]),
            ("lab/two/main", &["0123456789abcd", "0123456789abce"]),
            ("3f9c0d5512e1b", &[SECOND]),
            ("train", &["train"]),
            ("lab/one", &[]),
            ("trai", &[]),
        ] {
            let found = all_of(word, &tenants());
            assert!(found.iter().eq(names.iter()), "{word}: {found:?}");
        }
    }

    #[test]
    fn a_pod_is_shown_with_what_its_engine_says_of_it() {
        let text = |namespace: &str, pod: &str, container: &str| {
            pod_text(&PodRow {
                name: FIRST.to_owned(),
                namespace: namespace.to_owned(),
                pod: pod.to_owned(),
                container: container.to_owned(),
            })
        };
        assert_eq!(text("team", "web-0", "main"), "team/web-0 (main)");
        assert_eq!(text("team", "web-0", ""), "team/web-0");
        assert_eq!(text("team", "", ""), "team");
    }
}
