//! `softgpu-inspect NAME`: prints the true state of a named machine as JSON; exit status 1 if no
//! process has it open.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        eprintln!("usage: softgpu-inspect NAME");
        return ExitCode::from(2);
    };
    match softgpu::inspect::snapshot(&name) {
        Ok(Some(snapshot)) => {
            let written = writeln!(std::io::stdout(), "{}", snapshot.to_json());
            if written.is_ok() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(2)
            }
        }
        Ok(None) => {
            eprintln!("softgpu-inspect: no process has devices named `{name}` open");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("softgpu-inspect: {error}");
            ExitCode::from(2)
        }
    }
}
