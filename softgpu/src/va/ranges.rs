//! Accessible memory: published ranges by address, to the byte.

use std::collections::BTreeMap;
use std::fmt;

use gpushare_cuda_abi::cuda::CUresult;

use crate::error::Result;

/// The kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes (reading is included).
    Write,
}

/// An illegal address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The first illegal address.
    pub addr: u64,
    /// True if no range is published there; false if the device has no access right.
    pub absent: bool,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.absent {
            "nothing is mapped there"
        } else {
            "the device has no access there"
        };
        write!(f, "illegal address {:#x}: {why}", self.addr)
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for CUresult {
    fn from(_: Fault) -> Self {
        Self::ILLEGAL_ADDRESS
    }
}

/// One addressable range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Bytes.
    pub len: u64,
    /// The device whose memory it is, by ordinal; `None` for host memory.
    pub home: Option<u32>,
    /// Ordinals that may read, one bit each.
    pub readers: u32,
    /// Ordinals that may write, one bit each.
    pub writers: u32,
    /// Whether it is host memory (pinned or registered).
    pub host: bool,
    /// For host memory the distance from an address to its byte, 0 if that is at the address.
    pub shift: u64,
    /// Whether peers of `home` may access it once peer access is enabled (linear memory; false for
    /// memory with its own access rights).
    pub peers: bool,
}

impl Range {
    /// Memory of one device. The device has all rights; its peers have access once peer access is
    /// enabled.
    pub const fn on_device(ordinal: u32, len: u64) -> Self {
        Self {
            len,
            home: Some(ordinal),
            readers: 1 << ordinal,
            writers: 1 << ordinal,
            host: false,
            shift: 0,
            peers: true,
        }
    }

    /// Host memory that every device may access.
    pub const fn on_host(len: u64) -> Self {
        Self {
            len,
            home: None,
            readers: !0,
            writers: !0,
            host: true,
            shift: 0,
            peers: false,
        }
    }

    fn admits(&self, ordinal: u32, access: Access) -> bool {
        let mask = match access {
            Access::Read => self.readers,
            Access::Write => self.writers,
        };
        let peer = || {
            self.peers
                && self
                    .home
                    .is_some_and(|home| crate::context::peer::enabled(ordinal, home))
        };
        mask & (1 << ordinal) != 0 || peer()
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct Ranges(BTreeMap<u64, Range>);

impl Ranges {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn insert(&mut self, base: u64, range: Range) -> Result {
        let end = base
            .checked_add(range.len)
            .filter(|_| range.len > 0)
            .ok_or(CUresult::INVALID_VALUE)?;
        let before = self.0.range(..end).next_back();
        if before.is_some_and(|(start, other)| start + other.len > base) {
            return Err(CUresult::INVALID_VALUE);
        }
        self.0.insert(base, range);
        Ok(())
    }

    pub(super) fn remove(&mut self, base: u64) -> Option<Range> {
        self.0.remove(&base)
    }

    pub(super) fn set_access(&mut self, base: u64, readers: u32, writers: u32) -> bool {
        self.0.get_mut(&base).is_some_and(|range| {
            (range.readers, range.writers) = (readers, writers);
            true
        })
    }

    pub(super) fn find(&self, addr: u64) -> Option<(u64, Range)> {
        let (base, range) = self.0.range(..=addr).next_back()?;
        (addr - base < range.len).then_some((*base, *range))
    }

    /// The distance from host memory at `addr` to its bytes; `None` for other memory. Ranges that
    /// one access spans have their bytes at the addresses.
    pub(super) fn shift(&self, addr: u64, len: u64) -> Option<u64> {
        let (base, range) = self.find(addr).filter(|(_, range)| range.host)?;
        let is_in_one = addr.saturating_add(len) <= base + range.len;
        Some(if is_in_one { range.shift } else { 0 })
    }

    /// Walks adjacent ranges until `len` bytes are covered. Without `ordinal` only presence is
    /// checked.
    pub(super) fn check(
        &self,
        ordinal: Option<u32>,
        addr: u64,
        len: u64,
        access: Access,
    ) -> std::result::Result<(), Fault> {
        let end = addr.checked_add(len).ok_or(Fault { addr, absent: true })?;
        let mut at = addr;
        let mut host = None;
        while at < end {
            let (base, range) = self.find(at).ok_or(Fault {
                addr: at,
                absent: true,
            })?;
            // Host memory and device memory never form one range, even at adjacent addresses.
            if *host.get_or_insert(range.host) != range.host {
                return Err(Fault {
                    addr: at,
                    absent: true,
                });
            }
            if ordinal.is_some_and(|ordinal| !range.admits(ordinal, access)) {
                return Err(Fault {
                    addr: at,
                    absent: false,
                });
            }
            at = base + range.len;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Ranges {
        let mut ranges = Ranges::new();
        ranges.insert(0x1000, Range::on_device(0, 0x200)).unwrap();
        ranges.insert(0x1200, Range::on_device(0, 0x200)).unwrap();
        ranges
            .insert(
                0x2000,
                Range {
                    writers: 0,
                    ..Range::on_device(1, 0x200)
                },
            )
            .unwrap();
        ranges
    }

    #[test]
    fn adjacent_ranges_are_one_range_and_a_gap_faults_at_its_first_byte() {
        let ranges = table();
        assert_eq!(ranges.check(Some(0), 0x1100, 0x300, Access::Write), Ok(()));
        assert_eq!(
            ranges.check(Some(0), 0x1100, 0x301, Access::Read),
            Err(Fault {
                addr: 0x1400,
                absent: true
            })
        );
        assert_eq!(
            ranges.check(Some(0), 0xfff, 1, Access::Read),
            Err(Fault {
                addr: 0xfff,
                absent: true
            })
        );
    }

    #[test]
    fn rights_are_by_device_and_kind_of_access() {
        let ranges = table();
        assert_eq!(ranges.check(Some(1), 0x2000, 8, Access::Read), Ok(()));
        assert_eq!(
            ranges.check(Some(1), 0x2000, 8, Access::Write),
            Err(Fault {
                addr: 0x2000,
                absent: false
            })
        );
        assert_eq!(
            ranges.check(Some(0), 0x2000, 8, Access::Read),
            Err(Fault {
                addr: 0x2000,
                absent: false
            })
        );
        assert_eq!(ranges.check(None, 0x2000, 8, Access::Read), Ok(()));
    }

    #[test]
    fn a_range_is_published_once_and_is_absent_after_its_retraction() {
        let mut ranges = table();
        assert!(ranges.insert(0x11ff, Range::on_host(2)).is_err());
        assert!(ranges.insert(0x0ff0, Range::on_host(0x11)).is_err());
        assert!(ranges.insert(0x1400, Range::on_host(0)).is_err());
        assert!(ranges.remove(0x1000).is_some() && ranges.remove(0x1000).is_none());
        assert_eq!(ranges.find(0x1000), None);
        assert!(ranges.insert(0x1000, Range::on_host(0x200)).is_ok());
    }
}
