//! Programs in separate pid namespaces, as container engines make them: their pids are not the
//! daemon's, and two of them may have the same pid.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use gpushare_tests::gpu::links;
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{Daemon, GIB, Gpu, Guest, Tenant, artefacts, clients, guest, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const OUT_OF_MEMORY: &str = "2";
/// A pid namespace with its own `/proc`; its first process dies with `unshare`.
const NESTED: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];

/// Whether this user may make pid namespaces here. A test that cannot run is noted.
fn possible() -> bool {
    let output = Command::new("unshare").args(NESTED).arg("true").output();
    let possible = output.as_ref().is_ok_and(|output| output.status.success());
    if !possible {
        let test = std::thread::current();
        let test = test.name().unwrap_or("pid namespaces");
        not_runnable_here(test, "no pid namespace can be made");
    }
    possible
}

/// The same command, in a new pid namespace.
fn nested(command: &Command) -> Command {
    wrapped(command, "unshare", &NESTED)
}

/// The same command, in the pid namespace of a process.
fn beside(command: &Command, pid: u32) -> Command {
    wrapped(
        command,
        "nsenter",
        &["--pid", "--mount", "--target", &pid.to_string()],
    )
}

fn wrapped(command: &Command, by: &str, flags: &[&str]) -> Command {
    let mut outer = Command::new(by);
    outer.args(flags).arg(command.get_program());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Leaves an orphan that a real-time signal ends, and ends with status 7 once that is gone.
const ORPHAN_OF_A_SIGNAL: &str = "
import os, sys
gone, orphaned = os.pipe(), os.pipe()
middle = os.fork()
if not middle:
    orphan = os.fork()
    if orphan:
        os.write(gone[1], orphan.to_bytes(4, 'little'))
        os._exit(0)
    os.read(orphaned[0], 1)
    os.kill(os.getpid(), 34)
os.waitpid(middle, 0)
os.close(gone[1])
orphan = int.from_bytes(os.read(gone[0], 4), 'little')
os.write(orphaned[1], b'x')
os.read(gone[0], 1)
while os.path.exists(f'/proc/{orphan}'):
    os.sched_yield()
sys.exit(7)
";

#[test]
fn an_orphan_that_a_real_time_signal_ends_does_not_end_run() {
    if !possible() {
        return;
    }
    let gpu = Gpu::new("");
    let run = guest::command(&gpu, &[]);
    let mut nested = nested(&run);
    nested.args(run.get_args());
    nested.args(["python3", "-c", ORPHAN_OF_A_SIGNAL]);
    let ended = Guest::start(nested).finish();
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
}

/// A quota client that has started CUDA.
pub(crate) fn started(command: Command) -> Guest {
    Guest::start(command).started()
}

/// The pid, here, of the program that `unshare` or `nsenter` started.
fn inner(guest: &Guest) -> u32 {
    let id = guest.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = children.expect("it runs");
    children.trim().parse().expect("one child")
}

fn end(pid: u32) {
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("it is there");
}

fn quota(tenant: &Tenant) -> Command {
    tenant.command(&clients::compile("quota", &[]))
}

#[test]
fn the_daemon_knows_a_program_by_the_pid_it_has_here_and_measures_it() {
    if !possible() {
        return;
    }
    let gpu = Gpu::new("mem=16GiB,ctx=96MiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let mut guest = started(nested(&quota(&tenant)));
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    let pid = inner(&guest);
    let row = daemon.until("one", |row| row.processes[0].overhead > 0);
    assert_eq!(row.processes[0].pid, pid);
    // The context's cost is known for this process, although NVML lists it under another pid.
    let row = daemon.until("one", |row| row.overhead < 512 << 20);
    assert_eq!(row.overhead, 96 << 20);
    end(pid);
    daemon.until("one", |row| row.processes.is_empty() && row.limbo == 0);
    let mut other = started(nested(&quota(&tenant)));
    assert_eq!(other.ask(&format!("alloc {}", 4 * GIB)), "alloc 0");
}

#[test]
fn two_programs_of_the_same_pid_in_two_namespaces_are_two() {
    if !possible() {
        return;
    }
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let [a, b] = ["a", "b"].map(|name| daemon.tenant(name, &[("GPUSHARE_MEM_LIMIT", "4GiB")]));
    let [mut first, mut second] = [&a, &b].map(|tenant| started(nested(&quota(tenant))));
    assert_eq!(first.ask(&format!("alloc {}", 3 * GIB)), "alloc 0");
    assert_eq!(second.ask(&format!("alloc {}", 2 * GIB)), "alloc 0");
    for (name, guest, charged) in [("a", &first, 3 * GIB), ("b", &second, 2 * GIB)] {
        let row = daemon.row(name);
        assert_eq!((row.charged, row.processes[0].pid), (charged, inner(guest)));
    }
    end(inner(&first));
    daemon.until("a", |row| row.processes.is_empty());
    let row = daemon.row("b");
    assert_eq!((row.charged, row.processes.len()), (2 * GIB, 1));
    assert_eq!(
        second.ask(&format!("alloc {}", 3 * GIB)),
        format!("alloc {OUT_OF_MEMORY}")
    );
    assert_eq!(second.ask("check"), "check 1");
}

#[test]
fn a_program_in_a_namespace_is_none_of_the_unmanaged() {
    if !possible() {
        return;
    }
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let mut managed = started(nested(&quota(&tenant)));
    assert_eq!(managed.ask(&format!("alloc {GIB}")), "alloc 0");
    let plain = guest::plain(&gpu, &clients::compile("quota", &[]));
    let mut bypass = started(nested(&plain));
    assert_eq!(bypass.ask(&format!("alloc {}", 2 * GIB)), "alloc 0");
    let mut events = daemon.commands().follow(1024);
    let told = events.find(|event| event.kind == "unmanaged").unwrap();
    let pid = format!("process {} ", inner(&bypass));
    assert!(told.text.contains(&pid), "{}", told.text);
}

/// A quota client under a plain preload, without a daemon, in the tenant `one` of this runtime
/// folder.
pub(crate) fn alone(gpu: &Gpu, runtime: &Path) -> Command {
    let mut command = guest::clean(&clients::compile("quota", &[]));
    command
        .env("LD_PRELOAD", artefacts::interposer())
        .env("LD_LIBRARY_PATH", links())
        .env("SOFTGPU", gpu.spec())
        .env("XDG_RUNTIME_DIR", runtime)
        .env("GPUSHARE_TENANT", "one")
        .env("GPUSHARE_MEM_LIMIT", "4GiB");
    command
}

/// A folder with an NVML that lists the machine's pids to every process, as some drivers do.
pub(crate) fn machines_nvml() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = artefacts::repository().join("tests/clients/stub_nvml.c");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC"])
        .arg("-Wl,-soname,libnvidia-ml.so.1")
        .arg("-o")
        .arg(folder.path().join("libnvidia-ml.so.1"))
        .arg(source);
    assert!(cc.status().expect("cc is installed").success());
    folder
}

/// The output of a monitor in the pid namespace of `beside` that looks for `wanted`, where NVML
/// lists these processes.
fn monitored(
    command: Command,
    nvml: &Path,
    beside_pid: u32,
    listed: &[u32],
    wanted: u32,
) -> String {
    let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
    let mut command = beside(&command, beside_pid);
    command
        .arg(wanted.to_string())
        .env("LD_LIBRARY_PATH", nvml)
        .env("STUB_PIDS", listed.join(" "));
    Guest::start(command).finish().silently()
}

/// The innermost pid of a process: its pid in its own namespace.
fn own_pid(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("NSpid:"));
    let last = line.and_then(|line| line.split_ascii_whitespace().next_back());
    last.and_then(|pid| pid.parse().ok()).expect("a pid")
}

pub(crate) fn uuid(bytes: [u8; 16]) -> String {
    gpushare_protocol::uuid::Uuid(bytes).to_string()
}

#[test]
fn a_monitor_in_a_namespace_sees_its_tenants_processes_by_its_own_pids() {
    if !possible() {
        return;
    }
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let [one, other] =
        ["one", "other"].map(|name| daemon.tenant(name, &[("GPUSHARE_MEM_LIMIT", "4GiB")]));
    let first = started(nested(&quota(&one)));
    let second = started(beside(&quota(&one), inner(&first)));
    let stranger = started(nested(&quota(&other)));
    let machine = [&first, &second, &stranger].map(inner);
    let nvml = machines_nvml();
    let uuid = uuid(daemon.devices()[0]);
    let seen = |wanted: u32| {
        let mut monitor = one.command(&clients::compile("monitor", &[]));
        monitor.env("STUB_UUID", &uuid);
        monitored(monitor, nvml.path(), machine[0], &machine, wanted)
    };
    for pid in [machine[0], machine[1]] {
        let text = seen(own_pid(pid));
        assert!(text.contains("processes: 0, 2\n"), "{text}");
        assert!(text.ends_with("listed: 15\n"), "all lists: {text}");
        let text = seen(pid);
        assert!(text.ends_with("listed: 0\n"), "not the machine's: {text}");
    }
    let text = seen(machine[2]);
    assert!(text.ends_with("listed: 0\n"), "no other process: {text}");
    for guest in [second, stranger] {
        guest.finish().silently();
    }
}

#[test]
fn without_a_daemon_a_monitor_does_so_if_proc_shows_the_machine() {
    if !possible() {
        return;
    }
    let gpu = Gpu::new("mem=16GiB");
    let folder = runtime();
    let guest = started(wrapped(
        &alone(&gpu, folder.path()),
        "unshare",
        &["--pid", "--fork", "--kill-child"],
    ));
    let machine = inner(&guest);
    let nvml = machines_nvml();
    let mut monitor = alone(&gpu, folder.path());
    monitor.env("STUB_UUID", uuid(gpu.truth().uuid_bytes));
    let own = own_pid(machine);
    let seen = |program: &str| {
        let mut command = Command::new(clients::compile(program, &[]));
        for (name, value) in monitor.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        monitored(command, nvml.path(), machine, &[machine, 1], own)
    };
    let text = seen("monitor");
    assert!(text.ends_with("listed: 15\n"), "{text}");
    // NVML is asked for an account by the machine's pid.
    let text = seen("told");
    let account = format!("accounts 7 1 0 1 1\naccount 0 {machine} 0 {own} {machine}\n");
    assert!(text.contains(&account), "{text}");
    guest.finish().silently();
}

#[test]
fn a_list_of_an_unknown_version_is_refused_in_a_tenant_only() {
    let gpu = Gpu::new("mem=16GiB");
    let folder = runtime();
    let guest = started(alone(&gpu, folder.path()));
    let (nvml, uuid) = (machines_nvml(), uuid(gpu.truth().uuid_bytes));
    let program = clients::compile("monitor", &[]);
    let seen = |mut monitor: Command| {
        monitor
            .env("LD_LIBRARY_PATH", nvml.path())
            .env("STUB_UUID", &uuid)
            .env("STUB_PIDS", "1 2 3");
        Guest::start(monitor).finish().silently()
    };
    let mut own = guest::clean(&program);
    for (name, value) in alone(&gpu, folder.path()).get_envs() {
        own.env(name, value.unwrap_or_default());
    }
    let text = seen(own);
    assert!(text.contains("details: 0, 0\n"), "{text}");
    assert!(text.contains("newer details: 25, 64\n"), "{text}");
    let text = seen(guest::clean(&program));
    assert!(text.contains("newer details: 0, 3\n"), "{text}");
    guest.finish().silently();
}

pub(crate) fn runtime() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let private = fs::Permissions::from_mode(0o700);
    tempfile::Builder::new()
        .permissions(private)
        .tempdir()
        .expect("a temporary folder")
}

/// Waits until the process is gone from here, and its locks with it.
fn until_gone(pid: u32) {
    let here = format!("/proc/{pid}");
    until(&format!("{here} goes"), || !Path::new(&here).exists());
}

#[test]
fn without_a_daemon_dead_processes_count_until_memory_returns() {
    if !possible() {
        return;
    }
    // Not enough room for both: the driver refuses memory that is granted before the dead
    // processes' memory has returned.
    let gpu = Gpu::new("mem=5GiB,ctx=2MiB");
    let folder = runtime();
    let mut first = started(nested(&alone(&gpu, folder.path())));
    let holder = started(beside(&alone(&gpu, folder.path()), inner(&first)));
    let mut victim = started(beside(&alone(&gpu, folder.path()), inner(&first)));
    assert_eq!(victim.ask(&format!("alloc {}", 3 * GIB)), "alloc 0");
    assert_eq!(
        first.ask(&format!("alloc {}", 2 * GIB)),
        format!("alloc {OUT_OF_MEMORY}")
    );
    let pid = inner(&victim);
    end(pid);
    until_gone(pid);
    assert_eq!(first.ask(&format!("alloc {}", 4 * GIB)), "alloc 0");
    assert_eq!(first.ask("check"), "check 1");
    holder.finish().silently();
}

#[test]
fn without_a_daemon_two_namespaces_share_a_limit_and_all_live() {
    if !possible() {
        return;
    }
    let gpu = Gpu::new("mem=16GiB");
    let folder = runtime();
    let [mut first, mut second] = [(); 2].map(|()| started(nested(&alone(&gpu, folder.path()))));
    assert_eq!(first.ask(&format!("alloc {}", 3 * GIB)), "alloc 0");
    assert_eq!(
        second.ask(&format!("alloc {}", 2 * GIB)),
        format!("alloc {OUT_OF_MEMORY}")
    );
    let pid = inner(&first);
    end(pid);
    until_gone(pid);
    assert_eq!(second.ask(&format!("alloc {}", 4 * GIB)), "alloc 0");
}

#[test]
fn a_daemon_that_does_not_see_the_program_says_so_and_what_to_do() {
    if !possible() {
        return;
    }
    let gpu = Gpu::new("mem=16GiB");
    let folder = runtime();
    let mut daemon = guest::clean(&artefacts::gpushared());
    daemon
        .env("LD_LIBRARY_PATH", links())
        .env("SOFTGPU", gpu.spec());
    let mut daemon = nested(&daemon);
    daemon.arg("--runtime-dir").arg(folder.path());
    let registered = folder.path().join("registered");
    fs::create_dir(&registered).unwrap();
    // As left by an earlier daemon: commands from here cannot reach this one either.
    let one = r#"{"name":"one","environment":[["GPUSHARE_MEM_LIMIT","1GiB"]],"devices":[]}"#;
    fs::write(registered.join("one.json"), one).unwrap();
    let mut daemon = daemon.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
    let served = lines
        .map_while(Result::ok)
        .any(|line| line.contains("serving"));
    assert!(served, "it ended before it served");
    let mut guest = alone(&gpu, folder.path());
    guest.env("GPUSHARE_SOCKET", folder.path().join("sockets/one"));
    let mut guest = Guest::start(guest);
    assert_ne!(guest.ask("init"), "init 0");
    let said = guest.finish().stderr;
    assert!(said.contains("hostPID"), "{said}");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

#[test]
fn unnamed_programs_of_two_namespaces_found_a_tenant_each() {
    if !possible() {
        return;
    }
    let (gpu, folder) = (Gpu::new(""), tempfile::tempdir().expect("a folder"));
    // Another folder is passed over.
    let own = fs::Permissions::from_mode(0o700);
    fs::set_permissions(folder.path(), own).expect("it is ours");
    let mut command = guest::plain(&gpu, &clients::compile("quota", &[]));
    command
        .env("LD_PRELOAD", artefacts::interposer())
        .env("XDG_RUNTIME_DIR", folder.path())
        .env("GPUSHARE_MEM_LIMIT", "64MiB");
    let _guests = [(); 2].map(|()| Guest::start(nested(&command)).started());
    let tenants = fs::read_dir(folder.path().join("gpushare/c")).expect("their folder");
    let names = tenants.map(|entry| entry.expect("it stays").file_name());
    let names: Vec<_> = names
        .map(|name| name.into_string().expect("text"))
        .collect();
    let namespace = |name: &String| Some(name.splitn(3, '-').nth(2)?.to_owned());
    let namespaces: Vec<_> = names.iter().map(namespace).collect();
    assert!(
        matches!(&namespaces[..], [Some(one), Some(other)] if one != other),
        "{names:?}"
    );
}
