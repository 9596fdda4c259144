//! A daemon that is in a container itself, under runc: with the namespaces that it needs it does
//! its work, and without them containers are refused with what to do.

use std::process::Command;

use gpushare_tests::container::{Bundle, Lab, Runtime};
use gpushare_tests::machine::ROOT;
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{GIB, until};

const TWO: [(&str, &str); 2] = [("mem-limit", "2GiB"), ("devices", "0")];

fn lab() -> Option<Lab> {
    let test = std::thread::current();
    let test = test.name().unwrap_or("containers_daemon");
    if Command::new("runc").arg("--version").output().is_err() {
        not_runnable_here(test, "runc is not installed");
        return None;
    }
    Lab::start(test, "")
}

fn bundle(id: &str) -> Bundle {
    Bundle::new(id, Runtime::Runc, &TWO)
}

#[test]
#[ignore = "long tier: needs runc"]
fn a_daemon_in_a_pid_namespace_of_its_own_refuses_containers() {
    let Some(mut lab) = lab() else { return };
    let own = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    lab.restart_daemon_by(&own);
    let ended = lab.ends(&bundle("one"));
    assert!(!ended.status.success(), "{ended:?}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
    for word in ["gpushare: ", "hostPID: true", "--pid=host"] {
        assert!(ended.stderr.contains(word), "{word} in {ended:?}");
    }
    // Commands are told so too.
    let ps = lab.machine().run(ROOT, &["ps"]);
    let told = String::from_utf8_lossy(&ps.stderr).into_owned();
    assert!(
        !ps.status.success() && told.contains("--pid=host"),
        "{told}"
    );
}

#[test]
#[ignore = "long tier: needs runc"]
fn a_daemon_in_a_cgroup_of_its_own_in_the_hosts_namespaces_serves() {
    let Some(mut lab) = lab() else { return };
    // As in a container with the host's pid and cgroup namespaces: a mount namespace and a cgroup
    // of its own.
    let group = lab.group("daemon").display().to_string();
    lab.sh(&format!("mkdir -p {group}"));
    let enter = format!("echo $$ >{group}/cgroup.procs && exec unshare --ipc --uts \"$@\"");
    lab.restart_daemon_by(&["sh", "-c", &enter, "sh"]);
    let mut guest = lab.run(&bundle("one")).started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
    guest.finish().silently();
    until("it ends", || lab.row("one").is_none());
}

#[test]
#[ignore = "long tier: needs runc"]
fn a_daemon_in_a_cgroup_namespace_of_its_own_knows_containers_of_hooks() {
    let Some(mut lab) = lab() else { return };
    let group = lab.group("daemon").display().to_string();
    lab.sh(&format!("mkdir -p {group}"));
    let enter = format!("echo $$ >{group}/cgroup.procs && exec unshare --cgroup \"$@\"");
    lab.restart_daemon_by(&["sh", "-c", &enter, "sh"]);
    let mut guest = lab.run(&bundle("one")).started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
    guest.finish().silently();
}
