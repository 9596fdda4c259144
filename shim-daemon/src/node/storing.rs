//! The books of host memory that lies in files, without any decision.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gpushare_core::{Nanos, ProcessId, TenantId};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{Spot, Stored};

use super::host_store::PIECE;
use super::offers::Offers;
use super::{Client, ConnId};
use crate::foreign::{Foreign, Lane};
use crate::spill::{Facts, Job, SpillFolder, Task};

/// Ranges are multiples of this.
const WHOLE: u64 = 2 << 20;
/// How long it counts what a process is short of that does not ask any more.
const SHORT: Nanos = Nanos::secs(2);

/// A request of a process that waits for room on the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) process: ProcessId,
    pub(super) connection: ConnId,
    pub(super) id: u32,
    pub(super) since: Nanos,
    pub(super) bytes: Bytes,
    /// How much the process is short of in all.
    pub(super) all: Bytes,
    /// Stored bytes that are wanted there; `None` for an empty range.
    pub(super) stored: Option<Stored>,
}

/// A file that holds bytes of a process.
#[derive(Debug)]
pub(super) struct Kept {
    /// `None` for a file of a previous daemon's.
    write: Option<Arc<Foreign>>,
    read: Arc<Foreign>,
    /// The length of each stored range, by its offset.
    places: BTreeMap<u64, Bytes>,
    /// Bytes that lay in the file when it was presented.
    before: Bytes,
    /// It lies in the node's folder, not in one that a command named.
    is_nodes: bool,
}

/// Files of one command's folder, for one tenant.
#[derive(Debug)]
pub(super) struct Elsewhere {
    pub(super) number: u64,
    write: Arc<Foreign>,
    read: Arc<Foreign>,
    next: u64,
    /// The brain knows that all of it is there.
    pub(super) told: bool,
}

/// A tenant that gave no more of its memory, though it has some.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silent {
    /// How often since it last gave some.
    pub(super) times: u32,
    /// It is not asked again before then.
    pub(super) until: Nanos,
}

/// The node's folder, the files, and what is asked for.
#[derive(Debug, Default)]
pub(super) struct Storing {
    pub(super) folder: Option<SpillFolder>,
    limit: Bytes,
    files: BTreeMap<(ProcessId, u64), Kept>,
    /// Where each process's next bytes of the node's folder go.
    current: BTreeMap<ProcessId, u64>,
    pub(super) waiting: VecDeque<Wanted>,
    /// Processes for which memory is being allocated, and what each asked for meanwhile: what it is
    /// given for that depends on the other answer, which it has to have first.
    pub(super) allocating: BTreeMap<ProcessId, Option<(Client, u32, u64)>>,
    /// Bytes that processes which were given a part still lack, and ask for next. The time until
    /// which that counts.
    short: BTreeMap<ProcessId, (Bytes, Nanos)>,
    /// Bytes that the host did not have for a process, whatever the budget says. The time until
    /// which that counts.
    unmet: BTreeMap<ProcessId, (Bytes, Nanos)>,
    /// Processes of which a copy is under way.
    pub(super) busy: BTreeSet<ProcessId>,
    /// Where the jobs of each process that are under way work: their ends see to what is there.
    under_way: BTreeMap<(ProcessId, ConnId, u32), Spot>,
    /// The connection over which each process has said what it has. What it says over another one
    /// is older.
    told: BTreeMap<ProcessId, ConnId>,
    /// Ranges that are stored, and that their processes have not dropped yet.
    pub(super) offers: Offers,
    /// Tenants that are asked to have their ranges stored, and since when nothing was heard of
    /// each.
    pub(super) asked: BTreeMap<TenantId, Nanos>,
    /// Tenants that asked for nothing while they were asked.
    pub(super) silent: BTreeMap<TenantId, Silent>,
    /// Nothing is stored before then: the disk was full, or failed.
    pub(super) paused: Option<Nanos>,
    /// Bytes stored since the tenant was asked.
    pub(super) done: BTreeMap<TenantId, Bytes>,
    /// Bytes of each process that were read back since that was told.
    fetched: BTreeMap<ProcessId, Bytes>,
    /// Tenants whose memory a command wants in a file of its own.
    pub(super) elsewhere: BTreeMap<TenantId, Elsewhere>,
    numbers: u64,
}

/// A place for bytes in a file.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) number: u64,
    pub(super) file: Arc<Foreign>,
    pub(super) at: u64,
}

impl Storing {
    pub(super) fn new(limit: Bytes, instance: u64) -> Self {
        Self {
            limit,
            // Two daemons' files have other numbers.
            numbers: instance,
            ..Self::default()
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A request was served, or given up: what its process is short of for now.
    pub(super) fn served(&mut self, wanted: &Wanted, now: Nanos) {
        let left = wanted.all - wanted.bytes;
        self.short.insert(wanted.process, (left, now + SHORT));
    }

    /// The bytes that all processes lack.
    pub(super) fn shortage(&mut self, now: Nanos) -> Bytes {
        self.short.retain(|_, (_, until)| now < *until);
        let waiting: Bytes = self.waiting.iter().map(|wanted| wanted.all).sum();
        let asks = |process| self.waiting.iter().any(|wanted| wanted.process == process);
        let others = self.short.iter().filter(|(process, _)| !asks(**process));
        waiting + others.map(|(_, (bytes, _))| *bytes).sum()
    }

    /// The host had so much for a process, or had not.
    pub(super) fn host_has(&mut self, process: ProcessId, bytes: Bytes, has: bool, now: Nanos) {
        match has {
            true => self.unmet.remove(&process),
            false => self.unmet.insert(process, (bytes, now + SHORT)),
        };
    }

    /// The bytes that the host lacks, though the budget has them.
    pub(super) fn host_shortage(&mut self, now: Nanos) -> Bytes {
        self.unmet.retain(|_, (_, until)| now < *until);
        self.unmet.values().map(|(bytes, _)| *bytes).sum()
    }

    /// Whether the host lacked room for a process a moment ago.
    pub(super) fn is_unmet(&self, process: ProcessId) -> bool {
        self.unmet.contains_key(&process)
    }

    /// Whether any bytes are in files.
    pub(super) fn has_files(&self) -> bool {
        self.files.values().any(|file| !file.bytes().is_zero())
    }

    pub(super) fn limit(&self) -> Bytes {
        self.limit
    }

    /// Bytes of a process in the node's folder: those that this daemon stored, and those that lay
    /// in files which the process presented.
    pub(super) fn of_nodes(&self, process: ProcessId) -> (Bytes, Bytes) {
        let own = self.files.range((process, 0)..=(process, u64::MAX));
        let own = own.filter(|(_, file)| file.is_nodes);
        own.fold((Bytes::ZERO, Bytes::ZERO), |(stored, before), (_, file)| {
            (stored + file.stored(), before + file.before)
        })
    }

    /// Whether a file of a process lies in the node's folder.
    pub(super) fn is_nodes(&self, process: ProcessId, number: u64) -> bool {
        let kept = self.files.get(&(process, number));
        kept.is_some_and(|kept| kept.is_nodes)
    }

    /// Bytes of a process in files, the node's or not.
    pub(super) fn of(&self, process: ProcessId) -> Bytes {
        let own = self.files.range((process, 0)..=(process, u64::MAX));
        own.map(|(_, file)| file.bytes()).sum()
    }

    /// A place for bytes of a process, in the file of the command or in the node's folder.
    pub(super) fn place(
        &mut self,
        tenant: TenantId,
        process: ProcessId,
        bytes: Bytes,
        lane: &Lane,
    ) -> std::io::Result<Slot> {
        let number = match self.elsewhere.get(&tenant) {
            Some(elsewhere) => {
                let (write, read) = (Arc::clone(&elsewhere.write), Arc::clone(&elsewhere.read));
                let number = elsewhere.number;
                self.keep((process, number), Some(write), read, false);
                number
            }
            None => match self.current.get(&process) {
                Some(number) => *number,
                None => self.make(process, lane)?,
            },
        };
        let own = self.elsewhere.get_mut(&tenant);
        let kept = self.files.get_mut(&(process, number));
        let kept = kept.ok_or(std::io::ErrorKind::NotFound)?;
        let file = kept.write.clone().ok_or(std::io::ErrorKind::NotFound)?;
        let at = match own {
            // Its processes share it.
            Some(elsewhere) => {
                elsewhere.next += PIECE.0;
                elsewhere.next - PIECE.0
            }
            None => kept.free_place(),
        };
        kept.places.insert(at, bytes);
        Ok(Slot { number, file, at })
    }

    fn make(&mut self, process: ProcessId, lane: &Lane) -> std::io::Result<u64> {
        let folder = self.folder.as_ref();
        let made = folder.ok_or(std::io::ErrorKind::NotFound)?.make()?;
        let number = self.number();
        let foreign = |file: std::fs::File| Arc::new(Foreign::new(file.into(), lane));
        let (write, read) = (foreign(made.write), foreign(made.read));
        self.keep((process, number), Some(write), read, true);
        self.current.insert(process, number);
        Ok(number)
    }

    fn keep(
        &mut self,
        key: (ProcessId, u64),
        write: Option<Arc<Foreign>>,
        read: Arc<Foreign>,
        is_nodes: bool,
    ) {
        self.files.entry(key).or_insert_with(|| Kept {
            write,
            read,
            places: BTreeMap::new(),
            before: Bytes::ZERO,
            is_nodes,
        });
    }

    /// A file of a previous daemon, which its process has kept. `forgotten`: what the process wants
    /// no more of it already.
    pub(super) fn presented(
        &mut self,
        (process, number): (ProcessId, u64),
        file: Foreign,
        facts: Facts,
        forgotten: Bytes,
    ) {
        let kept = Kept {
            write: None,
            read: Arc::new(file),
            places: BTreeMap::new(),
            // The file system's own blocks are counted too: ranges are whole.
            before: Bytes(facts.bytes / WHOLE * WHOLE) - forgotten,
            is_nodes: facts.is_nodes,
        };
        self.files.entry((process, number)).or_insert(kept);
    }

    /// The files of earlier daemons' that a process has presented.
    pub(super) fn presented_by(&self, process: ProcessId) -> impl Iterator<Item = u64> {
        let own = self.files.range((process, 0)..=(process, u64::MAX));
        let own = own.filter(|(_, file)| file.write.is_none());
        own.map(|((_, number), _)| *number)
    }

    /// How many files a process has here.
    pub(super) fn files(&self, process: ProcessId) -> usize {
        self.files.range((process, 0)..=(process, u64::MAX)).count()
    }

    /// A file, to read. Its process gets it too, and can only read.
    pub(super) fn file(&self, process: ProcessId, number: u64) -> Option<Arc<Foreign>> {
        let kept = self.files.get(&(process, number))?;
        Some(Arc::clone(&kept.read))
    }

    /// These bytes are wanted no more.
    pub(super) fn forget(&mut self, process: ProcessId, stored: Stored) {
        self.offers.forget(process, stored);
        let key = (process, stored.file);
        let is_current = self.current.get(&process) == Some(&stored.file);
        let Some(kept) = self.files.get_mut(&key) else {
            return;
        };
        match (kept.places.remove(&stored.at), &kept.write) {
            // Before the next bytes at this place: they are written on the same lane.
            (Some(bytes), Some(file)) => give_up(file, stored.at, bytes),
            _ => kept.before -= Bytes(stored.bytes),
        }
        let is_unused = match kept.write {
            Some(_) => kept.places.is_empty() && !is_current,
            // What is counted of it can be too little: a file system that compresses gives a file
            // fewer blocks than it has bytes. Its process alone knows when none are left, and says
            // so if it is one that says what it has.
            None => {
                let says = self.told.contains_key(&process);
                stored.is_all() || !says && kept.before.is_zero()
            }
        };
        if is_unused {
            self.files.remove(&key);
        }
    }

    /// Bytes of a process were read back, and their checksum is right.
    pub(super) fn was_fetched(&mut self, process: ProcessId, bytes: Bytes) {
        *self.fetched.entry(process).or_default() += bytes;
    }

    /// How much was read back of a process since the last call.
    pub(super) fn take_fetched(&mut self, process: ProcessId) -> Bytes {
        self.fetched.remove(&process).unwrap_or_default()
    }

    /// A tenant that is asked does what it was asked for.
    pub(super) fn is_heard(&mut self, tenant: TenantId, now: Nanos) {
        if let Some(since) = self.asked.get_mut(&tenant) {
            *since = now;
        }
    }

    /// A tenant that is asked has been silent: how often by now. It is not asked before `until`.
    pub(super) fn is_silent(&mut self, tenant: TenantId, until: Nanos) -> u32 {
        let silent = self.silent.entry(tenant).or_default();
        silent.times += 1;
        silent.until = until;
        silent.times
    }

    /// A job begins. It works at the place that it gives: the end of the job decides about that
    /// one. The process may give up the bytes that the job reads before the job ends.
    pub(super) fn begins(&mut self, job: &Job) {
        let gives = match job.task {
            Task::Store { .. } => job.stored.spot(),
            _ => Spot::memory(job.offset),
        };
        self.under_way.insert(key(job), gives);
    }

    /// A job has ended.
    pub(super) fn ends(&mut self, job: &Job) {
        self.under_way.remove(&key(job));
    }

    /// Whether memory may be being allocated for a process.
    pub(super) fn is_given_some(&self, process: ProcessId) -> bool {
        self.allocating.contains_key(&process) || self.busy.contains(&process)
    }

    /// Whether a job of a process works there.
    pub(super) fn is_worked_at(&self, process: ProcessId, spot: Spot) -> bool {
        let all = self.under_way.iter();
        let mut own = all.filter(|((of, ..), _)| *of == process);
        own.any(|(_, gives)| *gives == spot)
    }

    /// A process says over this connection what it has.
    pub(super) fn tells(&mut self, process: ProcessId, connection: ConnId) {
        self.told.insert(process, connection);
    }

    /// Whether what a process gives up over this connection is older than what it said to have.
    pub(super) fn is_outdated(&self, process: ProcessId, connection: ConnId) -> bool {
        let told = self.told.get(&process);
        told.is_some_and(|of| *of != connection)
    }

    /// The places in files that this daemon gave a process, and their lengths.
    pub(super) fn places(&self, process: ProcessId) -> impl Iterator<Item = Stored> {
        let own = self.files.range((process, 0)..=(process, u64::MAX));
        own.flat_map(|((_, file), kept)| {
            kept.places.iter().map(|(at, bytes)| Stored {
                file: *file,
                at: *at,
                bytes: bytes.0,
                sum: 0,
            })
        })
    }

    /// A connection has ended: what its requests are given would reach no process.
    pub(super) fn gives_up(&mut self, connection: ConnId) {
        self.waiting
            .retain(|wanted| wanted.connection != connection);
    }

    /// A process has ended. A child that it forked, or another process, may have its files open, by
    /// which their bytes stay on the disk: they are given up first. Of a previous daemon's files
    /// this one has no descriptor to do so.
    pub(super) fn ended(&mut self, process: ProcessId) {
        self.leaves(process);
        let key = (process, 0)..=(process, u64::MAX);
        for (_, kept) in self.files.extract_if(key, |_, _| true) {
            for (at, bytes) in kept.places {
                if let Some(file) = &kept.write {
                    give_up(file, at, bytes);
                }
            }
        }
    }

    /// A process goes on without its registration: its files are all that is left.
    pub(super) fn leaves(&mut self, process: ProcessId) {
        self.current.remove(&process);
        self.offers.forget_all(process);
        self.waiting.retain(|wanted| wanted.process != process);
        self.busy.remove(&process);
        self.under_way.retain(|(of, ..), _| *of != process);
        self.told.remove(&process);
        self.allocating.remove(&process);
        self.short.remove(&process);
        self.unmet.remove(&process);
        self.fetched.remove(&process);
    }

    /// Nothing more goes to the file of this number that a command named for a tenant. Whether
    /// anything still would have.
    pub(super) fn stops_elsewhere(&mut self, tenant: TenantId, number: u64) -> bool {
        let known = self.elsewhere.get(&tenant);
        let is_known = known.is_some_and(|one| one.number == number);
        is_known && self.elsewhere.remove(&tenant).is_some()
    }

    /// Whether all of a tenant's memory is in a file that a command gave.
    pub(super) fn is_elsewhere(&self, tenant: TenantId) -> bool {
        self.elsewhere.get(&tenant).is_some_and(|one| one.told)
    }

    /// A command wants a tenant's memory in this file.
    pub(super) fn store_elsewhere(&mut self, tenant: TenantId, write: Foreign, read: Foreign) {
        let number = self.number();
        let elsewhere = Elsewhere {
            number,
            write: Arc::new(write),
            read: Arc::new(read),
            next: 0,
            told: false,
        };
        self.elsewhere.insert(tenant, elsewhere);
        // Of earlier requests.
        self.silent.remove(&tenant);
    }
}

/// Gives the disk's blocks of a place in a file back.
fn give_up(file: &Arc<Foreign>, at: u64, bytes: Bytes) {
    let file = Arc::clone(file);
    file.lane().clone().run(move || {
        if let Err(error) = crate::spill::forget(file.file(), at, bytes.0) {
            tracing::warn!(%error, "a part of a file stays allocated");
        }
    });
}

fn key(job: &Job) -> (ProcessId, ConnId, u32) {
    (job.key.process, job.key.connection, job.key.id)
}

impl Kept {
    fn bytes(&self) -> Bytes {
        self.stored() + self.before
    }

    fn stored(&self) -> Bytes {
        self.places.values().copied().sum()
    }

    fn free_place(&self) -> u64 {
        let mut places = (0..).map(|place| place * PIECE.0);
        let free = places.find(|at| !self.places.contains_key(at));
        free.unwrap_or(u64::MAX)
    }
}
