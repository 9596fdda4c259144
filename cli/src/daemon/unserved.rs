//! A daemon that is there and does not serve this user, in words.

use super::machine::Silence;
use super::{Holder, NODE, left};
use std::io::{Error, ErrorKind};
use std::path::Path;

/// How a daemon does not serve, and what is to be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unserved {
    /// How it does not serve.
    pub(crate) text: String,
    /// The advice for it: words for `doctor`.
    pub(crate) advice: &'static str,
}

impl Unserved {
    pub(crate) fn of(text: impl Into<String>, advice: &'static str) -> Self {
        let text = text.into();
        Self { text, advice }
    }

    /// The machine's, which does not serve now.
    pub(super) fn silent(silence: Silence) -> Self {
        let advice = match silence {
            Silence::Stopped | Silence::Enabled => {
                "start it: systemctl start gpushared; its log says why it stopped: journalctl -u gpushared"
            }
            Silence::Starting => {
                "wait for it; if it stays so, restart it: systemctl restart gpushared (tenants run on); its log says what it does: journalctl -u gpushared"
            }
            Silence::Crowded => "end some: each `run`, and each command that follows, has one",
        };
        Self::of(silence.to_string(), advice)
    }

    /// The machine's, which is closed to this user.
    pub(super) fn closed(error: &Error) -> Self {
        let advice = "ask its administrator; `gpushare run --daemon off` runs without guarantees";
        Self::of(not_to_be_used(error), advice)
    }

    /// The machine's, which answers what this version does not take.
    pub(super) fn unlike(error: &Error) -> Self {
        let advice = "restart it, if it was not since the upgrade: systemctl restart gpushared; systemctl cat gpushared says whose installation it is";
        Self::of(not_to_be_used(error), advice)
    }

    /// One of this user's own; `None` if no program needs it, and none waits for it either.
    pub(super) fn own(folder: &Path, error: &Error) -> Option<Self> {
        let at = folder.display();
        if let Some(holder) = Holder::of(folder, error) {
            let text = format!(
                "your own daemon at {at} does not answer, and `gpushare run` for that GPU waits for it: continue or end {holder}"
            );
            let advice = "its programs live on meanwhile; once it has ended, the next `gpushare run` for that GPU takes them over";
            return Some(Self::of(text, advice));
        }
        if error.kind() == ErrorKind::InvalidData {
            let text = format!("your own daemon at {at} is not to be used: {error}");
            let advice = "let its programs end: it ends with the last of them, and the next `gpushare run` starts one of this version";
            return Some(Self::of(text, advice));
        }
        let kept = left::living(folder);
        (kept > 0).then(|| {
            let tenants = if kept == 1 { "tenant" } else { "tenants" };
            let text = format!(
                "your own daemon at {at} does not serve ({error}) and had {kept} {tenants}: programs in them keep what they were granted, \
                 and the next `gpushare run` for that GPU takes them over"
            );
            let advice = "nothing to do while you need it no more; `log` in its folder says why it ended";
            Self::of(text, advice)
        })
    }
}

fn not_to_be_used(error: &Error) -> String {
    format!("the machine's daemon at {NODE} is not to be used: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_runs_is_not_to_be_started() {
        for silence in [Silence::Stopped, Silence::Enabled] {
            assert!(Unserved::silent(silence).advice.starts_with("start it"));
        }
        let error = |kind| Error::new(kind, "the daemon speaks protocol 1");
        let hangs = Unserved::silent(Silence::Starting).advice;
        let crowded = Unserved::silent(Silence::Crowded).advice;
        let closed = Unserved::closed(&error(ErrorKind::PermissionDenied)).advice;
        let unlike = Unserved::unlike(&error(ErrorKind::InvalidData)).advice;
        for (advice, words) in [
            (hangs, "systemctl restart"),
            (crowded, "end some"),
            (closed, "ask its administrator"),
            (unlike, "systemctl restart"),
        ] {
            assert!(advice.contains(words), "{advice}");
            assert!(!advice.contains("systemctl start"), "{advice}");
        }
    }

    #[test]
    fn an_own_daemon_that_is_there_is_not_said_to_be_needed_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let own = |kind| Unserved::own(folder.path(), &Error::from(kind));
        for kind in [ErrorKind::WouldBlock, ErrorKind::InvalidData] {
            let told = own(kind).unwrap();
            assert!(!told.advice.contains("nothing to do"), "{told:?}");
        }
        assert_eq!(own(ErrorKind::ConnectionRefused), None);
    }
}
