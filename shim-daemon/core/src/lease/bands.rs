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
use neighbours::Looked;
use std::collections::{BTreeMap, BTreeSet};

mod neighbours;

/// The longest time a band is closed because it is ahead or because other tenants rank higher. A
/// cap closes it for as long as the cap requires.
const LONGEST: Nanos = Nanos::millis(50);

/// The shortest it is open in between: each time it closes a peer may be left waiting.
const SHORTEST: Nanos = Nanos::millis(10);

/// A band is loose once it has used less than two of its places for so long: what it does is seen
/// at the next look only.
const SURE: Nanos = Nanos::millis(100);

/// Bands beside each other are decided for as one once each has worked so long without a break,
/// beside like neighbours: for one that pauses that would begin and end with each of its bursts.
/// 100 ms is as long as a burst of 5 ms may take here (ADR 250).
const STEADY: Nanos = Nanos::millis(200);

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
    /// Since when it has had work without a break, beside like neighbours on its devices.
    works: Option<Nanos>,
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
            works: None,
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
        let before: Vec<Joint> = self.bands.values().map(State::joint).collect();
        let all = self.bands.values_mut();
        let looked: Vec<Looked> = all.map(|one| one.advance(now, devices)).collect();
        let decided = neighbours::decide(&looked);
        for (state, neighbours) in self.bands.values_mut().zip(decided) {
            state.neighbours = neighbours;
        }
        for (state, before) in self.bands.values().zip(before) {
            if state.joint() != before {
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

    /// Decides by what its devices say now, but for its neighbours, and returns what they say.
    fn advance(&mut self, now: Nanos, devices: &BTreeMap<DeviceId, DeviceTime>) -> Looked {
        let mates = |device: &DeviceId| -> Vec<TenantId> {
            let here = self.places.iter().filter(|(place, _)| place == device);
            here.map(|(_, id)| *id).collect()
        };
        let looked = self.places.iter().filter_map(|(device, id)| {
            let part = devices.get(device)?.gang_part(now, *id, &mates(device))?;
            Some((*device, part))
        });
        let looked: Vec<(DeviceId, Part)> = looked.collect();
        let parts: Vec<Part> = looked.iter().map(|(_, part)| *part).collect();
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
        let works = !self.loose && neighbours::are_alike(&parts);
        self.works = self.works.or(Some(now)).filter(|_| works);
        Looked {
            steady: self.works.is_some_and(|since| now >= since + STEADY),
            now: self.neighbours,
            open: matches!(self.stage, Stage::Open(_)) && !self.loose,
            parts: looked,
        }
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
