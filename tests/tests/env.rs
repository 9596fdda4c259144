//! `gpushare env` prints the environment that `run` would give a program.

use gpushare_tests::guest::gpushare;
use gpushare_tests::machine::{Machine, ROOT};
use gpushare_tests::{GIB, Gpu, artefacts, clients};
use serde_json::Value;
use std::process::Command;

#[test]
fn a_shell_that_evaluates_it_starts_programs_under_the_limits() {
    let gpu = Gpu::new("");
    let temporary = tempfile::tempdir_in(artefacts::cache()).unwrap();
    let script = format!(
        "eval \"$({} env --gpu soft:{} --mem-limit 1GiB)\" && printf 'init\\ntotal\\n' | {}",
        artefacts::gpushare().display(),
        gpu.spec(),
        clients::compile("quota", &[]).display()
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("init 0\ntotal {GIB} 0\n"),
        "{output:?}"
    );
}

#[test]
fn a_shell_that_evaluates_a_refusal_does_not_go_on_without_a_limit() {
    for (shell, wrong) in [
        ("sh", "--mem-limit 4gib"),
        ("bash", "--mem-limit 4gib"),
        ("sh", "--mem-limt 4GiB"),
    ] {
        let call = format!("{} env --gpu soft {wrong}", artefacts::gpushare().display());
        for script in [
            format!("eval \"$({call})\" && echo went on"),
            format!("set -e; eval \"$({call})\"; echo went on"),
        ] {
            let output = Command::new(shell).args(["-c", &script]).output().unwrap();
            assert!(!output.status.success(), "{script}: {output:?}");
            assert!(output.stdout.is_empty(), "{script}: {output:?}");
            assert!(!output.stderr.is_empty(), "{script}: {output:?}");
        }
    }
}

#[test]
fn a_log_that_cannot_be_opened_is_refused_before_the_program_starts() {
    let flags = [
        "run", "--daemon", "off", "--gpu", "soft", "--", "echo", "ran",
    ];
    let ended = |log: &str| {
        let output = gpushare(&flags).env("GPUSHARE_LOG", log).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), output.stdout == b"ran\n", told)
    };
    let (status, ran, told) = ended("/nonexistent/log");
    assert_eq!((status, ran), (Some(125), false), "{told}");
    assert!(told.contains("GPUSHARE_LOG=\"/nonexistent/log\""), "{told}");
    let (status, ran, told) = ended("/dev/null");
    assert_eq!((status, ran), (Some(0), true), "{told}");
}

#[test]
fn json_lists_variables_to_set_and_to_unset() {
    let temporary = tempfile::tempdir_in(artefacts::cache()).unwrap();
    let output = gpushare(&[
        "env",
        "--json",
        "--gpu",
        "soft",
        "--mem-limit",
        "1GiB",
        "--name",
        "n",
    ])
    .env("GPUSHARE_MEM_LIMIT_0", "2GiB")
    .env("TMPDIR", temporary.path())
    .output()
    .unwrap();
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["set"]["GPUSHARE_MEM_LIMIT"], "1GiB");
    assert_eq!(plan["set"]["GPUSHARE_TENANT"], "n");
    let mark = plan["set"]["GPUSHARE_IN_FILES"].as_str();
    assert!(
        mark.is_some_and(|mark| mark.ends_with("/c/n")),
        "a `run` in it stays"
    );
    assert_eq!(plan["unset"], serde_json::json!(["GPUSHARE_MEM_LIMIT_0"]));
    assert_eq!(
        plan["set"].get("PATH"),
        None,
        "unchanged variables are not repeated"
    );
}

#[test]
fn limits_that_only_a_daemon_keeps_are_refused_by_their_flag() {
    for flags in [
        ["--priority", "400"],
        ["--sm-request", "20"],
        ["--sm-request", "0=20"],
        ["--on-collision", "wait"],
    ] {
        let mut env = gpushare(&["env", "--gpu", "soft"]);
        let output = env.args(flags).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert_eq!(output.stdout, b"false\n", "{output:?}");
        let refused = format!("{}={:?} is refused", flags[0], flags[1]);
        assert!(told.contains(&refused), "{told}");
        assert!(told.contains("gpushare run"), "{told}");
    }
}

#[test]
fn a_machines_daemon_that_is_passed_by_is_named() {
    let test = "a_machines_daemon_that_is_passed_by_is_named";
    let Some(mut machine) = Machine::bare(test) else {
        return;
    };
    let told = |machine: &Machine| {
        let output = machine.run(ROOT, &["env", "--mem-limit", "1GiB"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(told(&machine), "");
    machine.start_daemon(&[]);
    let told = told(&machine);
    assert!(
        told.contains("this machine's daemon will not know"),
        "{told}"
    );
}
