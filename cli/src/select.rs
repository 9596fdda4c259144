//! Which tenants and GPUs a listing is about: `--tenant`, `--gpu`.

use crate::daemon::{Talk, those_that_answer};
use crate::failure::Failure;
use crate::names;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::EventRecord;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A GPU by its place among the daemon's devices, or by the beginning of its UUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GpuIs {
    /// The place, from 0, in the order in which `nvidia-smi` lists them.
    Place(u32),
    /// The beginning of the UUID, in small letters, `gpu-` or `mig-` in front.
    Begins(String),
}

impl FromStr for GpuIs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let small = text.to_ascii_lowercase();
        if let Ok(place) = text.parse() {
            return Ok(Self::Place(place));
        }
        match ["gpu-", "mig-"]
            .iter()
            .find_map(|kind| small.strip_prefix(kind))
        {
            Some(rest) if !rest.is_empty() => Ok(Self::Begins(rest.to_owned())),
            _ => Err("accepted: an index (0) or the beginning of a UUID (GPU-8932f937), as `gpushare devices` shows them".to_owned()),
        }
    }
}

impl GpuIs {
    /// Whether this is the device of that UUID, at that place.
    pub(crate) fn is(&self, uuid: [u8; 16], place: Option<u32>) -> bool {
        match self {
            Self::Place(wanted) => place == Some(*wanted),
            Self::Begins(begin) => {
                let text = Uuid(uuid).to_string().to_ascii_lowercase();
                text.trim_start_matches("gpu-").starts_with(begin)
            }
        }
    }
}

/// The events that are asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Of these tenants; empty: of all.
    pub(crate) tenants: Vec<String>,
    /// The words by which tenants were named, which may be short for names.
    pub(crate) words: Vec<String>,
    /// On this GPU.
    pub(crate) gpu: Option<GpuIs>,
    /// Its places, each with the daemon that counts so: events of tenants on several GPUs name only
    /// places, and every daemon has its own.
    pub(crate) places: BTreeSet<(u64, u32)>,
    /// Of these kinds; empty: of all.
    pub(crate) kinds: Vec<String>,
    /// From then on, in milliseconds since 1970.
    pub(crate) since_ms: u64,
}

impl Wanted {
    /// Whether an event is about the GPU that is asked for, if one is.
    pub(crate) fn is_on_gpu(&self, record: &EventRecord) -> bool {
        self.gpu.as_ref().is_none_or(|gpu| self.on(gpu, record))
    }

    /// Whether an event is asked for.
    pub(crate) fn has(&self, record: &EventRecord) -> bool {
        record.at_ms >= self.since_ms && self.is_of_any_time(record)
    }

    /// The same of one daemon's events, in their order: what follows on one of the time that is
    /// asked for is of that time, too, whatever the clock was set to.
    pub(crate) fn has_next(&mut self, record: &EventRecord) -> bool {
        if record.at_ms >= self.since_ms {
            self.since_ms = 0;
        }
        self.has(record)
    }

    /// Whether an event is asked for, but for its time.
    pub(crate) fn is_of_any_time(&self, record: &EventRecord) -> bool {
        self.is_of_any_kind(record) && is_one(&self.kinds, Some(&*record.kind))
    }

    /// Whether an event is asked for, but for its time and its kind.
    pub(crate) fn is_of_any_kind(&self, record: &EventRecord) -> bool {
        self.is_of_tenant(record.tenant.as_deref()) && self.is_on_gpu(record)
    }

    /// Whether this tenant's events are asked for.
    pub(crate) fn is_of_tenant(&self, name: Option<&str>) -> bool {
        is_one(&self.tenants, name)
    }

    /// The devices of a daemon that are asked for; `None`: all.
    pub(crate) fn gpus(&self, daemon: &mut Talk) -> Result<Option<BTreeSet<[u8; 16]>>, Failure> {
        let Some(gpu) = &self.gpu else {
            return Ok(None);
        };
        let devices = daemon.devices()?;
        let devices = (0..).zip(&devices);
        let found = devices.filter(|(place, row)| gpu.is(row.uuid, Some(*place)));
        Ok(Some(found.map(|(_, row)| row.uuid).collect()))
    }

    /// Whether an event is about that GPU. One about a tenant on several GPUs is about each of
    /// them.
    fn on(&self, gpu: &GpuIs, record: &EventRecord) -> bool {
        if let Some(device) = record.device {
            return gpu.is(device.uuid, Some(device.index));
        }
        let several = record.word_of("gpus").unwrap_or_default().split(',');
        let mut several = several.filter_map(|one| one.parse::<u32>().ok());
        match gpu {
            GpuIs::Place(wanted) => several.any(|place| place == *wanted),
            GpuIs::Begins(_) => {
                several.any(|place| self.places.contains(&(record.instance, place)))
            }
        }
    }

    /// Takes the names of the tenants that `--tenant` is short for, of those that daemons have and
    /// that events are about. Returns the words that mean none of them.
    pub(crate) fn find_tenants(
        &mut self,
        daemons: &mut [Talk],
        past: &[EventRecord],
    ) -> Vec<String> {
        let mut unknown = Vec::new();
        for word in self.words.clone() {
            let found = names::meant(&word, daemons, past);
            if found.is_empty() {
                unknown.push(word);
            }
            self.tenants.extend(found);
        }
        unknown
    }

    /// Takes the tenant of an event that comes, if `--tenant` is short for it.
    pub(crate) fn learn_tenant(&mut self, record: &EventRecord) {
        let is_meant = self.words.iter().any(|word| names::is_meant(word, record));
        let name = record.tenant.as_ref().filter(|_| is_meant);
        if let Some(name) = name.filter(|name| !self.tenants.contains(name)) {
            self.tenants.push(name.clone());
        }
    }

    /// Asks the daemons for the places of a GPU that is named by its UUID.
    pub(crate) fn find_places(&mut self, daemons: &mut Vec<Talk>) -> Result<(), Failure> {
        let Some(gpu @ GpuIs::Begins(_)) = &self.gpu else {
            return Ok(());
        };
        let ask = |daemon: &mut Talk| {
            let instance = daemon.instance();
            daemon.devices().map(|devices| (instance, devices))
        };
        for (instance, devices) in those_that_answer(daemons, ask)? {
            let places = (0..)
                .zip(&devices)
                .filter(|(_, row)| gpu.is(row.uuid, None));
            self.places
                .extend(places.map(|(place, _)| (instance, place)));
        }
        Ok(())
    }

    /// Takes the places of such a GPU from what daemons told of it, also those that have left.
    pub(crate) fn learn_places(&mut self, records: &[EventRecord]) {
        let Some(gpu @ GpuIs::Begins(_)) = &self.gpu else {
            return;
        };
        for record in records {
            let device = record.device.filter(|device| gpu.is(device.uuid, None));
            let place = device.map(|device| (record.instance, device.index));
            self.places.extend(place);
        }
    }
}

/// Whether a name is among these, of which none means all.
fn is_one(of: &[String], name: Option<&str>) -> bool {
    of.is_empty() || of.iter().any(|wanted| Some(&**wanted) == name)
}

/// The value of `--gpu` of a listing.
pub(crate) fn gpu(text: Option<&str>) -> Result<Option<GpuIs>, Failure> {
    let parse = |text: &str| {
        let parsed = text.parse::<GpuIs>();
        parsed.map_err(|accepted| Failure::usage(format!("--gpu={text:?} is refused; {accepted}")))
    };
    text.map(parse).transpose()
}

/// A device, and its place where it has one.
pub(crate) type Seen = ([u8; 16], Option<u32>);

/// Refuses a GPU that none of these daemons has, if there are any.
pub(crate) fn is_there(gpu: Option<&GpuIs>, daemons: &mut Vec<Talk>) -> Result<(), Failure> {
    if gpu.is_none() {
        return Ok(());
    }
    let mut places = Vec::new();
    for devices in those_that_answer(daemons, Talk::devices)? {
        places.extend(
            (0..)
                .zip(&devices)
                .map(|(place, row)| (row.uuid, Some(place))),
        );
    }
    is_among(gpu, &places)
}

/// Refuses a GPU that is none of these, if there are any.
pub(crate) fn is_among(gpu: Option<&GpuIs>, devices: &[Seen]) -> Result<(), Failure> {
    let is = |gpu: &GpuIs| devices.iter().any(|(uuid, place)| gpu.is(*uuid, *place));
    match gpu.filter(|gpu| !devices.is_empty() && !is(gpu)) {
        None => Ok(()),
        Some(gpu) => {
            let device = |(uuid, place): &Seen| match place {
                Some(place) => format!("{place} ({})", Uuid(*uuid)),
                None => Uuid(*uuid).to_string(),
            };
            let all: Vec<String> = devices.iter().map(device).collect();
            Err(Failure::usage(format!(
                "there is no GPU {gpu}; accepted: {}",
                all.join(", ")
            )))
        }
    }
}

impl fmt::Display for GpuIs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place(place) => place.fmt(out),
            Self::Begins(begin) => write!(out, "GPU-{begin}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_protocol::wire::{EventDevice, Fact};

    fn record(tenant: Option<&str>, device: Option<u32>) -> EventRecord {
        EventRecord {
            instance: 1,
            number: 1,
            at_ms: 100,
            kind: "refused".to_owned(),
            tenant: tenant.map(str::to_owned),
            device: device.map(|index| EventDevice {
                uuid: [0xab; 16],
                index,
            }),
            text: String::new(),
            facts: Vec::new(),
        }
    }

    #[test]
    fn events_are_chosen_by_time_tenant_gpu_and_kind() {
        let all = Wanted::default();
        assert!(all.has(&record(None, None)) && all.has(&record(Some("a"), Some(0))));
        let since = |since_ms| Wanted {
            since_ms,
            ..Wanted::default()
        };
        assert!(since(100).has(&record(None, None)) && !since(101).has(&record(None, None)));
        let web = Wanted {
            tenants: vec!["web".to_owned(), "b".to_owned()],
            ..Wanted::default()
        };
        assert!(web.has(&record(Some("web"), None)) && web.has(&record(Some("b"), None)));
        assert!(!web.has(&record(Some("webb"), None)) && !web.has(&record(None, None)));
        let kind = |kind: &str| Wanted {
            kinds: vec![kind.to_owned()],
            ..Wanted::default()
        };
        assert!(kind("refused").has(&record(None, None)));
        assert!(!kind("ended").has(&record(None, None)));
    }

    #[test]
    fn what_follows_on_an_event_of_the_time_is_of_it_whatever_its_label() {
        let mut wanted = Wanted {
            since_ms: 50,
            kinds: vec!["refused".to_owned()],
            ..Wanted::default()
        };
        let told = [(40, false), (50, true), (40, true)];
        for (at_ms, is_told) in told {
            let mut record = record(None, None);
            record.at_ms = at_ms;
            assert_eq!(wanted.has_next(&record), is_told, "{at_ms}");
            record.kind = "gone".to_owned();
            assert!(!wanted.has_next(&record), "{at_ms}");
        }
    }

    #[test]
    fn a_gpu_is_named_by_its_place_or_its_uuids_beginning() {
        let on = |gpu: &str, record: &EventRecord| {
            let gpu = Some(gpu.parse().expect(gpu));
            Wanted {
                gpu,
                ..Wanted::default()
            }
            .has(record)
        };
        let first = record(Some("a"), Some(0));
        for gpu in ["0", "GPU-abab", "gpu-ABABABAB-abab", "MIG-ab"] {
            assert!(on(gpu, &first), "{gpu}");
        }
        for gpu in ["1", "GPU-ac", "GPU-abababab-b"] {
            assert!(!on(gpu, &first), "{gpu}");
        }
        assert!(!on("0", &record(Some("a"), None)));
        let several = EventRecord {
            facts: vec![("gpus".to_owned(), Fact::Word("1,3".to_owned()))],
            ..record(Some("a"), None)
        };
        assert!(on("3", &several) && !on("0", &several) && !on("13", &several));
        let other = |instance| EventRecord {
            instance,
            ..several.clone()
        };
        // Of the daemon that told it, and not of another one.
        for (places, is_there) in [
            (vec![(1, 0), (1, 3)], true),
            (vec![(1, 0), (2, 3)], false),
            (vec![], false),
        ] {
            let wanted = Wanted {
                gpu: Some("GPU-ab".parse().expect("a GPU")),
                places: places.into_iter().collect(),
                ..Wanted::default()
            };
            assert_eq!(wanted.has(&several), is_there, "{wanted:?}");
        }
        // The daemon has left; what it told of the GPU says where that was.
        let mut wanted = Wanted {
            gpu: Some("GPU-ab".parse().expect("a GPU")),
            ..Wanted::default()
        };
        wanted.learn_places(&[record(None, None), record(None, Some(3))]);
        assert!(wanted.has(&other(1)) && !wanted.has(&other(2)));
        let devices = [([0xab; 16], Some(0)), ([0xcd; 16], Some(1))];
        for (gpu, there) in [
            ("1", true),
            ("2", false),
            ("GPU-cd", true),
            ("GPU-12", false),
        ] {
            let gpu = gpu.parse().expect(gpu);
            assert_eq!(is_among(Some(&gpu), &devices).is_ok(), there, "{gpu}");
            assert!(is_among(Some(&gpu), &[]).is_ok(), "nothing is known");
        }
        assert!(is_among(None, &devices).is_ok());
        for wrong in ["", "GPU-", "first", "-1"] {
            assert!(gpu(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pod_is_followed_also_where_its_container_comes_later() {
        let mut wanted = Wanted {
            tenants: vec!["team/web-0".to_owned()],
            words: vec!["team/web-0".to_owned()],
            ..Wanted::default()
        };
        let past = [record(Some("other"), None)];
        assert_eq!(wanted.find_tenants(&mut [], &past), ["team/web-0"]);
        let id = "3f9c0d5512e1aa";
        let mut came = record(Some(id), None);
        wanted.learn_tenant(&came);
        assert!(!wanted.has(&came), "it tells no pod");
        let facts = [
            ("namespace", "team"),
            ("pod", "web-0"),
            ("container", "main"),
        ];
        came.facts = facts
            .map(|(name, word)| (name.to_owned(), Fact::Word(word.to_owned())))
            .to_vec();
        wanted.learn_tenant(&came);
        assert!(wanted.has(&came));
        // From then on without its facts, too; and no other tenant.
        assert!(wanted.has(&record(Some(id), None)));
        assert!(!wanted.has(&record(Some("other"), None)));
        let mut past = Wanted {
            words: vec!["team/web-0".to_owned(), "nobody".to_owned()],
            ..Wanted::default()
        };
        assert_eq!(past.find_tenants(&mut [], &[came]), ["nobody"]);
        assert_eq!(past.tenants, [id]);
    }
}
