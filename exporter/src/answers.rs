//! The answers of `gpushare-exporter`: metrics, the page, and that it is alive.

use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpushare_client::{Talk, TalkError};

use crate::http::{Answer, Ask};
use crate::{Family, Format, Report, Snapshot, encode, families, host, page};

/// Longest the daemon may take for each list of an answer: a scrape must end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The answer of the daemon in `folder`. It is asked one question at a time, whose asker has the
/// lock: scrapes that come together must not multiply its work.
#[must_use]
pub fn answered(folder: &Path, asking: &Mutex<()>, ask: &Ask) -> Answer {
    let alone = || {
        asking
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    };
    match ask.path.as_str() {
        "/metrics" => {
            let _alone = alone();
            let format = Format::accepted(&ask.accept);
            let snapshot = snapshot(folder);
            if let Err(error) = &snapshot {
                note(&error.message);
            }
            Answer {
                status: 200,
                media_type: format.media_type(),
                body: encode(families_of(snapshot.ok()), format),
            }
        }
        "/" => {
            let _alone = alone();
            match report(folder) {
                Ok(report) => Answer {
                    status: 200,
                    media_type: "text/html; charset=utf-8",
                    body: page(&report),
                },
                Err(error) => Answer::plain(503, &error.message),
            }
        }
        "/healthz" => Answer::plain(200, "ok"),
        _ => Answer::plain(404, "there is /metrics, / and /healthz"),
    }
}

/// The families alone: the snapshot is gone when they are written.
fn families_of(snapshot: Option<Snapshot>) -> Vec<Family> {
    families(snapshot.as_ref())
}

fn connect(folder: &Path) -> Result<Talk, TalkError> {
    Talk::connect_within(folder, Some(PATIENCE)).map_err(|error| TalkError {
        message: format!("no daemon answers at {}: {error}", folder.display()),
    })
}

fn snapshot(folder: &Path) -> Result<Snapshot, TalkError> {
    Snapshot::read(&mut connect(folder)?)
}

fn report(folder: &Path) -> Result<Report, TalkError> {
    let mut talk = connect(folder)?;
    let (made, now_ms) = now();
    Ok(Report {
        host: host(),
        made,
        now_ms,
        snapshot: Snapshot::read(&mut talk)?,
        history: talk.history()?,
        events: talk.past()?,
    })
}

/// The time, as the page says it and in milliseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the page carries its date; how long ago an event was is only shown"
)]
fn now() -> (String, u64) {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    ("As it is now".to_owned(), millis)
}

/// One line for the journal. It is no failure if that is closed.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "gpushare-exporter: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_answered_while_a_question_waits_for_the_daemon() {
        let (folder, asking) = (Path::new("/nowhere"), Mutex::new(()));
        let status = |path: &str| {
            let (path, accept) = (path.to_owned(), String::new());
            answered(folder, &asking, &Ask { path, accept }).status
        };
        assert_eq!(status("/"), 503, "no daemon is there");
        let _asks = asking.lock();
        assert_eq!(status("/healthz"), 200);
        assert_eq!(status("/other"), 404);
    }
}
