//! Root's tenant on a machine of several users. Another user cannot join it; a program in the
//! tenant's own cgroup can, whatever user its image chose.

use gpushare_tests::machine::{ALICE, BOB, Cgroup, Machine, ROOT};
use gpushare_tests::{GIB, Guest};

const LIMITS: [&str; 4] = ["--name", "roots", "--mem-limit", "2GiB"];

#[test]
fn a_user_neither_joins_roots_tenant_nor_changes_what_it_may_have() {
    let test = "a_user_neither_joins_roots_tenant_nor_changes_what_it_may_have";
    let Some(machine) = Machine::start(test) else {
        return;
    };
    let mut own = machine.guest(ROOT, &LIMITS).started();
    for user in [ALICE, BOB] {
        let mut intruder = machine.into_it(user, "roots");
        assert_ne!(intruder.ask("init"), "init 0", "it has no CUDA");
        let row = machine.row(ROOT, "roots").expect("it runs");
        assert_eq!(row["processes"].as_array().map(Vec::len), Some(1), "{row}");
        drop(intruder);
    }
    own.does(&format!("alloc {GIB}"));
    own.does(&format!("alloc {}", GIB / 2));
    own.answers(&format!("alloc {GIB}"), "2");
    let mut second = machine.into_it(ROOT, "roots");
    assert_eq!(second.ask("init"), "init 0", "root's own does");
    drop(second);
    own.finish().silently();
}

#[test]
fn a_program_of_another_user_in_the_tenants_cgroup_joins_it() {
    let test = "a_program_of_another_user_in_the_tenants_cgroup_joins_it";
    let Some(machine) = Machine::start(test) else {
        return;
    };
    let Some(cgroup) = Cgroup::new(test) else {
        return;
    };
    let own = machine.guest(ROOT, &LIMITS).started();
    let mut inside = machine.quota_in(ALICE, "roots");
    inside = cgroup.around(&inside);
    let mut inside = Guest::start(inside);
    assert_eq!(inside.ask("init"), "init 0");
    inside.does(&format!("alloc {GIB}"));
    inside.answers(&format!("alloc {}", 2 * GIB), "2");
    let row = machine.row(BOB, "roots").expect("it runs");
    assert_eq!(row["processes"].as_array().map(Vec::len), Some(2), "{row}");
    let mut outside = machine.into_it(ALICE, "roots");
    assert_ne!(outside.ask("init"), "init 0", "the same user elsewhere");
    drop(outside);
    inside.finish().silently();
    own.finish().silently();
}
