//! Where the hook's refusal is told: a runtime's pipe has it, and the machine's log; no file has it
//! that an annotation names.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// The annotation by which crun chooses where a hook's standard error goes.
const OUTPUT: &str = "run.oci.hooks.stderr";

/// A bundle with a misspelt limit, and the value of crun's annotation, if any.
fn bundle(cgroup: &str, output: Option<&str>) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let mut config = json!({
        "annotations": {"gpushare.io/mem-limt": "4GiB"},
        "linux": {"cgroupsPath": cgroup},
    });
    if let Some(output) = output {
        config["annotations"][OUTPUT] = output.into();
    }
    fs::write(place.path().join("config.json"), config.to_string()).unwrap();
    place
}

/// Lets a hook read the state of a container of this bundle, and waits for its refusal.
fn refuses(mut hook: Child, bundle: &Path) -> String {
    let state: Value = json!({"id": "c1", "pid": std::process::id(), "bundle": bundle});
    let mut input = hook.stdin.take().unwrap();
    input.write_all(state.to_string().as_bytes()).unwrap();
    drop(input);
    let output = hook.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn hook(stderr: impl Into<Stdio>) -> Child {
    let mut hook = Command::new(env!("CARGO_BIN_EXE_gpushare-oci-hook"));
    hook.arg("createRuntime").stdin(Stdio::piped());
    hook.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap()
}

#[test]
fn a_refusal_goes_to_a_pipe_and_to_no_file_that_has_a_name() {
    let place = bundle("/a/libpod-1", None);
    let file = place.path().join("ld.so.preload");
    refuses(hook(File::create(&file).unwrap()), place.path());
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
    let named = place.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&named)
            .status()
            .unwrap()
            .success()
    );
    // Both ends, so that nobody waits.
    let mut both = File::options();
    let mut reader = both.read(true).write(true).open(&named).unwrap();
    refuses(hook(reader.try_clone().unwrap()), place.path());
    // What is read first was written by nobody else.
    reader.write_all(b"end").unwrap();
    let mut first = [0; 3];
    std::io::Read::read_exact(&mut reader, &mut first).unwrap();
    assert_eq!(&first, b"end");
    let told = refuses(hook(Stdio::piped()), place.path());
    assert!(
        told.starts_with("gpushare: annotation gpushare.io/mem-limt"),
        "{told}"
    );
}

#[test]
fn an_output_that_an_annotation_names_gets_no_word() {
    // Podman's, whose images may have annotations; CRI-O's, which hands on all of a pod's.
    let cgroups = [
        "/a/libpod-1",
        "system.slice:libpod:1",
        "",
        "kubepods-a.slice:crio:1",
        "/kubepods/a/crio-1",
        "/kubepods/a/cri-containerd:a",
    ];
    for (output, is_told) in [
        (Some("/proc/1/fd/2"), false),
        (Some("/etc/ld.so.preload"), false),
        (Some("/dev/stderr"), true),
        (None, true),
    ] {
        for cgroup in cgroups {
            let place = bundle(cgroup, output);
            let told = refuses(hook(Stdio::piped()), place.path());
            assert_eq!(told.contains("mem-limt"), is_told, "{cgroup} {output:?}");
        }
    }
}

#[test]
fn the_machines_log_has_each_refusal_with_the_containers_id() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root can have a /dev of its own.
    }
    let place = bundle("/a/libpod-1", Some("/etc/ld.so.preload"));
    let path = place.path().join("log");
    let log = UnixDatagram::bind(&path).unwrap();
    log.set_nonblocking(true).unwrap();
    let heard = || {
        let mut text = [0; 1 << 16];
        let length = log.recv(&mut text).ok()?;
        Some(String::from_utf8(text[..length].to_vec()).unwrap())
    };
    let own_dev = "mount -t tmpfs none /dev && ln -s \"$1\" /dev/log && exec \"$0\" createRuntime";
    let hook = || {
        let mut hook = Command::new("unshare");
        hook.args([
            "--mount",
            "sh",
            "-c",
            own_dev,
            env!("CARGO_BIN_EXE_gpushare-oci-hook"),
        ]);
        hook.arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
        hook.stderr(Stdio::null()).spawn().unwrap()
    };
    refuses(hook(), place.path());
    let told = heard().expect("it is told");
    let words = "<27>gpushare-oci-hook: container c1 is refused: annotation gpushare.io/mem-limt";
    assert!(told.starts_with(words), "{told}");
    assert_eq!(heard(), None, "once");
    // One that is unknown, as its bundle is not there.
    refuses(hook(), Path::new("/nowhere"));
    let told = heard().expect("it is told");
    assert!(
        told.contains("container c1 is refused: cannot open the bundle"),
        "{told}"
    );
    // A long value is cut, a line stays one.
    let config = json!({"annotations": {"gpushare.io/\nx": "ä".repeat(1 << 15)}});
    fs::write(place.path().join("config.json"), config.to_string()).unwrap();
    refuses(hook(), place.path());
    let told = heard().expect("it is told");
    assert!(
        told.contains("gpushare.io/\\nx=") && told.len() <= 2048,
        "{}",
        told.len()
    );
}
