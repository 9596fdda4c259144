//! Programs that will be clients of NVIDIA's Multi-Process Service: translates their share of time,
//! before they start.

use crate::args::Share;
use crate::failure::Failure;
use crate::settings::Environment;
use gpushare_protocol::limits::Limits;
use gpushare_protocol::mps::{self, ACTIVE_THREADS, Facts, PIPE_DIRECTORY};
use gpushare_sys::devices::Device;
use std::ffi::OsStr;

/// Where the control daemon's folder is, if a program started in this environment connects to one.
pub(crate) fn daemon(environment: &Environment) -> Option<String> {
    let variable = environment
        .get(OsStr::new(PIPE_DIRECTORY))
        .map(AsRef::as_ref);
    let probed = mps::probe(variable);
    let is_client = mps::is_client(Facts {
        probed,
        driver: None,
    });
    let control = mps::control(variable).filter(|_| is_client)?;
    Some(control.parent()?.display().to_string())
}

/// Has MPS keep the program's cap, and refuses settings that it cannot keep. No effect on a program
/// that is no client. Returns notes for the user.
pub(crate) fn apply(
    share: &Share,
    limits: &Limits,
    devices: &[Device],
    environment: &mut Environment,
) -> Result<Option<String>, Failure> {
    let Some(folder) = daemon(environment) else {
        return Ok(None);
    };
    let mut caps = Vec::new();
    for device in devices {
        let time = limits
            .for_device(device.ordinal, &device.uuid, device.memory)?
            .compute;
        if time.request.is_some() {
            return Err(Failure::ours(format!(
                "{} is refused: the program would be a client of the MPS control daemon in {folder}, which guarantees no \
                 part of a device's time; give --sm-limit, or set {PIPE_DIRECTORY} to another folder",
                named(
                    &share.amounts.sm_request,
                    ("--sm-request", "GPUSHARE_SM_REQUEST"),
                    environment
                )
            )));
        }
        caps.push(time.limit);
    }
    if let Some(first) = caps.first()
        && caps.iter().any(|cap| cap != first)
    {
        return Err(Failure::ours(format!(
            "{} is refused: the program would be a client of the MPS control daemon in {folder}, which has one percentage \
             for all devices; give one --sm-limit for all",
            named(
                &share.amounts.sm_limit,
                ("--sm-limit", "GPUSHARE_SM_LIMIT"),
                environment
            )
        )));
    }
    if let Some(cap) = caps.first().copied().flatten() {
        let key = OsStr::new(ACTIVE_THREADS);
        let says = environment.get(key).map(AsRef::as_ref);
        if !mps::keeps(cap.get().into(), says) {
            let value = mps::active_threads(cap, says);
            environment.insert(key.to_owned(), value.into());
        }
    }
    let priority = environment.contains_key(OsStr::new("GPUSHARE_PRIORITY"));
    Ok(priority.then(|| {
        format!(
            "note: the program is a client of the MPS control daemon in {folder}: its priority orders memory only"
        )
    }))
}

/// A setting as it was given: by its flag, or by the variable that says it.
fn named(given: &[String], (flag, variable): (&str, &str), environment: &Environment) -> String {
    if let Some(value) = given.first() {
        return format!("{flag}={value:?}");
    }
    let mut texts = environment
        .iter()
        .filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    let said = texts.find(|(name, _)| name.starts_with(variable));
    said.map_or_else(
        || flag.to_owned(),
        |(name, value)| format!("{name}={value:?}"),
    )
}
