//! When a holder of a shared device says that it is idle, in virtual time.

use super::*;

#[test]
fn a_holder_of_a_shared_device_says_that_it_is_idle_contended_or_not() {
    for contended in [false, true] {
        let mut follower = LeaseFollower::default();
        let turn = shared(contended);
        let done = Facts {
            last_active: 1,
            ..DONE
        };
        assert_eq!(follower.step(1, &turn, &done), Act::Open);
        assert_eq!(follower.step(1, &turn, &done), Act::Sleep(20 * MS + 1));
        assert_eq!(follower.step(20 * MS + 1, &turn, &done), Act::Idle(1));
        assert_eq!(follower.step(20 * MS + 1, &turn, &done), Act::Sleep(NEVER));
        assert_eq!(follower.work(), Some(1), "the next launch takes it back");
        assert_eq!(follower.work(), None);
    }
}

#[test]
fn a_busy_holder_of_a_shared_device_is_looked_at_every_idle_time() {
    let mut follower = LeaseFollower::default();
    let turn = shared(false);
    let busy = Facts { left: 0, ..BUSY };
    follower.step(0, &turn, &busy);
    let mut now = 20 * MS;
    let mut pauses = Vec::new();
    for _ in 0..100 {
        let facts = Facts {
            last_active: now,
            ..busy
        };
        let Act::Sleep(until) = follower.step(now, &turn, &facts) else {
            panic!("it is busy");
        };
        pauses.push(until - now);
        now = until;
    }
    assert!(pauses[0] <= 2 * MS, "{pauses:?}");
    assert!(
        pauses[10..].iter().all(|pause| *pause == 20 * MS),
        "{pauses:?}"
    );
}
