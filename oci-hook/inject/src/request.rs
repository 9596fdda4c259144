//! A container's request, from its OCI `config.json`: annotations first, then the environment of
//! its first process.

use gpushare_protocol::limits::Limits;
use serde_json::{Map, Value};

use crate::Refusal;

mod class;
mod devices;
mod environment;
mod hooks;
mod program;
mod unlimited;

pub use class::Class;
use devices::{devices, says_an_image};
use environment::Environment;
use program::program;

/// The beginning of our annotations' names.
pub const PREFIX: &str = "gpushare.io/";
/// The kind of the labels that say what a pod's container was given: a device each, by the names of
/// [`Request::devices`], or an empty one for none.
pub const GIVEN: &str = "given";
/// The annotation that names devices.
const DEVICES: &str = "gpushare.io/devices";
/// The annotation that says which of a pod's containers the other annotations hold for, by their
/// names in the pod, with commas between.
const CONTAINERS: &str = "gpushare.io/containers";

/// An engine's annotations about a container of a pod.
#[derive(Debug)]
struct Engine {
    /// What kind of container it is. A pod's own one only holds its namespaces, but has the pod's
    /// annotations.
    kind: &'static str,
    namespace: &'static str,
    image: &'static str,
    pod: &'static str,
    /// The container's name in the pod.
    name: &'static str,
}

const CONTAINERD: Engine = Engine {
    kind: "io.kubernetes.cri.container-type",
    namespace: "io.kubernetes.cri.sandbox-namespace",
    image: "io.kubernetes.cri.image-name",
    pod: "io.kubernetes.cri.sandbox-name",
    name: "io.kubernetes.cri.container-name",
};
const CRI_O: Engine = Engine {
    kind: "io.kubernetes.cri-o.ContainerType",
    namespace: "io.kubernetes.pod.namespace",
    image: "io.kubernetes.cri-o.ImageName",
    pod: "io.kubernetes.pod.name",
    name: "io.kubernetes.container.name",
};

impl Engine {
    /// The engine of pods that wrote these. CRI-O copies all annotations of a pod, which its author
    /// writes, and overwrites its own alone: so those of the other engine mean nothing beside them.
    /// `None` for an engine without pods, which may have them from an image or from its client.
    fn of(config: &Value, annotations: &Map<String, Value>) -> Option<&'static Self> {
        let engine = match annotations.contains_key(CRI_O.kind) {
            true => &CRI_O,
            false => &CONTAINERD,
        };
        (!may_be_an_images(config) && !is_dockers(config)).then_some(engine)
    }
}

/// Whether the annotations may be an image's: Podman copies those of an image's manifest into
/// a container's configuration ([ADR
/// 257](../../../docs/adr/0257-an-images-annotations-are-no-operators.md)). Its cgroup tells,
/// which no image names: `SLICE:libpod:ID` for systemd, else `PARENT/libpod-ID`. One without a
/// cgroup may be Podman's (`--cgroups=disabled`); engines of pods name one for each container.
fn may_be_an_images(config: &Value) -> bool {
    let path = config.pointer("/linux/cgroupsPath").and_then(Value::as_str);
    let name = path.and_then(|path| path.rsplit('/').next()).unwrap_or("");
    let is_podmans = name.starts_with("libpod-") || name.split(':').nth(1) == Some("libpod");
    name.is_empty() || is_podmans
}

/// Whether Docker made the container, by its cgroup: `SLICE:docker:ID` for systemd, else
/// `/docker/ID`. By `--cgroup-parent` a client may name another one, and is past all limits.
fn is_dockers(config: &Value) -> bool {
    let path = config.pointer("/linux/cgroupsPath").and_then(Value::as_str);
    let path = path.unwrap_or_default();
    path.starts_with("/docker/") || path.split(':').nth(1) == Some("docker")
}

/// The beginning of crun's annotations that name files for the output of hooks.
const OUTPUTS: &str = "run.oci.hooks.";
/// Values of these that name no file: the runtime's own output, and none.
const OWN_OUTPUTS: [&str; 3] = ["/dev/stderr", "/dev/stdout", "/dev/null"];

/// The annotation that names a file of the host for the output of hooks. crun opens it there, if
/// the container has a hook, with the rights of the engine. An image under Podman or the author of
/// a pod under CRI-O may have written it ([ADR
/// 265](../../../docs/adr/0265-a-refusal-is-told-where-no-image-chose.md)).
#[must_use]
pub fn output_of_hooks(config: &Value) -> Option<&str> {
    let annotations = config.get("annotations")?.as_object()?;
    let is_a_file = |value: &Value| !OWN_OUTPUTS.iter().any(|own| value == own);
    let mut all = annotations.iter();
    let found = all.find(|(name, value)| name.starts_with(OUTPUTS) && is_a_file(value));
    found.map(|(name, _)| name.as_str())
}

/// Bytes of the names and values taken together.
const MOST: usize = 32 << 10;

/// A container's request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The variables that say its limits.
    pub environment: Vec<(String, String)>,
    /// The devices by index, UUID or `all`; empty if none is named.
    pub devices: Vec<String>,
    /// Facts for the node's rules.
    pub labels: Vec<(String, String)>,
    /// The program that starts first, or behind an init for containers, and the folders that it is
    /// looked for in.
    pub program: Option<(String, Vec<String>)>,
    /// How it asks.
    pub asks: Asks,
    /// The class whose mounts it has.
    pub class: Option<Class>,
}

/// How a container asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Asks {
    /// Not at all, though it has a GPU: the node says what becomes of it.
    #[default]
    Nothing,
    /// By variables alone, which its image may have.
    ByVariables,
    /// By annotations of ours, whatever its variables are.
    ByAnnotations,
}

/// Variables of one kind: an annotation of a kind puts all of the kind's variables in the shade, so
/// that a more specific one of the environment cannot raise what the annotation says.
const KINDS: [&[&str]; 2] = [
    &[
        "GPUSHARE_MEM_",
        "CUDA_DEVICE_MEMORY_LIMIT",
        "NVIDIA_GPU_MEMORY_",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    ],
    &[
        "GPUSHARE_SM_",
        "CUDA_DEVICE_SM_LIMIT",
        gpushare_protocol::mps::ACTIVE_THREADS,
    ],
];

fn kind(name: &str) -> Option<usize> {
    let of = |names: &&[&str]| names.iter().any(|start| name.starts_with(start));
    KINDS.iter().position(of)
}

impl Request {
    /// Reads a `config.json`. `None` for a container that has no GPU and asks for nothing, and for
    /// a pod's own container.
    ///
    /// # Errors
    /// An annotation or the name of a variable that is not understood; where the container asks for
    /// something, a variable of ours that occurs twice.
    pub fn of(config: &Value) -> Result<Option<Self>, Refusal> {
        let none = Map::new();
        let annotations = match config.get("annotations") {
            None | Some(Value::Null) => &none,
            Some(Value::Object(all)) => all,
            Some(_) => return Err(Refusal("config.json: annotations is no object".to_owned())),
        };
        let engine = Engine::of(config, annotations);
        let told = engine.and_then(|engine| annotations.get(engine.kind));
        if told.and_then(Value::as_str) == Some("sandbox") {
            return Ok(None);
        }
        let variables = Environment::of(config)?;
        // Also those of another container: a misspelt one is refused in the whole pod.
        let said = annotated(annotations)?;
        let is_meant = is_meant(engine, annotations)?;
        let is_left_out = !is_meant && (!said.is_empty() || annotations.contains_key(DEVICES));
        let said = if is_meant { said } else { Vec::new() };
        let named = annotations.get(DEVICES).filter(|_| is_meant);
        let mut environment = said.clone();
        for (name, value) in variables.limits()? {
            let shaded = |(annotation, _): &(String, String)| {
                annotation == name || kind(name).is_some() && kind(annotation) == kind(name)
            };
            if !said.iter().any(shaded) {
                environment.push((name.clone(), value.clone()));
            }
        }
        if environment.is_empty() && named.is_none() {
            if is_left_out {
                may_be_left_out(config, annotations, &variables)?;
            }
            return Ok(unlimited::request(config, annotations, &variables));
        }
        variables.once()?;
        outranks_none(config, &said, &environment, &variables)?;
        let lengths = environment
            .iter()
            .map(|(name, value)| name.len() + value.len());
        if lengths.sum::<usize>() > MOST {
            return Err(Refusal(
                "the annotations and variables of the container's limits are longer than 32 KiB together; give fewer"
                    .to_owned(),
            ));
        }
        let mut labels = labels(config, annotations);
        let mut devices = devices(config, named, annotations, &variables)?;
        let is_of_pod = is_of_pod(&labels);
        let had = devices::instead_of_all(config, annotations, &variables, is_of_pod);
        if let Some(had) = had.filter(|_| named.is_none()) {
            devices = had;
        }
        if is_of_pod {
            labels.extend(devices::labels_of_pod(config, annotations, &variables));
        }
        Ok(Some(Self {
            environment,
            devices,
            labels,
            program: program(config, &variables),
            asks: match said.is_empty() && named.is_none() {
                true => Asks::ByVariables,
                false => Asks::ByAnnotations,
            },
            class: Class::of(config),
        }))
    }
}

/// Whether the engine wrote a namespace of Kubernetes.
fn is_of_pod(labels: &[(String, String)]) -> bool {
    labels.iter().any(|(kind, _)| kind == "namespace")
}

/// Our annotations as variables: `gpushare.io/mem-limit` is `GPUSHARE_MEM_LIMIT`, and
/// `gpushare.io/mem-limit_0` is `GPUSHARE_MEM_LIMIT_0`.
fn annotated(annotations: &Map<String, Value>) -> Result<Vec<(String, String)>, Refusal> {
    let mut all = Vec::new();
    for (name, value) in annotations {
        let Some(ours) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let refuse = |why: &str| {
            Refusal(format!(
                "annotation {name}={value} is refused: {why}; accepted: {DEVICES}, {CONTAINERS} and the limits by name, such as gpushare.io/mem-limit or, for one device, gpushare.io/mem-limit_0"
            ))
        };
        let text = value.as_str().ok_or_else(|| refuse("it is no text"))?;
        if [DEVICES, CONTAINERS].contains(&name.as_str()) {
            continue;
        }
        let variable = variable(ours).filter(|variable| Limits::reads(variable));
        let variable = variable.ok_or_else(|| refuse("there is no such limit"))?;
        all.push((variable, text.to_owned()));
    }
    Ok(all)
}

fn variable(ours: &str) -> Option<String> {
    let (base, device) = match ours.split_once('_') {
        Some((base, device)) => (base, Some(device)),
        None => (ours, None),
    };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
    if base.is_empty() || !base.bytes().all(plain) {
        return None;
    }
    let base = base.to_ascii_uppercase().replace('-', "_");
    Some(match device {
        Some(device) => format!("GPUSHARE_{base}_{}", device.replace('-', "_")),
        None => format!("GPUSHARE_{base}"),
    })
}

/// Refuses a limit that sets a lower one aside, where an image may have said the former and an
/// operator the latter: among variables, which both say, and in a container of Podman's also among
/// annotations ([ADR 257](../../../docs/adr/0257-an-images-annotations-are-no-operators.md)).
fn outranks_none(
    config: &Value,
    said: &[(String, String)],
    environment: &[(String, String)],
    variables: &Environment,
) -> Result<(), Refusal> {
    let outranks = if may_be_an_images(config) {
        let all: Vec<_> = variables.limits()?.into_iter().cloned().collect();
        Limits::outranked(&[said, &all])
    } else {
        let beside = environment.get(said.len()..).unwrap_or_default();
        Limits::outranked(&[beside])
    };
    let Some(error) = outranks else { return Ok(()) };
    Err(Refusal(format!(
        "{error}; an annotation counts before all variables, and no image has one but under Podman"
    )))
}

/// Whether our annotations hold for this container of the pod.
///
/// # Errors
/// A list of names where the engine does not say this container's name: without a refusal it would
/// run without the limits of the annotations beside it.
fn is_meant(engine: Option<&Engine>, annotations: &Map<String, Value>) -> Result<bool, Refusal> {
    let Some(list) = annotations.get(CONTAINERS) else {
        return Ok(true);
    };
    let refuse = |why: &str| {
        Refusal(format!(
            "annotation {CONTAINERS}={list} is refused: {why}; accepted: names of the pod's containers such as main,worker"
        ))
    };
    let named = list.as_str().map(|text| text.split(',').map(str::trim));
    let named: Vec<&str> = named.ok_or_else(|| refuse("it is no text"))?.collect();
    if named.contains(&"") {
        return Err(refuse("a name is empty"));
    }
    let own = engine.and_then(|engine| annotations.get(engine.name));
    let own = own
        .and_then(Value::as_str)
        .ok_or_else(|| refuse("this engine does not say which of a pod's containers this is"))?;
    Ok(named.contains(&own))
}

/// Refuses to leave a container out of the pod's annotations that was given a GPU: its name may be
/// misspelt in the list, and it would have all of the GPU ([ADR
/// 222](../../../docs/adr/0222-a-container-with-a-gpu-is-not-left-out.md)). An image's `all` alone
/// says nothing about that.
fn may_be_left_out(
    config: &Value,
    annotations: &Map<String, Value>,
    variables: &Environment,
) -> Result<(), Refusal> {
    let mut given = devices::evidently_given(config, annotations);
    if given.is_empty() && !says_an_image(annotations, variables) {
        given = devices(config, None, annotations, variables)?;
    }
    given.retain(|device| !device.is_empty());
    if given.is_empty() {
        return Ok(());
    }
    let own = Engine::of(config, annotations).and_then(|engine| annotations.get(engine.name));
    Err(Refusal(format!(
        "annotation {CONTAINERS}={list} is refused: container {own} has a GPU ({given}) and is not named, so that it would have no limits; accepted: that name too, limits of its own (such as the variable GPUSHARE_MEM_LIMIT=100%), or no GPU{void}",
        list = annotations.get(CONTAINERS).unwrap_or(&Value::Null),
        own = own.unwrap_or(&Value::Null),
        given = given.join(","),
        // Of one that says so it has the device files, as a privileged container has them all.
        void = match devices::are_files(&given) {
            true => "'s device file (a privileged container has them all)",
            false => " (NVIDIA_VISIBLE_DEVICES=void)",
        },
    )))
}

/// The labels that the node's rules may match, and those by which metrics name the pod: the
/// namespace, the pod and the container's name in it, and the image, from annotations that only the
/// engine sets; and the user of the first process.
fn labels(config: &Value, annotations: &Map<String, Value>) -> Vec<(String, String)> {
    let of_engine = |engine: &Engine| {
        [
            ("namespace", engine.namespace),
            ("image", engine.image),
            ("pod", engine.pod),
            ("pod_container", engine.name),
        ]
    };
    let known = Engine::of(config, annotations).map(of_engine);
    let mut all: Vec<(String, String)> = Vec::new();
    for (kind, name) in known.into_iter().flatten() {
        let value = annotations.get(name).and_then(Value::as_str);
        if let Some(value) = value.filter(|value| value.len() <= 1024) {
            all.push((kind.to_owned(), value.to_owned()));
        }
    }
    let user = config.pointer("/process/user/uid").and_then(Value::as_u64);
    all.extend(user.map(|user| ("user".to_owned(), user.to_string())));
    all
}

#[cfg(test)]
mod tests;
