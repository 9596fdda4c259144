//! The real daemon is killed at each message of a move, before it has read it: sealed, so much
//! moved, away, a call that waits, back, and all others. The next daemon finds each byte, and it
//! knows where that is.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use gpushare_protocol::wire::Place;
use gpushare_tests::{Daemon, Gpu, Guest, MIB, Tenant, artefacts, clients, until};

const NODE: &str = "first_context = \"4MiB\"\n[swap]\nhost = \"1GiB\"\n";
/// A device with room for one and a third tenants. A move of one has several parts, and takes a
/// quarter of a second.
const DEVICE: &str = "mem=178MiB,ctx=2MiB,link=512MiB/s";
const SIZE: u64 = 128 * MIB;
const NAMES: [&str; 2] = ["one", "two"];
const VALUES: [u64; 2] = [3, 4];
const SWAP: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_LIMIT", "128MiB"),
    ("GPUSHARE_ON_COLLISION", "swap"),
];
/// No move has more messages.
const MOST: u64 = 100;

/// Two tenants, under a daemon that can be told to end at a message.
struct Scene {
    gpu: Gpu,
    daemon: Daemon,
    guests: [Guest; 2],
    _tenants: [Tenant; 2],
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("config.toml"), NODE).expect("a file");
        // It becomes the daemon: `exec` keeps the process.
        let script = format!(
            "#!/bin/sh\nLD_PRELOAD={} ENDS_AT={} exec {} --config {} \"$@\"\n",
            clients::compile("ends_at", &["-shared", "-fPIC"]).display(),
            at("ends").display(),
            artefacts::gpushared().display(),
            at("config.toml").display(),
        );
        fs::write(at("gpushared"), script).expect("a file");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(at("gpushared"), mode).expect("own file");
        let gpu = Gpu::new(DEVICE);
        let daemon = Daemon::of_build(&gpu, at("gpushared"));
        let tenants = NAMES.map(|name| daemon.tenant(name, &SWAP));
        let guests = [0, 1].map(|at| {
            let mut guest = tenants[at].client("swapped", &[]);
            assert_eq!(guest.ask("init"), "init 0");
            guest
        });
        let mut scene = Self {
            gpu,
            daemon,
            guests,
            _tenants: tenants,
            folder,
        };
        assert_eq!(scene.guests[0].ask(&format!("alloc {SIZE}")), "alloc 0");
        assert_eq!(scene.guests[0].ask("fill 3"), "fill 0");
        scene
    }

    fn ends(&self) -> PathBuf {
        self.folder.path().join("ends")
    }

    /// From now on the daemon ends when it would read the message of this number.
    fn ends_at(&self, message: u64) {
        fs::write(self.ends(), message.to_string()).expect("a file");
    }

    /// Follows a call until it is answered or the daemon has ended. In that case the next daemon
    /// comes. Returns whether it ended, and the answer.
    fn follow(&mut self, at: usize, call: &str) -> (bool, String) {
        let (pid, ends) = (self.daemon.pid(), self.ends());
        let has_ended = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| stat.contains(") Z "))
        };
        let (guest, daemon) = (&mut self.guests[at], &mut self.daemon);
        guest.send(call);
        std::thread::scope(|scope| {
            let line = scope.spawn(|| guest.line());
            until("it is answered, or the daemon ends", || {
                line.is_finished() || has_ended()
            });
            let _ = fs::remove_file(ends);
            let has_ended = has_ended();
            if has_ended {
                daemon.restart();
            }
            (has_ended, line.join().expect("a line"))
        })
    }

    /// The movable memory that a tenant has on the device.
    fn held(&self, at: usize) -> u64 {
        let truth = self.gpu.truth();
        let id = self.guests[at].id();
        let mut own = truth.processes.iter();
        let own = own.find(|one| u32::try_from(one.pid) == Ok(id) && one.alive);
        own.map_or(0, |one| one.requested[softgpu::world::Kind::Vmm as usize])
    }

    /// Whether the daemon knows where each tenant's memory is, and how much it is.
    fn is_known(&self, sizes: [u64; 2]) -> bool {
        [0, 1].into_iter().all(|at| {
            let wanted = match self.daemon.residency(NAMES[at]).place {
                Place::In => sizes[at],
                Place::Out => 0,
                _ => return false,
            };
            self.held(at) == wanted && self.daemon.row(NAMES[at]).charged == sizes[at]
        })
    }

    /// Every byte is right in turn, and the daemon knows where they are.
    fn is_right(&mut self, sizes: [u64; 2]) {
        for at in [0, 1, 0] {
            if sizes[at] > 0 {
                let check = format!("check {}", VALUES[at]);
                assert_eq!(self.guests[at].ask(&check), "check 0", "{}", NAMES[at]);
            }
            until("the daemon knows it", || self.is_known(sizes));
        }
    }
}

/// Plays the scene with the daemon killed at each message, until it is not reached any more.
#[allow(clippy::print_stdout, reason = "the number of points is worth to know")]
fn at_each_message(what: &str, mut play: impl FnMut(&mut Scene, u64) -> bool) {
    let last = (0..MOST).find(|message| {
        let mut scene = Scene::new();
        !play(&mut scene, *message)
    });
    let last = last.expect("the move ends");
    println!("{what}: {last} messages");
    assert!(last >= 5, "{what}: a move has more than {last} messages");
}

#[test]
#[ignore = "a daemon and two tenants for each message, a minute: long tier"]
fn killed_at_any_message_of_a_leave_the_daemon_costs_no_byte() {
    at_each_message("leave", |scene, message| {
        scene.ends_at(message);
        let (has_ended, answer) = scene.follow(1, &format!("alloc {SIZE}"));
        let got = answer == "alloc 0";
        assert!(got || answer == "alloc 2", "{message}: {answer}");
        if got {
            assert_eq!(scene.guests[1].ask("fill 4"), "fill 0");
        }
        scene.is_right([SIZE, if got { SIZE } else { 0 }]);
        has_ended
    });
}

#[test]
#[ignore = "a daemon and two tenants for each message, a minute: long tier"]
fn killed_at_any_message_of_a_return_the_daemon_costs_no_byte() {
    at_each_message("return", |scene, message| {
        assert_eq!(scene.guests[1].ask(&format!("alloc {SIZE}")), "alloc 0");
        assert_eq!(scene.guests[1].ask("fill 4"), "fill 0");
        scene.ends_at(message);
        let (has_ended, answer) = scene.follow(0, "check 3");
        assert_eq!(answer, "check 0", "{message}");
        scene.is_right([SIZE, SIZE]);
        has_ended
    });
}
