//! `gpushare devices`, and the same question asked of a child for another environment.

use crate::args::Devices;
use crate::artefacts::own_executable;
use crate::child::{GRACE, Group, end, text, within};
use crate::daemon::{self, Talk};
use crate::failure::Failure;
use crate::gpu::{BY_BUS, ORDER};
use crate::mps;
use crate::output;
use crate::select::{self, GpuIs, Seen};
use crate::settings::Environment;
use crate::sharing;
use gpushare_client::TalkError;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{DeviceRow, ExcessRow, SharingRow};
use gpushare_sys::devices::{Device, list};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Longest the driver may take to list its devices. A first start without persistence mode takes
/// seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the driver has no GPU.
const SOFT: &str = "`gpushare run --gpu soft -- gpushare devices` shows one without hardware";

/// The version of the form of `--json`.
const SCHEMA: u32 = 1;

/// What daemons say beside the devices themselves.
#[derive(Default)]
struct Told {
    /// How the devices' time is shared.
    sharing: Vec<SharingRow>,
    /// Memory that tenants hold on a device beyond their grants.
    excess: BTreeMap<[u8; 16], u64>,
}

impl Told {
    /// What a daemon says of its devices.
    fn add(&mut self, devices: &[DeviceRow], excess: &[ExcessRow]) {
        for device in devices {
            let on = excess.iter().filter(|row| row.device == device.uuid);
            let bytes = on.map(|row| row.bytes).sum();
            self.excess.insert(device.uuid, bytes);
        }
    }
}

/// A device: as a program would see it, as a daemon knows it.
type Known = (Option<Device>, Option<DeviceRow>);

/// Lists the devices as a table or as JSON.
pub(crate) fn print(arguments: Devices) -> Result<ExitCode, Failure> {
    if arguments.driver_only {
        let devices = list().map_err(Failure::ours)?;
        output::data(&serde_json::to_string(&devices).map_err(Failure::ours)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if std::env::var_os(ORDER).is_none() {
        return Err(in_order_of_the_bus());
    }
    let gpu = select::gpu(arguments.gpu.as_deref())?;
    if let Some(folder) = mps::daemon(&std::env::vars_os().collect()) {
        output::note(&format!(
            "note: programs started here are clients of the MPS control daemon in {folder}: they take no turns, and --priority \
             orders memory only"
        ));
    }
    let (rows, told) = daemons_rows();
    let devices = match list() {
        // A daemon's devices need not be this environment's: a software GPU's, for one.
        Err(_) if !rows.is_empty() => Vec::new(),
        listed => listed.map_err(|why| Failure::ours(format!("{why}; {SOFT}")))?,
    };
    let mut known = matched(devices, rows);
    let all = known.iter().filter_map(seen).collect::<Vec<_>>();
    known.retain(|known| gpu.as_ref().is_none_or(|gpu| is(gpu, known)));
    if known.is_empty() {
        select::is_among(gpu.as_ref(), &all)?;
    }
    let text = if arguments.json {
        Value::from(
            known
                .iter()
                .map(|known| data(known, &told))
                .collect::<Vec<_>>(),
        )
        .to_string()
    } else {
        known
            .iter()
            .map(|known| row(known, &told))
            .collect::<Vec<_>>()
            .join("\n")
    };
    if !text.is_empty() {
        output::data(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts this command again, with the order in which `run --gpu` and the daemon count. The driver
/// reads it from the environment, once. Returns only if that fails.
fn in_order_of_the_bus() -> Failure {
    let own = match own_executable() {
        Ok(own) => own,
        Err(failure) => return failure,
    };
    let mut again = Command::new(own);
    again.args(std::env::args_os().skip(1)).env(ORDER, BY_BUS);
    Failure::ours(format!("cannot start myself: {}", again.exec()))
}

/// The devices of all daemons that this user can talk to, and what else these say of them. One that
/// does not serve, or leaves meanwhile, is noted.
fn daemons_rows() -> (Vec<DeviceRow>, Told) {
    let (mut rows, mut told) = (Vec::new(), Told::default());
    let ask = |daemon: &mut Talk| {
        let (devices, excess) = (daemon.devices()?, daemon.excess()?);
        Ok::<_, TalkError>((devices, excess, daemon.sharing()?))
    };
    // Where none serves, the driver's answer is all there is.
    let mut found = daemon::all();
    if !daemon::is_container() {
        found.notes().for_each(|note| output::note(&note));
    }
    let (answers, lost) = daemon::answers(&mut found.serving, ask);
    for (devices, excess, sharing) in answers {
        told.add(&devices, &excess);
        told.sharing.extend(sharing);
        rows.extend(devices);
    }
    if let Some(failure) = lost {
        output::note(&format!("note: {}", failure.message));
    }
    (rows, told)
}

/// The devices that programs see, in their order, then those that only daemons see.
fn matched(devices: Vec<Device>, mut rows: Vec<DeviceRow>) -> Vec<Known> {
    let mut known: Vec<Known> = Vec::new();
    for device in devices {
        let at = rows.iter().position(|row| row.uuid == device.uuid);
        known.push((Some(device), at.map(|at| rows.remove(at))));
    }
    known.extend(rows.into_iter().map(|row| (None, Some(row))));
    known
}

/// Whether it is that device. An index is the one that programs see here.
fn is(gpu: &GpuIs, known: &Known) -> bool {
    seen(known).is_some_and(|(uuid, ordinal)| gpu.is(uuid, ordinal))
}

fn seen((device, row): &Known) -> Option<Seen> {
    let uuid = device.as_ref().map(|device| device.uuid);
    let uuid = uuid.or_else(|| row.as_ref().map(|row| row.uuid));
    let ordinal = device.as_ref().map(|device| device.ordinal);
    Some((uuid?, ordinal))
}

/// The device's name as `CUDA_VISIBLE_DEVICES` takes it. Whether it is a MIG instance only a daemon
/// has asked.
pub(crate) fn named(row: &DeviceRow) -> String {
    let mig = row.capabilities.iter().any(|name| name == "mig");
    Uuid(row.uuid).text(mig)
}

fn data((device, row): &Known, told: &Told) -> Value {
    let node = row.as_ref().map(|row| {
        json!({
            "device": named(row),
            "capacity": row.capacity,
            "reserve": row.reserve,
            "granted": row.granted,
            "overhead": row.overhead,
            "limbo": row.limbo,
            "unmanaged": row.unmanaged,
            "excess": told.excess.get(&row.uuid),
            "capabilities": row.capabilities,
            "sharing": sharing::of(row.uuid, &told.sharing).map(sharing::data),
        })
    });
    let uuid = device.as_ref().map(|device| device.uuid);
    let name = device.as_ref().map(|device| device.name.as_str());
    json!({
        "schema": SCHEMA,
        "ordinal": device.as_ref().map(|device| device.ordinal),
        "uuid": row.as_ref().map(named).or_else(|| Some(Uuid(uuid?).to_string())),
        "name": name.or_else(|| row.as_ref().map(|row| row.name.as_str())),
        "memory": device.as_ref().map_or_else(|| row.as_ref().map(|row| row.capacity), |device| Some(device.memory)),
        "node": node,
    })
}

fn row((device, row): &Known, told: &Told) -> String {
    let line = |ordinal: &str, uuid: &str, memory: u64, name: &str| {
        format!("{ordinal}  {uuid}  {:>10}  {name}", Bytes(memory).human())
    };
    let first = match (device, row) {
        (Some(device), row) => {
            let uuid = row
                .as_ref()
                .map_or_else(|| Uuid(device.uuid).to_string(), named);
            line(
                &device.ordinal.to_string(),
                &uuid,
                device.memory,
                &device.name,
            )
        }
        (None, Some(row)) => line("-", &named(row), row.capacity, &row.name),
        (None, None) => String::new(),
    };
    let Some(row) = row else {
        return first;
    };
    let [granted, overhead, limbo, others, kept] = [
        row.granted,
        row.overhead,
        row.limbo,
        row.unmanaged,
        row.reserve,
    ]
    .map(|bytes| Bytes(bytes).human());
    let excess = told.excess.get(&row.uuid).filter(|bytes| **bytes > 0);
    let excess = excess.map_or_else(String::new, |bytes| {
        format!(
            ", {} of tenants beyond what they may",
            Bytes(*bytes).human()
        )
    });
    let time = sharing::of(row.uuid, &told.sharing).map(sharing::text);
    let time = time.map_or_else(String::new, |time| format!("\n   {time}"));
    format!(
        "{first}\n   daemon: {granted} granted, {overhead} overhead, {limbo} of the dead, {others} unmanaged, {kept} kept back{excess}; {}{time}",
        row.capabilities.join(", ")
    )
}

/// Variables that name libraries the system or the driver loads into a program: tools for the
/// program, not for the question.
const LETS_IN: &[&str] = &[
    "LD_PRELOAD",
    "CUDA_INJECTION64_PATH",
    "CUDA_INJECTION32_PATH",
];

/// Asks a child started in `environment`, without our library or any other, so that neither a limit
/// nor a driver that hangs stands in the way.
pub(crate) fn probe(environment: &Environment) -> Result<Vec<Device>, String> {
    probe_within(environment, PATIENCE)
}

/// The same of a driver that may take so long.
pub(crate) fn probe_within(
    environment: &Environment,
    patience: Duration,
) -> Result<Vec<Device>, String> {
    let executable = own_executable().map_err(|failure| failure.message)?;
    let plain = environment
        .iter()
        .filter(|(name, _)| LETS_IN.iter().all(|other| *name != OsStr::new(other)));
    let mut child = Command::new(executable)
        .args(["devices", "--driver-only"])
        .env_clear()
        .envs(plain)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start myself: {error}"))?;
    let Some(status) = within(&mut child, patience) else {
        end(&mut child, Group::Ours, GRACE);
        return Err(format!(
            "the driver did not answer within {} s",
            patience.as_secs()
        ));
    };
    if status.success() {
        return serde_json::from_str(&text(child.stdout.take()))
            .map_err(|error| format!("the probe's answer is not understood: {error}"));
    }
    let complaint = text(child.stderr.take());
    let complaint = complaint.trim().trim_start_matches("gpushare: ");
    Err(if complaint.is_empty() {
        format!("the driver ended the probe: {status}")
    } else {
        complaint.to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: [u8; 16] = [7; 16];

    fn known() -> Known {
        let row = DeviceRow {
            uuid: GPU,
            name: "H100".to_owned(),
            capacity: 80 << 30,
            reserve: 0,
            granted: 0,
            overhead: 0,
            limbo: 0,
            unmanaged: 0,
            capabilities: vec![DeviceRow::LOST.to_owned()],
        };
        (None, Some(row))
    }

    #[test]
    fn memory_beyond_what_tenants_may_is_shown_where_there_is_some() {
        let excess = |device, bytes| ExcessRow {
            name: "a".to_owned(),
            device,
            bytes,
        };
        let shown = |rows: &[ExcessRow]| {
            let (known, mut told) = (known(), Told::default());
            told.add(known.1.as_slice(), rows);
            (
                row(&known, &told),
                data(&known, &told)["node"]["excess"].clone(),
            )
        };
        let rows = [
            excess(GPU, 2 << 30),
            excess(GPU, 3 << 30),
            excess([8; 16], 1),
        ];
        let (text, data) = shown(&rows);
        assert!(
            text.contains("kept back, 5 GiB of tenants beyond what they may; lost"),
            "{text}"
        );
        assert_eq!(data, 5_u64 << 30);
        let (text, data) = shown(&[]);
        assert!(text.contains("kept back; lost"), "{text}");
        assert_eq!(data, 0);
    }
}
