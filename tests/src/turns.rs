//! The turns in the pages that the daemon wrote, and the use of the device in the software GPU's
//! counters, on one clock.

use std::fs::File;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gpushare_protocol::page::control::{ControlDevice, ControlPage};
use gpushare_protocol::page::lease::{LeaseState, LeaseWord};
use gpushare_protocol::wire::{Hello, Register, Reply, Request, decode};
use gpushared::connection::Connection;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use softgpu::inspect::{Observer, Spell};

use crate::{Gpu, Tenant};

/// A daemon's configuration: short turns, and no tenant starts while another one still drains, even
/// on a busy machine.
pub const STRICT: &str =
    "[compute]\nsharing = \"turns\"\nprofile = \"interactive\"\noverrun = \"1h\"\n";

/// The longest wait for the daemon's answer, in milliseconds.
const PATIENCE: u16 = 30_000;
/// The pause between two reads of the pages.
const PAUSE: Duration = Duration::from_micros(40);
/// Reads of the pages between two reads of the software GPU's turns, which it keeps long enough.
const BOOKS: u32 = 100;

/// `CLOCK_MONOTONIC` in nanoseconds, the clock of deadlines.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every system has it");
    let nanos = i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec());
    u64::try_from(nanos).expect("it begins with the machine")
}

/// This test as an additional process of a tenant. It never uses a device, so the daemon does not
/// wait for it. It sees the tenant's turns.
#[derive(Debug)]
pub struct Onlooker {
    line: Connection,
    control: File,
}

impl Onlooker {
    /// Joins the tenant.
    pub fn of(tenant: &Tenant) -> Self {
        let socket = UnixStream::connect(tenant.folder().join("gpushare.sock"));
        let mut line = Connection::alone(socket.expect("the daemon listens")).expect("a socket");
        let hello = Hello {
            capabilities: Hello::GATED,
            ..Hello::of_this_build(0)
        };
        call(&mut line, 0, &hello);
        let register = Request::Register(Register {
            pid: std::process::id(),
            presents_page: false,
            slot: None,
        });
        let answer = call(&mut line, 1, &register);
        let answer = decode::<Reply>(1, &answer).expect("of this version");
        assert!(matches!(answer, Reply::Registered(_)), "{answer:?}");
        let control = line.take_descriptor().expect("a control page");
        let control: OwnedFd = control.into_memory().expect("it is memory");
        Self {
            line,
            control: control.into(),
        }
    }

    /// Reports an open context on the first device. From now on the daemon waits for its reports.
    pub fn opens(&mut self) {
        let answer = call(&mut self.line, 2, &Request::Open { device_index: 0 });
        let answer = decode::<Reply>(2, &answer).expect("of this version");
        assert!(matches!(answer, Reply::Granted { .. }), "{answer:?}");
    }

    /// Sends a message without an answer, true or not. `false` once the daemon has gone.
    pub fn says(&mut self, request: &Request) -> bool {
        self.line.send(3, request, Vec::new()).is_ok()
    }

    /// The tenant's lease on its first device.
    pub fn word(&self) -> LeaseWord {
        let place = offset_of!(ControlPage, devices) + offset_of!(ControlDevice, lease);
        let mut bits = [0; 8];
        let read = self.control.read_exact_at(&mut bits, place as u64);
        read.expect("the page is readable");
        LeaseWord::from_bits(u64::from_ne_bytes(bits))
    }
}

/// Sends a message and waits for the answer.
fn call<T: serde::Serialize>(line: &mut Connection, id: u32, message: &T) -> Vec<u8> {
    line.send(id, message, Vec::new()).expect("it listens");
    loop {
        if let Some((of, body)) = line.next_frame().expect("whole frames")
            && of == id
        {
            return body;
        }
        let mut waits = [PollFd::new(line.socket(), PollFlags::POLLIN)];
        let ready =
            poll(&mut waits, PollTimeout::from(PATIENCE)).expect("a socket can be waited for");
        assert!(ready > 0, "no answer");
        line.receive(1 << 16).expect("it stays");
    }
}

/// A span of time during which a tenant's lease certainly had this value.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// The lease.
    pub word: LeaseWord,
    /// When it was first seen (ns).
    pub from: u64,
    /// When it was last seen (ns).
    pub to: u64,
}

impl Stretch {
    /// Whether the tenant held the device with a bounded lease.
    pub fn is_turn(&self) -> bool {
        self.word.state() == LeaseState::Open
    }

    /// Whether the device worked for the tenant of the spell within this span.
    pub fn meets(&self, spell: &Spell) -> bool {
        spell.from < self.to && spell.to > self.from
    }

    /// The time within this span in which the device worked in that spell (ns).
    pub fn shares(&self, spell: &Spell) -> u64 {
        let (from, to) = (spell.from.max(self.from), spell.to.min(self.to));
        to.saturating_sub(from)
    }
}

/// The observations.
#[derive(Debug, Default)]
pub struct Seen {
    /// Each tenant's leases, in the order of the tenants.
    pub leases: Vec<Vec<Stretch>>,
    /// The spells of each tenant on the first device.
    pub spells: Vec<Spell>,
}

/// A thread that polls the pages.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

impl Watch {
    /// Starts to watch the turns of these tenants on the first device of `gpu`.
    pub fn begin(gpu: &Gpu, tenants: &[&Tenant]) -> Self {
        let pages: Vec<Onlooker> = tenants.iter().map(|one| Onlooker::of(one)).collect();
        let spec = gpu.spec().parse().expect("a valid SPEC");
        let observer = Observer::open(&spec).expect("a machine");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || look(&pages, &observer, &stopped));
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Stops, and returns all observations.
    pub fn end(mut self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it ends once");
        thread.join().expect("nothing fails there")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn look(pages: &[Onlooker], observer: &Observer, stopped: &AtomicBool) -> Seen {
    let mut seen = Seen {
        leases: vec![Vec::new(); pages.len()],
        spells: Vec::new(),
    };
    let (_, mut place) = observer.spells(0, u64::MAX).expect("readable");
    loop {
        let last = stopped.load(Ordering::Relaxed);
        for _ in 0..BOOKS {
            for (page, leases) in pages.iter().zip(&mut seen.leases) {
                let (before, word, after) = (now(), page.word(), now());
                match leases.last_mut() {
                    Some(stretch) if stretch.word == word => stretch.to = before,
                    _ => leases.push(Stretch {
                        word,
                        from: after,
                        to: after,
                    }),
                }
            }
            std::thread::sleep(PAUSE);
        }
        let (spells, end) = observer.spells(0, place).expect("readable");
        seen.spells.extend(spells);
        place = end;
        if last {
            return seen;
        }
    }
}
