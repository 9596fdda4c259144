//! A follower says in advance which turns its next step closes.

use super::*;

#[test]
fn what_ends_an_open_turn_is_known_before_the_step_that_closes() {
    let begun = || {
        let mut follower = LeaseFollower::default();
        let before = follower.closes(0, &turn(LeaseState::Closed, 1));
        assert!(!before, "there is no turn that could end");
        assert_eq!(follower.step(0, &open(1, 10 * MS), &BUSY), Act::Open);
        follower
    };
    let cases = [
        (9 * MS, open(1, 10 * MS)),
        (10 * MS, open(1, 10 * MS)),
        (5 * MS, open(1, 5 * MS)),
        (10 * MS, open(2, 10 * MS)),
        (MS, turn(LeaseState::Closed, 1)),
        (MS, turn(LeaseState::Free, 1)),
    ];
    for (now, turn) in cases {
        let mut follower = begun();
        let closes = follower.closes(now, &turn);
        let act = follower.step(now, &turn, &BUSY);
        assert_eq!(closes, act == Act::Close, "{now}: {turn:?}");
        assert!(!follower.closes(now, &turn) || act != Act::Close, "closed");
    }
}
