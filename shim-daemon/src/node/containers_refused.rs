//! Containers that the daemon refuses, told. Their engine tells only those who started them, and
//! Kubernetes forgets that within an hour.

use gpushare_core::Nanos;
use gpushare_protocol::wire::{ErrorCode, Injection, WireError, is_container_id};

use super::events::{Told, number, word};
use super::pods::{facts_of, pod_of};
use super::{ConnId, Node};

/// The kind of the event.
const KIND: &str = "container-refused";
/// Refused containers of classes of which it is known that they were told.
const MOST_KNOWN: usize = 1024;

/// The event's word for what refused it. `NotFound` is a device: other causes are told apart by the
/// caller.
fn reason(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Forbidden => "rule",
        ErrorCode::BadLimits => "value",
        ErrorCode::NotFound => "device",
        ErrorCode::Full => "room",
        _ => "other",
    }
}

impl Node {
    /// A container that asked for limits is refused. One that comes while the daemon recovers is
    /// not told: its hook asks again.
    pub(super) fn tell_refused_injection(
        &mut self,
        now: Nanos,
        from: ConnId,
        injection: &Injection,
        error: &WireError,
    ) {
        if error.can_retry && self.is_recovering() {
            return;
        }
        let is_process = error.code == ErrorCode::NotFound
            && self
                .devices_named(&injection.devices, &injection.labels)
                .is_ok();
        let reason = if is_process {
            "process"
        } else {
            reason(error.code)
        };
        let of = (&*injection.id, &*injection.labels);
        self.tell_refused_container(now, from, of, (reason, error));
    }

    /// A container that asks for nothing is refused by the node's rules.
    pub(super) fn tell_refused_silent(
        &mut self,
        now: Nanos,
        from: ConnId,
        of: (&str, &[(String, String)]),
        error: &WireError,
    ) {
        self.tell_refused_container(now, from, of, (reason(error.code), error));
    }

    /// A container of a class is refused, which only its own programs are told. Each of them asks,
    /// and may ask for ever: it is told once, with the reason of the first one.
    pub(super) fn tell_refused_in_class(
        &mut self,
        now: Nanos,
        (class, id): (&str, &str),
        error: &WireError,
    ) {
        let known = &mut self.events.refused_in_classes;
        if error.can_retry || known.contains(id) {
            return;
        }
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(id.to_owned());
        let why = format!("class {class}: {}", error.message);
        let told = WireError::new(error.code, why);
        self.put_refused(now, None, (id, &[]), (reason(error.code), &told));
    }

    /// Tells it within the budget of the hook's user. A hook that asks again for what it was told
    /// to ask again is told once.
    pub(super) fn tell_refused_container(
        &mut self,
        now: Nanos,
        from: ConnId,
        (id, labels): (&str, &[(String, String)]),
        (reason, error): (&'static str, &WireError),
    ) {
        // What is no id may be of any length.
        let id = if is_container_id(id) { id } else { "" };
        let this = (id.to_owned(), error.message.clone());
        if error.can_retry && self.events.refused.as_ref() == Some(&this) {
            return;
        }
        self.events.refused = Some(this);
        self.put_refused(now, self.users.of(from), (id, labels), (reason, error));
    }

    fn put_refused(
        &mut self,
        now: Nanos,
        user: Option<u32>,
        (id, labels): (&str, &[(String, String)]),
        (reason, error): (&'static str, &WireError),
    ) {
        self.count_event(KIND);
        if !self.events.budgets.allows_refusal(now, KIND, user) {
            return;
        }
        let pod = pod_of(labels);
        let mut facts: Vec<Told> = vec![word("reason", reason)];
        if !id.is_empty() {
            facts.push(word("container_id", id));
        }
        facts.extend(facts_of(&pod));
        facts.extend(user.map(|user| number("user", user.into())));
        self.put_event(
            KIND,
            (None, None),
            sentence(id, &pod, &error.message),
            &facts,
        );
    }
}

/// The refusal with its container named once, and its pod.
fn sentence(id: &str, pod: &[(String, String)], why: &str) -> String {
    let its = pod.iter().filter(|(kind, _)| kind != "pod_container");
    let its: Vec<&str> = its.map(|(_, value)| &**value).collect();
    let its = match its.is_empty() {
        true => String::new(),
        false => format!(" of {}", its.join("/")),
    };
    let named = if id.is_empty() {
        "a container".to_owned()
    } else {
        format!("container {id}")
    };
    // Many refusals begin with the container.
    let rest = why.strip_prefix(&named).filter(|_| !id.is_empty());
    let why = match rest {
        Some(rest) if rest.starts_with(": ") => rest[2..].to_owned(),
        Some(rest) if rest.starts_with(' ') => format!("it{rest}"),
        _ => why.to_owned(),
    };
    format!("{named}{its} is refused: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_container_once_and_its_pod() {
        let pod = [
            ("namespace", "team"),
            ("pod", "web-0"),
            ("pod_container", "main"),
        ];
        let pod = pod.map(|(kind, value)| (kind.to_owned(), value.to_owned()));
        for (id, pod, why, told) in [
            (
                "a",
                &pod[..],
                "container a has a GPU",
                "container a of team/web-0 is refused: it has a GPU",
            ),
            (
                "a",
                &[],
                "container a: its program is static",
                "container a is refused: its program is static",
            ),
            (
                "a",
                &[],
                "container ab has a GPU",
                "container a is refused: container ab has a GPU",
            ),
            (
                "a",
                &pod[..1],
                "no room",
                "container a of team is refused: no room",
            ),
            (
                "",
                &[],
                "its id is refused",
                "a container is refused: its id is refused",
            ),
        ] {
            assert_eq!(sentence(id, pod, why), told);
        }
    }
}
