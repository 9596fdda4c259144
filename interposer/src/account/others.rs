//! The charges of the tenant's other processes, cached while they are valid.
//!
//! The sum is over up to 511 words, each written by its own process. A thread caches it until the
//! page shows that some process has changed its charges
//! ([`Watch`](gpushare_protocol::page::Watch)). So a program that queries free memory all the time
//! does not pay for its neighbours. Dead processes do not announce changes. For these, where there
//! are other processes at all, the sum is recomputed after some microseconds, at most a
//! millisecond; and where the driver holds memory of the dead, of which NVML is asked, after a
//! fifth of a second at most.

use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};

use super::join::Membership;
use super::{limbo, lock};
use crate::guest::background::Uncancelled;
use crate::guest::clock;

/// How long a sum is remembered beside other processes, in units of the time that looking took: a
/// program that does nothing but ask spends a fifth of its time on looking.
const TIMES: u64 = 4;
/// The longest (ns).
const LONGEST: u64 = 1_000_000;
/// The same where looking meant starting NVML, which may take tens of milliseconds.
const LONGEST_WITH_NVML: u64 = 200_000_000;
/// For ever, as a time.
const ALONE: u64 = u64::MAX;

/// A sum as one thread remembers it.
#[derive(Debug)]
struct Known {
    /// Address of the membership it is of; 0 for none. Memberships are never freed, so the address
    /// of a forked child's is another.
    member: Cell<usize>,
    device_index: Cell<usize>,
    stamp: Cell<u64>,
    /// How many slots had been claimed: without a daemon each that comes counts.
    claims: Cell<u64>,
    until: Cell<u64>,
    units: Cell<u64>,
}

thread_local! {
    // Const and without a destructor.
    static KNOWN: Known = const {
        Known {
            member: Cell::new(0),
            device_index: Cell::new(0),
            stamp: Cell::new(0),
            claims: Cell::new(0),
            until: Cell::new(0),
            units: Cell::new(0),
        }
    };
}

/// The charges on a device, in units. Their sum is of one moment as far as this process's own part
/// goes: that is loaded once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charges {
    /// This process's.
    pub(super) own: u64,
    /// The other processes', including dead processes' memory that the driver has not freed.
    pub(super) others: u64,
}

/// The charges of all processes of the tenant on a device.
pub(super) fn charged_by_all(member: &Membership, device_index: usize) -> Charges {
    let own = member
        .line(device_index)
        .map_or(0, |line| line.word.load().charged);
    Charges {
        own: own.into(),
        others: KNOWN.with(|known| known.charged(member, device_index)),
    }
}

impl Known {
    fn charged(&self, member: &Membership, device_index: usize) -> u64 {
        let Some(device) = member.page.devices.get(device_index) else {
            return 0;
        };
        let known = self.member.get() == core::ptr::from_ref(member).addr()
            && self.device_index.get() == device_index
            && self.stamp.get() == device.watch.stamp().0
            && self.claims.get() == member.page.header.generation.load(Ordering::Acquire)
            && (self.until.get() == ALONE || clock::now() < self.until.get());
        if known {
            return self.units.get();
        }
        self.look(member, device_index)
    }

    #[cold]
    fn look(&self, member: &Membership, device_index: usize) -> u64 {
        let began = clock::now();
        // Where a process has died, files are opened: of the tenant, of `/proc`, and for NVML; the
        // tenant's also where the program has closed our descriptors.
        let _uncancelled = Uncancelled::begin();
        let dead = member.dead(device_index);
        if !dead.is_empty() {
            limbo::settle(member, device_index, &dead, lock::PATIENCE);
        }
        // The driver frees dead processes' memory without any announcement.
        let limbo = !dead.is_empty() && !member.dead(device_index).is_empty();
        // A jump out of a signal handler may interrupt this anywhere: a half-written cache is
        // invalid.
        self.member.set(0);
        compiler_fence(Ordering::SeqCst);
        let stamp = member.page.devices[device_index].watch.begin(member.writer);
        self.device_index.set(device_index);
        self.stamp.set(stamp.0);
        let claims = &member.page.header.generation;
        self.claims.set(claims.load(Ordering::Acquire));
        let words = member.words(device_index).into_iter();
        let units = words.map(|word| u64::from(word.load().charged)).sum();
        // A daemon does not count claims in the page.
        let alone = !member.backend.is_daemons() && !member.has_others();
        self.until.set(if alone && !limbo {
            ALONE
        } else {
            let longest = if limbo { LONGEST_WITH_NVML } else { LONGEST };
            let now = clock::now();
            now.saturating_add((TIMES * now.saturating_sub(began)).min(longest))
        });
        self.units.set(units);
        compiler_fence(Ordering::SeqCst);
        self.member.set(core::ptr::from_ref(member).addr());
        units
    }
}
