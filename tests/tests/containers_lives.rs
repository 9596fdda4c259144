//! The life of containers under a real runtime, runc: restarts of the daemon, failures, programs
//! that cannot be enforced, programs that are added, and containers that ask for nothing.
//!
//! Lengths of time are printed and not asserted.

use std::time::Instant;

use gpushare_tests::container::{Bundle, Door, Lab, Runtime};
use gpushare_tests::machine::ROOT;
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{GIB, Guest, artefacts, clients, until};
use nix::sys::signal::Signal;
use std::process::Command;

const TWO: [(&str, &str); 2] = [("mem-limit", "2GiB"), ("devices", "0")];
const CLASS: &str = "[containers]\ncdi = \"/run/cdi/gpushare.json\"\nlibrary = \"/var/lib/lab/library\"\n\
    [classes.two]\ndevices = [\"0\"]\n[classes.two.limits]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n";

fn lab(config: &str) -> Option<Lab> {
    let test = std::thread::current();
    let test = test.name().unwrap_or("containers_lives");
    if Command::new("runc").arg("--version").output().is_err() {
        not_runnable_here(test, "runc is not installed");
        return None;
    }
    Lab::start(test, config)
}

fn bundle(id: &str) -> Bundle {
    Bundle::new(id, Runtime::Runc, &TWO)
}

fn said(id: &str, line: &str) -> Bundle {
    Bundle {
        program: ["sh", "-c", line].map(str::to_owned).to_vec(),
        ..bundle(id)
    }
}

/// As an engine applies a class.
fn of_class(id: &str, bundle: Bundle) -> Bundle {
    Bundle {
        id: id.repeat(32),
        door: Door::Cdi("two"),
        annotations: vec![],
        ..bundle
    }
}

/// Waits for `done` and prints how long that took.
#[track_caller]
fn timed(what: &str, done: impl FnMut() -> bool) {
    let began = Instant::now();
    until(what, done);
    eprintln!("time: {what}: {} ms", began.elapsed().as_millis());
}

fn nothing_is_left(lab: &Lab, id: &str) -> bool {
    let left = lab.sh("ls /run/gpushare/sockets /run/gpushare/registered");
    lab.row(id).is_none() && !left.lines().any(|line| line.starts_with(id))
}

#[test]
#[ignore = "long tier: needs runc"]
fn an_idle_container_outlives_two_daemons_and_then_has_its_limit() {
    let Some(mut lab) = lab("") else { return };
    let quota = clients::compile("quota", &[]);
    let line = format!("echo idle; read go; exec {}", quota.display());
    let mut guest = lab.run(&said("one", &line));
    assert_eq!(guest.line(), "idle");
    for _ in 0..2 {
        lab.restart_daemon();
        timed("an idle container is known to the next daemon", || {
            lab.row("one").is_some()
        });
    }
    guest.send("go");
    let mut guest = guest.started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    lab.restart_daemon();
    timed("a running container is back after a restart", || {
        lab.row("one").is_some_and(|row| row["charged"] == GIB)
    });
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), "alloc 2");
    guest.finish().silently();
    timed("nothing is left of a container that ended", || {
        nothing_is_left(&lab, "one")
    });
}

#[test]
#[ignore = "long tier: needs runc"]
fn nothing_is_left_of_a_create_that_failed() {
    let Some(lab) = lab("") else { return };
    for (what, hook) in [
        ("a later hook that failed", &["/bin/false"][..]),
        ("a later hook that hung", &["/bin/sleep", "100"]),
    ] {
        let bundle = Bundle {
            later_hook: hook.iter().map(ToString::to_string).collect(),
            ..bundle("one")
        };
        let ended = lab.ends(&bundle);
        assert!(!ended.status.success(), "{what}: {ended:?}");
        assert!(ended.stdout.is_empty(), "{what}: {ended:?}");
        let journal = lab.machine().run(ROOT, &["events", "--json"]);
        let journal = String::from_utf8_lossy(&journal.stdout).into_owned();
        assert!(journal.contains("one"), "it was registered: {journal}");
        timed(&format!("nothing is left of {what}"), || {
            nothing_is_left(&lab, "one")
        });
    }
}

#[test]
#[ignore = "long tier: needs runc"]
fn a_second_hook_of_ours_is_refused_with_what_to_do() {
    let Some(lab) = lab("") else { return };
    let hook = artefacts::folder().join("gpushare-oci-hook");
    let mut bundle = bundle("one");
    bundle.later_hook = vec![hook.to_string_lossy().into_owned()];
    let rest = ["--library", "/var/lib/lab/library", "createRuntime"];
    bundle.later_hook.extend(rest.map(str::to_owned));
    let ended = lab.ends(&bundle);
    assert!(
        !ended.status.success() && ended.stdout.is_empty(),
        "{ended:?}"
    );
    assert!(ended.stderr.contains("its hook runs twice"), "{ended:?}");
    timed("nothing is left of it", || nothing_is_left(&lab, "one"));
}

#[test]
#[ignore = "long tier: needs runc"]
fn nothing_is_left_of_a_create_whose_daemon_hung() {
    let Some(lab) = lab("") else { return };
    let before = lab.run(&bundle("before")).started();
    lab.signal_daemon(Signal::SIGSTOP);
    let began = Instant::now();
    let ended = lab.ends(&bundle("one"));
    eprintln!(
        "time: a create gives up a daemon that hangs: {} ms",
        began.elapsed().as_millis()
    );
    lab.signal_daemon(Signal::SIGCONT);
    assert!(!ended.status.success() && ended.stdout.is_empty());
    assert!(ended.stderr.contains("is gpushared running?"), "{ended:?}");
    timed("nothing is left of a create whose daemon hung", || {
        nothing_is_left(&lab, "one")
    });
    assert!(lab.row("before").is_some(), "others stay");
    before.finish().silently();
    // The same id is free again.
    lab.run(&bundle("one")).started().finish().silently();
}

#[test]
#[ignore = "long tier: needs runc"]
fn nothing_is_left_of_a_killed_container_without_poststop() {
    let Some(lab) = lab("") else { return };
    let mut guest = lab.run(&bundle("one")).started();
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    let row = lab.row("one").expect("it runs");
    let pid = row["processes"][0]["pid"].as_u64().expect("a pid");
    // The runtime first, so that nobody deletes the container.
    guest.kill();
    lab.sh(&format!("kill -KILL {pid} 2>/dev/null || true"));
    timed("nothing is left of a killed container", || {
        nothing_is_left(&lab, "one")
    });
    assert!(
        lab.sh("ls /var/lib/lab/state").contains("one"),
        "its runtime has not deleted it"
    );
}

/// A program that says hello, linked against musl, and one that is static.
fn foreign() -> [(&'static str, String); 2] {
    let source = artefacts::repository().join("tests/clients/hello.c");
    let musl = artefacts::cache().join("hello-musl");
    let mut command = Command::new("musl-gcc");
    let made = command.arg("-o").arg(&musl).arg(source).status();
    let made = made.is_ok_and(|status| status.success());
    let mut all = [
        ("musl", musl.display().to_string()),
        (
            "static",
            clients::compile("hello", &["-static"])
                .display()
                .to_string(),
        ),
    ];
    if !made {
        not_runnable_here("containers_lives::musl", "musl-gcc is not installed");
        all[0] = all[1].clone();
    }
    all
}

#[test]
#[ignore = "long tier: needs runc and musl-tools"]
fn musl_and_static_programs_run_untouched_and_are_reported() {
    let Some(lab) = lab(CLASS) else { return };
    for (number, (kind, program)) in foreign().into_iter().enumerate() {
        let bare = |id: &str| Bundle {
            program: vec![program.clone()],
            ..bundle(id)
        };
        let id = format!("by-hook-{number}");
        assert_eq!(lab.ends(&bare(&id)).silently(), "hello\n", "{kind}");
        let events = lab.machine().run(ROOT, &["events", "--json"]);
        let events = String::from_utf8_lossy(&events.stdout).into_owned();
        let told = events
            .lines()
            .find(|line| line.contains("unenforced") && line.contains(&id));
        assert!(told.is_some_and(|line| line.contains(kind)), "{events}");
        // Nobody reads the program under a class; it runs just so.
        let class = of_class(&format!("a{number}"), bare("x"));
        assert_eq!(lab.ends(&class).silently(), "hello\n", "{kind} by CDI");
    }
}

#[test]
#[ignore = "long tier: needs runc"]
fn what_uses_a_gpu_unenforced_in_a_class_is_found_by_the_audit() {
    let Some(lab) = lab(CLASS) else { return };
    // A dynamic linker that knows no preload file stands for a program that has none.
    let line = format!(
        "sed s,/etc/ld.so.preload,/etc/ld.so.nothing, /lib64/ld-linux-x86-64.so.2 >/mnt/ld && \
         chmod 755 /mnt/ld && exec /mnt/ld {}",
        clients::compile("quota", &[]).display()
    );
    let mut guest = lab.run(&of_class("bc", said("x", &line))).started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 16 * GIB));
    assert_eq!(guest.ask(&format!("alloc {}", 3 * GIB)), "alloc 0");
    timed("the audit finds what is not enforced", || {
        let events = lab.machine().run(ROOT, &["events", "--json"]);
        String::from_utf8_lossy(&events.stdout).contains("unmanaged")
    });
    guest.finish().silently();
}

#[test]
#[ignore = "long tier: needs runc"]
fn setuid_programs_in_a_container_are_left_alone() {
    let Some(lab) = lab("") else { return };
    let line = format!(
        "cp {} /mnt/quota && chmod 4755 /mnt/quota && echo ready && read end",
        clients::compile("quota", &[]).display()
    );
    let one = said("one", &line);
    let mut first = lab.run(&one);
    assert_eq!(first.line(), "ready");
    let mut guest = Guest::start(lab.exec(&one, &["--user", "1000:1000"], &["/mnt/quota"]));
    assert_eq!(guest.ask("preload"), "preload 1", "the linker maps it");
    let group = lab.group("one").join("cgroup.procs").display().to_string();
    let pid = lab.sh(&format!(
        "for pid in $(cat {group}); do grep -q '^Uid:.1000' /proc/$pid/status && echo $pid; done"
    ));
    let status = lab.sh(&format!(
        "grep -E '^(Uid|Threads)' /proc/{pid}/status | tr -s '\\t\\n' ' '"
    ));
    assert_eq!(
        status, "Uid: 1000 0 0 0 Threads: 1",
        "setuid, and no thread"
    );
    let opened = lab.sh(&format!(
        "ls -l /proc/{pid}/fd | grep -cE 'socket|memfd' || true"
    ));
    assert_eq!(opened, "0", "nothing of ours is open");
    let row = lab.row("one").expect("it is a tenant");
    assert_eq!(row["processes"].as_array().map(Vec::len), Some(0), "{row}");
    guest.finish().silently();
    first.send("end");
    first.finish().silently();
}

#[test]
#[ignore = "long tier: needs runc"]
fn a_container_that_asks_for_nothing_is_the_same_byte_for_byte() {
    let Some(lab) = lab("") else { return };
    let seen = |door: Door, annotations: Vec<(String, String)>| {
        // All but the numbers of mounts and of file systems in memory, which the kernel counts.
        let line = "sed -E 's/^[0-9]+ [0-9]+ [0-9:]+ //; s/master:[0-9]+//' /proc/self/mountinfo; \
            tr '\\0' '\\n' </proc/1/environ; ls -laR --time-style=+ /run /mnt; ls -la --time-style=+ /etc /usr/lib | cut -c1-10,30-";
        let bundle = Bundle {
            door,
            annotations,
            environment: vec!["NVIDIA_VISIBLE_DEVICES=all".to_owned()],
            ..said("x", line)
        };
        let command = lab.command(&bundle);
        let before = lab.sh("sha256sum /var/lib/lab/x/config.json");
        let told = Guest::start(command).finish().silently();
        let after = lab.sh("sha256sum /var/lib/lab/x/config.json");
        (told, before == after)
    };
    let (bare, _) = seen(Door::None, vec![]);
    assert!(bare.contains("SOFTGPU="), "{bare}");
    for door in [Door::Hook, Door::Wrapper] {
        let (told, is_untouched) = seen(door, vec![]);
        assert_eq!(told, bare, "{door:?}");
        assert!(is_untouched, "{door:?}: its configuration");
    }
    for door in [Door::Hook, Door::Wrapper] {
        let (told, _) = seen(door, bundle("x").annotations);
        assert_ne!(
            told, bare,
            "the comparison sees a difference where there is one"
        );
    }
}

#[test]
#[ignore = "long tier: needs runc"]
fn programs_that_are_added_count_where_they_belong() {
    let Some(lab) = lab("") else { return };
    let (one, side) = (
        bundle("one"),
        Bundle::new("side", Runtime::Runc, &[("mem-limit", "1GiB")]),
    );
    let mut owner = lab.run(&one).started();
    assert_eq!(owner.ask(&format!("alloc {GIB}")), "alloc 0");
    let quota = clients::compile("quota", &[]).display().to_string();
    let mut added = Guest::start(lab.exec(&one, &[], &[&quota])).started();
    assert_eq!(added.ask(&format!("alloc {}", 2 * GIB)), "alloc 2");
    // A container in the container: its cgroup is below, in every hierarchy.
    let line = format!("echo $$; read go; exec {quota}");
    let mut nested = Guest::start(lab.exec(&one, &[], &["sh", "-c", &line]));
    nested.line();
    let inner = lab.sh(
        "runc --root /var/lib/lab/state ps --format json one | tr -dc '0-9,' | tr , '\\n' | tail -1",
    );
    lab.sh(&format!(
        "grep -v cpuset /proc/{inner}/cgroup | while IFS=: read number kind path; do \
         case $kind in '') at=/sys/fs/cgroup/unified; [ -e $at ] || at=/sys/fs/cgroup ;; \
         name=*) at=/sys/fs/cgroup/${{kind#name=}} ;; *) at=/sys/fs/cgroup/$kind ;; esac; \
         [ -e $at$path/cgroup.procs ] || continue; \
         mkdir $at$path/nested && echo {inner} >$at$path/nested/cgroup.procs; done; \
         grep -q /one/nested /proc/{inner}/cgroup"
    ));
    nested.send("go");
    let mut nested = nested.started();
    assert_eq!(nested.ask(&format!("alloc {}", 2 * GIB)), "alloc 2");
    let mut sidecar = lab.run(&side).started();
    assert_eq!(sidecar.ask("total"), format!("total {GIB} 0"));
    let processes = |id: &str| {
        lab.row(id).expect("it runs")["processes"]
            .as_array()
            .map(Vec::len)
    };
    assert_eq!((processes("one"), processes("side")), (Some(3), Some(1)));
    for guest in [nested, added, sidecar, owner] {
        guest.finish().silently();
    }
}
