//! The devices that a container names, in the forms of NVIDIA's tools.

use gpushare_protocol::injection::DEVICE_FILE;
use serde_json::{Map, Value};

use super::environment::Environment;
use super::{DEVICES, GIVEN, hooks};
use crate::Refusal;

/// The beginnings of the annotations by which Kubernetes names CDI devices, and NVIDIA's device
/// plugin beside an older GPU Operator.
const CDI: [&str; 2] = ["cdi.k8s.io/", "nvidia.cdi.k8s.io/"];
/// The beginning of a pod's annotations for NVIDIA's plugin of containerd (NRI), each for one of
/// the pod's containers.
const OF_PODS: &str = "nvidia.cdi.k8s.io/container.";
/// The variable by which NVIDIA's runtime is told devices. The last one counts, as for NVIDIA's
/// tools: for `--gpus` Docker appends its own to that of the image.
pub(super) const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES";
/// The beginning of the variables in which Docker Swarm names a service's generic resources, by
/// their kind. Where NVIDIA's runtime is told one of them (`swarm-resource`), it takes its devices
/// in place of those of the variable above.
const OF_SWARM: &str = "DOCKER_RESOURCE_";
/// The kinds of which an index names a GPU: those of Docker's and NVIDIA's examples.
const SWARMS_GPUS: [&str; 2] = ["GPU", "NVIDIA-GPU"];
/// The folder in which a mount names a device, and its value in the variable (the device plugin's
/// `deviceListStrategy=volume-mounts`, the runtime's
/// `accept-nvidia-visible-devices-as-volume-mounts`).
const MOUNTS: &str = "/var/run/nvidia-container-devices";
/// The variable's value once NVIDIA's devices are in the configuration: every specification of its
/// toolkit for CDI has it, also that which its runtime makes and applies by itself (the default
/// since toolkit 1.18), so that the names that were there before are gone.
const APPLIED: &str = "void";
/// The major number of GPUs' files in `/dev`, and the first of the minor numbers that are no GPU's
/// (`nvidia-modeset`, `nvidiactl`).
const GPUS: (u64, u64) = (195, 254);

/// The devices by our annotation, else by CDI's, else by containerd's hook, else by Swarm's
/// variables, else by mounts or by the container's device files where NVIDIA's variable says so,
/// else by that. Empty if none is named.
///
/// # Errors
/// An annotation of ours that names none.
pub(super) fn devices(
    config: &Value,
    ours: Option<&Value>,
    annotations: &Map<String, Value>,
    variables: &Environment,
) -> Result<Vec<String>, Refusal> {
    if let Some(named) = ours {
        let text = named.as_str().unwrap_or("");
        if text.is_empty() {
            return Err(Refusal(format!(
                "annotation {DEVICES}={named} is refused: it names no device; accepted: all, or a list of indices or UUIDs such as 0,1"
            )));
        }
        return Ok(list(text).map(str::to_owned).collect());
    }
    Ok(given(config, annotations, variables))
}

/// Whether nothing but an image may have said that the container has GPUs: each image of CUDA says
/// `all`, in the variable and by this word.
pub(super) fn says_an_image(annotations: &Map<String, Value>, variables: &Environment) -> bool {
    variables.last(VISIBLE).map(str::trim) == Some("all") && cdi(annotations).is_empty()
}

/// All GPUs that the configuration names in any of these ways, and if none does, those that mounts
/// name whatever the variable says (a pod's own variable comes after the device plugin's), or whose
/// device files the container has, as a privileged one, or that an old image has. An image's `all`
/// counts: it is all that tells of the GPUs that NVIDIA's runtime gives such an image.
pub(super) fn all_given(
    config: &Value,
    annotations: &Map<String, Value>,
    variables: &Environment,
) -> Vec<String> {
    let mut all = given(config, annotations, variables);
    all.retain(|device| !device.is_empty());
    let others: [&dyn Fn() -> Vec<String>; 3] = [&|| mounted(config), &|| files(config), &|| {
        of_an_old_image(variables)
    }];
    others.iter().fold(all, |all, other| match all.is_empty() {
        true => other(),
        false => all,
    })
}

/// The [`evident`] GPUs of a container, where an image may have said `all` of them, and where it
/// has no others: outside of pods a privileged one has all, and NVIDIA's hook gives what the
/// variable says. In a pod the hook is told by the device plugin, whose list comes after the
/// image's ([ADR 252](../../../../docs/adr/0252-a-pod-names-devices-that-it-was-given.md)).
pub(super) fn instead_of_all(
    config: &Value,
    annotations: &Map<String, Value>,
    variables: &Environment,
    is_of_pod: bool,
) -> Option<Vec<String>> {
    let evident = evident(config, annotations);
    let has_all = || is_privileged(config) || hooks::follow_the_variable(config);
    let has_others = evident.is_empty() || !is_of_pod && has_all();
    (says_an_image(annotations, variables) && !has_others).then_some(evident)
}

/// The GPUs of a container by what no image says: CDI's annotations, mounts and containerd's hooks,
/// and where these name none, device files, each of which is that of all MIG instances of its GPU.
fn evident(config: &Value, annotations: &Map<String, Value>) -> Vec<String> {
    let named = by_name(config, annotations);
    match named.is_empty() {
        true => files(config),
        false => named,
    }
}

/// The [`evident`] GPUs that the container was given on purpose: a privileged container has all
/// device files.
pub(super) fn evidently_given(config: &Value, annotations: &Map<String, Value>) -> Vec<String> {
    match is_privileged(config) {
        true => by_name(config, annotations),
        false => evident(config, annotations),
    }
}

/// Whether device files alone name these GPUs.
pub(super) fn are_files(given: &[String]) -> bool {
    given.iter().all(|name| name.starts_with(DEVICE_FILE))
}

fn by_name(config: &Value, annotations: &Map<String, Value>) -> Vec<String> {
    [cdi(annotations), mounted(config), hooks::devices(config)].concat()
}

/// Whether the container may use each device of the node, as engines say of a privileged one.
fn is_privileged(config: &Value) -> bool {
    let rules = config.pointer("/linux/resources/devices");
    let rules = rules.and_then(Value::as_array).into_iter().flatten();
    let is_of_all = |rule: &Value| {
        let is_one = |key| rule.get(key).is_some_and(|value| !value.is_null());
        let is_any = rule.get("type").is_none_or(|kind| kind == "a");
        is_any && !is_one("major") && !is_one("minor")
    };
    let mut of_all = rules.rev().filter(|rule| is_of_all(rule));
    of_all.next().is_some_and(|rule| rule["allow"] == true)
}

/// Labels of the devices that a pod's container was given, which the daemon compares with those
/// that the container names: the [`evident`] ones, and where there are none, those of the variables
/// that NVIDIA's runtime reads. An empty name stands for no device. Swarm has no pods, so in a pod
/// its variables were set by the pod's author.
pub(super) fn labels_of_pod(
    config: &Value,
    annotations: &Map<String, Value>,
    variables: &Environment,
) -> impl Iterator<Item = (String, String)> + use<> {
    let mut all = evident(config, annotations);
    if all.is_empty() {
        all = all_given(config, annotations, &variables.but(OF_SWARM));
    }
    if all.is_empty() {
        all.push(String::new());
    }
    all.into_iter().map(|name| (GIVEN.to_owned(), name))
}

/// The GPUs that NVIDIA's runtime gives an image of CUDA from before its requirements had a
/// variable: all, unless something says which.
fn of_an_old_image(variables: &Environment) -> Vec<String> {
    let says = |name| variables.last(name).is_some_and(|value| !value.is_empty());
    let is_old = says("CUDA_VERSION") && !says("NVIDIA_REQUIRE_CUDA");
    let all = (is_old && variables.last(VISIBLE).is_none()).then(|| "all".to_owned());
    all.into_iter().collect()
}

fn given(config: &Value, annotations: &Map<String, Value>, variables: &Environment) -> Vec<String> {
    let cdi = cdi(annotations);
    if !cdi.is_empty() {
        return cdi;
    }
    let of_hooks = hooks::devices(config);
    if !of_hooks.is_empty() {
        return of_hooks;
    }
    let of_swarm = of_swarm(variables);
    if !of_swarm.is_empty() {
        return of_swarm;
    }
    match variables.last(VISIBLE) {
        None | Some("" | "none") => Vec::new(),
        Some(APPLIED) => files(config),
        Some(text) if text.trim_end_matches('/') == MOUNTS => mounted(config),
        Some(text) => list(text)
            .map(|one| of_cdi(one).unwrap_or(one).to_owned())
            .collect(),
    }
}

/// The devices that Docker Swarm gives a task of a service. NVIDIA's runtime may not be told to
/// take them: an author who sets them so is registered on other devices than the container has,
/// which then have no CUDA.
fn of_swarm(variables: &Environment) -> Vec<String> {
    let named = variables.all().filter_map(|(name, value)| {
        let is_gpus = SWARMS_GPUS.contains(&name.strip_prefix(OF_SWARM)?);
        let is_one = |one: &str| {
            let is_index = !one.is_empty() && one.bytes().all(|byte| byte.is_ascii_digit());
            let has_kind = |kind: &&str| one.len() > kind.len() && one.starts_with(kind);
            ["GPU-", "MIG-"].iter().any(has_kind) || is_gpus && (is_index || one == "all")
        };
        list(value)
            .all(is_one)
            .then(|| list(value).map(str::to_owned))
    });
    named.flatten().collect()
}

/// The devices that CDI's annotations name.
fn cdi(annotations: &Map<String, Value>) -> Vec<String> {
    let names_cdi =
        |name: &str| CDI.iter().any(|start| name.starts_with(start)) && !name.starts_with(OF_PODS);
    let cdi = annotations.iter().filter(|(name, _)| names_cdi(name));
    let cdi = cdi.flat_map(|(_, value)| list(value.as_str().unwrap_or("")));
    cdi.filter_map(of_cdi).map(str::to_owned).collect()
}

pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// The device of a CDI name: `nvidia.com/gpu=0` of NVIDIA's toolkit, and
/// `k8s.device-plugin.nvidia.com/gpu=GPU-…` of its device plugin, which others take over (KAI).
fn of_cdi(name: &str) -> Option<&str> {
    let (kind, device) = name.split_once('=')?;
    is_gpu(kind).then_some(device)
}

fn is_gpu(kind: &str) -> bool {
    let vendor = kind.strip_suffix("/gpu").unwrap_or("");
    vendor == "nvidia.com" || vendor.ends_with(".nvidia.com")
}

/// The GPUs whose device files the container has, or has mounted: Podman mounts what `--device`
/// names where a user without privileges runs it.
fn files(config: &Value) -> Vec<String> {
    let devices = config.pointer("/linux/devices").and_then(Value::as_array);
    let minors = devices.into_iter().flatten().filter_map(|device| {
        let number = |key| device.get(key).and_then(Value::as_u64);
        let is_gpus = device.get("type")? == "c" && number("major")? == GPUS.0;
        number("minor").filter(|minor| is_gpus && *minor < GPUS.1)
    });
    let minors = minors.map(|minor| format!("{DEVICE_FILE}{minor}"));
    let mounts = config.get("mounts").and_then(Value::as_array);
    let sources = mounts.into_iter().flatten();
    let sources = sources.filter_map(|mount| mount.get("source")?.as_str());
    let is_gpus = |path: &&str| {
        let minor = path.strip_prefix(DEVICE_FILE);
        minor.is_some_and(|minor| minor.parse().is_ok_and(|minor: u64| minor < GPUS.1))
    };
    minors
        .chain(sources.filter(is_gpus).map(str::to_owned))
        .collect()
}

/// The devices that mounts name: `FOLDER/ID`, or `FOLDER/cdi/VENDOR/CLASS/ID`.
fn mounted(config: &Value) -> Vec<String> {
    let mounts = config.get("mounts").and_then(Value::as_array);
    let ends = mounts.into_iter().flatten();
    let ends = ends.filter_map(|mount| mount.get("destination")?.as_str());
    let named = ends.filter_map(|end| {
        let name = end.strip_prefix(MOUNTS)?.strip_prefix('/')?;
        let Some(cdi) = name.strip_prefix("cdi/") else {
            return (!name.contains('/')).then_some(name);
        };
        let (kind, device) = cdi.rsplit_once('/')?;
        is_gpu(kind).then_some(device)
    });
    named.map(str::to_owned).collect()
}
