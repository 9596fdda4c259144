//! The room on the host that a process's devices need for the memory on them.

/// One device's need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Need {
    /// Bytes on the device that can leave it, and for which no room is taken yet.
    pub(super) bytes: u64,
    /// They are leaving.
    pub(super) leaves: bool,
}

/// The bytes that all devices need.
pub(super) fn all(needs: &[Need]) -> u64 {
    needs.iter().map(|need| need.bytes).sum()
}

/// The bytes that a device lacks, where so many are free. Devices whose memory is leaving need some
/// of these: theirs are free for no other device.
pub(super) fn short(needs: &[Need], device_index: usize, free: u64) -> u64 {
    let mut needed = 0;
    let mut others = 0;
    for (index, need) in needs.iter().enumerate() {
        match index == device_index {
            true => needed = need.bytes,
            false if need.leaves => others += need.bytes,
            false => {}
        }
    }
    needed.saturating_sub(free.saturating_sub(others))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESTS: bool = false;
    const LEAVES: bool = true;

    fn needs(all: [(u64, bool); 2]) -> [Need; 2] {
        all.map(|(bytes, leaves)| Need { bytes, leaves })
    }

    #[test]
    fn device_lacks_what_another_one_that_leaves_needs() {
        let needs = needs([(2, RESTS), (20, LEAVES)]);
        assert_eq!(short(&needs, 0, 22), 0);
        assert_eq!((short(&needs, 0, 20), short(&needs, 0, 21)), (2, 1));
        assert_eq!(short(&needs, 1, 20), 0, "which does not wait for the first");
    }

    #[test]
    fn device_that_rests_takes_nothing_from_another() {
        let needs = needs([(2, RESTS), (20, RESTS)]);
        assert_eq!((short(&needs, 0, 20), short(&needs, 1, 20)), (0, 0));
        assert_eq!((short(&needs, 0, 1), all(&needs)), (1, 22));
    }

    /// Neither waits for room that the other one does not need.
    #[test]
    fn two_devices_that_leave_lack_nothing_where_there_is_room_for_both() {
        let needs = needs([(2, LEAVES), (20, LEAVES)]);
        assert_eq!((short(&needs, 0, 22), short(&needs, 1, 22)), (0, 0));
        assert_eq!((short(&needs, 0, 21), short(&needs, 1, 21)), (1, 1));
    }
}
