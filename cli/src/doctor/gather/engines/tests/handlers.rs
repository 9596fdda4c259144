//! The handlers of RuntimeClasses.

use super::*;

/// Where CDI gives the GPUs, the handler of each RuntimeClass does.
#[test]
fn runtimes_that_call_another_program_than_ours_are_found() {
    let machine = Machine::new(&["usr/bin/crio"]);
    let section = "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes";
    let runc = "runtime_type = \"io.containerd.runc.v2\"\n";
    let program = |name: &str, path: &str| {
        format!("{section}.{name}]\n{runc}{section}.{name}.options]\nBinaryName = \"{path}\"\n")
    };
    machine.put(
        "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        &[
            format!("{section}.runc]\n{runc}{section}.runc.options]\nSystemdCgroup = true\n"),
            program("crun", "/usr/bin/crun"),
            program("gpushare", "/usr/bin/gpushare-runtime"),
            program("nvidia", "/usr/bin/nvidia-container-runtime"),
            format!("{section}.spin]\nruntime_type = \"io.containerd.spin.v2\"\n"),
        ]
        .concat(),
    );
    let section = "[crio.runtime.runtimes";
    machine.put(
        "etc/crio/crio.conf",
        &format!(
            "{section}.crun]\n{section}.kata]\nruntime_type = \"vm\"\n\
             {section}.runc]\nruntime_type = \"oci\"\nruntime_path = \"/usr/bin/gpushare-runtime\"\n"
        ),
    );
    let engines = machine.engines();
    let found: Vec<_> = engines.iter().map(|one| (one.name, &one.others)).collect();
    let of_k3s = ["crun", "runc"].map(str::to_owned).to_vec();
    let of_crio = vec!["crun".to_owned()];
    assert_eq!(found, [("k3s", &of_k3s), ("cri-o", &of_crio)]);
    assert_eq!(engines[0].past, ["nvidia"]);
}

/// CRI-O hands each annotation of a pod on, and crun opens files of the host by some.
#[test]
fn a_handler_of_crio_that_is_crun_without_the_wrapper_is_found() {
    let section = |name: &str, path: &str| {
        format!("[crio.runtime.runtimes.{name}]\nruntime_path = \"{path}\"\n")
    };
    let default = |name: &str| format!("[crio.runtime]\ndefault_runtime = \"{name}\"\n");
    let crun = "/usr/libexec/crio/crun";
    let wrapped = section("crun", "/usr/bin/gpushare-runtime");
    for (programs, text, found) in [
        (&["usr/libexec/crio/crun"][..], String::new(), Some("crun")),
        (&["usr/bin/crun"], String::new(), Some("crun")),
        (&[], String::new(), None),
        (&["usr/bin/crun"], default("runc"), None),
        (&[], section("crun", ""), Some("crun")),
        (&[], section("fast", crun), Some("fast")),
        (&["usr/bin/crun"], wrapped.clone(), None),
        // A RuntimeClass may name the other one.
        (&[], wrapped + &section("fast", crun), Some("fast")),
        (&[], section("runc", "/usr/libexec/crio/runc"), None),
    ] {
        let machine = Machine::new(&[&["usr/bin/crio"], programs].concat());
        machine.put("etc/crio/crio.conf.d/10-crio.conf", &text);
        let annotate = machine.engine().pods_annotate;
        assert_eq!(annotate.as_deref(), found, "{programs:?} {text}");
    }
}
