//! `gpushare devices`, and the same question asked of a child for another environment.

use crate::args::Devices;
use crate::artefacts::own_executable;
use crate::failure::Failure;
use crate::output;
use crate::settings::Environment;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::uuid::Uuid;
use gpushare_sys::devices::{Device, list};
use std::ffi::OsStr;
use std::io::Read;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest the driver may take to say what it has. A first start without persistence mode takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lists the devices as a table or as JSON.
pub(crate) fn print(arguments: Devices) -> Result<ExitCode, Failure> {
    let devices = list().map_err(Failure::ours)?;
    let text = if arguments.json {
        serde_json::to_string(&devices).map_err(Failure::ours)?
    } else {
        devices.iter().map(row).collect::<Vec<_>>().join("\n")
    };
    if !text.is_empty() {
        output::data(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(device: &Device) -> String {
    let Device {
        ordinal,
        uuid,
        name,
        memory,
    } = device;
    format!(
        "{ordinal}  {}  {:>10}  {name}",
        Uuid(*uuid),
        Bytes(*memory).human()
    )
}

/// Asks a child started in `environment`, without our library or any other, so that neither a limit nor a driver that
/// hangs stands in the way.
pub(crate) fn probe(environment: &Environment) -> Result<Vec<Device>, String> {
    let executable = own_executable().map_err(|failure| failure.message)?;
    let plain = environment
        .iter()
        .filter(|(name, _)| *name != OsStr::new("LD_PRELOAD"));
    let mut child = Command::new(executable)
        .args(["devices", "--json"])
        .env_clear()
        .envs(plain)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start myself: {error}"))?;
    let Some(status) = wait_within(&mut child, PATIENCE) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!(
            "the driver did not answer within {} s",
            PATIENCE.as_secs()
        ));
    };
    let read = |stream: Option<&mut dyn Read>| {
        let mut text = String::new();
        stream.map(|stream| stream.read_to_string(&mut text));
        text
    };
    if status.success() {
        let answer = read(child.stdout.as_mut().map(|stream| stream as &mut dyn Read));
        return serde_json::from_str(&answer)
            .map_err(|error| format!("the probe's answer is not understood: {error}"));
    }
    let complaint = read(child.stderr.as_mut().map(|stream| stream as &mut dyn Read));
    let complaint = complaint.trim().trim_start_matches("gpushare: ");
    Err(if complaint.is_empty() {
        format!("the driver ended the probe: {status}")
    } else {
        complaint.to_owned()
    })
}

/// Looks every millisecond: a handler for SIGCHLD would stay in force and change how CMD is supervised.
fn wait_within(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if started.elapsed() < patience => sleep(Duration::from_millis(1)),
            _ => return None,
        }
    }
}
