//! `gpushare-exporter`: serves what the machine's daemon knows over HTTP. It needs no rights: any
//! user may ask the daemon's control socket.
#![forbid(unsafe_code)]

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use gpushare_client::{Talk, TalkError};
use gpushare_exporter::http::{Answer, Ask, serve};
use gpushare_exporter::{Format, Report, Snapshot, encode, families, host, page};

/// Longest the daemon may take for one answer: a scrape must end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves Prometheus metrics of this machine's gpushare daemon, and a page about it.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Args {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9836")]
    listen: SocketAddr,
    /// The daemon's folder.
    #[arg(long, value_name = "FOLDER", default_value = "/run/gpushare")]
    runtime_dir: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let listener = match TcpListener::bind(args.listen) {
        Ok(listener) => listener,
        Err(error) => return failed(&format!("cannot listen at {}: {error}", args.listen)),
    };
    let at = listener.local_addr().unwrap_or(args.listen);
    note(&format!("serving http://{at}/metrics"));
    let folder = args.runtime_dir;
    // One question at a time: scrapes that come together must not multiply the daemon's work.
    let asking = Mutex::new(());
    let answer = move |ask: &Ask| {
        let _alone = asking
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        answered(&folder, ask)
    };
    match serve(&listener, answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&format!("cannot accept connections: {error}")),
    }
}

fn answered(folder: &Path, ask: &Ask) -> Answer {
    match ask.path.as_str() {
        "/metrics" => {
            let format = Format::accepted(&ask.accept);
            let snapshot = snapshot(folder);
            if let Err(error) = &snapshot {
                note(&error.message);
            }
            Answer {
                status: 200,
                media_type: format.media_type(),
                body: encode(&families(snapshot.ok().as_ref()), format),
            }
        }
        "/" => match report(folder) {
            Ok(report) => Answer {
                status: 200,
                media_type: "text/html; charset=utf-8",
                body: page(&report),
            },
            Err(error) => Answer::plain(503, &error.message),
        },
        "/healthz" => Answer::plain(200, "ok"),
        _ => Answer::plain(404, "there is /metrics, / and /healthz"),
    }
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
fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "gpushare-exporter: {line}");
}

fn failed(line: &str) -> ExitCode {
    note(line);
    ExitCode::FAILURE
}
