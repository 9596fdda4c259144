//! The machine's own daemon, as root at `/run/gpushare`, and real programs of other users. `/run`
//! is the test's own: an empty one in a mount namespace.

use gpushare_tests::machine::{ALICE, BOB, Machine, ROOT};
use gpushare_tests::{GIB, Guest, clients};

#[test]
fn a_users_program_runs_under_the_machines_daemon_within_its_limit() {
    let test = "a_users_program_runs_under_the_machines_daemon_within_its_limit";
    let Some(machine) = Machine::start(test) else {
        return;
    };
    let mut guest = machine
        .guest(ALICE, &["--name", "mine", "--mem-limit", "2GiB"])
        .started();
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), "alloc 2");
    for user in [ALICE, BOB, ROOT] {
        let row = machine.row(user, "mine").expect("everybody sees it");
        assert_eq!(
            (&row["limit"], &row["charged"]),
            (&(2 * GIB).into(), &GIB.into()),
            "as {user} sees it"
        );
    }
    let set = machine.run(ALICE, &["set", "mine", "--mem-limit", "3GiB"]);
    assert!(set.status.success(), "{set:?}");
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), "alloc 0");
    guest.finish().silently();
    assert!(machine.row(ALICE, "mine").is_none());
}

#[test]
fn another_user_neither_joins_nor_changes_nor_reaches_it_and_root_does() {
    let test = "another_user_neither_joins_nor_changes_nor_reaches_it_and_root_does";
    let Some(machine) = Machine::start(test) else {
        return;
    };
    let mut guest = machine
        .guest(ALICE, &["--name", "mine", "--mem-limit", "2GiB"])
        .started();

    let set = machine.run(BOB, &["set", "mine", "--mem-limit", "4GiB"]);
    let told = String::from_utf8_lossy(&set.stderr).into_owned();
    assert!(!set.status.success(), "{told}");
    assert!(told.contains("tenant mine is not yours"), "{told}");
    assert!(!told.contains("--name"), "it has none: {told}");

    let ended = machine
        .guest(BOB, &["--name", "mine", "--mem-limit", "2GiB"])
        .finish();
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    for words in ["tenant mine is not yours", "take another name"] {
        assert!(ended.stderr.contains(words), "{ended:?}");
    }

    let mut intruder = machine.into_it(BOB, "mine");
    let answer = intruder.ask("init");
    assert_ne!(answer, "init 0", "it has no CUDA");
    let row = machine.row(ALICE, "mine").expect("it runs");
    assert_eq!(row["processes"].as_array().map(Vec::len), Some(1), "{row}");
    drop(intruder);

    assert_eq!(
        machine.into_it(ALICE, "mine").ask("init"),
        "init 0",
        "its owner does"
    );
    let set = machine.run(ROOT, &["set", "mine", "--mem-limit", "4GiB"]);
    assert!(set.status.success(), "{set:?}");
    assert_eq!(guest.ask(&format!("alloc {}", 3 * GIB)), "alloc 0");
    guest.finish().silently();
}

#[test]
fn no_environment_of_a_user_gets_more_than_the_daemon_registered() {
    let test = "no_environment_of_a_user_gets_more_than_the_daemon_registered";
    let Some(machine) = Machine::start(test) else {
        return;
    };
    let mut command = machine.gpushare(
        ALICE,
        &[
            "run",
            "--daemon",
            "on",
            "--name",
            "mine",
            "--mem-limit",
            "2GiB",
            "--",
        ],
    );
    command
        .args([
            "env",
            "GPUSHARE_MEM_LIMIT=8GiB",
            "CUDA_DEVICE_MEMORY_LIMIT=8g",
        ])
        .args(["GPUSHARE_DISABLE=1"])
        .arg(clients::compile("quota", &[]));
    let mut guest = Guest::start(command);
    let started = guest.ask("init");
    let got = guest.ask(&format!("alloc {}", 3 * GIB));
    assert_eq!((started.as_str(), got.as_str()), ("init 0", "alloc 2"));
    drop(guest);
    let high = machine.guest(ALICE, &["--priority", "501"]).finish();
    assert_eq!(high.status.code(), Some(125), "{high:?}");
    let told = "gpushare: --priority=501: above 500 is for root to give";
    assert!(high.stderr.contains(told), "{high:?}");
}

#[test]
fn a_user_commands_its_own_tenant_beside_roots_of_that_name() {
    let test = "a_user_commands_its_own_tenant_beside_roots_of_that_name";
    let Some(machine) = Machine::start(test) else {
        return;
    };
    let limits = ["--name", "web", "--mem-limit", "2GiB"];
    let roots = machine.guest(ROOT, &limits).started();
    let gpu = ["--gpu", "soft:name=mine"];
    let own = machine.guest(BOB, &[&gpu[..], &limits].concat());
    let own = own.started();
    let limits = |user| -> Vec<_> {
        let output = machine.run(user, &["ps", "--json"]);
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("a list");
        rows.into_iter().map(|row| row["limit"].clone()).collect()
    };
    let set = |user, limit| machine.run(user, &["set", "web", "--mem-limit", limit]);
    let output = set(BOB, "1GiB");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(limits(BOB), [2 * GIB, GIB], "root's, then its own");
    let output = set(ROOT, "3GiB");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(limits(BOB), [3 * GIB, GIB]);
    own.finish().silently();
    let output = set(BOB, "1GiB");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("web is not yours but root's"), "{output:?}");
    roots.finish().silently();
}

/// An administrator may have closed the folder to some.
#[test]
fn a_user_without_access_to_the_machines_daemon_has_its_own_shown() {
    let test = "a_user_without_access_to_the_machines_daemon_has_its_own_shown";
    let Some(machine) = Machine::start(test) else {
        return;
    };
    machine.sh(ROOT, "chmod 0700 /run/gpushare");
    let gpu = ["--gpu", "soft:name=closed", "--name", "try"];
    let own = machine.guest(ALICE, &gpu).started();
    let commands: [&[&str]; 2] = [&["top", "--once"], &["metrics"]];
    for command in commands {
        let output = machine.run(ALICE, command);
        let [shown, told] = [&output.stdout, &output.stderr].map(|text| {
            let text = String::from_utf8_lossy(text);
            text.into_owned()
        });
        assert!(output.status.success(), "{command:?}: {output:?}");
        assert!(shown.contains("try"), "{command:?}: {output:?}");
        assert!(
            told.contains("/run/gpushare is not to be used"),
            "{command:?}: {told}"
        );
        // There is none that speaks for it.
        let output = machine.run(BOB, command);
        assert_eq!(output.status.code(), Some(3), "{command:?}: {output:?}");
    }
    own.finish().silently();
}
