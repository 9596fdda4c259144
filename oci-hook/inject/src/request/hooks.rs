//! Hooks of a configuration that give a container GPUs before it starts.

use serde_json::Value;

/// The stages that come before a container's processes.
const STAGES: [&str; 2] = ["/hooks/prestart", "/hooks/createRuntime"];
/// NVIDIA's program that puts GPUs into a container. containerd has it called for `ctr run --gpus`
/// and `nerdctl run --gpus`, and says nothing else of these GPUs.
const CLI: &str = "nvidia-container-cli";
const DEVICES: &str = "--device=";
/// NVIDIA's own hook, under both of its names. It gives the GPUs of the variable.
const BY_VARIABLE: [&str; 2] = ["nvidia-container-runtime-hook", "nvidia-container-toolkit"];

/// The devices that calls of [`CLI`] name. No image has hooks.
pub(super) fn devices(config: &Value) -> Vec<String> {
    let lists = all(config).filter_map(|hook| {
        let mut rest = arguments(hook).skip_while(|argument| name(argument) != CLI);
        rest.find_map(|argument| argument.strip_prefix(DEVICES))
    });
    let devices = lists.flat_map(super::devices::list);
    let named = devices.filter(|device| !device.is_empty());
    named.map(str::to_owned).collect()
}

/// Whether NVIDIA's hook gives the container the GPUs that its variable says.
pub(super) fn follow_the_variable(config: &Value) -> bool {
    let mut paths = all(config).filter_map(|hook| hook.get("path")?.as_str());
    paths.any(|path| BY_VARIABLE.contains(&name(path)))
}

fn all(config: &Value) -> impl Iterator<Item = &Value> {
    let stages = STAGES.iter().filter_map(|stage| config.pointer(stage));
    stages.filter_map(Value::as_array).flatten()
}

fn arguments(hook: &Value) -> impl Iterator<Item = &str> {
    let all = hook.get("args").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_str)
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}
