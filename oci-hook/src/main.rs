//! `gpushare-oci-hook`: the OCI hook, called by a container runtime with the state on standard
//! input.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use gpushare_oci_hook::Failure;
use gpushare_oci_hook::hook::{Places, create_runtime};

const USAGE: &str = "usage: gpushare-oci-hook [--library DIR] [--daemon SOCKET] createRuntime";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "gpushare: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    // No variable of the caller has a say: an image's environment may be among them.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    std::env::set_current_dir("/").map_err(|error| Failure(format!("cannot enter /: {error}")))?;
    let mut places = Places::default();
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        match argument.to_str() {
            Some("--library") => places.library = Some(value().ok_or_else(usage)?),
            Some("--daemon") => places.daemon = value().ok_or_else(usage)?,
            Some("createRuntime") if arguments.next().is_none() => {
                return create_runtime(&places, &mut std::io::stdin().lock());
            }
            Some("--version") => {
                let _ = writeln!(
                    std::io::stdout(),
                    "gpushare-oci-hook {}",
                    gpushare_protocol::build!()
                );
                return Ok(());
            }
            _ => return Err(usage()),
        }
    }
    Err(usage())
}

fn usage() -> Failure {
    Failure(USAGE.to_owned())
}
