//! A removal while engines call the runtime wrapper: the containers that it made could not be
//! stopped without it.

use super::*;

const WRAPPER: &str = "usr/bin/gpushare-runtime";
const LIB: &str = "usr/lib/gpushare";
/// A container of containerd, with the program that its shim calls.
const SHIM: &str = "run/containerd/io.containerd.runtime.v2.task/k8s.io/one";

#[test]
fn a_wrapper_that_engines_call_outlives_the_removal_until_the_purge() {
    let script = "usr/local/bin/nvidia-shares";
    for (path, text) in [
        (
            "etc/docker/daemon.json",
            r#"{"runtimes": {"gpushare": {"path": "/usr/bin/gpushare-runtime"}}}"#,
        ),
        (
            "etc/systemd/system/docker.service.d/flags.conf",
            "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --default-runtime gpushare \
             --add-runtime gpushare=/usr/bin/gpushare-runtime\n",
        ),
        (
            "etc/sysconfig/docker",
            "OPTIONS='--add-runtime=gpushare=/usr/bin/gpushare-runtime'\n",
        ),
        (
            "etc/containerd/config.toml",
            "BinaryName = \"/usr/bin/gpushare-runtime\"\n",
        ),
        (
            "var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/99-x.toml",
            "BinaryName = \"/usr/bin/gpushare-runtime\"\n",
        ),
        (
            "etc/nvidia-container-runtime/config.toml",
            "runtimes = [\"gpushare-runtime\"]\n",
        ),
        (
            "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
            "runtimes = [\"/usr/bin/gpushare-runtime\"]\n",
        ),
        (&format!("{SHIM}/runtime"), "/usr/bin/gpushare-runtime"),
        (&format!("{SHIM}/runtime"), "/usr/local/bin/nvidia-shares"),
    ] {
        let Some(node) = Node::new() else { return };
        node.install();
        node.put(script, "#!/bin/sh\nexec /usr/bin/gpushare-runtime \"$@\"\n");
        node.put(path, text);
        let said = node.delete();
        let name = path.trim_end_matches("/runtime");
        let named = format!(" /{name}. Name runc in its place");
        assert!(said.contains(&named), "{said}");
        // Containers have the runtime's name stored, and do not start where no entry has it.
        assert!(said.contains("keep the runtime's name"), "{said}");
        assert!(node.has(WRAPPER), "{path}");
        // The purge asks the same script which files name the wrapper: one of them shows it.
        if path != "etc/docker/daemon.json" {
            continue;
        }
        // A purge leaves it as long as it is needed.
        let said = node.purge();
        assert!(said.contains(&format!("calls it: /{name}")), "{said}");
        assert!(node.has(WRAPPER) && !node.has(LIB), "{path}");
        node.install();
        node.delete();
        node.remove(path);
        assert!(node.has(WRAPPER), "{path}");
        assert_eq!(node.purge(), "");
        assert!(!node.has(WRAPPER) && !node.has(LIB), "{path}");
    }
}

#[test]
fn a_wrapper_that_no_engine_calls_goes_with_the_package() {
    let Some(node) = Node::new() else { return };
    node.install();
    // Another installation's is not this one's.
    node.put(
        "etc/docker/daemon.json",
        r#"{"runtimes": {"other": {"path": "/usr/local/bin/gpushare-runtime"}}}"#,
    );
    node.put(
        &format!("{SHIM}/runtime"),
        "/usr/local/bin/gpushare-runtime",
    );
    node.put("usr/local/bin/gpushare-runtime", "a program");
    assert_eq!(node.delete(), "");
    assert!(!node.has(WRAPPER) && !node.has(&format!("{LIB}/kept-runtime")));
}

/// As the page's order of a removal leaves them: the name stays, and the program is another.
#[test]
fn a_runtime_of_our_name_that_is_runc_does_not_keep_the_wrapper() {
    for (path, text) in [
        (
            "etc/docker/daemon.json",
            r#"{"runtimes": {"gpushare": {"path": "/usr/bin/runc"}}}"#,
        ),
        (
            "etc/systemd/system/docker.service.d/flags.conf",
            "[Service]\nExecStart=dockerd --add-runtime gpushare=/usr/bin/runc\n",
        ),
        (
            "etc/containers/containers.conf.d/gpushare.conf",
            "[engine.runtimes]\ngpushare = [\"/usr/bin/runc\"]\n",
        ),
        (
            "etc/crio/crio.conf.d/50-gpushare.conf",
            "[crio.runtime.runtimes.gpushare]\nruntime_path = \"/usr/bin/runc\"\n",
        ),
        (
            "etc/containerd/config.toml",
            "[x.runtimes.gpushare.options]\nBinaryName = \"/usr/bin/runc\"\n",
        ),
    ] {
        let Some(node) = Node::new() else { return };
        node.install();
        node.put(path, text);
        assert_eq!(node.delete(), "", "{path}");
        assert!(!node.has(WRAPPER), "{path}");
    }
}

#[test]
fn a_package_that_comes_back_has_its_own_wrapper_again() {
    let Some(node) = Node::new() else { return };
    node.install();
    let daemon = r#"{"runtimes": {"gpushare": {"path": "/usr/bin/gpushare-runtime"}}}"#;
    node.put("etc/docker/daemon.json", daemon);
    node.delete();
    assert!(node.has(&format!("{LIB}/kept-runtime")));
    node.install_again();
    assert!(!node.has(&format!("{LIB}/kept-runtime")));
    node.remove("etc/docker/daemon.json");
    node.delete();
    assert!(!node.has(WRAPPER));
}

/// A drop-in of an engine, and a file of hooks of the operator's own.
const LEANS: [(&str, &str); 3] = [
    (
        "etc/systemd/system/docker.service.d/gpushare.conf",
        "[Unit]\nAssertPathExists=/run/gpushare/mandatory\n",
    ),
    (
        "etc/systemd/system/kubelet.service.d/late.conf",
        "[Unit]\nRequires=gpushared.service\n",
    ),
    (
        "etc/containers/oci/hooks.d/gpushare.json",
        "{\"hook\": {\"path\": \"/usr/bin/gpushare-oci-hook\"}, \"when\": {\"always\": true}}",
    ),
];

#[test]
fn a_removal_names_what_leans_on_gpushare() {
    for (path, text) in LEANS {
        let Some(node) = Node::new() else { return };
        node.install();
        node.put(path, text);
        let said = node.delete();
        let word = match path.ends_with(".json") {
            true => "run without limits",
            false => "without gpushare",
        };
        let named = format!("{word}: /{path}. Remove");
        assert!(said.contains(&named), "{said}");
    }
}

#[test]
fn a_removal_names_nothing_that_does_not_lean_on_gpushare() {
    let Some(node) = Node::new() else { return };
    node.install();
    for (path, text) in [
        ("usr/share/containers/oci/hooks.d/gpushare.json", LEANS[2].1),
        (
            "etc/systemd/system/docker.service.d/order.conf",
            "[Unit]\nWants=gpushared.service\nAfter=gpushared.service\n",
        ),
        (
            "etc/containers/oci/hooks.d/other.json",
            "{\"hook\": {\"path\": \"/usr/local/bin/gpushare-oci-hook\"}}",
        ),
    ] {
        node.put(path, text);
    }
    assert_eq!(node.delete(), "");
}

/// A wrapper that stays would refuse each container with a GPU, also those that a rule allowed.
#[test]
fn limits_are_not_mandatory_any_more_where_no_daemon_will_decide() {
    for other in [false, true] {
        let Some(node) = Node::new() else { return };
        node.install();
        if other {
            node.put("usr/local/bin/gpushared", "#!/bin/sh\n");
        }
        node.put("run/gpushare/mandatory", "");
        node.upgrade();
        assert!(node.has("run/gpushare/mandatory"));
        node.delete();
        assert_eq!(node.has("run/gpushare/mandatory"), other);
    }
}
