//! Moves of tenants' memory as tracks: of each device when it moved out, was off the device, and
//! moved in; and when it lay in files.

use super::{Kept, Trace};
use gpushare_protocol::wire::EventRecord;
use serde_json::json;

/// A tenant's track of its memory in files.
pub(super) const FILES: u32 = 4;
/// Tenants' tracks of memory begin here, one for each GPU.
const MOVES: u32 = 1000;

impl Trace {
    /// Shows an event of a move. False for any other.
    pub(super) fn tell_move(&mut self, record: &EventRecord, name: &str, pid: u32) -> bool {
        let at = record.at_ms;
        match record.kind.as_str() {
            "left" => {
                let track = self.memory_track(record, pid);
                self.moves(record, (name, pid, track), "moves out");
                self.begin(name, track, at, "off the GPU");
            }
            "returned" => {
                let track = self.memory_track(record, pid);
                self.moves(record, (name, pid, track), "moves in");
            }
            "did-not-leave" | "left-less" | "slow-return" | "no-return" => {
                let track = self.memory_track(record, pid);
                self.instant(record, pid, track);
            }
            "spilled" => self.begin(name, FILES, at, "in files"),
            "fetched" => {
                self.end(name, FILES, at);
            }
            "spill-failed" | "memory-lost" => self.instant(record, pid, FILES),
            _ => return false,
        }
        true
    }

    /// Ends the absence of memory that is back, where a daemon took its tenant over from another
    /// one since: without a daemon memory comes back by itself, and the next one tells nothing of
    /// that.
    pub(super) fn return_all(&mut self, kept: &Kept) {
        for (name, device) in &kept.inside {
            if let Some(gpu) = self.gpus.get(device).copied() {
                self.taken_over(name, MOVES + gpu);
            }
        }
        for name in &kept.without_files {
            self.taken_over(name, FILES);
        }
    }

    /// Ends a tenant's state where a daemon took it over since.
    fn taken_over(&mut self, name: &str, track: u32) {
        let began = self.open.get(&(name.to_owned(), track));
        let began = began.map(|(since, _)| *since);
        let admitted = self.admitted.get(name).copied();
        if let Some(at) = admitted.filter(|at| began.is_some_and(|began| began < *at)) {
            self.end(name, track, at);
        }
    }

    /// A move that is over, with its bytes. The state before it ends where it began.
    fn moves(&mut self, record: &EventRecord, (name, pid, track): (&str, u32, u32), what: &str) {
        let took = record.number_of("took_ms").unwrap_or(0);
        let (from, to) = (record.at_ms.saturating_sub(took), record.at_ms);
        self.end(name, track, from);
        self.events.push(json!({
            "ph": "X", "pid": pid, "tid": track, "ts": from * 1000,
            "dur": (to - from).max(1) * 1000, "name": what,
            "args": {"bytes": record.number_of("bytes"), "text": record.text},
        }));
    }

    /// The tenant's track of its memory of the event's device.
    fn memory_track(&mut self, record: &EventRecord, pid: u32) -> u32 {
        let Some(device) = record.device else {
            return MOVES;
        };
        let track = MOVES + self.gpu(device.uuid);
        self.of_devices
            .insert((pid, track), ("memory", device.uuid));
        track
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{group, of, record};
    use super::super::{Kept, trace};
    use gpushare_protocol::wire::Fact;
    use serde_json::Value;

    /// The spans of a tenant's track by this name: name, begin and length in milliseconds, bytes.
    fn spans(trace: &Value, track: &str) -> Vec<(String, u64, u64, Option<u64>)> {
        let names = of(trace, "M");
        let tid = names
            .iter()
            .find(|event| event["args"]["name"] == track)
            .map(|event| event["tid"].clone())
            .expect("a track of that name");
        let pid = group(trace, "tenant web");
        let number = |value: &Value| value.as_u64().expect("a number") / 1000;
        of(trace, "X")
            .into_iter()
            .filter(|event| event["tid"] == tid && event["pid"] == pid)
            .map(|event| {
                let name = event["name"].as_str().expect("a name").to_owned();
                let bytes = event["args"]["bytes"].as_u64();
                (name, number(&event["ts"]), number(&event["dur"]), bytes)
            })
            .collect()
    }

    #[test]
    fn a_move_is_a_slice_with_its_bytes_between_the_places_of_the_memory() {
        let number = |name, number| (name, Fact::Number(number));
        let moved = |bytes, took| [number("bytes", bytes), number("took_ms", took)];
        let records = [
            record(1_000, "left", "web", &moved(64, 200)),
            record(2_500, "returned", "web", &moved(64, 300)),
            record(3_000, "left", "web", &moved(32, 100)),
            record(4_000, "gone", "web", &[]),
        ];
        let trace = trace(&records, &Kept::default(), 9_000);
        let wanted = [
            ("moves out", 800, 200, Some(64)),
            ("off the GPU", 1_000, 1_200, None),
            ("moves in", 2_200, 300, Some(64)),
            ("moves out", 2_900, 100, Some(32)),
            ("off the GPU", 3_000, 1_000, None),
        ];
        let wanted = wanted.map(|(name, from, long, bytes)| (name.to_owned(), from, long, bytes));
        assert_eq!(spans(&trace, "memory of GPU-07070707"), wanted);
    }

    #[test]
    fn memory_in_files_is_a_span_until_it_is_read_back() {
        let records = [
            record(1_000, "spilled", "web", &[]),
            record(2_500, "fetched", "web", &[]),
            record(3_000, "spilled", "web", &[]),
            record(3_500, "gone", "web", &[]),
        ];
        let trace = trace(&records, &Kept::default(), 9_000);
        let wanted = [(1_000, 1_500), (3_000, 500)];
        let wanted = wanted.map(|(from, long)| ("in files".to_owned(), from, long, None));
        assert_eq!(spans(&trace, "files"), wanted);
    }
}
