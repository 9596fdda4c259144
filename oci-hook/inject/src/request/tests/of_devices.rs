//! The devices that a request names.

use super::*;

#[test]
fn of_two_variables_of_visible_devices_the_last_one_counts() {
    for (image, engine, devices) in [
        ("all", "0,1", &["0", "1"][..]),
        ("0", "all", &["all"]),
        ("all", "void", &[]),
        ("void", "GPU-a", &["GPU-a"]),
    ] {
        let [one, two] = [image, engine].map(|value| format!("NVIDIA_VISIBLE_DEVICES={value}"));
        let asked = of(&json!({}), &[&one, "GPUSHARE_MEM_LIMIT=1GiB", &two]);
        assert_eq!(asked.devices, devices, "{image}, then {engine}");
    }
}

#[test]
fn devices_come_from_annotation_then_cdi_then_the_variable() {
    let limit = ("gpushare.io/mem-limit", "1GiB");
    let with = |more: &[(&str, &str)], env: &[&str]| {
        let all = more.iter().chain([&limit]);
        let all: Map<String, Value> = all
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        of(&Value::Object(all), env).devices
    };
    let cdi = (
        "cdi.k8s.io/x",
        "nvidia.com/gpu=1,nvidia.com/gpu=GPU-a,other.com/x=7",
    );
    let visible = "NVIDIA_VISIBLE_DEVICES=2,3";
    assert_eq!(
        with(&[("gpushare.io/devices", "all"), cdi], &[visible]),
        ["all"]
    );
    assert_eq!(with(&[cdi], &[visible]), ["1", "GPU-a"]);
    assert_eq!(with(&[], &[visible]), ["2", "3"]);
    for none in ["void", "none", ""] {
        assert!(with(&[], &[&format!("NVIDIA_VISIBLE_DEVICES={none}")]).is_empty());
    }
}

#[test]
fn devices_are_read_in_each_form_of_nvidias_tools() {
    let asks = |variable: &str, annotations: Value, mounts: &[&str]| {
        let mounts: Vec<Value> = mounts
            .iter()
            .map(|end| json!({"destination": end}))
            .collect();
        let env = ["GPUSHARE_MEM_LIMIT=1GiB", variable];
        let mut config = config(&annotations, &env);
        config["mounts"] = json!(mounts);
        Request::of(&config).unwrap().unwrap().devices
    };
    let plugin = "k8s.device-plugin.nvidia.com/gpu=GPU-a";
    // The device plugin by CDI annotations, beside devices of others.
    let cdi = json!({"cdi.k8s.io/nvidia-device-plugin_0": format!("{plugin},nvidia.com/nic=1,evil-nvidia.com/gpu=2")});
    assert_eq!(asks("NVIDIA_VISIBLE_DEVICES=void", cdi, &[]), ["GPU-a"]);
    // KAI with CDI, and a list of both forms.
    let kai = format!("NVIDIA_VISIBLE_DEVICES={plugin}");
    assert_eq!(asks(&kai, json!({}), &[]), ["GPU-a"]);
    assert_eq!(asks(&format!("{kai}, 1"), json!({}), &[]), ["GPU-a", "1"]);
    // The device plugin by mounts, which count only where the variable says so.
    let folder = "/var/run/nvidia-container-devices";
    let ends = [
        "/proc".to_owned(),
        format!("{folder}/GPU-a"),
        format!("{folder}/cdi/k8s.device-plugin.nvidia.com/gpu/GPU-b"),
        format!("{folder}/cdi/other.com/nic/7"),
    ];
    let ends: Vec<&str> = ends.iter().map(String::as_str).collect();
    let pointed = format!("NVIDIA_VISIBLE_DEVICES={folder}");
    assert_eq!(asks(&pointed, json!({}), &ends), ["GPU-a", "GPU-b"]);
    assert_eq!(asks("NVIDIA_VISIBLE_DEVICES=3", json!({}), &ends), ["3"]);
}

#[test]
fn a_void_variable_leaves_the_device_files_to_name_the_gpus() {
    let file = |kind: &str, major: u32, minor: u32| {
        let path = format!("/dev/nvidia{minor}");
        json!({"path": path, "type": kind, "major": major, "minor": minor})
    };
    let asks = |annotations: Value, variable: &str| {
        let env = [
            "GPUSHARE_MEM_LIMIT=1GiB",
            "NVIDIA_VISIBLE_DEVICES=GPU-a",
            variable,
        ];
        let mut config = config(&annotations, &env);
        // A GPU, nvidiactl, nvidia-modeset, nvidia-uvm, a capability of MIG, and what is odd.
        config["linux"]["devices"] = json!([
            file("c", 195, 1),
            file("c", 195, 255),
            file("c", 195, 254),
            file("c", 511, 0),
            file("c", 236, 3),
            file("b", 195, 4),
            {"path": "/dev/nvidia5"},
            7,
        ]);
        Request::of(&config).unwrap().unwrap().devices
    };
    let void = "NVIDIA_VISIBLE_DEVICES=void";
    assert_eq!(asks(json!({}), void), ["/dev/nvidia1"]);
    // An annotation that names devices has priority over the device files. Without `void` the
    // device files ask for nothing.
    let named = json!({"gpushare.io/devices": "0"});
    assert_eq!(asks(named, void), ["0"]);
    assert_eq!(asks(json!({}), "NVIDIA_VISIBLE_DEVICES=GPU-b"), ["GPU-b"]);
    assert!(asks(json!({}), "NVIDIA_VISIBLE_DEVICES=none").is_empty());
}

#[test]
fn swarms_resources_name_the_devices_of_a_service() {
    let asks = |env: &[&str]| of(&json!({}), &[&["GPUSHARE_MEM_LIMIT=1GiB"], env].concat()).devices;
    let visible = "NVIDIA_VISIBLE_DEVICES=all";
    let (gpu, nvidia) = ("DOCKER_RESOURCE_GPU", "DOCKER_RESOURCE_NVIDIA-GPU");
    // In place of what the image says, of all kinds together.
    for (kind, value, devices) in [
        (gpu, "0", &["0"][..]),
        (nvidia, "GPU-45cbf7b,GPU-a", &["GPU-45cbf7b", "GPU-a"]),
        (gpu, "all", &["all"]),
        ("DOCKER_RESOURCE_CARD", "MIG-a", &["MIG-a"]),
    ] {
        let variable = format!("{kind}={value}");
        assert_eq!(asks(&[visible, &variable]), devices, "{variable}");
        assert_eq!(asks(&[&variable]), devices, "{variable}");
    }
    let both = [format!("{gpu}=0"), format!("{nvidia}=GPU-a")];
    assert_eq!(asks(&[&both[0], &both[1], visible]), ["0", "GPU-a"]);
    // A value that is no list of GPUs belongs to another resource.
    for other in [
        "DOCKER_RESOURCE_GPU=",
        "DOCKER_RESOURCE_GPU=fast",
        "DOCKER_RESOURCE_GPU=0,fast",
        "DOCKER_RESOURCE_SSD=0",
        "DOCKER_RESOURCE_CARD=all",
        "DOCKER_RESOURCE_GPU=GPU-",
        "DOCKER_RESOURCES=GPU-a",
    ] {
        assert_eq!(asks(&[visible, other]), ["all"], "{other}");
    }
    let named = json!({"gpushare.io/devices": "1"});
    assert_eq!(of(&named, &["DOCKER_RESOURCE_GPU=0"]).devices, ["1"]);
}

#[test]
fn the_device_plugins_own_annotations_name_devices_a_pods_do_not() {
    let asks = |name: &str| {
        let annotations = json!({name: "nvidia.com/gpu=GPU-a", "gpushare.io/mem-limit": "1GiB"});
        of(&annotations, &[]).devices
    };
    assert_eq!(asks("cdi.k8s.io/nvidia-device-plugin_0"), ["GPU-a"]);
    assert_eq!(asks("nvidia.cdi.k8s.io/nvidia-device-plugin_0"), ["GPU-a"]);
    // For one container of the pod, maybe another one.
    assert!(asks("nvidia.cdi.k8s.io/container.other").is_empty());
    assert!(asks("evil.cdi.k8s.io/x").is_empty());
}

#[test]
fn a_pods_container_says_which_devices_it_was_given() {
    let namespace = "io.kubernetes.cri.sandbox-namespace";
    let given = |annotations: Value, env: &[&str], more: (&str, Value)| {
        let mut annotations = annotations;
        annotations["gpushare.io/mem-limit"] = json!("25%");
        annotations["gpushare.io/devices"] = json!("all");
        let mut config = config(&annotations, env);
        config[more.0] = more.1;
        let labels = Request::of(&config).unwrap().unwrap().labels;
        let given = labels.into_iter().filter(|(kind, _)| kind == GIVEN);
        given.map(|(_, name)| name).collect::<Vec<_>>()
    };
    let pod = || json!({namespace: "team"});
    let none = || ("hostname", json!("a"));
    let file = json!([{"path": "/dev/nvidia3", "type": "c", "major": 195, "minor": 3}]);
    let files = || ("linux", json!({"devices": file, "cgroupsPath": "a:crio:b"}));
    let place = "/var/run/nvidia-container-devices/GPU-b";
    let mounts = (
        "mounts",
        json!([{"source": "/dev/null", "destination": place}]),
    );
    let by_cdi = json!({namespace: "team", "cdi.k8s.io/x": "nvidia.com/gpu=GPU-a"});
    let (all, zero) = ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=0");
    assert_eq!(given(pod(), &[], none()), [""]);
    assert_eq!(given(pod(), &["NVIDIA_VISIBLE_DEVICES=void"], none()), [""]);
    assert_eq!(given(pod(), &[zero], none()), ["0"]);
    // A variable counts only where nothing else does: an image or a pod's author may write it.
    assert_eq!(given(pod(), &[all], files()), ["/dev/nvidia3"]);
    assert_eq!(given(pod(), &[all], mounts), ["GPU-b"]);
    assert_eq!(given(by_cdi.clone(), &[all], none()), ["GPU-a"]);
    // A file is that of all its GPU's MIG instances: it says nothing beside a name.
    assert_eq!(given(by_cdi, &[all], files()), ["GPU-a"]);
    assert_eq!(given(pod(), &["DOCKER_RESOURCE_GPU=all"], none()), [""]);
    // An image's `all` is not what a pod's container names, where it has a GPU otherwise.
    let named = |annotations: Value, variable: &str| {
        let mut config = config(&annotations, &["GPUSHARE_MEM_LIMIT=25%", variable]);
        config["linux"]["devices"] = file.clone();
        Request::of(&config).unwrap().unwrap().devices
    };
    assert_eq!(named(pod(), all), ["/dev/nvidia3"]);
    assert_eq!(named(pod(), zero), ["0"]);
    assert_eq!(named(json!({}), all), ["/dev/nvidia3"], "nor another's");
    // A container of no pod is not asked: Podman gives its GPUs in ways that are not seen here.
    assert!(given(json!({}), &[zero], files()).is_empty());
}

/// A hook that gives GPUs before the container starts.
fn hook(path: &str, args: &[&str]) -> Value {
    json!({"path": path, "args": args})
}

/// As `ctr run --gpus` and `nerdctl run --gpus` have it.
fn of_containerd(device: &str) -> Value {
    hook(
        "/usr/bin/containerd",
        &[
            "containerd",
            "oci-hook",
            "--",
            "/usr/bin/nvidia-container-cli",
            "--load-kmods",
            "configure",
            device,
            "--utility",
            "--pid={{pid}}",
            "{{rootfs}}",
        ],
    )
}

#[test]
fn a_hook_of_containerds_names_the_gpus_that_it_gives() {
    let with = |env: &[&str], stage: &str, hooks: Value| {
        let mut config = config(&json!({}), env);
        config["hooks"] = json!({ stage: hooks });
        Request::of(&config).unwrap()
    };
    let limit = "GPUSHARE_MEM_LIMIT_0=4GiB";
    for visible in ["A=1", "NVIDIA_VISIBLE_DEVICES=all", "CUDA_VERSION=8.0"] {
        for stage in ["prestart", "createRuntime"] {
            let hooks = || json!([of_containerd("--device=1,GPU-a")]);
            let asked = with(&[visible, limit], stage, hooks()).unwrap();
            assert_eq!(asked.devices, ["1", "GPU-a"], "{visible} {stage}");
            let silent = with(&[visible], stage, hooks()).unwrap();
            assert_eq!((silent.asks, silent.devices.len()), (Asks::Nothing, 2));
        }
        let two = json!([of_containerd("--device=0"), of_containerd("--device=all")]);
        let asked = with(&[visible, limit], "prestart", two).unwrap();
        assert_eq!(asked.devices, ["0", "all"]);
    }
    // Other hooks, and one that gives no GPU.
    for other in [
        of_containerd("--compute"),
        of_containerd("--device="),
        hook("/usr/bin/x", &["x", "--device=1"]),
        hook("/usr/bin/x", &[]),
        json!({"path": "/usr/bin/x"}),
        json!(7),
    ] {
        let hooks = json!([other]);
        assert_eq!(with(&["A=1"], "prestart", hooks.clone()), None, "{other}");
        let asked = with(&[limit], "prestart", hooks).unwrap();
        assert!(asked.devices.is_empty(), "{other}");
    }
    let none = with(&["A=1"], "poststart", json!([of_containerd("--device=1")]));
    assert_eq!(none, None, "too late for a GPU");
}

/// Of a container of Docker's with GPU 1 by its file, from an image that says `all`.
#[test]
fn an_images_all_is_not_what_a_container_with_a_device_file_has() {
    let with = |limit: &str, change: &dyn Fn(&mut Value)| {
        let env = ["NVIDIA_VISIBLE_DEVICES=all", limit];
        let mut config = config(&json!({}), &env);
        config["linux"] = json!({
            "cgroupsPath": "system.slice:docker:4f0a",
            "devices": [{"path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 1}],
        });
        change(&mut config);
        Request::of(&config).unwrap().unwrap().devices
    };
    for limit in ["GPUSHARE_MEM_LIMIT=50%", "A=1"] {
        assert_eq!(with(limit, &|_| {}), ["/dev/nvidia1"], "{limit}");
        // NVIDIA's own hook gives it all of them.
        for name in ["nvidia-container-runtime-hook", "nvidia-container-toolkit"] {
            let path = format!("/usr/bin/{name}");
            let all = with(limit, &|config| {
                config["hooks"] = json!({"prestart": [hook(&path, &["x", "prestart"])]});
            });
            assert_eq!(all, ["all"], "{limit} {name}");
        }
        let privileged = with(limit, &|config| {
            config["linux"]["resources"] = json!({"devices": [{"allow": true, "access": "rwm"}]});
        });
        assert_eq!(privileged, ["all"], "{limit}");
        let other = with(limit, &|config| {
            config["hooks"] = json!({"prestart": [hook("/usr/bin/nvidia-cdi-hook", &[])]});
        });
        assert_eq!(other, ["/dev/nvidia1"], "{limit}");
    }
}
