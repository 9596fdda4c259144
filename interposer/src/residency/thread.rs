//! The mover's thread: looks at the orders, does one step after the other, tells what came of it.
//!
//! It sleeps on the control page's `changes`, and looks more often while the process is sealed: the
//! daemon may go then. A forked child has none.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gpushare_pacing::mover::{Act, Answer, Facts, Mover, Where};
use gpushare_protocol::page::MAX_DEVICES;
use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::{Place, Request, Residency};

use super::answers;
use super::blocks::Blocks;
use super::copies::Streams;
use super::copyable::Copyable;
use super::drain::Drain;
use super::enter::Entering;
use super::later;
use super::leave::Leaving;
use super::managed;
use super::memory::blocks;
use super::needs::{self, Need};
use super::provide::{Asked, Seen, provide};
use super::stored::{self, Fetched, Storing};
use super::{ordered, pitch, pooled, residue, slabs, spent, unshared};
use crate::account;
use crate::driver::captures::Relaxed;
use crate::driver::device::DeviceKey;
use crate::gate::bell::Bell;
use crate::gate::ringing;
use crate::gate::seal;
use crate::guest::background;
use crate::guest::clock;
use crate::guest::exit;
use crate::guest::frames;
use crate::guest::futex::{FutexWaiter, wake_all, wake_page};
use crate::session::Session;

/// The longest sleep (ns) of an open process, and of a sealed one, which cannot wait for long to
/// learn that its daemon has gone.
const NAPS: (u64, u64) = (1_000_000_000, 50_000_000);

/// A change of the bytes that can move, or of those that stay, that the daemon is told of, if it is
/// an eighth of them too.
const MUCH: u64 = 64 << 20;

/// How often an answer of the daemon's is looked for (ns).
const ANSWER: u64 = 1_000_000;

/// Times the thread is woken where it may be about to fall asleep. Allocations wake it: few.
const TRIES: u32 = 2;

/// A request that the thread looks.
static BELL: Bell = ringing::silent();
/// The thread may be in the driver.
static BUSY: AtomicU32 = AtomicU32::new(0);
/// How long the process's end waits for the thread, which may be held up in the driver.
const STOPS_WITHIN: Duration = Duration::from_secs(1);

/// The process exits: waits until the thread calls the driver no more, or for [`STOPS_WITHIN`].
fn stop() {
    let end = Instant::now() + STOPS_WITHIN;
    while BUSY.load(Ordering::SeqCst) != 0 && Instant::now() < end {
        FutexWaiter::own(&BUSY).sleep(Duration::from_millis(5));
    }
}

/// Has the thread look at once, if it sleeps.
pub(super) fn wake(session: &Session) {
    ringing::ring(&BELL, TRIES, || wake_page(session.changes()));
}

/// Starts the thread.
///
/// # Errors
/// If the system has none to give.
pub(super) fn start(session: &'static Session) -> io::Result<()> {
    BUSY.store(0, Ordering::Relaxed);
    // In a forked child: the parent's thread may have been asleep.
    BELL.forget();
    background::start(c"gpushare-mover", background::DEEP, move || run(session))?;
    exit::watch_beside(stop);
    Ok(())
}

/// The thread is not in the driver.
fn rests() {
    BUSY.store(0, Ordering::SeqCst);
    wake_all(&BUSY);
}

fn run(session: &'static Session) {
    frames::work_unseen();
    exit::is_ours();
    let _relaxed = Relaxed::enter();
    let mut rounds = Rounds::new(session);
    while !exit::is_leaving() {
        // A defect here must not take the program with it. What is away stays away.
        let round = catch_unwind(AssertUnwindSafe(|| rounds.one()));
        if round.is_err() {
            std::thread::sleep(Duration::from_nanos(NAPS.0));
        }
    }
    rests();
}

/// The charges of this process that stay on a device: a look that costs little.
fn staying(device_index: usize, movable: u64) -> u64 {
    let held = DeviceKey::of_index(device_index).map_or(0, account::holds);
    held.saturating_sub(movable)
}

/// Whether the daemon is told of such a change.
fn is_much(told: u64, now: u64) -> bool {
    let change = now.abs_diff(told);
    change >= MUCH && change >= told / 8 || (now == 0) != (told == 0)
}

/// One device.
#[derive(Debug, Default)]
struct Device {
    mover: Mover,
    drain: Drain,
    /// Other devices may be moving when this one opens.
    streams: Streams,
    leaving: Leaving,
    entering: Entering,
}

impl Device {
    /// Waits until none of our copies is under way: the driver may end next.
    fn lands(&mut self) {
        self.leaving.give_up();
        self.entering.lands();
    }
}

#[derive(Debug)]
struct Rounds {
    session: &'static Session,
    devices: Vec<Device>,
    /// The daemon last met.
    met: u64,
    /// The number of the connection by which the whole state was last told, and the bytes that were
    /// told of each device: those that can move, and those that stay.
    told: u64,
    bytes: [(u64, u64); MAX_DEVICES],
    copyable: Copyable,
    asked: Asked,
    storing: Storing,
    fetched: Fetched,
}

impl Rounds {
    fn new(session: &'static Session) -> Self {
        Self {
            session,
            devices: Vec::new(),
            met: 0,
            told: 0,
            bytes: [(0, 0); MAX_DEVICES],
            copyable: Copyable::default(),
            asked: Asked::default(),
            storing: Storing::default(),
            fetched: Fetched::new(session),
        }
    }

    fn one(&mut self) {
        let device_count = account::compute().map_or(0, |compute| compute.device_count());
        self.devices.resize_with(device_count, Device::default);
        let waiter = FutexWaiter::of_page(self.session.changes());
        BUSY.store(1, Ordering::SeqCst);
        BELL.take();
        spent::again();
        if !seal::is_set() {
            slabs::drop_idle();
            pooled::drop_destroyed();
            ordered::look();
            pitch::drop_rows();
            later::again();
        }
        self.copyable.look();
        self.greet();
        self.tell_changes();
        unshared::tell(self.session);
        let mut until = clock::now().saturating_add(if seal::is_set() { NAPS.1 } else { NAPS.0 });
        let mut again = true;
        while again && !exit::is_leaving() {
            let seen = self.seen();
            again = provide(self.session, &mut self.asked, clock::now(), seen);
            let may_let_go = self.storing.may_let_go(self.session.spill());
            let is_out = self.is_out() && (!may_let_go || self.has_landed());
            let is_fetching = self.devices.iter().any(|device| device.entering.waits());
            stored::store(self.session, &mut self.storing, is_out, is_fetching);
            if self.is_back() && stored::give_back_unused(self.session) {
                self.asked.later(clock::now());
            }
            for device_index in 0..self.devices.len() {
                match self.step(device_index) {
                    Some(wake) => until = until.min(wake),
                    None => again = true,
                }
            }
        }
        if self.asked.waits || self.storing.asked.is_some() {
            until = until.min(clock::now().saturating_add(ANSWER));
        }
        if exit::is_leaving() {
            self.devices.iter_mut().for_each(Device::lands);
        }
        rests();
        if BELL.arm() {
            waiter.sleep(Duration::from_nanos(until.saturating_sub(clock::now())));
        }
        BELL.disarm();
    }

    /// The state of the process's memory, for what is done about host memory.
    fn seen(&self) -> Seen {
        let (sealed, stores) = (seal::is_set(), self.session.spill() != 0);
        Seen {
            sealed,
            moves: self.is_moving() || sealed && stores,
            needed: needs::all(&self.needs(&blocks())),
            stores: stores && self.is_out(),
        }
    }

    /// The room on the host that each device needs.
    fn needs(&self, blocks: &Blocks) -> [Need; MAX_DEVICES] {
        let mut needs = [Need::default(); MAX_DEVICES];
        for (device_index, device) in self.devices.iter().enumerate() {
            if blocks.lost[device_index] {
                continue;
            }
            let resident = self.copyable.resident(blocks, device_index);
            needs[device_index] = Need {
                bytes: resident.saturating_sub(device.leaving.taken()),
                leaves: device.mover.place() == Where::Leaving,
            };
        }
        needs
    }

    /// Whether memory is on its way, or a device is being drained for that.
    fn is_moving(&self) -> bool {
        let mut places = self.devices.iter().map(|device| device.mover.place());
        places.any(|place| matches!(place, Where::Sealing | Where::Leaving | Where::Entering))
    }

    /// Whether memory of the process is away, and none is on its way.
    fn is_out(&self) -> bool {
        let places = || self.devices.iter().map(|device| device.mover.place());
        let rests = places().all(|place| matches!(place, Where::In | Where::Out));
        rests && places().any(|place| place == Where::Out)
    }

    /// Whether no copy from the host may be under way, of a return that has failed: it would read
    /// what is given up once it is stored.
    fn has_landed(&mut self) -> bool {
        let mut devices = self.devices.iter_mut();
        devices.all(|device| device.entering.has_landed())
    }

    /// Whether the process is sealed with all of its memory on the devices, after a return, and no
    /// device is being sealed for a move.
    fn is_back(&self) -> bool {
        let order = |device_index| self.session.orders(device_index).word.order();
        let mut devices = self.devices.iter().enumerate();
        let is_any = devices.any(|(device_index, device)| {
            device.mover.place() == Where::Sealed && order(device_index) == Order::Return
        });
        let all = || 0..self.devices.len();
        if !is_any || all().any(|at| matches!(order(at), Order::Seal | Order::Leave)) {
            return false;
        }
        let blocks = blocks();
        all().all(|at| blocks.lost[at] || blocks.unusable(at) == 0)
    }

    /// Whether another device is on its way back from files. It goes first: by turns they would
    /// fetch the same ranges again and again.
    fn waits_for_files(&self, device_index: usize) -> bool {
        let mut before = self.devices[..device_index].iter();
        before.any(|device| device.mover.is_bringing()) && blocks().store.has_stored()
    }

    /// Tells the whole state to a daemon that has just come, and by a new connection to the same
    /// one: what was said by the one before may be lost.
    fn greet(&mut self) {
        let connection = self.session.connection();
        if connection == self.told || !self.session.is_connected() {
            return;
        }
        let instance = self.session.instance();
        if self.met != 0 && self.met != instance {
            for device in &mut self.devices {
                device.mover.forget();
            }
        }
        (self.met, self.told) = (instance, connection);
        for device_index in 0..self.devices.len() {
            self.tell_all(device_index);
            self.tell_wanted(device_index);
        }
    }

    /// Tells the daemon again that a call waits, if one does.
    fn tell_wanted(&self, device_index: usize) {
        if seal::is_wanted(device_index)
            && let Ok(device_index) = u8::try_from(device_index)
        {
            self.session.says(&Request::WantIn { device_index });
        }
    }

    /// Tells the state of devices whose bytes have changed much.
    fn tell_changes(&mut self) {
        for device_index in 0..self.devices.len() {
            let now = self.copyable.movable(&blocks(), device_index);
            let (told, stayed) = self.bytes[device_index];
            if is_much(told, now) || is_much(stayed, staying(device_index, now)) {
                self.tell_all(device_index);
            }
        }
    }

    fn tell_all(&mut self, device_index: usize) {
        let mover = &self.devices[device_index].mover;
        let facts = self.facts(device_index, clock::now());
        let movable = self.copyable.movable(&blocks(), device_index);
        self.bytes[device_index] = (movable, staying(device_index, movable));
        let device = DeviceKey::of_index(device_index);
        let residue = device.map(residue::of).unwrap_or_default();
        let host = blocks().store.bytes();
        let Ok(device_index) = u8::try_from(device_index) else {
            return;
        };
        let place = match mover.place() {
            Where::In => Place::In,
            Where::Sealing | Where::Sealed => Place::Sealed,
            Where::Leaving => Place::Leaving,
            Where::Out => Place::Out,
            Where::Entering => Place::Entering,
        };
        self.session.says(&Request::Residency(Residency {
            device_index,
            epoch: mover.epoch(),
            place,
            movable,
            away: facts.away,
            host,
            residue,
        }));
    }

    fn facts(&self, device_index: usize, now: u64) -> Facts {
        let (resident, away, short) = {
            let blocks = blocks();
            // Managed memory takes nothing of the host store.
            let short = match managed::is_on() {
                true => 0,
                false => needs::short(&self.needs(&blocks), device_index, blocks.store.free()),
            };
            let unusable = blocks.unusable(device_index);
            (
                self.copyable.resident(&blocks, device_index),
                unusable,
                short,
            )
        };
        Facts {
            orders: self.session.orders(device_index),
            is_led: self.session.daemon_alive(now),
            is_wanted: seal::is_wanted(device_index),
            resident,
            away,
            short,
            is_asking: self.asked.waits,
        }
    }

    /// Notes which devices are lost. After another one's order was read: the daemon may have
    /// written the loss first, and that order is carried out without the lost device.
    fn see_losses(&self) {
        for device_index in 0..self.devices.len() {
            if self.session.orders(device_index).word.order() == Order::Lost {
                blocks().lost[device_index] = true;
            }
        }
    }

    /// One step on a device. When to look again if there is nothing to do.
    fn step(&mut self, device_index: usize) -> Option<u64> {
        let now = clock::now();
        let facts = self.facts(device_index, now);
        if facts.is_led {
            self.see_losses();
        }
        let device = &mut self.devices[device_index];
        let act = device.mover.step(now, &facts);
        if !matches!(act, Act::Leave | Act::Say(_)) {
            device.leaving.give_up();
        }
        if act == Act::Enter && self.waits_for_files(device_index) {
            return Some(now);
        }
        let device = &mut self.devices[device_index];
        match act {
            Act::Sleep(until) if until > now => return Some(until),
            Act::Sleep(_) => {}
            Act::Seal => {
                device.drain.over();
                self.asked.at_once();
                seal::set(device_index);
            }
            Act::Drain => {
                let drained = device.drain.look(device_index);
                device.mover.drain(clock::now(), drained);
            }
            Act::Open => {
                device.drain.over();
                device.leaving.opens();
                device.entering.opens();
                device.streams.forget();
                seal::clear(device_index);
            }
            Act::Leave => {
                let moved = if managed::is_on() {
                    managed::leave(&mut device.streams, device_index)
                } else {
                    device.leaving.step(&mut device.streams, device_index)
                };
                device.mover.left(moved, blocks().away[device_index]);
            }
            Act::Enter => {
                let moved = if managed::is_on() {
                    managed::enter(&mut device.streams, device_index, facts.booked())
                } else {
                    let (streams, fetched) = (&mut device.streams, &mut self.fetched);
                    let withheld = facts.withheld();
                    device
                        .entering
                        .step(streams, fetched, device_index, withheld)
                };
                device.mover.entered(clock::now(), &facts, moved);
            }
            Act::Undo if managed::is_on() => managed::undo(&mut device.streams, device_index),
            Act::Undo => device.entering.undo(&mut self.fetched, device_index),
            // The driver has managed memory wherever it can be reached.
            Act::GiveUp if managed::is_on() => {}
            Act::GiveUp => {
                device.entering.give_up(&mut self.fetched, device_index);
                let bytes = blocks().give_up(device_index);
                tracing::warn!(
                    device_index,
                    bytes,
                    "the device is lost with what was moved out"
                );
            }
            Act::Say(answer) => {
                self.say(device_index, answer);
                // The daemon may have ordered the memory in and out again. It takes waiting calls
                // for served then. A mover that saw the last order only has not opened the seal.
                if matches!(answer, Answer::Away { .. }) {
                    self.tell_wanted(device_index);
                }
            }
        }
        None
    }

    fn say(&self, device_index: usize, answer: Answer) {
        let residue = staying(device_index, self.copyable.movable(&blocks(), device_index));
        if let Ok(device_index) = u8::try_from(device_index) {
            let message = answers::message(device_index, answer, residue);
            self.session.says(&message);
        }
    }
}
