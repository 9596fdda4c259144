//! The checks: each looks at the facts and says what it found and what to do. Pure.

mod containers;
mod daemons;
mod host;
mod shell;

use super::facts::{Facts, Outcome};
use serde::Serialize;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One check's result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    /// Its stable name.
    pub(crate) check: &'static str,
    pub(crate) verdict: Verdict,
    /// The finding.
    pub(crate) found: String,
    /// The advice; none where the check passes.
    pub(crate) advice: Option<String>,
}

/// A finding with its advice.
type Judged = (Verdict, String, Option<String>);

/// A check's function.
type Judge = fn(&Facts) -> Judged;

/// Every check, in the order in which one needs the other.
pub(crate) const CHECKS: [(&str, Judge); 19] = [
    ("driver", driver),
    ("nvml", nvml),
    ("device-nodes", nodes),
    ("library", library),
    ("limit-holds", proof),
    ("daemon", daemons::daemon),
    ("one-daemon-a-gpu", daemons::one_daemon),
    ("kernel", kernel),
    ("pid-namespace", pids),
    ("descriptors", descriptors),
    ("cgroup", cgroup),
    ("mps", mps),
    ("mig", mig),
    ("gpu-modes", modes),
    ("preloads", preloads),
    ("variables", shell::variables),
    ("containers", containers::containers),
    ("folders-and-clock", host::folders),
    ("logout", host::logout),
];

/// Judges all.
pub(crate) fn judge(facts: &Facts) -> Vec<Check> {
    let one = |(check, judge): &(&'static str, Judge)| {
        let (verdict, found, advice) = judge(facts);
        Check {
            check,
            verdict,
            found,
            advice,
        }
    };
    CHECKS.iter().map(one).collect()
}

fn ok(found: impl Into<String>) -> Judged {
    (Verdict::Ok, found.into(), None)
}

fn warn(found: impl Into<String>, advice: impl Into<String>) -> Judged {
    (Verdict::Warn, found.into(), Some(advice.into()))
}

fn fail(found: impl Into<String>, advice: impl Into<String>) -> Judged {
    (Verdict::Fail, found.into(), Some(advice.into()))
}

/// The oldest CUDA version whose driver has everything that the library asks for.
const OLDEST: u32 = 11_000;

fn driver(facts: &Facts) -> Judged {
    let count = match &facts.devices {
        Ok(0) => {
            return fail(
                "the driver reports no GPU",
                "look at nvidia-smi and CUDA_VISIBLE_DEVICES; `gpushare doctor --gpu soft` checks the rest on a software GPU",
            );
        }
        Ok(count) => count,
        Err(why) => {
            return fail(
                why.clone(),
                "install NVIDIA's driver, or mount it into this container; `gpushare doctor --gpu soft` checks the rest on a software GPU",
            );
        }
    };
    match &facts.driver.cuda {
        Ok(version) if *version < OLDEST => fail(
            format!("{}, CUDA {}", gpus(*count), cuda(*version)),
            format!("install a driver for CUDA {} or newer", cuda(OLDEST)),
        ),
        Ok(version) => ok(format!("{}, CUDA {}", gpus(*count), cuda(*version))),
        Err(why) => fail(why.clone(), "install NVIDIA's driver anew"),
    }
}

fn gpus(count: usize) -> String {
    match count {
        1 => "1 GPU".to_owned(),
        _ => format!("{count} GPUs"),
    }
}

fn cuda(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn nvml(facts: &Facts) -> Judged {
    if let Err(why) = &facts.driver.modes {
        return fail(
            why.clone(),
            "install libnvidia-ml.so.1 of the driver's own version: a daemon needs it, and guarantees nothing without",
        );
    }
    let devices = facts.daemons.iter().flat_map(|daemon| &daemon.devices);
    let blind: Vec<&str> = devices
        .filter(|(_, tells)| !tells)
        .map(|(uuid, _)| &**uuid)
        .collect();
    match blind.is_empty() {
        true => ok("NVML answers"),
        false => warn(
            format!(
                "NVML does not tell what each process holds on {}",
                blind.join(", ")
            ),
            "contexts are estimated there; run the daemon in the machine's pid namespace (hostPID), or use a newer driver",
        ),
    }
}

fn nodes(facts: &Facts) -> Judged {
    if facts.soft {
        return ok("a software GPU has none");
    }
    if facts.nodes.is_empty() {
        return fail(
            "there is no /dev/nvidia*",
            "load the driver's kernel module (nvidia-smi does it), or give the container its GPUs",
        );
    }
    let barred: Vec<String> = facts
        .nodes
        .iter()
        .filter(|node| !node.usable)
        .map(|node| node.path.display().to_string())
        .collect();
    match barred.is_empty() {
        true => ok(format!("{} device nodes, all usable", facts.nodes.len())),
        false => fail(
            format!("this user may not open {}", barred.join(", ")),
            "add the user to the nodes' group (ls -l /dev/nvidia*), or correct their mode",
        ),
    }
}

fn library(facts: &Facts) -> Judged {
    match &facts.library {
        Ok(path) => ok(format!("{} loads", path.display())),
        Err(why) => fail(
            why.clone(),
            "install libgpushare.so with the package, on a file system without noexec, and readable for SELinux's or AppArmor's domain of the program",
        ),
    }
}

fn proof(facts: &Facts) -> Judged {
    let ways = match &facts.proof {
        Ok(ways) => ways,
        Err(why) => {
            return fail(
                format!("could not be tried: {why}"),
                "mend what the other checks name, then try again; where the GPU is full, `gpushare ps` shows who has it",
            );
        }
    };
    let mut passed = Vec::new();
    let mut untried = Vec::new();
    for way in ways {
        match &way.outcome {
            Outcome::Held => {}
            Outcome::Passed(what) => passed.push(format!("{}: {what}", way.by)),
            Outcome::Untried(why) => untried.push(format!("{}: {why}", way.by)),
        }
    }
    if !passed.is_empty() {
        return fail(
            format!("the limit does not hold: {}", passed.join("; ")),
            "do not rely on limits here: reinstall gpushare, remove other preloads, and report this with `gpushare doctor --json`",
        );
    }
    let held = ways.len() - untried.len();
    match untried.is_empty() {
        true => ok(format!(
            "a limit held on this node in all {held} ways to pass it"
        )),
        false => warn(
            format!(
                "a limit held in {held} ways; untried: {}",
                untried.join("; ")
            ),
            "where the GPU is full, try again when it has 320 MiB free (`gpushare ps` shows who has it); functions that an older driver lacks programs cannot use either",
        ),
    }
}

fn pids(facts: &Facts) -> Judged {
    match facts.first_pid_namespace {
        true => ok("the machine's own"),
        false if facts.container.is_some() => ok("a container's; its daemon is on the host"),
        false => warn(
            "this is a pid namespace of its own, as in a container",
            "a daemon here cannot match NVML's list with processes: run the daemon on the host and mount its tenant's socket folder",
        ),
    }
}

/// Descriptors below which few tenants fit: three each, and those of the program itself.
const FEW: u64 = 1024;

fn descriptors(facts: &Facts) -> Judged {
    if facts.may_pass_nothing {
        return warn(
            "the daemon lacks CAP_SYS_RESOURCE",
            "a container's program that runs as root can keep all others from registering: take this version's unit, or name CAP_SYS_RESOURCE in CapabilityBoundingSet= of its drop-in",
        );
    }
    let found = format!("{} descriptors a process", facts.descriptors);
    match facts.descriptors < FEW {
        true => warn(
            found,
            format!(
                "a private daemon takes three for each tenant: raise the hard limit (ulimit -Hn) to {FEW} or more"
            ),
        ),
        false => ok(found),
    }
}

fn cgroup(facts: &Facts) -> Judged {
    match &facts.controllers {
        None => warn(
            "cgroup v2 is not this machine's only hierarchy",
            "only the driver's own fence needs it (r615 and newer); limits hold without",
        ),
        Some(controllers) if controllers.iter().any(|name| name == "dmem") => {
            ok("cgroup v2 with the dmem controller")
        }
        Some(_) => ok("cgroup v2; no dmem controller, which only the driver's own fence needs"),
    }
}

fn mps(facts: &Facts) -> Judged {
    match &facts.mps {
        None => ok("no MPS control daemon"),
        Some(folder) => warn(
            format!("an MPS control daemon runs in {folder}"),
            "its clients have memory limits and take no turns: a share of time is MPS's own. Stop it (echo quit | nvidia-cuda-mps-control) to share time by gpushare",
        ),
    }
}

/// The oldest kernel for the daemon, which holds processes by pidfds.
const FOR_DAEMON: (u32, u32) = (5, 3);
/// The oldest kernel for the hook and the wrapper of containers, which mount read-only by
/// `mount_setattr`.
const FOR_CONTAINERS: (u32, u32) = (5, 12);

fn kernel(facts: &Facts) -> Judged {
    let mut numbers = facts.kernel.split(|one: char| !one.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse().ok());
    let version: Option<(u32, u32)> = number().zip(number());
    let found = format!("Linux {}", facts.kernel);
    match version {
        None => warn(
            "the kernel does not tell its version",
            "the daemon needs Linux 5.3, containers by the hook or the wrapper 5.12",
        ),
        Some(version) if version < FOR_DAEMON => warn(
            found,
            "the daemon needs Linux 5.3 (pidfd_open), unless the distribution has added that; limits without a daemon hold",
        ),
        Some(version) if version < FOR_CONTAINERS => warn(
            found,
            "containers by the hook or the wrapper need Linux 5.12 (mount_setattr), unless the distribution has added that; containers of a class (CDI) do not",
        ),
        Some(_) => ok(found),
    }
}

fn mig(facts: &Facts) -> Judged {
    let modes = facts.driver.modes.as_deref().unwrap_or_default();
    match modes.iter().any(|device| device.mig == Some(true)) {
        true => warn(
            "a GPU is split into MIG instances",
            "each instance is a device of its own (--gpu MIG-…); restart the daemon after changing them. Not run on hardware yet",
        ),
        false => ok("no GPU is split"),
    }
}

fn modes(facts: &Facts) -> Judged {
    let modes = facts.driver.modes.as_deref().unwrap_or_default();
    // 1 and 3 are exclusive, 2 is prohibited.
    if let Some(mode) = modes
        .iter()
        .find_map(|device| device.compute.filter(|mode| *mode != 0))
    {
        let name = match mode {
            2 => "prohibited",
            _ => "exclusive",
        };
        return fail(
            format!("a GPU's compute mode is {name}"),
            "only one process can use it: nvidia-smi -c DEFAULT",
        );
    }
    let off = modes.iter().any(|device| device.persistence == Some(false));
    match off && !facts.soft {
        true => warn(
            "persistence mode is off",
            "each first program waits seconds for the driver: nvidia-smi -pm 1, or run nvidia-persistenced",
        ),
        false => ok("nothing keeps programs out"),
    }
}

/// Libraries that change the driver's functions, too.
const RIVALS: [(&str, &str); 4] = [
    ("libvgpu.so", "HAMi"),
    ("libgemhook.so", "KubeShare"),
    ("libcuda-control.so", "vcuda"),
    ("libnvshare.so", "nvshare"),
];

fn preloads(facts: &Facts) -> Judged {
    let is_rival = |entry: &String| {
        let mut rivals = RIVALS.iter();
        rivals
            .find_map(|(library, owner)| entry.contains(library).then_some((entry.clone(), *owner)))
    };
    if let Some((entry, owner)) = facts.preloads.iter().find_map(is_rival) {
        return fail(
            format!("{entry} of {owner} is preloaded"),
            "two limits would be enforced on one another: remove it from LD_PRELOAD or /etc/ld.so.preload; its variables are read by gpushare",
        );
    }
    let ours = facts
        .preloads
        .iter()
        .filter(|entry| entry.contains("libgpushare.so"));
    if ours.count() > 1 {
        return warn(
            "libgpushare.so is preloaded twice",
            "leave it to `gpushare run`: take it out of LD_PRELOAD or /etc/ld.so.preload",
        );
    }
    match facts.preloads.is_empty() {
        true => ok("none"),
        false => ok(format!(
            "{}; none is known to interfere",
            facts.preloads.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests;
