//! The node's settings for swapping.

use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// See the module's page. [`Default`] has no host memory: nothing swaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapPolicy {
    /// Host memory for the memory of all tenants that are out. Bytes; zero means that no tenant is
    /// moved.
    pub host: Bytes,
    /// Files for what the host has no room for. Bytes; zero means that there are none.
    pub spill: Bytes,
    /// A tenant that entered stays this many times as long as its own moves take. With 11, moves
    /// take at most a part in 12 of the time: 8.3 %. So a tenth suffices, with what the orders and
    /// the looks take beside them.
    pub stay: u32,
    /// The same towards a tenant of higher priority or within its request.
    pub urgent_stay: u32,
    /// A tenant above its request that did no work for as long as its moves take counts as idle,
    /// but not before this time, and at its own `idle_after` at the latest.
    pub rest: Nanos,
    /// No tenant counts as idle before this time, however often it was rightly taken for that: what
    /// a tenant does is seen a moment later.
    pub least_rest: Nanos,
    /// The shortest and the longest stay.
    pub stays: (Nanos, Nanos),
    /// The rate of moves before one was measured, in bytes a second.
    pub first_rate: u64,
    /// How long the submitted work of a tenant may take to end once its processes are sealed: at
    /// first, and at most where that was too short, or where a return is overdue. The first one is
    /// the library's own where no order says it.
    pub drain: (Nanos, Nanos),
    /// How much longer than that the processes may take to answer an order to be sealed.
    pub seal: Nanos,
    /// How long a move may make no progress, at least: what is left may be one piece, which may
    /// take four times its expected time, and more where that proved too short. A move may take ten
    /// times its expected time in all.
    pub progress: Nanos,
    /// How long memory that is reported gone may still be shown by the device.
    pub look_grace: Nanos,
    /// How long a tenant whose memory is reported gone waits for a look that shows whether it is.
    pub unseen: Nanos,
    /// The first and the longest time for which a tenant that did not leave is not asked again.
    pub backoff: (Nanos, Nanos),
    /// By how much the time of a waiting ask is extended at once while its turn is certain.
    pub extension: Nanos,
    /// A tenant begins to return while its victims still leave.
    pub duplex: bool,
}

impl Default for SwapPolicy {
    fn default() -> Self {
        Self {
            host: Bytes::ZERO,
            spill: Bytes::ZERO,
            stay: 11,
            urgent_stay: 3,
            rest: Nanos::secs(1),
            // The libraries publish every 250 ms, and the daemon reads as often.
            least_rest: Nanos::millis(600),
            stays: (Nanos::millis(200), Nanos::secs(120)),
            first_rate: 10 << 30,
            drain: (Nanos::secs(2), Nanos::secs(60)),
            seal: Nanos::secs(3),
            progress: Nanos::secs(5),
            look_grace: Nanos::secs(2),
            unseen: Nanos::secs(10),
            backoff: (Nanos::secs(1), Nanos::secs(60)),
            extension: Nanos::secs(10),
            duplex: true,
        }
    }
}
