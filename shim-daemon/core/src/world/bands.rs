//! Which tenants are steered as one on the devices they share.

use super::World;
use crate::ids::TenantId;
use crate::lease::Band;

impl World {
    /// A tenant arrived at a device or left it (`came`: the arrived tenant). Recomputes the bands.
    pub(super) fn form_bands(&mut self, came: Option<TenantId>) {
        let mut bands = self.leases.bands();
        // After those it may have left.
        if let Some(band) = came.map(|tenant| self.band_of(tenant)) {
            bands.retain(|other| *other != band);
            bands.push(band);
        }
        for band in bands {
            self.form_band(band);
        }
    }

    fn band_of(&self, tenant: TenantId) -> Band {
        let known = self.tenants.get(tenant);
        let gang = known.and_then(|known| known.spec().gang.clone());
        gang.map_or(Band::Alone(tenant), Band::Named)
    }

    fn form_band(&mut self, band: Band) {
        let members: Vec<TenantId> = match &band {
            Band::Alone(tenant) if self.band_of(*tenant) == band => vec![*tenant],
            Band::Alone(_) => Vec::new(),
            Band::Named(gang) => {
                let all = self.tenants.all();
                let named = all.filter(|(_, known)| known.spec().gang.as_ref() == Some(gang));
                named.map(|(tenant, _)| tenant).collect()
            }
        };
        self.leases.form(self.timers.now(), band, &members);
    }
}
