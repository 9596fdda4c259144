//! `gpushare`: runs programs under an exact share of one GPU's memory.
//!
//! `main` maps outcomes to exit statuses; each command is one file.
#![forbid(unsafe_code)]

mod args;
mod artefacts;
mod bench;
mod cdi;
mod child;
mod daemon;
mod devices;
mod doctor;
mod environment;
mod events;
mod failure;
mod gpu;
mod history;
mod host;
mod in_files;
mod links;
mod listener;
mod log_file;
mod manual;
mod metrics;
mod mps;
mod names;
mod order;
mod output;
mod perfetto;
mod plan;
mod preload;
mod program;
mod ps;
mod registered;
mod report;
mod residency;
mod run;
mod select;
mod service;
mod settings;
mod shares;
mod sharing;
mod supervise;
mod suspend;
mod tenant;
mod threads;
mod top;
mod watch;
mod when;
mod why;

use args::{Args, Bench, Cdi, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(errno) = gpushare_sys::spawn::keep_children() {
        output::note(&format!("note: SIGCHLD stays as it is: {errno}"));
    }
    let result = match Args::try_parse() {
        Ok(Args {
            command: Command::Run(run),
        }) => run::run(run),
        Ok(Args {
            command: Command::Env(env),
        }) => environment::print(env),
        Ok(Args {
            command: Command::Devices(devices),
        }) => devices::print(devices),
        Ok(Args {
            command: Command::Ps(ps),
        }) => watch::ps(&ps),
        Ok(Args {
            command: Command::Set(set),
        }) => ps::set(&set),
        Ok(Args {
            command: Command::Suspend(named),
        }) => suspend::suspend(&named),
        Ok(Args {
            command: Command::Resume(named),
        }) => suspend::resume(&named),
        Ok(Args {
            command: Command::Events(events),
        }) => events::events(&events),
        Ok(Args {
            command: Command::Doctor(doctor),
        }) => doctor::doctor(&doctor),
        Ok(Args {
            command: Command::Why(why),
        }) => why::why(&why),
        Ok(Args {
            command: Command::Cdi(Cdi::Generate(generate)),
        }) => cdi::generate(&generate),
        Ok(Args {
            command: Command::Report(report),
        }) => report::report(&report),
        Ok(Args {
            command: Command::Top(top),
        }) => top::top(&top),
        Ok(Args {
            command: Command::Metrics(metrics),
        }) => metrics::print(&metrics),
        Ok(Args {
            command: Command::Bench(Bench::Share(share)),
        }) => bench::share(&share),
        Ok(Args {
            command: Command::Bench(Bench::Interference(interference)),
        }) => bench::interference(&interference),
        Ok(Args {
            command: Command::Bench(Bench::Swap(swap)),
        }) => bench::swap(&swap),
        Ok(Args {
            command: Command::Bench(Bench::Swapper(swapper)),
        }) => bench::swapper(&swapper),
        Ok(Args {
            command: Command::Bench(Bench::Worker(worker)),
        }) => bench::worker(&worker),
        Ok(Args {
            command: Command::Completions(completions),
        }) => manual::completions(&completions),
        Ok(Args {
            command: Command::Man(man),
        }) => manual::man(&man),
        Err(usage) => args::usage(&usage),
    };
    result.unwrap_or_else(|failure| {
        let status = failure::status(failure.status, args::is_run());
        if args::asks_for_json() {
            output::failed(status, &failure.message);
        } else {
            output::note(&failure.message);
            environment::fail_shell();
        }
        ExitCode::from(status)
    })
}
