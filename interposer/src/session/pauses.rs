//! Pauses between attempts to come back to a daemon.
//!
//! A daemon that is away may serve at any moment, and gives all processes of the previous one two
//! seconds. One that refuses this process does so until something changes on its side: it is asked
//! less and less often, but always within half of those seconds.

use std::time::Duration;

use super::PAUSES;
use super::register::Failed;

/// The longest pause after a refusal.
const REFUSED: Duration = Duration::from_secs(1);

/// The attempts so far.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
    /// The last refusal: it is logged once.
    refused: Option<String>,
}

impl Pauses {
    pub(super) fn new() -> Self {
        Self {
            next: PAUSES.0,
            refused: None,
        }
    }

    /// An attempt has failed: how long to wait before the next one.
    pub(super) fn after(&mut self, failed: Failed) -> Duration {
        let most = match failed {
            Failed::Away(error) => {
                tracing::debug!(%error, "no daemon yet");
                PAUSES.1
            }
            Failed::Refused(why) => {
                if self.refused.as_ref() != Some(&why) {
                    tracing::warn!(%why, "not registered again; this is tried on");
                }
                self.refused = Some(why);
                REFUSED
            }
        };
        let pause = self.next.min(most);
        self.next = (pause * 2).min(most);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away() -> Failed {
        Failed::Away(std::io::ErrorKind::NotFound.into())
    }

    fn refused(why: &str) -> Failed {
        Failed::Refused(why.to_owned())
    }

    fn longest(failed: fn() -> Failed) -> Duration {
        let mut pauses = Pauses::new();
        let all = (0..100).map(|_| pauses.after(failed()));
        all.max().unwrap_or_default()
    }

    #[test]
    fn a_refusal_is_met_with_longer_pauses_than_absence_and_bounded_ones() {
        assert_eq!(longest(away), PAUSES.1);
        assert_eq!(longest(|| refused("no")), REFUSED);
        assert_eq!(Pauses::new().after(refused("no")), PAUSES.0);
    }

    #[test]
    fn after_refusals_an_absent_daemon_is_looked_for_as_often_as_ever() {
        let mut pauses = Pauses::new();
        for _ in 0..100 {
            pauses.after(refused("no"));
        }
        assert_eq!(pauses.after(away()), PAUSES.1);
    }

    #[test]
    fn a_refusal_is_noted_until_another_one_comes() {
        let mut pauses = Pauses::new();
        for why in ["one", "one", "two"] {
            pauses.after(refused(why));
            assert_eq!(pauses.refused.as_deref(), Some(why));
            pauses.after(away());
            assert_eq!(pauses.refused.as_deref(), Some(why));
        }
    }
}
