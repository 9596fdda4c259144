//! Every driver and NVML function that we declare has the parameters of the public headers.
//!
//! A hook with a parameter too few, or a 32-bit one where the driver has 64, compiles, links and
//! corrupts. So the C signatures are recorded from the headers (`data/signatures-13.5.tsv`, made by
//! `scripts/record-signatures.py`), and compared with those in the sources: the interposer's hooks,
//! the functions it calls, and the software GPU's.

mod kinds;
mod source;

use std::collections::BTreeMap;

use kinds::{kind, kinds, renamed};
use source::{code, sources, written};

/// Functions the recorded headers do not declare, with their parameters: cudaProfiler.h is in no
/// wheel.
const ELSEWHERE: [(&str, &str); 3] = [
    ("cuProfilerInitialize", "ptr ptr i4"),
    ("cuProfilerStart", "void"),
    ("cuProfilerStop", "void"),
];

/// Symbol -> parameters, as recorded from the headers.
fn recorded() -> BTreeMap<String, String> {
    let text = include_str!("../../data/signatures-13.5.tsv");
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    let rows = lines.map(|line| {
        let [symbol, _, parameters] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?}")
        };
        (symbol, parameters)
    });
    rows.chain(ELSEWHERE)
        .map(|(symbol, parameters)| (symbol.to_owned(), parameters.to_owned()))
        .collect()
}

/// Compares all functions of a folder; returns their number.
fn agrees(folder: &str) -> usize {
    let (all, recorded) = (kinds(), recorded());
    let mut wrong = Vec::new();
    let mut compared = 0;
    for path in sources(folder) {
        let text = code(&path);
        let kinds = renamed(&text, &all);
        for function in written(&text) {
            let parts: Vec<String> = function
                .parameters
                .iter()
                .map(|rust| kind(rust, &kinds))
                .collect();
            let mine = if parts.is_empty() {
                "void".to_owned()
            } else {
                parts.join(" ")
            };
            for name in function.names {
                compared += 1;
                let theirs = recorded
                    .get(&name)
                    .map_or("no such function", String::as_str);
                if theirs != mine {
                    wrong.push(format!(
                        "{}: {name}({mine}), the header has ({theirs})",
                        path.display()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    compared
}

#[test]
fn hooks_and_the_functions_they_call_have_the_headers_parameters() {
    let hooked = gpushare_cuda_abi::symbols::CUDA
        .iter()
        .filter(|row| row.hooked())
        .count();
    let hooked = hooked
        + gpushare_cuda_abi::symbols::NVML
            .iter()
            .filter(|row| row.hooked())
            .count();
    let compared = agrees("interposer/src");
    assert!(
        compared >= hooked,
        "{compared} functions found where {hooked} are hooked: the sources are read wrongly"
    );
}

#[test]
fn the_software_gpus_functions_have_the_headers_parameters() {
    assert!(agrees("softgpu/cuda/src/api") > 300);
    assert!(agrees("softgpu/nvml/src/api") > 30);
}

#[test]
fn a_wrong_parameter_would_be_found() {
    let kinds = kinds();
    let read = |text: &str| {
        let function = written(text).remove(0);
        (
            function.names,
            function
                .parameters
                .iter()
                .map(|rust| kind(rust, &kinds))
                .collect::<Vec<_>>()
                .join(" "),
        )
    };
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        read("fn cuMemAlloc_v2(d: *mut CUdeviceptr, n: u32)"),
        (names(&["cuMemAlloc_v2"]), "ptr i4".to_owned())
    );
    assert_eq!(
        read(
            "fn cuMemPrefetchAsync_v2 twin cuMemPrefetchAsync_v2_ptsz (d: DefaultStream; p: CUdeviceptr, n: usize, to: CUmemLocation, f: u32, s: CUstream) {"
        ),
        (
            names(&["cuMemPrefetchAsync_v2", "cuMemPrefetchAsync_v2_ptsz"]),
            "i8 i8 s8 i4 ptr".to_owned()
        )
    );
    assert_eq!(
        read(
            "fn cuLaunchHostFunc | cuLaunchHostFunc_ptsz(s: CUstream, f: Option<unsafe extern \"C\" fn(*mut c_void) -> i32>, u: *mut c_void) -> CUresult = x;"
        ),
        (
            names(&["cuLaunchHostFunc", "cuLaunchHostFunc_ptsz"]),
            "ptr ptr ptr".to_owned()
        )
    );
    assert_eq!(
        read(
            "fn cuMemMapArrayAsync(infos: InSlice<'_, CUarrayMapInfo>, count: Count<u32>, out: Out<'_, u32>) -> CUresult = |call| call();"
        ),
        (names(&["cuMemMapArrayAsync"]), "ptr i4 ptr".to_owned())
    );
    assert_eq!(recorded()["cuMemAlloc_v2"], "ptr i8");
}
