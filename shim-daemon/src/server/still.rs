//! A server that no loop runs, for tests of its parts.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use gpushare_core::TenantId;
use gpushare_protocol::units::{Bytes, GIB};
use gpushare_protocol::wire::{Control, Hello, Injection, Register, Request, encode};
use nix::sys::eventfd::EventFd;

use super::session::Role;
use super::{Folder, Server, Start};
use crate::devices::{Capabilities, Device, Devices, Look, LookError};
use crate::groups::Groups;
use crate::init::Init;
use crate::node::{ConnId, Settings};

/// One device that cannot be looked at.
#[derive(Debug)]
struct One;

impl Devices for One {
    fn list(&mut self) -> Result<Vec<Device>, String> {
        Ok(vec![Device {
            uuid: [7; 16],
            minor: None,
            name: "Fact 1".to_owned(),
            capacity: Bytes(16 * GIB),
            capabilities: Capabilities::default(),
        }])
    }

    fn look(&mut self, _: usize) -> Result<Look, LookError> {
        Err(LookError::Lost)
    }
}

/// A hook registers a container with this id, whose first process is this one. `proc` is a folder
/// in which its cgroup is written down.
pub(super) fn contain(server: &mut Server, proc: &Path, id: &str) {
    let pid = std::process::id();
    let own = proc.join(pid.to_string());
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(
        own.join("cgroup"),
        format!("0::/system.slice/docker-{id}.scope\n"),
    )
    .unwrap();
    let open = crate::peer::open(pid.cast_signed()).unwrap();
    let init = Init::recorded(open, pid, proc).unwrap();
    let injection = Injection {
        id: id.to_owned(),
        environment: vec![("GPUSHARE_MEM_LIMIT".to_owned(), "1GiB".to_owned())],
        ..Injection::default()
    };
    let now = super::clock::now();
    let hook = (ConnId(u64::MAX), 1);
    let place = Groups::default();
    server.node.inject(now, hook, &injection, init, &place);
    server.carry_out();
}

/// With these settings and this folder, ready to run: of one user.
pub(super) fn server(folder: &Path, settings: Settings) -> Server {
    of(Folder::open(folder.to_owned(), true).unwrap(), settings)
}

/// The same of all users of a machine.
pub(super) fn machines(folder: &Path) -> Server {
    let folder = Folder::open(folder.to_owned(), false).unwrap();
    of(folder, Settings::default())
}

fn of(folder: Folder, settings: Settings) -> Server {
    let start = Start {
        folder,
        settings,
        tick: super::TICK,
        stop: EventFd::new().unwrap().into(),
        reload: None,
        transient: false,
        starter: None,
        journal: None,
    };
    Server::new(start, Box::new(One)).unwrap()
}

/// This command makes a tenant.
pub(super) fn made(server: &mut Server, command: ConnId, name: &str) {
    let create = Control::Create {
        name: Some(name.to_owned()),
        environment: vec![],
        devices: vec![],
    };
    let now = super::clock::now();
    server.node.command(now, command, 1, &create);
    server.carry_out();
}

/// The first tenant, one of the machine's.
pub(super) fn tenant(server: &mut Server) -> TenantId {
    made(server, ConnId(u64::MAX), "one");
    TenantId(1)
}

/// One that follows another, of which it has [`tenant`].
pub(super) fn followed(folder: &Path) -> Server {
    let mut first = server(folder, Settings::default());
    tenant(&mut first);
    drop(first);
    server(folder, Settings::default())
}

/// A new connection over which this process registers and then says this.
pub(super) fn joins(server: &mut Server, tenant: TenantId, words: &[Request]) -> UnixStream {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let register = Request::Register(Register {
        pid: std::process::id(),
        presents_page: false,
        slot: None,
    });
    let hello = Hello {
        capabilities: Hello::GATED,
        ..Hello::of_this_build(0)
    };
    let mut sent = Vec::new();
    encode(0, &hello, &mut sent).unwrap();
    for (id, word) in (1..).zip([&register].into_iter().chain(words)) {
        encode(id, word, &mut sent).unwrap();
    }
    ours.write_all(&sent).unwrap();
    server.came(super::clock::now(), theirs, Role::Client(tenant));
    server.talk(server.next);
    server.carry_out();
    ours
}
