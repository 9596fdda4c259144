//! Which keys a mode reads. A key that it does not read is refused: it would change nothing.

use super::{MODES, Mode};

/// Keys that not every mode reads, and the modes that do. Rules about other keys too are in
/// [`super::Tenant::check`].
const OF_MODES: [(&str, &[Mode]); 3] = [
    (
        "kernel",
        &[
            Mode::Queue,
            Mode::Sync,
            Mode::Burst,
            Mode::Graph,
            Mode::Decode,
            Mode::Gang,
        ],
    ),
    (
        "depth",
        &[Mode::Queue, Mode::Burst, Mode::Graph, Mode::Gang],
    ),
    ("nodes", &[Mode::Graph, Mode::Decode]),
];

/// Whether this mode reads the key.
pub(super) fn reads(mode: Mode, key: &str) -> bool {
    let mut known = OF_MODES.iter();
    let known = known.find(|(name, _)| *name == key);
    known.is_none_or(|(_, modes)| modes.contains(&mode))
}

/// Refuses a key of these that the mode does not read.
pub(super) fn check(mode: Mode, given: &[&str]) -> Result<(), String> {
    let Some(key) = given.iter().find(|key| !reads(mode, key)) else {
        return Ok(());
    };
    let names = |wanted: &dyn Fn(Mode) -> bool| {
        let modes = MODES.iter().filter(|(_, mode)| wanted(*mode));
        let names: Vec<String> = modes.map(|(name, _)| format!("mode={name}")).collect();
        names.join(", ")
    };
    Err(format!(
        "{key}= is not for {}; it is for {}",
        names(&|own| own == mode),
        names(&|other| reads(other, key))
    ))
}
