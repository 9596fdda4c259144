//! The cost of the journal: processor time of its thread and of the loop's hand-over, at a steady
//! rate of events. `cargo run --release -p gpushared --example journal [EVENTS_A_SECOND [SECONDS]]`
#![allow(clippy::print_stdout, reason = "it prints what it measured")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpushare_journal::{Bounds, Readers};
use gpushare_protocol::wire::{EventDevice, EventRecord, Fact};
use gpushared::journal::{Files, Journal, SOCKET, log};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut given = std::env::args().skip(1);
    let rate: u64 = given.next().map_or(Ok(1000), |text| text.parse())?;
    let seconds: u64 = given.next().map_or(Ok(5), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    // As in the daemon: lines of the log go to a file.
    let lines = std::fs::File::create(folder.path().join("log"))?;
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::sync::Mutex::new(lines))
        .init();
    let files = Files::new(folder.path().join("j"), Bounds::default(), Readers::Owner);
    let journal = Journal::start(vec![Box::new(files), log(SOCKET.as_ref())])?;
    let record = |number| {
        EventRecord {
        instance: 1,
        number,
        at_ms: 1_700_000_000_000,
        kind: "refused".to_owned(),
        tenant: Some("train".to_owned()),
        device: Some(EventDevice {
            uuid: [7; 16],
            index: 0,
        }),
        text: "3 allocations were refused: over its own limit of 12 GiB, of which 11.9 GiB are charged".to_owned(),
        facts: ["count", "limit_bytes", "charged_bytes", "over_limit"]
            .map(|name| (name.to_owned(), Fact::Number(12_884_901_888)))
            .into(),
    }
    };
    let began = Instant::now();
    let before = spent();
    for number in 1..=rate * seconds {
        journal.put(&Arc::new(record(number)));
        let due = began + Duration::from_nanos(1_000_000_000 / rate * number);
        // A pause every fifty events: what hands them over is not what is measured.
        if number % 50 == 0 {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
    let took = began.elapsed();
    drop(journal);
    let spent = spent() - before;
    let kept = gpushare_journal::read(&folder.path().join("j"), 0)?;
    println!(
        "{rate} events/s for {seconds} s: {:.2} % of a core; {} of {} kept",
        spent.as_secs_f64() / took.as_secs_f64() * 100.0,
        kept.records.len(),
        rate * seconds
    );
    Ok(())
}

/// Processor time of the process.
fn spent() -> Duration {
    let usage =
        getrusage(UsageWho::RUSAGE_SELF).map(|usage| usage.user_time() + usage.system_time());
    let micros = usage.map_or(0, |time| time.num_microseconds());
    Duration::from_micros(micros.unsigned_abs())
}
