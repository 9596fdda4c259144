//! The measured cost of moves on one device.
//!
//! The time of a move is measured from the order to its end: to the look that shows the memory
//! free, or to the last process's report that it is back. A rate rises at once and falls slowly, so
//! that a single slow tenant does not lengthen the stays of all.

use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// One part in this many of the distance is given up when a move was slower than expected.
const FORGET: u64 = 8;
/// No link is faster: what looks faster was freed, not copied.
const MOST: u64 = 1 << 40;
/// Moves below this many bytes are dominated by the orders and do not teach a rate.
const LEAST: Bytes = Bytes::mib(64);

/// The rates of one device, both in bytes a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    out: Option<u64>,
    back: Option<u64>,
}

impl Link {
    /// So many bytes left in this time.
    pub(crate) fn left(&mut self, bytes: Bytes, took: Nanos) {
        learn(&mut self.out, bytes, took);
    }

    /// So many bytes came back in this time.
    pub(crate) fn came(&mut self, bytes: Bytes, took: Nanos) {
        learn(&mut self.back, bytes, took);
    }

    /// These rates, and another link's where none was measured.
    pub(crate) fn or(&self, other: &Self) -> Self {
        Self {
            out: self.out.or(other.out),
            back: self.back.or(other.back),
        }
    }

    /// How long so many bytes take, out or back.
    pub(crate) fn one_way(&self, bytes: Bytes, out: bool, first: u64) -> Nanos {
        let rate = if out { self.out } else { self.back };
        time_of(bytes, rate.unwrap_or(first))
    }

    /// How long so many bytes take out and back. `first` is the rate before one was measured.
    pub(crate) fn round_trip(&self, bytes: Bytes, first: u64) -> Nanos {
        time_of(bytes, self.out.unwrap_or(first)) + time_of(bytes, self.back.unwrap_or(first))
    }
}

fn learn(rate: &mut Option<u64>, bytes: Bytes, took: Nanos) {
    if bytes < LEAST {
        return;
    }
    let measured = u128::from(bytes.0) * 1_000_000_000 / u128::from(took.0.max(1));
    let measured = u64::try_from(measured).unwrap_or(MOST).clamp(1, MOST);
    let rate = rate.get_or_insert(measured);
    *rate = match measured >= *rate {
        true => measured,
        false => *rate - (*rate - measured) / FORGET,
    };
}

fn time_of(bytes: Bytes, rate: u64) -> Nanos {
    let nanos = u128::from(bytes.0) * 1_000_000_000 / u128::from(rate.max(1));
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rate_counts_until_one_is_measured() {
        let mut link = Link::default();
        let gib = Bytes::gib(1);
        assert_eq!(link.round_trip(gib, 1 << 30), Nanos::secs(2));
        link.left(gib, Nanos::secs(3));
        let learned = link.round_trip(gib, 1 << 30).0 / 1_000_000;
        assert!((3_999..=4_001).contains(&learned), "{learned} ms");
    }

    #[test]
    fn a_slow_tenant_slows_the_rate_little_and_a_fast_one_restores_it() {
        let mut link = Link::default();
        link.left(Bytes::gib(8), Nanos::secs(1));
        link.came(Bytes::gib(8), Nanos::secs(1));
        link.left(Bytes::gib(8), Nanos::secs(1000));
        let slowed = link.round_trip(Bytes::gib(8), 1);
        assert!(
            slowed > Nanos::secs(2) && slowed < Nanos::millis(2_200),
            "{slowed:?}"
        );
        link.left(Bytes::gib(8), Nanos::secs(1));
        assert_eq!(link.round_trip(Bytes::gib(8), 1), Nanos::secs(2));
    }

    #[test]
    fn a_small_move_teaches_no_rate() {
        let mut link = Link::default();
        link.left(Bytes::mib(1), Nanos::secs(9));
        assert_eq!(link.round_trip(Bytes::gib(1), 2 << 30), Nanos::secs(1));
    }
}
