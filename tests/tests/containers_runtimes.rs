//! The same under the runtimes that are installed: each by each door, with a root that can be
//! written and one that cannot, with a user namespace and without.

use gpushare_tests::container::{Bundle, Door, Lab, Runtime};
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{GIB, until};
use std::process::Command;

const TWO: [(&str, &str); 2] = [("mem-limit", "2GiB"), ("devices", "0")];

fn is_installed(runtime: Runtime) -> bool {
    let name = match runtime {
        Runtime::ByHand => return true,
        Runtime::Runc => "runc",
        Runtime::Crun => "crun",
        Runtime::Podman(_) => "podman",
    };
    let found = Command::new(name).arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        not_runnable_here("containers_runtimes", &format!("{name} is not installed"));
    }
    found
}

/// The daemon's configuration: a class of two GiB, where Podman looks for CDI devices.
const CONFIG: &str = "[containers]\ncdi = \"/run/cdi/gpushare.json\"\nlibrary = \"/run/lab/library\"\n\
    [classes.two]\ndevices = [\"0\"]\n[classes.two.limits]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n";

/// Each runtime by each of these doors, with a root that can be written and one that cannot, with a
/// user namespace and without. Returns how many there were.
fn all(runtimes: &[Runtime], doors: &[Door]) -> Option<u32> {
    let test = std::thread::current();
    let lab = Lab::start(test.name().unwrap_or("containers_runtimes"), CONFIG)?;
    let mut cells = 0;
    for runtime in runtimes.iter().copied().filter(|it| is_installed(*it)) {
        for door in doors.iter().copied() {
            for (read_only, user_namespace) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                cells += 1;
                let what = format!(
                    "{runtime:?} {door:?} read_only={read_only} user_namespace={user_namespace}"
                );
                eprintln!("{what}");
                // A class knows containers by ids like those that engines make.
                let id = format!("{cells:064x}");
                let bundle = Bundle {
                    door,
                    read_only,
                    user_namespace,
                    ..Bundle::new(&id, runtime, &TWO)
                };
                cell(&lab, bundle, &what);
            }
        }
    }
    eprintln!("{cells} cells passed");
    Some(cells)
}

fn cell(lab: &Lab, mut bundle: Bundle, what: &str) {
    if matches!(bundle.door, Door::Cdi(_)) {
        bundle.annotations.clear();
    }
    let before = tenants(lab);
    let mut guest = lab.run(&bundle).started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB), "{what}");
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0", "{what}");
    assert_eq!(
        guest.ask(&format!("alloc {}", 2 * GIB)),
        "alloc 2",
        "{what}"
    );
    let now = tenants(lab);
    let new: Vec<&String> = now.iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(new.len(), 1, "{what}: {now:?}");
    let row = lab.row(new[0]).expect("it is a tenant");
    assert_eq!(row["charged"], GIB, "{what}");
    guest.finish();
    until("its tenant ends", || lab.row(new[0]).is_none());
}

fn tenants(lab: &Lab) -> Vec<String> {
    let names = lab.sh("ls /run/gpushare/sockets");
    names.lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "long tier: needs runc or crun"]
fn bare_runtimes_by_hook_wrapper_and_class() {
    all(
        &[Runtime::Runc, Runtime::Crun],
        &[Door::Hook, Door::Wrapper, Door::Cdi("two")],
    );
}

#[test]
#[ignore = "long tier: needs podman"]
fn podman_by_hook_wrapper_and_class() {
    let runtimes = [Runtime::Podman("runc"), Runtime::Podman("crun")];
    all(&runtimes, &[Door::Hook, Door::Wrapper, Door::Cdi("two")]);
}
