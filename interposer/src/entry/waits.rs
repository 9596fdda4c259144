//! The program's waits as the exported functions see them, before anything of ours is entered.

use crate::account;
use crate::gate;
use crate::holdings::frees;

/// Whether a wait is only to be counted: nothing binds, and nothing was freed that the driver may
/// give back now.
#[inline(always)]
pub(crate) fn is_plain() -> bool {
    gate::is_free() && !frees::pending()
}

/// Counts a plain wait that is over.
#[inline(always)]
pub(crate) fn over() {
    if !gate::waited() {
        account::worked();
    }
}
