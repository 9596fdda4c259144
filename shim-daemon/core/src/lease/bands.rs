//! Gangs on shared devices: tenants whose kernels wait for peers on other devices are closed and
//! opened as one.
//!
//! A *band* is a tenant with processes on several devices, or all tenants of one named gang. Its
//! kernel may occupy a device until a peer on another device has run. So no device closes its part
//! of a band alone: each device states its wish, and a band is closed on all its devices or on
//! none. A kernel whose peer was not launched before the gates closed keeps its device busy until
//! they open again. So a band is closed for a short time only, and then open for as long. A band
//! that is within its share on one of its devices is not closed for being ahead on another.
//!
//! A band that uses less than two of its places is *loose*: no peer waits on a device that it does
//! not use, and each of its tenants is steered as one of no band.

use super::device::DeviceTime;
use super::shared::{Joint, Neighbours, Part, Wish};
use super::terms::LeasePolicy;
use crate::ids::{DeviceId, Gang, TenantId};
use crate::time::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// The longest time a band is closed because it is ahead or because other tenants rank higher. A
/// cap closes it for as long as the cap requires.
const LONGEST: Nanos = Nanos::millis(50);

/// The shortest it is open in between: each time it closes a peer may be left waiting.
const SHORTEST: Nanos = Nanos::millis(10);

/// A band is loose once it has used less than two of its places for so long: what it does is seen
/// at the next look only.
const SURE: Nanos = Nanos::millis(100);

/// The identity of a band.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Band {
    /// A tenant by itself.
    Alone(TenantId),
    /// All tenants of one named gang.
    Named(Gang),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its gates are open, and stay so until then.
    Open(Nanos),
    /// They are closed, since then.
    Shut(Nanos),
}

type Places = BTreeSet<(DeviceId, TenantId)>;

/// A band: what is decided for it, and its tenants on their devices.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    stage: Stage,
    neighbours: Neighbours,
    loose: bool,
    /// Since when it uses less than two of its places.
    unused: Option<Nanos>,
    /// See [`Joint::asked`].
    asked: bool,
    places: Places,
}

/// The bands of a node. Call [`Self::settle`] after anything that happened on a device.
#[derive(Debug, Default)]
pub(crate) struct Bands {
    bands: BTreeMap<Band, State>,
}

impl Bands {
    /// Whether there are no bands, so that [`Self::settle`] has no effect.
    pub(crate) fn is_empty(&self) -> bool {
        self.bands.is_empty()
    }

    /// All bands.
    pub(crate) fn all(&self) -> Vec<Band> {
        self.bands.keys().cloned().collect()
    }

    /// Recomputes a band's devices. One tenant on one device is no band.
    pub(crate) fn form(
        &mut self,
        now: Nanos,
        devices: &mut BTreeMap<DeviceId, DeviceTime>,
        band: Band,
        members: &[TenantId],
    ) {
        let mut places = Places::new();
        for (device, time) in devices.iter() {
            let here = members.iter().filter(|member| time.has(**member));
            places.extend(here.map(|member| (*device, *member)));
        }
        if places.len() < 2 {
            places.clear();
        }
        let mut state = self.bands.remove(&band).unwrap_or(State {
            stage: Stage::Open(now),
            neighbours: Neighbours::Apart,
            loose: false,
            unused: None,
            asked: false,
            places: Places::new(),
        });
        let before = std::mem::replace(&mut state.places, places);
        for (device, id) in before.difference(&state.places) {
            bind(devices, now, (*device, *id), None);
        }
        state.bind(now, devices);
        if !state.places.is_empty() {
            self.bands.insert(band, state);
        }
    }

    /// Brings all bands to where they should be now.
    pub(crate) fn settle(&mut self, now: Nanos, devices: &mut BTreeMap<DeviceId, DeviceTime>) {
        for state in self.bands.values_mut() {
            if state.advance(now, devices) {
                state.bind(now, devices);
            }
        }
    }
}

impl State {
    fn joint(&self) -> Joint {
        match self.loose {
            true => Joint::LOOSE,
            false => Joint {
                shut: matches!(self.stage, Stage::Shut(_)),
                neighbours: self.neighbours,
                loose: false,
                asked: self.asked,
            },
        }
    }

    /// Tells all its devices what is decided.
    fn bind(&self, now: Nanos, devices: &mut BTreeMap<DeviceId, DeviceTime>) {
        for place in &self.places {
            bind(devices, now, *place, Some(self.joint()));
        }
    }

    /// Decides by what its devices say now. Whether anything changes.
    fn advance(&mut self, now: Nanos, devices: &BTreeMap<DeviceId, DeviceTime>) -> bool {
        let mates = |device: &DeviceId| -> Vec<TenantId> {
            let here = self.places.iter().filter(|(place, _)| place == device);
            here.map(|(_, id)| *id).collect()
        };
        let parts = self.places.iter();
        let parts = parts
            .filter_map(|(device, id)| devices.get(device)?.gang_part(now, *id, &mates(device)));
        let parts: Vec<Part> = parts.collect();
        let before = (self.stage, self.neighbours, self.loose, self.asked);
        self.asked = parts.iter().any(|part| part.asks);
        // What is closed uses nothing. It is not taken for loose by that, unless for long.
        let shut = matches!(self.stage, Stage::Shut(since) if now < since + LeasePolicy::RECENT);
        let uses = parts.iter().filter(|part| part.used).count() >= 2;
        self.unused = match (uses || !self.asked, shut) {
            (true, _) => None,
            (false, true) => self.unused,
            (false, false) => self.unused.or(Some(now)),
        };
        let unused = self.unused.is_some_and(|since| now >= since + SURE);
        self.loose = unused && (self.loose || !shut);
        self.stage = match (self.loose, self.stage) {
            (true, Stage::Shut(_)) => Stage::Open(now),
            (true, open) => open,
            (false, stage) => stage.next(now, &parts),
        };
        self.neighbours = match self.loose {
            true => Neighbours::Apart,
            false => neighbours_of(self.neighbours, self.stage, &parts),
        };
        before != (self.stage, self.neighbours, self.loose, self.asked)
    }
}

impl Stage {
    fn next(self, now: Nanos, parts: &[Part]) -> Self {
        let wish = parts.iter().filter_map(|part| part.wish).max();
        let behind = parts.iter().any(|part| part.behind && part.wish.is_none());
        let must = wish == Some(Wish::Throttled);
        let asked = match wish {
            Some(Wish::Ahead) => !behind,
            Some(Wish::Rank | Wish::Throttled) => true,
            None => false,
        };
        match self {
            Self::Open(until) if must || (asked && now >= until) => Self::Shut(now),
            Self::Shut(since) if !must && (!asked || now >= since + LONGEST) => {
                let rest = (now - since).min(LONGEST).max(SHORTEST);
                Self::Open(now + rest)
            }
            stage => stage,
        }
    }
}

/// What is done with the gang's neighbours next: they are held on all its devices once the mean of
/// its lags is as much as others are helped from, until it is nothing.
fn neighbours_of(now: Neighbours, stage: Stage, parts: &[Part]) -> Neighbours {
    let lags = parts.iter().filter_map(|part| part.lag);
    let (lag, least) = lags.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let apart = parts.iter().any(|part| part.apart);
    if matches!(stage, Stage::Shut(_)) || least == 0 || apart {
        return Neighbours::Apart;
    }
    match now {
        Neighbours::Held if lag > 0 => Neighbours::Held,
        _ if lag >= least => Neighbours::Held,
        _ => Neighbours::Open,
    }
}

fn bind(
    devices: &mut BTreeMap<DeviceId, DeviceTime>,
    now: Nanos,
    (device, id): (DeviceId, TenantId),
    joint: Option<Joint>,
) {
    if let Some(time) = devices.get_mut(&device) {
        time.bind(now, id, joint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Stage = Stage::Open(Nanos::ZERO);

    /// A device with this lag of the gang, of which two are the least at which others are helped.
    fn part(lag: Option<i64>) -> Part {
        Part {
            wish: None,
            behind: true,
            lag: lag.map(|lag| (lag, 2)),
            apart: false,
            used: true,
            asks: true,
        }
    }

    fn next(now: Neighbours, lags: [Option<i64>; 3]) -> Neighbours {
        neighbours_of(now, OPEN, &lags.map(part))
    }

    #[test]
    fn the_mean_lag_holds_a_gangs_neighbours_until_it_is_nothing() {
        let [less, enough] = [[Some(1), Some(2), None], [Some(1), Some(3), None]];
        assert_eq!(next(Neighbours::Apart, less), Neighbours::Open);
        assert_eq!(next(Neighbours::Open, enough), Neighbours::Held);
        assert_eq!(next(Neighbours::Held, less), Neighbours::Held);
        let repaid = [Some(1), Some(-1), None];
        assert_eq!(next(Neighbours::Held, repaid), Neighbours::Open);
    }

    #[test]
    fn where_no_neighbour_is_each_device_steers_by_itself() {
        assert_eq!(next(Neighbours::Held, [None; 3]), Neighbours::Apart);
    }

    #[test]
    fn a_gang_that_is_closed_or_silent_ends_the_hold() {
        let mut parts = [Some(5), Some(5)].map(part);
        let held = Neighbours::Held;
        assert_eq!(neighbours_of(held, OPEN, &parts), held);
        let shut = Stage::Shut(Nanos::ZERO);
        assert_eq!(neighbours_of(held, shut, &parts), Neighbours::Apart);
        parts[1].apart = true;
        assert_eq!(neighbours_of(held, OPEN, &parts), Neighbours::Apart);
    }
}
