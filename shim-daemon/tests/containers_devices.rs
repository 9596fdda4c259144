//! The devices that a container names: by index, UUID and file, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::container_node::*;
use crate::driver::{Backend, Driver};
use gpushare_protocol::units::GIB;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{Injection, WireError};
use gpushared::devices::{Device, Devices as _};
use gpushared::node::Settings;

#[test]
fn devices_are_named_and_unknown_ones_are_refused() {
    let mut machine = Machine::new();
    let first = First::start(&group("a"));
    let with = |devices: &[&str]| Injection {
        devices: devices.iter().map(ToString::to_string).collect(),
        ..asks("a", "1MiB")
    };
    for (devices, word) in [
        (&["7"][..], "no device \"7\""),
        (&["GPU-00000000-0000-0000-0000-000000000000"], "no device"),
        (&["all", "0"], "no device"),
        (&[""], "no device"),
        (&["00"], "no device"),
    ] {
        let refused = machine.inject(&with(devices), &first).unwrap_err();
        assert!(refused.message.contains(word), "{devices:?}: {refused}");
    }
    let all = Driver::of(Backend::Misc).list().unwrap().len();
    if all > 1 {
        let refused = machine.inject(&with(&[]), &first).unwrap_err();
        assert!(refused.message.contains("names no device"), "{refused}");
        assert!(!refused.message.contains("gpushare.io/containers"));
        // A sidecar, which has the pod's annotations.
        let mut sidecar = with(&[]);
        let name = ("pod_container".to_owned(), "istio-proxy".to_owned());
        sidecar.labels.push(name);
        let refused = machine.inject(&sidecar, &first).unwrap_err().message;
        let place = |word: &str| refused.find(word).unwrap_or_else(|| panic!("{refused}"));
        place("container istio-proxy names no device");
        assert!(place("gpushare.io/containers") < place("gpushare.io/devices"));
    }
    machine.inject(&with(&["all"]), &first).unwrap();
    assert_eq!(machine.made.last().unwrap().1.devices.len(), all);
}

#[test]
fn a_short_uuid_names_the_only_device_that_begins_so() {
    let mut known = Driver::of(Backend::Misc).list().unwrap();
    known[0].uuid = [0x45; 16];
    known[1].uuid = [0x45; 16];
    known[1].uuid[3] = 0xab;
    let asked = |name: &str| {
        let mut machine = Machine::of(&Settings::default(), known.clone(), false);
        let wanted = Injection {
            devices: vec![name.to_owned()],
            ..asks("a", "1GiB")
        };
        machine.inject(&wanted, &First::start(&group("a")))?;
        Ok::<_, WireError>(machine.tenants()[0].device)
    };
    for name in ["GPU-454545a", "GPU-454545AB", "GPU-454545ab-45"] {
        assert_eq!(asked(name).unwrap(), known[1].uuid, "{name}");
    }
    for (name, word) in [
        ("GPU-454545", "the beginning of several UUIDs"),
        ("GPU-45454", "no device"),
        ("GPU-", "no device"),
        ("MIG-454545a", "no device"),
        ("454545a", "no device"),
        ("GPU-454545abc", "no device"),
    ] {
        let refused = asked(name).unwrap_err();
        assert!(refused.message.contains(word), "{name}: {refused}");
    }
}

#[test]
fn a_device_file_names_the_device_of_its_minor_number() {
    let known = Driver::of(Backend::Misc).list().unwrap();
    let settings = Settings::default();
    let asked = |devices: Vec<Device>, files: &[&str]| {
        let mut machine = Machine::of(&settings, devices, false);
        let first = First::start(&group("a"));
        let wanted = Injection {
            devices: files.iter().map(ToString::to_string).collect(),
            ..asks("a", "1GiB")
        };
        machine.inject(&wanted, &first)?;
        let rows = machine.tenants().into_iter();
        Ok::<_, WireError>(rows.map(|row| row.device).collect::<Vec<_>>())
    };
    // NVML's order is that of the bus, and the driver's may be another.
    let mut turned = known.clone();
    (turned[0].minor, turned[1].minor) = (Some(1), Some(0));
    let [first, second] = [known[0].uuid, known[1].uuid];
    assert_eq!(asked(turned.clone(), &["/dev/nvidia0"]).unwrap(), [second]);
    let both = asked(turned.clone(), &["/dev/nvidia0", "/dev/nvidia1"]);
    assert_eq!(both.unwrap(), [first, second]);
    turned[1].minor = None;
    for none in [
        "/dev/nvidia2",
        "/dev/nvidia0",
        "/dev/nvidia",
        "/dev/nvidia01",
    ] {
        let refused = asked(turned.clone(), &[none]).unwrap_err();
        assert!(refused.message.contains("no device"), "{refused}");
    }
    // The file of a GPU in MIG mode is that of all its instances.
    for device in &mut turned {
        (device.minor, device.capabilities.mig) = (Some(0), true);
    }
    let refused = asked(turned.clone(), &["/dev/nvidia0"]).unwrap_err();
    for word in ["several MIG instances", "gpushare.io/devices"] {
        assert!(refused.message.contains(word), "{refused}");
    }
    turned[0].minor = Some(3);
    assert_eq!(asked(turned, &["/dev/nvidia0"]).unwrap(), [second]);
}

#[test]
fn limits_of_single_devices_count_in_the_daemons_order() {
    let known = Driver::of(Backend::Misc).list().unwrap();
    for devices in [["0", "1"], ["1", "0"]] {
        let mut machine = Machine::new();
        let first = First::start(&group("a"));
        let mut wanted = asks("a", "4GiB");
        let one = ("GPUSHARE_MEM_LIMIT_0".to_owned(), "1GiB".to_owned());
        wanted.environment.push(one);
        wanted.devices = devices.map(str::to_owned).into();
        machine.inject(&wanted, &first).unwrap();
        let rows = machine.tenants().into_iter();
        let limits: Vec<_> = rows.map(|row| (row.device, row.limit)).collect();
        let inside = [(known[0].uuid, GIB), (known[1].uuid, 4 * GIB)];
        assert_eq!(limits, inside, "{devices:?}");
    }
}

#[test]
fn a_device_that_is_named_twice_is_taken_once() {
    let known = Driver::of(Backend::Misc).list().unwrap();
    let uuid = Uuid(known[0].uuid).to_string();
    for devices in [["0", "0"], ["0", uuid.as_str()]] {
        let mut machine = Machine::new();
        let first = First::start(&group("a"));
        let wanted = Injection {
            devices: devices.map(str::to_owned).into(),
            ..asks("a", "1GiB")
        };
        machine.inject(&wanted, &first).unwrap();
        let rows = machine.tenants().into_iter();
        let devices: Vec<_> = rows.map(|row| row.device).collect();
        assert_eq!(devices, [known[0].uuid]);
    }
}

#[test]
fn a_limit_for_a_device_that_a_container_does_not_have_is_refused() {
    let with = |variable: &str| {
        let mut machine = Machine::new();
        let first = First::start(&group("a"));
        let mut wanted = asks("a", "4GiB");
        let one = (variable.to_owned(), "1GiB".to_owned());
        wanted.environment.push(one);
        wanted.devices = vec!["1".to_owned()];
        machine.inject(&wanted, &first)
    };
    let refused = with("GPUSHARE_MEM_LIMIT_1").unwrap_err();
    let begin = "GPUSHARE_MEM_LIMIT_1=\"1GiB\" is refused: the programs see no device 1,";
    assert!(refused.message.starts_with(begin), "{refused}");
    assert!(with("GPUSHARE_MEM_LIMIT_0").is_ok());
}

#[test]
fn a_value_for_a_lost_device_is_right_where_a_container_gets_all() {
    let mut machine = Machine::new();
    machine.loses(1);
    for (id, devices, is_right) in [("a", "all", true), ("b", "0", false)] {
        let first = First::start(&group(id));
        let mut wanted = asks(id, "4GiB");
        let one = ("GPUSHARE_MEM_LIMIT_1".to_owned(), "1GiB".to_owned());
        wanted.environment.push(one);
        wanted.devices = vec![devices.to_owned()];
        let begun = machine.inject(&wanted, &first);
        assert_eq!(begun.is_ok(), is_right, "{devices}: {begun:?}");
    }
    assert_eq!(machine.tenants().len(), 1, "of the device that is there");
}

#[test]
fn a_pods_container_names_only_devices_that_it_was_given() {
    let uuids: Vec<String> = Driver::of(Backend::Misc)
        .list()
        .unwrap()
        .iter()
        .map(Device::text)
        .collect();
    let told = |devices: &[&str], given: &[&str]| {
        let label = |name: &&str| ("given".to_owned(), (*name).to_owned());
        let injection = Injection {
            devices: devices.iter().map(ToString::to_string).collect(),
            labels: given.iter().map(label).collect(),
            ..asks("a", "1MiB")
        };
        let first = First::start(&group("a"));
        let told = Machine::new().inject(&injection, &first);
        told.map(drop).map_err(|error| error.message)
    };
    let [zero, one] = [uuids[0].as_str(), uuids[1].as_str()];
    for (devices, given) in [
        (&["0"][..], &["0"][..]),
        (&["0"], &[zero]),
        (&[zero], &["1", "0"]),
        (&["1"], &["all"]),
        (&["all"], &["all"]),
        // Of an older hook, or of no pod; and of a name that says nothing here.
        (&["all"], &[]),
        (&["all"], &["0:1"]),
    ] {
        assert_eq!(told(devices, given), Ok(()), "{devices:?} of {given:?}");
    }
    for (devices, given, has) in [
        (&["all"][..], &["0"][..], "gives it 0;"),
        (&["1"], &[zero], zero),
        (&["0", "1"], &["1"], zero),
        (&["0"], &[""], "no GPU"),
        (&["all"], &[""], "no GPU"),
    ] {
        let why = told(devices, given).unwrap_err();
        for word in ["container a", "not given", "gpushare.io/devices", has] {
            assert!(why.contains(word), "{word} in {why}");
        }
    }
    assert!(told(&["1"], &["0"]).unwrap_err().contains(one));
}

#[test]
fn a_container_gets_no_tenant_where_no_device_is_left() {
    let known = Driver::of(Backend::Misc).list().unwrap();
    let told = |there: usize, named: &[&str]| {
        let mut machine = Machine::of(&Settings::default(), known[..there].to_vec(), false);
        for device in 0..there {
            machine.loses(device);
        }
        let wanted = Injection {
            devices: named.iter().map(ToString::to_string).collect(),
            ..asks("a", "1MiB")
        };
        let refused = machine.inject(&wanted, &First::start(&group("a")));
        refused.unwrap_err().message
    };
    for (there, named) in [(0, &[][..]), (0, &["all"]), (0, &["0"])] {
        let text = told(there, named);
        assert!(text.contains("this node has no device"), "{text}");
        assert!(
            !text.contains("several") && !text.contains("some of"),
            "{text}"
        );
    }
    for (there, named) in [(1, &[][..]), (1, &["all"]), (2, &["all"])] {
        let text = told(there, named);
        assert!(text.contains("lost") && text.contains("restart"), "{text}");
    }
}
