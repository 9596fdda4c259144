//! Each tenant alone, without limits: what it has beside others is compared with that.

use super::crew::Crew;
use super::host::Ticks;
use super::log::Log;
use super::measure::{self, Span};
use super::report::TOLD;
use super::tenant::{Arrivals, Tenant, ns};
use super::{Bench, WARM_UP, clock};
use crate::failure::Failure;
use std::time::Duration;

/// How often a tenant is measured alone while other machines disturb it.
const TRIES: usize = 3;

/// The time that a tenant had when it was alone.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Alone {
    /// Device time per elapsed time on each of its GPUs.
    parts: Vec<f64>,
    /// The fraction of the processor time that other machines took meanwhile; `None` if the kernel
    /// does not say it.
    pub(super) stolen: Option<f64>,
}

impl Alone {
    /// Its device time on this GPU.
    pub(super) fn on(&self, tenant: &Tenant, gpu: u32) -> f64 {
        let at = tenant.gpus.iter().position(|own| *own == gpu);
        let part = at.and_then(|at| self.parts.get(at));
        part.copied().unwrap_or(0.0)
    }

    fn is_disturbed(&self) -> bool {
        self.stolen.is_some_and(|stolen| stolen >= TOLD)
    }
}

impl Bench<'_> {
    /// The time that each tenant has when it is alone without limits; `None`: not measured.
    pub(super) fn alone(&mut self, tenants: &[Tenant]) -> Result<Option<Vec<Alone>>, Failure> {
        // A tenant of a job would wait for its peers for ever if it ran alone.
        let waits = tenants.iter().any(|tenant| !tenant.job.is_empty());
        if self.arguments.alone == 0 || tenants.len() < 2 || waits {
            return Ok(None);
        }
        let mut alone = Vec::new();
        for tenant in tenants {
            let key = workload(tenant);
            let had = match self.alone.get(&key) {
                Some(had) => had.clone(),
                None => quietest(|| self.one(&lone(tenant)))?,
            };
            self.alone.insert(key, had.clone());
            alone.push(had);
        }
        Ok(Some(alone))
    }

    fn one(&self, tenant: &Tenant) -> Result<Alone, Failure> {
        let mut crew = Crew::start(&self.backend, std::slice::from_ref(tenant))?;
        // Of random arrivals the same ones as beside others: those behind the whole warm-up.
        let warm_up = match tenant.arrivals {
            Arrivals::Regular => ns(WARM_UP) / 4,
            Arrivals::Poisson => ns(WARM_UP),
        };
        let from = clock::now() + warm_up;
        let span = Span {
            from,
            to: from + self.arguments.alone * 1_000_000_000,
        };
        crew.go(span.from, span.to, span.to)?;
        clock::sleep_until(span.from);
        let before = Ticks::now();
        clock::sleep_until(span.to);
        let after = Ticks::now();
        let logs = crew.finish(Duration::ZERO)?;
        let logs: Vec<Log> = logs.into_iter().map(|(_, log)| log).collect();
        let part = |gpu: &u32| {
            let here = logs.iter().filter(|log| log.gpu == *gpu);
            measure::device_time(here, span) as f64 / span.ns() as f64
        };
        Ok(Alone {
            parts: tenant.gpus.iter().map(part).collect(),
            stolen: before
                .zip(after)
                .map(|(before, after)| after.stolen_since(before)),
        })
    }
}

/// The tenant as it runs alone. It keeps its name, which random arrivals follow from.
fn lone(tenant: &Tenant) -> Tenant {
    Tenant {
        churn: Duration::ZERO,
        ..tenant.unbound()
    }
}

/// Tenants of which this text is the same have the same when they are alone.
fn workload(tenant: &Tenant) -> String {
    let name = match tenant.arrivals {
        Arrivals::Regular => "alone".to_owned(),
        Arrivals::Poisson => tenant.name.clone(),
    };
    let lone = lone(tenant);
    Tenant { name, ..lone }.to_string()
}

/// The measurement in which other machines took least. It is made again where they took a part that
/// is told.
fn quietest(mut measure: impl FnMut() -> Result<Alone, Failure>) -> Result<Alone, Failure> {
    let mut best = measure()?;
    for _ in 1..TRIES {
        if !best.is_disturbed() {
            break;
        }
        let again = measure()?;
        if again.stolen < best.stolen {
            best = again;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(text: &str) -> Tenant {
        text.parse().unwrap()
    }

    #[test]
    fn a_tenant_with_random_arrivals_has_the_same_ones_alone() {
        let random = tenant("name=a,share=40,mode=sync,every=2ms,arrivals=poisson");
        let alone = lone(&random);
        assert_eq!((alone.name.as_str(), alone.share), ("a", None));
        let other = tenant("name=b,mode=sync,every=2ms,arrivals=poisson");
        assert_ne!(workload(&random), workload(&other));
        // Regular ones follow from no name: one measurement is of all of them.
        let [one, two] = ["name=a,cap=30,mode=sync", "name=b,mode=sync"].map(tenant);
        assert_eq!(workload(&one), workload(&two));
    }

    /// The measurement that is kept of these, each with what other machines took, and how many were
    /// made.
    fn kept(stolen: &[Option<f64>]) -> (Option<f64>, usize) {
        let mut made = 0;
        let best = quietest(|| {
            made += 1;
            Ok(Alone {
                parts: vec![1.0],
                stolen: stolen[made - 1],
            })
        });
        (best.unwrap().stolen, made)
    }

    #[test]
    fn a_disturbed_measurement_is_made_again_and_the_quietest_kept() {
        assert_eq!(kept(&[Some(0.1), Some(0.001)]), (Some(0.001), 2));
        let all = [Some(0.1), Some(0.05), Some(0.2)];
        assert_eq!(kept(&all), (Some(0.05), 3), "it ends");
        // Nothing disturbed it, or nothing says so.
        assert_eq!(kept(&[Some(0.004)]), (Some(0.004), 1));
        assert_eq!(kept(&[None]), (None, 1));
    }
}
