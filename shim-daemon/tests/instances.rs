//! MIG: each instance is a device of its own, and the GPU it is part of is none. The daemon is
//! real, NVML is a C double (`data/nvml_of_mig.c`) that it loads as it would NVIDIA's.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::binary::Binary;
use crate::container_node::First;
use gpushare_protocol::units::GIB;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{
    Control, ControlReply, DeviceRow, Injection, Listing, Rows, WireError,
};
use std::os::fd::AsRawFd;

fn devices(daemon: &Binary) -> Vec<DeviceRow> {
    match daemon.command().call(&Listing::Devices.first()) {
        ControlReply::Page {
            rows: Rows::Devices(rows),
            ..
        } => rows,
        other => panic!("{other:?}"),
    }
}

fn uuid(text: &str) -> [u8; 16] {
    Uuid::parse(text, '-').unwrap().0
}

const SMALL: &str = "MIG-11111111-1111-1111-1111-111111111111";
const LARGE: &str = "MIG-22222222-2222-2222-2222-222222222222";
const WHOLE: &str = "GPU-00000000-0000-0000-0000-0000000000bb";

#[test]
fn instances_are_devices_and_the_gpu_they_are_part_of_is_none() {
    let daemon = Binary::start();
    let rows = devices(&daemon);
    let shown: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row.uuid,
                row.capacity / GIB,
                row.capabilities.iter().any(|name| name == "mig"),
            )
        })
        .collect();
    // NVML's reserved memory is not unmanaged.
    let wanted = [(SMALL, 9, true), (LARGE, 40, true), (WHOLE, 79, false)];
    assert_eq!(shown, wanted.map(|(text, gib, mig)| (uuid(text), gib, mig)));
}

#[test]
fn what_a_process_holds_on_one_instance_is_not_held_on_another() {
    let daemon = Binary::start();
    unmanaged(&daemon, [GIB, 0, 0]);
}

#[test]
fn an_older_driver_is_asked_by_the_functions_it_has() {
    let daemon = Binary::with(&["-DOLD"], "");
    let capacities: Vec<u64> = devices(&daemon)
        .iter()
        .map(|row| row.capacity / GIB)
        .collect();
    assert_eq!(capacities, [10, 40, 80]);
    // NVML counts its reserved memory as used.
    unmanaged(&daemon, [2 * GIB, 0, GIB]);
    let capabilities = &devices(&daemon)[0].capabilities;
    assert!(
        capabilities.contains(&"process-memory".to_owned()),
        "{capabilities:?}"
    );
}

/// Waits until the unmanaged memory on each device is this: the first looks, one a device, are
/// under way when the daemon serves.
#[track_caller]
fn unmanaged(daemon: &Binary, wanted: [u64; 3]) {
    let end = std::time::Instant::now() + crate::support::PATIENCE;
    loop {
        let unmanaged: Vec<u64> = devices(daemon).iter().map(|row| row.unmanaged).collect();
        if unmanaged == wanted {
            return;
        }
        assert!(std::time::Instant::now() < end, "{unmanaged:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_tenant_is_registered_on_an_instance_by_uuid_and_part() {
    let daemon = Binary::start();
    let mut wire = daemon.command();
    let create = |name: &str, device: &str| Control::Create {
        name: Some(name.to_owned()),
        environment: vec![
            (
                format!("GPUSHARE_MEM_LIMIT_{}", LARGE.replace('-', "_")),
                "50%".to_owned(),
            ),
            ("GPUSHARE_MEM_REQUEST".to_owned(), "0.25GiB".to_owned()),
        ],
        devices: vec![uuid(device)],
    };
    let created: ControlReply = wire.call(&create("one", LARGE));
    assert!(
        matches!(created, ControlReply::Created { .. }),
        "{created:?}"
    );
    let ControlReply::Page {
        rows: Rows::Tenants(rows),
        ..
    } = wire.call(&Listing::Tenants.first())
    else {
        panic!("a list")
    };
    assert_eq!((rows[0].device, rows[0].limit), (uuid(LARGE), 20 * GIB));
    let whole = "GPU-00000000-0000-0000-0000-0000000000aa";
    let refused: ControlReply = wire.call(&create("two", whole));
    assert!(matches!(refused, ControlReply::Error(_)), "{refused:?}");
}

/// Registers a container with these devices. Returns the device that it is on.
fn inject(daemon: &Binary, first: &First, device: &str) -> Result<[u8; 16], WireError> {
    let injection = Injection {
        id: "one".to_owned(),
        environment: vec![("GPUSHARE_MEM_LIMIT".to_owned(), "1GiB".to_owned())],
        devices: vec![device.to_owned()],
        ..Injection::default()
    };
    let mut wire = daemon.command();
    let init = first.init();
    let id = wire.ask_with(&Control::Inject(injection), &[init.pidfd.as_raw_fd()]);
    match wire.answer(id) {
        ControlReply::Created { .. } => {}
        ControlReply::Error(error) => return Err(error),
        other => panic!("{other:?}"),
    }
    match wire.call(&Listing::Tenants.first()) {
        ControlReply::Page {
            rows: Rows::Tenants(rows),
            ..
        } => Ok(rows[0].device),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_container_names_an_instance_by_index_or_uuid_not_by_its_file() {
    // The stand-in's cgroup is the daemon's.
    let config = "[containers]\nno_cgroup = \"socket\"\n";
    let daemon = Binary::configured(&[], "", config);
    let bare = LARGE.strip_prefix("MIG-").unwrap();
    for (named, is) in [
        (LARGE, LARGE),
        // As the daemon listed instances before.
        (&LARGE.replace("MIG", "GPU"), LARGE),
        (bare, LARGE),
        ("1", LARGE),
        (WHOLE, WHOLE),
        (&WHOLE.replace("bb", "BB"), WHOLE),
        ("/dev/nvidia0", WHOLE),
    ] {
        let first = First::start("");
        assert_eq!(inject(&daemon, &first, named).unwrap(), uuid(is), "{named}");
        drop(first);
        crate::support::until("its tenant ends with it", || {
            let rows: ControlReply = daemon.command().call(&Listing::Tenants.first());
            matches!(rows, ControlReply::Page { rows: Rows::Tenants(rows), .. } if rows.is_empty())
        });
    }
    let first = First::start("");
    let other = LARGE.replace("2222-", "2223-");
    let parent = "GPU-00000000-0000-0000-0000-0000000000aa";
    for none in [&*other, parent, "3", "MIG-2", "mig"] {
        let refused = inject(&daemon, &first, none).unwrap_err().message;
        let listed = format!("0 ({SMALL}), 1 ({LARGE}), 2 ({WHOLE})");
        assert!(refused.contains(&listed), "{refused}");
    }
    let refused = inject(&daemon, &first, "/dev/nvidia1").unwrap_err().message;
    assert!(refused.contains("several MIG instances"), "{refused}");
}

#[test]
fn a_gpu_lost_at_the_start_leaves_the_others_served() {
    let daemon = Binary::with(&["-DLOST"], "");
    let shown: Vec<_> = devices(&daemon).iter().map(|row| row.uuid).collect();
    assert_eq!(shown, [uuid(WHOLE)]);
    let told = lost(&daemon, WHOLE);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("device 0"), "{told:?}");
}

#[test]
fn a_gpu_in_mig_mode_without_an_instance_leaves_the_others_served() {
    let daemon = Binary::with(&["-DBARE=1"], "");
    let shown: Vec<_> = devices(&daemon).iter().map(|row| row.uuid).collect();
    assert_eq!(shown, [uuid(WHOLE)]);
}

/// The events of this daemon so far that tell of a lost GPU.
fn lost(daemon: &Binary, served: &str) -> Vec<String> {
    let mut command = daemon.command();
    let id = command.ask(&Control::Follow { past: 100 });
    let mut told = Vec::new();
    // The last event is that of a tenant, which comes when the past is told.
    let named = Control::Create {
        name: Some("last".to_owned()),
        environment: vec![],
        devices: vec![uuid(served)],
    };
    let mut other = daemon.command();
    let created: ControlReply = other.call(&named);
    assert!(
        matches!(created, ControlReply::Created { .. }),
        "{created:?}"
    );
    loop {
        let ControlReply::Event(record) = command.answer(id) else {
            panic!("an event")
        };
        match &*record.kind {
            "lost" => told.push(record.text),
            "admitted" => break told,
            _ => {}
        }
    }
}

#[test]
fn a_gpu_without_memory_of_its_own_leaves_the_others_served() {
    for flags in [&["-DUNIFIED=1"][..], &["-DUNIFIED=1", "-DOLD"]] {
        let daemon = Binary::with(flags, "");
        let shown: Vec<_> = devices(&daemon).iter().map(|row| row.uuid).collect();
        assert_eq!(shown, [uuid(SMALL), uuid(LARGE)], "{flags:?}");
        assert_eq!(lost(&daemon, SMALL), [""; 0], "{flags:?}");
    }
}

#[test]
fn compute_instances_that_share_their_memory_are_not_served() {
    let daemon = Binary::with(&["-DDIVIDED"], "");
    let shown: Vec<_> = devices(&daemon).iter().map(|row| row.uuid).collect();
    // The two of the first GPU instance would each have all of its memory.
    assert_eq!(shown, [uuid(LARGE), uuid(WHOLE)]);
    let refused = daemon.command().call(&Control::Create {
        name: None,
        environment: vec![],
        devices: vec![uuid(SMALL)],
    });
    assert!(matches!(refused, ControlReply::Error(_)), "{refused:?}");
}
