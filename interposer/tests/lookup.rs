//! The results of `dlsym` for programs: hooks for the driver's own functions, and otherwise the
//! same result as without the library.

use crate::support::{compile, driver_in, folder, library, run, succeed, with_preload};
use std::path::Path;
use std::process::Command;

const NAMES: [&str; 7] = [
    "cuInit",
    "cuMemAlloc_v2",
    "nvmlInit_v2",
    "curl_easy_init",
    "cuNothing",
    "getpid",
    "cu",
];

/// The answers of `lookup.c` for a way of asking, without and with the library.
fn answers(test: &str, way: &[&str], names: &[&str]) -> (String, String) {
    let folder = folder(test);
    let client = folder.join("lookup");
    compile("lookup.c", &client, &["-ldl"]);
    let arguments: Vec<&str> = way.iter().chain(names).copied().collect();
    (
        run(&client, &arguments, &[]),
        run(&client, &arguments, &[&library()]),
    )
}

#[test]
fn without_a_driver_no_function_of_it_is_found_in_any_way() {
    for way in ["default", "next", "self"] {
        let (bare, preloaded) = answers(&format!("nodriver-{way}"), &[way], &NAMES);
        assert_eq!(bare, preloaded, "{way}");
        assert!(bare.contains("cuInit: null, with an error"), "{bare}");
    }
}

#[test]
fn the_drivers_own_function_is_answered_with_the_hook() {
    let driver = driver_in(&folder("driver-hooks"));
    let driver = driver.to_str().expect("text");
    for way in ["load-handle", "load-global"] {
        let (bare, preloaded) = answers(
            &format!("hooks-{way}"),
            &[way, driver],
            &["cuInit", "cuGetProcAddress_v2"],
        );
        assert_eq!(
            bare, "cuInit: libcuda.so.1\ncuGetProcAddress_v2: libcuda.so.1\n",
            "{way}"
        );
        assert_eq!(
            preloaded, "cuInit: libgpushare.so\ncuGetProcAddress_v2: libgpushare.so\n",
            "{way}"
        );
    }
}

#[test]
fn what_is_not_hooked_or_not_there_is_answered_as_without_us() {
    let driver = driver_in(&folder("driver-other"));
    let driver = driver.to_str().expect("text");
    // cuGetProcAddress is hooked, but this driver does not have it.
    let names = [
        "cuDriverGetVersion",
        "cuGetProcAddress",
        "cuMemAllocAsync",
        "curl_easy_init",
        "getpid",
        "cuinit",
    ];
    for way in ["load-handle", "load-global", "load-local"] {
        let (bare, preloaded) = answers(&format!("other-{way}"), &[way, driver], &names);
        assert_eq!(bare, preloaded, "{way}");
    }
}

#[test]
fn a_driver_loaded_privately_stays_private() {
    let driver = driver_in(&folder("driver-local"));
    let way = ["load-local", driver.to_str().expect("text")];
    let (bare, preloaded) = answers("private", &way, &["cuInit"]);
    assert_eq!(bare, "cuInit: null, with an error\n");
    assert_eq!(bare, preloaded);
}

#[test]
fn a_second_copy_in_its_own_namespace_is_left_alone() {
    let driver = driver_in(&folder("driver-namespace"));
    let way = ["namespace", driver.to_str().expect("text")];
    let (bare, preloaded) = answers("namespace", &way, &["cuInit", "cuNothing"]);
    assert_eq!(
        bare,
        "cuInit: libcuda.so.1\ncuNothing: null, with an error\n"
    );
    assert_eq!(bare, preloaded);
}

#[test]
fn a_program_linked_to_the_driver_finds_hooks_by_every_way() {
    let folder = folder("linked");
    let driver = driver_in(&folder);
    let client = folder.join("lookup");
    let link = [driver.to_str().expect("text"), "-Wl,--no-as-needed", "-ldl"].map(str::to_owned);
    let path = format!("-Wl,--no-as-needed,-rpath,{}", folder.display());
    compile("lookup.c", &client, &[&path, &link[0], &link[2]]);
    for way in ["default", "next", "self"] {
        let names = ["cuInit", "cuGetProcAddress", "cuDriverGetVersion"];
        let arguments: Vec<&str> = [way].iter().chain(&names).copied().collect();
        assert_eq!(
            run(&client, &arguments, &[]),
            "cuInit: libcuda.so.1\ncuGetProcAddress: null, with an error\ncuDriverGetVersion: libcuda.so.1\n"
        );
        assert_eq!(
            run(&client, &arguments, &[&library()]),
            "cuInit: libgpushare.so\ncuGetProcAddress: null, with an error\ncuDriverGetVersion: libcuda.so.1\n",
            "{way}"
        );
    }
}

/// The program's calls come to us by name, before the stub has loaded the driver.
#[test]
fn a_program_with_a_stub_of_its_own_reaches_the_driver() {
    let folder = folder("stub");
    let (stub, client) = (folder.join("libstub.so"), folder.join("stub"));
    compile("stub.c", &stub, &["-DSTUB", "-shared", "-fPIC", "-ldl"]);
    let path = format!("-Wl,-rpath,{}", folder.display());
    compile("stub.c", &client, &[&path, stub.to_str().expect("text")]);
    let answers = |preload: &[&Path]| {
        let mut command = Command::new(&client);
        command.env("LD_LIBRARY_PATH", &folder);
        succeed(with_preload(&mut command, preload))
    };
    let library = library();
    let missing = [answers(&[]), answers(&[&library])];
    driver_in(&folder);
    let found = answers(&[]);
    assert_eq!(found, answers(&[&library]), "the driver's own answers");
    let none = ["100, then 100\n", "500, then 500\n"];
    assert_eq!(missing, none, "there was no driver: an error both times");
    assert_ne!(found, none[0]);
}

/// The stand-in driver has a variant of `cuInit` from version 98.0 on, which no table knows.
#[test]
fn a_variant_newer_than_the_table_is_left_to_the_driver() {
    let folder = folder("newer");
    let driver = driver_in(&folder);
    let client = folder.join("versions");
    compile("versions.c", &client, &["-ldl"]);
    let arguments = [
        driver.to_str().expect("text"),
        "cuInit",
        "12000",
        "97000",
        "98000",
        "99000",
    ];
    let bare = run(&client, &arguments, &[]);
    assert_eq!(bare, "libcuda.so.1\n".repeat(4));
    let ours = "libgpushare.so\nlibgpushare.so\nlibcuda.so.1\nlibcuda.so.1\n";
    assert_eq!(run(&client, &arguments, &[&library()]), ours);
}

/// The log of a program that looks a name up at these versions. `init` among them is a call of
/// `cuInit`, which starts the library.
fn log_of(test: &str, asked: &[&str]) -> String {
    let folder = folder(test);
    let driver = driver_in(&folder);
    let (client, log) = (folder.join("versions"), folder.join("log"));
    compile("versions.c", &client, &["-ldl"]);
    let mut command = Command::new(&client);
    command.arg(&driver).args(asked).env("GPUSHARE_LOG", &log);
    succeed(with_preload(&mut command, &[&library()]));
    std::fs::read_to_string(&log).expect("a log")
}

/// Runtimes look functions up before they start the driver.
#[test]
fn a_variant_that_was_found_before_the_start_is_told_in_the_log() {
    let said = log_of("variant-told", &["cuInit", "98000", "99000", "init"]);
    assert!(
        said.contains("newer variants than gpushare knows"),
        "{said}"
    );
    assert!(said.contains("count=2"), "{said}");
    let said = log_of("variant-not-told", &["cuInit", "12000", "97000", "init"]);
    assert!(!said.contains("newer variant"), "{said}");
}

/// A program asks for the functions of EGL at the versions of old headers.
#[test]
fn a_function_newer_than_the_table_is_named_in_the_log() {
    let said = log_of("new-function", &["cuNewest", "init", "99000"]);
    assert!(said.contains("does not know this function"), "{said}");
    assert!(said.contains("cuNewest"), "{said}");
    let said = log_of("old-function", &["cuEGLInit", "init", "7000"]);
    assert!(!said.contains("does not know"), "{said}");
}

/// Below the version of a per-thread twin a driver finds nothing. The stand-in driver gives the
/// plain function, as another driver may.
#[test]
fn a_plain_answer_below_the_twins_version_is_hooked_too() {
    let folder = folder("below-the-twin");
    let driver = driver_in(&folder);
    let client = folder.join("versions");
    compile("versions.c", &client, &["-ldl"]);
    let driver = driver.to_str().expect("text");
    let arguments = [driver, "cuStreamSynchronize", "2000", "2000:2", "7000:2"];
    let bare = run(&client, &arguments, &[]);
    assert_eq!(bare, "libcuda.so.1\n".repeat(3));
    let ours = "libgpushare.so\n".repeat(3);
    assert_eq!(run(&client, &arguments, &[&library()]), ours);
}

/// A plug-in linked to the driver, and the program that loads it.
fn plugin(test: &str) -> (std::path::PathBuf, std::path::PathBuf) {
    let folder = folder(test);
    let driver = driver_in(&folder);
    let (host, plugin) = (folder.join("host"), folder.join("plugin.so"));
    compile("host.c", &host, &["-ldl"]);
    let path = format!("-Wl,-rpath,{}", folder.display());
    compile(
        "plugin.c",
        &plugin,
        &[
            "-shared",
            "-fPIC",
            &path,
            driver.to_str().expect("text"),
            "-ldl",
        ],
    );
    (host, plugin)
}

#[test]
fn a_plug_in_that_looks_beside_itself_finds_hooks_too() {
    let (host, plugin) = plugin("plugin");
    let arguments = [plugin.to_str().expect("text")];
    assert_eq!(
        run(&host, &arguments, &[]),
        "linked: libcuda.so.1\ndefault: libcuda.so.1\ndefault unhooked: libcuda.so.1\nnext: libcuda.so.1\nmissing: null\n"
    );
    assert_eq!(
        run(&host, &arguments, &[&library()]),
        "linked: libgpushare.so\ndefault: libgpushare.so\ndefault unhooked: libcuda.so.1\nnext: libgpushare.so\nmissing: null\n"
    );
}

/// `RTLD_DEEPBIND` puts a plug-in's own libraries first, the C library with its `dlsym` among them.
/// docs/BYPASSES.md lists it.
#[test]
fn a_deep_bound_plug_in_goes_past_us_and_works() {
    let (host, plugin) = plugin("deepbound");
    let arguments = [plugin.to_str().expect("text"), "deep"];
    let past_us = "linked: libcuda.so.1\ndefault: libcuda.so.1\ndefault unhooked: libcuda.so.1\nnext: libcuda.so.1\n";
    assert_eq!(
        run(&host, &arguments, &[]),
        format!("{past_us}missing: null\n")
    );
    // Its dlsym is the C library's, which cannot know that our exports stand for what this driver
    // lacks: they answer NOT_FOUND.
    assert_eq!(
        run(&host, &arguments, &[&library()]),
        format!("{past_us}missing: libgpushare.so\n")
    );
}
