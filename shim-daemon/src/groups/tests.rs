use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A machine as its `/proc` shows it: the daemon, the runtime that calls, a container's init, a
/// process that the container made a cgroup for, and a neighbour.
struct Recorded {
    what: &'static str,
    daemon: &'static str,
    runtime: &'static str,
    init: &'static str,
    below: &'static str,
    neighbour: &'static str,
}

/// Layouts of cgroup v2, v1 and both at once, by the systemd and the cgroupfs driver.
const MACHINES: [Recorded; 8] = [
    Recorded {
        what: "v2, systemd, Docker",
        daemon: "0::/system.slice/gpushared.service",
        runtime: "0::/system.slice/containerd.service",
        init: "0::/system.slice/docker-ID.scope",
        below: "0::/system.slice/docker-ID.scope/init.scope",
        neighbour: "0::/system.slice/docker-IDb.scope",
    },
    Recorded {
        what: "v2, cgroupfs, Podman",
        daemon: "0::/",
        runtime: "0::/user.slice/user-0.slice/session-1.scope",
        init: "0::/libpod_parent/libpod-ID",
        below: "0::/libpod_parent/libpod-ID/a/b",
        neighbour: "0::/libpod_parent",
    },
    Recorded {
        what: "v2, Kubernetes, systemd",
        daemon: "0::/system.slice/gpushared.service",
        runtime: "0::/system.slice/containerd.service",
        init: "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope",
        below: "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope/x",
        neighbour: "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-IDb.scope",
    },
    Recorded {
        what: "v2, a daemon in a cgroup namespace of its own",
        daemon: "0::/",
        runtime: "0::/../../system.slice/containerd.service",
        init: "0::/../kubepods-pod1.slice/cri-containerd-ID.scope",
        below: "0::/../kubepods-pod1.slice/cri-containerd-ID.scope/x",
        neighbour: "0::/../kubepods-pod1.slice",
    },
    Recorded {
        what: "v1, cgroupfs, Docker",
        daemon: "12:memory:/\n4:cpu,cpuacct:/\n1:name=systemd:/",
        runtime: "12:memory:/\n4:cpu,cpuacct:/\n1:name=systemd:/",
        init: "12:memory:/docker/ID\n4:cpu,cpuacct:/docker/ID\n1:name=systemd:/docker/ID",
        below: "12:memory:/docker/ID\n4:cpu,cpuacct:/docker/ID/x\n1:name=systemd:/docker/ID",
        neighbour: "12:memory:/docker/IDb\n4:cpu,cpuacct:/docker/ID\n1:name=systemd:/docker/ID",
    },
    Recorded {
        what: "v1, systemd, containerd",
        daemon: "9:memory:/system.slice/gpushared.service\n1:name=systemd:/system.slice/gpushared.service",
        runtime: "9:memory:/system.slice/containerd.service\n1:name=systemd:/system.slice/containerd.service",
        init: "9:memory:/system.slice/docker-ID.scope\n1:name=systemd:/system.slice/docker-ID.scope",
        below: "9:memory:/system.slice/docker-ID.scope\n1:name=systemd:/system.slice/docker-ID.scope/y",
        neighbour: "9:memory:/system.slice/docker-ID.scope\n1:name=systemd:/system.slice/other.scope",
    },
    Recorded {
        what: "hybrid, runc, the first hierarchies say the root",
        daemon: "9:name=systemd:/\n8:pids:/\n4:memory:/vm/1\n0::/",
        runtime: "9:name=systemd:/\n8:pids:/\n4:memory:/vm/1\n0::/",
        init: "9:name=systemd:/t1\n8:pids:/t1\n4:memory:/vm/1/t1\n0::/t1",
        below: "9:name=systemd:/t1\n8:pids:/t1/x\n4:memory:/vm/1/t1\n0::/t1",
        neighbour: "9:name=systemd:/t1\n8:pids:/t1\n4:memory:/vm/1\n0::/t1",
    },
    Recorded {
        what: "hybrid, crun without the unified hierarchy",
        daemon: "9:name=systemd:/\n4:memory:/vm/1\n0::/",
        runtime: "9:name=systemd:/\n4:memory:/vm/1\n0::/",
        init: "9:name=systemd:/t2\n4:memory:/t2\n0::/",
        below: "9:name=systemd:/t2\n4:memory:/t2\n0::/x",
        neighbour: "9:name=systemd:/t22\n4:memory:/t22\n0::/",
    },
];

fn groups(table: &str) -> Groups {
    Groups::parse(&table.replace("ID", ID))
}

#[test]
fn a_container_is_its_own_cgroup_in_every_layout() {
    for machine in &MACHINES {
        let (daemon, runtime) = (groups(machine.daemon), groups(machine.runtime));
        let init = groups(machine.init);
        let container = init.apart_from(&[&daemon, &runtime]);
        assert!(!container.is_empty(), "{}", machine.what);
        for inside in [machine.init, machine.below] {
            assert!(groups(inside).are_within(&container), "{}", machine.what);
        }
        for outside in [machine.daemon, machine.runtime, machine.neighbour] {
            assert!(!groups(outside).are_within(&container), "{}", machine.what);
        }
        assert!(
            !Groups::default().are_within(&container),
            "{}",
            machine.what
        );
    }
}

#[test]
fn a_container_in_its_runtimes_cgroup_has_none_of_its_own() {
    for machine in &MACHINES {
        let (daemon, runtime) = (groups(machine.daemon), groups(machine.runtime));
        let own = runtime.apart_from(&[&daemon, &runtime]);
        assert!(own.is_empty(), "{}: {own}", machine.what);
        assert!(!runtime.are_within(&own), "{}", machine.what);
        // One above the daemon's or the runtime's would take them in.
        let above =
            groups("0::/system.slice\n9:memory:/system.slice\n1:name=systemd:/system.slice");
        let own = above.apart_from(&[&daemon, &runtime]);
        assert!(
            !daemon.are_within(&own) && !runtime.are_within(&own),
            "{}",
            machine.what
        );
    }
}

#[test]
fn a_name_that_begins_like_the_containers_is_not_below_it() {
    let container = groups("0::/docker/a");
    assert!(!groups("0::/docker/ab").are_within(&container));
    assert!(groups("0::/docker/a/b").are_within(&container));
    assert!(!groups("1:memory:/docker/a").are_within(&container));
}

#[test]
fn a_cgroup_that_was_made_anew_has_another_inode() {
    let mount = tempfile::tempdir().unwrap();
    let table = format!(
        "30 25 0:26 / {} rw,nosuid - cgroup2 cgroup rw\n31 25 0:27 /sub /x rw - cgroup cgroup rw,memory\n",
        mount.path().display()
    );
    let mounts = Mounts::parse(&table);
    let container = groups("0::/a/b\n1:memory:/a/b");
    assert!(mounts.inodes(&container).is_empty(), "it is not there");
    fs::create_dir_all(mount.path().join("a/b")).unwrap();
    let first = mounts.inodes(&container);
    assert_eq!(
        first.keys().collect::<Vec<_>>(),
        [""],
        "the other is not a whole mount"
    );
    fs::create_dir_all(mount.path().join("keeps the inode")).unwrap();
    fs::remove_dir(mount.path().join("a/b")).unwrap();
    assert!(mounts.inodes(&container).is_empty());
    assert!(mounts.inodes(&groups("0::/../a")).is_empty());
}

#[test]
fn a_hierarchy_that_was_mounted_later_is_found() {
    let mount = tempfile::tempdir().unwrap();
    fs::create_dir_all(mount.path().join("a")).unwrap();
    // A place of a hierarchy that no table has: read, and read again.
    let mut known = KnownMounts(Some(Mounts::parse("")));
    assert!(known.inodes(&groups("77:none:/a")).is_empty());
    // A place that the last table has: not read again.
    let table = format!(
        "30 25 0:26 / {} rw - cgroup none rw,none\n",
        mount.path().display()
    );
    known = KnownMounts(Some(Mounts::parse(&table)));
    let found = known.inodes(&groups("77:none:/a"));
    assert_eq!(found.keys().collect::<Vec<_>>(), ["none"]);
    assert!(
        known.inodes(&groups("77:none:/b")).is_empty(),
        "and is forgotten"
    );
    assert!(known.inodes(&groups("77:none:/a")).is_empty());
}

#[test]
fn a_group_above_the_daemons_namespace_has_the_daemon_in_it() {
    for (path, group, is) in [
        ("/a/b", "/a", true),
        ("/ab", "/a", false),
        ("/a", "/", true),
        ("/../a", "/", false),
        ("/../a/b", "/../a", true),
        ("/a", "/../a", false),
        ("/", "/..", true),
        ("/../a", "/..", true),
        ("/../..", "/..", false),
        ("/../../a", "/..", false),
        ("/..a", "/..", true),
        ("/..a", "/..a", true),
    ] {
        assert_eq!(below(path, group), is, "{path} in {group}");
    }
    let parent = Groups::parse("0::/..\n4:memory:/../a\n");
    let home = Groups::parse("0::/\n4:memory:/b\n");
    let own = parent.apart_from(&[&home]);
    assert_eq!(own, Groups::parse("4:memory:/../a\n"));
}
