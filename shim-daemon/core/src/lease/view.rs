//! A container's share of a device, for people to look at.

use super::entity::{Entity, Phase};
use super::index::Stand;
use super::schedule::Schedule;
use super::shared::Mode;
use crate::ids::ContainerId;
use crate::time::Nanos;

/// What a container has of a device's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareView {
    /// What it gets while all on the device with its priority or a higher one want it, in thousandths.
    pub weight: u32,
    /// The time it was billed for since it came to the device, the running turn included.
    pub held: Nanos,
    /// What it is doing.
    pub state: ShareState,
    /// Since when. For [`ShareState::Free`] and [`ShareState::Idle`], when its last turn began.
    pub since: Nanos,
    /// Turns it was given; on a shared device, times it was held.
    pub turns: u64,
    /// Times it had not drained when it should have.
    pub overruns: u64,
    /// Its processes without a gate.
    pub ungated: u32,
}

/// How a device's time is shared. The default is of one that is dealt in turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharingView {
    /// What the tenants ahead do for those behind. `None`: turns are dealt.
    pub mode: Option<Mode>,
    /// How often that changed since the device is shared.
    pub changes: u64,
    /// The same in the last minute.
    pub lately: u32,
    /// By how many thousandths of the time all bills together are above it, lately, while somebody
    /// always had work pending; negative if below. `None` while there was too little of that.
    pub off: Option<i32>,
}

/// What a container is doing on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareState {
    /// Alone and without a cap: nothing is counted.
    Free,
    /// It neither has nor wants the device.
    Idle,
    /// It shares the device, nothing holds it back.
    Sharing,
    /// It shares the device and submits in slices, because another is behind.
    Yielding,
    /// It is closed until another that is behind has been repaid.
    Held,
    /// It has the device, or the device is kept for it until its turns on its other devices begin or are over.
    Holding,
    /// It was told to stop and has not drained.
    Draining,
    /// It waits for its turn.
    Waiting,
    /// It waits until its cap allows it a turn.
    Capped,
}

impl Schedule {
    /// A container's share, with the time from the last input to `now` billed as it will be.
    pub fn share(&self, container: ContainerId, now: Nanos) -> Option<ShareView> {
        let entity = self.entities.get(&container)?;
        let payers = self.index.payers().len().max(1);
        let payers = u64::try_from(payers).unwrap_or(1);
        let running = if entity.is_billed() {
            Nanos((now - self.now).0 / payers)
        } else {
            Nanos::ZERO
        };
        let (state, since) = self.state(container, entity);
        let ungated = entity.members.values().filter(|member| !member.gated);
        Some(ShareView {
            weight: self.part(entity),
            held: entity.held + running,
            state,
            since,
            turns: entity.turns,
            overruns: entity.overruns,
            ungated: u32::try_from(ungated.count()).unwrap_or(u32::MAX),
        })
    }

    fn state(&self, container: ContainerId, entity: &Entity) -> (ShareState, Nanos) {
        let place = self.index.place(container);
        let capped = || place.is_some_and(|place| matches!(place.stand, Stand::Capped(_)));
        match entity.phase {
            Phase::Free => (ShareState::Free, entity.granted),
            Phase::Holding(turn) => (ShareState::Holding, turn.since),
            Phase::Kept { since, .. } => (ShareState::Holding, since),
            Phase::Closing { closed }
            | Phase::Ending { closed }
            | Phase::Overrun { closed, .. } => (ShareState::Draining, closed),
            Phase::Out if !entity.wants() => (ShareState::Idle, entity.granted),
            Phase::Out if capped() => (ShareState::Capped, entity.asked),
            Phase::Out => (ShareState::Waiting, entity.asked),
        }
    }

    fn part(&self, own: &Entity) -> u32 {
        let terms = |entity: &Entity| (entity.class, entity.compute, entity.weight);
        let all: Vec<_> = self.entities.values().map(terms).collect();
        super::terms::part(terms(own), &all)
    }
}
