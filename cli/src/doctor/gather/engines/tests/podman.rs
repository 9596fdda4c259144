//! Podman's version, by Debian's list of packages.

use super::*;

/// A list with this version of Podman's package, in this state.
fn list(version: &str, state: &str) -> String {
    let package = |name: &str, version: &str, state: &str| {
        format!(
            "Package: {name}\nStatus: install ok {state}\nArchitecture: amd64\n\
             Version: {version}\nDescription: x\n Version: 9\n\n"
        )
    };
    package("podman-docker", "1.0-1", "installed")
        + &package("podman", version, state)
        + &package("runc", "1.1.5+ds1-1", "installed")
}

#[test]
fn a_podman_that_takes_annotations_of_images_over_is_known_by_its_version() {
    let machine = Machine::new(&["usr/bin/podman", "usr/bin/crun"]);
    let found = || machine.engine().images_annotate;
    assert_eq!(found(), None, "there is no list");
    for (version, is_one) in [
        ("4.3.1+ds1-8+deb12u1", true),
        ("3.4.4+ds1-1ubuntu1", true),
        ("1:4.5.0-1", true),
        ("4.5.1-1", false),
        ("4.5.1~rc1-1", false),
        ("4.10.0-2", false),
        ("5.4.2+ds1-2", false),
        ("10.0", false),
    ] {
        machine.put("var/lib/dpkg/status", &list(version, "installed"));
        assert_eq!(found().is_some(), is_one, "{version}");
    }
    machine.put("var/lib/dpkg/status", &list("4.3.1-8", "config-files"));
    assert_eq!(found(), None, "it is not installed");
    machine.put("var/lib/dpkg/status", &list("4.3.1+ds1-8", "installed"));
    assert_eq!(found().as_deref(), Some("4.3.1"));
    // runc opens nothing by annotations.
    let config = "etc/containers/containers.conf";
    machine.put(config, "[engine]\nruntime = \"runc\"\n");
    assert_eq!(found(), None);
    machine.put(config, "");
    fs::remove_file(machine.at("usr/bin/crun")).unwrap();
    assert_eq!(found(), None);
}
