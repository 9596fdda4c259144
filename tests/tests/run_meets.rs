//! `gpushare run` where others have a say in how a program starts: a service manager, a sanitizer,
//! the folders of a login that come and go.

use gpushare_tests::guest::{command, gpushare};
use gpushare_tests::{Gpu, Guest, Home, artefacts, clients};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of this user's alone, for a test's files.
fn own_folder() -> tempfile::TempDir {
    let private = Permissions::from_mode(0o700);
    let mut folder = tempfile::Builder::new();
    folder.permissions(private).tempdir().expect("a folder")
}

/// Runs the quota client in the tenant `name` after `before`, by which the runtime folder comes or
/// goes. Returns the folders of that name where its books may be.
fn books(name: &str, runtime: &Path, before: &str) -> Vec<PathBuf> {
    let gpu = Gpu::new("");
    let client = clients::compile("quota", &[]);
    let script = format!("{before} && exec {}", client.display());
    let mut run = command(&gpu, &["--name", name, "--mem-limit", "1GiB"]);
    run.env("XDG_RUNTIME_DIR", runtime)
        .args(["sh", "-c", &script]);
    let mut guest = Guest::start(run);
    assert_eq!(guest.ask("init"), "init 0");
    let user = nix::unistd::geteuid();
    let places = [
        runtime.join("gpushare/c"),
        format!("/dev/shm/gpushare-{user}/c").into(),
    ];
    let found = places.map(|place| place.join(name));
    let found = found.into_iter().filter(|place| place.exists()).collect();
    guest.finish().silently();
    found
}

#[test]
fn a_folder_of_a_login_that_comes_later_gets_no_second_books() {
    let dir = own_folder();
    let runtime = dir.path().join("later");
    let name = format!("comes-{}", std::process::id());
    let comes = format!("mkdir -m 700 {}", runtime.display());
    let found = books(&name, &runtime, &comes);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("/dev/shm"), "{found:?}");
    fs::remove_dir_all(&found[0]).expect("the tenant has ended");
}

#[test]
fn books_whose_place_can_be_made_no_more_are_made_in_another() {
    let dir = own_folder();
    let (runtime, name) = (dir.path(), format!("goes-{}", std::process::id()));
    let stays = books(&name, runtime, "unset XDG_RUNTIME_DIR");
    assert!(stays[0].starts_with(runtime), "{stays:?}");
    let place = runtime.join("gpushare/c");
    let place = place.display();
    let goes = format!("rm -r {place} && touch {place} && unset XDG_RUNTIME_DIR");
    let found = books(&name, runtime, &goes);
    assert!(found[0].starts_with("/dev/shm"), "{found:?}");
    fs::remove_dir_all(&found[0]).expect("the tenant has ended");
}

#[test]
fn a_program_whose_books_are_removed_keeps_what_it_has_and_logs_why() {
    let (gpu, dir) = (Gpu::new(""), own_folder());
    let log = dir.path().join("log");
    let mut run = command(&gpu, &["--mem-limit", "1GiB"]);
    run.env("XDG_RUNTIME_DIR", dir.path())
        .env("GPUSHARE_LOG", &log)
        .arg(clients::compile("quota", &[]));
    let mut guest = Guest::start(run);
    assert_eq!(guest.ask("init"), "init 0");
    fs::remove_dir_all(dir.path().join("gpushare/c")).expect("its books");
    assert_eq!(guest.ask("alloc 536870912"), "alloc 2");
    guest.finish();
    let told = fs::read_to_string(&log).expect("a log");
    assert!(told.contains("has lost its books"), "{told}");
}

/// The output of a script under `run`, which has these variables, with `$$` for its own pid.
fn under(variables: &str, script: &str) -> Output {
    let run = command(&Gpu::new(""), &[]);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("{variables} exec \"$@\""), "sh"])
        .arg(run.get_program())
        .args(run.get_args())
        .args(["sh", "-c", script]);
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.output().expect("a shell")
}

#[test]
fn what_systemd_meant_for_the_main_process_is_the_programs() {
    let script = "echo $(($LISTEN_PID - $$)) $(($WATCHDOG_PID - $$)) $LISTEN_FDS; \
                  echo ${LISTEN_PIDFDID-none}";
    let variables = "LISTEN_PID=$$ WATCHDOG_PID=$$ LISTEN_PIDFDID=7 LISTEN_FDS=0";
    let ran = under(variables, script);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "0 0 0\nnone\n");
    assert!(ran.stderr.is_empty(), "{ran:?}");
    // A value that was meant for another process stays.
    let variables = "LISTEN_PID=1 WATCHDOG_PID=1 LISTEN_PIDFDID=7";
    let ran = under(variables, "echo $LISTEN_PID $WATCHDOG_PID $LISTEN_PIDFDID");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "1 1 7\n");
}

#[test]
fn a_program_that_cannot_start_in_a_service_is_126_all_the_same() {
    let mut shell = Command::new("sh");
    let run = command(&Gpu::new(""), &[]);
    shell
        .args(["-c", "LISTEN_PID=$$ exec \"$@\"", "sh"])
        .arg(run.get_program())
        .args(run.get_args())
        .arg("/etc/passwd");
    let ended = shell.output().expect("a shell");
    assert_eq!(ended.status.code(), Some(126), "{ended:?}");
}

/// The message and status of `run` with this file as its command.
fn not_started(file: &Path, text: &str) -> (String, Option<i32>) {
    fs::write(file, text).expect("written");
    fs::set_permissions(file, Permissions::from_mode(0o755)).expect("executable");
    let ended = command(&Gpu::new(""), &[]).arg(file).output();
    let ended = ended.expect("it ran");
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    (told, ended.status.code())
}

#[test]
fn a_script_whose_interpreter_is_not_there_is_told_by_that() {
    let dir = own_folder();
    let script = dir.path().join("train.py");
    let missing = not_started(&script, "#! /no/venv/bin/python -u\n");
    assert_eq!(missing.1, Some(126));
    let words = "its interpreter /no/venv/bin/python is not there";
    assert!(missing.0.contains(words), "{missing:?}");
    // A program that is there and may not be executed.
    let barred = not_started(&script, "#!/etc/passwd\n");
    assert_eq!(barred.1, Some(126));
    assert!(!barred.0.contains("interpreter"), "{barred:?}");
}

#[test]
fn a_service_that_tells_systemd_of_itself_is_noted_and_no_other_one() {
    for (variables, noted) in [
        ("NOTIFY_SOCKET=/no SYSTEMD_EXEC_PID=$$", true),
        ("SYSTEMD_EXEC_PID=$$", false),
        ("NOTIFY_SOCKET=/no SYSTEMD_EXEC_PID=1", false),
        ("", false),
    ] {
        let ran = under(variables, "true");
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{told}");
        assert_eq!(told.contains("NotifyAccess=all"), noted, "{told}");
    }
}

#[test]
fn a_program_with_gccs_address_sanitizer_starts() {
    let gpu = Gpu::new("");
    let client = clients::compile("quota", &["-fsanitize=address"]);
    let options = |given: Option<&str>, program: &[&str]| {
        let mut run = command(&gpu, &["--mem-limit", "1GiB"]);
        run.args(program);
        match given {
            Some(given) => run.env("ASAN_OPTIONS", given),
            None => run.env_remove("ASAN_OPTIONS"),
        };
        Guest::start(run)
    };
    // Also as a child of a program without one.
    let file = client.display().to_string();
    for program in [&[&*file][..], &["sh", "-c", &format!("{file}; exit")]] {
        let mut guest = options(Some("detect_leaks=0"), program);
        assert_eq!(guest.ask("init"), "init 0");
        assert_eq!(guest.ask("alloc 2147483648"), "alloc 2", "the limit holds");
        guest.finish().silently();
    }
    let word = "verify_asan_link_order";
    for (given, expected) in [
        (None, format!("{word}=0")),
        (Some(""), format!("{word}=0")),
        (Some("a=1"), format!("a=1:{word}=0")),
        (Some("verify_asan_link_order=1"), format!("{word}=1")),
    ] {
        let ended = options(given, &["sh", "-c", "echo \"$ASAN_OPTIONS\""]).finish();
        assert_eq!(ended.stdout.trim(), expected, "{given:?}");
    }
}

#[test]
fn a_run_inside_a_tenant_is_refused_a_device_that_the_tenant_has_not() {
    let home = Home::new("mem=8GiB,count=2");
    let spec = format!("soft:{}", home.gpu().spec());
    let inner = |visible: &str| {
        let mut run = home.run("one", &["--mem-limit", "1GiB"]);
        run.env("CUDA_VISIBLE_DEVICES", "0")
            .args(["env", &format!("CUDA_VISIBLE_DEVICES={visible}")])
            .arg(artefacts::gpushare())
            .args(["run", "--gpu", &spec, "--", "echo", "ran"]);
        Guest::start(run).finish()
    };
    let other = inner("1");
    assert_eq!(other.status.code(), Some(125), "{other:?}");
    assert_eq!(other.stdout, "");
    let words = "this runs inside tenant one, which was not given that device";
    assert!(other.stderr.contains(words), "{other:?}");
    let own = inner("0");
    assert!(own.status.success() && own.stdout == "ran\n", "{own:?}");
}

#[test]
fn the_prepared_environment_names_the_place_of_the_books() {
    let dir = own_folder();
    let env = |mark: Option<&str>| {
        let mut env = gpushare(&["env", "--json", "--gpu", "soft", "--name", "n"]);
        env.env("XDG_RUNTIME_DIR", dir.path());
        mark.map(|mark| env.env("GPUSHARE_IN_FILES", mark));
        let output = env.output().expect("gpushare starts");
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a plan");
        plan["set"]["GPUSHARE_IN_FILES"].clone()
    };
    let here = dir.path().join("gpushare/c/n");
    assert_eq!(env(None), here.to_str().expect("a name"));
    // Another tenant's place says nothing of this one's.
    let other = dir.path().join("gpushare/c/m");
    assert_eq!(env(other.to_str()), here.to_str().expect("a name"));
}
