//! Containers under the machine's daemon, brought in by the OCI hook. No runtime is needed: a
//! script makes the container's mounts, cgroup and root as one does.

use gpushare_tests::container::{Bundle, Door, Lab, Runtime};
use gpushare_tests::guest::Guest;
use gpushare_tests::machine::{ALICE, ROOT};
use gpushare_tests::{GIB, artefacts, clients, until};

/// Two GiB of the only device.
const TWO: [(&str, &str); 2] = [("mem-limit", "2GiB"), ("devices", "0")];

fn lab(config: &str) -> Option<Lab> {
    let test = std::thread::current();
    Lab::start(test.name().unwrap_or("containers"), config)
}

fn bundle(id: &str) -> Bundle {
    Bundle::new(id, Runtime::ByHand, &TWO)
}

/// A container whose program waits for a line before it becomes the quota client.
fn idle(id: &str) -> Bundle {
    let client = clients::compile("quota", &[]);
    let line = format!("echo idle; read go; exec {}", client.display());
    let program = ["sh", "-c", &line].map(str::to_owned).to_vec();
    Bundle {
        program,
        ..bundle(id)
    }
}

fn said(id: &str, line: &str) -> Bundle {
    let program = ["sh", "-c", line].map(str::to_owned).to_vec();
    Bundle {
        program,
        ..bundle(id)
    }
}

#[test]
fn a_container_sees_its_quota_and_hits_it() {
    let Some(lab) = lab("") else { return };
    for (id, read_only) in [("one", false), ("two", true)] {
        let mut guest = lab
            .run(&Bundle {
                read_only,
                // An image's own, and that of `docker run --gpus`.
                environment: ["7", "0"]
                    .map(|it| format!("NVIDIA_VISIBLE_DEVICES={it}"))
                    .to_vec(),
                annotations: bundle(id).annotations[..1].to_vec(),
                ..bundle(id)
            })
            .started();
        assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
        assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
        assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), "alloc 2");
        let row = lab.row(id).expect("it is a tenant");
        let (limit, charged) = (&row["limit"], &row["charged"]);
        assert_eq!((limit, charged), (&(2 * GIB).into(), &GIB.into()));
        guest.finish().silently();
        until("its tenant ends with it", || lab.row(id).is_none());
    }
}

#[test]
fn no_variable_in_a_container_raises_or_disables_a_limit() {
    let Some(lab) = lab("") else { return };
    let quota = clients::compile("quota", &[]).display().to_string();
    // It stands before the library, and finds the C library's dlsym by its version.
    let tool = clients::compile("../../interposer/tests/clients/tool", &["-shared", "-fPIC"]);
    let tool = format!("LD_PRELOAD={}", tool.display());
    for (at, set) in [
        &["GPUSHARE_DISABLE=1"][..],
        &["GPUSHARE_SOCKET=/tmp", "GPUSHARE_DISABLE=1"],
        &[
            "GPUSHARE_MEM_LIMIT=9GiB",
            "GPUSHARE_MEM_LIMIT_0=10GiB",
            "CUDA_DEVICE_MEMORY_LIMIT=11g",
        ],
        &["GPUSHARE_TENANT=other", "XDG_RUNTIME_DIR=/tmp"],
        &["-u", "GPUSHARE_SOCKET"],
        &["LD_PRELOAD=", "LD_BIND_NOW=1"],
        &[&tool],
    ]
    .iter()
    .enumerate()
    {
        let program = [&["env"], *set, &[quota.as_str()]].concat();
        let bundle = Bundle {
            program: program.iter().map(ToString::to_string).collect(),
            ..bundle(&format!("c{at}"))
        };
        let mut guest = lab.run(&bundle).started();
        assert_eq!(
            guest.ask("total"),
            format!("total {} 0", 2 * GIB),
            "{set:?}"
        );
        assert_eq!(
            guest.ask(&format!("alloc {}", 3 * GIB)),
            "alloc 2",
            "{set:?}"
        );
    }
    // A program may lower its own limit.
    let lower = Bundle {
        environment: vec!["GPUSHARE_MEM_LIMIT=1GiB".to_owned()],
        ..bundle("lower")
    };
    let mut guest = lab.run(&lower).started();
    assert_eq!(guest.ask("total"), format!("total {GIB} 0"));
    assert_eq!(guest.ask(&format!("alloc {}", GIB + 1)), "alloc 2");
}

#[test]
fn a_container_without_annotations_is_unchanged() {
    let Some(lab) = lab("") else { return };
    let seen = |door: Door, annotations: Vec<(String, String)>| {
        let line = "cut -d' ' -f4-6 /proc/self/mountinfo | sed s/lab.x[a-z]*//g; env; ls -a /run /etc /usr/lib";
        let bundle = Bundle {
            door,
            annotations,
            environment: ["all", "0"]
                .map(|it| format!("NVIDIA_VISIBLE_DEVICES={it}"))
                .to_vec(),
            ..said("x", line)
        };
        lab.ends(&bundle).silently()
    };
    let bare = seen(Door::None, vec![]);
    assert!(bare.contains("SOFTGPU="), "{bare}");
    assert_eq!(seen(Door::Hook, vec![]), bare);
    let asks = seen(Door::Hook, bundle("x").annotations);
    assert_ne!(
        asks, bare,
        "the comparison sees a difference where there is one"
    );
}

#[test]
fn an_idle_container_outlives_two_daemons_and_has_its_limit() {
    let Some(mut lab) = lab("") else { return };
    let mut guest = lab.run(&idle("one"));
    assert_eq!(guest.line(), "idle");
    for _ in 0..2 {
        lab.restart_daemon();
        assert!(lab.row("one").is_some(), "the daemon knows it");
    }
    guest.send("go");
    let mut guest = guest.started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    // A running container registers again by itself.
    lab.restart_daemon();
    until("it is back", || {
        lab.row("one").is_some_and(|row| row["charged"] == GIB)
    });
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), "alloc 2");
    lab.kill_daemon();
    drop(guest);
    lab.restart_daemon();
    until("it has ended meanwhile", || lab.row("one").is_none());
}

#[test]
fn a_crash_without_a_poststop_hook_leaves_nothing() {
    let Some(lab) = lab("") else { return };
    let guest = lab.run(&bundle("one")).started();
    let registered = || lab.sh("ls /run/gpushare/sockets /run/gpushare/registered");
    assert!(registered().contains("one.json"));
    guest.kill();
    until("its tenant ends", || lab.row("one").is_none());
    until("nothing is left", || !registered().contains("one"));
}

#[test]
fn an_impossible_request_fails_create_and_names_the_accepted_form() {
    let Some(mut lab) = lab("[maxima]\nGPUSHARE_MEM_LIMIT = \"15GiB\"\n") else {
        return;
    };
    let _holder = lab
        .run(&Bundle::new(
            "holder",
            Runtime::ByHand,
            &[("mem-limit", "10GiB")],
        ))
        .started();
    let refused = |lab: &Lab, limits: &[(&str, &str)], environment: &[&str]| {
        let bundle = Bundle {
            environment: environment.iter().map(ToString::to_string).collect(),
            ..Bundle::new("one", Runtime::ByHand, limits)
        };
        let ended = lab.ends(&bundle);
        assert!(
            !ended.status.success() && ended.stdout.is_empty(),
            "{ended:?}"
        );
        let lines: Vec<&str> = ended
            .stderr
            .lines()
            .filter(|line| line.starts_with("gpushare: "))
            .collect();
        assert_eq!(lines.len(), 1, "one line: {ended:?}");
        lines[0].to_owned()
    };
    for (limits, environment, words) in [
        (
            &[("mem-limit", "4 apples")][..],
            &[][..],
            &["GPUSHARE_MEM_LIMIT", "4 apples", "accepted"][..],
        ),
        (
            &[("mem-limits", "4GiB")],
            &[],
            &["gpushare.io/mem-limits", "accepted"],
        ),
        (
            &[("mem-limit", "0")],
            &[],
            &["GPUSHARE_MEM_LIMIT", "accepted"],
        ),
        (
            &[],
            &["GPUSHARE_MEM_LIMIT=1GB", "GPUSHARE_MEM_LIMIT=2GB"],
            &["GPUSHARE_MEM_LIMIT", "twice"],
        ),
        (
            &[],
            &["GPUSHARE_MEM_LIMT=1GiB"],
            &["GPUSHARE_MEM_LIMT", "accepted", "GPUSHARE_MEM_LIMIT"],
        ),
        (
            &[("mem-limit", "1GiB"), ("devices", "7")],
            &[],
            &["no device \"7\"", "accepted", "0 (GPU-"],
        ),
        (
            &[("mem-limit", "16GiB")],
            &[],
            &["GPUSHARE_MEM_LIMIT", "at most 15GiB"],
        ),
        (
            &[("mem-limit", "9GiB")],
            &[],
            &["does not fit", "9 GiB", "10 GiB"],
        ),
        (
            &[("sm-limit", "200")],
            &[],
            &["GPUSHARE_SM_LIMIT", "200", "accepted"],
        ),
    ] {
        let told = refused(&lab, limits, environment);
        for word in words {
            assert!(told.contains(word), "{word} in {told}");
        }
    }
    assert!(lab.row("one").is_none());
    lab.kill_daemon();
    let told = refused(&lab, &TWO, &[]);
    assert!(told.contains("is gpushared running?"), "{told}");
}

#[test]
fn only_the_containers_own_processes_use_its_socket() {
    let Some(lab) = lab("") else { return };
    let owner = lab.run(&bundle("one")).started();
    let socket = "/run/gpushare/sockets/one";
    // Users of the host, root among them.
    for user in [ROOT, ALICE] {
        let mut command = lab.machine().quota_in(user, "one");
        command.env("SOFTGPU_FOLDER", "/var/lib/lab/gpu");
        let mut guest = Guest::start(command);
        assert_ne!(guest.ask("init"), "init 0");
        let told = guest.finish().stderr;
        assert!(told.contains("is not of container one"), "{told}");
    }
    // A container that mounts the folder, and one that also has its own tenant.
    for (id, door) in [("two", Door::None), ("three", Door::Hook)] {
        let thief = Bundle {
            door,
            volumes: vec![(socket.to_owned(), "/mnt/stolen".to_owned())],
            environment: vec![
                "GPUSHARE_SOCKET=/mnt/stolen".to_owned(),
                format!("LD_PRELOAD={}", artefacts::interposer().display()),
            ],
            ..bundle(id)
        };
        let mut guest = lab.run(&thief);
        match door {
            Door::None => {
                assert_ne!(guest.ask("init"), "init 0");
                let told = guest.finish().stderr;
                assert!(told.contains("is not of container one"), "{told}");
            }
            _ => {
                let guest = guest.started();
                let row = lab.row("three").expect("it is its own tenant's");
                assert_eq!(row["processes"].as_array().map(Vec::len), Some(1), "{row}");
                drop(guest);
            }
        }
    }
    let row = lab.row("one").expect("it runs");
    assert_eq!(row["processes"].as_array().map(Vec::len), Some(1), "{row}");
    owner.finish().silently();
}

#[test]
fn a_program_executed_in_a_container_counts_there() {
    let Some(lab) = lab("") else { return };
    let mut owner = lab.run(&bundle("one")).started();
    assert_eq!(owner.ask(&format!("alloc {GIB}")), "alloc 0");
    let row = lab.row("one").expect("it runs");
    let pid = row["processes"][0]["pid"].as_u64().expect("a pid");
    let enter = |in_group: bool| {
        let quota = clients::compile("quota", &[]);
        let group = lab.group("one").join("cgroup.procs").display().to_string();
        let join = if in_group {
            format!("echo $$ > {group};")
        } else {
            String::new()
        };
        let line = format!(
            "{join} exec nsenter --mount --root --target {pid} env SOFTGPU_FOLDER=/mnt/softgpu {}",
            quota.display()
        );
        let mut command = lab.machine().as_user(ROOT, "sh");
        command.args(["-c", &line]);
        Guest::start(command)
    };
    let mut second = enter(true).started();
    assert_eq!(second.ask(&format!("alloc {}", 2 * GIB)), "alloc 2");
    let row = lab.row("one").expect("it runs");
    assert_eq!(row["processes"].as_array().map(Vec::len), Some(2), "{row}");
    let mut outside = enter(false);
    assert_ne!(
        outside.ask("init"),
        "init 0",
        "it is not in the container's cgroup"
    );
}

#[test]
fn an_images_own_preloads_are_kept_behind_ours() {
    let Some(lab) = lab("") else { return };
    let own = artefacts::soft_nvml();
    let bundle = Bundle {
        image: format!(
            "mkdir etc && echo '{} # mine' > etc/ld.so.preload",
            own.display()
        ),
        ..said(
            "one",
            "cat /etc/ld.so.preload; grep -c softgpu_nvml /proc/self/maps",
        )
    };
    let told = lab.ends(&bundle).silently();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(
        lines[..2],
        ["/usr/lib/gpushare/libgpushare.so", &*own.to_string_lossy()]
    );
    assert!(
        lines[2].parse::<u32>().is_ok_and(|mapped| mapped > 0),
        "{told}"
    );
}

#[test]
fn a_program_starts_without_a_daemon_only_where_the_operator_says() {
    let asked = ["", "[containers]\non_daemon_loss = \"allow\"\n"].map(|config| {
        let mut lab = lab(config)?;
        let mut guest = lab.run(&idle("one"));
        assert_eq!(guest.line(), "idle");
        lab.kill_daemon();
        guest.send("go");
        guest.send("init");
        Some((lab, guest))
    });
    let [Some((_denies, mut denied)), Some((_allows, mut allowed))] = asked else {
        return;
    };
    assert_ne!(denied.line(), "init 0");
    assert_eq!(allowed.line(), "init 0");
    // Not even the limits of its environment apply: the operator decides.
    assert_eq!(allowed.ask(&format!("alloc {}", 3 * GIB)), "alloc 0");
}

#[test]
fn containers_of_a_class_have_its_limit_each_and_one_door() {
    let config = "[containers]\ncdi = \"/run/cdi/gpushare.json\"\nlibrary = \"/var/lib/lab/library\"\n\
        [classes.two]\ndevices = [\"0\"]\n[classes.two.limits]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n";
    let Some(mut lab) = lab(config) else { return };
    let ids = ["ab", "cd"].map(|start| start.repeat(32));
    let of_class = |id: &String| Bundle {
        door: Door::Cdi("two"),
        annotations: vec![],
        environment: vec![
            "GPUSHARE_MEM_LIMIT=9GiB".to_owned(),
            "GPUSHARE_DISABLE=1".to_owned(),
        ],
        ..bundle(id)
    };
    let mut guests = ids.each_ref().map(|id| lab.run(&of_class(id)).started());
    for guest in &mut guests {
        assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
        assert_eq!(guest.ask(&format!("alloc {}", 3 * GIB / 2)), "alloc 0");
        assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 2");
    }
    lab.restart_daemon();
    let names = ["two-abababababab", "two-cdcdcdcdcdcd"];
    for name in names {
        until("it is back", || {
            lab.row(name)
                .is_some_and(|row| row["charged"] == 3 * GIB / 2)
        });
    }
    // A process of the host does not come by that door.
    let mut command = lab.machine().quota_in(ROOT, "none");
    command
        .env("GPUSHARE_SOCKET", "/run/gpushare/classes/two")
        .env("SOFTGPU_FOLDER", "/var/lib/lab/gpu");
    let mut stranger = Guest::start(command);
    assert_ne!(stranger.ask("init"), "init 0");
    assert!(stranger.finish().stderr.contains("is in no container"));
    for guest in guests {
        guest.finish().silently();
    }
    for (id, name) in ids.iter().zip(names) {
        // As the runtime does when it deletes a container.
        lab.sh(&format!("rmdir {}", lab.group(id).display()));
        until("it ends with its cgroup", || lab.row(name).is_none());
    }
}

#[test]
fn two_containers_share_a_devices_time_as_they_asked() {
    let Some(lab) = lab("") else { return };
    let client = clients::compile("turns", &[]);
    let mut guests = [("one", "70"), ("two", "30")].map(|(id, share)| {
        let asked = [("mem-limit", "1GiB"), ("sm-request", share)];
        let bundle = Bundle {
            program: vec![client.to_string_lossy().into_owned()],
            ..Bundle::new(id, Runtime::ByHand, &asked)
        };
        let mut guest = lab.run(&bundle).started();
        assert_eq!(guest.ask("work 500000"), "work 0");
        guest
    });
    let time = |id: &str| lab.row(id).expect("it is a tenant")["time"].clone();
    until("both want the device", || {
        time("one")["share"] == 70.0 && time("two")["share"] == 30.0
    });
    for guest in &mut guests {
        guest.goes_on(20);
    }
    for guest in guests {
        guest.stops();
    }
}
