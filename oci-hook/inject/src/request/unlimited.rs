//! A container that has a GPU and asks for nothing: what the node has to know of it.

use serde_json::{Map, Value};

use super::devices::{all_given, instead_of_all, labels_of_pod};
use super::environment::Environment;
use super::{Asks, Class, Request, is_of_pod, labels, program};

/// Annotations by which Run:ai's and KAI's schedulers place a part of a GPU. They limit nothing.
const OF_SCHEDULERS: [&str; 2] = ["gpu-fraction", "gpu-memory"];
/// KAI's for one container: `nvidia.com/container.NAME.gpu-memory.limit`.
const OF_CONTAINERS: (&str, &str) = ("nvidia.com/container.", ".gpu-memory.");
/// The kind of the label that has one of them.
const SCHEDULER: &str = "scheduler";
/// Bytes of a label.
const MOST: usize = 1024;

/// The request of a container that asks for nothing. `None` if it has no GPU.
pub(super) fn request(
    config: &Value,
    annotations: &Map<String, Value>,
    variables: &Environment,
) -> Option<Request> {
    let mut labels = labels(config, annotations);
    let is_of_pod = is_of_pod(&labels);
    let had = instead_of_all(config, annotations, variables, is_of_pod);
    let devices = had.unwrap_or_else(|| all_given(config, annotations, variables));
    if devices.is_empty() {
        return None;
    }
    // It may become a tenant: a variable of the pod's author gives it no other pod's GPU either.
    if is_of_pod {
        labels.extend(labels_of_pod(config, annotations, variables));
    }
    labels.extend(of_scheduler(annotations).map(|text| (SCHEDULER.to_owned(), text)));
    Some(Request {
        environment: Vec::new(),
        devices,
        labels,
        program: program(config, variables),
        asks: Asks::Nothing,
        class: Class::of(config),
    })
}

/// An annotation by which its author may take the container for limited.
fn of_scheduler(annotations: &Map<String, Value>) -> Option<String> {
    let is_one = |name: &str| {
        let of_container = name.strip_prefix(OF_CONTAINERS.0);
        let of_container = of_container.is_some_and(|rest| rest.contains(OF_CONTAINERS.1));
        OF_SCHEDULERS.contains(&name) || of_container
    };
    let (name, value) = annotations.iter().find(|(name, _)| is_one(name))?;
    let text = format!("{name}={}", value.as_str().unwrap_or_default());
    (text.len() <= MOST).then_some(text)
}

#[cfg(test)]
mod tests;
