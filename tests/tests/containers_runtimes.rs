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
    };
    let found = Command::new(name).arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        not_runnable_here("containers_runtimes", &format!("{name} is not installed"));
    }
    found
}

#[test]
#[ignore = "long tier: needs runc or crun"]
fn every_runtime_by_every_door_has_its_quota() {
    let test = "every_runtime_by_every_door_has_its_quota";
    let Some(lab) = Lab::start(test, "") else {
        return;
    };
    let mut cells = 0;
    for runtime in [Runtime::Runc, Runtime::Crun]
        .into_iter()
        .filter(|it| is_installed(*it))
    {
        for door in [Door::Hook, Door::Wrapper] {
            for read_only in [false, true] {
                for user_namespace in [false, true] {
                    cells += 1;
                    let id = format!("c{cells}");
                    let bundle = Bundle {
                        door,
                        read_only,
                        user_namespace,
                        ..Bundle::new(&id, runtime, &TWO)
                    };
                    let what = format!(
                        "{runtime:?} {door:?} read_only={read_only} user_namespace={user_namespace}"
                    );
                    eprintln!("{what}");
                    let mut guest = lab.run(&bundle).started();
                    assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB), "{what}");
                    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0", "{what}");
                    assert_eq!(
                        guest.ask(&format!("alloc {}", 2 * GIB)),
                        "alloc 2",
                        "{what}"
                    );
                    let row = lab.row(&id).expect("it is a tenant");
                    assert_eq!(row["charged"], GIB, "{what}");
                    guest.finish().silently();
                    until("its tenant ends", || lab.row(&id).is_none());
                }
            }
        }
    }
    eprintln!("{cells} cells passed");
}
