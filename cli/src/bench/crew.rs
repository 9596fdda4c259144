//! The tenants of one experiment, started like `gpushare run` starts any program: each process is
//! this executable's worker under its own `gpushare run`, and the processes of a tenant share its
//! name.

use super::jobs::Jobs;
use super::lines::{END, Process, START};
use super::log::Log;
use super::tenant::Tenant;
use crate::artefacts;
use crate::failure::Failure;
use crate::gpu::{self, Gpu, VISIBLE};
use crate::links::Links;
use crate::output;
use crate::preload;
use crate::settings::Environment;
use gpushare_protocol::limits::Limits;
use gpushare_protocol::paths::{IN_FILES, TENANT};
use gpushare_sys::devices::Device;
use std::env;
use std::ffi::{OsStr, OsString};
use std::process::Command;
use std::time::{Duration, Instant};

/// The variable that keeps the library out of a process: there would be no gpushare to measure.
const DISABLE: &str = "GPUSHARE_DISABLE";

/// The GPU, and the way in which tenants are started.
#[derive(Debug)]
pub(crate) struct Backend {
    /// The value of `--gpu`; a software GPU has a name, so that all tenants share it.
    pub(crate) gpu: String,
    /// `--daemon` of `run`; `None` starts the tenants without gpushare.
    pub(crate) daemon: Option<&'static str>,
    /// Links to a software GPU, for tenants without gpushare and for this process.
    links: Option<Links>,
    /// Of programs without gpushare, on this GPU.
    environment: Environment,
    /// The same of a `gpushare run`, which chooses the GPU itself.
    of_run: Environment,
    /// The GPUs, in the order in which tenants number them.
    pub(crate) devices: Vec<Device>,
    /// Makes the tenants' names unique.
    runs: std::cell::Cell<u32>,
}

impl Backend {
    /// Checks that there is a GPU, and returns its name.
    pub(crate) fn new(gpu: &str, daemon: Option<&'static str>) -> Result<(Self, String), Failure> {
        if daemon.is_none() && preload::is_in_every_program() {
            return Err(Failure::usage(format!(
                "without gpushare is not possible here: {} loads it into every program; measure outside of this container",
                preload::FILE
            )));
        }
        let gpu = named(gpu);
        let chosen = gpu.parse::<Gpu>()?;
        let (of_run, left_out) = without_limits(env::vars_os().collect());
        if daemon.is_some() && !left_out.is_empty() {
            output::note(&format!(
                "note: {} left out: the tenants have the limits that the benchmark names",
                left_out.join(", ")
            ));
        }
        let mut environment = of_run.clone();
        // Of a shell that `gpushare env` set up: without it means without it.
        preload::remove(&mut environment);
        let links = chosen.apply(&mut environment, "bench")?;
        let devices = chosen.devices(&environment)?;
        let name = devices
            .first()
            .map(|device| device.name.clone())
            .unwrap_or_default();
        let runs = std::cell::Cell::new(0);
        Ok((
            Self {
                gpu,
                daemon,
                links,
                environment,
                of_run,
                devices,
                runs,
            },
            name,
        ))
    }

    /// Whether the tenants' runs may be with a daemon.
    pub(crate) fn has_daemon(&self) -> bool {
        self.daemon.is_some_and(|when| when != "off")
    }

    /// The name of the software GPU, if it is one.
    pub(crate) fn soft_name(&self) -> Option<&str> {
        let spec = self.gpu.strip_prefix("soft:")?;
        spec.split(',')
            .filter_map(|pair| pair.strip_prefix("name="))
            .next_back()
    }

    /// The environment of a program on this GPU without gpushare.
    pub(crate) fn environment(&self) -> &Environment {
        debug_assert!(
            self.links
                .as_ref()
                .is_none_or(|links| links.path().exists()),
            "the links live as long as we do"
        );
        &self.environment
    }

    /// `gpushare run` on this GPU, in the tenant of this name, under this `--daemon`.
    pub(crate) fn run(&self, daemon: &str, tenant: &str) -> Result<Command, Failure> {
        let mut run = Command::new(artefacts::own_executable()?);
        run.args(["run", "--daemon", daemon, "--gpu", &self.gpu]);
        run.args(["--name", tenant]);
        run.env_clear().envs(&self.of_run);
        Ok(run)
    }

    /// The registered name of a tenant in one run.
    fn name(&self, tenant: &Tenant, run: u32) -> String {
        format!("bench-{}-{run}-{}", std::process::id(), tenant.name)
    }

    /// A tenant's `CUDA_VISIBLE_DEVICES`, if there are several GPUs: its own among the visible
    /// ones.
    fn visible(&self, tenant: &Tenant) -> Option<String> {
        let ours = self.environment.get(OsStr::new(VISIBLE));
        let ours = ours.and_then(|ours| ours.to_str()).map(str::to_owned);
        let ours: Option<Vec<String>> =
            ours.map(|ours| ours.split(',').map(|one| one.trim().to_owned()).collect());
        let own = tenant.gpus.iter().map(|gpu| match &ours {
            Some(ours) => ours.get(*gpu as usize).cloned(),
            None => Some(gpu.to_string()),
        });
        let own = own.collect::<Option<Vec<_>>>()?.join(",");
        (self.devices.len() > 1).then_some(own)
    }

    fn command(&self, tenant: &Tenant, run: u32, more: &[OsString]) -> Result<Command, Failure> {
        let own = artefacts::own_executable()?;
        let mut command = Command::new(&own);
        if let Some(daemon) = self.daemon {
            command = self.run(daemon, &self.name(tenant, run))?;
            for (flag, value) in [
                ("--sm-request", tenant.share),
                ("--sm-limit", tenant.cap),
                ("--priority", tenant.priority),
            ] {
                if let Some(value) = value {
                    command.args([flag.to_owned(), value.to_string()]);
                }
            }
            if !tenant.job.is_empty() {
                let pid = std::process::id();
                command.args(["--gang", &format!("bench-{pid}-{run}-{}", tenant.job)]);
            }
            let own: OsString = own.into();
            command.arg("--").arg(own);
        } else {
            command.env_clear().envs(&self.environment);
        }
        if let Some(visible) = self.visible(tenant) {
            command.env(VISIBLE, visible);
        }
        command.args(["bench", "worker", &tenant.to_string()]);
        command.args(more);
        Ok(command)
    }
}

/// The variables without those that say a tenant's limits, and the names of these: what the shell
/// was given is not what is measured, and would hold for one half of a comparison only. Inside a
/// tenant of a daemon they stay inside.
fn without_limits(mut variables: Environment) -> (Environment, Vec<String>) {
    let is_limit = |name: &str| Limits::reads(name) || name == DISABLE;
    let names = variables.keys().filter_map(|name| name.to_str());
    let left_out = names.filter(|name| is_limit(name)).map(str::to_owned);
    let left_out: Vec<String> = left_out.collect();
    let of_tenant = [TENANT, IN_FILES];
    variables.retain(|name, _| {
        let name = name.to_str().unwrap_or_default();
        !is_limit(name) && !of_tenant.contains(&name)
    });
    (variables, left_out)
}

/// A software GPU without a name would be private to each program.
fn named(gpu: &str) -> String {
    let name = format!("name={}", gpu::of_benchmark());
    match gpu.split_once(':') {
        None if gpu == "soft" => format!("soft:{name}"),
        Some(("soft", spec)) if !spec.split(',').any(|pair| pair.starts_with("name=")) => {
            let comma = if spec.is_empty() { "" } else { "," };
            format!("soft:{spec}{comma}{name}")
        }
        _ => gpu.to_owned(),
    }
}

/// One process of a tenant.
#[derive(Debug)]
struct Member {
    tenant: usize,
    name: String,
    process: Process,
}

/// All processes of an experiment.
#[derive(Debug)]
pub(crate) struct Crew {
    members: Vec<Member>,
    /// The name under which each tenant is registered.
    names: Vec<String>,
    /// How long all takes that may be submitted when they stop.
    submitted: Duration,
    _jobs: Jobs,
}

impl Crew {
    /// Starts the processes; returns when all are ready.
    pub(crate) fn start(backend: &Backend, tenants: &[Tenant]) -> Result<Self, Failure> {
        let run = backend.runs.get();
        backend.runs.set(run + 1);
        let names = tenants.iter().map(|tenant| backend.name(tenant, run));
        let jobs = Jobs::of(tenants)?;
        let more: Vec<_> = (0..tenants.len())
            .map(|at| jobs.arguments(tenants, at))
            .collect();
        let mut crew = Self {
            members: Vec::new(),
            names: names.collect(),
            submitted: submitted(tenants),
            _jobs: jobs,
        };
        for (at, tenant) in tenants.iter().enumerate() {
            for _ in 0..tenant.procs {
                let command = backend.command(tenant, run, &more[at])?;
                let process = Process::start(command).map_err(|error| {
                    Failure::ours(format!("cannot start tenant {}: {error}", tenant.name))
                })?;
                crew.members.push(Member {
                    tenant: at,
                    name: tenant.name.clone(),
                    process,
                });
            }
        }
        let end = Instant::now() + START;
        for member in &crew.members {
            let ready = member.process.is_ready(end);
            ready.map_err(|why| member.lost(&why))?;
        }
        Ok(crew)
    }

    /// Lets all processes work from now to `end`, and measure from `from` to `to`.
    pub(crate) fn go(&mut self, from: u64, to: u64, end: u64) -> Result<(), Failure> {
        for member in &mut self.members {
            let told = member.process.say(&format!("{from} {to} {end}"));
            told.map_err(|why| member.lost(&why))?;
        }
        Ok(())
    }

    /// The registered name of each tenant.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The log of each process on each of its GPUs, by tenant.
    pub(crate) fn finish(mut self, to: Duration) -> Result<Vec<(usize, Log)>, Failure> {
        let end = Instant::now() + to + self.submitted + END;
        let mut logs = Vec::new();
        for member in &mut self.members {
            let line = member.process.line(end).map_err(|why| member.lost(&why))?;
            let told: Vec<Log> =
                serde_json::from_str(&line).map_err(|error| member.lost(&error.to_string()))?;
            logs.extend(told.into_iter().map(|log| (member.tenant, log)));
            let ended = member.process.ended(Instant::now() + END);
            let ended = ended.map_err(|why| member.lost(&why))?;
            if !ended.success() {
                return Err(member.lost(&ended.to_string()));
            }
        }
        Ok(logs)
    }
}

/// How long the work takes that these tenants may have submitted at a time, one after the other and
/// each under its cap.
fn submitted(tenants: &[Tenant]) -> Duration {
    let of = |tenant: &Tenant| {
        let all = tenant.submitted_ns().saturating_mul(tenant.procs.into());
        all.saturating_mul(100) / u64::from(tenant.cap.unwrap_or(100))
    };
    let all = tenants.iter().map(of).fold(0, u64::saturating_add);
    Duration::from_nanos(all)
}

impl Member {
    fn lost(&self, why: &str) -> Failure {
        Failure::ours(format!("tenant {} is lost: {why}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shells_own_limits_are_no_part_of_a_benchmark() {
        let limits = [
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
            "GPUSHARE_DISABLE",
            "GPUSHARE_MEM_LIMIT_0",
            "GPUSHARE_SM_LIMIT",
        ];
        let kept = ["GPUSHARE_LOG", "GPUSHARE_SOCKET", "PATH"];
        let of_tenant = ["GPUSHARE_IN_FILES", "GPUSHARE_TENANT"];
        let all = limits.into_iter().chain(kept).chain(of_tenant);
        let all: Environment = all.map(|name| (name.into(), "1".into())).collect();
        let (left, left_out) = without_limits(all);
        assert_eq!(left.keys().collect::<Vec<_>>(), kept);
        assert_eq!(left_out, limits);
    }

    #[test]
    fn the_end_is_awaited_for_as_long_as_what_may_be_submitted_takes() {
        let seconds = |texts: &[&str]| {
            let tenants: Vec<Tenant> = texts.iter().map(|text| text.parse().unwrap()).collect();
            submitted(&tenants).as_secs_f64()
        };
        let [a, b] = ["name=a,kernel=10s", "name=b,kernel=10s,procs=2"];
        assert_eq!(seconds(&[a]), 40.0);
        assert_eq!(seconds(&[a, b]), 120.0);
        assert_eq!(seconds(&["name=a,depth=10000,kernel=1ms,cap=10"]), 100.0);
        assert_eq!(seconds(&["name=a,mode=burst,depth=9,kernel=2s"]), 18.0);
        // Short kernels go in pieces. Copies use no time of the multiprocessors.
        assert_eq!(seconds(&["name=a,kernel=50us,depth=9"]), 0.0004);
        assert_eq!(seconds(&["name=a"]), 0.1);
        assert_eq!(seconds(&["name=a,mode=copy"]), 0.0);
        let most = "name=a,depth=100000,mode=graph,nodes=10000,kernel=10s,procs=16,cap=1";
        assert!(seconds(&[most]) > 1e9, "and no overflow");
    }

    #[test]
    fn tenants_of_a_software_gpu_share_it_by_a_name() {
        let name = format!("name=bench-{}", std::process::id());
        assert_eq!(named("soft"), format!("soft:{name}"));
        assert_eq!(named("soft:"), format!("soft:{name}"));
        assert_eq!(named("soft:mem=1GiB"), format!("soft:mem=1GiB,{name}"));
        for gpu in ["soft:name=mine,mem=1GiB", "auto", "0"] {
            assert_eq!(named(gpu), gpu);
        }
    }
}
