//! A tenant without a daemon, in its own runtime folder. Its processes enforce the limits together,
//! in a usage page that tests read.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use gpushare_protocol::page::Snapshot;

use crate::guest::command;
use crate::{Gpu, Guest, clients};

/// The first epoch of the turns that processes take by themselves under a cap.
const FIRST_EPOCH: u64 = 1 << 61;
/// Its name.
const NAME: &str = "alone";

/// The tenant.
#[derive(Debug)]
pub struct Alone<'a> {
    gpu: &'a Gpu,
    runtime: tempfile::TempDir,
}

impl<'a> Alone<'a> {
    /// A tenant on this GPU. Its first process creates its page.
    pub fn on(gpu: &'a Gpu) -> Self {
        let private = Permissions::from_mode(0o700);
        let runtime = tempfile::Builder::new().permissions(private).tempdir();
        let runtime = runtime.expect("a temporary folder");
        Self { gpu, runtime }
    }

    /// A program in the tenant, under `gpushare run` with these flags.
    pub fn command(&self, flags: &[&str], program: &Path) -> Command {
        let mut command = command(self.gpu, flags);
        command
            .arg(program)
            .env("XDG_RUNTIME_DIR", self.runtime.path())
            .env("GPUSHARE_TENANT", NAME);
        command
    }

    /// Starts the C client `name` in the tenant.
    pub fn client(&self, flags: &[&str], name: &str) -> Guest {
        Guest::start(self.command(flags, &clients::compile(name, &[])))
    }

    /// The content of its usage page.
    #[track_caller]
    pub fn page(&self) -> Snapshot {
        let page = self
            .runtime
            .path()
            .join("gpushare/c")
            .join(NAME)
            .join("usage");
        let page = fs::read(page).expect("a process has created it");
        Snapshot::parse(&page).expect("a page")
    }

    /// How often the gates of its processes have closed under the cap with all passed work
    /// complete.
    #[track_caller]
    pub fn closes(&self) -> u64 {
        let processes = self.page().processes;
        let uses = processes.iter().flat_map(|process| &process.uses);
        uses.map(|used| used.drained.saturating_sub(FIRST_EPOCH))
            .sum()
    }
}
