//! The events that storing, fetching and forgetting cause.

use std::process::{Command, Stdio};

use super::presented::LATE;
use super::*;

#[test]
fn what_is_in_a_file_that_does_not_answer_is_lost_and_said() {
    let mut scene = Scene::new();
    let _ = scene.is_stored();
    scene.drops();
    scene.presents(77);
    scene.fetches(77);
    scene.waits_until(LATE - Nanos(1));
    assert!(!matches!(scene.told(), Reply::Refused(_)));
    scene.waits_until(LATE);
    assert_eq!(*scene.told(), Reply::Refused(Refusal::DataLost));
    scene.is_looked_at(LATE);
    scene.fetches(77);
    assert_eq!(scene.jobs.len(), 0, "a late look is thrown away");
    scene.presents(77);
    scene.is_looked_at(LATE);
    scene.fetches(77);
    assert_eq!(scene.jobs.len(), 1, "it can be presented again");
}

#[test]
fn a_process_that_forgets_what_is_in_no_file_causes_no_event() {
    let mut scene = Scene::out();
    let none = Stored {
        file: 7,
        at: 0,
        bytes: SIZE,
        sum: 0,
    };
    for _ in 0..10 {
        scene.says(&Request::HostForget(none));
    }
    assert_eq!(scene.said("fetched"), [""; 0]);
}

#[test]
fn the_last_bytes_that_leave_a_tenants_files_are_told_once() {
    let mut scene = Scene::new();
    let stored = scene.is_stored();
    scene.drops();
    scene.says(&Request::HostFetch(stored));
    scene.copy_ends();
    let other = Stored {
        at: stored.at + SIZE,
        ..stored
    };
    scene.says(&Request::HostForget(other));
    assert_eq!(scene.said("fetched"), [""; 0], "some are there still");
    scene.says(&Request::HostForget(stored));
    scene.says(&Request::HostForget(stored));
    let said = scene.said("fetched");
    let [text] = &said[..] else {
        panic!("{said:?}")
    };
    assert!(text.contains("4 MiB were read back"), "{text}");
}

#[test]
fn bytes_that_were_freed_in_their_file_are_not_told_to_be_read_back() {
    let mut scene = Scene::new();
    let stored = scene.is_stored();
    scene.drops();
    scene.says(&Request::HostForget(stored));
    let said = scene.said("fetched");
    assert_eq!(said, ["nothing of its memory is in files any more"]);
}

#[test]
fn a_flood_of_events_leaves_those_of_other_tenants_in_the_ring() {
    let mut scene = Scene::new();
    let _ = scene.is_stored();
    scene.drops();
    let of_another = |(_, tenant, _): &(String, Option<String>, String)| {
        tenant.as_deref().is_some_and(|name| name != "one")
    };
    scene.adds_a_tenant("two");
    let before = scene.events().into_iter().filter(of_another).count();
    assert_ne!(before, 0);
    for _ in 0..5_000 {
        scene.fetches(77);
    }
    let told = scene.said("memory-lost").len();
    assert!((1..1024 / 4).contains(&told), "{told}");
    let after = scene.events().into_iter().filter(of_another).count();
    assert_eq!(after, before);
    assert_eq!(scene.said("events-left-out"), [""; 0], "not yet");
    scene.node.tick(NOW + Nanos::secs(20));
    scene.work();
    let left_out = format!("{} more are not told", 5_000 - told);
    let said = scene.said("events-left-out");
    assert!(said.len() == 1 && said[0].contains(&left_out), "{said:?}");
}

/// One that came from a previous daemon may have had it there.
#[test]
fn a_fetch_from_a_file_that_never_was_is_refused_and_is_no_loss() {
    let mut scene = Scene::new();
    let stored = scene.is_stored();
    scene.drops();
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let new = client(ConnId(9), scene.tenant, None);
    let process = scene.joins(new, child.id());
    let first = std::mem::replace(&mut scene.client, Client { process, ..new });
    for _ in 0..3 {
        scene.fetches(77);
        assert_eq!(*scene.told(), Reply::Refused(Refusal::DataLost));
    }
    assert_eq!(scene.said("memory-lost"), [""; 0]);
    scene.client = first;
    scene.fetches(77);
    assert_eq!(scene.said("memory-lost").len(), 1);
    // What a file has and does not read back is lost, whichever daemon made it.
    let sum = stored.sum ^ 1;
    scene.says(&Request::HostFetch(Stored { sum, ..stored }));
    scene.copy_ends();
    assert_eq!(*scene.told(), Reply::Refused(Refusal::DataLost));
    assert_eq!(scene.said("memory-lost").len(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// As on a file system that compresses: the blocks of the file are fewer than its bytes.
#[test]
fn a_presented_file_is_kept_until_its_process_wants_none_of_it() {
    let mut scene = Scene::new();
    let _ = scene.is_stored();
    scene.drops();
    scene.presents(77);
    scene.is_looked_at(NOW);
    scene.says_what_it_has();
    let of_file = |at| Stored {
        file: 77,
        at,
        bytes: SIZE,
        sum: 0,
    };
    scene.says(&Request::HostForget(of_file(2 * SIZE)));
    scene.fetches(77);
    assert_eq!(scene.jobs.len(), 1, "other bytes of it are wanted still");
    scene.copy_ends();
    scene.says(&Request::HostForget(of_file(0)));
    scene.says(&Request::HostForget(Stored::all_of(77)));
    let before = scene.replies.len();
    scene.fetches(77);
    assert_eq!((scene.jobs.len(), scene.replies.len()), (0, before + 1));
    assert_eq!(*scene.told(), Reply::Refused(Refusal::DataLost));
}

#[test]
fn a_file_that_is_given_up_while_it_is_looked_at_is_not_kept() {
    let mut scene = Scene::new();
    let _ = scene.is_stored();
    scene.drops();
    scene.presents(77);
    scene.says(&Request::HostForget(Stored::all_of(77)));
    scene.is_looked_at(NOW);
    scene.fetches(77);
    assert_eq!(*scene.told(), Reply::Refused(Refusal::DataLost));
}

#[test]
fn a_file_of_which_all_bytes_are_forgotten_has_none() {
    let mut scene = Scene::new();
    let _ = scene.is_stored();
    scene.drops();
    scene.presents(77);
    scene.is_looked_at(NOW);
    scene.says(&Request::HostForget(Stored {
        file: 77,
        at: 0,
        bytes: SIZE,
        sum: 0,
    }));
    scene.fetches(77);
    assert_eq!(*scene.told(), Reply::Refused(Refusal::DataLost));
}
