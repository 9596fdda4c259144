#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use serde_json::json;

const FOLDER_OF_CLASS: &str = "/run/gpushare/classes/half";
const VERSION: &str = "/usr/lib/gpushare/versions/1";

fn mount(source: &str, place: &str) -> Value {
    json!({"source": source, "destination": place})
}

/// The mounts of a class, as its specification has them.
fn of_class() -> [Value; 4] {
    let preload = format!("{FOLDER_OF_CLASS}/ld.so.preload");
    [
        mount(FOLDER_OF_CLASS, FOLDER),
        mount(&preload, PRELOADED),
        mount(VERSION, LIBRARY_FOLDER),
        mount(&preload, PRELOADED_BY_NIX),
    ]
}

/// The class of a container with these mounts.
fn class(mounts: &[Value]) -> Option<Class> {
    Class::of(&json!({"mounts": mounts}))
}

#[test]
fn a_class_is_known_by_its_folder_and_a_library() {
    let whole = of_class();
    let known = Some(Class {
        folder: FOLDER_OF_CLASS.to_owned(),
        library: VERSION.to_owned(),
    });
    assert_eq!(class(&whole), known);
    assert_eq!(known.as_ref().unwrap().name(), "half");
    assert_eq!(class(&[]), None);
    for at in 0..3 {
        assert_eq!(class(&[&whole[..at], &whole[at + 1..]].concat()), None);
    }
    // An older specification has none for Nix.
    assert_eq!(class(&whole[..3]), known);
    for at in [0, 1, 3] {
        // A later mount at the same place covers it.
        let covered = mount("/other", whole[at]["destination"].as_str().unwrap());
        assert_eq!(class(&[&whole[..], &[covered]].concat()), None, "{at}");
    }
}

#[test]
fn a_mount_that_hides_a_part_of_a_class_makes_it_none() {
    let whole = of_class();
    for place in [
        "/usr/lib/gpushare/libgpushare.so",
        "/usr/lib/./gpushare//libgpushare.so",
        "/usr/lib/x/../gpushare/libgpushare.so",
        "/usr/lib",
        "/usr/",
        "/",
        "run/gpushare",
        "/run/gpushare/gpushare.sock",
        "/etc",
        "/etc/",
    ] {
        let odd = mount("/dev/null", place);
        assert_eq!(
            class(&[&whole[..], std::slice::from_ref(&odd)].concat()),
            None,
            "{place}"
        );
        // A mount that comes before is covered by ours.
        assert!(class(&[&[odd][..], &whole].concat()).is_some(), "{place}");
    }
    for place in [
        "/usr/lib/gpushare-x",
        "/usr/libexec",
        "/run/secrets",
        // Over the socket folder it leaves the container's programs without CUDA (ADR 220).
        "/run",
        "/etc/hosts",
        "/etc/ld.so.conf",
        "/data",
    ] {
        let other = mount("/x", place);
        assert!(class(&[&whole[..], &[other]].concat()).is_some(), "{place}");
    }
}
