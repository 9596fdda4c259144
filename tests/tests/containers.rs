//! Containers under the machine's daemon, brought in by the OCI hook. No runtime is needed: a
//! script makes the container's mounts, cgroup and root as one does.

use gpushare_tests::container::{Bundle, Lab, Runtime};
use gpushare_tests::{GIB, until};

#[test]
fn a_container_sees_its_quota_and_hits_it() {
    let test = "a_container_sees_its_quota_and_hits_it";
    let Some(lab) = Lab::start(test, "") else {
        return;
    };
    let limits = [("mem-limit", "2GiB"), ("devices", "0")];
    let mut guest = lab
        .run(&Bundle::new("one", Runtime::ByHand, &limits))
        .started();
    let total = guest.ask("total");
    assert_eq!(total, format!("total {} 0", 2 * GIB));
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), "alloc 2");
    let row = lab.row("one").expect("it is a tenant");
    assert_eq!(
        (&row["limit"], &row["charged"]),
        (&(2 * GIB).into(), &GIB.into())
    );
    guest.finish().silently();
    until("its tenant ends with it", || lab.row("one").is_none());
}
