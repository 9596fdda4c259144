#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::super::GIVEN;
use super::*;
use serde_json::json;

fn config(annotations: &Value, env: &[&str]) -> Value {
    json!({
        "annotations": annotations,
        "process": {"env": env, "args": ["sh"], "user": {"uid": 7}},
        "linux": {"cgroupsPath": "/kubepods/burstable/pod1/a"},
    })
}

fn of(config: &Value) -> Request {
    Request::of(config).unwrap().unwrap()
}

#[test]
fn a_container_with_a_gpu_that_asks_for_nothing_is_the_nodes_to_judge() {
    for (annotations, variable, devices) in [
        (
            json!({}),
            "NVIDIA_VISIBLE_DEVICES=GPU-1,0",
            &["GPU-1", "0"][..],
        ),
        // Of an image, or of an engine: nothing tells the two apart.
        (json!({}), "NVIDIA_VISIBLE_DEVICES=all", &["all"]),
        (json!({"cdi.k8s.io/x": "nvidia.com/gpu=1"}), "A=1", &["1"]),
        (json!({}), "DOCKER_RESOURCE_NVIDIA-GPU=GPU-1", &["GPU-1"]),
    ] {
        let asked = of(&config(&annotations, &[variable]));
        assert!(asked.asks == Asks::Nothing && asked.environment.is_empty());
        assert_eq!(asked.devices, devices, "{variable}");
        assert!(asked.labels.contains(&("user".to_owned(), "7".to_owned())));
    }
    // One that asks is asked nothing more.
    let limit = json!({"gpushare.io/mem-limit": "1GiB"});
    let asked = of(&config(&limit, &["NVIDIA_VISIBLE_DEVICES=0"]));
    assert_eq!(asked.asks, Asks::ByAnnotations);
}

#[test]
fn device_files_are_a_gpu_whatever_the_variable_says() {
    let mut privileged = config(&json!({}), &["NVIDIA_VISIBLE_DEVICES=none"]);
    privileged["linux"]["devices"] = json!([
        {"type": "c", "major": 1, "minor": 3},
        {"type": "c", "major": 195, "minor": 255},
    ]);
    assert_eq!(Request::of(&privileged), Ok(None), "no GPU's");
    privileged["linux"]["devices"][0] = json!({"type": "c", "major": 195, "minor": 2});
    assert_eq!(of(&privileged).devices, ["/dev/nvidia2"]);
}

/// A tenant of all GPUs would hold its request on each.
#[test]
fn an_images_all_names_no_gpu_beside_those_that_the_container_has() {
    let mut one = config(&json!({}), &["NVIDIA_VISIBLE_DEVICES=all"]);
    assert_eq!(of(&one).devices, ["all"], "nothing else tells");
    one["linux"]["devices"] = json!([{"type": "c", "major": 195, "minor": 3}]);
    assert_eq!(of(&one).devices, ["/dev/nvidia3"]);
    // Variables that name a GPU come from no image.
    one["process"]["env"] = json!(["NVIDIA_VISIBLE_DEVICES=GPU-1"]);
    assert_eq!(of(&one).devices, ["GPU-1"]);
}

/// The daemon compares them with what the container names.
#[test]
fn a_pods_container_says_what_it_was_given_also_where_it_asks_nothing() {
    let pod = json!({"io.kubernetes.cri.sandbox-namespace": "team"});
    let given = |annotations: &Value, variable: &str| {
        let mut config = config(annotations, &["NVIDIA_VISIBLE_DEVICES=void", variable]);
        config["linux"]["devices"] = json!([{"type": "c", "major": 195, "minor": 3}]);
        let asked = of(&config);
        let labels = asked.labels.into_iter().filter(|(kind, _)| kind == GIVEN);
        let labels: Vec<String> = labels.map(|(_, name)| name).collect();
        (asked.devices, labels)
    };
    let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    let file = texts(&["/dev/nvidia3"]);
    for (variable, named) in [
        ("A=1", "/dev/nvidia3"),
        // Swarm has no pods: this pod's author wrote it.
        ("DOCKER_RESOURCE_GPU=all", "all"),
        ("NVIDIA_VISIBLE_DEVICES=0", "0"),
    ] {
        assert_eq!(given(&pod, variable), (texts(&[named]), file.clone()));
        assert_eq!(given(&json!({}), variable), (texts(&[named]), vec![]));
    }
}

#[test]
fn a_mounted_device_file_is_a_gpu_as_rootless_podman_gives_it() {
    let mut rootless = config(&json!({}), &[]);
    let mount = |path: &str| json!({"source": path, "destination": path, "type": "bind"});
    rootless["mounts"] = json!([mount("/dev/nvidiactl"), mount("/dev/nvidia-uvm")]);
    assert_eq!(Request::of(&rootless), Ok(None), "no GPU's");
    rootless["mounts"][1] = mount("/dev/nvidia1");
    assert_eq!(of(&rootless).devices, ["/dev/nvidia1"]);
}

#[test]
fn mounts_name_a_gpu_whatever_the_variable_says() {
    for variable in [
        "A=1",
        "NVIDIA_VISIBLE_DEVICES=none",
        "NVIDIA_VISIBLE_DEVICES=",
    ] {
        let mut config = config(&json!({}), &["NVIDIA_VISIBLE_DEVICES=0", variable]);
        if variable == "A=1" {
            config["process"]["env"] = json!([variable]);
        }
        config["mounts"] = json!([{"source": "/dev/null", "destination": "/etc/GPU-1"}]);
        assert_eq!(Request::of(&config), Ok(None), "{variable}");
        let place = "/var/run/nvidia-container-devices/GPU-1";
        config["mounts"] = json!([{"source": "/dev/null", "destination": place}]);
        assert_eq!(of(&config).devices, ["GPU-1"], "{variable}");
    }
}

#[test]
fn an_old_image_of_cuda_has_all_gpus_where_no_variable_says_which() {
    let old = "CUDA_VERSION=8.0.61";
    assert_eq!(of(&config(&json!({}), &[old])).devices, ["all"]);
    assert_eq!(
        of(&config(&json!({}), &[old, "NVIDIA_REQUIRE_CUDA="])).devices,
        ["all"]
    );
    for also in [
        "NVIDIA_VISIBLE_DEVICES=",
        "NVIDIA_VISIBLE_DEVICES=void",
        "NVIDIA_REQUIRE_CUDA=cuda>=9.0",
        "CUDA_VERSION=",
    ] {
        let config = config(&json!({}), &[old, also]);
        assert_eq!(Request::of(&config), Ok(None), "{also}");
    }
}

#[test]
fn a_pods_own_container_has_no_gpu_to_judge() {
    let sandbox = json!({"io.kubernetes.cri.container-type": "sandbox"});
    let config = config(&sandbox, &["NVIDIA_VISIBLE_DEVICES=0"]);
    assert_eq!(Request::of(&config), Ok(None));
}

#[test]
fn a_schedulers_annotation_is_told_where_nothing_of_ours_is_asked() {
    for name in [
        "gpu-fraction",
        "gpu-memory",
        "nvidia.com/container.main.gpu-memory.limit",
    ] {
        let text = format!("{name}=0.5");
        let env = ["NVIDIA_VISIBLE_DEVICES=0"];
        let asked = of(&config(&json!({ name: "0.5" }), &env));
        assert!(
            asked.labels.contains(&(SCHEDULER.to_owned(), text)),
            "{name}"
        );
        // Ours beside it is what counts.
        let ours = json!({ name: "0.5", "gpushare.io/mem-limit": "50%" });
        let asked = of(&config(&ours, &env));
        assert!(asked.labels.iter().all(|(kind, _)| kind != SCHEDULER));
        // A container of the pod that has no GPU.
        assert_eq!(Request::of(&config(&json!({ name: "0.5" }), &[])), Ok(None));
    }
    for other in [
        "gpu-type",
        "nvidia.com/container.main.gpu-type",
        "x/gpu-memory",
    ] {
        let asked = of(&config(
            &json!({ other: "a" }),
            &["NVIDIA_VISIBLE_DEVICES=0"],
        ));
        assert!(
            asked.labels.iter().all(|(kind, _)| kind != SCHEDULER),
            "{other}"
        );
    }
}
