//! The effect of environment variables on the driver: SPEC, `CUDA_VISIBLE_DEVICES`, injected
//! faults, the trace.
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]

use crate::common;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::{env, fs};

/// The C client, compiled once for all tests.
static CLIENT: LazyLock<PathBuf> = LazyLock::new(|| common::client("calls.c"));

/// Runs the client with these variables; returns its output.
fn run(rounds: u32, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(&*CLIENT);
    command
        .arg(
            env::current_exe()
                .unwrap()
                .with_file_name("libsoftgpu_cuda.so"),
        )
        .arg(rounds.to_string());
    // All runs of a test share a machine, so that the UUIDs are equal. Different tests use
    // different machines, because their values differ.
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    command.env("SOFTGPU_PRIVATE", format!("{test}-{}", std::process::id()));
    command.envs(variables.iter().copied()).output().unwrap()
}

/// The printed lines that start with `word`.
fn lines(output: &Output, word: &str) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines()
        .filter(|line| line.starts_with(word))
        .map(str::to_owned)
        .collect()
}

#[test]
fn an_invalid_spec_fails_init_with_a_line_that_gives_the_reason() {
    let output = run(0, &[("SOFTGPU", "mem=1GB")]);
    assert_eq!(lines(&output, "init"), ["init 1"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "softgpu: SOFTGPU: `mem=1GB` is not accepted; expected a multiple of 2MiB from 64MiB to 2TiB, such as 16GiB\n"
    );
    let output = run(0, &[("SOFTGPU", "mem=1GiB,driver=13000")]);
    assert_eq!(
        (lines(&output, "init"), lines(&output, "version")),
        (vec!["init 0".into()], vec!["version 13000".into()])
    );
    assert_eq!(output.stderr, b"");
}

#[test]
fn visible_devices_are_chosen_ordered_and_named_by_uuid() {
    let spec = ("SOFTGPU", "count=3");
    let all = lines(&run(0, &[spec]), "device");
    assert_eq!(all.len(), 3);
    let visible = |value: &str| {
        let output = run(0, &[spec, ("CUDA_VISIBLE_DEVICES", value)]);
        (lines(&output, "init"), lines(&output, "device"))
    };
    let ready = || vec!["init 0".to_owned()];
    assert_eq!(
        visible("2,0"),
        (ready(), vec![all[2].clone(), all[0].clone()])
    );
    let uuid = all[1].split(' ').next_back().unwrap();
    assert_eq!(visible(uuid), (ready(), vec![all[1].clone()]));
    assert_eq!(visible(&uuid[..12]), (ready(), vec![all[1].clone()]));
    assert_eq!(visible("1,9,0"), (ready(), vec![all[1].clone()]));
    assert_eq!(visible(""), (vec!["init 100".to_owned()], vec![]));
    assert_eq!(visible("-1"), (vec!["init 100".to_owned()], vec![]));
}

#[test]
fn an_injected_fault_fails_only_the_nth_call() {
    let output = run(
        4,
        &[(
            "SOFTGPU_FAIL",
            "cuMemAlloc:3:CUDA_ERROR_OUT_OF_MEMORY,cuMemFree_v2:1:CUDA_ERROR_UNKNOWN",
        )],
    );
    let expected = [
        "alloc 0 free 999",
        "alloc 0 free 0",
        "alloc 2 free 0",
        "alloc 0 free 0",
    ];
    assert_eq!(lines(&output, "alloc"), expected);
    let output = run(1, &[("SOFTGPU_FAIL", "cuMemAlloc:3")]);
    assert_eq!(
        lines(&output, "init"),
        ["init 1"],
        "an invalid rule must fail cuInit"
    );
}

#[test]
fn a_device_off_the_bus_answers_while_its_file_exists() {
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fallen-{}", std::process::id()));
    let answers = |ordinal: u32| {
        let rule = format!("{ordinal}:CUDA_ERROR_UNKNOWN:{}", path.display());
        let output = run(1, &[("SOFTGPU", "count=2"), ("SOFTGPU_FALLEN", &rule)]);
        assert_eq!(output.stderr, b"");
        [lines(&output, "retain"), lines(&output, "alloc")].concat()
    };
    let well = ["retain 0", "alloc 0 free 0"];
    assert_eq!(answers(0), well);
    fs::write(&path, "").unwrap();
    assert_eq!(answers(0)[0], "retain 999");
    assert_eq!(answers(1), well, "the other device");
    fs::remove_file(path).unwrap();
}

#[test]
fn the_trace_has_every_call_with_its_result() {
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-{}", std::process::id()));
    run(
        1,
        &[
            ("SOFTGPU_TRACE", path.to_str().unwrap()),
            ("SOFTGPU_FAIL", "cuMemAlloc_v2:1:2"),
        ],
    );
    let trace = fs::read_to_string(&path).unwrap();
    fs::remove_file(path).unwrap();
    let calls: Vec<&str> = trace
        .lines()
        .map(|line| line.splitn(3, ' ').nth(2).unwrap())
        .collect();
    let expected = [
        "cuInit 0",
        "cuDriverGetVersion 0",
        "cuDeviceGetCount 0",
        "cuDeviceGetPCIBusId 0",
        "cuDeviceGetUuid 0",
        "cuDevicePrimaryCtxRetain 0",
        "cuCtxSetCurrent 0",
        "cuMemAlloc_v2 2",
        "cuMemFree_v2 0",
    ];
    assert_eq!(calls, expected);
}
