//! Memory that moves and belongs to no pool, freed in a stream's order: the free waits for no work,
//! and an allocation that needs its room waits for the free.

use std::fs;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use gpushare_protocol::wire::{Refusal, Reply, Request};
use gpushare_tests::movable::{Scene, same};
use gpushare_tests::waiting::PATIENCE;
use gpushare_tests::{MIB, assert_measured, until};

const SPEC: &str = "mem=1GiB,ctx=8MiB,driver=13050";

/// The device's limit allows one allocation of 60 MiB, not two.
fn limited(scene: Scene) -> Scene {
    let limit = &scene.dealer.usage().devices[0].limit;
    limit.store(80 * MIB, Ordering::Relaxed);
    scene
}

/// The value is written by the thread that frees: a free that waited for the stream would never
/// return. The driver's does not wait.
#[test]
fn a_free_in_a_streams_order_waits_for_no_work() {
    let mut scene = Scene::new(SPEC);
    let mut bare = scene.bare();
    let lines = [
        "alloc 0 4194304",
        "alloc 1 1000",
        "fill 0 1",
        "fill 1 2",
        "hold 2",
        "later 0 2",
        "later 1 2",
    ];
    same(&mut scene, &mut bare, &lines);
    let charged = scene.charged();
    assert!(charged >= 4 * MIB, "the stream has not come to it");
    same(&mut scene, &mut bare, &["release", "sync 2", "later 0 2"]);
    // The mover's thread may be giving it back at this moment.
    until("it is given back", || scene.charged() == charged - 4 * MIB);
    scene.guest.finish().silently();
    bare.finish().silently();
}

/// The driver waits for all work when it frees managed memory.
#[test]
fn managed_memory_freed_in_a_streams_order_goes_once_all_work_is_over() {
    let mut scene = Scene::managed(SPEC);
    scene.does(&["alloc 0 4194304", "fill 0 1", "hold 2"]);
    let charged = scene.charged();
    scene.does(&["later 0 2"]);
    assert_eq!(scene.charged(), charged);
    scene.does(&["release", "sync 2"]);
    until("it is given back", || scene.charged() == charged - 4 * MIB);
    scene.guest.finish().silently();
}

#[test]
fn memory_freed_in_a_streams_order_makes_room_at_the_limit() {
    let mut scene = limited(Scene::new(SPEC));
    scene.does(&["alloc 15 1000", "alloc 0 62914560", "set 0 7", "hold 2"]);
    scene.guest.answers("alloc 1 62914560", "2");
    scene.does(&["later 0 2"]);
    scene.guest.answers("alloc 1 62914560", "2");
    // The free is waited for, though the program has not.
    scene.does(&["release", "alloc 1 62914560", "later 1 2"]);
    scene.does(&["alloc 1 62914560", "fill 1 1"]);
    scene.guest.answers("check 1 1", "0");
    scene.guest.finish().silently();
}

#[test]
fn memory_freed_in_a_streams_order_comes_and_goes_until_then() {
    let mut scene = Scene::new(SPEC);
    scene.does(&["alloc 0 4194304", "fill 0 1", "alloc 1 4194304", "fill 1 2"]);
    scene.provided(scene.charged());
    scene.leaves();
    // It changes the books alone.
    scene.does(&["later 0 1"]);
    scene.returns();
    scene.does(&["sync 1"]);
    // The mover's thread may be giving it back at this moment.
    until("the freed memory is given back", || {
        (scene.on_device(), scene.charged()) == (4 * MIB, 4 * MIB)
    });
    scene.guest.answers("check 1 2", "0");
    scene.guest.finish().silently();
}

/// The driver's free of managed memory waits for all work, and the mover's thread makes it.
#[test]
fn managed_memory_freed_in_a_streams_order_makes_room_at_the_limit() {
    let mut scene = limited(Scene::managed(SPEC));
    scene.does(&["alloc 0 62914560", "set 0 7", "hold 2", "later 0 2"]);
    scene.guest.answers("alloc 1 62914560", "2");
    scene.does(&["release", "alloc 1 62914560"]);
    for _ in 0..4 {
        scene.does(&["later 1 2", "sync 2", "alloc 1 62914560"]);
    }
    scene.does(&["fill 1 1"]);
    scene.guest.answers("check 1 1", "0");
    scene.guest.finish().silently();
}

/// The mover's thread naps for a second where nothing wakes it.
#[test]
fn a_wait_of_the_host_has_freed_managed_memory_given_back_at_once() {
    const TIMES: u32 = 16;
    let mut scene = Scene::managed(SPEC);
    let began = Instant::now();
    for _ in 0..TIMES {
        scene.does(&["alloc 0 4194304", "later 0 2", "sync 2"]);
        until("it is given back", || scene.charged() == 0);
    }
    let took = began.elapsed();
    assert_measured!(took < Duration::from_secs(1) * TIMES / 2, "{took:?}");
    scene.guest.finish().silently();
}

#[test]
fn an_allocation_waits_for_the_return_of_memory_that_was_freed_while_away() {
    let mut scene = limited(Scene::new(SPEC));
    scene.does(&["alloc 0 62914560", "fill 0 1"]);
    scene.provided(scene.charged());
    scene.leaves();
    scene.does(&["later 0 1"]);
    // Even with that room it would not fit.
    scene.guest.answers("alloc 1 104857600", "2");
    scene.waits_for_return("alloc 1 62914560");
    scene.does(&["fill 1 2"]);
    scene.guest.answers("check 1 2", "0");
    assert_eq!(scene.charged(), 60 * MIB);
    scene.guest.finish().silently();
}

/// Its limit has room, so its wait for a grant takes none of the time that the return takes.
#[test]
fn an_allocation_that_lacks_a_grant_asks_for_it_before_memory_returns() {
    let mut scene = Scene::new(SPEC);
    scene.does(&["alloc 0 62914560", "fill 0 1"]);
    scene.provided(scene.charged());
    scene.leaves();
    scene.does(&["later 0 1"]);
    let (says, said) = channel();
    let header = &scene.dealer.page().header;
    header.wait_ms.store(60_000, Ordering::Relaxed);
    header.guarantee_ms.store(60_000, Ordering::Relaxed);
    let grant = &scene.dealer.page().devices[0].grant;
    grant.store(64 * MIB, Ordering::Relaxed);
    let (raised, is_raised): (Sender<()>, _) = channel();
    scene.dealer.bank(move |request| {
        match request {
            // Refused at once, while the process looks for memory of its own.
            Request::Ask(ask) if ask.patience_ms == Some(0) => {
                return Some(Reply::Refused(Refusal::NoMemory));
            }
            Request::Ask(_) => {
                let _ = says.send(());
                let _ = is_raised.recv();
            }
            _ => {}
        }
        Some(Reply::Granted { grant: 1024 * MIB })
    });
    scene.guest.send("alloc 1 62914560");
    said.recv_timeout(PATIENCE).expect("it asks");
    let grant = &scene.dealer.page().devices[0].grant;
    grant.store(1024 * MIB, Ordering::SeqCst);
    raised.send(()).expect("it waits for that");
    scene.returns();
    assert_eq!(scene.guest.line(), "alloc 0");
    scene.guest.finish().silently();
}

#[test]
fn managed_memory_freed_while_away_makes_room_after_its_return() {
    let mut scene = limited(Scene::managed(SPEC));
    scene.does(&["alloc 0 31457280", "alloc 1 31457280", "fill 1 3"]);
    scene.leaves();
    scene.does(&["later 0 1"]);
    scene.waits_for_return("alloc 2 41943040");
    scene.guest.answers("check 1 3", "0");
    scene.guest.finish().silently();
}

/// The mover's thread is in the driver with the memory that another thread needs.
#[test]
fn an_allocation_waits_for_memory_that_another_thread_gives_back() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let file = file.into_temp_path();
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let hold = format!("cuMemUnmap:{}", file.display());
    let environment = [
        ("SOFTGPU_HOLD", hold.as_str()),
        ("SOFTGPU_TRACE", trace.path().to_str().expect("a path")),
    ];
    let mut scene = limited(Scene::with(SPEC, "init", &environment));
    scene.does(&["alloc 0 62914560", "later 0 1"]);
    until("it is being given back", || {
        fs::metadata(&file).expect("a file").len() > 0
    });
    fs::write(trace.path(), "").expect("writable");
    scene.guest.send("alloc 1 62914560");
    // The driver is asked for the call's errors before memory is waited for.
    until("it did not fit", || {
        let trace = fs::read_to_string(trace.path()).expect("readable");
        trace.contains("cuMemAlloc")
    });
    drop(file);
    assert_eq!(scene.guest.line(), "alloc 0");
    scene.guest.finish().silently();
}
