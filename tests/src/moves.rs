//! The client `moves` under turns that the test publishes. The program executes memsets, copies,
//! records and queries; the test reads the library's reports.

use gpushare_protocol::page::lease::{LeaseState, Turn};
use gpushare_protocol::wire::Request;

use crate::dealer::turn;
use crate::gpu::links;
use crate::{Dealer, Gpu, Guest, clients, until};

/// Idle streams are not checked before this time (ns).
const LATE: u64 = 20_000_000_000;
/// A window so large (ns) that no kernel of these tests gets a completion event for its length,
/// even on a loaded machine.
const WINDOW: u64 = 4_000_000_000;

/// A program, its daemon and its GPU.
#[derive(Debug)]
pub struct Scene {
    /// The software GPU.
    pub gpu: Gpu,
    /// The dealer of the turns.
    pub dealer: Dealer,
    /// The client.
    pub guest: Guest,
}

impl Scene {
    /// A scene on a machine described by `spec`. The first epoch is 1, and open. Stream 1 is
    /// blocking, stream 2 non-blocking, stream 3 is for value waits.
    #[track_caller]
    pub fn new(spec: &str) -> Self {
        Self::after(spec, &[])
    }

    /// The same, with commands that it does while nothing binds.
    #[track_caller]
    fn after(spec: &str, lines: &[&str]) -> Self {
        let gpu = Gpu::new(spec);
        let dealer = Dealer::start(&gpu);
        Self::of((gpu, dealer), lines)
    }

    /// A scene on a machine of two devices, of which the program takes the first.
    #[track_caller]
    pub fn on_two() -> Self {
        let gpu = Gpu::new("count=2");
        let dealer = Dealer::on(&gpu, 2);
        Self::of((gpu, dealer), &[])
    }

    /// A scene whose driver writes its calls to a file (`SOFTGPU_TRACE`).
    #[track_caller]
    pub fn traced(path: &str) -> Self {
        let gpu = Gpu::new("");
        let dealer = Dealer::start(&gpu);
        let mut command = dealer.command(&clients::compile("moves", &[]));
        command
            .env("LD_LIBRARY_PATH", links())
            .env("SOFTGPU_TRACE", path);
        let guest = Guest::start(command);
        Self::begins(Self { gpu, dealer, guest }, &[])
    }

    #[track_caller]
    fn of((gpu, dealer): (Gpu, Dealer), lines: &[&str]) -> Self {
        let guest = dealer.client("moves");
        Self::begins(Self { gpu, dealer, guest }, lines)
    }

    #[track_caller]
    fn begins(mut scene: Self, lines: &[&str]) -> Self {
        scene.does(&["init", "make 1 0", "make 2 1", "make 3 1"]);
        scene.does(lines);
        scene.dealer.close(99);
        scene.drains(99);
        scene.opens(1);
        scene
    }

    /// The same after kernels of a microsecond have been measured, so that no kernel gets a
    /// completion event of its own.
    #[track_caller]
    pub fn measured(spec: &str) -> Self {
        Self::measured_after(spec, &[])
    }

    /// The same, with commands that it does before that, while nothing binds.
    #[track_caller]
    pub fn measured_after(spec: &str, lines: &[&str]) -> Self {
        let mut scene = Self::after(spec, lines);
        for stream in [1, 2] {
            for _ in 0..20 {
                scene.does(&[&format!("launch {stream} 1000"), &format!("wait {stream}")]);
            }
        }
        scene
    }

    /// Sends commands that must all succeed.
    #[track_caller]
    pub fn does(&mut self, lines: &[&str]) {
        for line in lines {
            let word = line.split(' ').next().expect("a word");
            assert_eq!(self.guest.ask(line), format!("{word} 0"), "{line}");
        }
    }

    /// Opens this epoch while no other tenant works, so that measurements count. Idle streams are
    /// checked late.
    pub fn opens(&self, epoch: u64) {
        self.dealer.deal(&Turn {
            idle_after: LATE,
            window: WINDOW,
            contended: false,
            ..turn(epoch, LeaseState::Open)
        });
    }

    /// Waits until the library reports all work of this epoch as complete.
    #[track_caller]
    pub fn drains(&self, epoch: u64) {
        self.dealer.hears(&drained(epoch));
    }

    /// Queries a stream 200 times, in which time the library would find passed completion events.
    /// The stream must not be complete, and the library must not report the epoch as drained.
    #[track_caller]
    pub fn is_not_drained(&mut self, epoch: u64, ask: &str) {
        let mut said = Vec::new();
        for _ in 0..200 {
            assert!(self.guest.ask(ask).ends_with(" 600"), "it waits");
            said.extend(self.dealer.said());
        }
        assert!(!said.contains(&drained(epoch)), "{said:?}");
    }

    /// Waits until a command that another thread executes has returned.
    #[track_caller]
    pub fn is_posted(&mut self) {
        until("the call returns", || {
            self.guest.ask("posted") == "posted 0"
        });
    }
}

/// The report that all work of an epoch is complete.
pub fn drained(epoch: u64) -> Request {
    Request::Drained {
        device_index: 0,
        epoch,
    }
}

/// The report that a call waits at a closed gate.
pub fn wanted(epoch: u64) -> Request {
    Request::Wanted {
        device_index: 0,
        epoch,
    }
}
