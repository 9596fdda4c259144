//! The same under the runtimes of two Debian releases: each by each door, with a root that can be
//! written and one that cannot, with a user namespace and without. Each cell is printed, those that
//! do not exist or cannot run too.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gpushare_tests::container::{Bundle, Door, Lab, Runtime};
use gpushare_tests::runnable::{not_runnable_here, prepared};
use gpushare_tests::{GIB, Guest, clients, until};

/// The limits and devices that each cell asks for, by annotations or by its class.
const ASKS: [(&str, &str); 3] = [
    ("mem-limit", "2GiB"),
    ("sm-request", "70"),
    ("devices", "0"),
];
/// The daemon's configuration: that class, where Podman looks for CDI devices.
const CONFIG: &str = "[containers]\ncdi = \"/run/cdi/gpushare.json\"\nlibrary = \"/var/lib/lab/library\"\n\
    [classes.two]\ndevices = [\"0\"]\n\
    [classes.two.limits]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\nGPUSHARE_SM_REQUEST = \"70\"\n";
const DOORS: [Door; 3] = [Door::Hook, Door::Wrapper, Door::Cdi("two")];

/// Where the runtimes come from.
#[derive(Clone, Copy)]
enum Release {
    /// This machine.
    Here,
    /// A root of Debian 13.
    Trixie,
}

/// A container beside which all cells of a machine run, with the rest of the device's time.
struct Neighbour {
    guest: Guest,
}

impl Neighbour {
    fn start(lab: &Lab) -> Self {
        let asks = [("mem-limit", "1GiB"), ("sm-request", "30")];
        let program = vec![clients::compile("turns", &[]).display().to_string()];
        let bundle = Bundle {
            program,
            ..Bundle::new("neighbour", Runtime::ByHand, &asks)
        };
        let mut guest = lab.run(&bundle).started();
        assert_eq!(guest.ask("work 500000"), "work 0");
        Self { guest }
    }
}

/// Why a cell does not exist, or cannot run here.
fn cannot(lab: &Lab, runtime: Runtime, door: Door, user_namespace: bool) -> Option<&'static str> {
    let is_cdi = matches!(door, Door::Cdi(_));
    match runtime {
        Runtime::Containerd if is_cdi => Some("a class needs ids of 64 digits; see CRI"),
        Runtime::Cri if door == Door::Hook => Some("CRI takes no hooks"),
        Runtime::Docker if door == Door::Hook => Some("Docker takes no hooks"),
        Runtime::Cri if is_cdi && !lab.containerd_has_cdi() => {
            Some("containerd before 1.7 has no CDI")
        }
        Runtime::Docker if is_cdi && !lab.docker_has_cdi() => Some("Docker before 25 has no CDI"),
        Runtime::Cri if user_namespace => Some("not tried: pods with user namespaces"),
        _ => None,
    }
}

/// All cells of these runtimes. Each is printed; those that fail are told at the end.
fn all(test: &str, release: Release, runtimes: &[Runtime]) {
    let lab = match release {
        Release::Here => Lab::start(test, CONFIG),
        Release::Trixie => prepared(test, "runtimes_root.sh", &["trixie"])
            .and_then(|root| Lab::start_in(test, &root, CONFIG)),
    };
    let Some(lab) = lab else { return };
    let mut neighbour = Neighbour::start(&lab);
    let name = lab.sh("sed -n 's/^VERSION_CODENAME=//p' /etc/os-release");
    let (mut number, mut failed) = (0_u32, Vec::new());
    for runtime in runtimes.iter().copied() {
        let Some(version) = version(&lab, runtime) else {
            not_runnable_here(test, &format!("{runtime:?} is not installed"));
            continue;
        };
        for door in DOORS {
            for (read_only, user_namespace) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                number += 1;
                let root = if read_only { "read-only" } else { "writable" };
                let users = if user_namespace { "yes" } else { "no" };
                let what = format!("{name} | {version} | {} | {root} | {users}", by(door));
                if let Some(why) = cannot(&lab, runtime, door, user_namespace) {
                    eprintln!("cell: {what} | not run: {why}");
                    continue;
                }
                let bundle = Bundle {
                    door,
                    read_only,
                    user_namespace,
                    // A class knows containers by ids like those that engines make.
                    ..Bundle::new(&format!("{number:064x}"), runtime, &ASKS)
                };
                let passed = catch_unwind(AssertUnwindSafe(|| {
                    cell(&lab, &mut neighbour, bundle);
                }));
                let result = if passed.is_ok() { "passed" } else { "FAILED" };
                eprintln!("cell: {what} | {result}");
                if passed.is_err() {
                    failed.push(what);
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn by(door: Door) -> &'static str {
    match door {
        Door::None => "none",
        Door::Hook => "hook",
        Door::Wrapper => "wrapper",
        Door::Cdi(_) => "CDI",
    }
}

/// A runtime's name and version, if it is installed on that machine.
fn version(lab: &Lab, runtime: Runtime) -> Option<String> {
    let program = runtime.program()?;
    let line = format!("{program} --version 2>/dev/null | grep -o '[0-9][0-9.]*[0-9]' | head -1");
    let found = lab.sh(&line);
    let shown = match runtime {
        Runtime::Podman(over) => format!("Podman {found} over {over}"),
        Runtime::Containerd => format!("containerd {found} (ctr)"),
        Runtime::Cri => format!("containerd {found} (CRI)"),
        Runtime::Docker => format!("Docker {found}"),
        Runtime::Youki => format!("youki {found}"),
        _ => format!("{program} {found}"),
    };
    (!found.is_empty()).then_some(shown)
}

/// Its quota is seen and hit, and it has its share of time beside another container.
fn cell(lab: &Lab, neighbour: &mut Neighbour, mut bundle: Bundle) {
    if matches!(bundle.door, Door::Cdi(_)) {
        bundle.annotations.clear();
    }
    let (quota, turns) = (
        clients::compile("quota", &[]),
        clients::compile("turns", &[]),
    );
    let line = format!("{}; echo next; exec {}", quota.display(), turns.display());
    bundle.program = ["sh", "-c", &line].map(str::to_owned).to_vec();
    let before = tenants(lab);
    let mut guest = lab.run(&bundle).started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), "alloc 2");
    let now = tenants(lab);
    let new: Vec<&String> = now.iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(new.len(), 1, "{now:?}");
    let name = new[0];
    let row = lab.row(name).expect("it is a tenant");
    assert_eq!(row["charged"], GIB);
    guest.send("exit 0");
    assert_eq!(guest.line(), "next");
    let mut guest = guest.started();
    assert_eq!(guest.ask("work 500000"), "work 0");
    let share = |name: &str| lab.row(name).expect("it is a tenant")["time"]["share"].clone();
    until("both want the device", || {
        share(name) == 70.0 && share("neighbour") == 30.0
    });
    guest.goes_on(10);
    neighbour.guest.goes_on(10);
    guest.stops();
    until("its tenant ends", || lab.row(name).is_none());
}

fn tenants(lab: &Lab) -> Vec<String> {
    let names = lab.sh("ls /run/gpushare/sockets");
    names.lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "long tier: needs runc and crun"]
fn bare_runtimes_by_each_door() {
    let test = "bare_runtimes_by_each_door";
    all(test, Release::Here, &[Runtime::Runc, Runtime::Crun]);
}

#[test]
#[ignore = "long tier: needs youki, which scripts/containers.sh builds"]
fn youki_by_each_door() {
    all("youki_by_each_door", Release::Here, &[Runtime::Youki]);
}

#[test]
#[ignore = "long tier: needs Podman"]
fn podman_by_each_door() {
    let runtimes = [Runtime::Podman("runc"), Runtime::Podman("crun")];
    all("podman_by_each_door", Release::Here, &runtimes);
}

#[test]
#[ignore = "long tier: needs containerd and python3-grpcio"]
fn containerd_by_each_door() {
    let runtimes = [Runtime::Containerd, Runtime::Cri];
    all("containerd_by_each_door", Release::Here, &runtimes);
}

/// A specification as a device plugin writes it, which engines that know CDI look for.
const PLUGINS: &str = r#"{"cdiVersion": "0.5.0", "kind": "k8s.device-plugin.nvidia.com/gpu",
    "devices": [{"name": "1", "containerEdits": {"env": ["PLUGIN=1"]}}]}"#;

#[test]
#[ignore = "long tier: needs containerd and python3-grpcio"]
fn containerd_tells_the_hook_the_device_that_a_plugin_named() {
    let test = "containerd_tells_the_hook_the_device_that_a_plugin_named";
    let Some(lab) = Lab::start_with(test, "mem=16GiB,count=2", CONFIG) else {
        return;
    };
    if version(&lab, Runtime::Cri).is_none() {
        return not_runnable_here(test, "containerd is not installed");
    }
    lab.sh(&format!("echo '{PLUGINS}' >/run/cdi/plugin.json"));
    let bundle = |id: &str| Bundle {
        door: Door::Wrapper,
        // The plugin's container has that device alone.
        environment: vec!["CUDA_VISIBLE_DEVICES=1".to_owned()],
        ..Bundle::new(id, Runtime::Cri, &ASKS[..1])
    };
    let mut named = bundle("named");
    named.annotations.push((
        "cdi.k8s.io/nvidia-device-plugin_7".to_owned(),
        "k8s.device-plugin.nvidia.com/gpu=1".to_owned(),
    ));
    let mut guest = lab.run(&named).started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
    guest.finish();
    // Without a name it cannot be told which of the two.
    let ended = lab.ends(&bundle("unnamed"));
    assert!(ended.stdout.is_empty(), "{ended:?}");
    assert!(ended.stderr.contains("gpushare.io/devices"), "{ended:?}");
}

#[test]
#[ignore = "long tier: needs Docker"]
fn docker_by_each_door() {
    all("docker_by_each_door", Release::Here, &[Runtime::Docker]);
}

#[test]
#[ignore = "long tier: needs debootstrap and the network"]
fn debian_13s_bare_runtimes_by_each_door() {
    let test = "debian_13s_bare_runtimes_by_each_door";
    all(test, Release::Trixie, &[Runtime::Runc, Runtime::Crun]);
}

#[test]
#[ignore = "long tier: needs debootstrap and the network"]
fn debian_13s_podman_by_each_door() {
    let runtimes = [Runtime::Podman("runc"), Runtime::Podman("crun")];
    all("debian_13s_podman_by_each_door", Release::Trixie, &runtimes);
}

#[test]
#[ignore = "long tier: needs debootstrap and the network"]
fn debian_13s_containerd_by_each_door() {
    let runtimes = [Runtime::Containerd, Runtime::Cri];
    let test = "debian_13s_containerd_by_each_door";
    all(test, Release::Trixie, &runtimes);
}

#[test]
#[ignore = "long tier: needs debootstrap and the network"]
fn debian_13s_docker_by_each_door() {
    let test = "debian_13s_docker_by_each_door";
    all(test, Release::Trixie, &[Runtime::Docker]);
}
