//! The guarantee of a tenant with only a limit, in percent.
//!
//! Twice half of a device is more than the device, because each tenant's context takes memory
//! beside its allocations. So the implied request leaves room for the contexts of as many tenants
//! as such parts fit the device. With a part `p` of `u` usable bytes, `n = floor(1 / p)` tenants,
//! and contexts of `c` bytes, a tenant is guaranteed `p * (u - n * c)`. With its own context that
//! is `p * u + c * (1 - n * p)`, and `n` such tenants fit as long as their contexts alone do.

use gpushare_protocol::units::Bytes;

/// A whole device, in millionths of a percent: what `Size::Percent` counts.
const WHOLE: u64 = 100_000_000;

/// An implied request on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Implied {
    /// Millionths of a percent, 1 to 100,000,000.
    part: u64,
    /// The upper bound, for any device.
    most: Bytes,
}

impl Implied {
    /// A part of a device in millionths of a percent (anything else counts as the nearest that is
    /// one), and the most that it may come to.
    pub fn new(part: u64, most: Bytes) -> Self {
        Self {
            part: part.clamp(1, WHOLE),
            most,
        }
    }

    /// As much of a device as one tenant alone can have, up to `most`.
    pub fn whole(most: Bytes) -> Self {
        Self::new(WHOLE, most)
    }

    /// The guarantee, of `usable` bytes, to a tenant whose own contexts take `overhead`, rounded
    /// down.
    pub fn request(self, usable: Bytes, overhead: Bytes) -> Bytes {
        let tenants = WHOLE / self.part;
        let kept = Bytes(overhead.0.saturating_mul(tenants));
        let bytes = u128::from((usable - kept).0) * u128::from(self.part) / u128::from(WHOLE);
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX)).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Bytes = Bytes::gib(16);

    #[test]
    fn as_many_parts_as_fit_a_device_fit_with_their_contexts() {
        for percent in 1..=100 {
            let (part, tenants) = (Implied::new(percent * 1_000_000, Bytes::MAX), 100 / percent);
            for context in [0, 1, 64 << 20, 600 << 20].map(Bytes) {
                if context.0 * tenants > ALL.0 {
                    continue;
                }
                let each = part.request(ALL, context) + context;
                assert!(each.0 * tenants <= ALL.0, "{percent} %, {context:?}");
            }
        }
    }

    #[test]
    fn tenants_whose_contexts_differ_fit_too() {
        let half = Implied::new(50_000_000, Bytes::MAX);
        let all = [64, 900].map(|mib| half.request(ALL, Bytes::mib(mib)) + Bytes::mib(mib));
        assert_eq!(all[0] + all[1], ALL);
    }

    #[test]
    fn a_whole_device_is_guaranteed_less_one_context() {
        let whole = Implied::new(WHOLE, Bytes::MAX);
        assert_eq!(whole.request(ALL, Bytes::mib(512)), ALL - Bytes::mib(512));
    }

    #[test]
    fn contexts_that_fill_the_device_leave_nothing_to_guarantee() {
        let little = Implied::new(1_000_000, Bytes::MAX);
        assert_eq!(little.request(ALL, Bytes::mib(512)), Bytes::ZERO);
        assert_eq!(Implied::new(0, Bytes::MAX), Implied::new(1, Bytes::MAX));
    }

    #[test]
    fn no_more_is_guaranteed_than_may_be() {
        let half = Implied::new(50_000_000, Bytes::gib(2));
        assert_eq!(half.request(ALL, Bytes::mib(512)), Bytes::gib(2));
    }
}
