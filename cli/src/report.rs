//! `gpushare report`: the state and the last hour as a page for a browser.

use crate::args::Report;
use crate::daemon::{self, Talk};
use crate::failure::{Failure, NO_DAEMON};
use crate::metrics::{PATIENCE, the_daemon};
use crate::{history, output, when};
use gpushare_exporter::{Report as Shown, Snapshot, host, page};
use std::process::ExitCode;

/// How far the page's events look back.
const HOUR_MS: u64 = 3_600_000;

/// The daemon that the page is about; none where it left and there is a journal. Where the machine
/// has a daemon that does not serve, no journal speaks for it.
fn the_daemon_or_journal() -> Result<Vec<Talk>, Failure> {
    match the_daemon() {
        Ok(talk) => Ok(vec![talk]),
        Err(failure) => {
            let has_left = failure.status == NO_DAEMON && !daemon::is_on_machine();
            if !has_left || !history::journals().iter().any(|folder| folder.is_dir()) {
                return Err(failure);
            }
            output::note(&format!(
                "note: {}; the page has the last hour's events from the journal",
                failure.message
            ));
            Ok(Vec::new())
        }
    }
}

/// Writes the page.
pub(crate) fn report(arguments: &Report) -> Result<ExitCode, Failure> {
    let mut daemon = the_daemon_or_journal()?;
    daemon.iter_mut().for_each(|talk| talk.end_within(PATIENCE));
    let now_ms = when::now_ms();
    let (mut snapshot, mut hour) = (Snapshot::default(), Vec::new());
    if let [talk] = &mut daemon[..] {
        (snapshot, hour) = (Snapshot::read(talk)?, talk.history()?);
    }
    let shown = Shown {
        host: host(),
        made: when::zoned(now_ms),
        now_ms,
        is_unserved: daemon.is_empty(),
        snapshot,
        history: hour,
        events: history::read(&mut daemon, now_ms.saturating_sub(HOUR_MS), None)?,
        events_lack: None,
    };
    let path = &arguments.html;
    output::file(path, &page(&shown))?;
    Ok(ExitCode::SUCCESS)
}
