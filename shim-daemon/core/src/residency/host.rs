//! The host memory into which tenants are moved. It is reserved before a victim is asked, so that
//! no move starts that could not end.

use gpushare_protocol::units::Bytes;

/// The budget of a node, and what of it is reserved.
#[derive(Debug, Default)]
pub(crate) struct Host {
    budget: Bytes,
    reserved: Bytes,
}

impl Host {
    pub(crate) fn new(budget: Bytes) -> Self {
        Self {
            budget,
            reserved: Bytes::ZERO,
        }
    }

    pub(crate) fn budget(&self) -> Bytes {
        self.budget
    }

    pub(crate) fn free(&self) -> Bytes {
        self.budget - self.reserved
    }

    /// Reserves `bytes` instead of `before`, both of the same tenant. `false`: the budget does not
    /// allow it, and nothing changed. A smaller reservation is always allowed.
    pub(super) fn exchange(&mut self, before: Bytes, bytes: Bytes) -> bool {
        let after = self.reserved - before + bytes;
        if bytes > before && after > self.budget {
            return false;
        }
        self.reserved = after;
        true
    }

    /// Counts memory that is on the host already, whatever the budget: a tenant of the previous
    /// daemon.
    pub(crate) fn found(&mut self, bytes: Bytes) {
        self.reserved += bytes;
    }

    pub(super) fn release(&mut self, bytes: Bytes) {
        self.reserved -= bytes;
    }

    pub(super) fn check(&self, reserved: Bytes) -> Result<(), String> {
        if reserved == self.reserved {
            return Ok(());
        }
        let kept = self.reserved;
        Err(format!(
            "{kept:?} of the host are reserved, the tenants have {reserved:?}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_beyond_the_budget_changes_nothing() {
        let mut host = Host::new(Bytes(10));
        assert!(host.exchange(Bytes(0), Bytes(6)));
        assert!(!host.exchange(Bytes(0), Bytes(5)));
        assert_eq!(host.free(), Bytes(4));
        assert!(host.exchange(Bytes(0), Bytes(4)));
    }

    #[test]
    fn memory_found_beyond_the_budget_can_be_given_up() {
        let mut host = Host::new(Bytes(10));
        host.found(Bytes(30));
        assert!(!host.exchange(Bytes(0), Bytes(1)));
        assert!(
            host.exchange(Bytes(30), Bytes(20)),
            "it is less than before"
        );
        host.release(Bytes(20));
        assert_eq!(host.free(), Bytes(10));
    }
}
