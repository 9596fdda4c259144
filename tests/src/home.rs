//! A separate user: a runtime folder, a software GPU, and `gpushare` commands as that user would
//! type them. The first `run` starts the daemon.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use gpushare_client::CONTROL;
use serde_json::Value;

use crate::gpu::Gpu;
use crate::guest::{Guest, gpushare};
use crate::waiting::{until, until_holds};
use crate::{artefacts, clients, schema};

/// See the module's documentation.
#[derive(Debug)]
pub struct Home {
    folder: tempfile::TempDir,
    gpu: Gpu,
}

/// The output of `gpushare events --follow --json`.
#[derive(Debug)]
pub struct Events {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Home {
    /// A new user with a GPU of this specification.
    pub fn new(spec: &str) -> Self {
        let private = fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(private).tempdir();
        Self {
            folder: folder.expect("a temporary folder"),
            gpu: Gpu::new(spec),
        }
    }

    /// As [`Home::new`]; the daemon is started with this `config.toml`.
    pub fn with_config(spec: &str, text: &str) -> Self {
        let home = Self::new(spec);
        fs::write(home.config(), text).expect("the folder is writable");
        home
    }

    /// The user's software GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The runtime folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file of settings that the user's daemons read, if it is there.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("config.toml")
    }

    /// `gpushare` with these arguments.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = gpushare(arguments);
        command
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env("XDG_STATE_HOME", self.folder.path().join("state"));
        if self.config().exists() {
            command.env("GPUSHARE_DAEMON_CONFIG", self.config());
        }
        command
    }

    /// Runs `gpushare` with these arguments to its end.
    pub fn gpushare(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("gpushare starts")
    }

    /// `gpushare run --name NAME <flags> --`, ready for a program.
    pub fn run(&self, name: &str, flags: &[&str]) -> Command {
        let gpu = format!("soft:{}", self.gpu.spec());
        let mut command = self.command(&["run", "--gpu", &gpu, "--name", name]);
        command.args(flags).arg("--");
        command
    }

    /// The quota client under [`Home::run`], with its context created.
    pub fn guest(&self, name: &str, flags: &[&str]) -> Guest {
        let mut command = self.run(name, flags);
        command.arg(clients::compile("quota", &[]));
        let mut guest = Guest::start(command);
        assert_eq!(guest.ask("init"), "init 0");
        guest
    }

    /// The same where there is no room for its request: it waits in the queue. It answers once it
    /// has begun.
    pub fn queued(&self, name: &str, flags: &[&str]) -> Guest {
        let mut events = self.events();
        let mut command = self.run(name, flags);
        command.arg(clients::compile("quota", &[]));
        let guest = Guest::start(command);
        events.until("queued", name);
        guest
    }

    /// The socket of this user's daemon for the software GPU, for a test that plays the daemon.
    pub fn listener(&self) -> UnixListener {
        let gpu = self.gpu.spec().trim_start_matches("name=");
        let folder = self.folder().join(format!("gpushare/d/soft-{gpu}"));
        fs::create_dir_all(&folder).expect("the folder is writable");
        let closed = fs::Permissions::from_mode(0o700);
        fs::set_permissions(self.folder().join("gpushare"), closed).expect("it is ours");
        UnixListener::bind(folder.join(CONTROL)).expect("the folder is writable")
    }

    /// `gpushare ps --json`.
    pub fn ps(&self) -> Vec<Value> {
        let output = self.gpushare(&["ps", "--json"]);
        assert!(output.status.success(), "{output:?}");
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a list");
        rows.iter().for_each(|row| schema::check("ps.json", row));
        rows
    }

    /// A tenant's row in `ps`.
    pub fn row(&self, name: &str) -> Option<Value> {
        self.ps().into_iter().find(|row| row["name"] == name)
    }

    /// Waits until `wanted` holds for a tenant's row.
    pub fn until(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        until_holds(|| self.row(name).expect("the tenant exists"), wanted)
    }

    /// Suspends a tenant. Its memory has left the device then. Where its work has not ended in time
    /// on a busy machine the command says so, and the daemon asks the tenant again.
    #[track_caller]
    pub fn suspend(&self, name: &str) {
        let done = self.gpushare(&["suspend", name]);
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        let is_late = told.contains("has not left yet");
        assert!(done.status.success() || is_late, "{done:?}");
        self.until(name, |row| row["residency"]["place"] == "out");
    }

    /// Follows events, past events included.
    pub fn events(&self) -> Events {
        let mut command = self.command(&["events", "--follow", "--json"]);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("gpushare starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Events { child, lines }
    }

    /// Process ids of this user's daemons.
    pub fn daemons(&self) -> Vec<u32> {
        let (program, folder) = (artefacts::gpushared(), self.folder.path());
        let is_ours = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            line.starts_with(&*program.to_string_lossy())
                && line.contains(&*folder.to_string_lossy())
        };
        let entries = fs::read_dir("/proc").expect("/proc is mounted");
        let pids = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(is_ours).collect()
    }

    /// Waits until no daemon of this user is left, nor a socket of one: the command line of a
    /// process that was killed goes before the last of its threads has closed its files.
    pub fn until_no_daemon(&self) {
        until("no daemon is left", || {
            self.daemons().is_empty() && !self.is_listened_to()
        });
    }

    /// Whether a process has the control socket of one of this user's daemons.
    fn is_listened_to(&self) -> bool {
        let worlds = fs::read_dir(self.folder().join("gpushare/d"));
        let mut worlds = worlds.into_iter().flatten().flatten();
        worlds.any(|world| UnixStream::connect(world.path().join(CONTROL)).is_ok())
    }
}

impl Events {
    /// The next event of this kind about this tenant.
    #[track_caller]
    pub fn until(&mut self, kind: &str, tenant: &str) -> Value {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).expect("it writes text");
            assert!(read > 0, "no more events, and no {kind} of {tenant}");
            let event: Value = serde_json::from_str(&line).expect("an object a line");
            if event["kind"] == kind && event["tenant"] == tenant {
                return event;
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
