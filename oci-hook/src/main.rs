//! `gpushare-oci-hook`: the OCI hook, called by a container runtime with the state on standard
//! input.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gpushare_oci_hook::Failure;
use gpushare_oci_hook::hook::{Places, Refused, create_runtime};
use gpushare_oci_hook::telling::{Log, on_standard_error};

const USAGE: &str = "usage: gpushare-oci-hook [--library DIR] [--daemon SOCKET] createRuntime";

fn main() -> ExitCode {
    // A refusal may come in the container's mount namespace, where another log is.
    let log = Log::here();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(refused) => {
            log.refuses(refused.id.as_deref(), &refused.why);
            if !refused.is_overheard {
                on_standard_error(&format!("gpushare: {}", refused.why));
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Refused> {
    // No variable of the caller has a say: an image's environment may be among them.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    std::env::set_current_dir("/").map_err(|error| Failure(format!("cannot enter /: {error}")))?;
    let mut places = Places::default();
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        let name = argument.to_string_lossy().into_owned();
        let mut value = || match arguments.next().map(PathBuf::from) {
            Some(path) if path.is_absolute() => Ok(path),
            given => Err(wrong(&name, given.as_deref())),
        };
        match argument.to_str() {
            Some("--library") => places.library = Some(value()?),
            Some("--daemon") => places.daemon = value()?,
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
            _ => return Err(usage().into()),
        }
    }
    Err(usage().into())
}

/// What a file of hooks gives wrongly, each container of the node says.
fn wrong(name: &str, given: Option<&Path>) -> Failure {
    let given = given.map_or_else(String::new, |given| format!(" {}", given.display()));
    Failure(format!(
        "the hook's argument {name}{given} is refused; accepted: an absolute path ({USAGE})"
    ))
}

fn usage() -> Failure {
    Failure(USAGE.to_owned())
}
