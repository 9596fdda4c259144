//! Several devices: each has its own limits, collisions and books, whatever order a program sees
//! them in.

use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{Control, ControlReply};
use gpushare_tests::daemon::waits;
use gpushare_tests::{Daemon, GIB, Gpu, Guest, MIB, Tenant};

const OUT_OF_MEMORY: &str = "2";
const INVALID_VALUE: &str = "1";

/// A guest that has started CUDA, seeing the devices that `visible` names.
fn ready(tenant: &Tenant, visible: Option<&str>) -> Guest {
    let visible = visible.map(|visible| ("CUDA_VISIBLE_DEVICES", visible));
    tenant.client("quota", visible.as_slice()).started()
}

/// The total that each of these ordinals shows, in GiB.
fn totals(guest: &mut Guest, ordinals: u64) -> Vec<u64> {
    let total = |ordinal| {
        assert_eq!(guest.ask(&format!("on {ordinal}")), "on 0");
        let line = guest.ask("total");
        let bytes = line
            .strip_prefix("total ")
            .and_then(|rest| rest.strip_suffix(" 0"))
            .and_then(|bytes| bytes.parse::<u64>().ok());
        bytes.expect("a total and a result") / GIB
    };
    (0..ordinals).map(total).collect()
}

/// A limit for the device of this UUID.
fn named(uuid: [u8; 16]) -> String {
    format!("GPUSHARE_MEM_LIMIT_{}", Uuid(uuid)).replace('-', "_")
}

#[test]
fn each_device_keeps_its_own_limit_in_whatever_order_a_program_sees_them() {
    let gpu = Gpu::new("mem=16GiB,count=4");
    let daemon = Daemon::start(&gpu);
    let devices = daemon.devices();
    let by_uuid = named(devices[2]);
    let limits = [
        ("GPUSHARE_MEM_LIMIT", "8GiB"),
        ("GPUSHARE_MEM_LIMIT_1", "2GiB"),
        (by_uuid.as_str(), "3GiB"),
        // The UUID's limit takes precedence over the ordinal's.
        ("GPUSHARE_MEM_LIMIT_2", "5GiB"),
    ];
    let tenant = daemon.tenant("one", &limits);
    assert_eq!(totals(&mut ready(&tenant, None), 4), [8, 2, 3, 8]);
    let (third, second) = (Uuid(devices[2]).to_string(), Uuid(devices[1]).to_string());
    for (visible, shown) in [
        ("2,0".to_owned(), &[3, 8][..]),
        ("1".to_owned(), &[2]),
        (format!("{third},{second}"), &[3, 2]),
        // The first entry that names no device ends the list.
        (format!("3,{second},9,0"), &[8, 2]),
    ] {
        let mut guest = ready(&tenant, Some(&visible));
        let count = shown.len() as u64;
        assert_eq!(totals(&mut guest, count), shown, "{visible}");
        assert_ne!(guest.ask(&format!("on {count}")), "on 0", "{visible}");
    }
    // The limit also holds if the second device is the only one that the program sees.
    let mut guest = ready(&tenant, Some(&second));
    assert_eq!(
        guest.ask(&format!("fill {}", 512 * MIB)),
        format!("fill 4 {OUT_OF_MEMORY}")
    );
    let charged = daemon
        .rows("one")
        .iter()
        .map(|row| row.charged)
        .collect::<Vec<_>>();
    assert_eq!(charged, [0, 2 * GIB, 0, 0]);
}

#[test]
fn ordinals_of_limits_follow_the_order_the_tenant_was_registered_in() {
    let gpu = Gpu::new("mem=16GiB,count=3");
    let daemon = Daemon::start(&gpu);
    let [first, _, third] = daemon.devices()[..] else {
        panic!("three devices")
    };
    let limits = [
        ("GPUSHARE_MEM_LIMIT_0", "1GiB"),
        ("GPUSHARE_MEM_LIMIT_1", "2GiB"),
    ];
    let tenant = daemon.tenant_on("one", &limits, &[third, first]);
    assert_eq!(totals(&mut ready(&tenant, Some("2,0")), 2), [1, 2]);
    assert_eq!(totals(&mut ready(&tenant, Some("0,2")), 2), [2, 1]);
    let rows = daemon.rows("one");
    let shown: Vec<_> = rows.iter().map(|row| (row.device, row.limit)).collect();
    assert_eq!(shown, [(third, GIB), (first, 2 * GIB)]);
}

#[test]
fn a_program_that_sees_a_device_its_tenant_was_not_given_gets_no_cuda() {
    let gpu = Gpu::new("mem=16GiB,count=2");
    let daemon = Daemon::start(&gpu);
    let devices = daemon.devices();
    let tenant = daemon.tenant_on("one", &[("GPUSHARE_MEM_LIMIT", "1GiB")], &devices[..1]);
    let mut guest = tenant.client("quota", &[]);
    assert_eq!(guest.ask("init"), format!("init {INVALID_VALUE}"));
    let ended = guest.finish();
    assert!(
        ended.stderr.contains(&Uuid(devices[1]).to_string())
            && ended.stderr.contains("CUDA_VISIBLE_DEVICES"),
        "{ended:?}"
    );
    assert_eq!(totals(&mut ready(&tenant, Some("0")), 1), [1]);
}

#[test]
fn a_collision_on_one_device_leaves_the_other_alone() {
    let gpu = Gpu::new("mem=16GiB,count=2");
    let daemon = Daemon::start(&gpu);
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "12GiB"),
    ];
    let [a, b, c] = ["a", "b", "c"].map(|name| daemon.tenant(name, &limits));
    let (mut a, mut b, mut c) = (ready(&a, None), ready(&b, None), ready(&c, None));
    assert_eq!(a.ask(&format!("alloc {}", 10 * GIB)), "alloc 0");
    b.send(&format!("alloc {}", 8 * GIB));
    daemon.until_one_waits("b");
    // On the other device every tenant gets free memory, while b waits on this one.
    assert_eq!(c.ask("on 1"), "on 0");
    assert_eq!(c.ask(&format!("alloc {}", 10 * GIB)), "alloc 0");
    assert_eq!(a.ask("on 1"), "on 0");
    assert_eq!(a.ask(&format!("alloc {GIB}")), "alloc 0");
    let rows = daemon.rows("b");
    assert!(!waits(&rows[1]), "{rows:?}");
    // Memory of the other device does not end the wait; memory of this one does.
    assert_eq!(c.ask("free 1"), "free 0");
    assert!(waits(&daemon.row("b")));
    assert_eq!(a.ask("free 2"), "free 0");
    assert_eq!(b.line(), "alloc 0");
}

#[test]
fn a_program_on_two_devices_is_on_both_books_and_leaves_both() {
    let gpu = Gpu::new("mem=16GiB,count=2");
    let daemon = Daemon::start(&gpu);
    let limits = [("GPUSHARE_MEM_LIMIT", "4GiB")];
    let tenant = daemon.tenant("one", &limits);
    let mut guest = ready(&tenant, None);
    let pid = guest.id();
    for (ordinal, bytes) in [(0, 3 * GIB), (1, 2 * GIB)] {
        assert_eq!(guest.ask(&format!("on {ordinal}")), "on 0");
        assert_eq!(guest.ask(&format!("alloc {bytes}")), "alloc 0");
    }
    assert_eq!(
        guest.ask(&format!("alloc {}", 3 * GIB)),
        format!("alloc {OUT_OF_MEMORY}")
    );
    let rows = daemon.rows("one");
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (row.charged, row.processes[0].pid, row.processes[0].charged))
        .collect();
    assert_eq!(shown, [(3 * GIB, pid, 3 * GIB), (2 * GIB, pid, 2 * GIB)]);
    guest.kill();
    daemon.until("one", |row| row.processes.is_empty());
    let mut other = ready(&tenant, None);
    for ordinal in [1, 0] {
        assert_eq!(other.ask(&format!("on {ordinal}")), "on 0");
        assert_eq!(other.ask(&format!("alloc {}", 4 * GIB)), "alloc 0");
    }
}

#[test]
fn a_limit_is_changed_on_one_device_only() {
    let gpu = Gpu::new("mem=16GiB,count=2");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "2GiB")]);
    let mut guest = ready(&tenant, None);
    let change = named(daemon.devices()[1]);
    let set = Control::Set {
        tenant: "one".to_owned(),
        changes: vec![(change, "6GiB".to_owned())],
    };
    assert!(matches!(daemon.commands().ask(&set), ControlReply::Done));
    let limits: Vec<_> = daemon.rows("one").iter().map(|row| row.limit).collect();
    assert_eq!(limits, [2 * GIB, 6 * GIB]);
    assert_eq!(
        guest.ask(&format!("fill {GIB}")),
        format!("fill 2 {OUT_OF_MEMORY}")
    );
    assert_eq!(guest.ask("on 1"), "on 0");
    assert_eq!(
        guest.ask(&format!("fill {GIB}")),
        format!("fill 6 {OUT_OF_MEMORY}")
    );
}
