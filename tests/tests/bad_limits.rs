//! Bad limits stop the start, with variable, value and accepted form, and no program runs.

use gpushare_tests::guest::{command, gpushare, plain};
use gpushare_tests::{Ended, Gpu, Guest, Home, artefacts, clients};
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
        (&["--mem-request", "17GiB"], "--mem-request=\"17GiB\""),
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
    assert_eq!(output.stdout, b"false\n");
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

/// A program that sees these devices of two, under these flags and variables.
fn seen(visible: &str, flags: &[&str], environment: &[(&str, &str)]) -> Ended {
    let gpu = Gpu::new("mem=8GiB,count=2");
    let mut run = command(&gpu, flags);
    run.env("CUDA_VISIBLE_DEVICES", visible)
        .envs(environment.iter().copied())
        .arg("true");
    Guest::start(run).finish()
}

#[test]
fn a_limit_for_a_device_that_is_not_seen_is_refused_before_the_start() {
    let unknown = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
    let by_uuid = format!("{unknown}=1GiB");
    let variable = format!("GPUSHARE_MEM_LIMIT_{}", unknown.replace('-', "_"));
    for (visible, flags, environment, blamed) in [
        (
            "1",
            &["--mem-limit", "1=1GiB"][..],
            &[][..],
            "--mem-limit=\"1=1GiB\"",
        ),
        ("0,1", &["--sm-limit", "2=50"], &[], "--sm-limit=\"2=50\""),
        (
            "0,1",
            &["--mem-limit", &by_uuid],
            &[],
            "--mem-limit=\"GPU-8932f937",
        ),
        (
            "0",
            &[],
            &[("GPUSHARE_MEM_LIMIT_1", "1GiB")],
            "GPUSHARE_MEM_LIMIT_1=\"1GiB\"",
        ),
        (
            "0",
            &[],
            &[("CUDA_DEVICE_MEMORY_LIMIT_1", "1g")],
            "CUDA_DEVICE_MEMORY_LIMIT_1=\"1g\"",
        ),
        (
            "0,1",
            &[],
            &[(&variable, "1GiB")],
            "GPUSHARE_MEM_LIMIT_GPU_8932f937",
        ),
    ] {
        let ended = seen(visible, flags, environment);
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        for part in [
            blamed,
            "is refused: the programs see no device",
            "accepted: ",
        ] {
            assert!(ended.stderr.contains(part), "{part} is not in {ended:?}");
        }
    }
    for (visible, flags) in [
        ("1", ["--mem-limit", "0=1GiB"]),
        ("0,1", ["--mem-limit", "1=1GiB"]),
    ] {
        seen(visible, &flags, &[]).silently();
    }
}

#[test]
fn a_limit_for_an_unseen_device_is_not_refused_where_none_applies() {
    let one = |name| [(name, "1"), ("GPUSHARE_MEM_LIMIT_1", "1GiB")];
    seen("0", &[], &one("GPUSHARE_DISABLE")).silently();
    let ended = seen("0", &[], &one("UNRELATED"));
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    // The flag's value is for all devices, and before the alias's for one.
    let alias = [("CUDA_DEVICE_MEMORY_LIMIT_1", "2g")];
    seen("0", &["--mem-limit", "4GiB"], &alias).silently();
    assert_eq!(seen("0", &[], &alias).status.code(), Some(125));
}

#[test]
fn under_a_daemon_and_by_set_a_limit_for_an_unseen_device_is_refused() {
    let home = Home::new("mem=8GiB,count=2");
    let mut run = home.run("one", &["--mem-limit", "2=1GiB"]);
    let ended = Guest::start({
        run.arg("true");
        run
    });
    let ended = ended.finish();
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(
        ended.stderr.contains("--mem-limit=\"2=1GiB\" is refused"),
        "{ended:?}"
    );
    let guest = home.guest("one", &["--mem-limit", "1=1GiB"]);
    let set = |value: &str| home.gpushare(&["set", "one", "--mem-limit", value]);
    let refused = set("2=1GiB");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let begin = "gpushare: --mem-limit=\"2=1GiB\" is refused: the programs see no device 2,";
    assert!(told.starts_with(begin), "{told}");
    assert!(set("1=2GiB").status.success());
    guest.finish().silently();
}

#[test]
fn a_program_inside_a_tenant_may_see_fewer_devices_than_its_limits_name() {
    let gpu = Gpu::new("mem=8GiB,count=2");
    let inner = |flags: &[&str]| {
        let mut run = command(&gpu, &["--mem-limit", "0=1GiB", "--mem-limit", "1=2GiB"]);
        run.args(["env", "CUDA_VISIBLE_DEVICES=0"]);
        run.arg(artefacts::gpushare()).arg("run").args(flags);
        run.args(["--", "true"]);
        Guest::start(run).finish()
    };
    inner(&[]).silently();
    let ended = inner(&["--mem-limit", "1=512MiB"]);
    assert!(
        ended.stderr.contains("--mem-limit=\"1=512MiB\""),
        "{ended:?}"
    );
}
