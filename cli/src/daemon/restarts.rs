//! Starting a private daemon again that has died while programs of ours need it.
//!
//! Each `run` looks after the daemon that it registered with. Where several start one at a time,
//! one of these has the folder and the others leave. The machine's daemon is started by its unit.

use super::NODE;
use super::start::{PATIENCE, start};
use crate::gpu::Gpu;
use crate::plan::Plan;
use crate::settings::Environment;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// How long none may be there before one is started: longer than one takes to be replaced, and well
/// within the 10 s for which a program that starts in a tenant waits for its daemon.
const DELAY: Duration = Duration::from_secs(2);

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Restarts {
    folder: PathBuf,
    gpu: Gpu,
    environment: Environment,
    state: State,
}

/// Whether the daemon was there, and whether one was started in its place.
#[derive(Debug)]
enum State {
    /// It was there when it was last looked for.
    There,
    /// It has been away since then.
    Away(Instant),
    /// One was started then, which leaves if this is dropped before we are connected.
    Started {
        since: Instant,
        _daemon: Option<Child>,
    },
}

impl Restarts {
    /// Of the daemon in `folder`, with which the plan's tenant is registered.
    pub(crate) fn of(plan: &Plan, folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            gpu: plan.gpu.clone(),
            environment: plan.environment.clone(),
            state: State::There,
        }
    }

    /// It has answered.
    pub(crate) fn succeeded(&mut self) {
        self.state = State::There;
    }

    /// It has not: there is none (`is_absent`), or it does not answer. Starts one if it is time.
    /// Returns a note for the user.
    pub(crate) fn failed(&mut self, is_absent: bool) -> Option<String> {
        let now = Instant::now();
        if !is_absent {
            if !matches!(self.state, State::Started { .. }) {
                self.state = State::There;
            }
            return None;
        }
        if !self.is_due(now) || self.folder == Path::new(NODE) {
            return None;
        }
        let is_first = matches!(self.state, State::Away(_));
        let started = start(&self.gpu, &self.folder, &self.environment);
        let told = match &started {
            Ok(_) => "another one is started in its place".to_owned(),
            Err(failure) => failure.message.clone(),
        };
        self.state = State::Started {
            since: now,
            _daemon: started.ok(),
        };
        let folder = self.folder.display();
        is_first.then(|| format!("the daemon at {folder} has ended: {told}"))
    }

    /// Whether one is to be started: none has been there for so long, and the one that was started
    /// last, if any, has had its time.
    fn is_due(&mut self, now: Instant) -> bool {
        let (since, wait) = match self.state {
            State::There => {
                self.state = State::Away(now);
                return false;
            }
            State::Away(since) => (since, DELAY),
            State::Started { since, .. } => (since, PATIENCE),
        };
        now.saturating_duration_since(since) >= wait
    }
}
