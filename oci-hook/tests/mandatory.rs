//! Containers that have a GPU and ask for nothing: where the daemon's word is wanted, where not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use gpushare_oci_hook::wrapper::Call;
use serde_json::{Value, json};

/// A call of the wrapper whose daemon's folder is this.
fn call(folder: &Path) -> Call {
    let own = [
        "--gpushare-runtime=/x/runc".to_owned(),
        format!(
            "--gpushare-hook-args=--daemon,{}/control.sock",
            folder.display()
        ),
    ];
    Call::of(own.into_iter().map(OsString::from)).unwrap()
}

/// Whether the wrapper adds the hook to this configuration.
fn is_hooked(folder: &Path, config: &Value) -> bool {
    let bundle = tempfile::tempdir().unwrap();
    let file = bundle.path().join("config.json");
    fs::write(&file, config.to_string()).unwrap();
    call(folder)
        .prepare(bundle.path(), Path::new("/hook"))
        .unwrap();
    let after: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    after["hooks"]["createRuntime"][0]["path"] == "/hook"
}

fn with_a_gpu() -> Value {
    json!({"process": {"env": ["NVIDIA_VISIBLE_DEVICES=GPU-1"]}})
}

#[test]
fn a_container_without_limits_gets_the_hook_where_limits_are_mandatory() {
    let daemon = tempfile::tempdir().unwrap();
    let folder = daemon.path();
    let asks = json!({"process": {"env": ["GPUSHARE_MEM_LIMIT=1GiB"]}});
    let without_a_gpu = json!({"process": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}});
    for is_mandatory in [false, true] {
        if is_mandatory {
            fs::write(folder.join("mandatory"), "").unwrap();
        }
        assert_eq!(is_hooked(folder, &with_a_gpu()), is_mandatory);
        assert!(is_hooked(folder, &asks));
        assert!(!is_hooked(folder, &without_a_gpu));
    }
}

#[test]
fn a_container_of_this_daemons_class_has_its_limits_already() {
    let daemon = tempfile::tempdir().unwrap();
    let folder = daemon.path();
    fs::write(folder.join("mandatory"), "").unwrap();
    for (classes, is_hooked_then) in [
        (folder.join("classes"), false),
        (folder.join("sockets"), true),
        (folder.join("classes/x"), true),
        (Path::new("/classes").to_owned(), true),
    ] {
        let class = classes.join("half");
        let mut config = with_a_gpu();
        config["mounts"] = json!([
            {"source": class, "destination": "/run/gpushare"},
            {"source": class.join("ld.so.preload"), "destination": "/etc/ld.so.preload"},
        ]);
        assert_eq!(is_hooked(folder, &config), is_hooked_then, "{classes:?}");
    }
}
