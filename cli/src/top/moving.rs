//! Orders that move a tenant's memory. The daemon answers when all of it has moved, or refuses: at
//! once, or when it turns out that it cannot.

use crate::failure::Failure;
use crate::threads;
use gpushare_client::Talk;
use gpushare_protocol::wire::Control;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The longest that the screen waits for an answer. The move goes on all the same, and what comes
/// of it is said then.
const FIRST: Duration = Duration::from_millis(500);

/// An order that was given.
#[derive(Debug)]
pub(super) struct Moving {
    tenant: String,
    resume: bool,
    answer: Receiver<Result<(), String>>,
}

impl Moving {
    /// Orders a tenant's memory away or back, by another connection.
    pub(super) fn order(talk: &Talk, tenant: &str, resume: bool) -> Result<Self, Failure> {
        let mut own = Talk::connect(talk.folder()).map_err(Failure::ours)?;
        let (sender, answer) = channel();
        let tenant = tenant.to_owned();
        let name = tenant.clone();
        threads::begin(move || {
            let tenant = name;
            let order = match resume {
                true => Control::Resume { tenant },
                false => Control::Suspend { tenant },
            };
            // The screen may have gone: then nothing waits for the answer any more.
            let _ = sender.send(own.call(&order).map(|_| ()).map_err(|error| error.message));
        })?;
        Ok(Self {
            tenant,
            resume,
            answer,
        })
    }

    /// The first message about the order, and the order itself if its answer has still to come.
    pub(super) fn first(self) -> (String, Option<Self>) {
        match self.said(FIRST) {
            Some(said) => (said, None),
            None => (
                format!("{} is being {}", self.tenant, self.done()),
                Some(self),
            ),
        }
    }

    /// The outcome, if it is there within that time.
    pub(super) fn said(&self, patience: Duration) -> Option<String> {
        match self.answer.recv_timeout(patience) {
            Ok(Ok(())) => Some(format!("{} is {}", self.tenant, self.done())),
            Ok(Err(refused)) => Some(refused),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(format!("nothing is known of {}", self.tenant))
            }
        }
    }

    fn done(&self) -> &'static str {
        match self.resume {
            true => "resumed",
            false => "suspended",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Sender;

    fn moving(resume: bool) -> (Sender<Result<(), String>>, Moving) {
        let (sender, answer) = channel();
        let tenant = "web".to_owned();
        let moving = Moving {
            tenant,
            resume,
            answer,
        };
        (sender, moving)
    }

    #[test]
    fn memory_that_still_moves_is_not_said_to_have_moved() {
        for (resume, first, then) in [
            (false, "web is being suspended", "web is suspended"),
            (true, "web is being resumed", "web is resumed"),
        ] {
            let (sender, slow) = moving(resume);
            let (said, slow) = slow.first();
            assert_eq!(said, first);
            let slow = slow.expect("its answer has still to come");
            assert_eq!(slow.said(Duration::ZERO), None);
            sender.send(Ok(())).unwrap();
            assert_eq!(slow.said(Duration::ZERO).as_deref(), Some(then));
        }
    }

    #[test]
    fn a_move_that_is_over_at_once_has_nothing_more_to_say() {
        let (sender, quick) = moving(false);
        sender.send(Ok(())).unwrap();
        let (said, rest) = quick.first();
        assert_eq!(said, "web is suspended");
        assert!(rest.is_none());
    }

    #[test]
    fn a_refusal_is_said_whenever_it_comes() {
        let refused = || Err("the host has no memory".to_owned());
        let (sender, quick) = moving(false);
        sender.send(refused()).unwrap();
        assert_eq!(quick.first().0, "the host has no memory");
        let (sender, late) = moving(false);
        let (_, late) = late.first();
        sender.send(refused()).unwrap();
        let said = late.expect("no answer yet").said(Duration::ZERO);
        assert_eq!(said.as_deref(), Some("the host has no memory"));
    }
}
