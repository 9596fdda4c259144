//! Bad limits stop the start, with variable, value and accepted form, and no program runs.

use gpushare_tests::guest::{command, gpushare, plain};
use gpushare_tests::{Ended, Gpu, Guest, artefacts, clients};
use std::fs;

/// Variable, refused value, and the accepted form that the message must name.
const BAD: [(&str, &str, &str); 15] = [
    ("GPUSHARE_MEM_LIMIT", "4gb", "4GiB"),
    ("GPUSHARE_MEM_LIMIT", "0", "4GiB"),
    ("GPUSHARE_MEM_LIMIT_0", "", "4GiB"),
    ("GPUSHARE_MEM_REQUEST", "10Gib", "4GiB"),
    ("GPUSHARE_MEM_LIMT", "4GiB", "GPUSHARE_MEM_LIMIT"),
    ("GPUSHARE_MEM_LIMIT", "50", "50% or 50GiB"),
    ("GPUSHARE_PRIORTY", "900", "GPUSHARE_PRIORITY"),
    (
        "NVIDIA_GPU_MEMORY_LIMITS",
        "4096",
        "NVIDIA_GPU_MEMORY_LIMIT",
    ),
    ("CUDA_TASK_PRIORITY", "high", "1 (low)"),
    ("GPUSHARE_SM_LIMIT", "0", "1 to 100"),
    ("GPUSHARE_SM_REQUEST", "half", "1 to 100"),
    ("CUDA_DEVICE_SM_LIMIT", "50%", "whole percentage"),
    ("CUDA_DEVICE_MEMORY_LIMIT", "10Gi", "4g"),
    ("NVIDIA_GPU_MEMORY_LIMIT", "4GiB", "MiB"),
    ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "4G", "0=4G"),
];

fn assert_one_line(ended: &Ended, variable: &str, value: &str, accepted: &str) {
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    for part in [
        format!("{variable}={value:?}"),
        "accepted: ".to_owned(),
        accepted.to_owned(),
    ] {
        assert!(ended.stderr.contains(&part), "{part:?} is not in {ended:?}");
    }
}

#[test]
fn run_refuses_a_bad_variable_before_anything_starts() {
    let gpu = Gpu::new("");
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("it-ran");
    for (variable, value, accepted) in BAD {
        let mut run = command(&gpu, &[]);
        run.env(variable, value).arg("touch").arg(&trace);
        let ended = Guest::start(run).finish();
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        assert_one_line(&ended, variable, value, accepted);
        assert!(
            !fs::exists(&trace).unwrap(),
            "{variable}={value} let the program run"
        );
    }
    let mut run = command(&gpu, &["--mem-limit", "4GiB"]);
    run.arg("touch").arg(&trace);
    Guest::start(run).finish().silently();
    assert!(fs::exists(&trace).unwrap(), "a good limit lets it run");
}

#[test]
fn run_refuses_a_bad_flag_by_the_flags_name() {
    let gpu = Gpu::new("mem=16GiB");
    for (flags, blamed) in [
        (&["--mem-limit", "4gb"][..], "--mem-limit=\"4gb\""),
        (&["--mem-limit", "16=4GiB"], "--mem-limit=\"16=4GiB\""),
        (&["--mem-limit", "-1"], "--mem-limit=\"-1\""),
        (&["--mem-limit=-4GiB"], "--mem-limit=\"-4GiB\""),
        (
            &["--mem-limit", "1GiB", "--mem-request", "2GiB"],
            "--mem-request=\"2GiB\"",
        ),
        (&["--mem-view", "all"], "--mem-view=\"all\""),
        (&["--name", "a/b"], "--name=\"a/b\""),
        (
            &["--mem-request", "17GiB"],
            "GPUSHARE_MEM_REQUEST=\"17GiB\"",
        ),
    ] {
        let mut run = command(&gpu, flags);
        run.arg("true");
        let ended = Guest::start(run).finish();
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        assert!(
            ended.stderr.contains(blamed) && ended.stderr.contains("accepted: "),
            "{ended:?}"
        );
    }
}

#[test]
fn env_refuses_bad_limits_too_and_prints_no_variables() {
    let output = gpushare(&["env", "--gpu", "soft", "--mem-limit", "4gb"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}

#[test]
fn under_a_plain_preload_cuinit_refuses_with_one_line() {
    let gpu = Gpu::new("");
    for (variable, value, accepted) in BAD {
        let mut guest = plain_preload(&gpu, &[(variable, value)]);
        assert_eq!(guest.ask("init"), "init 1", "{variable}={value}");
        assert_eq!(guest.ask("alloc 512").split(' ').next(), Some("alloc"));
        assert_ne!(
            guest.ask("alloc 512"),
            "alloc 0",
            "no memory is allocated without an enforced limit"
        );
        assert_one_line(&guest.finish(), variable, value, accepted);
    }
    let guest = plain_preload(&gpu, &[("GPUSHARE_MEM_LIMIT", "1GiB")]).started();
    guest.finish().silently();
}

/// The quota client with the library named in `LD_PRELOAD` and no `gpushare run` around it.
fn plain_preload(gpu: &Gpu, environment: &[(&str, &str)]) -> Guest {
    let mut client = plain(gpu, &clients::compile("quota", &[]));
    client
        .env("LD_PRELOAD", artefacts::interposer())
        .envs(environment.iter().copied());
    Guest::start(client)
}
