//! Each check on a healthy node, and on one where what it looks at is wrong: it says so, and what
//! to do.

mod containers;
mod daemons;
mod shell;

use super::*;
use crate::daemon::Unserved;
use crate::doctor::facts::{Daemon, Driver, Engine, Folder, Login, Node, Runtime, Way};
use gpushare_sys::proof::Modes;

fn healthy() -> Facts {
    let way = |by: &str| Way {
        by: by.to_owned(),
        outcome: Outcome::Held,
    };
    Facts {
        soft: false,
        devices: Ok(2),
        driver: Driver {
            cuda: Ok(12_080),
            modes: Ok(vec![Modes {
                persistence: Some(true),
                compute: Some(0),
                mig: Some(false),
            }]),
        },
        nodes: vec![Node {
            path: "/dev/nvidia0".into(),
            usable: true,
        }],
        library: Ok("/usr/lib/gpushare/libgpushare.so".into()),
        proof: Ok(vec![way("dlsym"), way("a graph")]),
        daemons: vec![Daemon {
            folder: "/run/gpushare".into(),
            minor: 8,
            devices: vec![("GPU-1".to_owned(), true)],
            lost: vec![],
            build: Some("0.1.0+a".to_owned()),
        }],
        silent: vec![],
        died: vec![],
        elsewhere: None,
        ended_outer: None,
        unopened: None,
        no_journal: None,
        container: None,
        refused_settings: None,
        has_pod_rules: false,
        own_build: "0.1.0+a",
        own_minor: 8,
        first_pid_namespace: true,
        kernel: "6.1.0-13-amd64".to_owned(),
        may_pass_nothing: false,
        descriptors: 524_288,
        controllers: Some(vec!["cpu".to_owned()]),
        mps: None,
        preloads: vec![],
        misspelt: vec![],
        disabled: false,
        cdi: vec!["/etc/cdi".into()],
        pods_cdi: false,
        engines: vec![Engine {
            runtimes: vec![Runtime {
                name: "gpushare".to_owned(),
                path: "/usr/bin/gpushare-runtime".into(),
                runs: true,
                passes: None,
                has_nvidia: false,
            }],
            ..Engine::named("docker")
        }],
        unread_by_containers: vec![],
        mandatory: false,
        classes: false,
        folders: vec![Folder {
            path: "/run".into(),
            free: 1 << 30,
        }],
        login: Login::default(),
        clock: 1_800_000_000,
    }
}

#[test]
fn a_healthy_node_passes_every_check_without_advice() {
    for check in judge(&healthy()) {
        assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        assert_eq!(check.advice, None, "{check:?}");
    }
}

#[test]
fn every_name_of_a_check_is_one() {
    let names: std::collections::BTreeSet<_> = CHECKS.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), CHECKS.len());
}

/// A change of the facts makes this check, and no other, end like that, with these words in what it
/// found and in its advice.
#[track_caller]
fn breaks(
    name: &str,
    verdict: Verdict,
    (found, advice): (&str, &str),
    change: impl FnOnce(&mut Facts),
) {
    let mut facts = healthy();
    change(&mut facts);
    for check in judge(&facts) {
        if check.check == name {
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.found.contains(found), "{found}: {check:?}");
            let said = check.advice.clone().unwrap_or_default();
            assert!(said.contains(advice), "{advice}: {check:?}");
        } else {
            assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        }
    }
}

#[test]
fn a_missing_or_old_driver_is_named() {
    let why = "libcuda.so.1 cannot be loaded".to_owned();
    breaks(
        "driver",
        Verdict::Fail,
        ("libcuda.so.1", "install"),
        |facts| {
            facts.devices = Err(why);
        },
    );
    breaks(
        "driver",
        Verdict::Fail,
        ("no GPU", "CUDA_VISIBLE_DEVICES"),
        |facts| {
            facts.devices = Ok(0);
        },
    );
    breaks(
        "driver",
        Verdict::Fail,
        ("CUDA 10.2", "CUDA 11.0"),
        |facts| {
            facts.driver.cuda = Ok(10_020);
        },
    );
    breaks("driver", Verdict::Fail, ("no answer", "anew"), |facts| {
        facts.driver.cuda = Err("no answer within 8 s".to_owned());
    });
}

#[test]
fn nvml_that_is_missing_or_blind_is_named() {
    breaks(
        "nvml",
        Verdict::Fail,
        ("libnvidia-ml", "install"),
        |facts| {
            facts.driver.modes = Err("libnvidia-ml.so.1 cannot be loaded".to_owned());
        },
    );
    breaks("nvml", Verdict::Warn, ("GPU-1", "hostPID"), |facts| {
        facts.daemons[0].devices[0].1 = false;
    });
}

#[test]
fn in_a_container_the_daemon_is_the_hosts_and_has_to_listen() {
    let inside = |facts: &mut Facts, hears: Result<(), String>| {
        facts.daemons.clear();
        facts.silent = vec![Unserved::of("use `gpushare` on the host", "")];
        facts.first_pid_namespace = false;
        facts.container = Some(hears);
    };
    breaks("daemon", Verdict::Ok, ("on its host", ""), |facts| {
        inside(facts, Ok(()));
    });
    breaks(
        "daemon",
        Verdict::Fail,
        ("refused", "on the host"),
        |facts| {
            inside(facts, Err("gpushare.sock: connection refused".to_owned()));
        },
    );
}

#[test]
fn device_nodes_that_are_missing_or_closed_are_named() {
    breaks(
        "device-nodes",
        Verdict::Fail,
        ("/dev/nvidia0", "group"),
        |facts| {
            facts.nodes[0].usable = false;
        },
    );
    breaks(
        "device-nodes",
        Verdict::Fail,
        ("no /dev/nvidia", "module"),
        |facts| {
            facts.nodes.clear();
        },
    );
    let mut soft = healthy();
    (soft.soft, soft.nodes) = (true, vec![]);
    assert!(
        judge(&soft)
            .iter()
            .all(|check| check.verdict == Verdict::Ok)
    );
}

#[test]
fn a_library_that_does_not_load_is_named() {
    breaks(
        "library",
        Verdict::Fail,
        ("GLIBC_2.99", "noexec"),
        |facts| {
            facts.library = Err("version GLIBC_2.99 not found".to_owned());
        },
    );
}

#[test]
fn a_limit_that_does_not_hold_is_named_by_the_way_past_it() {
    let outcome = |outcome: Outcome| {
        move |facts: &mut Facts| {
            if let Ok(ways) = &mut facts.proof {
                ways[1].outcome = outcome;
            }
        }
    };
    let passed = Outcome::Passed("512 MiB were given".to_owned());
    breaks(
        "limit-holds",
        Verdict::Fail,
        ("a graph: 512 MiB were given", "do not rely"),
        outcome(passed),
    );
    let untried = Outcome::Untried("CUDA error 801".to_owned());
    breaks(
        "limit-holds",
        Verdict::Warn,
        ("1 ways; untried: a graph: CUDA error 801", "older driver"),
        outcome(untried),
    );
    breaks(
        "limit-holds",
        Verdict::Fail,
        ("could not be tried: full", "gpushare ps"),
        |facts| {
            facts.proof = Err("full".to_owned());
        },
    );
}

#[test]
fn what_the_kernel_gives_too_little_of_is_named() {
    breaks(
        "pid-namespace",
        Verdict::Warn,
        ("of its own", "on the host"),
        |facts| {
            facts.first_pid_namespace = false;
        },
    );
    let words = ("lacks CAP_SYS_RESOURCE", "CapabilityBoundingSet=");
    breaks("descriptors", Verdict::Warn, words, |facts| {
        facts.may_pass_nothing = true;
    });
    breaks("descriptors", Verdict::Warn, ("256", "ulimit"), |facts| {
        facts.descriptors = 256;
    });
    breaks(
        "cgroup",
        Verdict::Warn,
        ("not this machine's only", "fence"),
        |facts| {
            facts.controllers = None;
        },
    );
    breaks(
        "folders-and-clock",
        Verdict::Fail,
        ("/run has 1 KiB", "make room"),
        |facts| {
            facts.folders[0].free = 1024;
        },
    );
    breaks(
        "folders-and-clock",
        Verdict::Warn,
        ("never set", "set the clock"),
        |facts| {
            facts.clock = 86_400;
        },
    );
}

#[test]
fn modes_of_the_gpu_that_keep_programs_out_are_named() {
    let mode = |change: fn(&mut Modes)| {
        move |facts: &mut Facts| {
            if let Ok(modes) = &mut facts.driver.modes {
                change(&mut modes[0]);
            }
        }
    };
    breaks("mps", Verdict::Warn, ("/tmp/nvidia-mps", "quit"), |facts| {
        facts.mps = Some("/tmp/nvidia-mps".to_owned());
    });
    breaks(
        "mig",
        Verdict::Warn,
        ("MIG", "restart the daemon"),
        mode(|gpu| gpu.mig = Some(true)),
    );
    let exclusive = mode(|gpu| gpu.compute = Some(3));
    breaks(
        "gpu-modes",
        Verdict::Fail,
        ("exclusive", "nvidia-smi -c DEFAULT"),
        exclusive,
    );
    let prohibited = mode(|gpu| gpu.compute = Some(2));
    breaks(
        "gpu-modes",
        Verdict::Fail,
        ("prohibited", "nvidia-smi -c DEFAULT"),
        prohibited,
    );
    let off = mode(|gpu| gpu.persistence = Some(false));
    breaks(
        "gpu-modes",
        Verdict::Warn,
        ("persistence", "nvidia-smi -pm 1"),
        off,
    );
}

#[test]
fn another_library_at_work_and_a_misspelt_variable_are_named() {
    breaks("preloads", Verdict::Fail, ("HAMi", "remove it"), |facts| {
        facts.preloads = vec!["/usr/local/vgpu/libvgpu.so".to_owned()];
    });
    breaks(
        "preloads",
        Verdict::Warn,
        ("twice", "take it out"),
        |facts| {
            facts.preloads = ["/a/libgpushare.so", "/b/libgpushare.so"]
                .map(str::to_owned)
                .into();
        },
    );
    let mut facts = healthy();
    facts.preloads = vec!["libjemalloc.so".to_owned()];
    assert!(
        judge(&facts)
            .iter()
            .all(|check| check.verdict == Verdict::Ok)
    );
    breaks(
        "variables",
        Verdict::Fail,
        ("GPUSHARE_PRIORTY", "correct it"),
        |facts| {
            facts.misspelt = vec!["GPUSHARE_PRIORTY=9 is refused".to_owned()];
        },
    );
}

#[test]
fn a_kernel_that_is_too_old_is_named_with_what_needs_a_newer_one() {
    for (version, advice) in [
        ("5.11.22", "5.12"),
        ("5.3.0", "5.12"),
        ("5.2.21", "the daemon needs Linux 5.3"),
        ("4.18.0-553.el8.x86_64", "the daemon needs Linux 5.3"),
        ("", "5.12"),
    ] {
        let word = if version.is_empty() {
            "version"
        } else {
            version
        };
        breaks("kernel", Verdict::Warn, (word, advice), |facts| {
            facts.kernel = version.to_owned();
        });
    }
    for version in ["5.12.0", "5.15.0-91-generic", "6.0", "10.1.3"] {
        let mut facts = healthy();
        facts.kernel = version.to_owned();
        assert_eq!(kernel(&facts).0, Verdict::Ok, "{version}");
    }
}
