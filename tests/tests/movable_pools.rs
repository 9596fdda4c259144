//! Stream-ordered allocations move too, where their pool cannot be exported. A pool's rules,
//! attributes and refusals are the driver's; beside it runs the bare driver, which must answer the
//! same.

use std::sync::atomic::Ordering;

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::Request;
use gpushare_tests::movable::{Outcome, Scene, failing_steps, same};
use gpushare_tests::{MIB, until};

const SPEC: &str = "mem=1GiB,ctx=8MiB,driver=13050";

#[test]
fn pool_memory_leaves_and_comes_back_with_every_byte() {
    let mut scene = Scene::new(SPEC);
    scene.does(&["pool 1 0 0"]);
    let lines = [
        "async 0 1000 0",
        "async 1 5000000 1",
        "async 2 70000001 2",
        "from 3 1 0 1",
        "from 4 70000 1 1",
    ];
    for (slot, line) in lines.iter().enumerate() {
        scene.does(&[line, "sync 0", "sync 1", "sync 2"]);
        scene.does(&[&format!("fill {slot} {slot}")]);
    }
    scene.all_comes_and_goes(160 * MIB, lines.len());
    scene.does(&["later 0 0", "later 1 2", "free 2", "later 3 1", "later 4 1"]);
    scene.does(&["sync 0", "sync 1", "sync 2"]);
    assert_eq!((scene.on_device(), scene.charged()), (0, 0));
    scene.guest.finish().silently();
}

#[test]
fn pools_answer_as_the_drivers_do_before_and_after_a_move() {
    let mut scene = Scene::new(SPEC);
    let mut bare = scene.bare();
    let first = [
        "level 0",
        "async 0 1000 1",
        "level 0",
        "sync 1",
        "of 0",
        "range 0 10",
        "at 0 999",
        "at 0 1000",
        "waits 0",
        "fill 0 1",
        "async 1 40000000 1",
        "level 0",
        "later 1 1",
        "level 0",
        "sync 1",
        "level 0",
        "put 0 8 0",
        "put 0 6 0",
        "level 0",
        "put 0 8 5",
        "put 0 5 0",
        "put 0 4 1000000000",
        "async 1 40000000 1",
        "later 1 1",
        "sync 1",
        "level 0",
        "trim 0 100000000",
        "level 0",
        "trim 0 0",
        "level 0",
        "async 2 0 1",
        "async 2 99999999999999 1",
        "inner 0 512",
        "free 9",
        "pool 1 0 40000000",
        "from 1 30000000 1 1",
        "level 1",
        "from 2 30000000 1 1",
        "from 2 40000000 1 1",
        "level 1",
        "use 1",
        "async 3 1000 1",
        "sync 1",
        "of 1",
        "of 3",
        "level 1",
        "fill 1 2",
    ];
    same(&mut scene, &mut bare, &first);
    scene.guest.answers("wait 0 999", "801");
    scene.provided(64 * MIB);
    scene.leaves();
    scene.returns();
    let second = [
        "level 0",
        "level 1",
        "of 1",
        "of 3",
        "range 1 0",
        "waits 0",
        "check 0 1",
        "check 1 2",
        "close 1",
        "level 1",
        "close 1",
        "async 4 1000 1",
        "sync 1",
        "of 4",
        "check 1 2",
        "later 1 1",
        "later 3 1",
        "later 3 1",
        "sync 1",
        "range 1 0",
        "free 0",
        "free 0",
        "later 0 1",
        "later 4 1",
        "later 2 1",
        "sync 1",
        "level 0",
        "put 0 4 0",
        "sync 1",
        "level 0",
    ];
    same(&mut scene, &mut bare, &second);
    // The mover's thread may be giving it back at this moment.
    until("all is given back", || {
        (scene.on_device(), scene.charged()) == (0, 0)
    });
    scene.guest.finish().silently();
    bare.finish().silently();
}

#[test]
fn captures_and_pools_meet_as_on_the_driver() {
    let mut scene = Scene::new(SPEC);
    let mut bare = scene.bare();
    for mode in ["begin 0", "begin 1", "begin 2"] {
        let lines = [
            "async 0 4096 1",
            "sync 1",
            mode,
            "async 1 4096 1",
            "async 2 4096 2",
            "end",
            mode,
            "later 0 1",
            "end",
            mode,
            "later 0 2",
            "end",
            mode,
            "free 2",
            "end",
            "later 0 1",
            "later 2 2",
            "sync 1",
            "sync 2",
        ];
        same(&mut scene, &mut bare, &lines);
    }
    scene.guest.finish().silently();
    bare.finish().silently();
}

#[test]
fn memory_is_used_again_in_stream_order_or_when_its_free_is_over() {
    let mut scene = Scene::new(SPEC);
    let mut bare = scene.bare();
    let lines = [
        "put 0 4 1000000000",
        "async 0 33554432 2",
        "sync 2",
        "hold 2",
        "later 0 2",
        // Another stream may not have it yet; the same one may.
        "async 1 33554432 1",
        "meets 0 1",
        "async 2 16777216 2",
        "meets 0 2",
        "level 0",
        "release",
        "sync 0",
        "sync 2",
        // The rest of it is free for all by now.
        "async 3 16777216 1",
        "meets 0 3",
        "meets 2 3",
        "level 0",
        // Without opportunistic reuse, only once the host has waited.
        "rule 0 2 0",
        "later 3 1",
        "async 4 16777216 2",
        "meets 3 4",
        "sync 1",
        "async 5 16777216 2",
        "meets 3 5",
        "level 0",
    ];
    same(&mut scene, &mut bare, &lines);
    scene.guest.finish().silently();
    bare.finish().silently();
}

#[test]
fn a_call_on_a_pool_waits_while_it_is_away() {
    let mut scene = Scene::new(SPEC);
    scene.does(&[
        "put 0 4 1000000000",
        "async 0 1000000 1",
        "sync 1",
        "fill 0 1",
    ]);
    scene.provided(32 * MIB);
    for line in ["check 0 1", "async 1 1000 1", "async 2 99000000 1"] {
        scene.leaves();
        scene.waits_for_return(line);
    }
    // A free changes the books alone.
    scene.leaves();
    scene.does(&["later 1 1", "free 2"]);
    scene.returns();
    scene.guest.answers("check 0 1", "0");
    scene.does(&["async 1 90000000 1", "sync 1", "fill 1 2"]);
    scene.guest.answers("check 0 1", "0");
    scene.guest.finish().silently();
}

#[test]
fn a_pool_that_others_may_open_stays_and_is_told() {
    let mut scene = Scene::new(SPEC);
    scene.does(&[
        "pool 1 1 0",
        "from 0 4194304 1 1",
        "async 1 4194304 1",
        "sync 1",
    ]);
    scene.provided(32 * MIB);
    scene.dealer.come_back();
    let told = scene.tells(|told| told.movable == 32 * MIB);
    assert_eq!(
        (told.residue.pools, told.residue.total()),
        (32 * MIB, 32 * MIB)
    );
    scene.does(&["fill 0 1", "fill 1 2"]);
    scene.leaves();
    scene.returns();
    scene.guest.answers("check 0 1", "0");
    scene.guest.answers("check 1 2", "0");
    scene.guest.finish().silently();
}

#[test]
fn a_peers_right_to_a_pool_holds_after_moves() {
    let mut scene = Scene::on_two("mem=256MiB,count=2,driver=13050");
    scene.does(&["async 0 4194304 1", "sync 1", "fill 0 1", "second"]);
    scene.does(&["grant 0 3", "across 0 5"]);
    scene.provided(32 * MIB);
    scene.guest.answers("values 0 5", "0");
    scene.leaves();
    scene.returns();
    scene.does(&["across 0 6", "async 1 40000000 1", "sync 1", "across 1 7"]);
    scene.guest.answers("values 0 6", "0");
    scene.guest.answers("values 1 7", "0");
    scene.does(&["grant 0 0"]);
    scene.guest.answers("across 0 9", "700");
    scene.guest.finish().silently();
}

#[test]
fn a_pool_is_refused_at_the_limit_and_uses_what_is_freed() {
    let mut scene = Scene::new(SPEC);
    scene.dealer.usage().devices[0]
        .limit
        .store(80 * MIB, Ordering::Relaxed);
    scene.does(&[
        "put 0 4 1000000000",
        "async 0 30000000 1",
        "async 1 30000000 1",
    ]);
    assert_eq!(scene.charged(), 64 * MIB);
    scene.guest.answers("async 2 30000000 2", "2");
    scene.does(&["later 0 1", "async 2 30000000 2", "sync 2"]);
    assert_eq!(scene.charged(), 64 * MIB);
    // Memory that the pool keeps makes room for other memory.
    scene.does(&["later 2 2", "later 1 1", "alloc 3 62914560", "free 3"]);
    scene.guest.finish().silently();
}

/// The allocations of a training process whose framework uses the driver's pool: it keeps all that
/// it has had, and each step allocates and frees anew.
#[test]
fn little_of_a_pool_clients_memory_stays_on_the_device() {
    let mut scene = Scene::new("mem=2GiB,ctx=8MiB,driver=13050");
    scene.does(&["put 0 4 18446744073709551615"]);
    let mut seed = 3_u64;
    let mut next = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut sizes = [0_u64; 16];
    for _ in 0..300 {
        let slot = usize::try_from(next(14)).expect("small");
        if sizes[slot] == 0 {
            sizes[slot] = match next(3) {
                0 => 512 + next(100_000),
                1 => MIB + next(4 * MIB),
                _ => 10 * MIB + next(30 * MIB),
            };
            scene.does(&[&format!("async {slot} {} {}", sizes[slot], 1 + next(2))]);
        } else {
            scene.does(&[&format!("later {slot} {}", 1 + next(2))]);
            sizes[slot] = 0;
        }
    }
    // A library's workspace, and what the runtime makes itself.
    scene.does(&["alloc 14 8519680", "alloc 15 512", "sync 1", "sync 2"]);
    scene.provided(scene.charged());
    scene.little_stays();
}

#[test]
fn a_segment_that_fails_at_a_step_leaves_nothing_taken() {
    for (error, fail) in failing_steps() {
        let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_FAIL", &fail)]);
        let answer = scene.guest.ask("async 0 1000 1");
        let again = error == "CUDA_ERROR_OUT_OF_MEMORY";
        let right = if again { "async 0" } else { "async 999" };
        assert_eq!(answer, right, "{fail}");
        if !again {
            assert_eq!((scene.on_device(), scene.charged()), (0, 0), "{fail}");
            scene.does(&["async 0 1000 1"]);
        }
        scene.does(&["sync 1", "fill 0 1"]);
        scene.guest.answers("check 0 1", "0");
        scene.does(&["later 0 1", "sync 1"]);
        assert_eq!((scene.on_device(), scene.charged()), (0, 0), "{fail}");
        scene.guest.finish().silently();
    }
}

#[test]
fn what_refers_to_a_pools_memory_is_answered_as_by_the_driver() {
    let mut scene = Scene::new(SPEC);
    let mut bare = scene.bare();
    same(
        &mut scene,
        &mut bare,
        &["async 0 1000 1", "sync 1", "refuses 0", "shares 0"],
    );
    scene.guest.finish().silently();
    bare.finish().silently();
}

/// The allocation has passed the check for captures when it waits for the return.
#[test]
fn a_capture_begun_while_an_allocation_waits_does_not_refuse_it() {
    let mut scene = Scene::new(SPEC);
    scene.does(&["async 0 5000000 1", "sync 1", "fill 0 1"]);
    scene.provided(scene.charged());
    scene.leaves();
    scene.does(&["beside 1 90000000 2"]);
    scene.dealer.hears(&Request::WantIn { device_index: 0 });
    scene.does(&["begin 2"]);
    scene.returns();
    scene.does(&["joined", "end", "sync 2", "fill 1 2"]);
    scene.guest.answers("check 0 1", "0");
    scene.guest.answers("check 1 2", "0");
    scene.guest.finish().silently();
}

/// A guest whose memory has left, which it freed before without a wait. `None`: the drain has found
/// the free over, and there was nothing to move.
fn freed_and_away() -> Option<Scene> {
    let mut scene = Scene::new(SPEC);
    scene.does(&["async 0 5000000 0", "sync 0", "later 0 0"]);
    if scene.ordered(Order::Leave) == Outcome::Away(0) {
        scene.returns();
        scene.guest.finish().silently();
        return None;
    }
    until("its memory is off the device", || scene.on_device() == 0);
    Some(scene)
}

#[test]
fn what_a_wait_cannot_give_back_while_away_the_next_one_does() {
    let scene = (0..20).find_map(|_| freed_and_away());
    let mut scene = scene.expect("a free is not over at once");
    scene.does(&["sync 0"]);
    assert_eq!(scene.charged(), 32 * MIB, "it is on the host");
    scene.returns();
    assert_eq!(scene.charged(), 32 * MIB, "nothing has waited since");
    scene.does(&["sync 0"]);
    assert_eq!((scene.on_device(), scene.charged()), (0, 0));
    scene.guest.finish().silently();
}

#[test]
fn a_free_of_pool_memory_waits_for_no_work() {
    let mut scene = Scene::new(SPEC);
    let mut bare = scene.bare();
    let lines = [
        "put 0 4 1000000000",
        "async 0 33554432 1",
        "sync 1",
        "hold 2",
        "free 0",
        "level 0",
        // All streams may use it at once.
        "async 1 33554432 1",
        "meets 0 1",
        "level 0",
        "release",
        "sync 2",
    ];
    same(&mut scene, &mut bare, &lines);
    scene.guest.finish().silently();
    bare.finish().silently();
}

/// What a stream has of its own freed memory may be in use by its work before that free.
#[test]
fn a_free_at_once_gives_other_streams_no_memory_that_is_in_use() {
    let mut scene = Scene::new(SPEC);
    scene.does(&["put 0 4 1000000000", "async 0 33554432 2", "sync 2"]);
    scene.does(&["hold 2", "later 0 2", "async 1 33554432 2"]);
    scene.guest.answers("meets 0 1", "1");
    scene.does(&["free 1", "async 2 33554432 1"]);
    scene.guest.answers("meets 0 2", "0");
    scene.does(&["release", "sync 2", "async 3 33554432 1"]);
    scene.guest.answers("meets 0 3", "1");
    scene.guest.finish().silently();
}
