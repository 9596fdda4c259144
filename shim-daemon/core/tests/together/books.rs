//! A process's records for the daemon: its service, and when it had work pending.

use super::{MS, S, Sample, Who};

/// How long after it joined a process that has launched nothing says that it is idle, less the time
/// after which others do (ns).
const STARTS: u64 = S - 20 * MS;

/// The books of one process.
#[derive(Clone, Copy, Debug)]
pub struct Books {
    service: u64,
    busy: u64,
    since: Option<u64>,
    /// When work was last pending.
    ended: u64,
    /// Since when its gate lets work through and records it. `None`: it does not.
    recorded: Option<u64>,
    /// It has said that it is idle, and nothing since, and its gate has kept its position.
    pub said_idle: bool,
    /// It is going to look whether it is idle.
    pub looks: bool,
}

impl Books {
    /// The records of a process that joins at `from` and has not launched.
    pub fn new(from: u64) -> Self {
        Self {
            service: 0,
            busy: 0,
            since: None,
            ended: from + STARTS,
            recorded: None,
            said_idle: false,
            looks: false,
        }
    }

    /// Whether work is pending changes, or not, at `now`.
    pub fn set_pending(&mut self, now: u64, pending: bool) {
        match self.since {
            Some(since) if !pending => {
                self.busy += now - since;
                (self.since, self.ended) = (None, now);
            }
            None if pending => self.since = Some(now),
            _ => {}
        }
    }

    /// An operation of `estimate` ns is complete.
    pub fn serve(&mut self, estimate: u64) {
        self.service += estimate;
    }

    /// Whether work is pending.
    pub fn is_pending(&self) -> bool {
        self.since.is_some()
    }

    /// Its gate takes another position, in which it lets work through and records it, or not: what
    /// was said before is void, as in the library.
    pub fn moved(&mut self, now: u64, records: bool) {
        self.recorded = records.then_some(now);
        self.said_idle = false;
    }

    /// Since when nothing has been pending that the library would have seen. At a gate that is
    /// unbound or closed it does not look.
    pub fn rests_since(&self) -> Option<u64> {
        let recorded = self.recorded.filter(|_| self.since.is_none())?;
        Some(recorded.max(self.ended))
    }

    /// The daemon's view of them.
    pub fn sample(&self, who: Who, guessed: bool) -> Sample {
        Sample {
            who,
            service: self.service,
            busy: self.busy,
            pending: self.since,
            guessed,
        }
    }
}
