//! Carrying out what the brain decides, in the order it decides it.

use gpushare_core::{
    Answer, AskKey, ContainerId, Decision, Denial, DeviceId, Event, Nanos, Notice, Signal, Why,
};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{ControlReply, ErrorCode, Refusal, Reply, WireError};
use nix::sys::signal::Signal as Posix;

use super::container::index;
use super::{Effect, Node};

impl Node {
    /// Carries out all decisions, those that carrying them out leads to included.
    pub(super) fn carry_out(&mut self, now: Nanos) {
        while let Some(decision) = self.world.poll_decision() {
            match decision {
                Decision::Admit { container } => self.admit(now, container),
                Decision::Refuse { container, error } => self.refuse(container, &error.to_string()),
                Decision::SetGrant {
                    container,
                    device,
                    grant,
                } => self.set_grant(container, device, grant),
                Decision::Reclaim {
                    ticket,
                    container,
                    device,
                    to,
                } => {
                    let held = self.lower_grant(container, device, to);
                    let used = self.used_by(container, device);
                    let event = Event::Reclaimed {
                        ticket,
                        container,
                        device,
                        held,
                        used,
                    };
                    self.world.handle(now, event);
                }
                Decision::Answer { ask, answer } => self.answer(ask, answer),
                Decision::Resample { device } => {
                    if let Some(device) = index(device) {
                        self.look(device);
                    }
                }
                Decision::Signal {
                    container,
                    signal,
                    why,
                } => self.signal(container, signal, &why),
                Decision::Notice(notice) => self.note(&notice),
            }
        }
        self.show_waiters();
    }

    fn set_grant(&mut self, container: ContainerId, device: DeviceId, grant: Bytes) {
        if let Some(known) = self.containers.get(&container)
            && let Some(column) = known.column(device)
        {
            known.grant(column, grant);
        }
    }

    fn lower_grant(&mut self, container: ContainerId, device: DeviceId, to: Bytes) -> Bytes {
        let Some(known) = self.containers.get(&container) else {
            return Bytes::ZERO;
        };
        known
            .column(device)
            .map_or(Bytes::ZERO, |column| known.lower(column, to))
    }

    fn answer(&mut self, ask: AskKey, answer: Answer) {
        let Some((to, id)) = self.asks.remove(&ask) else {
            return;
        };
        let reply = match answer {
            Answer::Granted { grant } => Reply::Granted { grant: grant.0 },
            Answer::Denied(denial) => Reply::Refused(refusal(denial)),
        };
        self.reply(to, id, reply);
    }

    /// Ends a container: its processes by their pidfds, and the command that runs it is told why.
    fn signal(&mut self, container: ContainerId, signal: Signal, why: &Why) {
        let posix = match signal {
            Signal::Terminate => Posix::SIGTERM,
            Signal::Kill => Posix::SIGKILL,
        };
        let text = self.reason(why);
        self.event("ended", Some(container), None, format!("{posix}: {text}"));
        let Some(known) = self.containers.get(&container) else {
            return;
        };
        let owners: Vec<_> = known.owners.iter().copied().collect();
        for process in known
            .members
            .iter()
            .filter_map(|member| self.processes.get(member))
        {
            // One that is gone already has what was wanted of it.
            let _ = crate::peer::signal(&process.peer.pidfd, posix);
        }
        for to in owners {
            let reply = ControlReply::End {
                signal: posix as i32,
                why: text.clone(),
            };
            self.effects.push_back(Effect::Command { to, id: 0, reply });
        }
    }

    fn reason(&self, why: &Why) -> String {
        match why {
            Why::Collision {
                device,
                wanted_by,
                bytes,
            } => format!(
                "container {} needs memory that this one borrowed above its request: {} on {}",
                self.name(*wanted_by),
                bytes.human(),
                self.device_name(*device),
            ),
            Why::Idle => "no GPU work for as long as its idle end allows".to_owned(),
            Why::RunLimit => "it ran for its run limit".to_owned(),
        }
    }

    fn refuse(&mut self, container: ContainerId, error: &str) {
        let Some(known) = self.containers.get_mut(&container) else {
            return;
        };
        let pending = std::mem::take(&mut known.pending);
        if !known.admitted {
            self.containers.remove(&container);
        }
        for (to, id) in pending {
            let reply = ControlReply::Error(WireError::new(ErrorCode::BadLimits, error));
            self.effects.push_back(Effect::Command { to, id, reply });
        }
    }

    fn note(&mut self, notice: &Notice) {
        let (kind, container, device, text) = match notice {
            Notice::Queued { container } => {
                let why = "waits until its request fits beside all others".to_owned();
                self.tell_queued(*container, &why);
                ("queued", Some(*container), None, why)
            }
            Notice::Waiting {
                ask, device, short, ..
            } => {
                let container = self.processes.get(&ask.0).map(|process| process.container);
                let text = format!("an allocation waits: {} are missing", short.human());
                ("waiting", container, Some(*device), text)
            }
            Notice::Overdrawn {
                device,
                by,
                unmanaged,
            } => {
                let text = format!(
                    "{} more in use than may be, {} of it by processes that are none of ours: nothing new is granted",
                    by.human(),
                    unmanaged.human()
                );
                ("overdrawn", None, Some(*device), text)
            }
            Notice::Balanced { device } => (
                "balanced",
                None,
                Some(*device),
                "the books hold again".to_owned(),
            ),
            Notice::Excess {
                container,
                device,
                bytes,
            } => {
                let text = format!("holds {} more than it was granted", bytes.human());
                ("excess", Some(*container), Some(*device), text)
            }
            Notice::Idle { container } => {
                ("idle", Some(*container), None, "no GPU work".to_owned())
            }
            Notice::Active { container } => {
                ("active", Some(*container), None, "works again".to_owned())
            }
            Notice::EndsSoon { container, why, .. } => {
                let text = format!("will be ended: {}", self.reason(why));
                ("ends-soon", Some(*container), None, text)
            }
            Notice::Spared { container } => (
                "spared",
                Some(*container),
                None,
                "is not needed as a victim any more".to_owned(),
            ),
            Notice::WillNotYield { container } => (
                "will-not-yield",
                Some(*container),
                None,
                "is still there long after SIGKILL".to_owned(),
            ),
        };
        self.event(kind, container, device, text);
    }

    fn tell_queued(&mut self, container: ContainerId, why: &str) {
        let pending = self
            .containers
            .get(&container)
            .map(|known| known.pending.clone());
        for (to, id) in pending.unwrap_or_default() {
            let reply = ControlReply::Queued {
                why: why.to_owned(),
            };
            self.effects.push_back(Effect::Command { to, id, reply });
        }
    }
}

fn refusal(denial: Denial) -> Refusal {
    match denial {
        Denial::OverLimit { limit } => Refusal::OverLimit { limit: limit.0 },
        Denial::NoRoom { .. } => Refusal::NoMemory,
        Denial::TimedOut { waited } => Refusal::TimedOut {
            waited_ms: waited.0 / 1_000_000,
        },
        Denial::Cycle => Refusal::BrokeCycle,
        Denial::NoQuota => Refusal::NoQuota,
        Denial::Ending => Refusal::Ending,
        Denial::TooMany => Refusal::TooMany,
        Denial::DeviceLost => Refusal::DeviceLost,
    }
}
