//! The GPU that NVIDIA's runtime gives a container on a machine with several: it takes the name
//! that a device plugin gave out of the configuration, and puts the device's file into it.

use gpushare_tests::container::{Bundle, Lab, Runtime};
use gpushare_tests::{GIB, until};
use serde_json::Value;

fn lab() -> Option<Lab> {
    let test = std::thread::current();
    Lab::start_with(test.name().unwrap_or("containers_devices"), "count=2", "")
}

/// A container that asks for memory and names no device; the runtime has left this variable.
fn given(id: &str, gpu: u32, variable: &str) -> Bundle {
    Bundle {
        environment: vec![
            "NVIDIA_VISIBLE_DEVICES=GPU-1".to_owned(),
            format!("NVIDIA_VISIBLE_DEVICES={variable}"),
            // A real device without a file in the container is none there.
            format!("CUDA_VISIBLE_DEVICES={gpu}"),
        ],
        gpus: vec![gpu, 255],
        ..Bundle::new(id, Runtime::ByHand, &[("mem-limit", "2GiB")])
    }
}

#[test]
fn a_container_is_a_tenant_of_the_gpu_that_nvidias_runtime_gave_it() {
    let Some(lab) = lab() else { return };
    let mut devices: Vec<Value> = Vec::new();
    for (id, gpu) in [("one", 1), ("zero", 0)] {
        let mut guest = lab.run(&given(id, gpu, "void")).started();
        assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
        assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
        let row = lab.row(id).expect("it is a tenant");
        assert_eq!(row["charged"], GIB, "{row}");
        devices.push(row["device"].clone());
        guest.finish().silently();
        until("its tenant ends with it", || lab.row(id).is_none());
    }
    assert_ne!(devices[0], devices[1]);
}

#[test]
fn device_files_that_no_runtime_of_nvidias_gave_name_nothing() {
    let Some(lab) = lab() else { return };
    let ended = lab.ends(&given("one", 1, "none"));
    assert!(!ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("names no device"), "{ended:?}");
}

#[test]
fn a_pod_is_refused_that_names_a_gpu_that_it_was_not_given() {
    let Some(lab) = lab() else { return };
    let names = |id: &str, devices: &str, namespace: Option<&str>| {
        let mut bundle = given(id, 1, "void");
        let of = "io.kubernetes.cri.sandbox-namespace";
        let namespace = namespace.map(|name| (of.to_owned(), name.to_owned()));
        let devices = ("gpushare.io/devices".to_owned(), devices.to_owned());
        bundle.annotations.extend(namespace);
        bundle.annotations.push(devices);
        bundle
    };
    let ended = lab.ends(&names("one", "all", Some("team")));
    assert!(!ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("not given"), "{ended:?}");
    // Its own one, and any of a container of no pod.
    for own in [names("two", "1", Some("team")), names("three", "all", None)] {
        let mut guest = lab.run(&own).started();
        assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
        guest.finish().silently();
    }
}
