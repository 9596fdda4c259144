//! The one table of variables: a row each, with its grammar.

use super::error::LimitError;
use super::layer::Whose;
use super::layer::{Entry, Selector};
use super::model::{Limits, Owner, View};
use super::setting::Setting;
use super::{compute, near, policy};
use crate::paths;
use crate::size::{self, BadSize, Size};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Device suffixes a variable may carry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Suffix {
    None,
    /// `_<n>`
    Ordinal,
    /// `_<n>` or `_<UUID>`, with `_` for `-`
    Device,
}

type Read = fn(&mut Limits, &Setting<'_>) -> Result<(), LimitError>;

/// A row: name, suffixes, reader. Ours come first, because whether an alias matters depends on
/// them.
const TABLE: [(&str, Suffix, Read); 24] = [
    ("GPUSHARE_DISABLE", Suffix::None, disable),
    ("GPUSHARE_MEM_LIMIT", Suffix::Device, |to, set| {
        ours(to, set, false)
    }),
    ("GPUSHARE_MEM_REQUEST", Suffix::Device, |to, set| {
        ours(to, set, true)
    }),
    ("GPUSHARE_MEM_VIEW", Suffix::None, view),
    ("GPUSHARE_SM_LIMIT", Suffix::Device, |to, set| {
        compute::sm_limit(&mut to.time, set)
    }),
    ("GPUSHARE_SM_REQUEST", Suffix::Device, |to, set| {
        to.policy.needs_daemon(set);
        compute::sm_request(&mut to.time, set)
    }),
    ("GPUSHARE_PRIORITY", Suffix::None, |to, set| {
        policy::priority(&mut to.policy, set)
    }),
    ("GPUSHARE_ON_COLLISION", Suffix::None, |to, set| {
        policy::on_collision(&mut to.policy, set)
    }),
    ("GPUSHARE_WAIT_TIMEOUT", Suffix::None, |to, set| {
        policy::wait_timeout(&mut to.policy, set)
    }),
    ("GPUSHARE_IDLE_AFTER", Suffix::None, |to, set| {
        policy::idle_after(&mut to.policy, set)
    }),
    ("GPUSHARE_PREEMPTIBLE", Suffix::None, |to, set| {
        policy::preemptible(&mut to.policy, set)
    }),
    ("GPUSHARE_IDLE_END", Suffix::None, |to, set| {
        policy::idle_end(&mut to.policy, set)
    }),
    ("GPUSHARE_RUN_LIMIT", Suffix::None, |to, set| {
        policy::run_limit(&mut to.policy, set)
    }),
    ("GPUSHARE_GANG", Suffix::None, |to, set| {
        policy::gang(&mut to.policy, set)
    }),
    ("GPUSHARE_OVERSUBSCRIBE", Suffix::None, |to, set| {
        policy::oversubscribe(&mut to.policy, set)
    }),
    ("GPUSHARE_SOCKET", Suffix::None, socket),
    ("CUDA_DEVICE_MEMORY_LIMIT", Suffix::Ordinal, hami),
    ("CUDA_DEVICE_SM_LIMIT", Suffix::Ordinal, |to, set| {
        compute::hami(&mut to.time, set)
    }),
    ("CUDA_TASK_PRIORITY", Suffix::None, |to, set| {
        policy::hami_priority(&mut to.policy, set)
    }),
    ("CUDA_OVERSUBSCRIBE", Suffix::None, |to, set| {
        policy::hami_oversubscribe(&mut to.policy, set)
    }),
    ("NVIDIA_GPU_MEMORY_LIMIT", Suffix::None, |to, set| {
        toolkit(to, set, false)
    }),
    ("NVIDIA_GPU_MEMORY_REQUEST", Suffix::None, |to, set| {
        toolkit(to, set, true)
    }),
    ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", Suffix::None, mps),
    (crate::mps::ACTIVE_THREADS, Suffix::None, |to, set| {
        compute::mps(&mut to.time, set)
    }),
];

/// Names under which a misspelling would silently mean "no limit".
const GUARDED: [(&str, &str); 6] = [
    (
        "GPUSHARE_MEM_",
        "GPUSHARE_MEM_LIMIT, GPUSHARE_MEM_REQUEST (each also with _<0 to 15>, _GPU_<UUID, its dashes as _> or _MIG_<UUID>), GPUSHARE_MEM_VIEW",
    ),
    (
        "GPUSHARE_SM_",
        "GPUSHARE_SM_LIMIT, GPUSHARE_SM_REQUEST (each also with _<0 to 15>, _GPU_<UUID, its dashes as _> or _MIG_<UUID>)",
    ),
    (
        "CUDA_DEVICE_MEMORY_LIMIT",
        "CUDA_DEVICE_MEMORY_LIMIT, also with _<0 to 15>",
    ),
    (
        "CUDA_DEVICE_SM_LIMIT",
        "CUDA_DEVICE_SM_LIMIT, also with _<0 to 15>",
    ),
    ("NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_LIMIT"),
    ("NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_REQUEST"),
];

/// Our prefix, under which every variable means something.
const OURS: &str = "GPUSHARE_";
/// Our variables that are no limits and are read elsewhere.
const PLUMBING: [&str; 4] = [
    paths::TENANT,
    paths::IN_FILES,
    "GPUSHARE_LOG",
    "GPUSHARE_DAEMON_CONFIG",
];
/// The smallest limit: less is a slip of the pen, and no context fits.
const LEAST: u64 = crate::units::MIB;

/// The set values, by row and device: each row's in a stable order, whatever the environment's.
type Set = BTreeMap<(usize, Selector), (String, OsString)>;

/// Reads every variable of the table, in the table's order; a default only where the same is not
/// set.
pub(super) fn read(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    defaults: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Limits, LimitError> {
    let own = gather(environment)?;
    let mut usual = gather(defaults)?;
    usual.retain(|what, _| !own.contains_key(what));
    let mut limits = Limits::default();
    for (whose, all) in [(Whose::Own, own), (Whose::Default, usual)] {
        for ((row, device), (variable, value)) in all {
            let value = value.to_string_lossy();
            let (.., read) = TABLE[row];
            let setting = Setting {
                whose,
                variable: &variable,
                device,
                value: &value,
            };
            read(&mut limits, &setting)?;
        }
    }
    Ok(limits)
}

fn gather(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Set, LimitError> {
    let mut set = Set::new();
    for (name, value) in environment {
        let Ok(name) = name.into_string() else {
            continue;
        };
        let Some((row, device)) = find(&name, &value)? else {
            continue;
        };
        match set.get(&(row, device)) {
            Some((first, _)) if *first == name => continue,
            Some((first, _)) => return Err(twice(&name, &value, first)),
            None => set.insert((row, device), (name, value)),
        };
    }
    Ok(set)
}

/// Whether a variable of this name is read, but for the switch and the plumbing.
pub(super) fn knows(name: &str) -> bool {
    asks(name, &OsString::new()).unwrap_or(false)
}

/// The row and device that a variable of this name means, if it means any.
pub(super) fn place(name: &str) -> Option<(usize, Selector)> {
    find(name, &OsString::new()).ok().flatten()
}

/// The name of a row's variable, without a device.
pub(super) fn base(row: usize) -> &'static str {
    TABLE.get(row).map_or("", |(base, ..)| base)
}

/// Whether a variable of this name is none of the table's, and none that is misspelt.
pub(super) fn is_foreign(name: &str) -> bool {
    matches!(find(name, &OsString::new()), Ok(None))
}

/// As [`knows`], and an error for the name of no variable that looks like one.
pub(super) fn asks(name: &str, value: &OsString) -> Result<bool, LimitError> {
    let plumbing = matches!(name, "GPUSHARE_DISABLE" | "GPUSHARE_SOCKET");
    Ok(find(name, value)?.is_some() && !plumbing)
}

/// Whether Kubernetes makes a variable of this name from that of a service, in each pod beside it:
/// `GPUSHARE_EXPORTER_SERVICE_HOST`. No limit is misspelt so.
fn is_of_a_service(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // NAME_PORT, or NAME_PORT_80_TCP with nothing, _PROTO, _PORT or _ADDR behind.
    let is_port = |rest: &str| {
        let mut parts = rest.split('_').skip(1);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (None, ..) => rest.is_empty(),
            (
                Some(port),
                Some("TCP" | "UDP" | "SCTP"),
                None | Some("PROTO" | "PORT" | "ADDR"),
                None,
            ) => is_number(port),
            _ => false,
        }
    };
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name
            .match_indices("_PORT")
            .any(|(at, found)| is_port(&name[at + found.len()..]))
}

/// The row and device a variable's name means; an error if it is of a guarded family and means
/// none.
fn find(name: &str, value: &OsString) -> Result<Option<(usize, Selector)>, LimitError> {
    let row = TABLE
        .iter()
        .enumerate()
        .find_map(|(row, (base, suffix, _))| {
            let rest = name.strip_prefix(base)?;
            let device = match (suffix, rest.strip_prefix('_')) {
                _ if rest.is_empty() => Selector::All,
                (Suffix::Device | Suffix::Ordinal, Some(device)) => Selector::parse(device, '_')?,
                _ => return None,
            };
            let fits = *suffix == Suffix::Device || !matches!(device, Selector::Uuid(_));
            fits.then_some((row, device))
        });
    if row.is_none() && is_of_a_service(name) {
        return Ok(None);
    }
    match GUARDED
        .iter()
        .find(|(family, _)| row.is_none() && name.starts_with(family))
    {
        Some((_, accepted)) => {
            let problem =
                "there is no such variable, and ignoring a misspelt limit would mean none";
            let accepted = match near::close(name, OURS, &of_ours()).filter(|_| is_misspelt(name)) {
                Some(known) => format!("{known}, if that was meant, or: {accepted}"),
                None => (*accepted).to_owned(),
            };
            Err(LimitError::new(
                name,
                value.to_string_lossy(),
                problem,
                accepted,
            ))
        }
        None if row.is_none() && name.starts_with(OURS) && !PLUMBING.contains(&name) => {
            Err(unknown(name, value))
        }
        None => Ok(row),
    }
}

/// Whether a name is one of ours that is misspelt in its own letters, not in those of a device.
fn is_misspelt(name: &str) -> bool {
    name.starts_with(OURS) && !of_ours().iter().any(|known| name.starts_with(known))
}

/// The names of our variables.
fn of_ours() -> Vec<&'static str> {
    let names = TABLE.iter().map(|(known, ..)| *known).chain(PLUMBING);
    names.filter(|known| known.starts_with(OURS)).collect()
}

/// The refusal of a variable of ours that there is not, with the one it may have been meant to be.
fn unknown(name: &str, value: &OsString) -> LimitError {
    let ours = of_ours();
    let accepted = match near::close(name, OURS, &ours) {
        Some(known) => format!("{known}, if that was meant"),
        None => ours.join(", "),
    };
    LimitError::new(
        name,
        value.to_string_lossy(),
        "there is no such variable, and a misspelt one would be without effect",
        accepted,
    )
}

/// Refuses a limit under which nothing can run; `text` is how it is written. Of a bare number it
/// asks whether one of `perhaps` was meant: a part of the device and a size for one up to 100, and
/// a size for a larger one.
fn meant(
    set: &Setting<'_>,
    (text, bytes): (&str, u64),
    perhaps: [&[&str]; 2],
) -> Result<(), LimitError> {
    if bytes >= LEAST {
        return Ok(());
    }
    let units = perhaps[usize::from(bytes > 100)].iter();
    let perhaps: Vec<String> = units.map(|unit| format!("{text}{unit}")).collect();
    let number = text.rsplit('=').next().unwrap_or_default();
    let accepted = match number.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("at least 1MiB; did you mean {}?", perhaps.join(" or ")),
        false => "at least 1MiB".to_owned(),
    };
    let problem = format!("{bytes} bytes of device memory are less than any program needs");
    Err(set.refuse(problem, accepted))
}

fn twice(name: &str, value: &OsString, first: &str) -> LimitError {
    let problem = format!("{first} is for the same device");
    LimitError::new(
        name,
        value.to_string_lossy(),
        problem,
        "one value per device",
    )
}

fn disable(limits: &mut Limits, set: &Setting<'_>) -> Result<(), LimitError> {
    limits.disabled = match set.value {
        "1" => true,
        "0" | "" => false,
        _ => return Err(set.refuse("it is a switch", "1 or 0")),
    };
    Ok(())
}

fn socket(limits: &mut Limits, set: &Setting<'_>) -> Result<(), LimitError> {
    let folder = PathBuf::from(set.value);
    if !folder.is_absolute() {
        return Err(set.refuse(
            "it is not an absolute path",
            "the folder in which the daemon's gpushare.sock lies (/run/gpushare)",
        ));
    }
    limits.socket = Some(folder);
    Ok(())
}

fn view(limits: &mut Limits, set: &Setting<'_>) -> Result<(), LimitError> {
    limits.view = match set.value {
        "limit" => View::Limit,
        "request" => View::Request,
        _ => return Err(set.refuse("not understood", "limit or request")),
    };
    Ok(())
}

fn ours(limits: &mut Limits, set: &Setting<'_>, request: bool) -> Result<(), LimitError> {
    let size = match request {
        true => Size::parse_request(set.value).map_err(|bad| (bad, size::REQUESTED)),
        false => Size::parse(set.value).map_err(|bad| (bad, size::ACCEPTED)),
    };
    let size = size.map_err(|(bad, accepted)| set.refuse(problem(bad, set.value), accepted))?;
    if let (Size::Bytes(bytes), false) = (size, request) {
        meant(set, (set.value, bytes), [&["%", "GiB"], &["MiB"]])?;
    }
    limits.insert(set, Owner::Gpushare, request, set.device, size);
    Ok(())
}

fn hami(limits: &mut Limits, set: &Setting<'_>) -> Result<(), LimitError> {
    let accepted =
        "bytes, or a whole number with k, m or g (powers of two: 4g); 0 or empty for no limit";
    let bytes = size::parse_letters(set.value, false)
        .map_err(|bad| set.refuse(plain(bad, set.value), accepted))?;
    if let Some(bytes) = bytes {
        meant(set, (set.value, bytes), [&["g"], &["m"]])?;
        limits.insert(set, Owner::Hami, false, set.device, Size::Bytes(bytes));
    }
    Ok(())
}

fn toolkit(limits: &mut Limits, set: &Setting<'_>, request: bool) -> Result<(), LimitError> {
    let accepted = "a whole number of MiB (4096); 0 or empty for none";
    let bytes = size::parse_mebibytes(set.value)
        .map_err(|bad| set.refuse(plain(bad, set.value), accepted))?;
    if let Some(bytes) = bytes {
        limits.insert(set, Owner::Toolkit, request, set.device, Size::Bytes(bytes));
    }
    Ok(())
}

/// `0=4G,GPU-…=512M`; an empty value is no limit.
fn mps(limits: &mut Limits, set: &Setting<'_>) -> Result<(), LimitError> {
    let accepted = "a list of <device>=<size> (0=4G,1=512M), a device being 0 to 15 or a whole UUID, a size a whole number with K, M or G";
    for item in set.value.split(',').filter(|_| !set.value.is_empty()) {
        let read = item.split_once('=').and_then(|(device, size)| {
            Some((
                Selector::parse(device, '-')?,
                size::parse_letters(size, true).ok()?,
            ))
        });
        let Some((device, bytes)) = read else {
            return Err(set.refuse(format!("{item:?} is not understood"), accepted));
        };
        let Some(bytes) = bytes else { continue };
        meant(set, (item, bytes), [&["G"], &["M"]])?;
        if limits
            .insert(set, Owner::Mps, false, device, Size::Bytes(bytes))
            .is_some()
        {
            return Err(set.refuse(format!("device {device} occurs twice"), accepted));
        }
    }
    Ok(())
}

/// What is wrong with a size of our grammar, and which one was perhaps meant.
pub(super) fn problem(bad: BadSize, text: &str) -> String {
    let problem = plain(bad, text);
    match size::perhaps(text).filter(|_| bad == BadSize::Grammar) {
        Some(meant) => format!("{problem}; did you mean {meant}?"),
        None => problem.to_owned(),
    }
}

/// What is wrong with a size, whose grammar may be another's.
fn plain(bad: BadSize, text: &str) -> &'static str {
    match bad {
        BadSize::Grammar => "not understood as a size",
        BadSize::Zero => "it comes to zero",
        BadSize::TooLarge if text.ends_with('%') => "it is too large: the device is 100%",
        BadSize::TooLarge => "it is too large",
    }
}

impl Limits {
    fn insert(
        &mut self,
        set: &Setting<'_>,
        owner: Owner,
        request: bool,
        device: Selector,
        size: Size,
    ) -> Option<Entry> {
        let entry = set.entry(size);
        let layer = self.memory.of(set.whose, owner as usize);
        if request {
            layer.request.insert(device, entry)
        } else {
            layer.limit.insert(device, entry)
        }
    }
}
