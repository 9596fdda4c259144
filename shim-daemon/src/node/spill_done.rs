//! What work on host memory has come to: a range was allocated, stored in a file or fetched from
//! one, or was not.

use gpushare_core::{Nanos, ProcessId, TenantId};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{Refusal, Reply, Stored};

use super::{Effect, Node};
use crate::connection::Passed;
use crate::spill::{Done, Failed, Job, Key, Task};

impl Node {
    /// Work on host memory has ended.
    pub fn copied(&mut self, now: Nanos, done: Done) {
        let Done { job, outcome } = done;
        self.residency.storing.ends(&job);
        let Key {
            process,
            connection,
            ..
        } = job.key;
        let Some(known) = self.processes.get(process) else {
            // It ended meanwhile, and all it had with it. The work may have begun after that. Or it
            // has registered anew, and knows nothing of this range.
            if !matches!(job.task, Task::Store { .. }) {
                let range = (job.offset, job.stored.bytes);
                self.residency.host.take_back(process, &job.host, range);
                if let Some(tenant) = self.residency.left.tenant(process) {
                    self.tell_held(tenant);
                }
            }
            return;
        };
        let (tenant, is_here) = (known.tenant(), known.connection() == Some(connection));
        if !matches!(job.task, Task::Store { .. }) {
            let has = !matches!(outcome, Err(Failed::NoRoom(_)));
            let bytes = Bytes(job.stored.bytes);
            self.residency.storing.host_has(process, bytes, has, now);
        }
        match &job.task {
            Task::Allocate { .. } => {
                let next = self.residency.storing.allocating.remove(&process);
                self.is_allocated((tenant, is_here), &job, outcome);
                if let Some((client, id, bytes)) = next.flatten() {
                    self.give_host(now, (client, process, id), bytes);
                }
            }
            Task::Fetch(_) => {
                self.is_free(now, process, (tenant, is_here));
                self.is_fetched((tenant, is_here), &job, outcome);
            }
            Task::Store { .. } => {
                // What was suspended to the file of the job may be no more: the job tells.
                let file = job.stored.file;
                let is_nodes = self.residency.storing.is_nodes(process, file);
                let elsewhere = (!is_nodes).then_some(file);
                self.is_free(now, process, (tenant, is_here));
                match outcome {
                    Ok(sum) if is_here => self.is_stored(now, tenant, &job, sum),
                    Ok(_) => self.is_not_stored(tenant, &job),
                    Err(error) => {
                        self.is_not_stored(tenant, &job);
                        let text =
                            format!("memory stays on the host: it cannot be stored: {error}");
                        let to = (tenant, connection, job.key.id);
                        self.does_not_store(now, to, elsewhere, text);
                    }
                }
            }
        }
        self.tend_host(now);
    }

    /// No copy of a process is under way any more.
    fn is_free(&mut self, now: Nanos, process: ProcessId, (tenant, is_here): (TenantId, bool)) {
        self.residency.storing.busy.remove(&process);
        self.residency.storing.is_heard(tenant, now);
        if !is_here {
            // Its connection broke. If it asked again meanwhile it was refused, and waits until it
            // is asked by another word.
            self.ask_one_to_store(now, tenant, false);
        }
    }

    /// A range was allocated for a process, or not.
    fn is_allocated(
        &mut self,
        (tenant, is_here): (TenantId, bool),
        job: &Job,
        outcome: Result<u64, Failed>,
    ) {
        let Key {
            process,
            connection,
            id,
        } = job.key;
        let (offset, bytes) = (job.offset, job.stored.bytes);
        let host = &mut self.residency.host;
        let is_its_own = host.range(process, offset, bytes).is_some();
        match outcome {
            Ok(_) if is_here && is_its_own => {
                self.residency.failing.remove(&process);
                self.hand_out((connection, id), &job.host, (offset, bytes));
            }
            outcome => {
                // It asks again, and knows nothing of this range.
                host.take_back(process, &job.host, (offset, bytes));
                self.tell_held(tenant);
                if let Err(error) = outcome {
                    self.host_failed(process, &error.to_string());
                }
                self.refuse_host(connection, id, Refusal::NoMemory);
            }
        }
    }

    /// Stored bytes were read into a range, or not.
    fn is_fetched(
        &mut self,
        (tenant, is_here): (TenantId, bool),
        job: &Job,
        outcome: Result<u64, Failed>,
    ) {
        let Key {
            process,
            connection,
            id,
        } = job.key;
        let range = (job.offset, job.stored.bytes);
        let host = &mut self.residency.host;
        let is_its_own = host.range(process, range.0, range.1).is_some();
        if outcome.is_ok() && is_here && is_its_own {
            self.residency.failing.remove(&process);
            self.hand_out((connection, id), &job.host, range);
            let storing = &mut self.residency.storing;
            return storing.was_fetched(process, Bytes(job.stored.bytes));
        }
        // It asks again, and knows nothing of this range.
        host.take_back(process, &job.host, range);
        self.tell_held(tenant);
        match outcome {
            Ok(_) => self.refuse_host(connection, id, Refusal::NoMemory),
            Err(error @ (Failed::Host(_) | Failed::NoRoom(_))) => {
                // The file has the bytes still.
                self.host_failed(process, &error.to_string());
                self.refuse_host(connection, id, Refusal::NoMemory);
            }
            Err(Failed::System(error)) => {
                let text = format!("it cannot be read: {error}");
                self.data_is_lost((process, connection, id), job.stored, &text);
            }
            Err(other) => {
                self.data_is_lost((process, connection, id), job.stored, &other.to_string());
            }
        }
    }

    /// What a copy has made in a file is of no use.
    fn is_not_stored(&mut self, tenant: TenantId, job: &Job) {
        self.forget_stored(job.key.process, job.stored);
        self.tell_held(tenant);
    }

    fn is_stored(&mut self, now: Nanos, tenant: TenantId, job: &Job, sum: u64) {
        let Key {
            process,
            connection,
            id,
        } = job.key;
        let storing = &mut self.residency.storing;
        let Some(reader) = storing.file(process, job.stored.file) else {
            let is_nodes = storing.is_nodes(process, job.stored.file);
            let elsewhere = (!is_nodes).then_some(job.stored.file);
            self.forget_stored(process, job.stored);
            self.tell_held(tenant);
            // The process asks for this range no more: a command would wait for ever.
            let text = "memory stays on the host: its file is not there any more".to_owned();
            return self.does_not_store(now, (tenant, connection, id), elsewhere, text);
        };
        *storing.done.entry(tenant).or_default() += Bytes(job.stored.bytes);
        let stored = Stored { sum, ..job.stored };
        storing.offers.add(process, job.offset, stored);
        self.effect(Effect::Client {
            to: connection,
            id,
            reply: Reply::HostStored(stored),
            descriptors: vec![Passed::Shared(reader)],
        });
    }
}
