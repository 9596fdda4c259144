//! `cuGetProcAddress` answers through the library as without it: the same function for every name,
//! version and flag, or our hook of it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;

use gpushare_cuda_abi::symbols::{self, cuda_by_name};
use gpushare_tests::guest::plain;
use gpushare_tests::{Gpu, artefacts, clients};

/// Every base name just before and at every version where its function changes, and at some
/// versions that a newer program may request.
fn questions() -> String {
    let mut names: Vec<&str> = symbols::CUDA.iter().map(|row| row.base).collect();
    names.extend([
        "cuMemAlloc_v2",
        "cuNothing",
        "cuMemAllocAsync_ptsz",
        "curl_easy_init",
    ]);
    names.sort_unstable();
    names.dedup();
    let mut text = String::new();
    for name in names {
        let variants = symbols::CUDA.iter().filter(|row| row.base == name);
        let mut versions: Vec<u32> = variants
            .flat_map(|row| [row.min_version - 1, row.min_version])
            .collect();
        versions.extend([0, 11080, 12080, 13000, 13050, 13060, 99000]);
        versions.sort_unstable();
        versions.dedup();
        for (version, flags) in versions
            .into_iter()
            .flat_map(|version| (0..3).map(move |flags| (version, flags)))
        {
            writeln!(text, "{name} {version} {flags}").expect("a string takes it");
        }
    }
    text
}

fn answers(driver: u32, questions: &str, preload: bool) -> String {
    let gpu = Gpu::new(&format!("driver={driver}"));
    let mut client = plain(&gpu, &clients::compile("procaddr", &[]));
    if preload {
        client.env("LD_PRELOAD", artefacts::interposer());
    }
    let mut child = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the client starts");
    let mut stdin = child.stdin.take().expect("piped");
    let asked = questions.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let output = child.wait_with_output().expect("the client ends");
    writer
        .join()
        .expect("no panic")
        .expect("the client reads all");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("the client prints text")
}

/// The line with the hooked functions marked as ours, as it must be with the library.
fn expected(line: &str) -> String {
    let mark = |word: &str| match cuda_by_name(word) {
        Some((_, row)) if row.hooked() => format!("{word}@ours"),
        _ => word.to_owned(),
    };
    let Some((question, answer)) = line.split_once(": ") else {
        return line.to_owned();
    };
    let answer: Vec<String> = answer.split(' ').map(mark).collect();
    format!("{question}: {}", answer.join(" "))
}

#[test]
fn every_name_version_and_flag_means_the_same_function_through_us() {
    let questions = questions();
    for driver in [11080, 12080, 13000] {
        let bare = answers(driver, &questions, false);
        let preloaded = answers(driver, &questions, true);
        assert_eq!(bare.lines().count(), preloaded.lines().count());
        let mut hooks = 0;
        for (bare, preloaded) in bare.lines().zip(preloaded.lines()) {
            assert_eq!(expected(bare), preloaded, "driver {driver}");
            hooks += preloaded.matches("@ours").count();
        }
        assert!(hooks > 1000, "the driver answers hooked functions: {hooks}");
    }
}
