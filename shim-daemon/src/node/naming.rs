//! Hooks name the first processes of containers by their pidfds.
//!
//! A look at such a process takes as long as its user likes, up to the time that looks have. So the
//! size of what a hook says is bounded before the look begins, and so is the number of the hooks
//! that wait ([ADR
//! 212](../../../docs/adr/0212-what-a-user-asks-is-bounded-before-it-is-worked-at.md)).

use std::io;

use gpushare_core::Nanos;
use gpushare_protocol::wire::{ControlReply, ErrorCode, Injection, WireError, is_container_id};

use super::inspecting::Presented;
use super::{ConnId, Node};
use crate::foreign::Foreign;
use crate::groups::Groups;
use crate::spill::What;

/// Bytes of an image's own preload file that are taken over.
const MOST_PRELOAD: usize = 16 << 10;
/// Its lines, the labels and the devices of a container: more than any has, of each.
const MOST: usize = 512;
/// Bytes of its labels and devices.
const MOST_NAMED: usize = 64 << 10;

/// Commands of a user that wait for a look at a time.
const MOST_OF_A_USER: usize = 16;
/// The same of all users but root together: a program may have users without end.
const MOST_OF_USERS: usize = 64;

impl Node {
    /// A hook names the first process of a container by its pidfd.
    pub fn name_container(
        &mut self,
        now: Nanos,
        command: (ConnId, u32),
        injection: Injection,
        (pidfd, asker): (Option<Foreign>, Groups),
    ) {
        if let Err(error) = self.may_look(command.0) {
            return self.answer_command(command, ControlReply::Error(error));
        }
        let injection = self.believed(command.0, injection);
        if let Err(error) = self.may_be_said(&injection) {
            self.tell_refused_injection(now, command.0, &injection, &error);
            return self.answer_command(command, ControlReply::Error(error));
        }
        let Some(pidfd) = pidfd else {
            return self.not_named(command, &injection, "no pidfd came with the request");
        };
        let presented = Presented::Named {
            command,
            injection: Box::new(injection),
            asker,
        };
        self.look_at(now, presented, What::Pidfd(pidfd));
    }

    /// A hook names the first process of a container that a rule allows to run without limits. It
    /// is answered once the node knows the container.
    pub(super) fn name_allowed(
        &mut self,
        now: Nanos,
        command: (ConnId, u32),
        container: String,
        (pidfd, asker): (Foreign, Groups),
    ) {
        if !is_container_id(&container) {
            let odd = io::Error::new(io::ErrorKind::InvalidInput, "its id is refused");
            return self.is_allowed(command, "", Err(odd), &asker);
        }
        let presented = Presented::Allowed {
            command,
            container,
            asker,
        };
        self.look_at(now, presented, What::Pidfd(pidfd));
    }

    pub(super) fn not_named(&mut self, command: (ConnId, u32), injection: &Injection, why: &str) {
        let text = format!("the container cannot be registered: {why}");
        let error = WireError::new(ErrorCode::NotFound, text);
        let of = (&*injection.id, &*injection.labels);
        self.tell_refused_container(self.world.now(), command.0, of, ("process", &error));
        self.answer_command(command, ControlReply::Error(error));
    }

    /// Refuses one more look for a hook of a user. It asks again.
    fn may_look(&self, from: ConnId) -> Result<(), WireError> {
        let Some((theirs, all)) = self.users.among(from, self.inspecting.commands()) else {
            return Ok(());
        };
        if theirs < MOST_OF_A_USER && all < MOST_OF_USERS {
            return Ok(());
        }
        let text =
            "the first processes of other containers are being looked at; try again in a moment";
        Err(WireError::retry(ErrorCode::Full, text))
    }

    /// Refuses what no hook of ours says of a container, and more of it than any container needs.
    pub(super) fn may_be_said(&self, injection: &Injection) -> Result<(), WireError> {
        let bad = |text: &str| Err(WireError::new(ErrorCode::BadLimits, text));
        if !is_container_id(&injection.id) {
            return bad(
                "the container's id is refused; accepted: 1 to 128 of A-Z a-z 0-9 _ . + -, not beginning with a dot",
            );
        }
        self.may_say(&injection.environment)?;
        let (labels, devices) = (&injection.labels, &injection.devices);
        let labelled = labels.iter().map(|(kind, value)| kind.len() + value.len());
        let named = labelled.chain(devices.iter().map(String::len));
        if labels.len().max(devices.len()) > MOST || named.sum::<usize>() > MOST_NAMED {
            return bad(
                "the container's labels and devices are refused; accepted: at most 512 of each, and 64 KiB together",
            );
        }
        let preload = &injection.preload;
        if preload.iter().map(|line| line.len() + 1).sum::<usize>() > MOST_PRELOAD {
            return bad("the image's own /etc/ld.so.preload is longer than 16 KiB");
        }
        if preload.len() > MOST {
            return bad("the image's own /etc/ld.so.preload has more than 512 lines");
        }
        let odd = |line: &String| line.chars().any(char::is_control);
        if preload.iter().any(odd) {
            return bad("the image's own /etc/ld.so.preload has a line with control characters");
        }
        Ok(())
    }
}
