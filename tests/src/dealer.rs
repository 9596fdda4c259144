//! A daemon played by the test. It registers every process in one tenant, grants all memory, and
//! publishes the turns that the test chooses, illegal turns among them.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use gpushare_protocol::page::Page;
use gpushare_protocol::page::control::ControlPage;
use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE, Turn};
use gpushare_protocol::page::residency::{Movability, Order, OrderWord, Orders};
use gpushare_protocol::wire::{MAJOR, Reply, Request};
use gpushared::pages::{ControlPages, UsagePage};
use softgpu::inspect::Observer;

pub use crate::desk::Banker;
use crate::desk::{Bank, Desk, GRANT, listen};
use crate::gpu::{Gpu, links};
use crate::guest::{Guest, clean};
use crate::host_store::HostStore;
use crate::rivals::Rivals;
use crate::waiting::PATIENCE;
use crate::{artefacts, clients};

/// How long an allocation may wait, unless the test says otherwise: as by default.
const WAIT_MS: u64 = 30_000;

/// The daemon, and its tenant.
#[derive(Debug)]
pub struct Dealer {
    folder: tempfile::TempDir,
    spec: String,
    device_uuids: Vec<[u8; 16]>,
    // Keeps the devices' identity.
    _observer: Observer,
    usage: UsagePage,
    instance: u64,
    /// The major version of the protocol that it speaks.
    major: u16,
    serving: Option<Serving>,
    says: (Sender<Request>, Receiver<Request>),
    slots: Arc<AtomicU16>,
    /// How often it hung up.
    hung_up: Arc<AtomicU32>,
    mixed_up: Arc<AtomicBool>,
    /// First contexts that it was told of as made.
    made: Arc<AtomicU32>,
    bank: Bank,
    movability: Movability,
    drain_ms: Arc<AtomicU32>,
    store: Arc<HostStore>,
    rivals: Arc<Rivals>,
}

/// A daemon that runs: its page, its socket, its threads.
#[derive(Debug)]
struct Serving {
    control: ControlPages,
    stop: Arc<AtomicBool>,
    listens: Option<JoinHandle<()>>,
    socket: PathBuf,
}

impl Dealer {
    /// Begins to serve one tenant on the first device of `gpu`, with an open lease.
    pub fn start(gpu: &Gpu) -> Self {
        Self::on(gpu, 1)
    }

    /// The same on so many of its devices.
    pub fn on(gpu: &Gpu, count: usize) -> Self {
        let spec = gpu.spec().parse().expect("a valid SPEC");
        let observer = Observer::open(&spec).expect("a machine");
        let machine = observer.snapshot().expect("readable").devices;
        let devices = &machine[..count];
        let usage = UsagePage::create().expect("memory");
        for (device, entry) in devices.iter().zip(&usage.view().devices) {
            entry.limit.store(GRANT, Ordering::Relaxed);
            entry.view_total.store(device.capacity, Ordering::Relaxed);
            entry.capacity.store(device.capacity, Ordering::Relaxed);
            entry.claim(&device.uuid_bytes);
        }
        usage.view().found(std::process::id(), 0);
        let mut dealer = Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            spec: gpu.spec().to_owned(),
            device_uuids: devices.iter().map(|device| device.uuid_bytes).collect(),
            _observer: observer,
            usage,
            instance: 0,
            major: MAJOR,
            serving: None,
            says: channel(),
            slots: Arc::default(),
            hung_up: Arc::default(),
            mixed_up: Arc::default(),
            made: Arc::default(),
            bank: Bank::default(),
            movability: Movability::Fixed,
            // A test that is about the bound sets it: the usual 2 s would judge the machine.
            drain_ms: Arc::new(AtomicU32::new(60_000)),
            store: Arc::default(),
            rivals: Arc::default(),
        };
        dealer.come_back();
        dealer
    }

    /// Starts the C client `name` in its tenant.
    pub fn client(&self, name: &str) -> Guest {
        let mut command = self.command(&clients::compile(name, &[]));
        command.env("LD_LIBRARY_PATH", links());
        Guest::start(command)
    }

    /// A program in its tenant, on the system's driver.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = clean(program);
        command
            .env("LD_PRELOAD", artefacts::interposer())
            .env("SOFTGPU", &self.spec)
            .env("GPUSHARE_SOCKET", self.folder.path());
        command
    }

    /// The first device's UUID.
    pub fn device_uuid(&self) -> [u8; 16] {
        self.device_uuids[0]
    }

    /// The folder of its socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The control page.
    pub fn page(&self) -> &ControlPage {
        self.control().view()
    }

    fn control(&self) -> &ControlPages {
        &self.serving.as_ref().expect("it serves").control
    }

    /// Wakes the waiters of the page.
    pub fn announce(&self) {
        self.control().announce();
    }

    /// Publishes a lease.
    pub fn deal(&self, turn: &Turn) {
        self.page().devices[0].publish(turn);
        self.announce();
    }

    /// Publishes an open lease with this epoch.
    pub fn open(&self, epoch: u64) {
        self.deal(&turn(epoch, LeaseState::Open));
    }

    /// Publishes a closed lease with this epoch.
    pub fn close(&self, epoch: u64) {
        self.deal(&turn(epoch, LeaseState::Closed));
    }

    /// From now on processes register as such whose memory may move.
    pub fn swaps(&mut self) {
        self.moves(Movability::Swap);
    }

    /// The same, with the way in which it moves.
    pub fn moves(&mut self, how: Movability) {
        self.movability = how;
        self.page().set_movability(how);
    }

    /// Orders about the memory on the first device.
    pub fn order(&self, epoch: u32, order: Order) {
        self.order_on(0, epoch, order);
    }

    /// Orders about the memory on one of its devices.
    pub fn order_on(&self, device_index: usize, epoch: u32, order: Order) {
        self.page().devices[device_index].command(Orders {
            word: OrderWord::new(epoch, order),
            drain_ms: self.drain_ms.load(Ordering::Relaxed),
            ..Orders::default()
        });
        self.announce();
    }

    /// So many bytes of a return to the first device are withheld from now on.
    pub fn withholds(&self, bytes: u64) {
        self.page().devices[0].withhold(bytes);
        self.announce();
    }

    /// Drains of later orders may take so many milliseconds.
    pub fn drains_within(&self, ms: u32) {
        self.drain_ms.store(ms, Ordering::Relaxed);
    }

    /// From now on its tenant is asked to have its memory stored, by this number, or not: 0.
    pub fn spills(&self, number: u32) {
        self.page().header.spill.store(number, Ordering::Release);
        self.announce();
    }

    /// The bytes of the host store that processes were given, and its end: it gives no more. What
    /// of them was stored in a file.
    pub fn store(&self) -> &HostStore {
        &self.store
    }

    /// Writes the daemon's heartbeat: alive for ever, or last alive when the machine booted.
    pub fn beat(&self, lives: bool) {
        self.beat_at(if lives { u64::MAX / 2 } else { 0 });
    }

    /// Writes that the daemon last lived at that time of the machine's clock (ns).
    pub fn beat_at(&self, heartbeat: u64) {
        self.page()
            .header
            .heartbeat
            .store(heartbeat, Ordering::Relaxed);
        self.announce();
    }

    /// Waits until a process sends `wanted`. Earlier messages are dropped.
    #[track_caller]
    pub fn hears(&self, wanted: &Request) {
        let end = Instant::now() + PATIENCE;
        let mut others = Vec::new();
        loop {
            match self
                .says
                .1
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(said) if said == *wanted => return,
                Ok(said) => others.push(said),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{wanted:?} was not sent, only {others:?}")
                }
            }
        }
    }

    /// Waits until a process sends something that `wanted` knows. Earlier messages are dropped.
    #[track_caller]
    pub fn hears_some<T>(&self, wanted: impl Fn(&Request) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        let mut others = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.says.1.recv_timeout(left) {
                Ok(said) => match wanted(&said) {
                    Some(found) => return found,
                    None => others.push(said),
                },
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("nothing of that kind was sent, only {others:?}")
                }
            }
        }
    }

    /// The messages that were sent and not read yet.
    pub fn said(&self) -> Vec<Request> {
        self.says.1.try_iter().collect()
    }

    /// From now on `banker` answers requests for memory.
    pub fn bank(&self, banker: impl FnMut(&Request) -> Option<Reply> + Send + 'static) {
        *self.bank.0.lock().expect("nothing fails there") = Some(Box::new(banker));
    }

    /// The usage page with the tenant's limits.
    pub fn usage(&self) -> &Page {
        self.usage.view()
    }

    /// The descriptor of the usage page.
    pub fn usage_descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        self.usage.descriptor()
    }

    /// From now on a process gets the control page as usage page and vice versa.
    pub fn mixes_up_pages(&self) {
        self.mixed_up.store(true, Ordering::Relaxed);
    }

    /// How often it was told of a first context as made.
    pub fn contexts_made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }

    /// Two registrations of one process at once.
    pub fn rivals(&self) -> &Rivals {
        &self.rivals
    }

    /// Ends the connections, and accepts others: the same daemon, with the same page.
    pub fn hangs_up(&self) {
        self.hung_up.fetch_add(1, Ordering::Relaxed);
    }

    /// Stops serving, like a killed daemon.
    pub fn leave(&mut self) {
        self.serving = None;
    }

    /// The same with one of this major version of the protocol.
    pub fn come_back_of(&mut self, major: u16) {
        self.major = major;
        self.come_back();
    }

    /// Starts the next daemon, with its own page, on which every lease is free.
    pub fn come_back(&mut self) {
        self.leave();
        self.instance += 1;
        let control = ControlPages::create(self.instance).expect("memory");
        let header = &control.view().header;
        header.wait_ms.store(WAIT_MS, Ordering::Relaxed);
        header.guarantee_ms.store(WAIT_MS, Ordering::Relaxed);
        control.view().set_movability(self.movability);
        for device in &control.view().devices[..self.device_uuids.len()] {
            device.grant.store(GRANT, Ordering::Relaxed);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let copy =
            |page: std::os::fd::BorrowedFd<'_>| page.try_clone_to_owned().expect("a descriptor");
        let desk = Desk {
            pages: [copy(control.descriptor()), copy(self.usage.descriptor())],
            device_uuids: self.device_uuids.clone(),
            instance: self.instance,
            major: self.major,
            slots: Arc::clone(&self.slots),
            hung_up: Arc::clone(&self.hung_up),
            mixed_up: Arc::clone(&self.mixed_up),
            made: Arc::clone(&self.made),
            bank: self.bank.clone(),
            store: Arc::clone(&self.store),
            rivals: Arc::clone(&self.rivals),
            says: Mutex::new(self.says.0.clone()),
            stop: Arc::clone(&stop),
        };
        let socket = self.folder.path().join("gpushare.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        let listens = std::thread::spawn(move || listen(&listener, &Arc::new(desk)));
        self.serving = Some(Serving {
            control,
            stop,
            listens: Some(listens),
            socket,
        });
        self.beat(true);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A test that fails has panicked already.
        let _ = self.listens.take().map(JoinHandle::join);
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// A lease without a deadline, while another tenant wants the device.
pub fn turn(epoch: u64, state: LeaseState) -> Turn {
    Turn {
        word: LeaseWord::new(epoch, state),
        deadline: NO_DEADLINE,
        contended: true,
        ..Turn::default()
    }
}
