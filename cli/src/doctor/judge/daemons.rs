//! The daemons: whether one serves, what troubles those that do, and whether a GPU has two.

use super::{Judged, fail, ok, shell, warn};
use crate::daemon::NODE;
use crate::doctor::facts::{Daemon, Facts};
use gpushare_protocol::wire::MAJOR;
use std::collections::BTreeMap;
use std::path::Path;

/// How one of this user's own daemons is followed by a new one: it has no unit.
const AS_ITS_PROGRAMS_END: &str = "let its programs end: your own daemon ends with the last of them, and the next `gpushare run` starts one of this version";

pub(super) fn daemon(facts: &Facts) -> Judged {
    match &facts.container {
        Some(Ok(())) => {
            return ok("this container is a tenant of the daemon on its host, which listens");
        }
        Some(Err(why)) => {
            return fail(
                format!("this container's tenant has no daemon: {why}"),
                "start it on the host: systemctl start gpushared; until then programs that start here get no CUDA",
            );
        }
        None => {}
    }
    if let (Some(silent), Some(why)) = (facts.silent.first(), &facts.refused_settings) {
        return fail(
            format!("{}; its settings are refused: {why}", silent.text),
            format!("correct the file, then {}", silent.advice),
        );
    }
    if let Some(silent) = facts.silent.first() {
        return fail(&*silent.text, silent.advice);
    }
    let died = facts.died.first();
    let died = died.map(|died| warn(&*died.text, died.advice));
    let Some(first) = facts.daemons.first() else {
        return died.unwrap_or_else(|| shell::no_daemon(facts));
    };
    served(facts)
        .or(died)
        .unwrap_or_else(|| ok(format!("the daemon at {} serves", first.folder.display())))
}

/// The trouble of daemons that serve.
fn served(facts: &Facts) -> Option<Judged> {
    let mut daemons = facts.daemons.iter();
    let lost = daemons.find_map(|daemon| Some((daemon, daemon.lost.first()?)));
    if let Some((daemon, uuid)) = lost {
        let next = match is_machines(daemon) {
            true => "restart the daemon: systemctl restart gpushared",
            false => AS_ITS_PROGRAMS_END,
        };
        return Some(fail(
            format!("{uuid} does not answer any more"),
            format!(
                "calls of programs there fail: look at nvidia-smi and `dmesg`, bring the GPU back, and {next}"
            ),
        ));
    }
    let other = facts
        .daemons
        .iter()
        .find(|daemon| daemon.minor != facts.own_minor);
    if let Some(daemon) = other {
        return Some(warn(
            format!(
                "the daemon at {} speaks protocol {MAJOR}.{}, this command {MAJOR}.{}",
                daemon.folder.display(),
                daemon.minor,
                facts.own_minor
            ),
            match is_machines(daemon) {
                true => {
                    "they work together, without what is newer; to bring both to one version install one package and restart the daemon (tenants run on)".to_owned()
                }
                false => format!(
                    "they work together, without what is newer; to bring both to one version {AS_ITS_PROGRAMS_END}"
                ),
            },
        ));
    }
    if let Some(why) = &facts.refused_settings {
        return Some(warn(
            format!("a daemon serves, and its next start fails: {why}"),
            "correct the file, then systemctl reload gpushared; until then what was read before holds",
        ));
    }
    let builds = facts
        .daemons
        .iter()
        .filter_map(|daemon| Some((daemon, daemon.build.as_ref()?)));
    let mut others = builds.filter(|(_, build)| *build != facts.own_build);
    let (daemon, build) = others.next()?;
    Some(warn(
        format!(
            "the daemon at {} is gpushare {build}, this command {}",
            daemon.folder.display(),
            facts.own_build
        ),
        match is_machines(daemon) {
            true => {
                "it was not restarted since the upgrade, or is another installation's: systemctl restart gpushared (tenants run on); systemctl cat gpushared says whose it is"
            }
            false => AS_ITS_PROGRAMS_END,
        },
    ))
}

fn is_machines(daemon: &Daemon) -> bool {
    daemon.folder == Path::new(NODE)
}

pub(super) fn one_daemon(facts: &Facts) -> Judged {
    let mut owners: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for daemon in &facts.daemons {
        for (uuid, _) in &daemon.devices {
            let folder = daemon.folder.display().to_string();
            owners.entry(uuid).or_default().push(folder);
        }
    }
    let shared = owners.iter().find(|(_, folders)| folders.len() > 1);
    match shared {
        Some((uuid, folders)) => fail(
            format!("{uuid} has several daemons: {}", folders.join(", ")),
            "each promises the whole GPU: let the programs of all but one end, and use the machine's daemon",
        ),
        None => ok("no GPU has two"),
    }
}
