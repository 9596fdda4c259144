//! The symbol table against the facts it was made from: counts per version, version ladders, twins,
//! answers and reasons.

use std::collections::{BTreeMap, BTreeSet};

use gpushare_cuda_abi::symbols::{
    CUDA, Charge, Class, CudaSymbol, Gate, NEWEST_VERSION, NVML, PerThread, REASONS, View,
    cuda_by_name, cuda_by_version, nvml_by_name, reason,
};

const PLAIN: u64 = 0;
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

fn driver() -> impl Iterator<Item = &'static CudaSymbol> {
    CUDA.iter().filter(|row| row.class != Class::Profiler)
}

fn picked(base: &str, version: u32, flags: u64) -> Option<&'static str> {
    cuda_by_version(base, version, flags).map(|(_, row)| row.name)
}

#[test]
fn each_release_has_as_many_functions_as_its_header_tells() {
    let releases = [
        (11000, 413),
        (11070, 508),
        (11080, 508),
        (12000, 535),
        (12040, 588),
        (12080, 611),
        (12090, 617),
        (13000, 634),
        (13010, 650),
        (13020, 661),
        (13030, 675),
        (13040, 682),
        (13050, 685),
    ];
    for (version, count) in releases {
        assert_eq!(
            driver().filter(|row| row.min_version <= version).count(),
            count,
            "CUDA {version}"
        );
    }
    assert_eq!(driver().count(), 685);
    assert_eq!(NEWEST_VERSION, 13050);
    assert_eq!(
        CUDA.len() - driver().count(),
        3,
        "cuProfilerInitialize, cuProfilerStart, cuProfilerStop"
    );
    assert_eq!(NVML.len(), 438);
}

#[test]
fn a_function_gets_the_newest_variant_its_version_reaches() {
    let ladders: [(&str, &[(u32, &str)]); 12] = [
        (
            "cuCtxCreate",
            &[
                (2000, "cuCtxCreate"),
                (3020, "cuCtxCreate_v2"),
                (11040, "cuCtxCreate_v3"),
                (12050, "cuCtxCreate_v4"),
            ],
        ),
        (
            "cuMemPrefetchAsync",
            &[
                (8000, "cuMemPrefetchAsync"),
                (12020, "cuMemPrefetchAsync_v2"),
            ],
        ),
        (
            "cuMemAdvise",
            &[(8000, "cuMemAdvise"), (12020, "cuMemAdvise_v2")],
        ),
        (
            "cuGetProcAddress",
            &[(11030, "cuGetProcAddress"), (12000, "cuGetProcAddress_v2")],
        ),
        (
            "cuDeviceGetUuid",
            &[(9020, "cuDeviceGetUuid"), (11040, "cuDeviceGetUuid_v2")],
        ),
        (
            "cuEventElapsedTime",
            &[
                (2000, "cuEventElapsedTime"),
                (12080, "cuEventElapsedTime_v2"),
            ],
        ),
        (
            "cuGraphAddNode",
            &[
                (12020, "cuGraphAddNode"),
                (12030, "cuGraphAddNode_v2"),
                (13040, "cuGraphAddNode_v3"),
            ],
        ),
        (
            "cuGraphInstantiate",
            &[
                (10000, "cuGraphInstantiate"),
                (11000, "cuGraphInstantiate_v2"),
            ],
        ),
        (
            "cuIpcOpenMemHandle",
            &[
                (4010, "cuIpcOpenMemHandle"),
                (11000, "cuIpcOpenMemHandle_v2"),
            ],
        ),
        (
            "cuMemHostRegister",
            &[(4000, "cuMemHostRegister"), (6050, "cuMemHostRegister_v2")],
        ),
        (
            "cuCtxSynchronize",
            &[(2000, "cuCtxSynchronize"), (13000, "cuCtxSynchronize_v2")],
        ),
        (
            "cuMemcpyBatchAsync",
            &[
                (12080, "cuMemcpyBatchAsync"),
                (13000, "cuMemcpyBatchAsync_v2"),
            ],
        ),
    ];
    for (base, ladder) in ladders {
        assert_eq!(
            picked(base, ladder[0].0 - 1, PLAIN),
            None,
            "{base} before its first version"
        );
        for (step, (version, name)) in ladder.iter().enumerate() {
            let last = ladder.get(step + 1).map_or(13050, |next| next.0 - 1);
            assert_eq!(
                picked(base, *version, PLAIN),
                Some(*name),
                "{base} at {version}"
            );
            assert_eq!(picked(base, last, LEGACY), Some(*name), "{base} at {last}");
        }
    }
}

#[test]
fn functions_with_their_own_base_are_no_variants() {
    assert_eq!(
        picked("cuGraphInstantiate", 12080, PLAIN),
        Some("cuGraphInstantiate_v2")
    );
    assert_eq!(
        picked("cuGraphInstantiateWithFlags", 11040, PLAIN),
        Some("cuGraphInstantiateWithFlags")
    );
    assert_eq!(
        picked("cuGraphInstantiateWithParams", 12000, PER_THREAD),
        Some("cuGraphInstantiateWithParams_ptsz")
    );
}

#[test]
fn one_string_means_one_function_by_name_and_another_by_version() {
    assert_eq!(
        cuda_by_name("cuMemAlloc").expect("exported").1.min_version,
        2000
    );
    assert_eq!(picked("cuMemAlloc", 3010, PLAIN), Some("cuMemAlloc"));
    assert_eq!(picked("cuMemAlloc", 3020, PLAIN), Some("cuMemAlloc_v2"));
    assert_eq!(picked("cuMemAlloc", 13050, PLAIN), Some("cuMemAlloc_v2"));
}

#[test]
fn names_with_a_suffix_are_found_by_name_and_not_by_version() {
    for name in [
        "cuMemAlloc_v2",
        "cuMemcpyHtoD_v2_ptds",
        "cuStreamSynchronize_ptsz",
    ] {
        assert_eq!(cuda_by_name(name).expect("exported").1.name, name);
        assert_eq!(picked(name, 13050, PLAIN), None);
    }
    for name in ["", "cuMemAlloc_v9", "cudaMalloc", "cuGLGetDevices", "zzz"] {
        assert_eq!(cuda_by_name(name), None);
        assert_eq!(picked(name, 13050, PLAIN), None);
    }
}

#[test]
fn the_per_thread_flag_picks_the_twin_where_there_is_one() {
    assert_eq!(
        picked("cuLaunchKernel", 7000, PER_THREAD),
        Some("cuLaunchKernel_ptsz")
    );
    assert_eq!(
        picked("cuMemcpyHtoD", 12000, PER_THREAD),
        Some("cuMemcpyHtoD_v2_ptds")
    );
    assert_eq!(
        picked("cuMemPrefetchAsync", 8000, PER_THREAD),
        Some("cuMemPrefetchAsync_ptsz")
    );
    assert_eq!(
        picked("cuMemPrefetchAsync", 12020, PER_THREAD),
        Some("cuMemPrefetchAsync_v2_ptsz")
    );
    assert_eq!(
        picked("cuMemAlloc", 12000, PER_THREAD),
        Some("cuMemAlloc_v2"),
        "no twin: the plain one"
    );
    assert_eq!(
        picked("cuLaunchKernel", 6050, PER_THREAD),
        None,
        "twins came with CUDA 7, and the driver gives no plain function in their place"
    );
    for flags in [PLAIN, LEGACY] {
        assert_eq!(
            picked("cuLaunchKernel", 12000, flags),
            Some("cuLaunchKernel")
        );
    }
}

/// The rule of `cuGetProcAddress` once more, over all rows, without an index.
fn plainly(base: &str, version: u32, flags: u64) -> Option<&'static str> {
    let reached = |row: &&CudaSymbol| row.base == base && row.min_version <= version;
    let plain = CUDA
        .iter()
        .filter(reached)
        .filter(|row| row.thread != PerThread::IsTwin);
    let newest = plain.max_by_key(|row| row.min_version)?;
    let twin = |name: &str| CUDA.iter().filter(reached).find(|row| row.name == name);
    match newest.thread {
        PerThread::Twin(name) if flags == PER_THREAD => twin(name).map(|row| row.name),
        _ => Some(newest.name),
    }
}

#[test]
fn the_index_answers_as_the_rule_applied_to_every_row() {
    let bases: BTreeSet<&str> = CUDA.iter().map(|row| row.base).collect();
    let steps: BTreeSet<u32> = CUDA
        .iter()
        .flat_map(|row| [row.min_version - 1, row.min_version])
        .chain([0, 99_990])
        .collect();
    for base in bases {
        for version in &steps {
            for flags in [PLAIN, LEGACY, PER_THREAD] {
                assert_eq!(
                    picked(base, *version, flags),
                    plainly(base, *version, flags),
                    "{base} {version} {flags}"
                );
            }
        }
    }
}

#[test]
fn every_function_but_twins_is_reached_by_its_base_and_version() {
    for (index, row) in CUDA.iter().enumerate() {
        assert_eq!(cuda_by_name(row.name), Some((index, row)));
        let found = cuda_by_version(
            row.base,
            row.min_version,
            if row.thread == PerThread::IsTwin {
                PER_THREAD
            } else {
                PLAIN
            },
        );
        assert_eq!(found, Some((index, row)), "{}", row.name);
    }
    for (index, row) in NVML.iter().enumerate() {
        assert_eq!(nvml_by_name(row.name), Some((index, row)));
    }
}

#[test]
fn a_twin_is_answered_like_the_function_it_is_the_twin_of() {
    let mut twins = BTreeMap::from([("_ptsz", 0), ("_ptds", 0)]);
    for row in CUDA.iter().filter(|row| row.thread == PerThread::IsTwin) {
        let plain = CUDA
            .iter()
            .filter(|plain| plain.thread == PerThread::Twin(row.name))
            .collect::<Vec<_>>();
        assert_eq!(plain.len(), 1, "{} is the twin of one function", row.name);
        let answers = |row: &CudaSymbol| (row.base, row.class, row.charge, row.gate, row.view);
        assert_eq!(answers(row), answers(plain[0]), "{}", row.name);
        let suffix = row
            .name
            .strip_prefix(plain[0].name)
            .expect("a twin is named after its function");
        *twins.get_mut(suffix).expect("a known suffix") += 1;
    }
    assert_eq!(twins, BTreeMap::from([("_ptds", 20), ("_ptsz", 85)]));
    for row in CUDA {
        if let PerThread::Twin(twin) = row.thread {
            assert_eq!(
                cuda_by_name(twin).expect("a row").1.thread,
                PerThread::IsTwin
            );
        }
    }
}

#[test]
fn variants_of_one_function_are_answered_alike() {
    let mut answers = BTreeMap::new();
    for row in CUDA {
        let mine = (row.charge, row.gate, row.view);
        assert_eq!(
            *answers.entry(row.base).or_insert(mine),
            mine,
            "{}: a newer variant does what the older one did",
            row.name
        );
    }
}

/// Every (column, class, code) in use.
fn given() -> Vec<(&'static str, String, &'static str)> {
    let mut given = Vec::new();
    for row in CUDA {
        let class = format!("{:?}", row.class);
        if let Charge::No(code) = row.charge {
            given.push(("charge", class.clone(), code));
        }
        if let Gate::No(code) = row.gate {
            given.push(("gate", class.clone(), code));
        }
        if let View::No(code) = row.view {
            given.push(("view", class, code));
        }
    }
    for row in NVML {
        if let View::No(code) = row.view {
            given.push(("view", format!("{:?}", row.class), code));
        }
    }
    given
}

#[test]
fn what_is_left_alone_is_defended_once_and_nothing_else_is() {
    let mut used = BTreeSet::new();
    for (column, _, code) in given() {
        let reason = reason(code).unwrap_or_else(|| panic!("no reason is given for {code:?}"));
        assert_eq!(reason.column, column, "{code} defends another column");
        used.insert(code);
    }
    for reason in REASONS {
        assert!(
            used.contains(reason.code),
            "{} is a reason for nothing",
            reason.code
        );
        assert!(
            reason.sentence.ends_with('.') && reason.sentence.split(' ').count() > 3,
            "{} is no sentence",
            reason.code
        );
    }
}

#[test]
fn a_class_has_one_reason_a_column() {
    let mut by_class: BTreeMap<(&str, String), BTreeSet<&str>> = BTreeMap::new();
    for (column, class, code) in given() {
        by_class.entry((column, class)).or_default().insert(code);
    }
    for (class, codes) in by_class {
        assert_eq!(
            codes.len(),
            1,
            "{class:?} is defended in more than one way: {codes:?}"
        );
    }
}

#[test]
fn nvml_defaults_name_rows_of_the_same_function() {
    for row in NVML {
        let default = nvml_by_name(row.default)
            .unwrap_or_else(|| panic!("{} is no row", row.default))
            .1;
        assert_eq!(default.base, row.base);
    }
    assert_eq!(
        nvml_by_name("nvmlDeviceGetComputeRunningProcesses")
            .expect("a row")
            .1
            .default,
        "nvmlDeviceGetComputeRunningProcesses_v3"
    );
    assert_eq!(
        nvml_by_name("nvmlDeviceGetComputeRunningProcesses_v9"),
        None
    );
}

/// (base, version, per-thread) of every `PFN_cuName_v1234_ptsz` a header defines.
fn pointer_types(header: &str) -> BTreeSet<(String, u32, bool)> {
    let names = header
        .split("*PFN_cu")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let parse = |name: &str| {
        let (name, per_thread) = match name
            .strip_suffix("_ptsz")
            .or_else(|| name.strip_suffix("_ptds"))
        {
            Some(name) => (name, true),
            None => (name, false),
        };
        let (base, version) = name.rsplit_once("_v").expect("a version in the name");
        (
            format!("cu{base}"),
            version.parse().expect("a number"),
            per_thread,
        )
    };
    names.map(parse).collect()
}

#[test]
fn the_table_has_the_pointer_types_of_the_headers_and_no_others() {
    let Some(folders) = std::env::var_os("GPUTEST_CUDA_INCLUDE") else {
        eprintln!(
            "SKIPPED the_table_has_the_pointer_types_of_the_headers_and_no_others: GPUTEST_CUDA_INCLUDE is not set"
        );
        return;
    };
    let mut theirs = BTreeSet::new();
    for header in ["cudaTypedefs.h", "cudaProfilerTypedefs.h"] {
        let found = std::env::split_paths(&folders)
            .find_map(|folder| std::fs::read_to_string(folder.join(header)).ok());
        theirs.extend(pointer_types(&found.unwrap_or_else(|| {
            panic!("{header} is in none of {}", folders.display())
        })));
    }
    let of = |row: &CudaSymbol| {
        (
            row.base.to_owned(),
            row.min_version,
            row.thread == PerThread::IsTwin,
        )
    };
    assert_eq!(CUDA.iter().map(of).collect::<BTreeSet<_>>(), theirs);
}
