//! The experiments of the benchmark, by name.

use super::tenant::Tenant;
use super::together::{self, in_group};
use crate::failure::Failure;
use std::collections::BTreeSet;

/// Tenants that run together.
#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    pub(crate) name: String,
    /// Its title: the subject in a few words.
    pub(crate) about: String,
    pub(crate) tenants: Vec<Tenant>,
    /// Whether it was not requested by its own name. Then it is left out if there are too few GPUs.
    pub(crate) optional: bool,
}

impl Experiment {
    /// The number of GPUs that it needs.
    pub(crate) fn needs(&self) -> usize {
        let needs = self.tenants.iter().map(Tenant::needs);
        needs.max().unwrap_or(0)
    }

    /// The same tenants without guarantees and caps.
    pub(crate) fn unbound(&self) -> Self {
        Self {
            tenants: self.tenants.iter().map(Tenant::unbound).collect(),
            ..self.clone()
        }
    }

    /// The GPUs that it uses, in ascending order.
    pub(crate) fn gpus(&self) -> BTreeSet<u32> {
        let tenants = self.tenants.iter();
        tenants.flat_map(|tenant| &tenant.gpus).copied().collect()
    }
}

/// Name, title, tenants.
pub(crate) type Row = (&'static str, &'static str, &'static [&'static str]);

/// Experiments on shares, caps and turns, and on programs that leave gaps between kernels; more are
/// in [`together::PRESETS`].
const PRESETS: [Row; 25] = [
    (
        "equal",
        "70:30, equal kernels",
        &["name=a,share=70,kernel=1ms", "name=b,share=30,kernel=1ms"],
    ),
    (
        "lengths",
        "50:50, kernels of 50 us against 20 ms",
        &[
            "name=short,share=50,kernel=50us",
            "name=long,share=50,kernel=20ms",
        ],
    ),
    (
        "sync",
        "50:50, one launch at a time against a deep queue",
        &[
            "name=sync,share=50,kernel=500us,mode=sync",
            "name=queue,share=50,kernel=500us",
        ],
    ),
    (
        "graphs",
        "50:50, CUDA graphs of 1 ms against kernels",
        &[
            "name=graphs,share=50,kernel=50us,nodes=20,mode=graph",
            "name=kernels,share=50,kernel=200us",
        ],
    ),
    (
        "processes",
        "50:50, two processes against one",
        &[
            "name=two,share=50,kernel=500us,procs=2",
            "name=one,share=50,kernel=500us",
        ],
    ),
    (
        "three",
        "50:30:20, three lengths of kernels",
        &[
            "name=a,share=50,kernel=200us",
            "name=b,share=30,kernel=2ms",
            "name=c,share=20,kernel=10ms",
        ],
    ),
    (
        "cap10",
        "alone under a cap of 10 %",
        &["name=capped,cap=10,kernel=500us"],
    ),
    (
        "cap30",
        "alone under a cap of 30 %",
        &["name=capped,cap=30,kernel=500us"],
    ),
    (
        "cap50",
        "alone under a cap of 50 %",
        &["name=capped,cap=50,kernel=500us"],
    ),
    (
        "preempt",
        "a request each 10 ms at high priority beside a deep queue at low",
        &[
            "name=serve,priority=900,kernel=500us,mode=sync,every=10ms",
            "name=train,priority=100,kernel=500us",
        ],
    ),
    (
        "idle",
        "a holder that goes idle after each kernel beside a deep queue",
        &[
            "name=idle,share=50,kernel=2ms,mode=sync,every=25ms",
            "name=queue,share=50,kernel=500us",
        ],
    ),
    (
        "handoff",
        "50:50, equal short kernels",
        &[
            "name=a,share=50,kernel=200us",
            "name=b,share=50,kernel=200us",
        ],
    ),
    (
        "gang",
        "50:50 on each of two GPUs, collectives on both beside a tenant on each",
        &[
            "name=both,share=50,kernel=250us,mode=gang,gpus=0+1",
            "name=one,share=50,kernel=500us",
            "name=two,share=50,kernel=500us,gpus=1",
        ],
    ),
    (
        "gaps-2",
        "two that launch 200 us every 500 us",
        &[
            "name=a,kernel=200us,mode=sync,every=500us",
            "name=b,kernel=200us,mode=sync,every=500us",
        ],
    ),
    (
        "gaps-4",
        "four that launch 200 us every 1 ms",
        &[
            "name=a,kernel=200us,mode=sync,every=1ms",
            "name=b,kernel=200us,mode=sync,every=1ms",
            "name=c,kernel=200us,mode=sync,every=1ms",
            "name=d,kernel=200us,mode=sync,every=1ms",
        ],
    ),
    (
        "gaps-sync",
        "two that launch 50 us and wait for it",
        &[
            "name=a,kernel=50us,mode=sync",
            "name=b,kernel=50us,mode=sync",
        ],
    ),
    (
        "gaps-rare",
        "100 us every 10 ms beside a deep queue",
        &[
            "name=rare,kernel=100us,mode=sync,every=10ms",
            "name=train,kernel=500us",
        ],
    ),
    (
        "serving-1",
        "a server of 300 us every 1 ms beside a deep queue",
        &[
            "name=server,kernel=300us,mode=sync,every=1ms",
            "name=train,kernel=500us",
        ],
    ),
    (
        "serving-3",
        "three servers of 200 us every 1 ms beside a deep queue",
        &[
            "name=s1,kernel=200us,mode=sync,every=1ms",
            "name=s2,kernel=200us,mode=sync,every=1ms",
            "name=s3,kernel=200us,mode=sync,every=1ms",
            "name=train,kernel=500us",
        ],
    ),
    (
        "serving-2",
        "a server of 300 us every 1 ms beside two deep queues",
        &[
            "name=server,kernel=300us,mode=sync,every=1ms",
            "name=t1,kernel=500us",
            "name=t2,kernel=500us",
        ],
    ),
    (
        "serving-workers",
        "a server of 300 us every 1 ms that requests 30 % beside a pool of eight workers",
        &[
            "name=server,share=30,kernel=300us,mode=sync,every=1ms",
            "name=workers,kernel=500us,procs=8",
        ],
    ),
    (
        "serving-first",
        "a server of higher priority beside a deep queue",
        &[
            "name=server,priority=900,kernel=300us,mode=sync,every=1ms",
            "name=train,kernel=500us",
        ],
    ),
    (
        "serving-poisson",
        "300 us at random every 2 ms beside a deep queue",
        &[
            "name=server,kernel=300us,mode=sync,every=2ms,arrivals=poisson",
            "name=train,kernel=500us",
        ],
    ),
    (
        "serving-burst",
        "8 launches of 100 us at once every 10 ms beside a deep queue",
        &[
            "name=server,kernel=100us,mode=burst,depth=8,every=10ms",
            "name=train,kernel=500us",
        ],
    ),
    (
        "serving-sets",
        "a server of 300 us every 1 ms beside memsets of 64 MiB",
        &[
            "name=server,kernel=300us,mode=sync,every=1ms",
            "name=sets,mode=memset",
        ],
    ),
];

fn all() -> impl Iterator<Item = &'static Row> {
    PRESETS.iter().chain(together::PRESETS)
}

/// Their names, for messages.
pub(crate) fn names() -> String {
    let names: Vec<&str> = all().map(|(name, ..)| *name).collect();
    let groups: Vec<&str> = together::groups().collect();
    format!("{}; groups: {}, all", names.join(", "), groups.join(", "))
}

/// The experiments with this name or of this group; `all` means every one.
pub(crate) fn find(asked: &str) -> Result<Vec<Experiment>, Failure> {
    let chosen =
        all().filter(|(known, ..)| *known == asked || asked == "all" || in_group(known, asked));
    let found: Vec<Experiment> = chosen
        .map(|(name, about, tenants)| {
            let tenants = tenants.iter().map(|text| text.parse());
            Ok(Experiment {
                name: (*name).to_owned(),
                about: (*about).to_owned(),
                tenants: tenants
                    .collect::<Result<_, String>>()
                    .map_err(Failure::ours)?,
                optional: asked == "all",
            })
        })
        .collect::<Result<_, Failure>>()?;
    if found.is_empty() {
        return Err(Failure::usage(format!(
            "--preset={asked:?} is refused; accepted: {}",
            names()
        )));
    }
    Ok(found)
}

/// The experiments for which the present GPUs (`there`) suffice, and a note about the others. For
/// an experiment requested by its name, too few GPUs are an error.
pub(crate) fn possible(
    experiments: Vec<Experiment>,
    there: usize,
) -> Result<(Vec<Experiment>, Vec<String>), Failure> {
    let (mut possible, mut left_out) = (Vec::new(), Vec::new());
    for experiment in experiments {
        let (name, needs) = (&experiment.name, experiment.needs());
        let why = format!("{name} needs {needs} GPUs, and here tenants see {there}");
        match (needs > there, experiment.optional) {
            (false, _) => possible.push(experiment),
            (true, true) => left_out.push(format!("left out: {why}")),
            (true, false) => {
                return Err(Failure::ours(format!(
                    "{why}; `--gpu soft:count={needs}` has as many without hardware, and with a number or a UUID --gpu is one GPU"
                )));
            }
        }
    }
    Ok((possible, left_out))
}

/// A note about what the tenants of these experiments are promised, where they are started without
/// gpushare.
pub(crate) fn not_promised(experiments: &[Experiment]) -> Option<String> {
    let has = |promise: fn(&Tenant) -> Option<u32>| {
        let mut tenants = experiments.iter().flat_map(|found| &found.tenants);
        tenants.any(|tenant| promise(tenant).is_some())
    };
    let keys = [
        ("share=", has(|tenant| tenant.share)),
        ("cap=", has(|tenant| tenant.cap)),
        ("priority=", has(|tenant| tenant.priority)),
    ];
    let keys = keys.iter().filter(|(_, given)| *given).map(|(key, _)| *key);
    let keys: Vec<&str> = keys.collect();
    let note = format!(
        "note: {} left out: without gpushare nothing is promised",
        keys.join(", ")
    );
    (!keys.is_empty()).then_some(note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_that_tenants_without_gpushare_do_not_have_are_named() {
        let note = |name| not_promised(&find(name).unwrap());
        let said = "note: share=, priority= left out: without gpushare nothing is promised";
        let both = [find("equal").unwrap(), find("preempt").unwrap()].concat();
        assert_eq!(not_promised(&both).as_deref(), Some(said));
        assert!(note("cap10").is_some_and(|said| said.contains(": cap= left")));
        assert_eq!(note("gaps-2"), None);
    }

    #[test]
    fn every_preset_is_found_by_its_name_and_needs_the_gpus_it_says() {
        assert_eq!(find("all").unwrap().len(), all().count());
        for (name, ..) in all() {
            let found = find(name).unwrap();
            assert_eq!((found.len(), found[0].name.as_str()), (1, *name));
            assert_eq!(super::super::jobs::check(&found[0].tenants), Ok(()));
        }
        let two = |experiment: &&Experiment| experiment.needs() == 2;
        let (all, gang) = (find("all").unwrap(), find("gang").unwrap());
        assert!(all.iter().filter(two).all(|experiment| experiment.optional));
        assert!(two(&&gang[0]) && !gang[0].optional && gang[0].gpus().len() == 2);
        let (possible_here, left_out) = possible(all.clone(), 1).unwrap();
        assert_eq!(possible_here.len(), all.len() - 3);
        assert_eq!(left_out.len(), 3);
        assert!(left_out[0].contains("gang needs 2 GPUs"), "{left_out:?}");
        assert!(possible(gang.clone(), 1).is_err());
        assert_eq!(possible(gang, 2).unwrap().0.len(), 1);
        assert!(possible(all, 2).unwrap().1.is_empty());
        assert_eq!(find("gaps").unwrap().len(), 4);
        assert_eq!(find("serving").unwrap().len(), 8);
        assert!(find("serv").is_err() && find("").is_err());
        assert!(find("none").unwrap_err().message.contains("lengths"));
    }
}
