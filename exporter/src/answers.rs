//! The answers of `gpushare-exporter`: metrics, the page, and that it is alive.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpushare_client::{Talk, TalkError};

use crate::http::{Answer, Ask, METRICS};
use crate::shared::Shared;
use crate::{Family, Format, Report, Snapshot, encode, families, host, page};

/// Longest the daemon may take for each of its replies, of which an answer takes dozens.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest it may take for all of an answer: a scrape must end before its asker gives up, which is
/// after 10 s for Prometheus by default, else it is not known that this daemon does not answer.
const WHOLE: Duration = Duration::from_secs(8);
/// For so long a page, or why there is none, is answered again. It costs the daemon several times
/// what a scrape does, which has to come to its turn beside whatever number of readers.
const KEEPS: Duration = Duration::from_secs(5);

/// The answers of one daemon.
#[derive(Debug)]
pub struct Answers {
    folder: PathBuf,
    /// The daemon is asked one question at a time, whose asker has the lock: scrapes that come
    /// together must not multiply its work. At most one asker for each of the answers below waits.
    asking: Mutex<()>,
    prometheus: Shared,
    open_metrics: Shared,
    page: Shared,
}

impl Answers {
    /// Those of the daemon in this folder.
    #[must_use]
    pub fn of(folder: PathBuf) -> Self {
        Self {
            folder,
            asking: Mutex::default(),
            prometheus: Shared::default(),
            open_metrics: Shared::default(),
            page: Shared::default(),
        }
    }

    /// The answer to a request. Scrapes that wait share one, whose making began after each of them
    /// came; the page may be `KEEPS` old.
    #[must_use]
    pub fn answer(&self, ask: &Ask) -> Answer {
        match ask.path.as_str() {
            METRICS => {
                let format = Format::accepted(&ask.accept);
                let shared = match format {
                    Format::Prometheus => &self.prometheus,
                    Format::OpenMetrics => &self.open_metrics,
                };
                shared.get(Duration::ZERO, || self.metrics(format))
            }
            "/" => self.page.get(KEEPS, || self.page()),
            "/healthz" => Answer::plain(200, "ok"),
            _ => Answer::plain(404, "there is /metrics, / and /healthz"),
        }
    }

    fn metrics(&self, format: Format) -> Answer {
        let _alone = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = snapshot(&self.folder);
        if let Err(error) = &snapshot {
            note(&error.message);
        }
        Answer {
            status: 200,
            media_type: format.media_type(),
            body: encode(families_of(snapshot.ok()), format).into(),
        }
    }

    fn page(&self) -> Answer {
        let _alone = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        match report(&self.folder) {
            Ok(report) => Answer {
                status: 200,
                media_type: "text/html; charset=utf-8",
                body: page(&report).into(),
            },
            Err(error) => Answer::plain(503, &error.message),
        }
    }
}

/// The families alone: the snapshot is gone when they are written.
fn families_of(snapshot: Option<Snapshot>) -> Vec<Family> {
    families(snapshot.as_ref())
}

fn connect(folder: &Path) -> Result<Talk, TalkError> {
    let talk = Talk::connect_within(folder, Some(PATIENCE));
    let mut talk = talk.map_err(|error| TalkError {
        message: format!("no daemon answers at {}: {error}", folder.display()),
    })?;
    talk.end_within(WHOLE);
    Ok(talk)
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
        is_unserved: false,
        snapshot: Snapshot::read(&mut talk)?,
        history: talk.history()?,
        uses: talk.uses()?,
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
    let text = format!("As it was at most {} s ago", KEEPS.as_secs());
    (text, millis)
}

/// One line for the journal. It is no failure if that is closed.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "gpushare-exporter: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_protocol::wire::{Control, ControlReply, Decoder, Hello, encode};
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    /// A daemon in this folder that greets one connection and answers each request at once.
    fn answers_at_once(folder: &Path) {
        let listener = UnixListener::bind(folder.join("control.sock")).expect("a socket");
        std::thread::spawn(move || {
            let (mut talk, _) = listener.accept().expect("a connection");
            let (mut decoder, mut buffer) = (Decoder::default(), [0; 4096]);
            let mut frame = Vec::new();
            encode(0, &Hello::of_this_build(0), &mut frame).expect("it is short");
            while let Ok(bytes @ 1..) = talk.read(&mut buffer) {
                decoder.push(&buffer[..bytes]);
                while let Ok(Some((id, _))) = decoder.next_frame() {
                    if id != 0 {
                        frame.clear();
                        encode(id, &ControlReply::Done, &mut frame).expect("it is short");
                    }
                    let _ = talk.write_all(&frame);
                }
            }
        });
    }

    /// However fast each reply comes, and however long each may take.
    #[test]
    fn what_a_daemon_is_asked_ends_with_the_time_for_all_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        answers_at_once(folder.path());
        let mut talk = connect(folder.path()).expect("it greets");
        let list = |talk: &mut Talk| talk.call(&Control::List);
        assert!(matches!(list(&mut talk), Ok(ControlReply::Done)));
        talk.end_within(Duration::ZERO);
        let late = list(&mut talk).expect_err("its time is over");
        assert!(late.message.contains("did not answer within 0ns"), "{late}");
        talk.end_within(WHOLE);
        assert!(matches!(list(&mut talk), Ok(ControlReply::Done)));
    }

    fn status(answers: &Answers, path: &str) -> u16 {
        let (path, accept) = (path.to_owned(), String::new());
        answers.answer(&Ask { path, accept }).status
    }

    #[test]
    fn health_is_answered_while_a_question_waits_for_the_daemon() {
        let answers = Answers::of("/nowhere".into());
        assert_eq!(status(&answers, "/"), 503, "no daemon is there");
        let _asks = answers.asking.lock();
        assert_eq!(status(&answers, "/healthz"), 200);
        assert_eq!(status(&answers, "/other"), 404);
    }

    #[test]
    fn a_page_asked_for_again_and_again_does_not_ask_the_daemon_again() {
        let answers = Answers::of("/nowhere".into());
        assert_eq!(status(&answers, "/"), 503);
        // It would wait for ever here, if it asked.
        let _asks = answers.asking.lock();
        for _ in 0..20 {
            assert_eq!(status(&answers, "/"), 503);
        }
    }
}
