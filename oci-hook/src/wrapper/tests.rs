#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

fn call(arguments: &[&str]) -> Call {
    let own = ["--gpushare-runtime=/x/runc"];
    let all = own.iter().chain(arguments).map(OsString::from);
    Call::of(all).unwrap()
}

#[test]
fn only_a_call_that_creates_is_edited() {
    for (arguments, bundle) in [
        (
            &["--root", "/r", "create", "--bundle", "/b", "id"][..],
            Some("/b"),
        ),
        (&["create", "-b", "/b", "id"], Some("/b")),
        (&["--log", "l", "run", "--bundle=/b", "id"], Some("/b")),
        (&["create", "-b/b", "id"], Some("/b")),
        (&["run", "-bundle", "/b", "id"], Some("/b")),
        (&["run", "-bundle=/b", "id"], Some("/b")),
        (
            &["run", "--bundle", "/a", "--bundle", "/b", "id"],
            Some("/b"),
        ),
        (
            &["--root=run", "--debug", "run", "-b", "/b", "id"],
            Some("/b"),
        ),
        (
            &[
                "--log",
                "run",
                "--log-format=json",
                "create",
                "-b=/b",
                "run",
            ],
            Some("/b"),
        ),
        (
            &["--cgroup-manager", "systemd", "run", "-b", "/b", "id"],
            Some("/b"),
        ),
        (
            &["-l", "create", "-r", "/r", "-s", "create", "-b", "/b", "id"],
            Some("/b"),
        ),
        (&["--log", "run", "delete", "c1"], None),
        (&["--root", "create", "state", "run"], None),
        (&["-l", "run", "delete", "c1"], None),
        (&["--debug", "exec", "c1", "npm", "run", "build"], None),
        (
            &["exec", "--env", "create", "c1", "run", "--bundle", "/b"],
            None,
        ),
        (
            &[
                "exec",
                "c1",
                "x",
                "--gpushare-runtime=/y",
                "--gpushare-hook-args=z",
            ],
            None,
        ),
        (&["delete", "run"], None),
        (&["--version"], None),
        (&["--log"], None),
        (&["start", "id"], None),
        (&["delete", "--force", "id"], None),
        (&["state", "id"], None),
        (&[], None),
    ] {
        let call = call(arguments);
        assert_eq!(call.creates(), bundle.map(PathBuf::from), "{arguments:?}");
        assert_eq!(call.restores(), None, "{arguments:?}");
        assert_eq!(call.runtime, Path::new("/x/runc"));
        assert_eq!(call.arguments, arguments, "the rest is passed on");
    }
}

#[test]
fn a_call_that_restores_names_its_bundle_and_is_not_edited() {
    for arguments in [
        &["--root", "/r", "restore", "--bundle", "/b", "id"][..],
        &["restore", "--image-path", "/i", "-b", "/b", "id"],
        &["--log", "run", "restore", "--bundle=/b", "--detach", "id"],
    ] {
        let call = call(arguments);
        assert_eq!(call.restores().as_deref(), Some(Path::new("/b")));
        assert_eq!(call.creates(), None, "{arguments:?}");
        assert_eq!(call.arguments, arguments, "the rest is passed on");
    }
    for arguments in [
        &["checkpoint", "--image-path", "/i", "id"][..],
        &["exec", "c1", "restore", "--bundle", "/b"],
        &["--root", "restore", "state", "id"],
    ] {
        assert_eq!(call(arguments).restores(), None, "{arguments:?}");
    }
}

#[test]
fn a_runtime_of_the_engines_path_is_found_behind_the_systems() {
    let place = tempfile::tempdir().unwrap();
    let [system, data] = ["system", "data"].map(|name| place.path().join(name));
    let searched = folders(Some(
        std::env::join_paths([&data, Path::new("bin")]).unwrap(),
    ));
    let (known, of_engine) = searched.split_at(FOLDERS.len());
    assert_eq!(known, FOLDERS.map(PathBuf::from));
    assert_eq!(of_engine, std::slice::from_ref(&data), "not a relative one");
    assert_eq!(folders(None), FOLDERS.map(PathBuf::from));
    let put = |folder: &Path, name: &str| {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(name), "").unwrap();
    };
    let found = || runtime_in(&[system.clone(), data.clone()], None);
    assert_eq!(found(), None);
    put(&system, "crun");
    assert_eq!(found(), Some(system.join("crun")));
    put(&data, "runc");
    assert_eq!(found(), Some(data.join("runc")), "runc is wanted first");
    put(&system, "runc");
    assert_eq!(found(), Some(system.join("runc")));
}

#[test]
fn the_wrapper_under_a_runtimes_name_is_passed_over() {
    let place = tempfile::tempdir().unwrap();
    let own = place.path().join("gpushare-runtime");
    let [first, second] = ["first", "second"].map(|name| place.path().join(name));
    for folder in [&first, &second] {
        fs::create_dir(folder).unwrap();
    }
    fs::write(&own, "").unwrap();
    std::os::unix::fs::symlink(&own, first.join("runc")).unwrap();
    let found = |own| runtime_in(&[first.clone(), second.clone()], own);
    assert_eq!(found(Some(&own)), None);
    assert_eq!(found(None), Some(first.join("runc")));
    fs::write(second.join("crun"), "").unwrap();
    assert_eq!(found(Some(&own)), Some(second.join("crun")));
    fs::write(second.join("runc"), "").unwrap();
    assert_eq!(found(Some(&own)), Some(second.join("runc")));
}

#[test]
fn a_container_that_asks_for_nothing_keeps_its_configuration() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("config.json");
    let text = "{ \"process\" : { \"env\" : [ \"A=1\" ] } }";
    fs::write(&file, text).unwrap();
    let call = call(&[]);
    call.prepare(place.path(), Path::new("/h")).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    fs::write(
        &file,
        "{\"process\":{\"env\":[\"GPUSHARE_MEM_LIMIT=1GiB\"]},\"x\":[1]}",
    )
    .unwrap();
    call.prepare(place.path(), Path::new("/h")).unwrap();
    let config = bundle::config(place.path()).unwrap();
    assert_eq!(config["hooks"]["createRuntime"][0]["path"], "/h");
    assert_eq!(config["x"][0], 1);
    assert_eq!(
        fs::read_dir(place.path()).unwrap().count(),
        1,
        "nothing is left"
    );
}

/// Whether the wrapper takes a container with these annotations, cgroup and hooks.
fn takes(annotations: &Value, cgroup: &str, hooks: &Value) -> Result<(), String> {
    let place = tempfile::tempdir().unwrap();
    let config = serde_json::json!({
        "annotations": annotations,
        "linux": {"cgroupsPath": cgroup},
        "hooks": hooks,
    });
    fs::write(place.path().join("config.json"), config.to_string()).unwrap();
    let done = call(&[]).prepare(place.path(), Path::new("/usr/bin/gpushare-oci-hook"));
    done.map_err(|why| why.to_string())
}

/// Annotations that name a file for the output of hooks, and a limit, if any.
fn outputs(name: &str, value: &str, limit: &str) -> Value {
    let mut all = serde_json::json!({"run.oci.handler": "krun"});
    all[format!("run.oci.hooks.{name}")] = value.into();
    if !limit.is_empty() {
        all["gpushare.io/mem-limit"] = limit.into();
    }
    all
}

#[test]
fn a_file_of_the_host_that_an_annotation_names_for_hooks_is_refused() {
    // An image under Podman, a pod's author under CRI-O may have written it.
    for cgroup in ["/a/libpod-1", "kubepods-a.slice:crio:1", "/kubepods/a/b"] {
        for name in ["stderr", "stdout"] {
            let takes = |value, limit| takes(&outputs(name, value, limit), cgroup, &Value::Null);
            let told = takes("/etc/nologin", "4GiB").unwrap_err();
            assert!(told.contains(&format!("run.oci.hooks.{name}")), "{told}");
            // Without a hook of ours nothing is opened for it.
            takes("/etc/nologin", "").unwrap();
            takes("/dev/stderr", "4GiB").unwrap();
        }
    }
}

#[test]
fn a_file_for_our_hook_in_a_container_without_limits_is_refused() {
    let hooks = |path: &str| serde_json::json!({"createRuntime": [{"path": path}]});
    let mut sandbox = outputs("stderr", "/etc/nologin", "4GiB");
    sandbox["io.kubernetes.cri-o.ContainerType"] = "sandbox".into();
    for annotations in [outputs("stderr", "/etc/nologin", ""), sandbox] {
        let takes = |hooks| takes(&annotations, "kubepods-a.slice:crio:1", &hooks);
        let told = takes(hooks("/usr/local/bin/gpushare-oci-hook")).unwrap_err();
        assert!(told.contains("run.oci.hooks.stderr"), "{told}");
        takes(hooks("/usr/bin/another-hook")).unwrap();
        takes(Value::Null).unwrap();
    }
    let own = outputs("stderr", "/dev/null", "");
    takes(&own, "/a/b", &hooks("/usr/bin/gpushare-oci-hook")).unwrap();
}

#[test]
fn another_file_than_the_one_that_is_edited_is_refused() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("config.json"), "{}").unwrap();
    let prepare = |options: &[&str]| {
        let all = [&["create", "--bundle", "/b"], options, &["id"]].concat();
        call(&all).prepare(place.path(), Path::new("/h"))
    };
    for options in [
        &["--config", "other.json"][..],
        &["--config=other.json"],
        &["--conf=other.json"],
        &["-f", "other.json"],
        &["-fother.json"],
    ] {
        let told = prepare(options).unwrap_err().to_string();
        assert!(told.contains("config.json"), "{told}");
    }
    prepare(&["--console-socket", "/c", "--pid-file=/p"]).unwrap();
    // Before the subcommand it is another option.
    let before = call(&["--conf", "create", "--bundle", "/b", "id"]);
    before.prepare(place.path(), Path::new("/h")).unwrap();
}

#[test]
fn a_bundle_is_prepared_again_and_its_limit_may_have_changed() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("config.json");
    let read = || fs::read_to_string(&file).unwrap();
    let prepare = |call: &Call| call.prepare(place.path(), Path::new("/h"));
    let own = call(&["--gpushare-hook-args=--daemon,/s"]);
    fs::write(
        &file,
        "{\"process\":{\"env\":[\"GPUSHARE_MEM_LIMIT=1GiB\"]}}",
    )
    .unwrap();
    prepare(&own).unwrap();
    let once = read();
    // What the hook reads when the container is created is the limit of that time.
    let changed = once.replace("1GiB", "2GiB");
    for text in [&once, &changed] {
        fs::write(&file, text).unwrap();
        prepare(&own).unwrap();
        assert_eq!(&read(), text, "it stays as it is");
    }
    for (text, call, word) in [
        (once.replace("LIMIT", "LIMT"), own, "GPUSHARE_MEM_LIMT"),
        (once, call(&[]), "with other arguments"),
    ] {
        fs::write(&file, &text).unwrap();
        let told = prepare(&call).unwrap_err().to_string();
        assert!(told.contains(word), "{told}");
        assert_eq!(read(), text);
    }
}
