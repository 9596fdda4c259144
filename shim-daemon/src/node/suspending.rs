//! Commands that move a tenant out or let it return, and wait for that.
//!
//! A tenant that cannot leave is asked again until it does. The command does not wait for that: it
//! ends with the reason once the tenant has not left when it was asked.

use std::collections::BTreeMap;

use gpushare_core::{Event, Nanos, TenantId};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{ControlReply, ErrorCode, Obstacle, Request, WireError};

use super::{ConnId, Node};

/// The commands, and what is known of the tenants that they are about.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// Those that wait until a tenant is out (`true`) or back.
    waiting: Vec<((ConnId, u32), TenantId, bool)>,
    /// What the tenants' processes last said against leaving.
    obstacles: BTreeMap<TenantId, String>,
}

impl Commands {
    /// A process says why it does not leave, perhaps.
    pub(super) fn hears(&mut self, tenant: TenantId, request: &Request) {
        let why = match *request {
            Request::SealBusy { why, .. } => obstacle(why).to_owned(),
            Request::NoRoom { bytes: 0, .. } => "its memory could not be copied".to_owned(),
            Request::NoRoom { bytes, .. } => {
                format!("the host has {} too little for it", Bytes(bytes).human())
            }
            _ => return,
        };
        if self.waiting.iter().any(|(_, of, _)| *of == tenant) {
            self.obstacles.insert(tenant, why);
        }
    }

    /// How many of a connection wait for a tenant.
    pub(super) fn waits(&self, from: ConnId, tenant: TenantId) -> usize {
        let waiting = self.waiting.iter();
        waiting
            .filter(|((waiting, _), of, _)| (*waiting, *of) == (from, tenant))
            .count()
    }

    /// Those that wait.
    pub(super) fn all(&self) -> impl Iterator<Item = ConnId> {
        self.waiting.iter().map(|((waiting, _), ..)| *waiting)
    }

    /// Forgets what was said of tenants that no command is about.
    fn tidy(&mut self) {
        let waiting = &self.waiting;
        let is_waited_for = |tenant| waiting.iter().any(|(_, of, _)| *of == tenant);
        self.obstacles.retain(|tenant, _| is_waited_for(*tenant));
    }
}

fn obstacle(why: Obstacle) -> &'static str {
    match why {
        Obstacle::Work => "work that it submitted does not end",
        Obstacle::Capture => "one of its streams captures",
        Obstacle::Call => "one of its threads stays in a call of the driver",
        Obstacle::Driver => "the driver refused what is needed to see the end of its work",
        _ => "its work does not end",
    }
}

impl Node {
    /// Moves a tenant out by command, or lets it return. Answered once that is done.
    pub(super) fn suspend(
        &mut self,
        now: Nanos,
        (from, id): (ConnId, u32),
        name: &str,
        out: bool,
    ) -> Result<Option<ControlReply>, WireError> {
        let tenant = match out {
            true => self.suspendable(from, name)?,
            false => self.named_for(from, name)?,
        };
        self.may_wait(from, tenant)?;
        self.move_by_command(now, (from, id), tenant, out);
        Ok(None)
    }

    /// The tenant of this name, if it can be suspended.
    pub(super) fn suspendable(&self, from: ConnId, name: &str) -> Result<TenantId, WireError> {
        let tenant = self.named_for(from, name)?;
        self.world.may_suspend(tenant).map_err(|why| {
            let text = format!("{name} cannot be suspended: {why}");
            WireError::new(ErrorCode::OutOfOrder, text)
        })?;
        Ok(tenant)
    }

    /// Moves it out, or lets it return. Answered once that is done, which may be at once.
    pub(super) fn move_by_command(
        &mut self,
        now: Nanos,
        command: (ConnId, u32),
        tenant: TenantId,
        out: bool,
    ) {
        let commands = &mut self.residency.commands;
        commands.obstacles.remove(&tenant);
        commands.waiting.push((command, tenant, out));
        let event = match out {
            true => Event::Suspend { tenant },
            false => Event::Resume { tenant },
        };
        self.happened(now, event);
        self.write_down_standing(tenant);
    }

    /// Answers commands whose tenant is where they wanted it. One that a call has woken before it
    /// was out is where it belongs. One that did not leave when it was asked runs on.
    pub(super) fn answer_moves(&mut self) {
        let waiting = std::mem::take(&mut self.residency.commands.waiting);
        for ((to, id), tenant, out) in waiting {
            let is_over = match out {
                true => self.has_left(tenant),
                false => Ok(self.is_in(tenant)),
            };
            match is_over {
                Ok(true) => self.tell(to, id, ControlReply::Done),
                Ok(false) => self
                    .residency
                    .commands
                    .waiting
                    .push(((to, id), tenant, out)),
                Err(error) => self.tell(to, id, ControlReply::Error(error)),
            }
        }
        self.residency.commands.tidy();
    }

    /// Whether a tenant is out by command, or was woken since.
    fn has_left(&self, tenant: TenantId) -> Result<bool, WireError> {
        if !self.world.is_suspended(tenant) {
            return Ok(true);
        }
        if self.world.is_stuck_in_return(tenant) {
            let name = self.name(tenant);
            let text = format!(
                "{name} has not left yet: it was on its way back to the device, and does not get \
                 there. It leaves once it is back; `gpushare resume {name}` ends that"
            );
            return Err(WireError::new(ErrorCode::OutOfOrder, text));
        }
        match self.world.did_not_suspend(tenant) {
            Some(again) => Err(self.does_not_leave(tenant, again)),
            None => Ok(self.world.has_left(tenant) && !self.is_on_its_way(tenant)),
        }
    }

    /// Why a suspended tenant runs on, and how that goes on.
    fn does_not_leave(&self, tenant: TenantId, again: Nanos) -> WireError {
        let name = self.name(tenant);
        let said = self.residency.commands.obstacles.get(&tenant);
        let why = match (said, self.world.may_suspend(tenant)) {
            (Some(said), _) => said.clone(),
            (None, Err(why)) => why.to_string(),
            (None, Ok(())) => "it was not ready in time".to_owned(),
        };
        let pause = again - self.world.now();
        let when = match pause.0 {
            0 => String::new(),
            _ => format!(" in {}", pause.human()),
        };
        let text = format!(
            "{name} has not left yet: {why}. It runs on, and is asked again{when} and later until \
             it leaves; `gpushare resume {name}` ends that"
        );
        WireError::new(ErrorCode::OutOfOrder, text)
    }

    /// Commands that wait until a tenant is out fail.
    pub(super) fn fail_moves(&mut self, tenant: TenantId, why: &str) {
        let waiting = std::mem::take(&mut self.residency.commands.waiting);
        for ((to, id), of, out) in waiting {
            if of == tenant && out {
                let error = WireError::new(ErrorCode::OutOfOrder, why);
                self.tell(to, id, ControlReply::Error(error));
            } else {
                self.residency.commands.waiting.push(((to, id), of, out));
            }
        }
    }

    fn tell(&mut self, to: ConnId, id: u32, reply: ControlReply) {
        self.effect(super::Effect::Command { to, id, reply });
    }

    /// A command's connection ended.
    pub(super) fn forget_mover(&mut self, connection: ConnId) {
        let waiting = &mut self.residency.commands.waiting;
        waiting.retain(|((to, _), ..)| *to != connection);
    }
}
