//! The pods of containers, for metrics. Their namespaces tell gangs of one name apart.

use gpushare_protocol::wire::PodRow;

use super::events::{Told, word};
use super::tenant::Tenant;

/// The labels by which a pod is shown.
const KINDS: [&str; 3] = ["namespace", "pod", "pod_container"];
/// The longest value that is kept: Kubernetes' own bound of a name.
const LONGEST: usize = 253;

/// The labels that name a container's pod, each once.
pub(super) fn pod_of(labels: &[(String, String)]) -> Vec<(String, String)> {
    let first = |kind: &str| {
        let mut values = labels.iter().filter(|(of, _)| of == kind);
        values.find(|(_, value)| !value.is_empty() && value.len() <= LONGEST)
    };
    let all = KINDS.iter().filter_map(|kind| first(kind));
    all.cloned().collect()
}

/// The facts of an event that name a pod.
pub(super) fn facts_of(pod: &[(String, String)]) -> Vec<Told> {
    let names = KINDS.iter().zip(["namespace", "pod", "container"]);
    let found = names.filter_map(|(kind, name)| {
        let (_, value) = pod.iter().find(|(of, _)| of == kind)?;
        Some(word(name, value.clone()))
    });
    found.collect()
}

/// The facts that name a tenant's pod.
pub(super) fn facts_of_tenant(known: &Tenant) -> Vec<Told> {
    let container = known.registration().container.as_ref();
    container.map_or_else(Vec::new, |container| facts_of(&container.pod))
}

/// The namespace among the labels that name a pod.
pub(super) fn namespace(pod: &[(String, String)]) -> Option<String> {
    let found = pod.iter().find(|(of, _)| of == "namespace");
    found.map(|(_, value)| value.clone())
}

/// A tenant's pod. `None`: it is not in one, or its engine did not say.
pub(super) fn row(known: &Tenant) -> Option<PodRow> {
    let pod = &known.registration().container.as_ref()?.pod;
    let of = |kind: &str| {
        let found = pod.iter().find(|(of, _)| of == kind);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    (!pod.is_empty()).then(|| PodRow {
        name: known.name().to_owned(),
        namespace: of("namespace"),
        pod: of("pod"),
        container: of("pod_container"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_useful_label_of_each_kind_names_the_pod() {
        let long = "x".repeat(LONGEST + 1);
        let all = [
            ("image", "cuda"),
            ("pod", long.as_str()),
            ("namespace", ""),
            ("namespace", "small"),
            ("namespace", "other"),
            ("pod", "web-0"),
        ];
        let all = all.map(|(kind, value)| (kind.to_owned(), value.to_owned()));
        let kept = [("namespace", "small"), ("pod", "web-0")];
        let kept = kept.map(|(kind, value)| (kind.to_owned(), value.to_owned()));
        assert_eq!(pod_of(&all), kept);
        assert_eq!(pod_of(&[]), []);
    }
}
