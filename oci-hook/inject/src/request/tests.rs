#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use serde_json::json;

mod of_devices;
mod of_images;

fn config(annotations: &Value, env: &[&str]) -> Value {
    json!({
        "annotations": annotations,
        "process": {"env": env, "args": ["sh"], "user": {"uid": 7}},
        "linux": {"cgroupsPath": "/kubepods/burstable/pod1/a"},
    })
}

fn of(annotations: &Value, env: &[&str]) -> Request {
    Request::of(&config(annotations, env)).unwrap().unwrap()
}

fn refused(annotations: &Value, env: &[&str]) -> String {
    Request::of(&config(annotations, env)).unwrap_err().0
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    all.iter().map(pair).collect()
}

#[test]
fn a_container_without_a_gpu_that_asks_for_nothing_is_none_of_ours() {
    for (annotations, env) in [
        (json!({}), &["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=void"][..]),
        (json!(null), &[]),
        (
            json!({"other.io/mem-limit": "1GiB"}),
            &["GPUSHARE_LOG=/tmp/x"],
        ),
        // An engine's own beside the image's.
        (
            json!({}),
            &["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=none"],
        ),
        (
            json!({}),
            &["GPUSHARE_DISABLE=1", "GPUSHARE_DISABLE=0", "GPUSHARE_LOG=x"],
        ),
        // Without a limit there is nothing to switch off.
        (json!({}), &["GPUSHARE_DISABLE=1", "GPUSHARE_SOCKET=/tmp"]),
    ] {
        assert_eq!(Request::of(&config(&annotations, env)), Ok(None));
    }
    assert_eq!(Request::of(&json!({})), Ok(None));
}

#[test]
fn annotations_are_variables() {
    let asked = of(
        &json!({
            "gpushare.io/mem-limit": "4GiB",
            "gpushare.io/sm-limit_0": "30",
            "gpushare.io/mem-request_GPU-8932f937-d72c-4106-c12f-20bd9faed9f6": "1GiB",
            "gpushare.io/devices": "0, 1",
        }),
        &[],
    );
    let mut environment = asked.environment;
    environment.sort();
    assert_eq!(
        environment,
        pairs(&[
            ("GPUSHARE_MEM_LIMIT", "4GiB"),
            (
                "GPUSHARE_MEM_REQUEST_GPU_8932f937_d72c_4106_c12f_20bd9faed9f6",
                "1GiB"
            ),
            ("GPUSHARE_SM_LIMIT_0", "30"),
        ])
    );
    assert_eq!(asked.devices, ["0", "1"]);
}

#[test]
fn the_environment_asks_where_no_annotation_does_and_never_raises_one() {
    let env = [
        "GPUSHARE_MEM_LIMIT=8GiB",
        "GPUSHARE_MEM_LIMIT_0=16GiB",
        "CUDA_DEVICE_MEMORY_LIMIT=9g",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=9G",
        "GPUSHARE_SM_LIMIT=50",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10",
        "GPUSHARE_DISABLE=1",
    ];
    let asked = of(&json!({"gpushare.io/mem-limit": "4GiB"}), &env);
    assert_eq!(
        asked.environment,
        pairs(&[
            ("GPUSHARE_MEM_LIMIT", "4GiB"),
            ("GPUSHARE_SM_LIMIT", "50"),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10"),
        ])
    );
    let lower = env.map(|one| match one {
        "GPUSHARE_MEM_LIMIT_0=16GiB" => "GPUSHARE_MEM_LIMIT_0=6GiB",
        other => other,
    });
    let asked = of(&json!({"gpushare.io/sm-limit": "20"}), &lower);
    assert_eq!(asked.environment.len(), 5, "{:?}", asked.environment);
    assert!(
        asked
            .environment
            .contains(&("GPUSHARE_SM_LIMIT".to_owned(), "20".to_owned()))
    );
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    for name in [
        "mem-limits",
        "MEM-LIMIT",
        "mem_limit",
        "",
        "socket",
        "disable",
        "tenant",
        "mem-limit_x",
        "../mem-limit",
    ] {
        let annotation = format!("gpushare.io/{name}");
        let told = refused(&json!({annotation.clone(): "1"}), &[]);
        assert!(
            told.contains(&annotation) && told.contains("accepted"),
            "{told}"
        );
    }
    for annotations in [
        json!({"gpushare.io/mem-limit": 4}),
        json!({"gpushare.io/devices": ["0"]}),
        json!({"gpushare.io/devices": ""}),
        json!([]),
        json!("x"),
    ] {
        refused(&annotations, &[]);
    }
    let huge = "9".repeat(MOST);
    refused(&json!({"gpushare.io/mem-limit": huge}), &[]);
    for env in [json!("PATH=/bin"), json!([1]), json!({"a": 1})] {
        let config = json!({"process": {"env": env}});
        Request::of(&config).unwrap_err();
    }
}

#[test]
fn a_variable_of_ours_that_occurs_twice_is_refused() {
    for name in [
        "GPUSHARE_MEM_LIMIT",
        "GPUSHARE_DISABLE",
        "CUDA_DEVICE_MEMORY_LIMIT",
    ] {
        let (one, two) = (format!("{name}=1"), format!("{name}=2"));
        let env = ["GPUSHARE_SM_LIMIT=30", &one, "A=1", &two];
        for annotations in [json!({}), json!({"gpushare.io/mem-limit": "1GiB"})] {
            let told = refused(&annotations, &env);
            assert!(told.contains(name) && told.contains("twice"), "{told}");
        }
    }
    let asked = of(&json!({}), &["A=1", "A=2", "GPUSHARE_MEM_LIMIT=1GiB"]);
    assert_eq!(asked.environment.len(), 1, "others' are none of ours");
}

#[test]
fn a_misspelt_limit_of_the_environment_is_refused_by_name() {
    for (name, meant) in [
        ("GPUSHARE_MEM_LIMT", "GPUSHARE_MEM_LIMIT"),
        ("GPUSHARE_MEMORY_LIMIT", "GPUSHARE_MEM_LIMIT"),
        ("GPUSHARE_MEM_LIMIT_GPU-8932f937", "GPUSHARE_MEM_LIMIT"),
        ("GPUSHARE_MEM_LIMIT_16", "GPUSHARE_MEM_LIMIT"),
        ("GPUSHARE_PRIORTY", "GPUSHARE_PRIORITY"),
        ("CUDA_DEVICE_MEMORY_LIMIT_X", "CUDA_DEVICE_MEMORY_LIMIT"),
        ("CUDA_DEVICE_SM_LIMITS", "CUDA_DEVICE_SM_LIMIT"),
        ("NVIDIA_GPU_MEMORY_LIMITS", "NVIDIA_GPU_MEMORY_LIMIT"),
    ] {
        let misspelt = format!("{name}=4GiB");
        // Alone, and beside a limit that is spelt right.
        for annotations in [json!({}), json!({"gpushare.io/mem-limit": "1GiB"})] {
            let told = refused(&annotations, &["A=1", &misspelt]);
            let words = [name, "4GiB", "accepted", meant];
            assert!(words.iter().all(|word| told.contains(word)), "{told}");
        }
    }
    for plumbing in ["GPUSHARE_LOG=/tmp/x", "GPUSHARE_TENANT=a", "GPUSHARED=1"] {
        assert_eq!(Request::of(&config(&json!({}), &[plumbing])), Ok(None));
    }
}

#[test]
fn annotations_hold_only_for_the_containers_that_they_name() {
    let asks = |engine: &Engine, own: &str, env: &[&str]| {
        let annotations = json!({
            "gpushare.io/mem-limit": "1GiB",
            "gpushare.io/devices": "0",
            "gpushare.io/containers": "main, worker",
            engine.kind: "container",
            engine.name: own,
        });
        Request::of(&config(&annotations, env)).unwrap()
    };
    for engine in [&CONTAINERD, &CRI_O] {
        assert!(asks(engine, "worker", &[]).is_some());
        assert_eq!(asks(engine, "sidecar", &[]), None);
        // Its own variables still ask, and the annotation's devices are not its.
        let own = asks(engine, "sidecar", &["GPUSHARE_MEM_LIMIT=2GiB"]).unwrap();
        assert_eq!(own.environment, pairs(&[("GPUSHARE_MEM_LIMIT", "2GiB")]));
        assert!(own.devices.is_empty());
    }
}

#[test]
fn a_container_with_a_gpu_is_not_left_out_in_silence() {
    let with = |list: &str, env: &[&str], files: Value| {
        let annotations = json!({
            "gpushare.io/mem-limit": "25%",
            "gpushare.io/containers": list,
            CONTAINERD.kind: "container",
            CONTAINERD.name: "main",
        });
        let mut config = config(&annotations, env);
        config["linux"]["devices"] = files;
        Request::of(&config)
    };
    let void = "NVIDIA_VISIBLE_DEVICES=void";
    let file = json!([{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]);
    let (gpu, all) = ("NVIDIA_VISIBLE_DEVICES=GPU-a", "NVIDIA_VISIBLE_DEVICES=all");
    for (env, files) in [
        (&[all, gpu][..], json!([])),
        (&[void], file.clone()),
        (&[], file.clone()),
        (&[all], file.clone()),
    ] {
        let by_file = files != json!([]);
        let told = with("mian", env, files).unwrap_err().0;
        for word in ["mian", "main", "accepted"] {
            assert!(told.contains(word), "{word} in {told}");
        }
        assert_ne!(told.contains("_DEVICES=void"), by_file, "{told}");
    }
    // `all` of no image: an annotation beside the image's, a mount, and a CDI name.
    let with_all = |key: &str, value: &str, env: &[&str], mounts: Value| {
        let mut config = config(
            &json!({
                "gpushare.io/mem-limit": "25%",
                "gpushare.io/containers": "mian",
                CONTAINERD.kind: "container",
                CONTAINERD.name: "main",
                key: value,
            }),
            env,
        );
        config["mounts"] = mounts;
        Request::of(&config).unwrap_err().0
    };
    let folder = "/var/run/nvidia-container-devices";
    let mounts = json!([{"destination": format!("{folder}/all")}]);
    let by_mount = format!("NVIDIA_VISIBLE_DEVICES={folder}");
    let by_name = "NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all";
    for told in [
        with_all("cdi.k8s.io/x", "nvidia.com/gpu=all", &[all], json!([])),
        with_all("other", "", &[&by_mount], mounts.clone()),
        with_all("other", "", &[all], mounts),
        with_all("other", "", &[by_name], json!([])),
    ] {
        assert!(told.contains("has a GPU (all)"), "{told}");
    }
    // Named, or with limits of its own; and sidecars without a GPU: images of CUDA say `all`.
    assert!(with("mian,main", &[gpu], json!([])).unwrap().is_some());
    let own = with("mian", &[gpu, "GPUSHARE_MEM_LIMIT=100%"], json!([]));
    assert_eq!(own.unwrap().unwrap().devices, ["GPU-a"]);
    for (env, files) in [
        (&[][..], json!(null)),
        (&[all], json!([])),
        (&["NVIDIA_VISIBLE_DEVICES=none"], json!([])),
        (&[void], json!([])),
    ] {
        let left = with("mian", env, files).unwrap();
        assert!(asks_nothing(left), "{env:?}");
    }
    // A privileged one has all device files, and nobody gave it a GPU.
    let mut privileged = json!({
        "annotations": {
            "gpushare.io/mem-limit": "25%",
            "gpushare.io/containers": "mian",
            CONTAINERD.name: "main",
        },
        "linux": {
            "cgroupsPath": "/kubepods/pod1/a",
            "devices": file,
            "resources": {"devices": [{"allow": true, "access": "rwm"}]},
        },
    });
    assert!(asks_nothing(Request::of(&privileged).unwrap()));
    privileged["linux"]["resources"]["devices"][0]["allow"] = json!(false);
    Request::of(&privileged).unwrap_err();
    // A list beside no limit leaves nothing out.
    let bare = json!({"gpushare.io/containers": "mian", CONTAINERD.name: "main"});
    assert!(asks_nothing(Request::of(&config(&bare, &[gpu])).unwrap()));
}

fn asks_nothing(request: Option<Request>) -> bool {
    request.is_none_or(|request| request.asks == Asks::Nothing)
}

#[test]
fn a_list_of_containers_that_cannot_be_followed_is_refused() {
    let limit = ("gpushare.io/mem-limit", "1GiB");
    let named = "io.kubernetes.cri.container-name";
    // An engine that says no name, an empty one, and a misspelt limit beside another's container.
    let nameless = refused(
        &json!({limit.0: limit.1, "gpushare.io/containers": "main"}),
        &[],
    );
    assert!(nameless.contains("does not say which"), "{nameless}");
    let empty = refused(
        &json!({"gpushare.io/containers": "main,", named: "main"}),
        &[],
    );
    assert!(empty.contains("a name is empty"), "{empty}");
    let misspelt =
        json!({"gpushare.io/mem-limt": "1GiB", "gpushare.io/containers": "main", named: "x"});
    assert!(refused(&misspelt, &[]).contains("no such limit"));
}

#[test]
fn labels_are_what_engines_and_configurations_say() {
    let asked = of(
        &json!({
            "gpushare.io/mem-limit": "1GiB",
            "io.kubernetes.cri.sandbox-namespace": "team",
            "io.kubernetes.cri.image-name": "docker.io/lab/x:1",
            "io.kubernetes.cri.sandbox-name": "web-0",
            "io.kubernetes.cri.container-name": "main",
        }),
        &["PATH=/a:b:/c"],
    );
    let labels = pairs(&[
        ("namespace", "team"),
        ("image", "docker.io/lab/x:1"),
        ("pod", "web-0"),
        ("pod_container", "main"),
        ("user", "7"),
        (GIVEN, ""),
    ]);
    assert_eq!(asked.labels, labels);
    let folders = ["/a", "/b", "/c"].map(str::to_owned).to_vec();
    assert_eq!(asked.program, Some(("sh".to_owned(), folders)));
}

/// CRI-O gives a container all annotations of its pod.
#[test]
fn what_a_pods_author_writes_by_another_engines_names_means_nothing() {
    let asked = of(
        &json!({
            "gpushare.io/mem-limit": "1GiB",
            "gpushare.io/containers": "main",
            CONTAINERD.kind: "sandbox",
            CONTAINERD.namespace: "team-b",
            CONTAINERD.image: "theirs",
            CONTAINERD.pod: "web-0",
            CONTAINERD.name: "other",
            CRI_O.kind: "container",
            CRI_O.namespace: "team-a",
            CRI_O.name: "main",
        }),
        &[],
    );
    let labels = pairs(&[
        ("namespace", "team-a"),
        ("pod_container", "main"),
        ("user", "7"),
        (GIVEN, ""),
    ]);
    assert_eq!(asked.labels, labels);
}

#[test]
fn a_pods_own_container_asks_for_nothing() {
    for (name, kind, asks) in [
        ("io.kubernetes.cri.container-type", "sandbox", false),
        ("io.kubernetes.cri-o.ContainerType", "sandbox", false),
        ("io.kubernetes.cri.container-type", "container", true),
        ("io.kubernetes.cri-o.ContainerType", "container", true),
    ] {
        let annotations = json!({"gpushare.io/mem-limit": "1GiB", name: kind});
        let config = config(&annotations, &[]);
        let request = Request::of(&config).unwrap();
        assert_eq!(request.is_some(), asks, "{name}={kind}");
    }
}
