//! `gpushare bench share`: measures how exactly a device is shared. It starts tenants like `run`
//! starts programs, and keeps the device busy with kernels of known length. It compares each
//! tenant's share with its guarantee.

mod alone;
mod arrivals;
mod churn;
mod clock;
mod compare;
mod copies;
mod crew;
mod files;
mod gang;
mod host;
mod interference;
mod jobs;
mod judge;
mod lines;
mod log;
mod markdown;
mod measure;
mod meter;
mod pact;
mod preset;
mod report;
mod result;
mod svg;
mod swap;
mod tenant;
mod together;
mod truth;
mod turns;
mod worker;

pub(crate) use interference::run as interference;
pub(crate) use swap::{run as swap, worker as swapper};
pub(crate) use worker::run as worker;

use crate::args::{BenchShare, UseDaemon};
use crate::failure::Failure;
use crate::output;
use alone::Alone;
use compare::Comparison;
use crew::{Backend, Crew};
use files::All;
use host::Ticks;
use measure::Span;
use preset::Experiment;
use result::{Measured, Outcome};
use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;
use tenant::{Tenant, ns};

/// From the start of all tenants to the start of the measurement.
const WARM_UP: Duration = Duration::from_secs(1);
/// All tenants work this much longer than the measurement, so that none has stopped at the last
/// reading, which takes a busy machine some tenths of a second.
const COOL_DOWN: Duration = Duration::from_secs(1);

/// Runs the experiments and shows their outcomes.
pub(crate) fn share(arguments: &BenchShare) -> Result<ExitCode, Failure> {
    let experiments = experiments(arguments)?;
    let daemon = match (arguments.bare, arguments.daemon) {
        (true, _) => None,
        (_, UseDaemon::Auto) => Some("auto"),
        (_, UseDaemon::On) => Some("on"),
        (_, UseDaemon::Off) => Some("off"),
    };
    files::check([&arguments.markdown, &arguments.json, &arguments.svg])?;
    let (backend, device) = Backend::new(&arguments.gpu, daemon)?;
    let mut all = All::of(device, arguments);
    output::data(&all.head())?;
    let bare = match arguments.compare_bare {
        true => Some(Backend::new(&arguments.gpu, None)?.0),
        false => None,
    };
    let mut bench = Bench {
        backend,
        arguments,
        alone: HashMap::new(),
    };
    let (possible, left_out) = preset::possible(experiments, bench.backend.devices.len())?;
    for note in left_out {
        output::data(&note)?;
    }
    let ended = bench.compare(possible, bare.as_ref(), &mut all);
    // A pipe gets all of it once, also where a later experiment has failed.
    let written = all.write(arguments, |path| !output::is_replaced(path));
    ended.and(written).map(|()| ExitCode::SUCCESS)
}

fn experiments(arguments: &BenchShare) -> Result<Vec<Experiment>, Failure> {
    let mut experiments = Vec::new();
    for name in &arguments.preset {
        for found in preset::find(name)? {
            // Groups have common members.
            if experiments
                .iter()
                .all(|known: &Experiment| known.name != found.name)
            {
                experiments.push(found);
            }
        }
    }
    if !arguments.tenant.is_empty() {
        let tenants = arguments.tenant.iter().map(|text| {
            text.parse::<Tenant>()
                .map_err(|why| Failure::usage(format!("--tenant={text:?} is refused: {why}")))
        });
        let tenants = tenants.collect::<Result<Vec<_>, _>>()?;
        for (at, tenant) in tenants.iter().enumerate() {
            if tenants[..at].iter().any(|other| other.name == tenant.name) {
                return Err(Failure::usage(format!(
                    "two tenants are named {:?}; processes of one tenant are procs=N",
                    tenant.name
                )));
            }
        }
        jobs::check(&tenants).map_err(|why| Failure::usage(format!("--tenant: {why}")))?;
        let (name, about) = ("tenants".to_owned(), "as given".to_owned());
        experiments.push(Experiment {
            name,
            about,
            tenants,
            optional: false,
        });
    }
    if experiments.is_empty() {
        return Err(Failure::usage(format!(
            "nothing to run; give --tenant name=a,share=70 --tenant name=b,share=30, or --preset NAME: {}",
            preset::names()
        )));
    }
    if arguments.bare {
        if let Some(note) = preset::not_promised(&experiments) {
            output::note(&note);
        }
        experiments = experiments.iter().map(Experiment::unbound).collect();
    }
    Ok(experiments)
}

struct Bench<'a> {
    backend: Backend,
    arguments: &'a BenchShare,
    /// The times of tenants that ran alone, by their workload.
    alone: HashMap<String, Alone>,
}

/// One reading of counters that are not the tenants' own.
struct Look {
    truth: Option<truth::Look>,
    turns: turns::Books,
    host: Option<Ticks>,
}

fn stolen(before: &Look, after: &Look) -> Option<f64> {
    Some(after.host?.stolen_since(before.host?))
}

impl Bench<'_> {
    /// Measures the experiments one after the other, and without gpushare on `bare`.
    fn compare(
        &mut self,
        experiments: Vec<Experiment>,
        bare: Option<&Backend>,
        all: &mut All,
    ) -> Result<(), Failure> {
        for experiment in experiments {
            let alone = self.alone(&experiment.tenants)?;
            let alone = alone.as_deref();
            let mut pairs = Vec::new();
            for pair in 0..self.arguments.pairs {
                let without = || match bare {
                    Some(bare) => self.measure(bare, &experiment.unbound(), alone),
                    None => Ok(Vec::new()),
                };
                let with = || self.measure(&self.backend, &experiment, alone);
                let (unbound, shared) = compare::in_order(pair, without, with)?;
                for outcome in &shared {
                    output::data(&format!("\n{}", report::text(outcome)))?;
                }
                let both = unbound.iter().zip(&shared);
                pairs.push(
                    both.map(|(bare, shared)| Comparison::of(bare, shared))
                        .collect(),
                );
                all.experiments.extend(shared);
                all.without.extend(unbound);
            }
            for comparison in compare::middles(pairs) {
                output::data(&format!("\n{}", comparison.text()))?;
                all.comparisons.push(comparison);
            }
            // Earlier results are not lost if a later experiment fails.
            all.write(self.arguments, output::is_replaced)?;
        }
        Ok(())
    }

    fn look(&self) -> Look {
        Look {
            truth: truth::look(&self.backend),
            turns: turns::look(),
            host: Ticks::now(),
        }
    }

    /// The outcome on each of the experiment's GPUs. `alone`: what each tenant had when alone.
    fn measure(
        &self,
        backend: &Backend,
        experiment: &Experiment,
        alone: Option<&[Alone]>,
    ) -> Result<Vec<Outcome>, Failure> {
        let mut crew = Crew::start(backend, &experiment.tenants)?;
        let from = clock::now() + ns(WARM_UP);
        let span = Span {
            from,
            to: from + self.arguments.seconds * 1_000_000_000,
        };
        crew.go(span.from, span.to, span.to + ns(COOL_DOWN))?;
        clock::sleep_until(span.from);
        let before = self.look();
        clock::sleep_until(span.to);
        let after = self.look();
        let names = crew.names().to_vec();
        let logs = crew.finish(Duration::ZERO)?;
        let gpus = experiment.gpus();
        let outcomes = gpus.iter().map(|gpu| {
            let device = backend.devices[*gpu as usize].uuid;
            let here: Vec<usize> = (0..experiment.tenants.len())
                .filter(|at| experiment.tenants[*at].gpus.contains(gpu))
                .collect();
            let of = |tenant: usize| {
                logs.iter()
                    .filter(move |(at, log)| (*at, log.gpu) == (tenant, *gpu))
            };
            let turns =
                |at: &usize| turns::between(&before.turns, &after.turns, &names[*at], device);
            Measured {
                experiment: Experiment {
                    tenants: here
                        .iter()
                        .map(|at| experiment.tenants[*at].clone())
                        .collect(),
                    ..experiment.clone()
                },
                gpu: Some(*gpu).filter(|_| gpus.len() > 1),
                device,
                span,
                logs: (0..)
                    .zip(&here)
                    .flat_map(|(new, at)| of(*at).map(move |(_, log)| (new, log.clone())))
                    .collect(),
                turns: here.iter().map(turns).collect(),
                looks: before.truth.clone().zip(after.truth.clone()),
                stolen: stolen(&before, &after),
                alone: alone.map(|alone| {
                    let on = |at: &usize| alone[*at].on(&experiment.tenants[*at], *gpu);
                    here.iter().map(on).collect()
                }),
                alone_stolen: alone.and_then(|alone| {
                    let stolen = here.iter().filter_map(|at| alone[*at].stolen);
                    stolen.max_by(f64::total_cmp)
                }),
                had: turns::had(&before.turns, &after.turns, device)
                    .filter(|_| backend.has_daemon()),
            }
            .outcome()
        });
        Ok(outcomes.collect())
    }
}
