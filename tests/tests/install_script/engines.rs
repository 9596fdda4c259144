//! A removal while an engine calls the runtime wrapper.

use super::*;

/// Removes the installation of `/opt/own`. Returns what it says.
fn uninstall(unpacked: &Path, root: &Path) -> String {
    let said = Command::new("sh")
        .arg(unpacked.join("install.sh"))
        .args(["--uninstall", "--prefix", "/opt/own"])
        .env("DESTDIR", root)
        .output();
    String::from_utf8(said.expect("a shell").stderr).expect("text")
}

#[test]
fn a_removal_leaves_the_wrapper_that_an_engine_calls() {
    let shim = "run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/one/runtime";
    let shim_of_k0s = shim.replace("k3s", "k0s");
    let binary = "BinaryName = \"/opt/own/bin/gpushare-runtime\"\n";
    for (file, text, stays) in [
        (&*shim_of_k0s, "/opt/own/bin/gpushare-runtime", true),
        ("etc/k0s/containerd.d/gpushare.toml", binary, true),
        // k3s and rke2 import the drop-ins beside their file.
        (
            "var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.d/x.toml",
            binary,
            true,
        ),
        (
            "var/lib/rancher/rke2/agent/etc/containerd/certs.d/x.toml",
            binary,
            false,
        ),
        (
            "etc/docker/daemon.json",
            "\"/opt/own/bin/gpushare-runtime\"",
            true,
        ),
        (shim, "/opt/own/bin/gpushare-runtime", true),
        (
            "etc/docker/daemon.json",
            "\"/usr/bin/gpushare-runtime\"",
            false,
        ),
        (
            "etc/docker/other.json",
            "\"/opt/own/bin/gpushare-runtime\"",
            false,
        ),
    ] {
        let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
        let (unpacked, root) = (unpacked.path(), root.path());
        let path = root.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, text).expect("written");
        install(unpacked, root, &["--prefix", "/opt/own"]);
        let remove = || uninstall(unpacked, root);
        let wrapper = root.join("opt/own/bin/gpushare-runtime");
        let said = remove();
        assert_eq!(wrapper.exists(), stays, "{file}: {said}");
        let name = file.trim_end_matches("/runtime");
        let named = format!("which engines call: /{name}. Name runc in its place");
        assert_eq!(said.contains(&named), stays, "{said}");
        // Containers have the runtime's name stored, and do not start where no entry has it.
        let keeps = said.contains("keep the runtime's name");
        assert_eq!(keeps, stays, "{said}");
        assert!(!root.join("opt/own/bin/gpushared").exists());
        fs::remove_file(path).expect("it is there");
        remove();
        let left = listing(&root.join("opt"));
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_removal_finds_the_script_that_an_engine_has_as_its_runtime() {
    let podman = "etc/containers/containers.conf.d/gpushare.conf";
    let runtimes = "[engine.runtimes]\nours = [\"/usr/local/bin/ours\"]\n";
    let flag = "ExecStart=/usr/bin/dockerd --add-runtime=ours=/usr/local/bin/ours\n";
    let docker = "etc/systemd/system/docker.service.d/x.conf";
    for (file, text, program, stays) in [
        (podman, runtimes, "/opt/own/bin/gpushare-runtime", true),
        (docker, flag, "/opt/own/bin/gpushare-runtime", true),
        (podman, runtimes, "/usr/bin/gpushare-runtime", false),
        (podman, runtimes, "/usr/bin/crun", false),
        (
            "etc/other.conf",
            runtimes,
            "/opt/own/bin/gpushare-runtime",
            false,
        ),
    ] {
        let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
        let (unpacked, root) = (unpacked.path(), root.path());
        let script = format!("#!/bin/sh\nexec {program} \"$@\"\n");
        for (path, text) in [(file, text), ("usr/local/bin/ours", &script)] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        install(unpacked, root, &["--prefix", "/opt/own"]);
        let said = uninstall(unpacked, root);
        let wrapper = root.join("opt/own/bin/gpushare-runtime");
        let named = said.contains(&format!("which engines call: /{file}. Name runc in"));
        assert_eq!((named, wrapper.exists()), (stays, stays), "{file}: {said}");
    }
}

/// NVIDIA's toolkit in a folder that an engine's settings name, or a container's shim.
#[test]
fn a_removal_finds_the_settings_beside_nvidias_runtime() {
    let folder = "opt/toolkit/.config/nvidia-container-runtime";
    let shim = "run/containerd/io.containerd.runtime.v2.task/k8s.io/one/runtime";
    for (file, text, stays) in [
        (
            "etc/containerd/conf.d/99-nvidia.toml",
            "BinaryName = \"/opt/toolkit/nvidia-container-runtime.cdi\"\n",
            true,
        ),
        (shim, "/opt/toolkit/nvidia-container-runtime", true),
        (shim, "/opt/other/nvidia-container-runtime", false),
    ] {
        let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
        let (unpacked, root) = (unpacked.path(), root.path());
        let list = "runtimes = [\"/opt/own/bin/gpushare-runtime\"]\n";
        for (path, text) in [(file, text), (&format!("{folder}/config.toml"), list)] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        install(unpacked, root, &["--prefix", "/opt/own"]);
        let said = uninstall(unpacked, root);
        let named = said.contains(&format!("/{folder}/config.toml. Name runc in its place"));
        let wrapper = root.join("opt/own/bin/gpushare-runtime");
        assert_eq!((named, wrapper.exists()), (stays, stays), "{file}: {said}");
    }
}

#[test]
fn a_removal_names_what_leans_on_gpushare() {
    let hook = |prefix: &str| format!("{{\"path\": \"{prefix}/bin/gpushare-oci-hook\"}}");
    let (own, other) = (hook("/opt/own"), hook("/usr"));
    let asserts = "[Unit]\nAssertPathExists=/run/gpushare/mandatory\n";
    let hooks = "etc/containers/oci/hooks.d/gpushare.json";
    let drop_in = "etc/systemd/system/docker.service.d/gpushare.conf";
    let (engines, passed_over) = ("without gpushare: ", "run without limits: ");
    for (file, text, has_other, word, names) in [
        (drop_in, asserts, false, engines, true),
        (drop_in, asserts, true, engines, false),
        (hooks, &*own, false, passed_over, true),
        (hooks, &*own, true, passed_over, true),
        (hooks, &*own, false, engines, false),
        (hooks, &*other, false, passed_over, false),
    ] {
        let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
        let (unpacked, root) = (unpacked.path(), root.path());
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        install(unpacked, root, &["--prefix", "/opt/own"]);
        put(file, text);
        put("run/gpushare/mandatory", "");
        if has_other {
            put(
                "etc/systemd/system/gpushared.service",
                "ExecStart=/opt/other/gpushared\n",
            );
            put("opt/other/gpushared", "");
            make_program(&root.join("opt/other/gpushared"));
        }
        let said = uninstall(unpacked, root);
        let named = said.contains(&format!("{word}/{file}. Remove"));
        assert_eq!(named, names, "{file}: {said}");
        assert_eq!(root.join("run/gpushare/mandatory").exists(), has_other);
    }
}

/// As CONTAINERS asks for it.
#[test]
fn a_removal_names_the_link_to_its_file_of_hooks() {
    let folder = "share/containers/oci/hooks.d/gpushare.json";
    for (prefix, names) in [("/opt/own", true), ("/opt/other", false)] {
        let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
        let (unpacked, root) = (unpacked.path(), root.path());
        install(unpacked, root, &["--prefix", "/opt/own"]);
        let link = "etc/containers/oci/hooks.d/gpushare.json";
        fs::create_dir_all(root.join("etc/containers/oci/hooks.d")).expect("made");
        let to = format!("{prefix}/{folder}");
        std::os::unix::fs::symlink(to, root.join(link)).expect("made");
        let said = uninstall(unpacked, root);
        let named = said.contains(&format!("run without limits: /{link}. Remove"));
        assert_eq!(named, names, "{said}");
    }
}

/// Podman passes over a file of hooks whose program is not there, and starts containers without it.
#[test]
fn an_upgrade_never_has_a_file_of_hooks_that_names_another_place() {
    let (unpacked, root) = (unpacked(), tempfile::tempdir().expect("a folder"));
    let (unpacked, root) = (unpacked.path(), root.path());
    let tools = tempfile::tempdir().expect("a folder");
    let hook = root.join("opt/own/share/containers/oci/hooks.d/gpushare.json");
    let log = tools.path().join("log");
    // Each file is put in place by mv.
    let mv = format!(
        "#!/bin/sh\n/bin/mv \"$@\"\ncat {} >>{} 2>/dev/null; exit 0\n",
        hook.display(),
        log.display()
    );
    fs::write(tools.path().join("mv"), mv).expect("written");
    make_program(&tools.path().join("mv"));
    for _ in 0..2 {
        let done = Command::new("sh")
            .arg(unpacked.join("install.sh"))
            .args(["--prefix", "/opt/own"])
            .env("DESTDIR", root)
            .env("PATH", format!("{}:/usr/bin:/bin", tools.path().display()))
            .output();
        assert!(done.expect("a shell").status.success());
    }
    let seen = fs::read_to_string(log).expect("moved");
    assert!(
        seen.contains("\"/opt/own/bin/gpushare-oci-hook\""),
        "{seen}"
    );
    assert!(!seen.contains("/usr/bin/"), "{seen}");
}
