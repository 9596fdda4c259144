//! The one table of variables: a row each, with its grammar.

use super::layer::{Entry, Selector};
use super::{LimitError, Limits, Owner, View};
use super::{policy, unavailable};
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

/// One set variable on its way into [`Limits`].
pub(super) struct Setting<'a> {
    pub(super) variable: &'a str,
    pub(super) device: Selector,
    pub(super) value: &'a str,
}

type Read = fn(&mut Limits, &Setting<'_>) -> Result<(), LimitError>;

/// A row: name, suffixes, reader. Ours come first, because whether an unavailable alias matters depends on them.
const TABLE: [(&str, Suffix, Read); 19] = [
    ("GPUSHARE_DISABLE", Suffix::None, disable),
    ("GPUSHARE_MEM_LIMIT", Suffix::Device, |to, set| {
        ours(to, set, false)
    }),
    ("GPUSHARE_MEM_REQUEST", Suffix::Device, |to, set| {
        ours(to, set, true)
    }),
    ("GPUSHARE_MEM_VIEW", Suffix::None, view),
    ("GPUSHARE_SM_LIMIT", Suffix::Device, unavailable::sm_limit),
    ("GPUSHARE_SM_REQUEST", Suffix::Device, unavailable::refuse),
    ("GPUSHARE_PRIORITY", Suffix::None, policy::priority),
    ("GPUSHARE_ON_COLLISION", Suffix::None, policy::on_collision),
    ("GPUSHARE_WAIT_TIMEOUT", Suffix::None, policy::wait_timeout),
    ("GPUSHARE_IDLE_AFTER", Suffix::None, policy::idle_after),
    ("GPUSHARE_PREEMPTIBLE", Suffix::None, policy::preemptible),
    (
        "GPUSHARE_OVERSUBSCRIBE",
        Suffix::None,
        unavailable::oversubscribe,
    ),
    ("GPUSHARE_SOCKET", Suffix::None, socket),
    ("CUDA_DEVICE_MEMORY_LIMIT", Suffix::Ordinal, hami),
    (
        "CUDA_DEVICE_SM_LIMIT",
        Suffix::Ordinal,
        unavailable::hami_sm_limit,
    ),
    (
        "CUDA_OVERSUBSCRIBE",
        Suffix::None,
        unavailable::hami_oversubscribe,
    ),
    ("NVIDIA_GPU_MEMORY_LIMIT", Suffix::None, |to, set| {
        toolkit(to, set, false)
    }),
    ("NVIDIA_GPU_MEMORY_REQUEST", Suffix::None, |to, set| {
        toolkit(to, set, true)
    }),
    ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", Suffix::None, mps),
];

/// Names under which a misspelling would silently mean "no limit".
const GUARDED: [(&str, &str); 3] = [
    (
        "GPUSHARE_MEM_",
        "GPUSHARE_MEM_LIMIT, GPUSHARE_MEM_REQUEST (each also with _<0 to 15> or _GPU_<UUID, its dashes as _>), GPUSHARE_MEM_VIEW",
    ),
    ("GPUSHARE_SM_", "nothing yet: unset it"),
    (
        "CUDA_DEVICE_MEMORY_LIMIT",
        "CUDA_DEVICE_MEMORY_LIMIT, also with _<0 to 15>",
    ),
];

/// Reads every variable of the table, in the table's order.
pub(super) fn read(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Limits, LimitError> {
    let mut rows: [Vec<(Selector, String, OsString)>; TABLE.len()] = Default::default();
    let mut seen: BTreeMap<(usize, Selector), String> = BTreeMap::new();
    for (name, value) in environment {
        let Ok(name) = name.into_string() else {
            continue;
        };
        let Some((row, device)) = find(&name, &value)? else {
            continue;
        };
        match seen.get(&(row, device)) {
            Some(first) if *first == name => continue,
            Some(first) => return Err(twice(&name, &value, first)),
            None => seen.insert((row, device), name.clone()),
        };
        rows[row].push((device, name, value));
    }
    let mut limits = Limits::default();
    for (mut settings, (.., read)) in rows.into_iter().zip(TABLE) {
        settings.sort_unstable();
        for (device, variable, value) in settings {
            let value = value.to_string_lossy();
            read(
                &mut limits,
                &Setting {
                    variable: &variable,
                    device,
                    value: &value,
                },
            )?;
        }
    }
    Ok(limits)
}

/// Whether a variable of this name is read, but for the switch and the plumbing.
pub(super) fn knows(name: &str) -> bool {
    let plumbing = matches!(name, "GPUSHARE_DISABLE" | "GPUSHARE_SOCKET");
    !plumbing && matches!(find(name, &OsString::new()), Ok(Some(_)))
}

/// The row and device a variable's name means; an error if it is of a guarded family and means none.
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
    match GUARDED
        .iter()
        .find(|(family, _)| row.is_none() && name.starts_with(family))
    {
        Some((_, accepted)) => {
            let problem =
                "there is no such variable, and ignoring a misspelt limit would mean none";
            Err(LimitError::new(
                name,
                value.to_string_lossy(),
                problem,
                *accepted,
            ))
        }
        None => Ok(row),
    }
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
    let size = Size::parse(set.value).map_err(|bad| set.refuse(problem(bad), size::ACCEPTED))?;
    limits.insert(Owner::Gpushare, request, set.device, set.entry(size));
    Ok(())
}

fn hami(limits: &mut Limits, set: &Setting<'_>) -> Result<(), LimitError> {
    let accepted =
        "bytes, or a whole number with k, m or g (powers of two: 4g); 0 or empty for no limit";
    let bytes =
        size::parse_letters(set.value, false).map_err(|bad| set.refuse(problem(bad), accepted))?;
    if let Some(bytes) = bytes {
        limits.insert(
            Owner::Hami,
            false,
            set.device,
            set.entry(Size::Bytes(bytes)),
        );
    }
    Ok(())
}

fn toolkit(limits: &mut Limits, set: &Setting<'_>, request: bool) -> Result<(), LimitError> {
    let accepted = "a whole number of MiB (4096); 0 or empty for none";
    let bytes =
        size::parse_mebibytes(set.value).map_err(|bad| set.refuse(problem(bad), accepted))?;
    if let Some(bytes) = bytes {
        limits.insert(
            Owner::Toolkit,
            request,
            set.device,
            set.entry(Size::Bytes(bytes)),
        );
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
        if limits
            .insert(Owner::Mps, false, device, set.entry(Size::Bytes(bytes)))
            .is_some()
        {
            return Err(set.refuse(format!("device {device} occurs twice"), accepted));
        }
    }
    Ok(())
}

/// Reads the value of `--mem-limit` or `--mem-request`: `SIZE`, `<n>=SIZE` or `<UUID>=SIZE`.
/// Returns the device and the size as text, which a `GPUSHARE_*` variable takes unchanged.
///
/// # Errors
/// As for the variables, naming `flag`.
pub fn flag<'a>(flag: &str, value: &'a str) -> Result<(Selector, &'a str), LimitError> {
    let (device, size) = value
        .split_once('=')
        .map_or((None, value), |(device, size)| (Some(device), size));
    let device = device.map_or(Some(Selector::All), |device| Selector::parse(device, '-'));
    let accepted = || {
        format!(
            "SIZE, <0 to 15>=SIZE or <GPU UUID>=SIZE; a SIZE is {}",
            size::ACCEPTED
        )
    };
    let Some(device) = device else {
        return Err(LimitError::new(
            flag,
            value,
            "there is no such device",
            accepted(),
        ));
    };
    Size::parse(size).map_err(|bad| LimitError::new(flag, value, problem(bad), accepted()))?;
    Ok((device, size))
}

fn problem(bad: BadSize) -> &'static str {
    match bad {
        BadSize::Grammar => "not understood as a size",
        BadSize::Zero => "it comes to zero",
        BadSize::TooLarge => "it is too large",
    }
}

impl Setting<'_> {
    pub(super) fn refuse(
        &self,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) -> LimitError {
        LimitError::new(self.variable, self.value, problem, accepted)
    }

    fn entry(&self, size: Size) -> Entry {
        Entry {
            size,
            variable: self.variable.to_owned(),
            value: self.value.to_owned(),
        }
    }
}

impl Limits {
    fn insert(
        &mut self,
        owner: Owner,
        request: bool,
        device: Selector,
        entry: Entry,
    ) -> Option<Entry> {
        let layer = &mut self.layers[owner as usize];
        if request {
            layer.request.insert(device, entry)
        } else {
            layer.limit.insert(device, entry)
        }
    }
}
