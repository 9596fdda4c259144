//! containerd, and that of k3s and rke2.

use super::*;

/// The sections of both of containerd's versions.
#[test]
fn containerd_has_the_runtimes_of_its_files_under_both_names() {
    for plugin in ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"] {
        let machine = Machine::new(&["run/containerd/containerd.sock"]);
        let section = |name: &str, annotations: &str| {
            format!(
                "[plugins.\"{plugin}\".containerd.runtimes.{name}]\n{annotations}\
                 [plugins.\"{plugin}\".containerd.runtimes.{name}.options]\n\
                 BinaryName = \"/usr/bin/gpushare-runtime\"\n"
            )
        };
        let first = format!(
            "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\", \"more.toml\"]\n\
             [plugins.\"{plugin}\".containerd]\ndefault_runtime_name = \"one\"\n\
             [plugins.\"{plugin}\".containerd.runtimes.runc]\nruntime_type = \"x\"\n{}",
            section("one", "pod_annotations = [\"gpushare.io/*\"]\n")
        );
        machine.put("etc/containerd/config.toml", &first);
        let second = section("two", "pod_annotations = [\"*\"]\n");
        machine.put("etc/containerd/conf.d/two.toml", &second);
        machine.put("etc/containerd/conf.d/ten.off", &section("ten", ""));
        let one_of_ours = "pod_annotations = [\"gpushare.io/mem-limit\"]\n";
        machine.put("etc/containerd/more.toml", &section("three", one_of_ours));
        let engine = machine.engine();
        assert_eq!(engine.name, "containerd");
        assert_eq!(engine.default.as_deref(), Some("one"));
        let passes = [("one", true), ("two", false), ("three", false)];
        let runtimes = passes.map(|(name, passes)| machine.runtime(name, Some(passes)));
        assert_eq!(engine.runtimes, runtimes);
        assert_eq!(engine.replacing, None);
    }
}

/// containerd 1.x takes the last file's section of a plugin whole, containerd 2 adds them up.
#[test]
fn a_section_of_ours_that_a_later_file_replaces_is_found() {
    let section = "[plugins.\"io.containerd.grpc.v1.cri\".containerd";
    let ours = format!(
        "{section}.runtimes.gpushare.options]\nBinaryName = \"/usr/bin/gpushare-runtime\"\n"
    );
    let default = format!("{section}]\ndefault_runtime_name = \"gpushare\"\n");
    let nvidias = format!(
        "{section}.runtimes.nvidia.options]\nBinaryName = \"/usr/bin/nvidia-container-runtime\"\n"
    );
    let other = "[plugins.\"io.containerd.internal.v1.opt\"]\npath = \"/opt\"\n";
    for (version, first, later, replaces) in [
        (2, ours.clone(), nvidias.clone(), true),
        (2, format!("{default}{ours}"), ours.clone(), true),
        (3, ours.clone(), nvidias.clone(), false),
        (2, ours.clone(), other.to_owned(), false),
        // Nothing of ours changes.
        (2, nvidias.clone(), ours.clone(), false),
        (2, nvidias.clone(), nvidias.clone(), false),
    ] {
        let machine = Machine::new(&["run/containerd/containerd.sock"]);
        let first =
            format!("version = {version}\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n{first}");
        machine.put("etc/containerd/config.toml", &first);
        let file = "etc/containerd/conf.d/99-nvidia.toml";
        machine.put(file, &later);
        let expected = replaces.then(|| machine.at(file));
        assert_eq!(machine.engine().replacing, expected, "{first}{later}");
    }
}

#[test]
fn the_default_of_containerd_is_runc_where_none_is_written() {
    let machine = Machine::new(&["run/containerd/containerd.sock", "var/lib/rancher/k3s/x"]);
    let section = "[plugins.\"io.containerd.cri.v1.runtime\".containerd";
    let runc =
        format!("{section}.runtimes.runc.options]\nBinaryName = \"/usr/bin/gpushare-runtime\"\n");
    let written = format!("{section}]\ndefault_runtime_name = \"other\"\n{runc}");
    for (text, default) in [(&runc, "runc"), (&written, "other")] {
        machine.put("etc/containerd/config.toml", text);
        let file = "var/lib/rancher/k3s/agent/etc/containerd/config.toml";
        machine.put(file, text);
        let defaults = machine.engines().into_iter().map(|one| one.default);
        let expected = Some(default.to_owned());
        assert_eq!(defaults.collect::<Vec<_>>(), [expected.clone(), expected]);
    }
}

#[test]
fn the_containerd_of_docker_alone_is_no_engine() {
    let machine = Machine::new(&["run/containerd/containerd.sock"]);
    for (disabled, count) in [("cri", 0), ("io.containerd.grpc.v1.cri", 0), ("aufs", 1)] {
        let text = format!("disabled_plugins = [\"{disabled}\"]\n");
        machine.put("etc/containerd/config.toml", &text);
        assert_eq!(machine.engines().len(), count, "{disabled}");
    }
}

#[test]
fn k3s_and_rke2_have_the_runtimes_of_the_file_that_they_write() {
    let machine = Machine::new(&[]);
    for name in ["k3s", "rke2"] {
        machine.put(
            &format!("var/lib/rancher/{name}/agent/etc/containerd/config.toml"),
            "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.gpushare.options]\n\
             BinaryName = \"/usr/bin/gpushare-runtime\"\n",
        );
    }
    let engines = machine.engines();
    let found: Vec<_> = engines.iter().map(|one| (one.name, names(one))).collect();
    let ours = vec!["gpushare"];
    assert_eq!(found, [("k3s", ours.clone()), ("rke2", ours)]);
}

/// k3s from 2026 on imports the drop-ins beside its file, by their whole path.
#[test]
fn k3s_has_the_runtimes_of_the_drop_ins_that_its_file_imports() {
    let machine = Machine::new(&[]);
    let folder = "var/lib/rancher/k3s/agent/etc/containerd";
    let section = "[plugins.\"io.containerd.cri.v1.runtime\".containerd";
    let program = |name: &str, path: &str| {
        format!("{section}.runtimes.{name}.options]\nBinaryName = \"{path}\"\n")
    };
    let drop_in = format!(
        "{section}]\ndefault_runtime_name = \"gpushare\"\n{}{}",
        program("gpushare", "/usr/bin/gpushare-runtime"),
        program("nvidia", "/usr/bin/nvidia-container-runtime"),
    );
    machine.put(&format!("{folder}/config-v3.toml.d/99-x.toml"), &drop_in);
    let file = format!("{folder}/config.toml");
    for (imports, ours, past) in [
        (String::new(), &[][..], &[][..]),
        (
            format!("imports = [\"/{folder}/config-v3.toml.d/*.toml\"]\n"),
            &["gpushare"],
            &["nvidia"],
        ),
    ] {
        machine.put(&file, &format!("version = 3\n{imports}"));
        let engine = machine.engine();
        assert_eq!(names(&engine), ours, "{imports}");
        assert_eq!(engine.past, past);
        let default = ours.first().copied().unwrap_or("runc");
        assert_eq!(engine.default.as_deref(), Some(default));
    }
}
