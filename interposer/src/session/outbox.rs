//! Frames that threads without the socket leave to the control thread.

/// Most bytes that wait: thousands of frames.
const ROOM: usize = 64 << 10;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    frames: Vec<u8>,
    /// A frame had no room. Its content is told on another connection.
    lacks_one: bool,
}

impl Outbox {
    pub(super) fn put(&mut self, frame: &[u8]) {
        if self.frames.len() + frame.len() <= ROOM {
            self.frames.extend_from_slice(frame);
        } else {
            self.lacks_one = true;
        }
    }

    /// All that waits, and none of it waits any more. `None` if a frame is missing.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let all = core::mem::take(self);
        (!all.lacks_one).then_some(all.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_taken_once_and_in_order() {
        let mut outbox = Outbox::default();
        outbox.put(b"a frame, ");
        outbox.put(b"and another one");
        let taken = outbox.take();
        assert_eq!(taken.as_deref(), Some(&b"a frame, and another one"[..]));
        assert_eq!(outbox.take().as_deref(), Some(&[][..]));
    }

    #[test]
    fn a_frame_that_had_no_room_is_missed_though_later_ones_fit() {
        let mut outbox = Outbox::default();
        outbox.put(&[1; ROOM - 8]);
        outbox.put(&[2; 9]);
        outbox.put(&[3; 8]);
        assert_eq!(outbox.take(), None);
        outbox.put(&[4; ROOM]);
        assert_eq!(outbox.take(), Some(vec![4; ROOM]), "on the next connection");
    }
}
