//! Unmodified clients from the registries, with pinned versions: each sees its quota, reaches it,
//! frees memory and continues.

use gpushare_tests::runnable::prepared;
use gpushare_tests::{GIB, Gpu, Guest, MIB, artefacts};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const LIMIT: &[&str] = &["--mem-limit", "1GiB"];
/// 64 MiB pieces in 1 GiB.
const FITS: u64 = 16;

fn python(test: &str) -> Option<PathBuf> {
    Some(prepared(test, "clients.sh", &[])?.join("bin/python"))
}

fn script(name: &str) -> PathBuf {
    artefacts::repository().join("tests/clients").join(name)
}

/// Runs a client that prints one JSON object and nothing else.
#[track_caller]
fn answer(gpu: &Gpu, program: &[&Path]) -> Value {
    let ended = Guest::program(gpu, LIMIT, program).finish();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stderr, "");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// Two rounds. In each the client got all memory that fits and was then refused with CUDA's own
/// error.
#[track_caller]
fn assert_rounds(seen: &Value) {
    let rounds = seen["rounds"].as_array().expect("a list");
    assert_eq!(rounds.len(), 2, "{seen}");
    for round in rounds {
        assert_eq!(round[0], FITS, "{seen}");
        assert!(
            round[1]
                .as_str()
                .is_some_and(|error| error.contains("CUDA_ERROR_OUT_OF_MEMORY")),
            "{seen}"
        );
    }
}

#[test]
fn cuda_bindings_see_their_quota_hit_it_free_and_go_on() {
    let Some(python) = python("cuda_bindings_see_their_quota_hit_it_free_and_go_on") else {
        return;
    };
    let seen = answer(&Gpu::new(""), &[&python, &script("bindings.py")]);
    assert_eq!(
        (&seen["total"], &seen["device_total"]),
        (&json!(GIB), &json!(GIB))
    );
    assert!(
        seen["free"]
            .as_u64()
            .is_some_and(|free| free <= GIB && free > GIB / 2),
        "{seen}"
    );
    assert_rounds(&seen);
    assert_eq!(seen["async"], "CUDA_ERROR_OUT_OF_MEMORY");
}

#[test]
fn numba_cuda_sees_its_quota_hits_it_frees_and_goes_on() {
    let Some(python) = python("numba_cuda_sees_its_quota_hits_it_frees_and_goes_on") else {
        return;
    };
    let seen = answer(&Gpu::new(""), &[&python, &script("numba_arrays.py")]);
    assert_eq!(seen["total"], GIB);
    assert_rounds(&seen);
    assert_eq!(seen["copied"], true);
}

#[test]
fn cuda_core_hits_its_quota_frees_and_goes_on() {
    let Some(python) = python("cuda_core_hits_its_quota_frees_and_goes_on") else {
        return;
    };
    assert_rounds(&answer(
        &Gpu::new(""),
        &[&python, &script("core_buffers.py")],
    ));
}

#[test]
#[ignore = "long tier: builds PyCUDA from source, minutes"]
fn pycuda_sees_its_quota_hits_it_frees_and_goes_on() {
    let name = "pycuda_sees_its_quota_hits_it_frees_and_goes_on";
    let Some(folder) = prepared(name, "clients.sh", &["pycuda"]) else {
        return;
    };
    let seen = answer(
        &Gpu::new(""),
        &[&folder.join("bin/python"), &script("pycuda_arrays.py")],
    );
    assert_eq!(
        (&seen["total"], &seen["device_total"]),
        (&json!(GIB), &json!(GIB))
    );
    for round in seen["rounds"].as_array().expect("a list") {
        assert_eq!(round[0], FITS, "{seen}");
        assert!(
            round[1]
                .as_str()
                .is_some_and(|error| error.contains("out of memory")),
            "{seen}"
        );
    }
}

#[test]
fn cudarc_sees_its_quota_hits_it_frees_and_goes_on() {
    let seen = answer(
        &Gpu::new(""),
        &[Path::new(env!("CARGO_BIN_EXE_cudarc-client"))],
    );
    assert_eq!(seen["total"], GIB);
    assert_rounds(&seen);
    assert_eq!(seen["copied"], true);
}

#[test]
fn nvidia_ml_py_sees_the_quota_and_what_is_used_of_it() {
    let Some(python) = python("nvidia_ml_py_sees_the_quota_and_what_is_used_of_it") else {
        return;
    };
    let seen = answer(&Gpu::new(""), &[&python, &script("nvml.py")]);
    let used = |when: &str, version: usize| seen[when]["used"][version].as_u64().expect("bytes");
    for when in ["before", "holding", "after"] {
        assert_eq!(seen[when]["total"], json!([GIB, GIB]), "{when}");
    }
    for version in [0, 1] {
        assert_eq!(used("before", version), 0);
        let (holding, after) = (used("holding", version), used("after", version));
        assert_eq!(holding - after, 256 * MIB, "{seen}");
    }
    assert!(
        seen["holding"]["pids"]
            .as_array()
            .expect("a list")
            .contains(&seen["pid"]),
        "{seen}"
    );
}

#[test]
fn gpustat_and_nvitop_show_the_quota() {
    let Some(python) = python("gpustat_and_nvitop_show_the_quota") else {
        return;
    };
    let gpu = Gpu::new("");
    let gpustat = answer(
        &gpu,
        &[&python.with_file_name("gpustat"), Path::new("--json")],
    );
    assert_eq!(gpustat["gpus"][0]["memory.total"], 1024, "MiB: {gpustat}");
    let nvitop = Guest::program(
        &gpu,
        LIMIT,
        &[&python.with_file_name("nvitop"), Path::new("--once")],
    )
    .finish();
    assert!(
        nvitop.status.success() && nvitop.stdout.contains("1024MiB"),
        "{nvitop:?}"
    );
}
