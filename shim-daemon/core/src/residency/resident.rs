//! One tenant that may swap, on one device: its place, its processes, and what they report.

mod again;
mod beside;
mod late;
mod said;

use super::drain::Drain;
use super::order::{Order, Place, Told};
use super::rest::Rest;
use super::stay::Stay;
use super::terms::SwapPolicy;
use crate::ids::ProcessId;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
pub(crate) use late::Parts;
pub(crate) use said::Stays;
use std::collections::{BTreeMap, BTreeSet};

/// The last report of a process under the current order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Sealed,
    Away,
    Back,
    /// It came from the previous daemon with all its memory on the card, or it cannot move it.
    Here,
}

/// One process with a context on the device.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Its library can move memory.
    can: bool,
    /// Since when it is not connected, so that it cannot report.
    lost: Option<Nanos>,
    said: Said,
    /// The bytes that it reports on the host.
    away: Bytes,
    /// Its bytes that cannot move, as it last said.
    stays: Bytes,
    /// It comes from the previous daemon, and since then has not shown where its memory is.
    owes: Option<Nanos>,
    /// It has not for so long that its tenant goes on without it.
    silent: bool,
    /// It came from the previous daemon while its memory moved, or with a part of it left behind.
    moving: bool,
}

/// The consequence of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// All processes are sealed.
    Sealed,
    /// A process could not be sealed; it asks not to be asked again for so long. `late`: what it
    /// had begun did not end in the time given.
    Busy { retry: Nanos, late: bool },
    /// A move made progress.
    Progress,
    /// All processes report their memory gone.
    Away,
    /// All are back.
    Back,
    /// A process found too little room to return.
    NoRoom(Bytes),
    /// So does a process of a tenant that is in, for the first time since it is.
    Lacks(Bytes),
}

/// See the module's page.
#[derive(Clone, Debug)]
pub(crate) struct Resident {
    place: Place,
    epoch: u32,
    /// When the current place began.
    since: Nanos,
    stay: Stay,
    rest: Rest,
    /// How long its work may take to end.
    pub(crate) drain: Drain,
    /// When the move began to which the current place belongs.
    begun: Nanos,
    /// When a process of a previous daemon last came, was heard, or was waited for no more; or when
    /// the rest of a tenant that was partly out was ordered to leave.
    pub(crate) heard: Option<Nanos>,
    members: BTreeMap<ProcessId, Member>,
    /// Its processes on other devices alone that have yet to say that they are sealed.
    beside: BTreeSet<ProcessId>,
    /// Since when it waits to return.
    wants: Option<Nanos>,
    /// It waits because of a call of its program.
    pub(crate) called: bool,
    /// Since when it could not work because it waits for one of its devices, where it waits here.
    halted: Nanos,
    /// It comes from a previous daemon, and not all its processes have shown where they are.
    found: bool,
    /// A process of a previous daemon has come since its place was decided.
    undecided: bool,
    /// It is partly out, and sealed: neither could the rest leave nor was there room to return.
    pub(crate) split: bool,
    /// Nothing of it returns before a late process has shown its memory.
    pub(crate) held: bool,
    /// It is moved out by command, and has not called since.
    suspended: bool,
    /// It is not asked to leave before then, and how often in a row it did not leave.
    backoff: (Nanos, u32),
    /// Residency so far, in MiB times milliseconds.
    used: u64,
    /// The part of it in which it waited for another device, or that it did not have.
    halting: u64,
    /// Reserved on the host.
    host: Bytes,
    /// The bytes that went to the file of a command (`suspend --to`), and will come back from it.
    elsewhere: Bytes,
    /// Pauses between looks while it is confirmed.
    pub(crate) pause: Nanos,
    /// It is out by its own report alone: no look that began since has ended.
    pub(crate) unseen: bool,
    /// The bytes that it had out when its last return began, and what late processes had beside.
    brings: Bytes,
    /// How often it left, and the bytes that moved, both ways.
    moves: (u64, Bytes),
    /// How often in a row it found no room to return.
    pub(crate) misses: u32,
    /// It found none under the current order.
    pub(crate) refused: bool,
    /// The current order was given to it again, and it has said nothing since.
    asked_again: bool,
    /// How often in a row it was sealed and made no progress for too long.
    slow: u32,
    /// Since when its memory leaves: nothing can be charged any more.
    leaves: Nanos,
    /// Since when no turn of others could give it the room to return, while it waits for that.
    pub(crate) no_turn: Option<Nanos>,
    /// It returns while its victims still leave, and has waited for that since then.
    pub(crate) early: Option<Nanos>,
    /// That return was taken back: what it had brought has to go again.
    pub(crate) taken_back: bool,
    /// The part of its return that its processes were told to leave on the host.
    pub(crate) withheld: Bytes,
}

impl Default for Resident {
    fn default() -> Self {
        Self {
            place: Place::In,
            epoch: 0,
            since: Nanos::ZERO,
            stay: Stay::default(),
            rest: Rest::default(),
            drain: Drain::default(),
            begun: Nanos::ZERO,
            heard: None,
            members: BTreeMap::new(),
            beside: BTreeSet::new(),
            wants: None,
            called: false,
            halted: Nanos::ZERO,
            found: false,
            undecided: false,
            split: false,
            held: false,
            suspended: false,
            backoff: (Nanos::ZERO, 0),
            used: 0,
            halting: 0,
            host: Bytes::ZERO,
            elsewhere: Bytes::ZERO,
            pause: Nanos::millis(1),
            unseen: false,
            brings: Bytes::ZERO,
            moves: (0, Bytes::ZERO),
            misses: 0,
            refused: false,
            asked_again: false,
            slow: 0,
            leaves: Nanos::ZERO,
            no_turn: None,
            early: None,
            taken_back: false,
            withheld: Bytes::ZERO,
        }
    }
}

impl Resident {
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    pub(crate) fn since(&self) -> Nanos {
        self.since
    }

    /// Its stay on the card, where it is in.
    pub(crate) fn stay(&self) -> &Stay {
        &self.stay
    }

    pub(crate) fn stay_mut(&mut self) -> &mut Stay {
        &mut self.stay
    }

    /// After how long it counts as idle.
    pub(crate) fn rest(&self) -> &Rest {
        &self.rest
    }

    pub(crate) fn rest_mut(&mut self) -> &mut Rest {
        &mut self.rest
    }

    /// When the move began to which the current place belongs.
    pub(crate) fn begun(&self) -> Nanos {
        self.begun
    }

    /// Whether that is when its processes began to move all that they move. One of a previous
    /// daemon may have begun before it was heard, or long after.
    pub(crate) fn is_timed(&self) -> bool {
        self.heard.is_none_or(|heard| heard < self.begun)
    }

    pub(crate) fn host(&self) -> Bytes {
        self.host
    }

    pub(super) fn set_host(&mut self, bytes: Bytes) {
        self.host = bytes;
    }

    /// Its memory takes none of the host's any more, and lies in a file.
    pub(crate) fn is_elsewhere(&mut self) {
        self.elsewhere = self.elsewhere.max(self.host);
    }

    /// So much of it lies there.
    pub(crate) fn set_elsewhere(&mut self, bytes: Bytes) {
        self.elsewhere = bytes;
    }

    /// The bytes of its memory in a file of a command: all stay valid there until it is in.
    pub(crate) fn elsewhere(&self) -> Bytes {
        self.elsewhere
    }

    /// The bytes of its memory that are out, on the host or in a file.
    pub(crate) fn moved_out(&self) -> Bytes {
        self.elsewhere.max(self.host)
    }

    /// The most that its return brings: a move that was cut off may have taken little of it out.
    pub(crate) fn brings(&self) -> Bytes {
        self.brings
    }

    /// How often it left, and the bytes that moved, both ways.
    pub(crate) fn moves(&self) -> (u64, Bytes) {
        self.moves
    }

    /// A move is over.
    pub(crate) fn count_move(&mut self, out: bool, bytes: Bytes) {
        self.moves = (self.moves.0 + u64::from(out), self.moves.1 + bytes);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        matches!(
            self.place,
            Place::Sealing | Place::Leaving | Place::Confirming
        )
    }

    /// Whether its memory moves now, one way or the other. While its work is finished first, or the
    /// driver has too little room for its return, nothing moves.
    pub(crate) fn is_moving(&self) -> bool {
        match self.place {
            Place::Leaving | Place::Confirming => true,
            Place::Entering => !self.refused,
            Place::In | Place::Sealing | Place::Out => false,
        }
    }

    /// Whether memory of it is on its way: it leaves, or no look has shown that it has left.
    pub(crate) fn gives_soon(&self) -> bool {
        self.is_leaving() || self.unseen
    }

    /// Since when its memory leaves, or has left.
    pub(crate) fn leaves(&self) -> Nanos {
        self.leaves
    }

    /// Its early return is taken back. It waits to return as long as it did, and all that was not
    /// withheld counts as brought until it says that it has given that up.
    pub(crate) fn take_back(&mut self) {
        self.wants = self.early.take();
        self.taken_back = true;
        for member in self.members.values_mut() {
            member.away = member.away.min(self.withheld);
        }
    }

    /// Since when it waits to return, if it is out and waits.
    pub(crate) fn returns(&self) -> Option<Nanos> {
        self.wants.filter(|_| self.place == Place::Out)
    }

    /// Whether it waits to return, or will once it is out.
    pub(crate) fn waits(&self) -> bool {
        self.wants.is_some()
    }

    /// Since when it could not work, if a call waits for this device.
    pub(crate) fn halted(&self) -> Option<Nanos> {
        let waits = self.wants.is_some() || self.place == Place::Entering;
        waits.then_some(self.halted)
    }

    /// It waits here, and for another device it has waited since then.
    pub(crate) fn was_halted(&mut self, since: Nanos) {
        self.halted = self.halted.min(since);
    }

    fn wait(&mut self, now: Nanos) {
        if self.wants.is_none() {
            (self.wants, self.halted) = (Some(now), now);
        }
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// It is moved out by command. A call that waits already is the one that wakes it: its process
    /// says only once for each seal that one waits. Where it has no process nothing is moved out,
    /// and what starts there later runs.
    pub(crate) fn suspend(&mut self) {
        self.suspended |= self.wants.is_none() && !self.members.is_empty();
    }

    /// It is to come back without a call or a command: one that is suspended stays so, and is asked
    /// to leave again.
    pub(crate) fn comes_back(&mut self, now: Nanos) {
        if !matches!(self.place, Place::In | Place::Entering) {
            self.wait(now);
        }
    }

    /// A call waits, or a command wants it back. `false`: it is in, or was waiting already.
    pub(crate) fn want_in(&mut self, now: Nanos) -> bool {
        let woken = std::mem::take(&mut self.suspended);
        if matches!(self.place, Place::In | Place::Entering) {
            return woken;
        }
        let new = self.wants.is_none();
        self.wait(now);
        new || woken
    }

    /// The bytes that its processes report on the host, together.
    pub(crate) fn told_away(&self) -> Bytes {
        self.members.values().map(|member| member.away).sum()
    }

    /// The bytes that one process reports on the host.
    pub(crate) fn away_of(&self, process: ProcessId) -> Bytes {
        let member = self.members.get(&process);
        member.map_or(Bytes::ZERO, |member| member.away)
    }

    /// Whether all its processes can be sealed now.
    pub(crate) fn can_move(&self) -> bool {
        self.can_when_connected() && self.disconnected().is_none()
    }

    /// Whether all its processes can be sealed while they are connected.
    pub(crate) fn can_when_connected(&self) -> bool {
        !self.members.is_empty() && self.members.values().all(|one| one.can)
    }

    /// Whether it returns, and a process of it is back and runs.
    pub(crate) fn is_partly_back(&self) -> bool {
        self.members.values().any(|one| one.said == Said::Back)
    }

    /// Since when one of its processes is not connected.
    pub(crate) fn disconnected(&self) -> Option<Nanos> {
        self.members.values().filter_map(|one| one.lost).min()
    }

    /// Goes to a place, under a new epoch. `anew`: a move begins.
    pub(crate) fn go(&mut self, now: Nanos, place: Place, anew: bool) -> (u32, Order) {
        if (self.place, place) == (Place::Entering, Place::In) {
            self.stay.begin(now);
        }
        if place == Place::Entering && self.halted().is_none() {
            self.halted = now;
        }
        self.asked_again = self.place == place && !anew;
        (self.place, self.since) = (place, now);
        if anew {
            (self.begun, self.brings) = (now, self.told_away());
        }
        self.pause = Nanos::millis(1);
        (self.refused, self.unseen, self.no_turn) = (false, false, None);
        if matches!(place, Place::In | Place::Entering) {
            (self.wants, self.split) = (None, false);
        }
        match place {
            Place::Leaving => self.leaves = now,
            Place::Confirming | Place::Entering => {}
            _ => (self.early, self.taken_back) = (None, false),
        }
        let order = match place {
            Place::In => Order::In,
            Place::Sealing => Order::Seal,
            Place::Leaving => Order::Leave,
            Place::Confirming | Place::Out => Order::Out,
            Place::Entering => Order::Return,
        };
        // To stay sealed is ordered once the memory is seen gone; until then the last order holds.
        if place != Place::Confirming {
            self.epoch = self.epoch.wrapping_add(1);
            for member in self.members.values_mut() {
                (member.said, member.moving) = (Said::Nothing, false);
            }
        }
        if place == Place::In {
            self.elsewhere = Bytes::ZERO;
            for member in self.members.values_mut() {
                member.away = Bytes::ZERO;
            }
        }
        (self.epoch, order)
    }

    /// The number of the order that its device is lost.
    pub(crate) fn last_epoch(&self) -> u32 {
        self.epoch.wrapping_add(1)
    }

    /// Progress was made: time without progress begins anew.
    pub(crate) fn progress(&mut self, now: Nanos) {
        (self.since, self.asked_again) = (now, false);
    }

    /// Whether its return comes to no end: it finds no room, or a process says nothing.
    pub(crate) fn return_is_stuck(&self) -> bool {
        let returns = self.place == Place::Entering || self.taken_back;
        returns && self.early.is_none() && (self.refused || self.asked_again)
    }

    /// Counts the residency of so many bytes in the stay that ends now, at whose end it waited for
    /// another device for so long.
    pub(crate) fn count(&mut self, bytes: Bytes, span: Nanos, halted: Nanos) {
        let add = |sum: u64, span| sum.saturating_add(residency(bytes, span));
        self.used = add(self.used, span);
        self.halting = add(self.halting, span.min(halted));
    }

    /// The part of its earlier stays in which it waited for another device, or that it did not
    /// have.
    pub(crate) fn halting(&self) -> u64 {
        self.halting
    }

    /// Residency so far, with the current stay of so many bytes up to `now`.
    pub(crate) fn used(&self, now: Nanos, bytes: Bytes) -> u64 {
        let current = match self.place {
            Place::In | Place::Sealing => residency(bytes, now - self.stay.from()),
            _ => 0,
        };
        self.used.saturating_add(current)
    }

    /// Its earlier stays count as so much residency at least.
    pub(crate) fn start_at(&mut self, used: u64) {
        self.used = self.used.max(used);
    }

    /// It counts as having had so much more than it had. It did not work in that.
    pub(crate) fn had_more(&mut self, residency: u64) {
        self.used = self.used.saturating_add(residency);
        self.halting = self.halting.saturating_add(residency);
    }
}

/// MiB times milliseconds, each of them rounded down.
pub(crate) fn residency(bytes: Bytes, span: Nanos) -> u64 {
    let product = u128::from(bytes.0 >> 20) * u128::from(span.0) / 1_000_000;
    u64::try_from(product).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
