//! `gpushare-runtime`: stands in for runc (or crun) and adds gpushare's hook to containers that ask
//! for a share. It does not restore such a container from a checkpoint.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use gpushare_oci_hook::Failure;
use gpushare_oci_hook::log::Log;
use gpushare_oci_hook::wrapper::{Call, calls};

fn main() -> ExitCode {
    let Err(failure) = run();
    let told = format!("gpushare: {failure}");
    let _ = writeln!(std::io::stderr(), "{told}");
    // The refusal stands without it.
    if let Some(log) = Log::of(std::env::args_os().skip(1)) {
        let _ = log.add(&told);
    }
    ExitCode::FAILURE
}

fn run() -> Result<std::convert::Infallible, Failure> {
    let call = Call::of(std::env::args_os().skip(1))?;
    if let Some(bundle) = call.creates() {
        call.prepare(&bundle, &hook()?)?;
    }
    if let Some(bundle) = call.restores() {
        call.may_restore(&bundle)?;
    }
    let (name, number) = calls(&call.runtime)?;
    let mut command = Command::new(&call.runtime);
    let error = command.args(&call.arguments).env(name, number).exec();
    Err(Failure(format!(
        "cannot start {}: {error}",
        call.runtime.display()
    )))
}

/// The hook lies beside this program.
fn hook() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure(format!("cannot find the hook: {error}")))?;
    Ok(own.with_file_name("gpushare-oci-hook"))
}
