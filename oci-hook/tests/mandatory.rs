//! Containers that have a GPU and ask for nothing: where the daemon's word is wanted, where not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use gpushare_oci_hook::hook::{Places, create_runtime};
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

/// A configuration with the mounts of a class in this folder, whose library is here.
fn of_class(class: &Path, library: &Path) -> Value {
    let mut config = with_a_gpu();
    let env = config["process"]["env"].as_array_mut().unwrap();
    env.push(json!("GPUSHARE_SOCKET=/run/gpushare"));
    config["mounts"] = json!([
        {"source": class, "destination": "/run/gpushare"},
        {"source": class.join("ld.so.preload"), "destination": "/etc/ld.so.preload"},
        {"source": library, "destination": "/usr/lib/gpushare"},
    ]);
    config
}

#[test]
fn a_container_of_this_daemons_class_has_its_limits_already() {
    let daemon = tempfile::tempdir().unwrap();
    let folder = daemon.path();
    fs::write(folder.join("mandatory"), "").unwrap();
    let library = library(folder);
    for (classes, is_hooked_then) in [
        (folder.join("classes"), false),
        (folder.join("sockets"), true),
        (folder.join("classes/x"), true),
        (Path::new("/classes").to_owned(), true),
    ] {
        let config = of_class(&classes.join("half"), &library);
        assert_eq!(is_hooked(folder, &config), is_hooked_then, "{classes:?}");
    }
}

#[test]
fn variables_beside_a_class_are_no_matter_of_the_hooks() {
    let daemon = tempfile::tempdir().unwrap();
    let folder = daemon.path();
    let library = library(folder);
    let with = |class: &Path, variable: &str| {
        let mut config = of_class(class, &library);
        let env = config["process"]["env"].as_array_mut().unwrap();
        env.push(json!(variable));
        config
    };
    let (ours, others) = (folder.join("classes/half"), folder.join("sockets/half"));
    for is_mandatory in [false, true] {
        if is_mandatory {
            fs::write(folder.join("mandatory"), "").unwrap();
        }
        for variable in [
            "GPUSHARE_MEM_VIEW=request",
            "GPUSHARE_MEM_LIMIT=1GiB",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50",
        ] {
            assert!(!is_hooked(folder, &with(&ours, variable)), "{variable}");
            assert!(is_hooked(folder, &with(&others, variable)), "{variable}");
        }
    }
}

#[test]
fn a_container_of_a_class_that_asks_by_annotation_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let library = library(folder);
    for name in ["gpushare.io/mem-limit", "gpushare.io/devices"] {
        let mut config = of_class(&folder.join("classes/half"), &library);
        config["annotations"] = json!({ name: "1GiB" });
        assert!(is_hooked(folder, &config), "{name}");
        let why = hooked(folder, &config).unwrap_err();
        for word in ["gpushare.io/gpu=half", "annotation"] {
            assert!(why.contains(word), "{name}: {why}");
        }
    }
}

/// A folder of this one with a library that every program could load.
fn library(folder: &Path) -> std::path::PathBuf {
    let library = folder.join("library");
    fs::create_dir(&library).unwrap();
    fs::write(library.join("libgpushare.so"), "").unwrap();
    for (path, mode) in [
        (library.clone(), 0o755),
        (library.join("libgpushare.so"), 0o644),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    library
}

#[test]
fn a_class_whose_library_no_program_could_load_is_none() {
    let daemon = tempfile::tempdir().unwrap();
    let folder = daemon.path();
    fs::write(folder.join("mandatory"), "").unwrap();
    let library = library(folder);
    let config = |library: &Path| of_class(&folder.join("classes/half"), library);
    assert!(!is_hooked(folder, &config(&library)));
    let empty = folder.join("empty");
    fs::create_dir(&empty).unwrap();
    for other in [&empty, &folder.join("none"), Path::new("/dev/null")] {
        assert!(is_hooked(folder, &config(other)), "{other:?}");
    }
    let link = folder.join("link");
    symlink(&library, &link).unwrap();
    assert!(!is_hooked(folder, &config(&link)), "engines follow it");
    let closed = fs::Permissions::from_mode(0o600);
    fs::set_permissions(library.join("libgpushare.so"), closed).unwrap();
    assert!(is_hooked(folder, &config(&library)));
}

/// What the hook says of a container of namespace `system` that has a GPU and asks for nothing,
/// where `prepare` has made the daemon's folder and no daemon is there.
fn hooked_without_a_daemon(prepare: impl Fn(&Path)) -> Result<(), String> {
    let daemon = tempfile::tempdir().unwrap();
    prepare(&daemon.path().join("mandatory"));
    let mut config = with_a_gpu();
    config["annotations"] = json!({"io.kubernetes.cri.sandbox-namespace": "system"});
    config["linux"] = json!({"cgroupsPath": "system.slice:cri-containerd:a"});
    hooked(daemon.path(), &config)
}

/// The hook's words on the container of this configuration. Its daemon's folder is `daemon`.
fn hooked(daemon: &Path, config: &Value) -> Result<(), String> {
    let bundle = tempfile::tempdir().unwrap();
    fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
    let pid = std::process::id();
    let state = json!({"id": "a", "pid": pid, "bundle": bundle.path()}).to_string();
    let places = Places {
        library: None,
        daemon: daemon.join("control.sock"),
    };
    create_runtime(&places, &mut state.as_bytes()).map_err(|refused| refused.why.to_string())
}

#[test]
fn what_the_daemon_said_last_holds_while_it_does_not_answer() {
    let rules = |namespace: &str, word: &str| {
        format!(
            "{{\"rules\":[{{\"namespace\":\"{namespace}\",\"unlimited\":\"{word}\"}},\
             {{\"unlimited\":\"deny\"}}]}}"
        )
    };
    let allow = rules("system", "allow");
    let of_other = allow.replace("system", "other");
    let unknown = allow.replace("rules", "laws");
    let (deny, maxima) = (rules("system", "deny"), rules("system", "maxima"));
    let put = |text: &str, mode: u32| {
        let text = text.to_owned();
        move |path: &Path| {
            fs::write(path, &text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    let link = |path: &Path| {
        let real = path.with_extension("real");
        put(&allow, 0o644)(&real);
        symlink(real, path).unwrap();
    };
    // Each waits for the daemon for as long as the hook does: so all at once.
    std::thread::scope(|scope| {
        let allowed = scope.spawn(|| hooked_without_a_daemon(put(&allow, 0o644)));
        let open = scope.spawn(|| hooked_without_a_daemon(put(&allow, 0o646)));
        let linked = scope.spawn(|| hooked_without_a_daemon(link));
        let texts = ["", &of_other, &unknown, &deny, &maxima];
        let refused =
            texts.map(|text| scope.spawn(move || hooked_without_a_daemon(put(text, 0o644))));
        assert_eq!(allowed.join().unwrap(), Ok(()));
        for refused in refused.into_iter().chain([open, linked]) {
            let told = refused.join().unwrap().unwrap_err();
            assert!(told.contains("does not answer"), "{told}");
        }
    });
}
