//! `gpushare doctor`: does it hold on this node? Facts are gathered, then judged; each check says
//! what it found and what to do.

mod child;
mod facts;
mod gather;
mod judge;
mod proof;

use crate::args::Doctor;
use crate::failure::Failure;
use crate::output;
use judge::{Check, Verdict};
use serde::Serialize;
use std::io::IsTerminal;
use std::process::ExitCode;

/// The version of the form of `--json`.
const SCHEMA: u32 = 1;
/// A check failed.
const FAILED: u8 = 1;

/// The object that `--json` prints: `docs/schema/doctor.json`.
#[derive(Serialize)]
struct Report {
    schema: u32,
    verdict: Verdict,
    checks: Vec<Check>,
}

/// Checks this node, or does a child's part.
pub(crate) fn doctor(arguments: &Doctor) -> Result<ExitCode, Failure> {
    if arguments.driver {
        return said(&gather::driver());
    }
    if arguments.proof {
        return said(&proof::all_ways().map_err(Failure::ours)?);
    }
    if arguments.second {
        return said(&proof::second().map_err(Failure::ours)?);
    }
    let checks = judge::judge(&gather::facts(&arguments.gpu)?);
    let verdict = checks.iter().map(|check| check.verdict).max();
    let verdict = verdict.unwrap_or(Verdict::Ok);
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail);
    let failed: Vec<&str> = failed.map(|check| check.check).collect();
    let failed = failed.join(", ");
    if arguments.json {
        said(&Report {
            schema: SCHEMA,
            verdict,
            checks,
        })?;
    } else {
        print(&checks)?;
    }
    Ok(match verdict {
        Verdict::Fail if arguments.json => {
            let text = format!("these checks fail: {failed}; each says what to do");
            return Err(Failure::ours(text));
        }
        Verdict::Fail => ExitCode::from(FAILED),
        Verdict::Ok | Verdict::Warn => ExitCode::SUCCESS,
    })
}

fn said<T: Serialize>(what: &T) -> Result<ExitCode, Failure> {
    output::data(&serde_json::to_string(what).map_err(Failure::ours)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Columns before the words of a check.
const INDENT: usize = 24;

/// A line for each check, and below it what to do.
fn print(checks: &[Check]) -> Result<(), Failure> {
    let colour = std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let width = output::width()
        .unwrap_or(100)
        .saturating_sub(INDENT)
        .max(20);
    for check in checks {
        let (word, paint) = match check.verdict {
            Verdict::Ok => ("ok", "32"),
            Verdict::Warn => ("warn", "33"),
            Verdict::Fail => ("fail", "31"),
        };
        let word = match colour {
            true => format!("\x1b[{paint}m{word:<4}\x1b[0m"),
            false => format!("{word:<4}"),
        };
        let mut lines = output::wrapped(&check.found, width);
        if let Some(advice) = &check.advice {
            lines.extend(output::wrapped(&format!("> {advice}"), width));
        }
        for (at, line) in lines.iter().enumerate() {
            output::data(&match at {
                0 => format!("{word}  {:<18}{line}", check.check),
                _ => format!("{:INDENT$}{line}", ""),
            })?;
        }
    }
    Ok(())
}
