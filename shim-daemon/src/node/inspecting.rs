//! Files and processes that others present: what is known of each is found out on another thread,
//! within a bound. What comes later is thrown away.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use gpushare_core::lanes::{Owner, Part};
use gpushare_core::{Nanos, ProcessId, TenantId};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{Control, ControlReply, ErrorCode, Injection, Stored, WireError};

use super::storing::Wanted;
use super::{Client, ConnId, Effect, Node};
use crate::foreign::{Foreign, Lane};
use crate::groups::Groups;
use crate::spill::{Inspected, Inspection, What};

/// How long a look may take. On a disk of the machine it takes microseconds: only a server that
/// does not answer takes longer, or a machine on which nothing runs.
const PATIENCE: Nanos = Nanos::secs(10);

/// Why a file was refused that a process presents.
const NOT_OURS: &str = "it is no ordinary file without a name on a disk of this machine";
/// The same of one that cannot be looked at.
const SILENT: &str = "its file system did not answer within 10 s";
/// The same of a process.
const STUCK: &str = "its first process could not be looked at within 10 s";

/// What was presented.
#[derive(Debug)]
pub(super) enum Presented {
    /// A file of a previous daemon, by a process.
    Kept {
        tenant: TenantId,
        process: ProcessId,
        number: u64,
        /// What the process wants no more of it.
        forgotten: Bytes,
    },
    /// A file for a tenant of this name, by a command.
    Given {
        command: (ConnId, u32),
        name: String,
    },
    /// A container's first process, by a hook in these cgroups.
    Named {
        command: (ConnId, u32),
        injection: Box<Injection>,
        asker: Groups,
    },
    /// The same of a container that a rule allows to run without limits.
    Allowed {
        command: (ConnId, u32),
        container: String,
        asker: Groups,
    },
}

/// The looks under way.
#[derive(Debug, Default)]
pub(super) struct Inspecting {
    tickets: u64,
    /// By their tickets, with the time until which they are waited for.
    waiting: BTreeMap<u64, (Nanos, Presented)>,
    /// Processes a file of which was refused: said once of each.
    refused: BTreeSet<ProcessId>,
}

impl Inspecting {
    fn begins(&mut self, now: Nanos, presented: Presented) -> u64 {
        self.tickets += 1;
        self.waiting
            .insert(self.tickets, (now + PATIENCE, presented));
        self.tickets
    }

    /// A look that takes too long.
    fn overdue(&mut self, now: Nanos) -> Option<Presented> {
        let (ticket, _) = self.waiting.iter().find(|(_, (until, _))| *until <= now)?;
        let ticket = *ticket;
        self.waiting.remove(&ticket).map(|(_, presented)| presented)
    }

    /// When the next one takes too long.
    pub(super) fn next_timeout(&self) -> Option<Nanos> {
        self.waiting.values().map(|(until, _)| *until).min()
    }

    fn kept(&self) -> impl Iterator<Item = (TenantId, ProcessId, u64)> {
        let all = self.waiting.values();
        all.filter_map(|(_, presented)| match presented {
            Presented::Kept {
                tenant,
                process,
                number,
                ..
            } => Some((*tenant, *process, *number)),
            Presented::Given { .. } | Presented::Named { .. } | Presented::Allowed { .. } => None,
        })
    }

    /// The commands that wait for a look.
    pub(super) fn commands(&self) -> impl Iterator<Item = ConnId> {
        self.waiting.values().filter_map(|(_, one)| match one {
            Presented::Given { command, .. }
            | Presented::Named { command, .. }
            | Presented::Allowed { command, .. } => Some(command.0),
            Presented::Kept { .. } => None,
        })
    }

    /// How many files of a process, and of all its tenant, are looked at.
    pub(super) fn files(&self, tenant: TenantId, process: ProcessId) -> (usize, usize) {
        let own = self.kept().filter(|(_, of, _)| *of == process).count();
        (own, self.kept().filter(|(of, ..)| *of == tenant).count())
    }

    /// The files of a process that are looked at.
    pub(super) fn files_of(&self, process: ProcessId) -> impl Iterator<Item = u64> {
        let own = self.kept().filter(move |(_, of, _)| *of == process);
        own.map(|(.., number)| number)
    }

    /// Whether a file of a process is looked at.
    fn is_at(&self, process: ProcessId, file: u64) -> bool {
        self.kept()
            .any(|(_, of, number)| (of, number) == (process, file))
    }

    /// A process wants these bytes no more, perhaps of a file that is looked at.
    pub(super) fn forgets(&mut self, process: ProcessId, stored: Stored) {
        for (_, presented) in self.waiting.values_mut() {
            if let Presented::Kept {
                process: of,
                number,
                forgotten,
                ..
            } = presented
                && (*of, *number) == (process, stored.file)
            {
                *forgotten += Bytes(stored.bytes);
            }
        }
    }

    /// A process has ended.
    pub(super) fn ended(&mut self, process: ProcessId) {
        self.refused.remove(&process);
        self.waiting.retain(|_, (_, presented)| {
            !matches!(presented, Presented::Kept { process: of, .. } if *of == process)
        });
    }

    /// A command's connection has ended.
    pub(super) fn left(&mut self, connection: ConnId) {
        self.waiting.retain(|_, (_, presented)| match presented {
            Presented::Given { command, .. }
            | Presented::Named { command, .. }
            | Presented::Allowed { command, .. } => command.0 != connection,
            Presented::Kept { .. } => true,
        });
    }
}

impl Node {
    /// The lane of what a tenant shares with the daemon: its host memory, and its files.
    pub(super) fn lane(&self, tenant: TenantId) -> Lane {
        self.lanes.lane(Owner {
            user: self.owner(tenant).unwrap_or(0),
            part: Part::Shared(tenant),
        })
    }

    /// The lane of the connections at a tenant's socket. Copies of the tenant's memory do not
    /// delay what is done there.
    pub(super) fn door_lane(&self, tenant: TenantId) -> Lane {
        self.lanes.lane(Owner {
            user: self.owner(tenant).unwrap_or(0),
            part: Part::Door(tenant),
        })
    }

    /// A process presents a file that it has from a previous daemon.
    pub fn present_file(&mut self, now: Nanos, client: Client, number: u64, file: Option<Foreign>) {
        let living = client
            .process
            .filter(|one| self.processes.get(*one).is_some());
        let (Some(process), Some(file)) = (living, file) else {
            return;
        };
        let is_known = self.residency.storing.file(process, number).is_some();
        if is_known || self.inspecting.is_at(process, number) {
            // Its connection broke, and it tells again.
            return;
        }
        if !self.may_present(client.tenant, process) {
            tracing::warn!(
                ?process,
                "a process presents a file that it cannot have, or too many"
            );
            return;
        }
        let presented = Presented::Kept {
            tenant: client.tenant,
            process,
            number,
            forgotten: Bytes::ZERO,
        };
        self.look_at(now, presented, What::Kept(file));
    }

    /// Moves a tenant out by command, and then into a file of the command's, which is made with the
    /// rights of its user.
    pub fn suspend_to(
        &mut self,
        now: Nanos,
        (from, id): (ConnId, u32),
        name: &str,
        files: [Option<Foreign>; 2],
    ) {
        let [Some(write), Some(read)] = files else {
            return self.not_given((from, id));
        };
        if let Err(error) = self.named_for(from, name) {
            return self.answer_command((from, id), ControlReply::Error(error));
        }
        let presented = Presented::Given {
            command: (from, id),
            name: name.to_owned(),
        };
        self.look_at(now, presented, What::Given(write, read));
    }

    pub(super) fn look_at(&mut self, now: Nanos, presented: Presented, what: What) {
        let ticket = self.inspecting.begins(now, presented);
        let folder = self.residency.storing.folder.as_ref();
        let folder = folder.map(|folder| folder.path().to_owned());
        self.effect(Effect::Inspect(Box::new(Inspection {
            ticket,
            what,
            folder,
        })));
    }

    /// A look at a file was taken.
    pub fn inspected(&mut self, now: Nanos, inspected: Inspected) {
        let Inspected {
            ticket,
            what,
            facts,
        } = inspected;
        let Some((_, presented)) = self.inspecting.waiting.remove(&ticket) else {
            // It took too long, or nobody waits for it any more: it is closed on its lane.
            return;
        };
        match (presented, what, facts) {
            (
                Presented::Kept {
                    tenant,
                    process,
                    number,
                    forgotten,
                },
                What::Kept(file),
                Some(facts),
            ) => {
                let file = file.onto(&self.lane(tenant));
                if forgotten == Bytes::MAX {
                    // All of it. It is closed on its lane.
                    return self.tend_host(now);
                }
                let storing = &mut self.residency.storing;
                storing.presented((process, number), file, facts, forgotten);
                self.tell_held(tenant);
            }
            (Presented::Given { command, .. }, What::Given(..), Some(facts))
                if facts.is_memory && self.users.of(command.0).is_some() =>
            {
                let text = format!(
                    "the folder is refused: its files are in the host's memory (tmpfs), which is to be freed; accepted: {}",
                    Control::FILE_SYSTEMS
                );
                let error = WireError::new(ErrorCode::OutOfOrder, text);
                self.answer_command(command, ControlReply::Error(error));
            }
            (Presented::Given { command, name }, What::Given(write, read), Some(_)) => {
                self.is_given(now, command, &name, (write, read));
            }
            (
                Presented::Named {
                    command,
                    injection,
                    asker,
                },
                What::Init(found),
                _,
            ) => match *found {
                Ok(init) => self.inject(now, command, &injection, init, &asker),
                Err(error) => self.not_named(command, &injection, &error.to_string()),
            },
            (
                Presented::Allowed {
                    command,
                    container,
                    asker,
                },
                What::Init(found),
                _,
            ) => self.is_allowed(command, &container, *found, &asker),
            (presented, ..) => self.refuse_file(presented, NOT_OURS),
        }
        self.tend_host(now);
    }

    /// Gives up looks that take too long.
    pub(super) fn give_up_looks(&mut self, now: Nanos) {
        let mut some = false;
        while let Some(presented) = self.inspecting.overdue(now) {
            self.refuse_file(presented, SILENT);
            some = true;
        }
        if some {
            self.tend_host(now);
        }
    }

    fn refuse_file(&mut self, presented: Presented, why: &str) {
        match presented {
            Presented::Kept {
                tenant, process, ..
            } => {
                if self.inspecting.refused.insert(process) {
                    let known = self.processes.get(process);
                    let pid = known.map_or(0, |known| known.peer().pid);
                    let text = format!("a file that process {pid} presents is refused: {why}");
                    self.event("file-refused", Some(tenant), None, text);
                }
            }
            Presented::Named {
                command, injection, ..
            } => self.not_named(command, &injection, STUCK),
            Presented::Allowed {
                command,
                container,
                asker,
            } => {
                let stuck = io::Error::new(io::ErrorKind::TimedOut, STUCK);
                self.is_allowed(command, &container, Err(stuck), &asker);
            }
            Presented::Given { command, .. } if why == SILENT => {
                let text = format!("the file is refused: {why}");
                let error = WireError::new(ErrorCode::OutOfOrder, text);
                self.answer_command(command, ControlReply::Error(error));
            }
            Presented::Given { command, .. } => self.not_given(command),
        }
    }

    fn not_given(&mut self, command: (ConnId, u32)) {
        let text = format!(
            "the folder is refused: its file system has to be {}, or of the same kind as that of the folder in [swap] spill, and never FUSE (with the request come two descriptors of one file without a name, the second only to read)",
            Control::FILE_SYSTEMS
        );
        let error = WireError::new(ErrorCode::OutOfOrder, text);
        self.answer_command(command, ControlReply::Error(error));
    }

    fn is_given(
        &mut self,
        now: Nanos,
        command: (ConnId, u32),
        name: &str,
        (write, read): (Foreign, Foreign),
    ) {
        // The file comes first: a tenant that is out already would count as moved without it.
        let suspended = self.storable_by_name(command.0, name).and_then(|tenant| {
            self.may_wait(command.0, tenant)?;
            if self.residency.storing.is_elsewhere(tenant) {
                let text = format!(
                    "the memory of {name} is in a file of an earlier suspend --to already, and stays there; `gpushare resume {name}` first"
                );
                return Err(WireError::new(ErrorCode::OutOfOrder, text));
            }
            let lane = self.lane(tenant);
            let (write, read) = (write.onto(&lane), read.onto(&lane));
            self.residency.storing.store_elsewhere(tenant, write, read);
            self.move_by_command(now, command, tenant, true);
            Ok(())
        });
        if let Err(error) = suspended {
            self.answer_command(command, ControlReply::Error(error));
        }
    }

    pub(super) fn answer_command(&mut self, (to, id): (ConnId, u32), reply: ControlReply) {
        self.effect(Effect::Command { to, id, reply });
    }

    /// Whether a request waits for a look at the file with its bytes.
    pub(super) fn is_inspected(&self, wanted: &Wanted) -> bool {
        let stored = wanted.stored;
        stored.is_some_and(|stored| self.inspecting.is_at(wanted.process, stored.file))
    }
}
