//! A daemon for one test, the tenants it registers, and programs in them with a plain `LD_PRELOAD`.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpushare_protocol::wire::{
    Control, ControlReply, Decoder, EventRecord, Hello, Listing, ProcessState, Rows, ShareRow,
    TenantRow, decode, encode,
};

use serde::Serialize;

use crate::gpu::{Gpu, links};
use crate::guest::{Guest, clean};
use crate::serving::Serving;
use crate::waiting::PATIENCE;
use crate::{artefacts, clients};

/// A running `gpushared --private` on the software GPU's NVML; killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    folder: tempfile::TempDir,
    spec: String,
    flags: Vec<String>,
    /// Whether it serves only this user.
    private: bool,
    program: PathBuf,
    /// More environment variables of it.
    environment: Vec<(String, String)>,
    child: Option<Serving>,
}

/// A registered tenant. It exists as long as this value lives or a process is in it.
#[derive(Debug)]
pub struct Tenant {
    _owner: Commands,
    folder: PathBuf,
    spec: String,
}

/// A connection to the control socket.
#[derive(Debug)]
pub struct Commands {
    socket: UnixStream,
    decoder: Decoder,
    last: u32,
}

impl Daemon {
    /// Starts a daemon for `gpu`.
    pub fn start(gpu: &Gpu) -> Self {
        Self::with(gpu, &[])
    }

    /// Starts a daemon with further flags.
    pub fn with(gpu: &Gpu, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let flags = flags.iter().map(ToString::to_string).collect();
        Self::new(gpu, folder, flags, artefacts::gpushared(), true)
    }

    fn new(
        gpu: &Gpu,
        folder: tempfile::TempDir,
        flags: Vec<String>,
        program: PathBuf,
        private: bool,
    ) -> Self {
        Self::begun(gpu, folder, (flags, Vec::new()), program, private)
    }

    fn begun(
        gpu: &Gpu,
        folder: tempfile::TempDir,
        (flags, environment): (Vec<String>, Vec<(String, String)>),
        program: PathBuf,
        private: bool,
    ) -> Self {
        let mut daemon = Self {
            folder,
            spec: gpu.spec().to_owned(),
            flags,
            private,
            program,
            environment,
            child: None,
        };
        daemon.restart();
        daemon
    }

    /// Starts a daemon that serves all users, like the machine's daemon.
    pub fn of_all_users(gpu: &Gpu) -> Self {
        let all_users = std::fs::Permissions::from_mode(0o755);
        let folder = tempfile::Builder::new().permissions(all_users).tempdir();
        let folder = folder.expect("a temporary folder");
        Self::new(gpu, folder, Vec::new(), artefacts::gpushared(), false)
    }

    /// Starts a daemon with this `config.toml`.
    pub fn configured(gpu: &Gpu, text: &str) -> Self {
        Self::configured_in(gpu, text, &[])
    }

    /// The same with more environment variables, which the next one after [`Self::restart`] does
    /// not have.
    pub fn configured_in(gpu: &Gpu, text: &str, environment: &[(&str, &str)]) -> Self {
        Self::configured_of(gpu, text, environment, artefacts::gpushared())
    }

    fn configured_of(
        gpu: &Gpu,
        text: &str,
        environment: &[(&str, &str)],
        program: PathBuf,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("config.toml");
        std::fs::write(&file, text).expect("the folder is writable");
        let flags = vec!["--config".to_owned(), file.to_string_lossy().into_owned()];
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let environment = environment.iter().map(pair).collect();
        Self::begun(gpu, folder, (flags, environment), program, true)
    }

    /// Starts a daemon that gives devices in exclusive turns.
    pub fn in_turns(gpu: &Gpu) -> Self {
        Self::configured(gpu, "[compute]\nsharing = \"turns\"\n")
    }

    /// As [`Daemon::start`], with the program of another build.
    pub fn of_build(gpu: &Gpu, program: PathBuf) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self::new(gpu, folder, Vec::new(), program, true)
    }

    /// Kills the daemon and starts one of another build in its place.
    pub fn replace(&mut self, program: PathBuf) {
        self.program = program;
        self.restart();
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Serving::pid)
    }

    /// Kills it with SIGKILL; it must not have ended by itself.
    #[track_caller]
    pub fn kill(&mut self) {
        if let Some(child) = self.child.take() {
            child.kill();
        }
    }

    /// Starts the next daemon in the same folder and waits until it serves.
    pub fn restart(&mut self) {
        self.kill();
        let mut command = clean(&self.program);
        if self.private {
            command.arg("--private");
        }
        command
            .arg("--runtime-dir")
            .arg(self.folder.path())
            .args(&self.flags)
            .env("LD_LIBRARY_PATH", links())
            .env("SOFTGPU", &self.spec)
            .envs(std::mem::take(&mut self.environment));
        let child = Serving::start(command).expect("gpushared serves");
        self.child = Some(child);
    }

    /// A connection for commands.
    pub fn commands(&self) -> Commands {
        Commands::open(&self.control())
    }

    /// Its socket for commands.
    pub fn control(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    /// Registers a tenant with these variables and all devices, and waits for its admission.
    pub fn tenant(&self, name: &str, environment: &[(&str, &str)]) -> Tenant {
        self.tenant_on(name, environment, &[])
    }

    /// Registers a tenant with these variables and devices, in this order, and waits for its
    /// admission.
    pub fn tenant_on(
        &self,
        name: &str,
        environment: &[(&str, &str)],
        devices: &[[u8; 16]],
    ) -> Tenant {
        let created = self.create(name, environment, devices);
        created.unwrap_or_else(|other| panic!("{other:?}"))
    }

    /// The same, or the daemon's refusal.
    ///
    /// # Errors
    /// Whatever it answers instead.
    pub fn create(
        &self,
        name: &str,
        environment: &[(&str, &str)],
        devices: &[[u8; 16]],
    ) -> Result<Tenant, Box<ControlReply>> {
        let mut owner = self.commands();
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let create = Control::Create {
            name: Some(name.to_owned()),
            environment: environment.iter().map(pair).collect(),
            devices: devices.to_vec(),
        };
        match owner.ask(&create) {
            ControlReply::Created { folder, .. } => Ok(Tenant {
                _owner: owner,
                folder: folder.into(),
                spec: self.spec.clone(),
            }),
            other => Err(Box::new(other)),
        }
    }

    /// The row of `ps` for a tenant on its first device.
    pub fn row(&self, name: &str) -> TenantRow {
        first(self.rows(name), name)
    }

    /// The rows of `ps` for a tenant, in its order of devices.
    pub fn rows(&self, name: &str) -> Vec<TenantRow> {
        rows_of(self.commands().ask(&Listing::Tenants.first()), name)
    }

    /// Each tenant's share of each device's time.
    pub fn shares(&self) -> Vec<ShareRow> {
        shares_in(self.commands().ask(&Listing::Shares.first()))
    }

    /// A tenant's share of its first device's time.
    pub fn share(&self, name: &str) -> ShareRow {
        share_of(&self.shares(), name)
    }

    /// The UUIDs of its devices, in NVML's order.
    pub fn devices(&self) -> Vec<[u8; 16]> {
        match self.commands().ask(&Listing::Devices.first()) {
            ControlReply::Page {
                rows: Rows::Devices(rows),
                ..
            } => rows.iter().map(|row| row.uuid).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// The memory of its first device that it counts as no tenant's.
    pub fn unmanaged(&self) -> u64 {
        match self.commands().ask(&Listing::Devices.first()) {
            ControlReply::Page {
                rows: Rows::Devices(rows),
                ..
            } => rows[0].unmanaged,
            other => panic!("{other:?}"),
        }
    }
}

/// A tenant's rows in the answer to [`Listing::Tenants`].
pub(crate) fn rows_of(reply: ControlReply, name: &str) -> Vec<TenantRow> {
    match reply {
        ControlReply::Page {
            rows: Rows::Tenants(rows),
            ..
        } => rows.into_iter().filter(|row| row.name == name).collect(),
        other => panic!("{other:?}"),
    }
}

/// A tenant's row on its first device.
pub(crate) fn first(mut rows: Vec<TenantRow>, name: &str) -> TenantRow {
    assert!(!rows.is_empty(), "no tenant {name}");
    rows.swap_remove(0)
}

/// The rows in the answer to [`Listing::Shares`].
pub(crate) fn shares_in(reply: ControlReply) -> Vec<ShareRow> {
    match reply {
        ControlReply::Page {
            rows: Rows::Shares(rows),
            ..
        } => rows,
        other => panic!("{other:?}"),
    }
}

/// A tenant's share among these.
pub(crate) fn share_of(rows: &[ShareRow], name: &str) -> ShareRow {
    let row = rows.iter().find(|row| row.name == name);
    row.unwrap_or_else(|| panic!("no {name} in {rows:?}"))
        .clone()
}

/// Whether a process of the tenant waits for memory.
pub fn waits(row: &TenantRow) -> bool {
    let mut states = row.processes.iter().map(|process| &process.state);
    states.any(|state| matches!(state, ProcessState::Waiting(_)))
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Tenant {
    /// The folder of its socket, the value of `GPUSHARE_SOCKET`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A program in the tenant, with a plain `LD_PRELOAD`.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = clean(program);
        command
            .env("LD_PRELOAD", artefacts::interposer())
            .env("LD_LIBRARY_PATH", links())
            .env("SOFTGPU", &self.spec)
            .env("GPUSHARE_SOCKET", &self.folder);
        command
    }

    /// Starts the C client `name` in the tenant with another build's library.
    pub fn client_of_build(&self, library: &Path, name: &str) -> Guest {
        let mut command = self.command(&clients::compile(name, &[]));
        command.env("LD_PRELOAD", library);
        Guest::start(command)
    }

    /// Starts the C client `name` in the tenant with these further variables.
    pub fn client(&self, name: &str, environment: &[(&str, &str)]) -> Guest {
        let mut command = self.command(&clients::compile(name, &[]));
        command.envs(environment.iter().copied());
        Guest::start(command)
    }
}

impl Commands {
    /// Connects to a daemon's control socket and exchanges greetings.
    pub fn open(path: &Path) -> Self {
        let socket = UnixStream::connect(path).expect("a daemon listens");
        socket
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket has a timeout");
        let mut commands = Self {
            socket,
            decoder: Decoder::default(),
            last: 0,
        };
        commands.send(0, &Hello::of_this_build(0));
        let (_, body) = commands.frame();
        decode::<Hello>(0, &body).expect("it greets back");
        commands
    }

    fn send<T: Serialize>(&mut self, id: u32, message: &T) {
        self.try_send(id, message).expect("the daemon reads");
    }

    fn try_send<T: Serialize>(&mut self, id: u32, message: &T) -> io::Result<()> {
        let mut frame = Vec::new();
        encode(id, message, &mut frame).expect("a small message");
        self.socket.write_all(&frame)
    }

    fn frame(&mut self) -> (u32, Vec<u8>) {
        self.try_frame().expect("the daemon answers")
    }

    fn try_frame(&mut self) -> io::Result<(u32, Vec<u8>)> {
        loop {
            if let Some(frame) = self.decoder.next_frame().expect("whole frames") {
                return Ok(frame);
            }
            let mut bytes = [0; 4096];
            let read = match self.socket.read(&mut bytes) {
                // A test that changes its user interrupts its threads.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                read => read?,
            };
            self.decoder.push(&bytes[..read]);
        }
    }

    /// Sends a request and waits for the last answer.
    pub fn ask(&mut self, request: &Control) -> ControlReply {
        self.try_ask(request).expect("the daemon answers")
    }

    /// The same, or why the connection is of no more use.
    pub(crate) fn try_ask(&mut self, request: &Control) -> io::Result<ControlReply> {
        self.last += 1;
        let id = self.last;
        self.try_send(id, request)?;
        loop {
            let (of, body) = self.try_frame()?;
            let reply = decode(of, &body).expect("of this version");
            if of == id && !matches!(reply, ControlReply::Queued { .. }) {
                return Ok(reply);
            }
        }
    }

    /// Sends the request `times` times without waiting, then waits for all answers.
    pub fn ask_often(&mut self, request: &Control, times: u32) {
        for _ in 0..times {
            self.last += 1;
            self.send(self.last, request);
        }
        while self.frame().0 != self.last {}
    }

    /// The past events that the daemon still keeps.
    pub fn past(mut self) -> Vec<EventRecord> {
        self.last += 1;
        let follows = self.last;
        self.send(follows, &Control::Follow { past: u32::MAX });
        // The answer to a later request ends the list.
        self.last += 1;
        self.send(self.last, &Listing::Devices.first());
        let mut past = Vec::new();
        loop {
            let (of, body) = self.frame();
            if of == self.last {
                return past;
            }
            if let ControlReply::Event(event) = decode(of, &body).expect("of this version") {
                past.push(event);
            }
        }
    }

    /// The events from now on, after `past` earlier ones.
    pub fn follow(mut self, past: u32) -> impl Iterator<Item = EventRecord> {
        self.last += 1;
        self.send(self.last, &Control::Follow { past });
        std::iter::from_fn(move || {
            loop {
                let (of, body) = self.frame();
                if let ControlReply::Event(event) = decode(of, &body).expect("of this version") {
                    return Some(event);
                }
            }
        })
    }
}
