//! The answers of `gpushare-exporter`: metrics, the page, and that it is alive.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gpushare_client::{Talk, TalkError};
use gpushare_journal::merged;

use crate::asking::Asking;
use crate::http::{Answer, Ask, HEALTH, METRICS};
use crate::shared::Shared;
use crate::{Family, Format, Report, Snapshot, encode, families, host, page};

/// Longest the daemon may take for each of its replies, of which an answer takes dozens.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest a scrape takes from when it came, with the wait for other questions and the daemon's
/// greeting: it must end before its asker gives up, which is after 10 s for Prometheus by default,
/// else it is not known that this daemon does not answer.
const SCRAPE: Duration = Duration::from_secs(8);
/// The same for the page. A scrape that comes behind it has at least as long.
const PAGE: Duration = Duration::from_secs(4);
/// For so long a page, or why there is none, is answered again. It costs the daemon several times
/// what a scrape does, which has to come to its turn beside whatever number of readers.
const KEEPS: Duration = Duration::from_secs(5);
/// How far the page's events look back.
const HOUR_MS: u64 = 3_600_000;

/// The answers of one daemon.
#[derive(Debug)]
pub struct Answers {
    folder: PathBuf,
    journal: Option<PathBuf>,
    /// The daemon is asked one question at a time: scrapes that come together must not multiply its
    /// work. At most one asker for each of the answers below waits.
    asking: Asking,
    prometheus: Shared,
    open_metrics: Shared,
    page: Shared,
}

/// When an answer has to be there, and how long it had for that.
type End = (Instant, Duration);

impl Answers {
    /// Those of the daemon in this folder, whose journal is in the other, where that is known.
    #[must_use]
    pub fn of(folder: PathBuf, journal: Option<PathBuf>) -> Self {
        Self {
            folder,
            journal,
            asking: Asking::default(),
            prometheus: Shared::default(),
            open_metrics: Shared::default(),
            page: Shared::default(),
        }
    }

    /// The answer to a request. Scrapes that wait share one, whose making began after each of them
    /// came; the page may be `KEEPS` old.
    #[must_use]
    pub fn answer(&self, ask: &Ask) -> Answer {
        let came = Instant::now();
        match ask.path.as_str() {
            METRICS => {
                let format = Format::accepted(&ask.accept);
                let shared = match format {
                    Format::Prometheus => &self.prometheus,
                    Format::OpenMetrics => &self.open_metrics,
                };
                let end = (came + SCRAPE, SCRAPE);
                shared.get(Duration::ZERO, || self.metrics(format, end))
            }
            "/" => self.page.get(KEEPS, || self.page((came + PAGE, PAGE))),
            HEALTH => Answer::plain(200, "ok"),
            _ => Answer::plain(404, "there is /metrics, / and /healthz"),
        }
    }

    fn metrics(&self, format: Format, end: End) -> Answer {
        let text = |snapshot| encode(families_of(snapshot), format);
        let asked = self.ask(end, Snapshot::read, |snapshot| text(Some(snapshot)));
        let text = asked.unwrap_or_else(|error| {
            note(&error.message);
            text(None)
        });
        Answer::found(format.media_type(), text)
    }

    fn page(&self, end: End) -> Answer {
        match self.ask(end, report, |report| report) {
            Ok(mut report) => {
                report.add_journal(self.journal.as_deref());
                Answer::found("text/html; charset=utf-8", page(&report))
            }
            Err(error) => Answer::plain(503, &error.message),
        }
    }

    /// Asks the daemon, while no other question is asked and no other answer is written out: the
    /// texts of both formats are not made at a time.
    fn ask<R, T>(
        &self,
        end: End,
        question: impl FnOnce(&mut Talk) -> Result<R, TalkError>,
        written: impl FnOnce(R) -> T,
    ) -> Result<T, TalkError> {
        let Some(turn) = self.asking.by(end.0) else {
            let whole = end.1;
            return Err(TalkError {
                message: format!("the daemon had no time for this within {whole:?}"),
            });
        };
        let found = question(&mut connect(&self.folder, end)?)?;
        let text = written(found);
        drop(turn);
        Ok(text)
    }
}

/// The families alone: the snapshot is gone when they are written.
fn families_of(snapshot: Option<Snapshot>) -> Vec<Family> {
    families(snapshot.as_ref())
}

fn connect(folder: &Path, end: End) -> Result<Talk, TalkError> {
    let talk = Talk::connect_until(folder, PATIENCE, end);
    talk.map_err(|error| TalkError {
        message: format!("no daemon answers at {}: {error}", folder.display()),
    })
}

fn report(talk: &mut Talk) -> Result<Report, TalkError> {
    let (made, now_ms) = now();
    Ok(Report {
        host: host(),
        made,
        now_ms,
        snapshot: Snapshot::read(talk)?,
        history: talk.history()?,
        events: talk.past()?,
        ..Report::default()
    })
}

impl Report {
    /// Adds what the journal has of the last hour, and leaves out what is older. The daemon was
    /// asked before: what it told is in the journal a moment later.
    fn add_journal(&mut self, folder: Option<&Path>) {
        let since = self.now_ms.saturating_sub(HOUR_MS);
        let read = folder.map(|folder| gpushare_journal::read(folder, since));
        let (past, lacks) = match read {
            Some(Ok(past)) => (past.records, None),
            Some(Err(error)) => (
                Vec::new(),
                Some(format!("the journal cannot be read: {error}")),
            ),
            None => (Vec::new(), Some("no journal is read here".to_owned())),
        };
        self.events_lack = lacks;
        let told = std::mem::take(&mut self.events);
        self.events = merged(told.into_iter().chain(past).collect(), since, None);
    }
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
    use gpushare_protocol::wire::{ControlReply, Decoder, EventRecord, Hello, Listing, encode};
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
        let whole = (Instant::now() + SCRAPE, SCRAPE);
        let mut talk = connect(folder.path(), whole).expect("it greets");
        let list = |talk: &mut Talk| talk.call(&Listing::Tenants.first());
        assert!(matches!(list(&mut talk), Ok(ControlReply::Done)));
        talk.end_within(Duration::ZERO);
        let late = list(&mut talk).expect_err("its time is over");
        assert!(late.message.contains("did not answer within 0ns"), "{late}");
        talk.end_within(SCRAPE);
        assert!(matches!(list(&mut talk), Ok(ControlReply::Done)));
    }

    fn status(answers: &Answers, path: &str) -> u16 {
        let (path, accept) = (path.to_owned(), String::new());
        answers.answer(&Ask { path, accept }).status
    }

    #[test]
    fn health_is_answered_while_a_question_waits_for_the_daemon() {
        let answers = Answers::of("/nowhere".into(), None);
        assert_eq!(status(&answers, "/"), 503, "no daemon is there");
        let _asks = answers.asking.by(Instant::now()).expect("it is free");
        assert_eq!(status(&answers, "/healthz"), 200);
        assert_eq!(status(&answers, "/other"), 404);
    }

    #[test]
    fn a_page_asked_for_again_and_again_does_not_ask_the_daemon_again() {
        let answers = Answers::of("/nowhere".into(), None);
        assert_eq!(status(&answers, "/"), 503);
        // Asked again it would say that the daemon has no time.
        let _asks = answers.asking.by(Instant::now()).expect("it is free");
        for _ in 0..20 {
            let (path, accept) = ("/".to_owned(), String::new());
            let body = answers.answer(&Ask { path, accept }).body;
            assert!(body.starts_with("no daemon answers"), "{body}");
        }
    }

    /// A daemon's socket that greets nobody.
    fn is_silent(folder: &Path) -> UnixListener {
        UnixListener::bind(folder.join("control.sock")).expect("a socket")
    }

    #[test]
    fn the_greeting_and_the_wait_for_another_question_are_in_a_scrapes_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let answers = Answers::of(folder.path().to_owned(), None);
        let late = |whole| answers.metrics(Format::Prometheus, (Instant::now() + whole, whole));
        let says_down = |answer: &Answer| answer.body.ends_with("gpushare_daemon_up 0\n");
        let turn = answers.asking.by(Instant::now()).expect("it is free");
        assert!(says_down(&late(Duration::from_millis(20))), "another asks");
        drop(turn);
        let _silent = is_silent(folder.path());
        assert!(says_down(&late(Duration::from_millis(20))), "no greeting");
        let end = (Instant::now(), SCRAPE);
        let over = connect(folder.path(), end).expect_err("its time is over");
        assert!(over.message.starts_with("no daemon answers"), "{over}");
    }

    #[test]
    fn no_other_question_is_asked_while_an_answer_is_written_out() {
        let folder = tempfile::tempdir().expect("a folder");
        answers_at_once(folder.path());
        let answers = Answers::of(folder.path().to_owned(), None);
        let end = (Instant::now() + SCRAPE, SCRAPE);
        let is_free = || answers.asking.by(Instant::now()).is_some();
        let asked = answers.ask(end, |_| Ok(is_free()), |other| [other, is_free()]);
        assert_eq!(asked.expect("it greets"), [false; 2]);
        assert!(is_free());
    }

    #[test]
    fn a_scrape_behind_a_page_has_as_long_as_the_page_had() {
        assert!(PAGE * 2 <= SCRAPE);
        assert!(SCRAPE + Duration::from_secs(2) <= Duration::from_secs(10));
    }

    fn event(instance: u64, at_ms: u64, kind: &str) -> EventRecord {
        EventRecord {
            instance,
            number: 1,
            at_ms,
            kind: kind.to_owned(),
            tenant: None,
            device: None,
            text: String::new(),
            facts: Vec::new(),
        }
    }

    #[test]
    fn the_page_has_the_journals_events_of_the_hour_or_says_that_it_has_not() {
        let now_ms = 100 * HOUR_MS;
        let folder = tempfile::tempdir().expect("a folder");
        let lines = [(1, now_ms - 5_000, "lost"), (2, now_ms - 2_000, "queued")];
        let lines = lines.map(|(of, at, kind)| gpushare_journal::json(&event(of, at, kind)));
        let text = lines.map(|line| line + "\n").concat();
        std::fs::write(folder.path().join("journal.jsonl"), text).expect("it is writable");
        let report = |journal| {
            let old = event(3, now_ms - 2 * HOUR_MS, "old");
            let mut report = Report {
                now_ms,
                events: vec![old, event(2, now_ms - 2_000, "queued")],
                ..Report::default()
            };
            report.add_journal(journal);
            let kinds: Vec<_> = report.events.iter().map(|one| one.kind.clone()).collect();
            (kinds.join(" "), page(&report).contains("this daemon&#39;s"))
        };
        assert_eq!(
            report(Some(folder.path())),
            ("lost queued".to_owned(), false)
        );
        assert_eq!(report(None), ("queued".to_owned(), true));
        // A file in place of the folder's.
        let broken = folder.path().join("other");
        std::fs::create_dir_all(broken.join("journal.jsonl")).expect("it is writable");
        assert_eq!(report(Some(&broken)), ("queued".to_owned(), true));
    }
}
