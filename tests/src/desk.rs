//! What the daemon that a test plays answers to each connection.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use gpushare_protocol::wire::{ErrorCode, Hello, Registered, Reply, Request, WireError, decode};
use gpushared::connection::{Connection, Passed};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::GIB;
use crate::host_store::HostStore;
use crate::rivals::Rivals;

/// How often the threads check whether they must stop, in milliseconds.
const LOOK: u8 = 50;
/// The tenant's grant.
pub(crate) const GRANT: u64 = 8 * GIB;

/// A test's answer to a request for memory; `None`: no answer.
pub type Banker = Box<dyn FnMut(&Request) -> Option<Reply> + Send>;

/// The test's banker, if it has one. Without a banker every request is granted.
#[derive(Clone, Default)]
pub(crate) struct Bank(pub(crate) Arc<Mutex<Option<Banker>>>);

impl std::fmt::Debug for Bank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bank")
    }
}

/// The state that each connection's thread needs.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) pages: [OwnedFd; 2],
    pub(crate) device_uuids: Vec<[u8; 16]>,
    pub(crate) instance: u64,
    pub(crate) major: u16,
    pub(crate) slots: Arc<AtomicU16>,
    pub(crate) hung_up: Arc<AtomicU32>,
    pub(crate) mixed_up: Arc<AtomicBool>,
    pub(crate) made: Arc<AtomicU32>,
    pub(crate) bank: Bank,
    pub(crate) store: Arc<HostStore>,
    pub(crate) rivals: Arc<Rivals>,
    pub(crate) says: Mutex<Sender<Request>>,
    pub(crate) stop: Arc<AtomicBool>,
}

/// Serves until the daemon stops.
pub(crate) fn listen(listener: &UnixListener, desk: &Arc<Desk>) {
    let mut served = Vec::new();
    while !desk.stop.load(Ordering::Relaxed) {
        let mut waits = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut waits, PollTimeout::from(LOOK));
        while let Ok((socket, _)) = listener.accept() {
            let desk = Arc::clone(desk);
            let number = desk.rivals.comes();
            served.push(std::thread::spawn(move || {
                serve(socket, &desk, number);
                desk.rivals.ends(number);
            }));
        }
    }
    for thread in served {
        thread.join().expect("nothing fails there");
    }
}

/// Answers one process until the process ends or the daemon stops or hangs up.
fn serve(socket: UnixStream, desk: &Desk, number: u64) {
    let mut line = Connection::alone(socket).expect("a socket");
    let hung_up = || desk.hung_up.load(Ordering::Relaxed);
    let before = hung_up();
    while !desk.stop.load(Ordering::Relaxed) && hung_up() == before {
        let mut waits = [PollFd::new(line.socket(), PollFlags::POLLIN)];
        let ready = poll(&mut waits, PollTimeout::from(LOOK));
        if ready != Ok(0) && line.receive(1 << 16).is_err() {
            return;
        }
        if let Some((id, reply, descriptors)) = desk.store.due()
            && line.send(id, &reply, passed(descriptors)).is_err()
        {
            return;
        }
        while let Ok(Some((id, body))) = line.next_frame() {
            if answer(&mut line, (desk, number), (id, &body)).is_none() {
                return;
            }
        }
    }
}

fn answer(
    line: &mut Connection,
    (desk, number): (&Desk, u64),
    (id, body): (u32, &[u8]),
) -> Option<()> {
    if id == 0 {
        while !desk.rivals.may_be_greeted(number) {
            let mut waits = [PollFd::new(line.socket(), PollFlags::POLLIN)];
            let ready = poll(&mut waits, PollTimeout::from(LOOK));
            if desk.stop.load(Ordering::Relaxed) || ready != Ok(0) {
                // It sends nothing before it is greeted: it has given up.
                return None;
            }
        }
        let hello = Hello {
            major: desk.major,
            ..Hello::of_this_build(desk.instance)
        };
        return line.send(0, &hello, Vec::new()).ok();
    }
    let mut descriptors = Vec::new();
    let reply = match decode::<Request>(id, body).ok()? {
        Request::Register(register) => {
            desk.rivals.registers(number);
            let fresh = || desk.slots.fetch_add(1, Ordering::Relaxed);
            drop(line.take_descriptor());
            descriptors = desk
                .pages
                .iter()
                .map(|page| page.try_clone().expect("a descriptor"))
                .collect();
            if desk.mixed_up.load(Ordering::Relaxed) {
                descriptors.reverse();
            }
            Reply::Registered(Registered {
                tenant: "by-hand".to_owned(),
                slot: register.slot.unwrap_or_else(fresh),
                device_uuids: desk.device_uuids.clone(),
            })
        }
        Request::Open { .. } | Request::OpenMore { .. } | Request::OpenAgain { .. }
            if !desk.rivals.has_its_place(number) =>
        {
            Reply::Error(WireError::new(ErrorCode::OutOfOrder, "registered anew"))
        }
        asked @ (Request::Open { .. }
        | Request::OpenMore { .. }
        | Request::OpenAgain { .. }
        | Request::Ask(_)
        | Request::DriverRefused(_)) => {
            let mut bank = desk.bank.0.lock().expect("nothing fails there");
            match bank.as_mut() {
                Some(banker) => match banker(&asked) {
                    Some(reply) => reply,
                    None => return Some(()),
                },
                None => Reply::Granted { grant: GRANT },
            }
        }
        Request::ContextMade { .. } => {
            desk.made.fetch_add(1, Ordering::Relaxed);
            return Some(());
        }
        asked @ Request::HostRange { .. } if desk.store.is_late() => {
            desk.store.asked(id, &asked);
            return Some(());
        }
        Request::HostRange { bytes, .. } => {
            let (reply, files) = desk.store.range(bytes);
            descriptors = files;
            reply
        }
        asked @ (Request::HostStore { .. } | Request::HostFetch(_)) => {
            desk.store.asked(id, &asked);
            let says = desk.says.lock().expect("nothing fails there");
            let _ = says.send(asked);
            return Some(());
        }
        said @ (Request::Wanted { .. }
        | Request::Drained { .. }
        | Request::Idle { .. }
        | Request::Busy { .. }
        | Request::Residency(_)
        | Request::Sealed { .. }
        | Request::SealBusy { .. }
        | Request::Moved { .. }
        | Request::Away { .. }
        | Request::Back { .. }
        | Request::NoRoom { .. }
        | Request::WantIn { .. }
        | Request::HostDrop { .. }
        | Request::HostForget(_)
        | Request::Has { .. }
        | Request::Unshared { .. }
        | Request::OpenDone { .. }
        | Request::NoContext { .. }) => {
            let says = desk.says.lock().expect("nothing fails there");
            // At the end of a test the receiver is gone.
            let _ = says.send(said);
            return Some(());
        }
        said @ (Request::Adopted { .. } | Request::Cancel { .. } | Request::Freed { .. }) => {
            let says = desk.says.lock().expect("nothing fails there");
            let _ = says.send(said);
            Reply::Done
        }
        _ => Reply::Done,
    };
    line.send(id, &reply, passed(descriptors)).ok()
}

fn passed(descriptors: Vec<OwnedFd>) -> Vec<Passed> {
    descriptors.into_iter().map(Passed::from).collect()
}
