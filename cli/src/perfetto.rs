//! `gpushare events --perfetto FILE`: events and the last hour as a trace, in Chrome's JSON form,
//! which the Perfetto page opens.
//!
//! A group of tracks for each GPU and each tenant. Of a tenant: its life, its waits for memory,
//! when it was idle, when its memory moved and was off the device, when its gate was open or
//! closed, and the parts of the time it had and waited for. Of a GPU: whose turn it was or how it
//! was shared, what was charged and granted, and what happened on it. Arrows lead from an
//! allocation that waits to the tenant that is ended for it and on to the memory that is served.

mod counters;
mod kept;
mod leases;
mod lives;
mod moves;
mod waits;

use crate::daemon::Talk;
use crate::failure::Failure;
use crate::select::Wanted;
use crate::{output, when};
use counters::Counted;
use gpushare_exporter::Names;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::EventRecord;
use kept::Kept;
pub(crate) use kept::Window;
use leases::SHARING;
pub(crate) use lives::Lives;
use moves::FILES;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use waits::Waits;

/// Tracks of a tenant.
const LIFE: u32 = 1;
const MEMORY: u32 = 2;
const WORK: u32 = 3;
/// Ids of tenants' groups begin here, those of GPUs below.
const TENANTS: u32 = 1000;

/// Writes the trace of these events: all that are known of the tenants and the GPU that are asked
/// for, because what began before the window goes on in it. The ends of tenants in `lives` are
/// those of all events.
pub(crate) fn write(
    path: &Path,
    (records, lives, window): (&[EventRecord], Lives, Window),
    wanted: &Wanted,
    daemons: &mut Vec<Talk>,
) -> Result<(), Failure> {
    let kept = Kept::of((lives, window), wanted, daemons)?;
    let text = trace(records, &kept, when::now_ms()).to_string();
    output::file(path, &text)
}

/// The trace of these events, oldest first, and of what daemons keep at `now_ms`.
fn trace(records: &[EventRecord], kept: &Kept, now_ms: u64) -> Value {
    let mut trace = Trace {
        names: kept.lives.names.clone(),
        window: kept.window.clone(),
        ..Trace::default()
    };
    for record in records {
        trace.tell(record);
    }
    let last = records.last().map_or(now_ms, |last| last.at_ms);
    trace.return_all(kept);
    trace.close(&kept.lives, last, now_ms);
    trace.show_waits(kept, last, now_ms);
    trace.clip(kept.window.from_ms);
    for row in &kept.series {
        trace.count(row, now_ms);
    }
    trace.end_counters();
    trace.leases(&kept.leases, &kept.lives, now_ms);
    trace.clip(kept.window.all_from_ms);
    trace.named();
    trace.events.sort_by_key(|event| event["ts"].as_u64());
    json!({"traceEvents": trace.events, "displayTimeUnit": "ms"})
}

/// The beginning of a GPU's name.
fn short(device: [u8; 16]) -> String {
    let uuid = Uuid(device).to_string();
    uuid.get(..12).unwrap_or(&uuid).to_owned()
}

#[derive(Default)]
struct Trace {
    /// The names by which tenants are shown.
    names: Names,
    window: Window,
    events: Vec<Value>,
    /// When each tenant's last event was, and when a daemon last began to have it.
    told: BTreeMap<String, u64>,
    admitted: BTreeMap<String, u64>,
    tenants: BTreeMap<String, u32>,
    gpus: BTreeMap<[u8; 16], u32>,
    /// Since when a tenant is in a state, by track and the state's name.
    open: BTreeMap<(String, u32), (u64, &'static str)>,
    waits: Waits,
    /// The counters' values, by row.
    counted: Vec<Counted>,
    /// Tenants' tracks of one device: what they are of, and the device.
    of_devices: BTreeMap<(u32, u32), (&'static str, [u8; 16])>,
}

impl Trace {
    fn tenant(&mut self, name: &str) -> u32 {
        let next = TENANTS + u32::try_from(self.tenants.len()).unwrap_or(0);
        *self.tenants.entry(name.to_owned()).or_insert(next)
    }

    fn gpu(&mut self, uuid: [u8; 16]) -> u32 {
        let next = 1 + u32::try_from(self.gpus.len()).unwrap_or(0);
        *self.gpus.entry(uuid).or_insert(next)
    }

    fn tell(&mut self, record: &EventRecord) {
        let at = record.at_ms;
        let name = record.tenant.clone();
        if let Some(device) = record.device {
            let pid = self.gpu(device.uuid);
            self.instant(record, pid, 1);
        }
        let Some(name) = name else {
            if record.device.is_none() {
                self.instant(record, 0, 1);
            }
            return;
        };
        self.told.insert(name.clone(), at);
        let pid = self.tenant(&name);
        if self.tell_move(record, &name, pid) || self.tell_wait(record, &name, pid) {
            return;
        }
        match record.kind.as_str() {
            "queued" => self.begin(&name, LIFE, at, "queued"),
            "admitted" => {
                let queued = record.number_of("queued_ms").unwrap_or(0);
                if !self.end(&name, LIFE, at) && queued > 0 {
                    self.span(pid, LIFE, (at.saturating_sub(queued), at), "queued");
                }
                self.begin(&name, LIFE, at, "runs");
                // A daemon that took it over from another one counts its idle time anew.
                self.end(&name, WORK, at);
                self.admitted.insert(name, at);
            }
            "gone" => {
                let ran = record.number_of("ran_ms").unwrap_or(0);
                if !self.end(&name, LIFE, at) && ran > 0 {
                    self.span(pid, LIFE, (at.saturating_sub(ran), at), "runs");
                }
                let open: Vec<_> = self.open.keys().filter(|(of, _)| *of == name).collect();
                for track in open
                    .into_iter()
                    .map(|(_, track)| *track)
                    .collect::<Vec<_>>()
                {
                    self.end(&name, track, at);
                }
                self.waits_end(&name, pid, at);
                self.instant(record, pid, LIFE);
            }
            "idle" => self.begin(&name, WORK, at, "idle"),
            "active" => {
                self.end(&name, WORK, at);
            }
            "ended" => {
                self.instant(record, pid, LIFE);
                self.ended_for(record, pid);
            }
            _ => self.instant(record, pid, LIFE),
        }
    }

    fn begin(&mut self, name: &str, track: u32, at: u64, what: &'static str) {
        self.end(name, track, at);
        self.open.insert((name.to_owned(), track), (at, what));
    }

    /// Ends the state that a tenant is in. Whether it was in one.
    fn end(&mut self, name: &str, track: u32, at: u64) -> bool {
        let Some((since, what)) = self.open.remove(&(name.to_owned(), track)) else {
            return false;
        };
        let pid = self.tenant(name);
        self.span(pid, track, (since, at), what);
        true
    }

    /// Ends each state that no event has ended with its tenant's life. Where that is not known,
    /// nothing is said about the time after the `last` event, nor of a tenant that no event of the
    /// window tells of: its daemon may have left long ago.
    fn close(&mut self, lives: &Lives, last: u64, now_ms: u64) {
        let open = std::mem::take(&mut self.open);
        for ((name, track), (since, what)) in open {
            let until = match lives.until(&name, since, now_ms) {
                Some(until) => until,
                None if self.is_told(&name) => last,
                None => continue,
            };
            let pid = self.tenant(&name);
            self.span(pid, track, (since, until), what);
        }
    }

    /// Whether an event of the window tells of this tenant.
    fn is_told(&self, name: &str) -> bool {
        let told = self.told.get(name);
        told.is_some_and(|at| *at >= self.window.from_ms)
    }

    fn span(&mut self, pid: u32, tid: u32, (from, to): (u64, u64), name: &str) {
        let to = to.max(from + 1);
        self.exact(pid, tid, (from * 1000, to * 1000), name);
    }

    /// As [`Self::span`], in microseconds.
    fn exact(&mut self, pid: u32, tid: u32, (from, to): (u64, u64), name: &str) {
        self.events.push(json!({
            "ph": "X", "pid": pid, "tid": tid, "ts": from, "dur": to.saturating_sub(from),
            "name": name,
        }));
    }

    fn instant(&mut self, record: &EventRecord, pid: u32, tid: u32) {
        let kinds = &self.window.kinds;
        if !kinds.is_empty() && !kinds.contains(&record.kind) {
            return;
        }
        let name = match (&record.tenant, pid < TENANTS) {
            (Some(tenant), true) => format!("{} {}", record.kind, self.names.shown(tenant)),
            _ => record.kind.clone(),
        };
        self.events.push(json!({
            "ph": "i", "s": "t", "pid": pid, "tid": tid, "ts": record.at_ms * 1000,
            "name": name, "args": {"text": self.names.in_text(&record.text)},
        }));
    }

    fn arrow(&mut self, phase: &str, id: usize, pid: u32, tid: u32, at: u64) {
        self.events.push(json!({
            "ph": phase, "cat": "memory", "id": id, "pid": pid, "tid": tid, "ts": at * 1000,
            "name": "memory", "bp": "e",
        }));
    }

    /// Names of groups and tracks.
    fn named(&mut self) {
        let mut names = vec![(0, None, "node".to_owned())];
        for (uuid, pid) in &self.gpus {
            names.push((*pid, None, Uuid(*uuid).to_string()));
            names.push((*pid, Some(1), "events".to_owned()));
            names.push((*pid, Some(SHARING), "sharing".to_owned()));
        }
        for (name, pid) in &self.tenants {
            names.push((*pid, None, self.title(name)));
            let tracks = [
                (LIFE, "life"),
                (MEMORY, "memory"),
                (WORK, "work"),
                (FILES, "files"),
            ];
            for (track, title) in tracks {
                names.push((*pid, Some(track), title.to_owned()));
            }
        }
        for (pid, track) in &self.waits.lanes {
            names.push((*pid, Some(*track), waits::title(*track)));
        }
        for ((pid, track), (what, device)) in &self.of_devices {
            names.push((*pid, Some(*track), format!("{what} of {}", short(*device))));
        }
        // Those with nothing to show had their time before the window.
        let with: BTreeSet<u64> = self
            .events
            .iter()
            .filter_map(|event| event["pid"].as_u64())
            .collect();
        names.retain(|(pid, ..)| *pid == 0 || with.contains(&u64::from(*pid)));
        for (pid, tid, name) in names {
            let (kind, sort) = match tid {
                Some(_) => ("thread_name", "thread_sort_index"),
                None => ("process_name", "process_sort_index"),
            };
            let track = tid.unwrap_or(0);
            // The node and its GPUs first, tenants by their first event.
            // Waits of one tenant are beside each other.
            let place = match tid {
                Some(track) if self.waits.lanes.contains(&(pid, track)) => MEMORY,
                _ => tid.unwrap_or(pid),
            };
            self.metadata((pid, track), kind, &json!({"name": name}));
            self.metadata((pid, track), sort, &json!({"sort_index": place}));
        }
    }

    /// The title of a tenant's group. The containers of a pod that is started again are tenants of
    /// their own: their ids tell them apart.
    fn title(&self, name: &str) -> String {
        match self.names.pod(name) {
            Some(pod) => format!("tenant {pod} ({})", name.get(..12).unwrap_or(name)),
            None => format!("tenant {}", self.names.shown(name)),
        }
    }

    fn metadata(&mut self, (pid, tid): (u32, u32), kind: &str, said: &Value) {
        self.events.push(json!({
            "ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": kind, "args": said,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_protocol::wire::{EventDevice, Fact, LeaseChange, LeaseWas};
    use gpushare_protocol::wire::{LeasesRow, SeriesRow};

    pub(super) fn record(
        at_ms: u64,
        kind: &str,
        tenant: &str,
        facts: &[(&str, Fact)],
    ) -> EventRecord {
        let uuid = [7; 16];
        let device = matches!(kind, "waiting" | "served" | "left" | "returned");
        EventRecord {
            instance: 1,
            number: at_ms,
            at_ms,
            kind: kind.to_owned(),
            tenant: Some(tenant.to_owned()),
            device: device.then_some(EventDevice { uuid, index: 0 }),
            text: format!("{kind} {tenant}"),
            facts: facts
                .iter()
                .map(|(name, fact)| ((*name).to_owned(), fact.clone()))
                .collect(),
        }
    }

    /// A burst is ended for another tenant's allocation.
    pub(super) fn story() -> Value {
        let word = |text: &str| Fact::Word(text.to_owned());
        let records = [
            record(1_000, "admitted", "burst", &[]),
            record(2_000, "queued", "web", &[]),
            record(
                3_000,
                "admitted",
                "web",
                &[("queued_ms", Fact::Number(1_000))],
            ),
            record(4_000, "idle", "burst", &[]),
            record(5_000, "active", "burst", &[]),
            record(6_000, "waiting", "web", &[]),
            record(6_001, "ended", "burst", &[("wanted_by", word("web"))]),
            record(6_500, "gone", "burst", &[("ran_ms", Fact::Number(5_500))]),
            record(6_600, "served", "web", &[("waited_ms", Fact::Number(600))]),
            record(7_000, "refused", "web", &[]),
        ];
        let series = SeriesRow {
            name: "web".to_owned(),
            device: [7; 16],
            step_ms: 10_000,
            age_ms: 500,
            charged_mib: vec![0, 512],
            held: vec![0, 250],
            waited: vec![0, 10],
            grant_mib: vec![256, 768],
            had: vec![0, 250],
            on_mib: vec![0, 512],
            away_mib: vec![0, 0],
        };
        let kept = Kept {
            lives: Lives::of(&records),
            series: vec![series],
            leases: leases(),
            ..Kept::default()
        };
        let text = trace(&records, &kept, 20_500).to_string();
        serde_json::from_str(&text).expect("it reads back")
    }

    /// Its burst yields and is closed before it ends.
    fn leases() -> Vec<LeasesRow> {
        let change = |at_ms: u64, was| LeaseChange {
            ago_us: (20_500 - at_ms) * 1000,
            was,
        };
        let changes = vec![
            change(3_000, LeaseWas::Shared),
            change(5_000, LeaseWas::Yielding),
            change(6_000, LeaseWas::Closed),
        ];
        vec![LeasesRow {
            name: "burst".to_owned(),
            device: [7; 16],
            changes,
        }]
    }

    /// The trace's events of one phase (`ph`).
    pub(super) fn of<'a>(trace: &'a Value, phase: &str) -> Vec<&'a Value> {
        let all = trace["traceEvents"].as_array().expect("a list").iter();
        all.filter(|event| event["ph"] == phase).collect()
    }

    pub(super) fn group(trace: &Value, name: &str) -> u64 {
        let names = of(trace, "M");
        let found = names.iter().find(|event| event["args"]["name"] == name);
        found.expect("a group of that name")["pid"]
            .as_u64()
            .expect("a number")
    }

    #[test]
    fn spans_are_the_lives_waits_and_pauses_of_tenants() {
        let trace = story();
        let (web, burst) = (group(&trace, "tenant web"), group(&trace, "tenant burst"));
        let gpu = group(&trace, "GPU-07070707-0707-0707-0707-070707070707");
        let spans: Vec<_> = of(&trace, "X")
            .into_iter()
            .map(|event| {
                let number = |name: &str| event[name].as_u64().expect("a number");
                let name = event["name"].as_str().expect("a name").to_owned();
                (
                    number("pid"),
                    name,
                    number("ts") / 1000,
                    number("dur") / 1000,
                )
            })
            .collect();
        for wanted in [
            (burst, "runs", 1_000, 5_500),
            (burst, "idle", 4_000, 1_000),
            (web, "queued", 2_000, 1_000),
            (web, "runs", 3_000, 4_000),
            (web, "waits for memory", 6_000, 600),
            (burst, "shares", 3_000, 2_000),
            (burst, "yields", 5_000, 1_000),
            (burst, "closed", 6_000, 500),
            (gpu, "together", 3_000, 2_000),
            (gpu, "yielding", 5_000, 1_000),
            (gpu, "all closed", 6_000, 500),
        ] {
            let (pid, name, from, long) = wanted;
            assert!(
                spans.contains(&(pid, name.to_owned(), from, long)),
                "{wanted:?}: {spans:?}"
            );
        }
        assert_eq!(spans.len(), 11);
    }

    #[test]
    fn an_arrow_leads_from_the_ask_to_the_victim_to_the_memory() {
        let trace = story();
        let (web, burst) = (group(&trace, "tenant web"), group(&trace, "tenant burst"));
        for (phase, pid, at) in [("s", web, 6_000), ("t", burst, 6_001), ("f", web, 6_600)] {
            let found = of(&trace, phase);
            assert_eq!(found.len(), 1, "{phase}");
            assert_eq!(
                (&found[0]["pid"], &found[0]["ts"]),
                (&json!(pid), &json!(at * 1000))
            );
            assert_eq!(found[0]["id"], 1);
        }
    }

    #[test]
    fn every_event_is_on_a_named_group_and_in_order() {
        let trace = story();
        let all = trace["traceEvents"].as_array().expect("a list");
        let times: Vec<_> = all
            .iter()
            .map(|event| event["ts"].as_u64().expect("a time"))
            .collect();
        assert!(times.is_sorted());
        let named: Vec<_> = of(&trace, "M")
            .iter()
            .map(|event| event["pid"].clone())
            .collect();
        assert!(
            all.iter().all(|event| named.contains(&event["pid"])),
            "{all:?}"
        );
    }
}
