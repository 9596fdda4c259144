//! The time namespace that the daemon runs in. It does not change.

use gpushare_protocol::time_namespace::Offsets;
use std::sync::OnceLock;

/// How far this process's clocks are ahead of the machine's.
pub(crate) fn here() -> Offsets {
    static HERE: OnceLock<Offsets> = OnceLock::new();
    *HERE.get_or_init(Offsets::here)
}
