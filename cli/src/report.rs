//! `gpushare report`: the state and the last hour as a page for a browser.

use crate::args::Report;
use crate::failure::Failure;
use crate::metrics::the_daemon;
use crate::{history, when};
use gpushare_exporter::{Report as Shown, Snapshot, host, page};
use std::process::ExitCode;

/// How far the page's events look back.
const HOUR_MS: u64 = 3_600_000;

/// Writes the page.
pub(crate) fn report(arguments: &Report) -> Result<ExitCode, Failure> {
    let mut talk = the_daemon()?;
    let now_ms = when::now_ms();
    let shown = Shown {
        host: host(),
        made: when::local(now_ms),
        now_ms,
        snapshot: Snapshot::read(&mut talk)?,
        history: talk.history()?,
        events: history::read(&mut vec![talk], now_ms.saturating_sub(HOUR_MS), None)?,
    };
    let path = &arguments.html;
    std::fs::write(path, page(&shown))
        .map_err(|error| Failure::ours(format!("cannot write {}: {error}", path.display())))?;
    Ok(ExitCode::SUCCESS)
}
