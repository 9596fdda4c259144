//! Experiments that come with the benchmark, by name.

use super::tenant::Tenant;
use crate::failure::Failure;

/// Tenants that run together.
#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    pub(crate) name: String,
    /// What it shows, in a few words.
    pub(crate) about: String,
    pub(crate) tenants: Vec<Tenant>,
}

/// Name, what it shows, tenants.
const PRESETS: [(&str, &str, &[&str]); 12] = [
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
];

/// Their names, for messages.
pub(crate) fn names() -> String {
    let names: Vec<&str> = PRESETS.iter().map(|(name, ..)| *name).collect();
    format!("{}, all", names.join(", "))
}

/// The experiments of this name; `all` is every one.
pub(crate) fn find(name: &str) -> Result<Vec<Experiment>, Failure> {
    let chosen = PRESETS
        .iter()
        .filter(|(known, ..)| *known == name || name == "all");
    let found: Vec<Experiment> = chosen
        .map(|(name, about, tenants)| {
            let tenants = tenants.iter().map(|text| text.parse());
            Ok(Experiment {
                name: (*name).to_owned(),
                about: (*about).to_owned(),
                tenants: tenants
                    .collect::<Result<_, String>>()
                    .map_err(Failure::ours)?,
            })
        })
        .collect::<Result<_, Failure>>()?;
    if found.is_empty() {
        return Err(Failure::ours(format!(
            "--preset={name:?} is refused; accepted: {}",
            names()
        )));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_well_formed_and_found_by_its_name() {
        assert_eq!(find("all").unwrap().len(), PRESETS.len());
        for (name, ..) in PRESETS {
            let found = find(name).unwrap();
            assert_eq!((found.len(), found[0].name.as_str()), (1, name));
        }
        assert!(find("none").unwrap_err().message.contains("lengths"));
    }
}
