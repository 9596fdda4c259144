//! Which containers are steered as one on the devices they share.

use super::World;
use crate::ids::ContainerId;
use crate::lease::Band;

impl World {
    /// Somebody came to a device or left it (`came` is who came): finds out anew which bands there
    /// are.
    pub(super) fn form_bands(&mut self, came: Option<ContainerId>) {
        let mut bands = self.bands.all();
        // After those it may have left.
        if let Some(band) = came.map(|container| self.band_of(container)) {
            bands.retain(|other| *other != band);
            bands.push(band);
        }
        for band in bands {
            self.form_band(band);
        }
    }

    fn band_of(&self, container: ContainerId) -> Band {
        let known = self.containers.get(&container);
        let gang = known.and_then(|known| known.spec.gang.clone());
        gang.map_or(Band::Alone(container), Band::Named)
    }

    fn form_band(&mut self, band: Band) {
        let members: Vec<ContainerId> = match &band {
            Band::Alone(container) if self.band_of(*container) == band => vec![*container],
            Band::Alone(_) => Vec::new(),
            Band::Named(gang) => {
                let all = self.containers.iter();
                let named = all.filter(|(_, known)| known.spec.gang.as_ref() == Some(gang));
                named.map(|(container, _)| *container).collect()
            }
        };
        self.bands
            .form(self.now, &mut self.schedules, band, &members);
    }
}
