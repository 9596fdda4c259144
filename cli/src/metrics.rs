//! `gpushare metrics`: what the daemon counts and measures, once, as text for Prometheus.

use crate::args::Metrics;
use crate::failure::{Failure, NO_DAEMON};
use crate::{daemon, output};
use gpushare_client::Talk;
use gpushare_exporter::{Format, Snapshot, encode, families};
use std::process::ExitCode;
use std::time::Duration;

/// Where the figures of a tenant are whose daemon has left: its counters are gone with it.
const ENDED: &str = "; `gpushare events --kind gone` has what ended tenants used";

/// Longest the daemon may take: a job that collects the metrics, or makes the page, again and again
/// must not find those before it still waiting.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Prints the metrics. Where no daemon answers they say so, as the exporter's do: a file for a
/// collector that keeps the last answer would say for ever that it does.
pub(crate) fn print(arguments: &Metrics) -> Result<ExitCode, Failure> {
    let read = the_daemon().and_then(|mut talk| {
        talk.end_within(PATIENCE);
        Ok(Snapshot::read(&mut talk)?)
    });
    let format = if arguments.openmetrics {
        Format::OpenMetrics
    } else {
        Format::Prometheus
    };
    let text = encode(families(read.as_ref().ok()), format);
    output::data(text.trim_end())?;
    match read {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(mut failure) => {
            if failure.status == NO_DAEMON {
                failure.message.push_str(ENDED);
            }
            Err(failure)
        }
    }
}

/// The one daemon that is asked: the machine's where it has one, else the first of this user's.
/// Metrics of several in one text would contradict each other, and those of a private daemon in
/// place of the machine's would say that this one answers.
pub(crate) fn the_daemon() -> Result<Talk, Failure> {
    let mut all = daemon::of_machine_or_own()?;
    if all.len() > 1 {
        let others = all.len() - 1;
        output::note(&format!(
            "note: {others} more of your daemons are left out: this is about the first that `gpushare ps` asks"
        ));
    }
    Ok(all.swap_remove(0))
}
