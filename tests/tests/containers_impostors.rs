//! Processes that are not of a container, and say that they are: at its socket, by the thousand.
//! None is taken in, and a process of the container is.

use gpushare_protocol::wire::{
    Control, ErrorCode, Hello, Injection, Register, Reply, Request, WireError, encode,
};
use gpushare_tests::container::{Bundle, Door, Lab, Runtime};
use gpushare_tests::guest::Guest;
use gpushare_tests::machine::{ALICE, ROOT};
use gpushare_tests::{GIB, clients, until};
use std::process::Command;

const TWO: [(&str, &str); 2] = [("mem-limit", "2GiB"), ("devices", "0")];
/// Tries of each impostor.
const TRIES: u64 = 200;
/// The socket of the container `one`, on the host.
const SOCKET: &str = "/run/gpushare/sockets/one/gpushare.sock";

fn lab() -> Option<Lab> {
    let test = std::thread::current();
    Lab::start(test.name().unwrap_or("containers_impostors"), "")
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A greeting and a request under id 1, as the client takes them.
fn message(request: &impl serde::Serialize) -> String {
    let mut frames = Vec::new();
    encode(0, &Hello::of_this_build(0), &mut frames).expect("it fits");
    encode(1, request, &mut frames).expect("it fits");
    hexadecimal(&frames)
}

/// The first byte of an answer.
fn mark(answer: &impl serde::Serialize) -> u8 {
    let mut frame = Vec::new();
    encode(1, answer, &mut frame).expect("it fits");
    frame[8]
}

/// Registrations under these pids, each with a page and without one.
fn forged(pids: &[u64]) -> Vec<String> {
    let pids = pids.iter().map(|pid| u32::try_from(*pid).expect("a pid"));
    let registers = pids.flat_map(|pid| {
        let slots = [(false, None), (true, Some(0)), (true, Some(511))];
        slots.map(|(presents_page, slot)| Register {
            pid,
            presents_page,
            slot,
        })
    });
    registers
        .map(|register| message(&Request::Register(register)))
        .collect()
}

fn impostor(socket: &str, tries: u64, accepted: u8, messages: &[String]) -> Vec<String> {
    let program = clients::compile("impostor", &[]).display().to_string();
    let words = [
        program,
        socket.to_owned(),
        tries.to_string(),
        accepted.to_string(),
    ];
    [&words, messages].concat()
}

/// The answer to a `Register` that is accepted: any but an error.
fn registered() -> u8 {
    let error = WireError::new(ErrorCode::Forbidden, "");
    assert_ne!(mark(&Reply::Error(error)), 0);
    0
}

fn all_refused(tries: u64) -> String {
    format!("tried {tries} accepted 0 refused {tries} cut 0\n")
}

#[test]
fn a_thousand_impostors_at_a_containers_socket_are_refused() {
    let Some(lab) = lab() else { return };
    let owner = lab
        .run(&Bundle::new("one", Runtime::ByHand, &TWO))
        .started();
    let row = lab.row("one").expect("it runs");
    let member = row["processes"][0]["pid"].as_u64().expect("a pid");
    let messages = forged(&[member, u64::from(owner.id()), 1, 0]);
    let mut tries = 0;
    // Users of the host, and a process of root that is in the container's root and namespaces, but
    // not in its cgroup.
    let inside = [
        "nsenter",
        "--mount",
        "--root",
        "--target",
        &member.to_string(),
    ];
    for (user, before) in [(ROOT, &[][..]), (ALICE, &[]), (ROOT, &inside[..])] {
        let socket = match before {
            [] => SOCKET,
            _ => "/run/gpushare/gpushare.sock",
        };
        let own = impostor(socket, TRIES, registered(), &messages);
        let mut words: Vec<&str> = before.to_vec();
        words.extend(own.iter().map(String::as_str));
        let mut command = lab.machine().as_user(user, words[0]);
        command.args(&words[1..]);
        let ended = Guest::start(command).finish();
        assert_eq!(ended.silently(), all_refused(TRIES), "{user} {before:?}");
        tries += TRIES;
    }
    // Containers that were given the folder of its socket: one without a share, and a tenant.
    for (id, door) in [("two", Door::None), ("three", Door::Hook)] {
        let thief = Bundle {
            door,
            volumes: vec![(
                "/run/gpushare/sockets/one".to_owned(),
                "/mnt/stolen".to_owned(),
            )],
            program: impostor("/mnt/stolen/gpushare.sock", TRIES, registered(), &messages),
            ..Bundle::new(id, Runtime::ByHand, &TWO)
        };
        assert_eq!(lab.ends(&thief).silently(), all_refused(TRIES), "{id}");
        tries += TRIES;
    }
    assert!(tries >= 1000, "{tries}");
    let row = lab.row("one").expect("it runs");
    assert_eq!(row["processes"].as_array().map(Vec::len), Some(1), "{row}");
    // The same messages from a process of the container are accepted: the client is a true one.
    let group = lab.group("one").join("cgroup.procs").display().to_string();
    let own = impostor(SOCKET, 1, registered(), &messages[..1]);
    let line = format!("echo $$ >{group} && exec \"$@\"");
    let mut command = lab.machine().as_user(ROOT, "sh");
    command.args(["-c", &line, "sh"]).args(own);
    let ended = Guest::start(command).finish();
    assert_eq!(ended.silently(), "tried 1 accepted 1 refused 0 cut 0\n");
    owner.finish().silently();
}

/// The pid is free, so the next process that asks for it gets it.
#[test]
fn a_process_with_the_pid_of_a_dead_member_is_refused() {
    let Some(lab) = lab() else { return };
    let owner = lab
        .run(&Bundle::new("one", Runtime::ByHand, &TWO))
        .started();
    let group = lab.group("one").join("cgroup.procs").display().to_string();
    let line = format!("echo $$ >{group} && exec \"$@\"");
    let member = |messages: &[String]| {
        let mut command = lab.machine().as_user(ROOT, "sh");
        command.args(["-c", &line, "sh"]);
        command.args(impostor(SOCKET, 1, registered(), messages));
        let guest = Guest::start(command);
        let pid = u64::from(guest.id());
        (pid, guest.finish().silently())
    };
    let again = clients::compile("again", &[]).display().to_string();
    let mut tries = 0;
    for _ in 0..8 {
        let (pid, said) = member(&forged(&[u64::from(owner.id())])[..1]);
        assert_eq!(said, "tried 1 accepted 1 refused 0 cut 0\n");
        let own = impostor(SOCKET, TRIES / 8, registered(), &forged(&[pid, 0]));
        let mut command = lab.machine().as_user(ROOT, &again);
        command.arg(pid.to_string()).args(own);
        let ended = Guest::start(command).finish();
        assert_eq!(ended.silently(), all_refused(TRIES / 8), "pid {pid}");
        tries += TRIES / 8;
    }
    assert_eq!(tries, TRIES);
    let row = lab.row("one").expect("it runs");
    assert_eq!(row["processes"].as_array().map(Vec::len), Some(1), "{row}");
    owner.finish().silently();
}

#[test]
fn no_user_registers_or_takes_over_a_container_by_its_id() {
    let Some(lab) = lab() else { return };
    let owner = lab
        .run(&Bundle::new("one", Runtime::ByHand, &TWO))
        .started();
    let created = mark(&gpushare_protocol::wire::ControlReply::Created {
        name: String::new(),
        folder: String::new(),
    });
    // Without a pidfd there is no container, whatever the id.
    let ids = ["one", "two", "../one", "one-1", &"a".repeat(64)];
    let injections = ids.map(|id| {
        let asks = [("GPUSHARE_MEM_LIMIT".to_owned(), "8GiB".to_owned())];
        message(&Control::Inject(Injection {
            id: id.to_owned(),
            environment: asks.to_vec(),
            ..Injection::default()
        }))
    });
    let words = impostor("/run/gpushare/control.sock", 50, created, &injections);
    let mut command: Command = lab.machine().as_user(ALICE, &words[0]);
    command.args(&words[1..]);
    let told = Guest::start(command).finish().silently();
    assert!(told.starts_with("tried 50 accepted 0 "), "{told}");
    until("only the container is a tenant", || {
        lab.sh("ls /run/gpushare/sockets") == "one"
    });
    let row = lab.row("one").expect("it runs");
    assert_eq!(row["limit"], 2 * GIB, "{row}");
    owner.finish().silently();
}
