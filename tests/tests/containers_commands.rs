//! The command line in a container that gpushare was injected into: its program stays in the
//! container's tenant, and commands to the daemon say where they are taken.

use gpushare_tests::container::{Bundle, Lab, Runtime};
use gpushare_tests::machine::ROOT;
use gpushare_tests::{GIB, artefacts, clients, until};
use serde_json::{Value, json};

/// Two GiB of the only device.
const TWO: [(&str, &str); 2] = [("mem-limit", "2GiB"), ("devices", "0")];

fn lab() -> Option<Lab> {
    let test = std::thread::current();
    Lab::start(test.name().unwrap_or("containers_commands"), "")
}

/// A container whose program is `gpushare` with these arguments.
fn gpushare(id: &str, arguments: &[&str]) -> Bundle {
    let program = artefacts::gpushare().display().to_string();
    let words = [&[program.as_str()], arguments].concat();
    Bundle {
        program: words.iter().map(ToString::to_string).collect(),
        ..Bundle::new(id, Runtime::ByHand, &TWO)
    }
}

#[test]
fn a_run_in_a_container_stays_in_its_tenant() {
    let Some(lab) = lab() else { return };
    let quota = clients::compile("quota", &[]).display().to_string();
    lab.ends(&gpushare("true", &["run", "--", "true"]))
        .silently();
    let mut guest = lab.run(&gpushare("one", &["run", "--", &quota])).started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), "alloc 2");
    // One copy of the library: charged once.
    let row = lab.row("one").expect("it is a tenant");
    assert_eq!(row["charged"], GIB);
    assert_eq!(row["processes"].as_array().map(Vec::len), Some(1));
    guest.finish().silently();
}

#[test]
fn a_run_in_a_container_lowers_its_own_limit_only() {
    let Some(lab) = lab() else { return };
    let quota = clients::compile("quota", &[]).display().to_string();
    for (id, limit, seen) in [("low", "1GiB", GIB), ("high", "9GiB", 2 * GIB)] {
        let run = gpushare(id, &["run", "--mem-limit", limit, "--", &quota]);
        let mut guest = lab.run(&run).started();
        assert_eq!(guest.ask("total"), format!("total {seen} 0"), "{id}");
        guest.finish().silently();
    }
    for (id, flags) in [
        ("other", &["--name", "another"][..]),
        ("off", &["--daemon", "off"]),
        ("terms", &["--run-limit", "1h"]),
        ("cap", &["--sm-limit", "10"]),
    ] {
        let words = [&["run"], flags, &["--", "true"]].concat();
        let ended = lab.ends(&gpushare(id, &words));
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        for word in [flags[0], "the tenant of a container", "on the host"] {
            assert!(ended.stderr.contains(word), "{word}: {ended:?}");
        }
    }
}

#[test]
fn a_run_in_a_container_takes_the_variables_of_its_registration() {
    let Some(lab) = lab() else { return };
    let mut bundle = gpushare("one", &["run", "--", "true"]);
    bundle.environment = vec![
        "GPUSHARE_SM_LIMIT=30".to_owned(),
        "GPUSHARE_PRIORITY=400".to_owned(),
    ];
    let ended = lab.ends(&bundle);
    assert!(ended.status.success(), "{ended:?}");
    ended.silently();
}

#[test]
fn commands_in_a_container_say_that_the_daemon_is_on_the_host() {
    let Some(lab) = lab() else { return };
    let ended = lab.ends(&gpushare("ps", &["ps"]));
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert!(ended.stderr.contains("on its host"), "{ended:?}");
    assert!(!ended.stderr.contains("systemctl"), "{ended:?}");
    // On the host they work.
    assert!(lab.machine().run(ROOT, &["ps"]).status.success());

    let ended = lab.ends(&gpushare("doctor", &["doctor", "--json"]));
    let report: Value =
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let check = |name: &str| {
        let mut checks = report["checks"].as_array().expect("a list").iter();
        checks
            .find(|check| check["check"] == name)
            .expect("a check")
    };
    for name in ["daemon", "limit-holds", "pid-namespace", "preloads"] {
        assert_eq!(check(name)["verdict"], "ok", "{}", check(name));
    }
    let found = check("daemon")["found"].to_string();
    assert!(found.contains("on its host"), "{found}");
}

/// The container of a pod, as containerd's plug-in for Kubernetes writes it.
fn of_pod(id: &str, pod: &str, limit: &str) -> Bundle {
    let mut bundle = Bundle::new(id, Runtime::ByHand, &[("mem-limit", limit)]);
    let cri = |name: &str| format!("io.kubernetes.cri.{name}");
    bundle.annotations.extend([
        (cri("sandbox-namespace"), "team".to_owned()),
        (cri("sandbox-name"), pod.to_owned()),
        (cri("container-name"), "main".to_owned()),
    ]);
    bundle
}

#[test]
fn a_pods_tenant_is_found_and_changed_by_its_pod_or_its_ids_beginning() {
    let Some(lab) = lab() else { return };
    let id = "3f9c0d5512e1".repeat(5);
    let other = format!("{}77", &id[..20]);
    let mut guest = lab.run(&of_pod(&id, "web-0", "2GiB")).started();
    let beside = lab.run(&of_pod(&other, "web-1", "2GiB")).started();
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    let row = lab.row(&id).expect("it is a tenant");
    let pod = json!({"namespace": "team", "name": "web-0", "container": "main"});
    assert_eq!(row["pod"], pod);
    let run = |arguments: &[&str]| lab.machine().run(ROOT, arguments);
    let text = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let shown = text(&["ps"]);
    assert!(shown.contains("pod team/web-0 (main)"), "{shown}");
    for (name, limit) in [("team/web-0", 3), (&id[..24], 4)] {
        text(&["set", name, "--mem-limit", &format!("{limit}GiB")]);
        assert_eq!(lab.row(&id).expect("it runs")["limit"], limit * GIB);
    }
    // Short for both, and for none: nothing is changed.
    for name in [&id[..12], "team/web", "other/web-0"] {
        let output = run(&["set", name, "--mem-limit", "1GiB"]);
        assert_eq!(output.status.code(), Some(1), "{name}: {output:?}");
    }
    assert_eq!(lab.row(&id).expect("it runs")["limit"], 4 * GIB);
    // A limit below what is charged.
    text(&["set", "team/web-0", "--mem-limit", "512MiB"]);
    let shown = text(&["ps"]);
    assert!(shown.contains("over its limit by 512 MiB"), "{shown}");
    guest.finish().silently();
    beside.finish().silently();
    until("it is gone", || lab.row(&id).is_none());
    let told = text(&["why", "team/web-0", "--json"]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(
        (&told["tenant"], &told["state"]),
        (&json!(id), &json!("gone"))
    );
}
