//! Variables and annotations of an image against those of the operator.

use super::*;

/// Cgroups of the containers of engines that take annotations of images over, and of others.
const PODMANS: [Option<&str>; 5] = [
    Some("machine.slice:libpod:4f0a"),
    Some("/libpod_parent/libpod-4f0a"),
    Some("/user.slice/x.service/libpod-payload-4f0a"),
    Some(""),
    None,
];
const OTHERS: [Option<&str>; 5] = [
    Some("kubepods-burstable-pod1.slice:cri-containerd:4f0a"),
    Some("kubepods-burstable-pod1.slice:crio:4f0a"),
    Some("/kubepods/burstable/pod1/4f0a"),
    Some("/kubepods/burstable/pod1/crio-4f0a"),
    Some("/k8s.io/4f0a"),
];
/// Those of Docker, whose annotations are the client's and never a pod's.
const DOCKERS: [Option<&str>; 3] = [
    Some("system.slice:docker:4f0a"),
    Some("/docker/4f0a"),
    Some("/docker/buildkit/4f0a"),
];

fn in_cgroup(annotations: &Value, env: &[&str], cgroup: Option<&str>) -> Value {
    let mut config = config(annotations, env);
    config["linux"]["cgroupsPath"] = json!(cgroup);
    config
}

/// No engine of pods made it, whatever its annotations say; of its own its author may say what they
/// like.
#[test]
fn no_client_of_dockers_makes_its_container_a_pods() {
    for cgroup in DOCKERS {
        let gpu = ["NVIDIA_VISIBLE_DEVICES=0"];
        for kind in [CONTAINERD.kind, CRI_O.kind] {
            let silent = in_cgroup(&json!({kind: "sandbox"}), &gpu, cgroup);
            assert!(Request::of(&silent).unwrap().is_some(), "{cgroup:?}");
        }
        let named = json!({CONTAINERD.namespace: "gpu-operator"});
        let asked = Request::of(&in_cgroup(&named, &gpu, cgroup)).unwrap();
        let labels = asked.unwrap().labels;
        assert_eq!(labels, pairs(&[("user", "7")]), "{cgroup:?}");
        let of_client = json!({"gpushare.io/mem-limit": "8GiB"});
        let beside = ["GPUSHARE_MEM_LIMIT=4GiB"];
        assert!(Request::of(&in_cgroup(&of_client, &beside, cgroup)).is_ok());
    }
}

/// Podman copies an image's annotations into its container's configuration.
#[test]
fn no_image_of_podmans_makes_its_container_a_pods_own() {
    for kind in [CONTAINERD.kind, CRI_O.kind] {
        let limited = json!({"gpushare.io/mem-limit": "4GiB", kind: "sandbox"});
        let silent = json!({kind: "sandbox"});
        for (cgroups, is_believed) in [(PODMANS, false), (OTHERS, true)] {
            for cgroup in cgroups {
                let asked = Request::of(&in_cgroup(&limited, &[], cgroup)).unwrap();
                assert_eq!(asked.is_none(), is_believed, "{cgroup:?}");
                let gpu = ["NVIDIA_VISIBLE_DEVICES=0"];
                let judged = Request::of(&in_cgroup(&silent, &gpu, cgroup)).unwrap();
                assert_eq!(judged.is_none(), is_believed, "{cgroup:?}");
            }
        }
    }
}

#[test]
fn no_image_of_podmans_names_a_namespace_or_an_image_for_rules() {
    let annotations = json!({
        CONTAINERD.namespace: "gpu-operator",
        CONTAINERD.image: "trusted",
        CONTAINERD.pod: "p",
        CONTAINERD.name: "main",
    });
    let gpu = ["NVIDIA_VISIBLE_DEVICES=0"];
    let mut asking = annotations.clone();
    asking["gpushare.io/mem-limit"] = json!("4GiB");
    let kinds = |annotations: &Value, cgroup| {
        let asked = Request::of(&in_cgroup(annotations, &gpu, cgroup)).unwrap();
        let labels = asked.unwrap().labels.into_iter().map(|(kind, _)| kind);
        labels.filter(|kind| kind != GIVEN).collect::<Vec<_>>()
    };
    for annotations in [annotations, asking] {
        for cgroup in PODMANS {
            assert_eq!(kinds(&annotations, cgroup), ["user"], "{cgroup:?}");
        }
        for cgroup in OTHERS {
            let all = ["namespace", "image", "pod", "pod_container", "user"];
            assert_eq!(kinds(&annotations, cgroup), all, "{cgroup:?}");
        }
    }
}

#[test]
fn no_image_of_podmans_leaves_its_container_out() {
    let annotations = json!({
        "gpushare.io/mem-limit": "4GiB",
        "gpushare.io/containers": "x",
        CONTAINERD.name: "y",
    });
    for cgroup in PODMANS {
        let told = Request::of(&in_cgroup(&annotations, &[], cgroup)).unwrap_err();
        assert!(told.0.contains("does not say which"), "{told:?}");
    }
    for cgroup in OTHERS {
        let left_out = Request::of(&in_cgroup(&annotations, &[], cgroup)).unwrap();
        assert!(left_out.is_none(), "{cgroup:?}");
    }
}

#[test]
fn a_variable_that_an_image_may_have_raises_no_limit() {
    let image = "GPUSHARE_MEM_LIMIT_0=100%";
    let operators = "GPUSHARE_MEM_LIMIT=4GiB";
    for cgroup in PODMANS.into_iter().chain(OTHERS) {
        let told = Request::of(&in_cgroup(&json!({}), &[image, operators], cgroup));
        let told = told.unwrap_err().0;
        let quoted = [
            "GPUSHARE_MEM_LIMIT_0=\"100%\"",
            "GPUSHARE_MEM_LIMIT=\"4GiB\"",
        ];
        for word in quoted.into_iter().chain(["image", "accepted"]) {
            assert!(told.contains(word), "{word}: {told}");
        }
        // Lower, or of a container with an annotation, which hides all such variables.
        let lower = ["GPUSHARE_MEM_LIMIT_0=2GiB", operators];
        assert!(Request::of(&in_cgroup(&json!({}), &lower, cgroup)).is_ok());
    }
    let annotated = json!({"gpushare.io/mem-limit": "4GiB"});
    let asked = Request::of(&in_cgroup(&annotated, &[image], OTHERS[0]));
    let environment = asked.unwrap().unwrap().environment;
    assert_eq!(environment, pairs(&[("GPUSHARE_MEM_LIMIT", "4GiB")]));
    // One author's annotations may say what they like of each device.
    let of_pod = json!({"gpushare.io/mem-limit": "4GiB", "gpushare.io/mem-limit_0": "100%"});
    assert!(Request::of(&in_cgroup(&of_pod, &[], OTHERS[0])).is_ok());
}

#[test]
fn an_annotation_that_an_image_of_podmans_may_have_raises_no_limit() {
    let limit = ("gpushare.io/mem-limit", "4GiB");
    for (annotations, env) in [
        (
            json!({limit.0: limit.1, "gpushare.io/mem-limit_0": "100%"}),
            &[][..],
        ),
        (
            json!({"gpushare.io/mem-limit": "100%"}),
            &["GPUSHARE_MEM_LIMIT=4GiB"],
        ),
        (
            json!({"gpushare.io/mem-view": "limit"}),
            &["GPUSHARE_MEM_LIMIT=4GiB"],
        ),
        (
            json!({"gpushare.io/sm-limit_0": "100", "gpushare.io/sm-limit": "30"}),
            &[],
        ),
    ] {
        for cgroup in PODMANS {
            let told = Request::of(&in_cgroup(&annotations, env, cgroup))
                .unwrap_err()
                .0;
            assert!(told.contains("refused"), "{told}");
        }
        for cgroup in OTHERS {
            assert!(Request::of(&in_cgroup(&annotations, env, cgroup)).is_ok());
        }
    }
    for (annotations, env) in [
        (
            json!({limit.0: limit.1, "gpushare.io/mem-limit_0": "1GiB"}),
            &[][..],
        ),
        (json!({limit.0: limit.1}), &["GPUSHARE_MEM_LIMIT=8GiB"]),
        (json!({limit.0: limit.1}), &["GPUSHARE_SM_LIMIT=30"]),
    ] {
        assert!(Request::of(&in_cgroup(&annotations, env, PODMANS[0])).is_ok());
    }
}
