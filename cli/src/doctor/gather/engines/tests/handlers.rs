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
