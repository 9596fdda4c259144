//! `RTLD_NEXT` keeps its meaning for every other library that wraps functions, wherever it stands.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{
    compile, driver_in, folder, library, run, skipped, succeed, text, with_preload,
};

fn wrapped(test: &str) -> (PathBuf, PathBuf, PathBuf) {
    let folder = folder(test);
    let driver = driver_in(&folder);
    let (client, wrapper) = (folder.join("wrapped"), folder.join("libwrapper.so"));
    compile("wrapped.c", &client, &["-ldl"]);
    compile("wrapper.c", &wrapper, &["-shared", "-fPIC", "-ldl"]);
    (client, wrapper, driver)
}

#[test]
fn a_wrapper_before_us_gets_what_comes_after_itself() {
    let (client, wrapper, driver) = wrapped("before");
    let answer = run(
        &client,
        &[driver.to_str().expect("text")],
        &[&wrapper, &library()],
    );
    assert_eq!(answer, "a parent\ncuInit passed the wrapper\ncuInit: 0\n");
}

#[test]
fn a_wrapper_after_us_gets_what_comes_after_itself() {
    let (client, wrapper, driver) = wrapped("after");
    let answer = run(
        &client,
        &[driver.to_str().expect("text")],
        &[&library(), &wrapper],
    );
    assert_eq!(answer, "a parent\ncuInit passed the wrapper\ncuInit: 0\n");
}

#[test]
fn a_wrapper_without_a_driver_gets_nothing_next() {
    let (client, wrapper, _) = wrapped("nodriver");
    let bare = run(&client, &[], &[&wrapper]);
    assert_eq!(bare, "a parent\ncuInit passed the wrapper\ncuInit: -1\n");
    assert_eq!(run(&client, &[], &[&wrapper, &library()]), bare);
    assert_eq!(run(&client, &[], &[&library(), &wrapper]), bare);
}

/// What `versioned.c` says, with one more line where a tool is there.
fn lookups(by_name: &str, tools: Option<&str>, by_version: &str) -> String {
    let tools = tools.map(|file| format!("the tool's next dlsym: {file}\n"));
    let tools = tools.unwrap_or_default();
    let ways = ["dlsym, default", "dlsym, next", "dlsym of libc"];
    let ways = ways.map(|way| format!("{way}: {by_version}\n")).concat();
    format!(
        "cuInit: {by_name}\n{tools}{ways}malloc: libc.so.6\n\
         dlsym of no version: none, with an error\n\
         dlsym of the driver: none, with an error\n"
    )
}

#[test]
fn a_tool_that_finds_dlsym_by_its_version_leaves_the_driver_hooked() {
    let folder = folder("versioned");
    let driver = driver_in(&folder);
    let (client, tool) = (folder.join("versioned"), folder.join("libtool.so"));
    compile("versioned.c", &client, &["-ldl"]);
    compile("tool.c", &tool, &["-shared", "-fPIC", "-ldl"]);
    let says = |preloads: &[&Path]| run(&client, &[driver.to_str().expect("text")], preloads);
    let (libc, cuda, ours) = ("libc.so.6", "libcuda.so.1", "libgpushare.so");
    assert_eq!(says(&[]), lookups(cuda, None, libc));
    assert_eq!(says(&[&tool]), lookups(cuda, Some(libc), libc));
    let library = library();
    assert_eq!(says(&[&library]), lookups(ours, None, ours));
    let before = says(&[&tool, &library]);
    assert_eq!(before, lookups(ours, Some(ours), ours));
    let behind = says(&[&library, &tool]);
    assert_eq!(
        behind,
        lookups(ours, Some(libc), ours),
        "its next is libc's"
    );
}

#[test]
fn a_driver_that_has_versions_is_hooked_by_its_version_too() {
    let folder = folder("versioned-driver");
    let (client, driver) = (folder.join("client"), folder.join("libcuda.so.1"));
    let versions = folder.join("versions");
    std::fs::write(&versions, "libcuda.so.1 { global: cu*; local: *; };").expect("a file");
    let script = format!("-Wl,--version-script={}", versions.display());
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", &script];
    compile("driver.c", &driver, &flags);
    compile("versioned_driver.c", &client, &["-ldl"]);
    let says = |preloads: &[&Path]| {
        let arguments = [driver.to_str().expect("text"), "libcuda.so.1"];
        run(&client, &arguments, preloads)
    };
    // One that is not hooked, one that the driver lacks, and one of a version that it lacks.
    let lookups = |hooked: &str| {
        format!(
            "cuInit: {hooked}\ncuStreamSynchronize: {hooked}\ncuDriverGetVersion: libcuda.so.1\n\
             cuMemAllocAsync: none, with an error\ncuInit: none, with an error\n"
        )
    };
    assert_eq!(says(&[]), lookups("libcuda.so.1"));
    assert_eq!(says(&[&library()]), lookups("libgpushare.so"));
}

#[test]
fn a_wrapper_asks_while_libraries_behind_it_are_unloaded() {
    let folder = folder("unloading");
    let source = "unloading.c";
    let shared = ["-shared", "-fPIC", "-ldl"];
    let (client, wrapper) = (folder.join("unloading"), folder.join("libwrapper.so"));
    compile(source, &client, &["-ldl", "-lpthread"]);
    compile(source, &wrapper, &[&shared[..], &["-DWRAPPER"]].concat());
    let plugins = ["one.so", "two.so", "three.so", "four.so"].map(|name| folder.join(name));
    for plugin in &plugins {
        compile(source, plugin, &[&shared[..], &["-DPLUGIN"]].concat());
    }
    let plugins = plugins.iter().map(|path| path.to_str().expect("text"));
    let arguments: Vec<_> = ["2000"].into_iter().chain(plugins).collect();
    // What was given back does not look as it did.
    let mut command = Command::new(&client);
    command.args(arguments).env("MALLOC_PERTURB_", "165");
    let answer = succeed(with_preload(&mut command, &[&library(), &wrapper]));
    assert_eq!(answer, "cuInit: -1\n");
}

/// A program of its own under two orders of preloads, compared with the other library alone.
fn beside(other: &Path, command: &mut Command) {
    let alone = succeed(with_preload(command, &[other]));
    assert_eq!(
        alone,
        succeed(with_preload(command, &[other, &library()])),
        "{} first",
        other.display()
    );
    assert_eq!(
        alone,
        succeed(with_preload(command, &[&library(), other])),
        "{} last",
        other.display()
    );
}

#[test]
fn jemalloc_before_and_after_us_works() {
    let Some(jemalloc) = [
        "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
        "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2",
    ]
    .map(Path::new)
    .into_iter()
    .find(|path| path.exists()) else {
        skipped(
            "jemalloc_before_and_after_us_works",
            "libjemalloc.so.2 is not installed",
        );
        return;
    };
    beside(jemalloc, Command::new("python3").args(["-c", "import threading, json; t = threading.Thread(target=print, args=(1,)); t.start(); t.join(); print(json.dumps([2] * 1000))"]));
    beside(
        jemalloc,
        Command::new("bash").args(["-c", "echo {1..100} | wc -w"]),
    );
}

#[test]
fn a_program_with_a_sanitizer_works_and_its_errors_are_still_found() {
    let folder = folder("asan");
    let (good, bad) = (folder.join("good"), folder.join("bad"));
    compile(
        "sanitized.c",
        &good,
        &["-fsanitize=address", "-static-libasan", "-ldl", "-lpthread"],
    );
    compile(
        "sanitized.c",
        &bad,
        &[
            "-fsanitize=address",
            "-static-libasan",
            "-DOVERFLOW",
            "-ldl",
            "-lpthread",
        ],
    );
    assert_eq!(run(&good, &[], &[&library()]), run(&good, &[], &[]));
    let found = with_preload(&mut Command::new(&bad), &[&library()])
        .output()
        .expect("runs");
    assert!(
        !found.status.success() && text(&found).contains("heap-buffer-overflow"),
        "{}",
        text(&found)
    );
}

#[test]
fn a_dynamic_sanitizer_before_us_works() {
    let folder = folder("asan-dynamic");
    let good = folder.join("good");
    compile(
        "sanitized.c",
        &good,
        &["-fsanitize=address", "-ldl", "-lpthread"],
    );
    let found = Command::new("cc")
        .arg("-print-file-name=libasan.so")
        .output()
        .expect("cc can be run");
    let runtime = String::from_utf8(found.stdout).expect("text");
    let runtime = std::fs::canonicalize(runtime.trim()).expect("the compiler knows its runtime");
    assert_eq!(
        run(&good, &[], &[&runtime, &library()]),
        run(&good, &[], &[])
    );
}

#[test]
fn a_library_that_wraps_what_the_linker_offers_starts_beside_us() {
    let folder = folder("early");
    let (client, early) = (folder.join("client"), folder.join("libearly.so"));
    compile("sanitized.c", &client, &["-ldl", "-lpthread"]);
    compile("early.c", &early, &["-shared", "-fPIC", "-ldl"]);
    beside(&early, &mut Command::new(&client));
}

#[test]
fn a_program_with_the_sanitizer_of_threads_starts_and_works() {
    let folder = folder("tsan");
    let program = folder.join("program");
    let runtime = Command::new("cc")
        .arg("-print-file-name=libtsan.so")
        .output()
        .expect("cc can be run");
    let runtime = String::from_utf8(runtime.stdout).expect("text");
    // A name that the compiler does not know is answered unchanged.
    let Ok(runtime) = std::fs::canonicalize(runtime.trim()) else {
        skipped(
            "a_program_with_the_sanitizer_of_threads_starts_and_works",
            "the compiler has no libtsan",
        );
        return;
    };
    compile(
        "sanitized.c",
        &program,
        &["-fsanitize=thread", "-ldl", "-lpthread"],
    );
    let bare = Command::new(&program).output().expect("it can be run");
    if !bare.status.success() {
        // Its memory does not fit beside some systems' randomised addresses.
        skipped(
            "a_program_with_the_sanitizer_of_threads_starts_and_works",
            &text(&bare),
        );
        return;
    }
    let bare = String::from_utf8(bare.stdout).expect("text");
    assert_eq!(run(&program, &[], &[&library()]), bare);
    compile("sanitized.c", &program, &["-ldl", "-lpthread"]);
    beside(&runtime, &mut Command::new(&program));
}

/// As LLVM's OpenMP runtime looks for a tool: by `RTLD_DEFAULT`, and from inside its own weak
/// definition by `RTLD_NEXT`.
#[test]
fn the_probe_of_openmp_tools_ends_as_without_us() {
    let folder = folder("ompt");
    let (client, runtime, tool) = (
        folder.join("probe"),
        folder.join("libruntime.so"),
        folder.join("libtool.so"),
    );
    compile("ompt_tool.c", &tool, &["-shared", "-fPIC"]);
    compile("ompt_runtime.c", &runtime, &["-shared", "-fPIC", "-ldl"]);
    let path = format!("-Wl,--no-as-needed,-rpath,{}", folder.display());
    compile(
        "ompt_probe.c",
        &client,
        &[path.as_str(), runtime.to_str().expect("text"), "-ldl"],
    );
    assert_eq!(run(&client, &[], &[]), "no tool\n");
    assert_eq!(run(&client, &[], &[&library()]), "no tool\n");
    for order in [[&*tool, &*library()], [&*library(), &*tool]] {
        assert_eq!(run(&client, &[], &order), "tool found\n");
    }
}
