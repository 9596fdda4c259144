//! What a process makes of its container's turn on one device: when it closes its gate, when it has drained, when it is idle.
//!
//! Pure: it is shown the turn as the control page has it and the state of the work under way, and says one thing to do at a time.
//! An epoch that was closed is never opened again: only a turn of another epoch opens.

use gpushare_protocol::page::lease::{LeaseState, Turn};

/// How long a holder has nothing under way before it says so, where the daemon does not tell (ns).
const IDLE_AFTER: u64 = 500_000;
/// The longest time between two looks whether a holder is idle, in units of the time after which it is.
const IDLE_PAUSES: u64 = 4;
/// The shortest and the longest time between two looks at what is left of a drain (ns).
const DRAIN_PAUSES: (u64, u64) = (40_000, 10_000_000);
/// How long an estimate alone is trusted at the beginning of a drain (ns).
const FIRST_PATIENCE: u64 = 250_000;
/// What is expected to be left of a drain (ns) when it is no longer slept for: to wake from a sleep may take as long.
const NEAR: u64 = 60_000;
/// The longest that the end of one drain is looked at without a pause (ns).
const VIGIL: u64 = 120_000;
/// Work that should be complete is looked at again after one part in so many of the time for which it should be.
const LATE_LOOKS: u64 = 8;

/// A sleep so short (ns) is none.
pub(super) const AT_ONCE: u64 = 1_000;
/// Never, as a time to wake.
pub(super) const NEVER: u64 = u64::MAX;

/// Where the gate of one device stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stand {
    /// Nothing binds.
    #[default]
    Free,
    /// Open in this epoch, with bounds.
    Open,
    /// Closed; what was submitted is not complete.
    Closing,
    /// Closed and complete.
    Drained,
}

/// What is known of the work under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    /// Nothing is under way, and every mark that was needed is made.
    pub(super) empty: bool,
    /// No thread is inside the gate.
    pub(super) quiet: bool,
    /// When something was last submitted or known to be under way.
    pub(super) last_active: u64,
    /// Expected nanoseconds until all is complete; 0 if it should be.
    pub(super) left: u64,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Let everything through, unseen.
    Free,
    /// Let work through within the turn's bounds.
    Open,
    /// Let nothing through any more.
    Close,
    /// Say that this epoch is drained.
    Drained(u64),
    /// Say that this epoch's holder is idle.
    Idle(u64),
    /// Nothing before this time, unless something changes.
    Sleep(u64),
}

/// The state for one device.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    stand: Stand,
    epoch: u64,
    /// When it took its stand.
    since: u64,
    /// Idleness was said in this epoch and not taken back.
    idle: bool,
    /// Times a holder was looked at and not found idle, since it last was.
    looks: u32,
    /// Since when what is under way should be complete, or nearly so.
    near: Option<u64>,
    /// For how long the end of this drain has been looked at without a pause, and when that was last.
    vigil: (u64, u64),
    /// The epoch in which it was last said that a call waits.
    wanted: Option<u64>,
    /// Times it has taken a stand: what was found out before the last one is old news.
    stands: u64,
}

impl Mirror {
    /// Where the gate stands.
    pub(super) fn stand(&self) -> Stand {
        self.stand
    }

    /// A number that is another one once it has taken another stand.
    pub(super) fn stands(&self) -> u64 {
        self.stands
    }

    /// Whether `turn` lets calls through that now wait.
    pub(super) fn is_opened_by(&self, turn: &Turn) -> bool {
        match turn.word.state() {
            LeaseState::Free => self.stand != Stand::Free,
            LeaseState::Open => {
                matches!(self.stand, Stand::Closing | Stand::Drained)
                    && turn.word.epoch() != self.epoch
            }
            LeaseState::Closed => false,
        }
    }

    /// Whether the holder was found idle, and has not worked since.
    pub(super) fn is_idle(&self) -> bool {
        self.idle
    }

    /// The next thing to do at `now`, under `turn`. Where it is not [`Act::Sleep`], it is asked again when that is done.
    pub(super) fn step(&mut self, now: u64, turn: &Turn, facts: &Facts) -> Act {
        let epoch = turn.word.epoch();
        match (turn.word.state(), self.stand) {
            (LeaseState::Free, Stand::Free) => Act::Sleep(NEVER),
            (LeaseState::Free, _) => self.take(Stand::Free, epoch, now, Act::Free),
            (LeaseState::Open, Stand::Free) => self.take(Stand::Open, epoch, now, Act::Open),
            (LeaseState::Open, _) if epoch != self.epoch => {
                self.take(Stand::Open, epoch, now, Act::Open)
            }
            (LeaseState::Open, Stand::Open) if now >= turn.deadline => {
                self.take(Stand::Closing, epoch, now, Act::Close)
            }
            (LeaseState::Open, Stand::Open) => self.hold(now, turn, facts),
            (LeaseState::Closed, Stand::Free | Stand::Open) => {
                self.take(Stand::Closing, epoch, now, Act::Close)
            }
            (LeaseState::Closed, Stand::Drained) if epoch != self.epoch => {
                // A turn came and went while nobody looked.
                self.epoch = epoch;
                self.stand = Stand::Closing;
                self.drain(now, facts)
            }
            (LeaseState::Closed, Stand::Closing) => {
                self.epoch = epoch;
                self.drain(now, facts)
            }
            (LeaseState::Open, Stand::Closing) => self.drain(now, facts),
            (LeaseState::Open | LeaseState::Closed, Stand::Drained) => Act::Sleep(NEVER),
        }
    }

    fn take(&mut self, stand: Stand, epoch: u64, now: u64, act: Act) -> Act {
        (self.stand, self.epoch, self.since) = (stand, epoch, now);
        (self.idle, self.looks) = (false, 0);
        (self.near, self.vigil) = (None, (0, 0));
        self.stands = self.stands.wrapping_add(1);
        act
    }

    /// Open: until the deadline, or until it is worth looking whether it is idle.
    fn hold(&mut self, now: u64, turn: &Turn, facts: &Facts) -> Act {
        let is_asked = turn.contended || turn.cap > 0;
        if !is_asked || self.idle {
            return Act::Sleep(turn.deadline);
        }
        let after = match turn.idle_after {
            0 => IDLE_AFTER,
            after => after,
        };
        let rested = facts.last_active.max(self.since).saturating_add(after);
        if facts.empty && now >= rested {
            self.idle = true;
            self.looks = 0;
            return Act::Idle(self.epoch);
        }
        let earliest = if facts.empty {
            rested
        } else {
            // Busy time after time: no need to look often.
            self.looks = self.looks.saturating_add(1);
            let pause = after.saturating_mul(u64::from(self.looks).min(IDLE_PAUSES));
            rested
                .max(now.saturating_add(facts.left))
                .max(now.saturating_add(pause))
        };
        Act::Sleep(earliest.max(now + 1).min(turn.deadline))
    }

    /// Closed: until what was submitted is complete.
    fn drain(&mut self, now: u64, facts: &Facts) -> Act {
        if facts.quiet && facts.empty {
            self.stand = Stand::Drained;
            self.since = now;
            return Act::Drained(self.epoch);
        }
        if !facts.quiet || facts.left <= NEAR {
            return self.watch(now, facts.quiet);
        }
        (self.near, self.vigil.1) = (None, 0);
        // Closer and closer looks, and never much later than a quarter of the whole: an estimate that is too high, however much, must not
        // leave the device idle by as much.
        let patience = now.saturating_sub(self.since) / 4 + FIRST_PATIENCE;
        let pause = (facts.left / 4 * 3).min(facts.left - NEAR).min(patience);
        Act::Sleep(now + pause.min(DRAIN_PAUSES.1))
    }

    /// The end of a drain is near or should have come. For a short time it is not slept for, as others wait for it; then less and less
    /// often looked for.
    fn watch(&mut self, now: u64, quiet: bool) -> Act {
        let near = *self.near.get_or_insert(now);
        let (watched, last) = self.vigil;
        let watched = watched
            + if last > 0 {
                now.saturating_sub(last)
            } else {
                0
            };
        if quiet && watched < VIGIL {
            self.vigil = (watched, now);
            return Act::Sleep(now + AT_ONCE);
        }
        self.vigil = (watched, 0);
        let pause = now.saturating_sub(near) / LATE_LOOKS;
        Act::Sleep(now + pause.clamp(DRAIN_PAUSES.0, DRAIN_PAUSES.1))
    }

    /// The work that was admitted would not end by the deadline: the turn is over early. `false` if there is none.
    pub(super) fn land(&mut self, now: u64) -> bool {
        let is_open = self.stand == Stand::Open;
        if is_open {
            self.take(Stand::Closing, self.epoch, now, Act::Close);
        }
        is_open
    }

    /// A call waits. The epoch if that has not been said in it yet.
    pub(super) fn want(&mut self) -> Option<u64> {
        let is_closed = matches!(self.stand, Stand::Closing | Stand::Drained);
        let is_news = is_closed && self.wanted != Some(self.epoch);
        is_news.then(|| {
            self.wanted = Some(self.epoch);
            self.epoch
        })
    }

    /// Work is submitted. The epoch if it had been called idle in it.
    pub(super) fn work(&mut self) -> Option<u64> {
        core::mem::take(&mut self.idle).then_some(self.epoch)
    }

    /// The daemon is another one, or there is none any more: nothing that was said counts.
    pub(super) fn forget(&mut self) {
        self.wanted = None;
        self.idle = false;
        if self.stand == Stand::Drained {
            self.stand = Stand::Closing;
        }
    }
}

#[cfg(test)]
mod tests {
    use gpushare_protocol::page::lease::{LeaseWord, NO_DEADLINE};

    use super::*;

    const MS: u64 = 1_000_000;
    const DONE: Facts = Facts {
        empty: true,
        quiet: true,
        last_active: 0,
        left: 0,
    };
    const BUSY: Facts = Facts {
        empty: false,
        left: MS,
        ..DONE
    };

    fn turn(state: LeaseState, epoch: u64) -> Turn {
        Turn {
            word: LeaseWord::new(epoch, state),
            deadline: NO_DEADLINE,
            contended: true,
            ..Turn::default()
        }
    }

    fn open(epoch: u64, deadline: u64) -> Turn {
        Turn {
            deadline,
            ..turn(LeaseState::Open, epoch)
        }
    }

    fn closed(epoch: u64) -> Turn {
        turn(LeaseState::Closed, epoch)
    }

    #[test]
    fn a_gate_that_nothing_binds_sleeps() {
        let mut mirror = Mirror::default();
        let free = turn(LeaseState::Free, 0);
        assert_eq!(mirror.step(MS, &free, &DONE), Act::Sleep(NEVER));
        assert_eq!(mirror.want(), None);
    }

    #[test]
    fn a_turn_opens_closes_and_is_said_to_be_drained_once_it_is() {
        let mut mirror = Mirror::default();
        assert_eq!(mirror.step(0, &open(1, NO_DEADLINE), &DONE), Act::Open);
        assert_eq!(mirror.step(1, &closed(1), &BUSY), Act::Close);
        assert_eq!(
            mirror.step(1, &closed(1), &BUSY),
            Act::Sleep(1 + FIRST_PATIENCE)
        );
        let inside = Facts {
            quiet: false,
            ..DONE
        };
        assert_eq!(
            mirror.step(2, &closed(1), &inside),
            Act::Sleep(2 + DRAIN_PAUSES.0)
        );
        assert_eq!(mirror.step(3, &closed(1), &DONE), Act::Drained(1));
        assert_eq!(mirror.step(3, &closed(1), &DONE), Act::Sleep(NEVER));
        assert_eq!(mirror.step(9, &open(2, NO_DEADLINE), &DONE), Act::Open);
    }

    #[test]
    fn at_its_deadline_it_closes_by_itself_and_stays_closed_under_that_epoch() {
        let mut mirror = Mirror::default();
        mirror.step(0, &open(1, MS), &DONE);
        assert_eq!(mirror.step(MS, &open(1, MS), &DONE), Act::Close);
        assert_eq!(mirror.step(MS, &open(1, MS), &DONE), Act::Drained(1));
        assert_eq!(
            mirror.step(MS, &open(1, 9 * MS), &DONE),
            Act::Sleep(NEVER),
            "a deadline that moves later comes with another epoch"
        );
        assert_eq!(mirror.step(MS, &closed(1), &DONE), Act::Sleep(NEVER));
        assert_eq!(mirror.step(MS, &open(2, 9 * MS), &DONE), Act::Open);
    }

    #[test]
    fn an_extension_under_a_new_epoch_reaches_a_gate_that_is_closing() {
        let mut mirror = Mirror::default();
        mirror.step(0, &open(1, MS), &DONE);
        assert!(mirror.land(MS / 2));
        assert!(!mirror.land(MS / 2));
        assert!(matches!(
            mirror.step(MS, &open(1, MS), &BUSY),
            Act::Sleep(_)
        ));
        assert_eq!(mirror.step(MS, &open(2, 3 * MS), &BUSY), Act::Open);
    }

    #[test]
    fn a_thread_that_waits_opens_for_the_next_turn_and_for_none_that_was() {
        let mut mirror = Mirror::default();
        assert!(!mirror.is_opened_by(&turn(LeaseState::Free, 0)));
        mirror.step(0, &open(1, MS), &DONE);
        assert!(!mirror.is_opened_by(&open(2, MS)), "it is open");
        let before = mirror.stands();
        assert!(mirror.land(MS / 2));
        assert_ne!(mirror.stands(), before, "what was seen before is old");
        for _ in 0..2 {
            assert!(!mirror.is_opened_by(&open(1, 9 * MS)), "that turn is over");
            assert!(!mirror.is_opened_by(&closed(2)));
            assert!(mirror.is_opened_by(&open(2, MS)));
            assert!(mirror.is_opened_by(&turn(LeaseState::Free, 2)));
            let _ = mirror.step(MS, &open(1, MS), &DONE);
        }
        assert_eq!(mirror.step(MS, &open(2, 9 * MS), &DONE), Act::Open);
    }

    #[test]
    fn a_turn_that_was_missed_is_answered_by_its_epoch() {
        let mut mirror = Mirror::default();
        mirror.step(0, &closed(1), &DONE);
        assert_eq!(mirror.step(0, &closed(1), &DONE), Act::Drained(1));
        assert_eq!(mirror.want(), Some(1));
        assert_eq!(mirror.want(), None, "once");
        assert_eq!(mirror.step(0, &closed(2), &DONE), Act::Drained(2));
        assert_eq!(mirror.want(), Some(2), "it still waits");
    }

    #[test]
    fn a_holder_with_nothing_under_way_is_idle_after_a_while_and_busy_when_it_works() {
        let mut mirror = Mirror::default();
        let held = open(4, NO_DEADLINE);
        mirror.step(0, &held, &DONE);
        assert_eq!(mirror.step(0, &held, &DONE), Act::Sleep(IDLE_AFTER));
        let worked = Facts {
            last_active: MS,
            ..DONE
        };
        assert_eq!(mirror.step(MS, &held, &worked), Act::Sleep(MS + IDLE_AFTER));
        let later = MS + IDLE_AFTER;
        assert_eq!(mirror.step(later, &held, &worked), Act::Idle(4));
        assert_eq!(mirror.step(later, &held, &worked), Act::Sleep(NEVER));
        assert_eq!(mirror.work(), Some(4));
        assert_eq!(mirror.work(), None);
        assert_eq!(mirror.step(9 * MS, &held, &worked), Act::Idle(4));
    }

    #[test]
    fn a_busy_holder_is_looked_at_less_and_less_and_never_past_its_deadline() {
        let mut mirror = Mirror::default();
        let held = open(4, 100 * MS);
        mirror.step(0, &held, &BUSY);
        let (mut now, mut looks) = (0, 0);
        while now < 100 * MS {
            let facts = Facts {
                last_active: now,
                left: 0,
                ..BUSY
            };
            match mirror.step(now, &held, &facts) {
                Act::Sleep(until) => now = until,
                act => assert_eq!(act, Act::Close),
            }
            looks += 1;
        }
        assert_eq!(now, 100 * MS);
        assert!(looks <= 60, "{looks}");
    }

    #[test]
    fn nobody_asks_whether_a_lone_holder_is_idle_unless_it_has_a_cap() {
        let mut mirror = Mirror::default();
        let alone = Turn {
            contended: false,
            ..open(4, NO_DEADLINE)
        };
        mirror.step(0, &alone, &DONE);
        assert_eq!(mirror.step(9 * MS, &alone, &DONE), Act::Sleep(NEVER));
        let capped = Turn { cap: 300, ..alone };
        assert_eq!(mirror.step(9 * MS, &capped, &DONE), Act::Idle(4));
    }

    /// Looks of a drain that ends at `end` and is expected to end at `expected`, and when its end is seen, if a sleep takes `late` longer
    /// than it should.
    fn looks(expected: u64, end: u64, late: u64) -> (u32, u64) {
        let mut mirror = Mirror::default();
        mirror.step(0, &closed(1), &BUSY);
        let (mut now, mut looks) = (0, 0);
        loop {
            looks += 1;
            let facts = Facts {
                empty: now >= end,
                left: expected.saturating_sub(now),
                ..BUSY
            };
            match mirror.step(now, &closed(1), &facts) {
                Act::Sleep(until) if until <= now + AT_ONCE => now = until + 2_000,
                Act::Sleep(until) => now = until + late,
                act => {
                    assert_eq!(act, Act::Drained(1));
                    return (looks, now - end);
                }
            }
        }
    }

    #[test]
    fn the_end_of_a_drain_that_was_foreseen_is_seen_when_it_comes() {
        for end in [5 * MS - 20_000, 5 * MS, 5 * MS + 60_000] {
            let (looks, late) = looks(5 * MS, end, 35_000);
            assert!(late <= 3_000, "{late} ns late");
            assert!(looks < 60, "{looks} looks");
        }
    }

    #[test]
    fn the_end_of_a_drain_that_was_not_foreseen_is_seen_soon_after() {
        for (expected, end, most) in [
            (MS, 5 * MS, MS),
            (9 * MS, MS, MS),
            (MS, MS + 300_000, 80_000),
        ] {
            let (looks, late) = looks(expected, end, 35_000);
            assert!(
                late <= most,
                "{late} ns late, expected {expected}, ended {end}"
            );
            assert!(looks < 120, "{looks} looks");
        }
    }

    #[test]
    fn work_that_never_ends_is_never_drained_and_looked_at_now_and_then() {
        let mut mirror = Mirror::default();
        mirror.step(0, &closed(1), &BUSY);
        let hung = Facts { left: 0, ..BUSY };
        let (mut now, mut looks) = (0, 0);
        while now < 60_000 * MS {
            match mirror.step(now, &closed(1), &hung) {
                Act::Sleep(until) => now = until,
                act => panic!("{act:?}"),
            }
            looks += 1;
        }
        assert!(looks < 6_500, "{looks} looks in a minute");
        assert_eq!(mirror.step(now, &closed(1), &DONE), Act::Drained(1));
    }

    #[test]
    fn a_new_daemon_is_told_again() {
        let mut mirror = Mirror::default();
        mirror.step(0, &closed(7), &DONE);
        mirror.step(0, &closed(7), &DONE);
        assert_eq!(mirror.want(), Some(7));
        mirror.forget();
        assert_eq!(mirror.want(), Some(7));
        assert_eq!(mirror.step(0, &closed(7), &DONE), Act::Drained(7));
    }
}
