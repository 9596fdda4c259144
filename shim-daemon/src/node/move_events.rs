//! The moves of tenants' memory, as events for people.

use gpushare_core::{DeviceId, Nanos, Notice, TenantId};
use gpushare_protocol::units::Bytes;

use super::Node;
use super::events::{Told, number, word};

impl Node {
    /// Counts and records a move. False for any other notice.
    pub(super) fn note_move(&mut self, now: Nanos, notice: &Notice) -> bool {
        let back = self.count_move(notice);
        let Some((kind, tenant, device)) = place_of(notice) else {
            return false;
        };
        let Some(text) = self.words_of(now, notice, back) else {
            return false;
        };
        let facts = self.facts_of_move(notice, back);
        self.event_with(kind, (tenant, device), text, &facts);
        true
    }

    fn words_of(&self, now: Nanos, notice: &Notice, back: Option<Bytes>) -> Option<String> {
        Some(match notice {
            Notice::Leaving {
                bytes, wanted_by, ..
            } => match wanted_by {
                Some(other) => format!(
                    "{} are moved to the host for {}",
                    bytes.human(),
                    self.name(*other)
                ),
                None => format!("{} are moved to the host by command", bytes.human()),
            },
            Notice::Left {
                bytes,
                residue,
                took,
                ..
            } => format!(
                "{} are on the host after {}, {} stay on the device",
                bytes.human(),
                took.human(),
                residue.human()
            ),
            Notice::Returned { bytes, took, .. } => format!(
                "{} are back after {}",
                back.unwrap_or(*bytes).human(),
                took.human()
            ),
            Notice::DidNotLeave { again, .. } => format!(
                "it did not leave in time and runs on; it is asked again in {} at the earliest",
                (*again - now).human()
            ),
            Notice::LeftLess { told, seen, .. } => format!(
                "it reported {} moved, the device shows {} gone: only these count",
                told.human(),
                seen.human()
            ),
            Notice::SlowReturn { .. } => "its return takes long; it is asked again".to_owned(),
            Notice::NoReturn { bytes, .. } => format!(
                "the driver had {} too little for its return; it is tried again",
                bytes.human()
            ),
            Notice::HostFull {
                wanted,
                needed,
                free,
                ..
            } => format!(
                "{} are wanted, and no tenant is moved: that needs {} of the host budget, with what is kept for one more move, and {} are free",
                wanted.human(),
                needed.human(),
                free.human()
            ),
            Notice::Thrashing { percent, .. } => format!(
                "moves took {percent} % of the last minute: tenants stay longer from now on"
            ),
            Notice::Settled { .. } => "moves take little time again".to_owned(),
            Notice::Silent { process, .. } => {
                let known = self.processes.get(*process);
                format!(
                    "its process {} has come from the previous daemon and does not say where its \
                     memory is: the others go on without it",
                    known.map_or(0, |known| known.pid())
                )
            }
            Notice::Suspended { .. } => "is suspended by command".to_owned(),
            Notice::Resumed { .. } => "may return, by command".to_owned(),
            _ => return None,
        })
    }

    /// The numbers of a move.
    fn facts_of_move(&self, notice: &Notice, back: Option<Bytes>) -> Vec<Told> {
        let millis = |span: Nanos| number("took_ms", span.0 / 1_000_000);
        match notice {
            Notice::Leaving {
                bytes, wanted_by, ..
            } => {
                let bytes = number("bytes", bytes.0);
                let other = wanted_by.map(|other| word("wanted_by", self.name(other)));
                [bytes].into_iter().chain(other).collect()
            }
            Notice::Left {
                bytes,
                residue,
                took,
                ..
            } => {
                let residue = number("residue_bytes", residue.0);
                vec![number("bytes", bytes.0), residue, millis(*took)]
            }
            Notice::Returned { bytes, took, .. } => {
                let bytes = back.unwrap_or(*bytes);
                vec![number("bytes", bytes.0), millis(*took)]
            }
            Notice::DidNotLeave { moved, .. } => vec![number("bytes", moved.0)],
            Notice::LeftLess { seen: bytes, .. } | Notice::NoReturn { bytes, .. } => {
                vec![number("bytes", bytes.0)]
            }
            Notice::HostFull {
                wanted,
                needed,
                free,
                ..
            } => {
                vec![
                    number("wanted_bytes", wanted.0),
                    number("needed_bytes", needed.0),
                    number("free_bytes", free.0),
                ]
            }
            Notice::Thrashing { percent, .. } => vec![number("percent", *percent)],
            _ => Vec::new(),
        }
    }
}

/// The kind of an event, and what it is about.
fn place_of(notice: &Notice) -> Option<(&'static str, Option<TenantId>, Option<DeviceId>)> {
    let (kind, tenant, device) = match notice {
        Notice::Leaving { tenant, device, .. } => ("leaving", Some(tenant), Some(device)),
        Notice::Left { tenant, device, .. } => ("left", Some(tenant), Some(device)),
        Notice::Returned { tenant, device, .. } => ("returned", Some(tenant), Some(device)),
        Notice::DidNotLeave { tenant, device, .. } => ("did-not-leave", Some(tenant), Some(device)),
        Notice::LeftLess { tenant, device, .. } => ("left-less", Some(tenant), Some(device)),
        Notice::Silent { tenant, device, .. } => ("silent", Some(tenant), Some(device)),
        Notice::SlowReturn { tenant, device } => ("slow-return", Some(tenant), Some(device)),
        Notice::NoReturn { tenant, device, .. } => ("no-return", Some(tenant), Some(device)),
        Notice::HostFull { device, .. } => ("host-full", None, Some(device)),
        Notice::Thrashing { device, .. } => ("thrashing", None, Some(device)),
        Notice::Settled { device } => ("settled", None, Some(device)),
        Notice::Suspended { tenant } => ("suspended", Some(tenant), None),
        Notice::Resumed { tenant } => ("resumed", Some(tenant), None),
        _ => return None,
    };
    Some((kind, tenant.copied(), device.copied()))
}
