//! A `run` keeps its tenant with the daemons that follow: one that does not know the tenant, one
//! that refuses it, and one that `run` starts in the place of a private one that died.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use gpushare_protocol::wire::{
    Control, ControlReply, Decoder, ErrorCode, Hello, WireError, decode, encode,
};
use gpushare_tests::guest::clean;
use gpushare_tests::{GIB, Guest, Home, clients, until, until_some};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

/// A connection of a `run` to a daemon that the test plays.
struct Connection {
    socket: UnixStream,
    decoder: Decoder,
}

impl Connection {
    /// The next one, greeted.
    fn to(listener: &UnixListener) -> Self {
        let (socket, _) = listener.accept().expect("the command connects");
        let decoder = Decoder::default();
        let mut connection = Self { socket, decoder };
        connection.frame();
        connection.send(0, &Hello::of_this_build(7));
        connection
    }

    fn frame(&mut self) -> (u32, Vec<u8>) {
        loop {
            if let Some(frame) = self.decoder.next_frame().expect("frames") {
                return frame;
            }
            let mut bytes = [0; 4096];
            let read = self.socket.read(&mut bytes).expect("the command asks");
            assert!(read > 0, "the command hung up");
            self.decoder.push(&bytes[..read]);
        }
    }

    fn send<T: serde::Serialize>(&mut self, id: u32, message: &T) {
        let mut frame = Vec::new();
        encode(id, message, &mut frame).expect("a message");
        self.socket.write_all(&frame).expect("it is read");
    }

    /// What the command asks next, answered.
    fn answers(&mut self, reply: &ControlReply) -> Control {
        let (id, body) = self.frame();
        self.send(id, reply);
        decode(id, &body).expect("a request")
    }

    /// What the command says last.
    fn hears(&mut self) -> Control {
        let (id, body) = self.frame();
        decode(id, &body).expect("a message")
    }
}

fn created() -> ControlReply {
    ControlReply::Created {
        name: "one".to_owned(),
        folder: "/nonexistent".to_owned(),
    }
}

fn refused(code: ErrorCode, text: &str) -> ControlReply {
    ControlReply::Error(WireError::new(code, text))
}

/// `cat` in tenant `one` of a daemon that has left, the next daemon's connection to its `run`, and
/// the request that registered it.
fn left_by_its_daemon(home: &Home, listener: &UnixListener) -> (Guest, Connection, Control) {
    let mut run = home.run("one", &["--mem-limit", "1GiB"]);
    run.arg("cat");
    let mut guest = Guest::start(run);
    let mut first = Connection::to(listener);
    let request = first.answers(&created());
    assert_eq!(guest.ask("runs"), "runs");
    drop(first);
    (guest, Connection::to(listener), request)
}

fn attach() -> Control {
    let tenant = "one".to_owned();
    Control::Attach { tenant }
}

/// The guest's words on standard error, once it has ended and the daemon was told so.
fn ends(mut guest: Guest, mut daemon: Connection) -> String {
    guest.hang_up();
    assert_eq!(daemon.hears(), Control::Ended { status: 0 });
    drop(daemon);
    let ended = guest.finish();
    assert!(ended.status.success(), "{ended:?}");
    ended.stderr
}

#[test]
fn a_tenant_that_the_next_daemon_has_is_kept_without_a_word() {
    let home = Home::new("");
    let listener = home.listener();
    let (guest, mut daemon, _) = left_by_its_daemon(&home, &listener);
    assert_eq!(daemon.answers(&created()), attach());
    assert_eq!(ends(guest, daemon), "");
}

#[test]
fn a_tenant_that_the_next_daemon_does_not_know_is_registered_again() {
    let home = Home::new("");
    let listener = home.listener();
    let (guest, mut daemon, request) = left_by_its_daemon(&home, &listener);
    let unknown = refused(ErrorCode::NotFound, "there is no tenant one");
    assert_eq!(daemon.answers(&unknown), attach());
    assert_eq!(daemon.answers(&created()), request);
    let told = ends(guest, daemon);
    assert!(told.contains("one is registered again"), "{told}");
}

#[test]
fn a_daemon_that_refuses_a_tenant_is_asked_until_it_keeps_it() {
    let home = Home::new("");
    let listener = home.listener();
    let (guest, mut daemon, request) = left_by_its_daemon(&home, &listener);
    let unknown = refused(ErrorCode::NotFound, "there is no tenant one");
    let full = refused(ErrorCode::Full, "it could not be restored");
    for _ in 0..2 {
        assert_eq!(daemon.answers(&unknown), attach());
        assert_eq!(daemon.answers(&full), request);
    }
    assert_eq!(daemon.answers(&created()), attach());
    let told = ends(guest, daemon);
    assert_eq!(told.matches("could not be restored").count(), 1, "{told}");
    assert!(told.contains("get no CUDA"), "{told}");
}

/// Rust's threads have stacks of this size, for which there is no room: as where `ulimit -u` allows
/// no more of them.
const NO_THREAD: (&str, &str) = ("RUST_MIN_STACK", "1152921504606846976");

#[test]
fn a_run_that_can_make_no_thread_starts_no_program() {
    let home = Home::new("");
    let listener = home.listener();
    let mut run = home.run("one", &["--mem-limit", "1GiB"]);
    run.args(["echo", "ran"]).env(NO_THREAD.0, NO_THREAD.1);
    let guest = Guest::start(run);
    Connection::to(&listener).answers(&created());
    let ended = guest.finish();
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert_eq!(ended.stdout, "", "{ended:?}");
    assert!(ended.stderr.contains("cannot start a thread"), "{ended:?}");
}

/// A pipeline whose next step starts after the daemon has died.
#[test]
fn a_private_daemon_that_dies_is_started_again_by_its_runs() {
    let home = Home::new("mem=16GiB");
    let mut guests = ["one", "two"].map(|name| {
        let mut run = home.run(name, &["--mem-limit", "4GiB"]);
        run.args(["sh", "-c", "echo begun; read line; exec \"$0\""]);
        run.arg(clients::compile("quota", &[]));
        let mut guest = Guest::start(run);
        assert_eq!(guest.line(), "begun");
        guest
    });
    let died = home.daemons()[0];
    kill(Pid::from_raw(died.cast_signed()), Signal::SIGKILL).unwrap();
    until_some("another serves", || {
        let all = home.daemons();
        (all.len() == 1 && all != [died]).then_some(())
    });
    for guest in &mut guests {
        guest.send("go on");
        assert_eq!(guest.ask("init"), "init 0");
        assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    }
    until("one is left", || home.daemons().len() == 1);
    for guest in guests {
        let ended = guest.finish();
        assert!(ended.status.success(), "{ended:?}");
        let told = "has ended: another one is started in its place";
        assert!(ended.stderr.matches(told).count() <= 1, "{ended:?}");
    }
    home.until_no_daemon();
}

/// The CPUs, the policy of scheduling (`SCHED_…`), the nice value and the soft limit of CPU time of
/// a process.
fn footing(pid: u32) -> (String, i32, i32, String) {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).expect("it lives");
    let of = |text: &str, what: &str, at: usize| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(what));
        let word = line.expect("proc(5)").split_whitespace().nth(at);
        word.expect("proc(5)").to_owned()
    };
    let stat = read("stat");
    let (_, fields) = stat.rsplit_once(')').expect("proc(5)");
    let fields: Vec<_> = fields.split_whitespace().collect();
    let number = |at: usize| fields[at].parse().expect("proc(5)");
    let cpus = of(&read("status"), "Cpus_allowed_list:", 0);
    let time = of(&read("limits"), "Max cpu time", 0);
    (cpus, number(38), number(16), time)
}

#[test]
fn a_private_daemon_does_not_stand_where_its_first_program_stands() {
    let home = Home::new("mem=16GiB");
    let (own, ..) = footing(std::process::id());
    let cpu: String = own.chars().take_while(char::is_ascii_digit).collect();
    let mut run = home.run("one", &["--mem-limit", "1GiB"]);
    run.arg("cat");
    let script = "ulimit -St 100000; exec nice -n 19 taskset -c $CPU chrt --batch 0 \"$@\"";
    let mut bound = clean("sh".as_ref());
    bound
        .args(["-c", script, "sh"])
        .env("CPU", &cpu)
        .arg(run.get_program())
        .args(run.get_args());
    for (name, value) in run.get_envs() {
        if let Some(value) = value {
            bound.env(name, value);
        }
    }
    let mut guest = Guest::start(bound);
    assert_eq!(guest.ask("runs"), "runs");
    let is_root = geteuid().is_root();
    let (cpus, policy, nice, time) = footing(home.daemons()[0]);
    assert_eq!((cpus, policy, time), (own, 0, "unlimited".to_owned()));
    assert!(nice == 0 || !is_root, "nice {nice}");
    // The program has what it was given.
    let (cpus, policy, nice, time) = footing(guest.id());
    assert_eq!((cpus, policy, nice), (cpu, 3, 19));
    assert_eq!(time, "100000");
    let ended = guest.finish();
    assert_eq!(ended.stderr.contains("at nice 19"), !is_root, "{ended:?}");
}
