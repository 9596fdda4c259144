//! A descriptor that a process presents may lead to a file whose server does not answer, and its
//! close may wait as well. Only the tenant that presents it waits.

use super::believed::{claims, outlive, presents, spilling};
use super::*;
use crate::support::silent::Silent;
use std::io::{BufRead as _, BufReader, IoSlice, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt::Linger};

/// How many descriptors of this process, which the daemon is in, lead to this.
fn open(leads_to: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let all = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    all.filter(|link| link.starts_with(leads_to)).count()
}

/// Threads of the daemon that work for others.
fn lanes() -> usize {
    let all = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = all.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "lane").count()
}

/// Another tenant's process allocates, and commands are answered.
fn goes_on(daemon: &Daemon, other: &mut Client, held: &mut u64) {
    let reply = other.grow(*held, MIB);
    assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
    other.charge(MIB);
    *held += MIB;
    let rows: ControlReply = daemon.command().call(&Control::Page {
        of: Listing::Swaps,
        from: Cursor::default(),
    });
    assert!(matches!(rows, ControlReply::Page { .. }), "{rows:?}");
}

fn sends(socket: &UnixStream, bytes: &[u8], file: &impl AsRawFd, flags: MsgFlags) {
    sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(bytes)],
        &[ControlMessage::ScmRights(&[file.as_raw_fd()])],
        flags,
        None,
    )
    .unwrap();
}

#[test]
fn a_file_that_never_answers_stops_no_other_tenant() {
    let test = "moves::stuck::a_file_that_never_answers_stops_no_other_tenant";
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("silent");
    let Some(mut files) = Silent::mount(test, &place) else {
        return;
    };
    let (daemon, mut clients) = outlive(folder.path(), &[("hostile", 2), ("other", 1)]);
    let mut other = clients.pop().unwrap();
    // As a library does: a tenant of which no process says where its memory is stays sealed.
    claims(&mut other, 0);
    assert!(matches!(other.open(), Reply::Granted { .. }));
    let mut held = 0;
    let file = files.file();
    files.is_silent();
    presents(&clients[0], &Request::HostFile { file: 1 }, file.as_fd());
    files.is_asked();
    for number in 2..180 {
        for client in &clients {
            presents(client, &Request::HostFile { file: number }, file.as_fd());
        }
        if number % 10 == 0 {
            goes_on(&daemon, &mut other, &mut held);
        }
    }
    assert!(open(&place) < 300, "more are not read while these wait");
    // Also processes that end, with descriptors that were read and others that were not.
    drop(clients);
    goes_on(&daemon, &mut other, &mut held);
    assert!(lanes() <= 4, "{} threads for one tenant", lanes());
    files.answers();
    until("its files are open still", || open(&place) == 1);
    until("threads are left", || lanes() == 0);
    goes_on(&daemon, &mut other, &mut held);
}

/// A socket whose last close waits until its peer has taken what was sent, or has gone.
fn lingering() -> (OwnedFd, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 3600,
    };
    setsockopt(&socket, Linger, &linger).unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65536]).is_ok() {}
    (socket.into(), listener)
}

/// Closes it as soon as that may be. Where the daemon was faster this is the close that waits.
fn closes(socket: OwnedFd) {
    std::thread::spawn(move || drop(socket));
}

/// Runs `attack` with a process of a tenant and a socket that lingers, while a process of another
/// tenant works.
fn while_another_works(attack: impl Fn(&Daemon, &Path, Client, OwnedFd)) {
    let folder = tempfile::tempdir().unwrap();
    let daemon = spilling(folder.path());
    let (_bad, bad) = daemon.tenant("bad", &LIMITS);
    let (mut good, _good) = mover(&daemon, "good", Hello::MOVABLE);
    let mut held = 0;
    let mut peers = Vec::new();
    // Before there is such a socket: a process that is forked then has it, too, and its close of
    // what it does not need could be the last one, which waits.
    let clients = [(); 3].map(|()| Client::register(&bad));
    for client in clients {
        let (socket, listener) = lingering();
        attack(&daemon, &bad, client, socket);
        peers.push(listener);
        goes_on(&daemon, &mut good.client, &mut held);
    }
    drop(peers);
    until("threads are left", || lanes() == 0);
}

#[test]
fn a_descriptor_that_lingers_at_its_close_stops_no_other_tenant() {
    while_another_works(|_, _, bad, socket| {
        presents(&bad, &Request::HostFile { file: 1 }, socket.as_fd());
        presents(&bad, &Request::HostMemory, socket.as_fd());
        closes(socket);
    });
}

#[test]
fn descriptors_that_nobody_reads_stop_no_other_tenant_when_they_close() {
    while_another_works(|daemon, bad, _, socket| {
        let control = daemon.folder.join(gpushared::server::CONTROL);
        // Neither has greeted: the first is cut off for its bytes, the others hang up.
        let lines = [bad, bad, &control].map(|path| UnixStream::connect(path).unwrap());
        sends(&lines[0], &[0], &socket, MsgFlags::empty());
        sends(&lines[0], &[0xff; 64], &socket, MsgFlags::empty());
        for line in &lines[1..] {
            sends(line, &[0; 3], &socket, MsgFlags::empty());
        }
        closes(socket);
    });
}

#[test]
fn a_descriptor_of_urgent_data_stops_no_other_tenant() {
    while_another_works(|_, bad, _, socket| {
        let line = UnixStream::connect(bad).unwrap();
        sends(&line, &[0], &socket, MsgFlags::MSG_OOB);
        closes(socket);
        (&line).write_all(&[0xff; 64]).unwrap();
    });
}

#[test]
fn more_descriptors_than_a_message_has_stop_no_other_tenant() {
    while_another_works(|_, bad, _, socket| {
        let line = UnixStream::connect(bad).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let mut all = vec![null.as_raw_fd(); 250];
        all.push(socket.as_raw_fd());
        sendmsg::<()>(
            line.as_raw_fd(),
            &[IoSlice::new(&[0; 4])],
            &[ControlMessage::ScmRights(&all)],
            MsgFlags::empty(),
            None,
        )
        .unwrap();
        closes(socket);
    });
}

/// A process that writes to its host memory, and does not get on with it.
struct Holder(std::process::Child);

impl Holder {
    fn of(file: &Path, memory: &OwnedFd) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/holds_memory.py");
        let memory = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
        let mut python = Command::new("python3");
        python.arg(program).arg(file).arg(memory);
        python.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        says.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn writes(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn host_memory_that_its_process_holds_stops_no_other_tenant() {
    let test = "moves::stuck::host_memory_that_its_process_holds_stops_no_other_tenant";
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("silent");
    let Some(mut files) = Silent::mount(test, &place) else {
        return;
    };
    let daemon = spilling(folder.path());
    let (mut bad, _bad) = mover(&daemon, "bad", Hello::MOVABLE);
    let (mut good, _good) = mover(&daemon, "good", Hello::MOVABLE);
    let host = Request::HostRange {
        device_index: 0,
        bytes: 2 * MIB,
    };
    let reply: Reply = bad.client.wire.call(&host);
    let Reply::HostRange { offset, bytes } = reply else {
        panic!("{reply:?}")
    };
    let memory = bad.client.wire.descriptors.pop().unwrap();
    let mut holder = Holder::of(&place.join("file"), &memory);
    files.is_silent();
    holder.writes();
    files.is_asked();
    let mut held = 0;
    bad.says(&Request::HostDrop { offset, bytes });
    bad.says(&host);
    goes_on(&daemon, &mut good.client, &mut held);
    let reply: Reply = good.client.wire.call(&host);
    assert!(matches!(reply, Reply::HostRange { .. }), "{reply:?}");
    until("it waits on its own lane", || lanes() > 0);
    drop(bad);
    goes_on(&daemon, &mut good.client, &mut held);
    files.answers();
    until("threads are left", || lanes() == 0);
}
