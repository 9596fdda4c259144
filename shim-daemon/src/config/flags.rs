//! The daemon's flags that take the place of settings of the file.

use gpushare_protocol::units::Bytes;

use super::{read_under, room};
use crate::node::Settings;

/// What the command line says, `None` where it is silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Bytes of each device that are never given out: [`Settings::reserve`].
    pub reserve: Option<Bytes>,
    /// The most that each device is treated to have: [`Settings::capacity`].
    pub capacity: Option<Bytes>,
}

impl Flags {
    /// Settings with these in place of their own.
    ///
    /// # Errors
    /// If nothing of any device is left for tenants.
    pub fn over(self, settings: Settings) -> Result<Settings, String> {
        let settings = Settings {
            reserve: self.reserve.unwrap_or(settings.reserve),
            capacity: self.capacity.or(settings.capacity),
            ..settings
        };
        room::check(&settings)?;
        Ok(settings)
    }
}

/// Reads a file's text over `base`, where no flag says otherwise.
///
/// # Errors
/// As [`read_under`].
pub fn read(text: &str, base: Settings) -> Result<Settings, String> {
    read_under(text, base, Flags::default())
}
