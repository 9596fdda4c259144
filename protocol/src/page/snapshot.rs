//! A copy of a page's bytes read as numbers: for `gpushare ps` and for tests, which only look.

use super::{MAX_DEVICES, MAX_SLOTS, NO_LIMIT, PAGE_BYTES, UNIT, layout::*};
use std::mem::{offset_of, size_of};

/// The contents of a usage page. A process may be dead: ask its [`lock_byte`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The tenant's limits as it states them.
    pub limits: String,
    /// Process that founded the tenant.
    pub founder_pid: u32,
    /// Devices claimed, by device.
    pub devices: Vec<SnapshotDevice>,
    /// Slots taken.
    pub processes: Vec<ProcessUse>,
}

/// One claimed device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotDevice {
    /// Its index in the page.
    pub device_index: usize,
    /// Its UUID in memory order.
    pub uuid: [u8; 16],
    /// Bytes, or `None` without a limit.
    pub limit: Option<u64>,
    /// Bytes guaranteed.
    pub request: u64,
    /// Bytes shown as the total.
    pub view_total: u64,
    /// Physical bytes.
    pub capacity: u64,
    /// When the bucket of its cap was or will be empty, in nanoseconds of `CLOCK_MONOTONIC`.
    /// Without a daemon.
    pub empty_at: u64,
}

/// One taken slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUse {
    /// Row in the page.
    pub slot: usize,
    /// Process id in its own namespace.
    pub pid: u32,
    /// Start in clock ticks since boot.
    pub start: u64,
    /// Tells two owners of one slot apart.
    pub generation: u64,
    /// Inode of its pid namespace, 0 where it has not said it.
    pub pid_namespace: u64,
    /// Its pid further out, 0 where that is not known.
    pub outer_pid: u32,
    /// Its charges and counters, for each device it has touched.
    pub uses: Vec<DeviceUse>,
}

/// The charges and counters of one process on one device. All in bytes but the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    /// The `device_index` of the device.
    pub device_index: usize,
    /// Bytes charged.
    pub charged: u64,
    /// Bytes it may charge without asking.
    pub credit: u64,
    /// Estimated bytes of contexts and modules.
    pub overhead: u64,
    /// Charges refused.
    pub refused: u64,
    /// Nanoseconds of device time that its completed work takes alone, by estimate.
    pub service: u64,
    /// Nanoseconds in which it had work pending, without the currently pending work.
    pub busy: u64,
    /// Last epoch of a turn whose work the process has finished; 0 before the first.
    pub drained: u64,
}

/// Little-endian numbers at fixed offsets of a byte slice that is known to be long enough.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u32(&self, at: usize) -> u32 {
        let mut four = [0; 4];
        four.copy_from_slice(&self.0[at..at + 4]);
        u32::from_ne_bytes(four)
    }

    fn u64(&self, at: usize) -> u64 {
        let mut eight = [0; 8];
        eight.copy_from_slice(&self.0[at..at + 8]);
        u64::from_ne_bytes(eight)
    }
}

impl Snapshot {
    /// Reads the bytes of a usage page.
    ///
    /// # Errors
    /// [`PageError`] if they are not a page of this major version.
    pub fn parse(bytes: &[u8]) -> Result<Self, PageError> {
        if bytes.len() < PAGE_BYTES {
            return Err(PageError::Size {
                bytes: bytes.len() as u64,
            });
        }
        let page = Bytes(bytes);
        if page.u64(offset_of!(Header, magic)) != MAGIC {
            return Err(PageError::NotAPage);
        }
        let major = (page.u32(offset_of!(Header, version)) >> 16) as u16;
        if major != MAJOR {
            return Err(PageError::Version { major });
        }
        let text = Header::TEXT_AT
            ..Header::TEXT_AT + TEXT_MAX.min(page.u32(offset_of!(Header, text_bytes)) as usize);
        Ok(Self {
            limits: String::from_utf8_lossy(&bytes[text]).into_owned(),
            founder_pid: page.u32(offset_of!(Header, founder_pid)),
            devices: (0..MAX_DEVICES)
                .filter_map(|device_index| device(&page, device_index))
                .collect(),
            processes: (0..MAX_SLOTS)
                .filter_map(|slot| process(&page, slot))
                .collect(),
        })
    }

    /// Bytes charged on the device of `device_index` by all processes in the page.
    pub fn charged(&self, device_index: usize) -> u64 {
        let uses = self.processes.iter().flat_map(|process| &process.uses);
        uses.filter(|device| device.device_index == device_index)
            .map(|device| device.charged)
            .sum()
    }
}

fn device(page: &Bytes<'_>, device_index: usize) -> Option<SnapshotDevice> {
    let at = offset_of!(Page, devices) + device_index * size_of::<Device>();
    if page.u32(at + offset_of!(Device, claimed)) == 0 {
        return None;
    }
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&page.0[at + offset_of!(Device, uuid)..][..16]);
    let limit = page.u64(at + offset_of!(Device, limit));
    Some(SnapshotDevice {
        device_index,
        uuid,
        limit: (limit != NO_LIMIT).then_some(limit),
        request: page.u64(at + offset_of!(Device, request)),
        view_total: page.u64(at + offset_of!(Device, view_total)),
        capacity: page.u64(at + offset_of!(Device, capacity)),
        empty_at: page.u64(at + offset_of!(Device, empty_at)),
    })
}

fn process(page: &Bytes<'_>, slot: usize) -> Option<ProcessUse> {
    let at = offset_of!(Page, slots) + slot * size_of::<Slot>();
    if page.u32(at + offset_of!(Slot, taken)) == 0 {
        return None;
    }
    Some(ProcessUse {
        slot,
        pid: page.u32(at + offset_of!(Slot, pid)),
        start: page.u64(at + offset_of!(Slot, start)),
        generation: page.u64(at + offset_of!(Slot, generation)),
        pid_namespace: page.u64(at + offset_of!(Slot, pid_namespace)),
        outer_pid: u32::try_from(page.u64(at + offset_of!(Slot, outer_pid))).unwrap_or(0),
        uses: (0..MAX_DEVICES)
            .filter_map(|device_index| device_use(page, slot, device_index))
            .collect(),
    })
}

fn device_use(page: &Bytes<'_>, slot: usize, device_index: usize) -> Option<DeviceUse> {
    let start = usize::try_from(slot_range(slot).start).ok()?;
    let at = start + device_index * size_of::<Line>();
    let word = page.u64(at + offset_of!(Line, word));
    let overhead = page.u64(at + offset_of!(Line, overhead));
    let refused = page.u64(at + offset_of!(Line, refused));
    let drained = page.u64(at + offset_of!(Line, drained));
    if word == 0 && overhead == 0 && refused == 0 && drained == 0 {
        return None;
    }
    Some(DeviceUse {
        device_index,
        charged: (word >> 32) * UNIT,
        credit: (word & u64::from(u32::MAX)) * UNIT,
        overhead,
        refused,
        service: page.u64(at + offset_of!(Line, service)),
        busy: page.u64(at + offset_of!(Line, busy)),
        drained,
    })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_page_are_refused() {
        assert_eq!(
            Snapshot::parse(b"gpushare"),
            Err(PageError::Size { bytes: 8 })
        );
        assert_eq!(
            Snapshot::parse(&vec![0; PAGE_BYTES]),
            Err(PageError::NotAPage)
        );
    }

    #[test]
    fn a_page_is_read_as_its_processes_wrote_it() {
        let mut bytes = vec![0_u8; PAGE_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC.to_ne_bytes());
        put(
            offset_of!(Header, version),
            &(u32::from(MAJOR) << 16).to_ne_bytes(),
        );
        put(offset_of!(Header, text_bytes), &3_u32.to_ne_bytes());
        put(Header::TEXT_AT, b"abc");
        let device_index = offset_of!(Page, devices) + 2 * size_of::<Device>();
        put(
            device_index + offset_of!(Device, claimed),
            &1_u32.to_ne_bytes(),
        );
        put(
            device_index + offset_of!(Device, limit),
            &NO_LIMIT.to_ne_bytes(),
        );
        let slot = offset_of!(Page, slots) + 5 * size_of::<Slot>();
        put(slot + offset_of!(Slot, taken), &1_u32.to_ne_bytes());
        put(slot + offset_of!(Slot, pid), &77_u32.to_ne_bytes());
        let line = usize::try_from(slot_range(5).start).unwrap() + 2 * size_of::<Line>();
        put(line, &(3_u64 << 32 | 8).to_ne_bytes());
        let idle = line + size_of::<Line>();
        put(idle + offset_of!(Line, drained), &9_u64.to_ne_bytes());

        let snapshot = Snapshot::parse(&bytes).unwrap();
        assert_eq!(snapshot.limits, "abc");
        assert_eq!(
            (snapshot.devices[0].device_index, snapshot.devices[0].limit),
            (2, None)
        );
        assert_eq!(
            (snapshot.processes[0].slot, snapshot.processes[0].pid),
            (5, 77)
        );
        assert_eq!(
            (snapshot.charged(2), snapshot.processes[0].uses[0].credit),
            (3 * UNIT, 8 * UNIT)
        );
        let idle = snapshot.processes[0].uses[1];
        assert_eq!((idle.device_index, idle.charged, idle.drained), (3, 0, 9));
    }
}
