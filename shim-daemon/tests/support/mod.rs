//! A daemon on fake devices, and clients that speak the wire protocol directly.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

pub mod devices;
pub mod file;
pub mod gate;
pub mod silent;
pub mod stand_in;

use std::io::{IoSlice, Read as _, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use devices::*;
use gpushare_protocol::page::Page;
use gpushare_protocol::wire::*;
use gpushared::foreign::{Foreign, Lanes};
use gpushared::node::Settings;
use gpushared::pages::UsagePage;
use gpushared::server::{CONTROL, Folder, Reload, SOCKET, Server, Start};
pub use stand_in::StandIn;

use nix::sys::eventfd::EventFd;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// The longest a test waits for an expected state or message.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// `cat`, of which the kernel shows the whole program: it has answered.
pub fn cat() -> Child {
    let mut cat = Command::new("cat");
    cat.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = cat.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

/// A running daemon; stopped when dropped.
pub struct Daemon {
    pub folder: PathBuf,
    pub devices: FakeDevices,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    pub fn start(folder: &Path) -> Self {
        Self::with(folder, FakeDevices::default())
    }

    pub fn with(folder: &Path, devices: FakeDevices) -> Self {
        Self::with_settings(folder, devices, Settings::default())
    }

    pub fn with_settings(folder: &Path, devices: FakeDevices, settings: Settings) -> Self {
        Self::with_file(folder, devices, settings, None)
    }

    pub fn with_file(
        folder: &Path,
        devices: FakeDevices,
        settings: Settings,
        reload: Option<Reload>,
    ) -> Self {
        let stop = Arc::new(EventFd::new().unwrap());
        let start = Start {
            folder: Folder::open(folder.to_owned(), true).unwrap(),
            settings,
            tick: devices.tick(),
            stop: stop.as_fd().try_clone_to_owned().unwrap(),
            reload,
            transient: false,
            starter: None,
            journal: None,
        };
        let mut server = Server::new(start, Box::new(devices.clone())).unwrap();
        let thread = std::thread::spawn(move || server.run().unwrap());
        Self {
            folder: folder.to_owned(),
            devices,
            stop,
            thread: Some(thread),
        }
    }

    pub fn command(&self) -> Wire {
        Wire::connect(&self.folder.join(CONTROL))
    }

    /// Registers a tenant with these limits and waits for its admission.
    pub fn tenant(&self, name: &str, environment: &[(&str, &str)]) -> (Wire, PathBuf) {
        let mut command = self.command();
        let id = command.ask(&create(name, environment));
        match command.answer::<ControlReply>(id) {
            ControlReply::Created { folder, .. } => (command, PathBuf::from(folder).join(SOCKET)),
            other => panic!("{other:?}"),
        }
    }

    /// The answer to a command that comes for this.
    pub fn asks(&self, request: &Control) -> ControlReply {
        self.command().call(request)
    }

    /// The row of this tenant that a command is told.
    pub fn row(&self, name: &str) -> TenantRow {
        let rows = self.command().tenants();
        rows.into_iter().find(|row| row.name == name).unwrap()
    }
}

/// Waits for what must come.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A process was refused for the page that it presented, or for its row there.
pub fn is_a_bad_page(reply: &Reply) {
    let is_so = |error: &WireError| error.code == ErrorCode::BadPage;
    assert!(
        matches!(reply, Reply::Error(error) if is_so(error)),
        "{reply:?}"
    );
}

/// The text of a refusal.
pub fn refusal(reply: ControlReply) -> String {
    match reply {
        ControlReply::Error(error) => error.message,
        other => panic!("{other:?}"),
    }
}

pub fn create(name: &str, environment: &[(&str, &str)]) -> Control {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Control::Create {
        name: Some(name.to_owned()),
        environment: environment.iter().map(pair).collect(),
        devices: vec![],
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.write(1).unwrap();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A connection that has said hello. Replies that are not asked for yet are kept.
pub struct Wire {
    pub socket: UnixStream,
    decoder: Decoder,
    kept: Vec<(u32, Vec<u8>)>,
    pub descriptors: Vec<OwnedFd>,
    next: u32,
    pub instance: u64,
}

impl Wire {
    pub fn connect(path: &Path) -> Self {
        Self::connect_with(path, 0)
    }

    /// Sends a hello with these capabilities.
    pub fn connect_with(path: &Path, capabilities: u64) -> Self {
        Self::greet(UnixStream::connect(path).unwrap(), capabilities)
    }

    /// Greets over a connection.
    pub fn greet(socket: UnixStream, capabilities: u64) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut wire = Self {
            socket,
            decoder: Decoder::default(),
            kept: vec![],
            descriptors: vec![],
            next: 0,
            instance: 0,
        };
        let hello = Hello {
            capabilities,
            ..Hello::of_this_build(0)
        };
        wire.send(0, &hello);
        let hello: Hello = wire.answer(0);
        assert_eq!((hello.magic, hello.major), (MAGIC, MAJOR));
        wire.instance = hello.instance;
        wire
    }

    pub fn send<T: serde::Serialize>(&mut self, id: u32, message: &T) {
        let mut frame = Vec::new();
        encode(id, message, &mut frame).unwrap();
        self.socket.write_all(&frame).unwrap();
    }

    pub fn ask<T: serde::Serialize>(&mut self, message: &T) -> u32 {
        self.next += 1;
        self.send(self.next, message);
        self.next
    }

    /// As [`Self::ask`], with descriptors.
    pub fn ask_with<T: serde::Serialize>(&mut self, message: &T, passed: &[RawFd]) -> u32 {
        self.next += 1;
        let mut frame = Vec::new();
        encode(self.next, message, &mut frame).unwrap();
        sendmsg::<()>(
            self.socket.as_raw_fd(),
            &[IoSlice::new(&frame)],
            &[ControlMessage::ScmRights(passed)],
            MsgFlags::empty(),
            None,
        )
        .unwrap();
        self.next
    }

    /// Waits for the answer to request `id`.
    pub fn answer<T: serde::de::DeserializeOwned>(&mut self, id: u32) -> T {
        loop {
            if let Some(at) = self.kept.iter().position(|(known, _)| *known == id) {
                let (_, body) = self.kept.remove(at);
                return decode(id, &body).unwrap();
            }
            assert!(self.read(), "the daemon closed the connection");
        }
    }

    /// The replies to commands that are here and were not asked for yet.
    pub fn kept_replies(&mut self) -> Vec<ControlReply> {
        let kept = std::mem::take(&mut self.kept);
        let reply = |(id, body): (u32, Vec<u8>)| decode(id, &body).unwrap();
        kept.into_iter().map(reply).collect()
    }

    /// Whether an answer to `id` is here already, without waiting.
    pub fn has_answer(&mut self, id: u32) -> bool {
        self.kept.iter().any(|(known, _)| *known == id)
    }

    pub fn call<T: serde::Serialize, R: serde::de::DeserializeOwned>(&mut self, message: &T) -> R {
        let id = self.ask(message);
        self.answer(id)
    }

    /// The tenants that this command is told of.
    pub fn tenants(&mut self) -> Vec<TenantRow> {
        match self.call(&Listing::Tenants.first()) {
            ControlReply::Page {
                rows: Rows::Tenants(rows),
                ..
            } => rows,
            other => panic!("{other:?}"),
        }
    }

    /// Reads once; false at the end of the connection.
    pub fn read(&mut self) -> bool {
        let mut buffer = vec![0; 65536];
        let mut space = nix::cmsg_space!([i32; 4]);
        let bytes = {
            let mut parts = [std::io::IoSliceMut::new(&mut buffer)];
            let message = recvmsg::<()>(
                self.socket.as_raw_fd(),
                &mut parts,
                Some(&mut space),
                MsgFlags::empty(),
            )
            .unwrap();
            for part in message.cmsgs().unwrap() {
                if let ControlMessageOwned::ScmRights(numbers) = part {
                    // SAFETY: the kernel made them for this message.
                    self.descriptors.extend(
                        numbers
                            .into_iter()
                            .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
                    );
                }
            }
            message.bytes
        };
        self.decoder.push(&buffer[..bytes]);
        while let Some(frame) = self.decoder.next_frame().unwrap() {
            self.kept.push(frame);
        }
        bytes > 0
    }
}

/// A registered process, for which the test talks. It lives as long as this.
pub struct Client {
    pub process: StandIn,
    pub wire: Wire,
    pub slot: usize,
    pub usage: UsagePage,
}

impl Client {
    pub fn register(socket: &Path) -> Self {
        Self::register_with(socket, 0)
    }

    /// Registers with these capabilities.
    pub fn register_with(socket: &Path, capabilities: u64) -> Self {
        Self::register_as(StandIn::start(), socket, capabilities)
    }

    /// Registers this process.
    pub fn register_as(mut process: StandIn, socket: &Path, capabilities: u64) -> Self {
        let mut wire = Wire::greet(process.connect(socket), capabilities);
        let pid = process.pid();
        let register = Register {
            pid,
            presents_page: false,
            slot: None,
        };
        match wire.call(&Request::Register(register)) {
            Reply::Registered(registered) => {
                assert_eq!(registered.device_uuids.first(), Some(&GPU));
                let usage = wire.descriptors.pop().unwrap();
                let usage = Foreign::new(usage, &Lanes::default().own());
                let usage = UsagePage::adopt(usage).unwrap();
                Self {
                    process,
                    wire,
                    slot: usize::from(registered.slot),
                    usage,
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// Comes back after the daemon went away, with the page it has; and obeys the new daemon.
    pub fn reconnect(&mut self, socket: &Path) -> Reply {
        self.reconnect_with(socket, 0)
    }

    /// Reconnects with these capabilities.
    pub fn reconnect_with(&mut self, socket: &Path, capabilities: u64) -> Reply {
        let mut wire = Wire::greet(self.process.connect(socket), capabilities);
        let register = Register {
            pid: self.process.pid(),
            presents_page: true,
            slot: u16::try_from(self.slot).ok(),
        };
        let page = [self.usage.descriptor().as_raw_fd()];
        let id = wire.ask_with(&Request::Register(register), &page);
        let reply: Reply = wire.answer(id);
        let instance = wire.instance;
        self.wire = wire;
        if matches!(reply, Reply::Registered(_)) {
            let done: Reply = self.wire.call(&Request::Adopted { instance });
            assert_eq!(done, Reply::Done);
        }
        reply
    }

    pub fn page(&self) -> &Page {
        self.usage.view()
    }

    /// Asks for a context and, like the library, says when it is made: at once.
    pub fn open(&mut self) -> Reply {
        let reply = self.opening();
        if matches!(reply, Reply::Granted { .. }) {
            self.wire.ask(&Request::ContextMade { device_index: 0 });
        }
        reply
    }

    /// Asks for a context that takes its time.
    pub fn opening(&mut self) -> Reply {
        self.wire.call(&Request::Open { device_index: 0 })
    }

    pub fn ask(&mut self, held: u64, bytes: u64) -> u32 {
        self.wire.ask(&Request::Ask(Ask {
            device_index: 0,
            held,
            bytes,
            patience_ms: None,
        }))
    }

    /// Asks and waits for the answer.
    pub fn grow(&mut self, held: u64, bytes: u64) -> Reply {
        let id = self.ask(held, bytes);
        self.wire.answer(id)
    }

    /// Books `bytes` in the page, as a client does once its grant suffices.
    pub fn charge(&self, bytes: u64) {
        let units = u32::try_from(bytes / 512).unwrap();
        self.page()
            .line(self.slot, 0)
            .unwrap()
            .word
            .charge_anyway(units);
    }

    /// Gives `bytes` back in the page.
    pub fn release(&self, bytes: u64) {
        let units = u32::try_from(bytes / 512).unwrap();
        self.page().line(self.slot, 0).unwrap().word.release(units);
    }

    /// Gives `bytes` back and says so.
    pub fn free(&mut self, bytes: u64) {
        self.release(bytes);
        let done: Reply = self.wire.call(&Request::Freed { device_index: 0 });
        assert_eq!(done, Reply::Done);
    }
}
