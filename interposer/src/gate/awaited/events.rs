//! The book of events: what each is known to stand behind, from recording to recording. Pure.

use gpushare_cuda_abi::cuda::{CUcontext, CUevent};

use crate::driver::green::Green;
use crate::guest::map::{ByHandle, Handles};
use gpushare_pacing::window::StreamKey;

/// The work that is complete once something is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Covers {
    /// A stream's work.
    StreamKey(StreamKey),
    /// The work of a context's legacy stream and of all streams that wait for it.
    Blocking(CUcontext),
    /// All of a context.
    Context(CUcontext),
    /// All of a green context.
    Green(Green),
}

/// Work that was submitted before something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub(super) covers: Covers,
    /// The device's index.
    pub(super) device_index: usize,
    /// How far submission had come there.
    pub(super) stamp: u64,
    /// Only that work: nothing else that takes time stands behind it.
    pub(super) alone: bool,
}

/// The facts about an event.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    /// `None` where it is unknown.
    before: Option<Before>,
    /// Of its last recording.
    serial: u64,
    /// Recordings that have begun and not returned.
    under_way: u32,
    /// `FREED` at that recording.
    freed: u64,
}

/// Events, by their handles.
#[derive(Debug, Default)]
pub(super) struct Events {
    known: ByHandle<CUevent, Recorded>,
    /// Events that others may record.
    pub(super) shared: Handles<CUevent>,
    serial: u64,
}

impl Recorded {
    /// Forgets the work it stands behind. `true` if no thread records it just now.
    fn forget(&mut self) -> bool {
        (self.before, self.serial) = (None, 0);
        self.under_way == 0
    }
}

impl Events {
    /// A recording begins. Its number.
    pub(super) fn begin(&mut self, event: CUevent, freed: u64) -> u64 {
        self.serial += 1;
        let serial = self.serial;
        let known = self.known.entry(event).or_insert(Recorded {
            before: None,
            serial,
            under_way: 0,
            freed,
        });
        known.before = None;
        known.serial = serial;
        known.under_way += 1;
        known.freed = freed;
        serial
    }

    /// The recording `serial` has returned; the event stands behind `before`, unless another one
    /// began meanwhile.
    pub(super) fn end(&mut self, event: CUevent, serial: u64, before: Option<Before>) {
        let is_shared = self.shared.contains(&event);
        let Some(known) = self.known.get_mut(&event) else {
            return;
        };
        known.under_way = known.under_way.saturating_sub(1);
        if known.serial == serial && known.under_way == 0 && !is_shared {
            known.before = before;
        }
    }

    /// The work the event stands behind, and its recording's number.
    pub(super) fn find(&self, event: CUevent, freed: u64) -> Option<(u64, Before)> {
        let known = self.known.get(&event)?;
        let before = known.before.filter(|_| known.freed == freed)?;
        Some((known.serial, before))
    }

    /// Whether the event has not been recorded since; its information is used up then.
    pub(super) fn tell(&mut self, event: CUevent, serial: u64, freed: u64) -> bool {
        let told = self
            .find(event, freed)
            .is_some_and(|(now, _)| now == serial);
        if told {
            self.known.remove(&event);
        }
        told
    }

    /// The event is unknown from now on, a recording under way included.
    pub(super) fn forget(&mut self, event: CUevent) {
        if let Some(known) = self.known.get_mut(&event)
            && known.forget()
        {
            self.known.remove(&event);
        }
    }

    /// All of them are.
    pub(super) fn forget_all(&mut self) {
        self.known.retain(|_, known| !known.forget());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: CUevent = CUevent(core::ptr::without_provenance_mut(0x40));

    fn behind(stamp: u64) -> Option<Before> {
        let covers = Covers::Context(CUcontext::NULL);
        Some(Before {
            covers,
            device_index: 0,
            stamp,
            alone: true,
        })
    }

    /// The work that the event is known to stand behind.
    fn stamp(events: &Events, freed: u64) -> Option<u64> {
        events.find(EVENT, freed).map(|(_, before)| before.stamp)
    }

    #[test]
    fn an_event_is_known_by_its_last_recording_once_that_has_returned() {
        let mut events = Events::default();
        for round in [1, 2] {
            let serial = events.begin(EVENT, 0);
            assert_eq!(stamp(&events, 0), None);
            events.end(EVENT, serial, behind(round));
            assert_eq!(stamp(&events, 0), Some(round));
        }
    }

    #[test]
    fn recordings_at_the_same_time_leave_the_event_unknown() {
        let mut events = Events::default();
        let (one, two) = (events.begin(EVENT, 0), events.begin(EVENT, 0));
        events.end(EVENT, two, behind(2));
        assert_eq!(stamp(&events, 0), None);
        events.end(EVENT, one, behind(1));
        assert_eq!(stamp(&events, 0), None);
    }

    #[test]
    fn an_event_perhaps_recorded_while_nothing_was_noted_is_unknown() {
        let mut events = Events::default();
        let serial = events.begin(EVENT, 7);
        events.end(EVENT, serial, behind(1));
        assert_eq!((stamp(&events, 7), stamp(&events, 8)), (Some(1), None));
    }

    #[test]
    fn a_recording_that_failed_leaves_the_event_unknown() {
        let mut events = Events::default();
        let serial = events.begin(EVENT, 0);
        events.end(EVENT, serial, None);
        assert_eq!(stamp(&events, 0), None);
    }

    #[test]
    fn an_event_that_others_may_record_stays_unknown_until_it_is_destroyed() {
        let mut events = Events::default();
        events.shared.insert(EVENT);
        let serial = events.begin(EVENT, 0);
        events.end(EVENT, serial, behind(1));
        assert_eq!(stamp(&events, 0), None);
        events.shared.remove(&EVENT);
        let serial = events.begin(EVENT, 0);
        events.end(EVENT, serial, behind(2));
        assert_eq!(stamp(&events, 0), Some(2));
    }

    #[test]
    fn a_recording_under_way_tells_nothing_of_an_event_forgotten_meanwhile() {
        let mut events = Events::default();
        let one = events.begin(EVENT, 0);
        events.forget_all();
        let two = events.begin(EVENT, 0);
        events.end(EVENT, two, behind(2));
        events.end(EVENT, one, behind(1));
        assert_eq!(stamp(&events, 0), None, "they overlapped");
    }

    #[test]
    fn an_event_tells_once_and_not_if_it_was_recorded_meanwhile() {
        let mut events = Events::default();
        let first = events.begin(EVENT, 0);
        events.end(EVENT, first, behind(1));
        let second = events.begin(EVENT, 0);
        events.end(EVENT, second, behind(2));
        assert!(!events.tell(EVENT, first, 0));
        assert!(events.tell(EVENT, second, 0));
        assert!(!events.tell(EVENT, second, 0));
    }
}
