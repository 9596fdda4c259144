//! The check of the ways into containers.

use super::*;
use crate::doctor::facts::{HookFile, Made};

const FOLDER: &str = "/usr/share/containers/oci/hooks.d";

fn podman() -> Engine {
    Engine {
        hooks: vec![HookFile {
            file: format!("{FOLDER}/gpushare.json").into(),
            path: "/usr/bin/gpushare-oci-hook".into(),
            runs: true,
            always: false,
        }],
        hook_folders: vec![FOLDER.into()],
        ..Engine::named("podman")
    }
}

/// The check passes and says this.
#[track_caller]
fn passes(found: &str, change: impl FnOnce(&mut Facts)) {
    breaks("containers", Verdict::Ok, (found, ""), change);
}

#[test]
fn an_engine_without_cdi_or_nvidias_toolkit_is_named() {
    breaks(
        "containers",
        Verdict::Warn,
        ("no CDI description", "nvidia-ctk"),
        |facts| facts.cdi.clear(),
    );
    passes("NVIDIA's toolkit", |facts| {
        facts.cdi.clear();
        facts.engines[0].has_nvidia = true;
    });
    passes("no container engine", |facts| {
        facts.cdi.clear();
        facts.engines.clear();
    });
}

#[test]
fn a_runtime_or_a_hook_that_is_not_there_is_named() {
    let absent = "docker: runtime gpushare is /usr/bin/gpushare-runtime, which is not there";
    breaks(
        "containers",
        Verdict::Fail,
        (absent, "its containers do not start"),
        |facts| facts.engines[0].runtimes[0].runs = false,
    );
    breaks(
        "containers",
        Verdict::Fail,
        (
            "gpushare.json is /usr/bin/gpushare-oci-hook",
            "its containers start without limits",
        ),
        |facts| {
            facts.engines.push(podman());
            facts.engines[1].hooks[0].runs = false;
        },
    );
}

#[test]
fn a_podman_whose_images_select_the_hook_is_named() {
    let old = || Engine {
        images_annotate: Some("4.3.1".to_owned()),
        ..podman()
    };
    breaks(
        "containers",
        Verdict::Warn,
        ("podman 4.3.1 takes annotations", "update Podman to 4.5.1"),
        |facts| facts.engines.push(old()),
    );
    passes("podman: /usr/share", |facts| facts.engines.push(podman()));
    passes("podman, by classes", |facts| {
        facts.classes = true;
        facts.engines.push(Engine {
            hooks: vec![],
            ..old()
        });
        facts.engines[1].hook_folders.clear();
    });
    passes("podman: runtime gpushare", |facts| {
        let runtimes = facts.engines[0].runtimes.clone();
        facts.engines.push(Engine {
            default: Some("gpushare".to_owned()),
            runtimes,
            ..old()
        });
    });
}

#[test]
fn a_crio_whose_pods_select_the_hook_before_crun_is_named() {
    let crio = |handler: Option<&str>| Engine {
        name: "cri-o",
        pods_annotate: handler.map(str::to_owned),
        ..podman()
    };
    let found = ("has its handler crun create or open", "name a hooks_dir");
    breaks("containers", Verdict::Warn, found, |facts| {
        facts.engines.push(crio(Some("crun")));
    });
    // Also where the wrapper is the default: the handler is there for a RuntimeClass.
    breaks("containers", Verdict::Warn, found, |facts| {
        let runtimes = facts.engines[0].runtimes.clone();
        facts.engines.push(Engine {
            default: Some("gpushare".to_owned()),
            runtimes,
            ..crio(Some("crun"))
        });
    });
    passes("cri-o: /usr/share", |facts| facts.engines.push(crio(None)));
    passes("cri-o, by classes", |facts| {
        facts.classes = true;
        facts.engines.push(Engine {
            hooks: vec![],
            ..crio(Some("crun"))
        });
    });
}

#[test]
fn a_file_of_an_engine_that_is_wrong_is_named() {
    breaks(
        "containers",
        Verdict::Warn,
        ("docker: daemon.json: line 1", "correct that file"),
        |facts| facts.engines[0].wrong = Some("daemon.json: line 1".to_owned()),
    );
}

#[test]
fn a_runtime_that_is_given_no_annotation_of_a_pod_is_named() {
    for (name, advice) in [("containerd", "restart containerd"), ("k3s", "template")] {
        breaks(
            "containers",
            Verdict::Warn,
            ("given no annotation of a pod", advice),
            |facts| {
                facts.engines[0].name = name;
                facts.engines[0].runtimes[0].passes = Some(false);
            },
        );
        passes(&format!("{name}: runtime gpushare"), |facts| {
            facts.engines[0].name = name;
            facts.engines[0].runtimes[0].passes = Some(true);
        });
    }
}

#[test]
fn an_engine_without_a_hook_in_its_folders_is_named() {
    let bare = |name| {
        move |facts: &mut Facts| {
            facts.engines.push(podman());
            facts.engines[1].name = name;
            facts.engines[1].hooks.clear();
        }
    };
    for name in ["podman", "cri-o"] {
        let found = format!("{name}: no hook of gpushare's in {FOLDER}");
        let advice = "link PREFIX/share";
        breaks("containers", Verdict::Warn, (&found, advice), bare(name));
        breaks(
            "containers",
            Verdict::Warn,
            ("for hooks in no folder", advice),
            |facts| {
                bare(name)(facts);
                facts.engines[1].hook_folders.clear();
            },
        );
        passes(&format!("{name}, by classes"), |facts| {
            bare(name)(facts);
            facts.classes = true;
        });
    }
    passes("podman: /usr/share", |facts| facts.engines.push(podman()));
}

/// Limits are mandatory, and the wrapper is containerd's default.
fn by_default(facts: &mut Facts) {
    facts.mandatory = true;
    facts.engines[0].name = "containerd";
    facts.engines[0].default = Some("gpushare".to_owned());
}

/// Of NVIDIA's runtimes a RuntimeClass may name each, and of Docker's each client names any.
#[test]
fn runtimes_that_go_past_mandatory_limits_are_named() {
    let has_nvidias = |facts: &mut Facts| facts.engines[0].past = vec!["nvidia".to_owned()];
    let found = "containers of containerd's runtime nvidia go past";
    breaks("containers", Verdict::Warn, (found, "remove it"), |facts| {
        by_default(facts);
        has_nvidias(facts);
    });
    passes("containerd: runtime gpushare", |facts| {
        by_default(facts);
        has_nvidias(facts);
        facts.mandatory = false;
    });
    // A hook for all comes to the containers of each runtime.
    passes("podman: /usr/share", |facts| {
        facts.mandatory = true;
        facts.engines = vec![podman()];
        facts.engines[0].hooks[0].always = true;
        has_nvidias(facts);
    });
    let found = "`docker run --runtime runc` goes past";
    breaks(
        "containers",
        Verdict::Warn,
        (found, "its socket"),
        |facts| {
            by_default(facts);
            facts.engines[0].name = "docker";
        },
    );
    passes("docker: runtime gpushare", |facts| {
        by_default(facts);
        facts.engines[0].name = "docker";
        facts.mandatory = false;
    });
}

#[test]
fn where_cdi_gives_gpus_each_handler_beside_the_wrapper_is_named() {
    let with = |name: &'static str| {
        move |facts: &mut Facts| {
            by_default(facts);
            facts.engines[0].name = name;
            facts.engines[0].others = vec!["crun".to_owned()];
        }
    };
    for name in ["containerd", "k3s", "cri-o"] {
        let found = format!("RuntimeClass names a handler of {name} (crun) go past");
        let advice = "have each call the wrapper";
        breaks("containers", Verdict::Warn, (&found, advice), with(name));
        let passes = |change: fn(&mut Facts)| {
            passes(&format!("{name}: runtime gpushare"), |facts| {
                with(name)(facts);
                change(facts);
            });
        };
        passes(|facts| facts.mandatory = false);
        passes(|facts| facts.engines[0].others.clear());
        passes(|facts| {
            facts.cdi.clear();
            facts.engines[0].has_nvidia = true;
            facts.engines[0].runtimes[0].has_nvidia = true;
        });
    }
    // Those of the device plugin alone.
    let found = "RuntimeClass names a handler of k3s (crun) go past";
    breaks("containers", Verdict::Warn, (found, "remove"), |facts| {
        with("k3s")(facts);
        facts.cdi.clear();
        facts.engines[0].has_nvidia = true;
        facts.pods_cdi = true;
    });
}

#[test]
fn the_wrapper_as_default_is_advised_without_doubt_where_cdi_gives_gpus() {
    let aside = |has_cdi: bool| {
        move |facts: &mut Facts| {
            by_default(facts);
            facts.engines[0].default = Some("runc".to_owned());
            if !has_cdi {
                facts.cdi.clear();
                facts.engines[0].has_nvidia = true;
                facts.engines[0].runtimes[0].has_nvidia = true;
            }
        }
    };
    let found = "containers of containerd that ask for nothing go past";
    for (has_cdi, advice) in [
        (true, "CDI gives GPUs under any"),
        (false, "unless that gives"),
    ] {
        breaks("containers", Verdict::Warn, (found, advice), aside(has_cdi));
    }
}

#[test]
fn image_builds_that_go_past_are_named_where_cdi_gives_them_gpus() {
    let with = |builds_past: bool, has_cdi: bool| {
        move |facts: &mut Facts| {
            by_default(facts);
            facts.engines[0].name = "docker";
            facts.engines[0].builds_past = builds_past;
            if !has_cdi {
                facts.cdi.clear();
            }
        }
    };
    let builds = ("image builds of docker", "DOCKER_BUILDKIT_RUNC_COMMAND");
    breaks("containers", Verdict::Warn, builds, with(true, true));
    let clients = ("`docker run --runtime runc` goes past", "its socket");
    for (builds_past, has_cdi) in [(true, false), (false, true)] {
        breaks(
            "containers",
            Verdict::Warn,
            clients,
            with(builds_past, has_cdi),
        );
    }
}

#[test]
fn containers_that_keep_another_runtime_are_named() {
    let made = |number: usize| Made {
        name: format!("web{number}"),
        runtime: "runc".to_owned(),
    };
    let with = |count: usize| {
        move |facts: &mut Facts| {
            by_default(facts);
            facts.engines[0].name = "docker";
            facts.engines[0].made_past = (0..count).map(made).collect();
        }
    };
    for (count, found) in [
        (1, "made with another runtime go past: web0 (runc)"),
        (7, "web4 (runc), 2 more"),
        // Nothing but what no setting closes.
        (0, "`docker run --runtime runc` goes past"),
    ] {
        let advice = if count == 0 {
            "its socket"
        } else {
            "make them anew"
        };
        breaks("containers", Verdict::Warn, (found, advice), with(count));
    }
    passes("docker: runtime gpushare", |facts| {
        with(1)(facts);
        facts.mandatory = false;
    });
}

#[test]
fn what_confined_containers_may_not_read_is_named() {
    let unread = |facts: &mut Facts| {
        facts.unread_by_containers = vec![("/run/gpushare".into(), "var_run_t".to_owned())];
    };
    let found = "SELinux confines may not read /run/gpushare (var_run_t)";
    breaks("containers", Verdict::Warn, (found, "restorecon"), unread);
    passes("no container engine", |facts| {
        unread(facts);
        facts.engines.clear();
    });
}

#[test]
fn a_section_that_a_later_file_replaces_is_named() {
    let file = "/etc/containerd/conf.d/99-nvidia.toml";
    let found = format!("containerd: {file} has a section of [plugins] again");
    let advice = "`containerd config dump`";
    breaks("containers", Verdict::Warn, (&found, advice), |facts| {
        facts.engines[0].name = "containerd";
        facts.engines[0].replacing = Some(file.into());
    });
}

#[test]
fn a_runtime_whose_pods_get_no_gpu_is_named() {
    let bare = |facts: &mut Facts| {
        facts.cdi.clear();
        facts.engines[0].name = "containerd";
        facts.engines[0].has_nvidia = true;
    };
    let found = "runtime gpushare does not come to NVIDIA's";
    breaks("containers", Verdict::Warn, (found, "script"), bare);
    passes("GPUs by NVIDIA's toolkit", |facts| {
        bare(facts);
        facts.engines[0].runtimes[0].has_nvidia = true;
    });
    passes("GPUs by NVIDIA's toolkit", |facts| {
        bare(facts);
        facts.pods_cdi = true;
    });
    // Docker adds NVIDIA's hook to the containers of each runtime.
    passes("GPUs by NVIDIA's toolkit", |facts| {
        bare(facts);
        facts.engines[0].name = "docker";
    });
}

#[test]
fn rules_for_pods_are_named_where_no_engine_has_any() {
    let found = "it fits none";
    breaks("containers", Verdict::Warn, (found, "`user`"), |facts| {
        facts.has_pod_rules = true;
        facts.engines.push(podman());
    });
    passes("containerd: runtime gpushare", |facts| {
        facts.has_pod_rules = true;
        facts.engines[0].name = "containerd";
        facts.engines.push(podman());
    });
}

#[test]
fn containers_that_go_past_mandatory_limits_are_named() {
    breaks(
        "containers",
        Verdict::Warn,
        (
            "containers of docker that ask for nothing",
            "default runtime",
        ),
        |facts| facts.mandatory = true,
    );
    passes("containerd: runtime gpushare", by_default);
    breaks(
        "containers",
        Verdict::Warn,
        ("containers of podman that ask for nothing", "file of hooks"),
        |facts| {
            by_default(facts);
            facts.engines.push(podman());
        },
    );
    passes("podman: /usr/share", |facts| {
        by_default(facts);
        facts.engines.push(podman());
        facts.engines[1].hooks[0].always = true;
    });
}

#[test]
fn an_engine_that_has_nothing_of_ours_passes() {
    passes("docker, without gpushare", |facts| {
        facts.engines[0].runtimes.clear();
    });
    passes("k3s (/var/lib/rancher/k3s is root's", |facts| {
        let unread = Some("/var/lib/rancher/k3s".into());
        facts.engines = vec![Engine {
            unread,
            ..Engine::named("k3s")
        }];
    });
}

#[test]
fn how_gpus_are_given_is_unknown_where_a_file_is_roots() {
    let k3s = |unread: Option<&str>| Engine {
        unread: unread.map(Into::into),
        ..Engine::named("k3s")
    };
    passes("how GPUs are given is root's to read", |facts| {
        facts.cdi.clear();
        facts.engines = vec![k3s(Some("/var/lib/rancher/k3s"))];
    });
    let found = ("no CDI description", "nvidia-ctk");
    breaks("containers", Verdict::Warn, found, |facts| {
        facts.cdi.clear();
        facts.engines = vec![k3s(None)];
    });
}
