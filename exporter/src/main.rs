//! `gpushare-exporter`: serves what the machine's daemon knows over HTTP. It needs no rights: any
//! user may ask the daemon's control socket.
#![forbid(unsafe_code)]

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use gpushare_exporter::answers::{Answers, note};
use gpushare_exporter::http::{Ask, serve};

/// Serves Prometheus metrics of this machine's gpushare daemon, and a page about it.
#[derive(Debug, Parser)]
#[command(version = gpushare_protocol::build!(), max_term_width = 100)]
struct Args {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9836")]
    listen: SocketAddr,
    /// The daemon's folder.
    #[arg(long, value_name = "FOLDER", default_value = MACHINE)]
    runtime_dir: PathBuf,
    /// The folder of the daemon's journal, for events of before its start. By default that of the
    /// machine's daemon, where the daemon's folder is the machine's.
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
}

/// The folders of the machine's daemon.
const MACHINE: &str = "/run/gpushare";
const JOURNAL: &str = "/var/lib/gpushare";

fn main() -> ExitCode {
    let args = Args::parse();
    let listener = match TcpListener::bind(args.listen) {
        Ok(listener) => listener,
        Err(error) => return failed(&format!("cannot listen at {}: {error}", args.listen)),
    };
    let at = listener.local_addr().unwrap_or(args.listen);
    note(&format!("serving http://{at}/metrics"));
    let of_machine = args.runtime_dir == Path::new(MACHINE);
    let journal = of_machine.then(|| JOURNAL.into());
    let answers = Answers::of(args.runtime_dir, args.state_dir.or(journal));
    match serve(&listener, move |ask: &Ask| answers.answer(ask)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&format!("cannot accept connections: {error}")),
    }
}

fn failed(line: &str) -> ExitCode {
    note(line);
    ExitCode::FAILURE
}
