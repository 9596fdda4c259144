//! A program whose memory moves, under a daemon that the test plays.

use gpushare_protocol::page::UNIT;
use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_protocol::wire::{Request, Residency};

use softgpu::inspect::ProcessTruth;
use softgpu::world::Kind;

use crate::threads::thread;
use crate::{Dealer, Gpu, Guest, clients, gpu, until};

/// A program whose memory may move, and its daemon.
#[derive(Debug)]
pub struct Scene {
    /// The software GPU.
    pub gpu: Gpu,
    /// The daemon that the test plays.
    pub dealer: Dealer,
    /// The program.
    pub guest: Guest,
    /// The last order's number.
    pub epoch: u32,
    how: Movability,
}

/// The outcome of an order.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So much is on the host.
    Away(u64),
    /// All is on the device.
    Back,
    /// It could not be carried out; so many bytes were missing.
    NoRoom(u64),
    /// The process did not drain.
    Busy,
}

impl Scene {
    /// The client `movable` on a machine described by `spec`, with a context.
    #[track_caller]
    pub fn new(spec: &str) -> Self {
        Self::with(spec, "init", &[])
    }

    /// The same, with another first line, and more environment variables.
    #[track_caller]
    pub fn with(spec: &str, init: &str, environment: &[(&str, &str)]) -> Self {
        Self::of("movable", spec, init, environment)
    }

    /// The same with another client.
    #[track_caller]
    pub fn of(client: &str, spec: &str, init: &str, environment: &[(&str, &str)]) -> Self {
        let gpu = Gpu::new(spec);
        let dealer = Dealer::start(&gpu);
        Self::under((dealer, Movability::Swap), gpu, client, environment).inits(init)
    }

    /// The client `movable` that has been told to begin: it may be killed or stopped before it
    /// answers.
    #[track_caller]
    pub fn beginning(how: Movability, spec: &str, environment: &[(&str, &str)]) -> Self {
        let mut scene = Self::started(how, spec, environment);
        scene.guest.send("init");
        scene
    }

    /// The client `movable` whose memory moves in this way, with another first line.
    #[track_caller]
    pub fn moving_after(how: Movability, spec: &str, init: &str) -> Self {
        Self::started(how, spec, &[]).inits(init)
    }

    /// The client `movable` where its memory is managed.
    #[track_caller]
    pub fn managed(spec: &str) -> Self {
        Self::moving(Movability::Managed, spec, &[])
    }

    /// The client `movable` whose memory moves in this way, with more environment variables.
    #[track_caller]
    pub fn moving(how: Movability, spec: &str, environment: &[(&str, &str)]) -> Self {
        Self::started(how, spec, environment).inits("init")
    }

    #[track_caller]
    fn started(how: Movability, spec: &str, environment: &[(&str, &str)]) -> Self {
        let gpu = Gpu::new(spec);
        let dealer = Dealer::start(&gpu);
        Self::under((dealer, how), gpu, "movable", environment)
    }

    /// The same on two devices.
    #[track_caller]
    pub fn on_two(spec: &str) -> Self {
        Self::moving_on_two(Movability::Swap, spec)
    }

    /// The same where memory moves in this way.
    #[track_caller]
    pub fn moving_on_two(how: Movability, spec: &str) -> Self {
        Self::on_two_with(how, spec, &[])
    }

    /// The same with more environment variables.
    #[track_caller]
    pub fn on_two_with(how: Movability, spec: &str, environment: &[(&str, &str)]) -> Self {
        let gpu = Gpu::new(spec);
        let dealer = Dealer::on(&gpu, 2);
        Self::under((dealer, how), gpu, "movable", environment).inits("init")
    }

    #[track_caller]
    fn under(
        (mut dealer, how): (Dealer, Movability),
        gpu: Gpu,
        client: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        dealer.moves(how);
        let mut command = dealer.command(&clients::compile(client, &[]));
        command
            .env("LD_LIBRARY_PATH", gpu::links())
            .envs(environment.iter().copied());
        let guest = Guest::start(command);
        Self {
            gpu,
            dealer,
            guest,
            epoch: 0,
            how,
        }
    }

    #[track_caller]
    fn inits(mut self, init: &str) -> Self {
        self.guest.does(init);
        self
    }

    /// Sends commands that must all succeed.
    #[track_caller]
    pub fn does(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| self.guest.does(line));
    }

    /// Bytes of the physical memory that is not released, as its process asked for it: what is
    /// released comes back late. Of managed memory, those that are on the device, or were when they
    /// were freed.
    pub fn on_device(&self) -> u64 {
        let truth = self.gpu.truth();
        let alive = truth.processes.iter().filter(|process| process.alive);
        let of_it = |process: &ProcessTruth| match self.how {
            Movability::Managed => process
                .resident()
                .min(process.requested[Kind::Managed as usize]),
            _ => process.requested[Kind::Vmm as usize],
        };
        alive.map(of_it).sum()
    }

    /// Whether its memory is managed.
    pub fn is_managed(&self) -> bool {
        self.how == Movability::Managed
    }

    /// Orders, and waits for the end of it.
    #[track_caller]
    pub fn ordered(&mut self, order: Order) -> Outcome {
        self.epoch += 1;
        self.dealer.order(self.epoch, order);
        self.outcome()
    }

    /// Waits for the end of the last order.
    #[track_caller]
    pub fn outcome(&mut self) -> Outcome {
        let wanted = self.epoch;
        self.dealer.hears_some(|said| match *said {
            Request::Away { epoch, away, .. } if epoch == wanted => Some(Outcome::Away(away)),
            Request::Back { epoch, .. } if epoch == wanted => Some(Outcome::Back),
            Request::NoRoom { epoch, bytes, .. } if epoch == wanted => Some(Outcome::NoRoom(bytes)),
            Request::SealBusy { epoch, .. } if epoch == wanted => Some(Outcome::Busy),
            _ => None,
        })
    }

    /// Waits until the daemon has given host memory for so much.
    #[track_caller]
    pub fn provided(&self, bytes: u64) {
        until("host memory is given", || {
            self.dealer.store().given() >= bytes
        });
    }

    /// Has the memory leave.
    #[track_caller]
    pub fn leaves(&mut self) {
        let outcome = self.ordered(Order::Leave);
        assert!(
            matches!(outcome, Outcome::Away(bytes) if bytes > 0),
            "{outcome:?}"
        );
        // The device has managed pages back only some operations later, and other memory once what
        // copied it is over for the driver too.
        until("its memory is off the device", || {
            self.is_managed() || self.on_device() == 0
        });
    }

    /// Has the memory come back.
    #[track_caller]
    pub fn returns(&mut self) {
        assert_eq!(self.ordered(Order::Return), Outcome::Back);
    }

    /// Sends a command that uses memory that is away. It waits, the daemon is told, and after the
    /// return it succeeds.
    #[track_caller]
    pub fn waits_for_return(&mut self, line: &str) {
        self.guest.send(line);
        self.dealer.hears(&Request::WantIn { device_index: 0 });
        self.returns();
        let word = line.split(' ').next().expect("a word");
        assert_eq!(self.guest.line(), format!("{word} 0"), "{line}");
    }

    /// All of its memory can move: so many bytes. It comes and goes, and keeps what its slots were
    /// filled with: each with its own number.
    #[track_caller]
    pub fn all_comes_and_goes(&mut self, bytes: u64, slots: usize) {
        assert_eq!((self.on_device(), self.charged()), (bytes, bytes));
        self.provided(bytes);
        self.dealer.come_back();
        let told = self.tells(|told| told.movable == bytes);
        assert_eq!(told.residue.total(), 0);
        for _ in 0..3 {
            self.leaves();
            self.returns();
            for slot in 0..slots {
                self.guest.answers(&format!("check {slot} {slot}"), "0");
            }
        }
    }

    /// The last state that the process has told, told from now on.
    #[track_caller]
    pub fn tells(&mut self, wanted: impl Fn(&Residency) -> bool) -> Residency {
        self.dealer.hears_some(|said| match said {
            Request::Residency(told) if wanted(told) => Some(*told),
            _ => None,
        })
    }

    /// The process's charge on the first device, by the tenant's page.
    pub fn charged(&self) -> u64 {
        let line = self.dealer.usage().line(0, 0).expect("the first slot");
        u64::from(line.word.load().charged) * UNIT
    }

    /// At most a twentieth of what is charged cannot move, and the rest comes and goes.
    pub fn little_stays(mut self) {
        self.dealer.come_back();
        let charged = self.charged();
        let told = self.tells(|told| told.movable + told.residue.total() == charged);
        eprintln!("residue {} of {charged} bytes", told.residue.total());
        assert!(told.residue.total() * 20 <= charged, "{told:?}");
        self.leaves();
        self.returns();
        self.guest.finish().silently();
    }

    /// The bare driver's answer to the same program: without the library.
    #[track_caller]
    pub fn bare(&self) -> Guest {
        let mut command = self.dealer.command(&clients::compile("movable", &[]));
        command
            .env("LD_LIBRARY_PATH", gpu::links())
            .env_remove("LD_PRELOAD");
        let mut guest = Guest::start(command);
        guest.does("init");
        guest
    }

    /// The kernel's number of the library's thread that moves memory.
    #[track_caller]
    pub fn mover(&self) -> String {
        thread(self.guest.id(), "gpushare-mover").expect("it has one")
    }
}

/// Asks both programs, which must answer the same.
#[track_caller]
pub fn same(scene: &mut Scene, bare: &mut Guest, lines: &[impl AsRef<str>]) {
    for line in lines {
        let line = line.as_ref();
        assert_eq!(scene.guest.ask(line), bare.ask(line), "{line}");
    }
}

/// Each driver call that makes movable memory, failing once with each of two errors: the error, and
/// both as `SOFTGPU_FAIL` takes them.
pub fn failing_steps() -> impl Iterator<Item = (&'static str, String)> {
    let functions = [
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
    ];
    let errors = ["CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_UNKNOWN"];
    let of = move |error| functions.map(|function| (error, format!("{function}:1:{error}")));
    errors.into_iter().flat_map(of)
}
