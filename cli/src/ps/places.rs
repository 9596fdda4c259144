//! Which rows are on the GPU that `--gpu` names. Rows of a daemon have their GPU's place. The books
//! of a tenant without one have only its UUID, whose place the daemons know, or the driver.

use super::row::Row;
use crate::devices;
use crate::gpu::{BY_BUS, ORDER, VISIBLE};
use crate::select::{GpuIs, Seen};
use crate::settings::Environment;
use gpushare_protocol::uuid::Uuid;
use std::ffi::OsStr;
use std::sync::OnceLock;
use std::time::Duration;

/// Keeps the rows on that GPU, and those of which nothing tells whether they are on it: no place is
/// known for these UUIDs, which are returned. `devices` are those of the daemons; where they do not
/// suffice, those that `ask` lists are added.
pub(super) fn keep(
    rows: &mut Vec<Row>,
    gpu: &GpuIs,
    devices: &mut Vec<Seen>,
    ask: impl FnOnce() -> Vec<Seen>,
) -> Vec<String> {
    let is_known = |uuid: [u8; 16], devices: &[Seen]| devices.iter().any(|(one, _)| *one == uuid);
    let has_no_place = |row: &Row, devices: &[Seen]| {
        let uuid = uuid(row).filter(|_| row.gpu.is_none() && matches!(gpu, GpuIs::Place(_)));
        uuid.is_some_and(|uuid| !is_known(uuid, devices))
    };
    if rows.iter().any(|row| has_no_place(row, devices)) {
        let asked = ask().into_iter();
        let new: Vec<Seen> = asked
            .filter(|(uuid, _)| !is_known(*uuid, devices))
            .collect();
        devices.extend(new);
    }
    let mut unknown = Vec::new();
    rows.retain(|row| {
        if has_no_place(row, devices) {
            unknown.push(row.device.clone());
            return true;
        }
        let Some(uuid) = uuid(row) else { return false };
        let of_books = devices.iter().filter(|(one, _)| *one == uuid);
        let mut of_books = of_books.map(|(_, place)| *place);
        match row.gpu {
            Some(place) => gpu.is(uuid, Some(place)),
            None => gpu.is(uuid, None) || of_books.any(|place| gpu.is(uuid, place)),
        }
    });
    unknown.sort();
    unknown.dedup();
    unknown
}

fn uuid(row: &Row) -> Option<[u8; 16]> {
    Uuid::parse(&row.device, '-').map(|uuid| uuid.0)
}

/// Longest that the driver is waited for. Without its answer a few rows more are listed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The devices of this environment's driver, in the order in which `nvidia-smi` counts them. It is
/// asked once, however often this process lists: each time would initialise CUDA.
pub(super) fn of_driver() -> Vec<Seen> {
    static SEEN: OnceLock<Vec<Seen>> = OnceLock::new();
    let ask = || {
        let mut environment: Environment = std::env::vars_os().collect();
        environment.remove(OsStr::new(VISIBLE));
        environment.insert(ORDER.into(), BY_BUS.into());
        let devices = devices::probe_within(&environment, PATIENCE).unwrap_or_default();
        let seen = devices.iter();
        seen.map(|device| (device.uuid, Some(device.ordinal)))
            .collect()
    };
    SEEN.get_or_init(ask).clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ps::row::SCHEMA;

    const GPUS: [[u8; 16]; 2] = [[1; 16], [2; 16]];

    fn row(name: &str, device: [u8; 16], gpu: Option<u32>) -> Row {
        Row {
            schema: SCHEMA,
            name: name.to_owned(),
            device: Uuid(device).to_string(),
            gpu,
            daemon: gpu.is_some(),
            used: true,
            ..Row::default()
        }
    }

    /// The names of the rows that are kept, whether some have no place, and the devices then.
    fn kept(gpu: &str, daemons: &[Seen], driver: &[Seen]) -> (String, bool, usize) {
        let mut rows = vec![
            row("kept", GPUS[0], Some(0)),
            row("files-0", GPUS[0], None),
            row("files-1", GPUS[1], None),
        ];
        let (gpu, mut devices) = (gpu.parse().expect(gpu), daemons.to_vec());
        let unknown = keep(&mut rows, &gpu, &mut devices, || driver.to_vec());
        let names: Vec<_> = rows.into_iter().map(|row| row.name).collect();
        (names.join(" "), !unknown.is_empty(), devices.len())
    }

    #[test]
    fn a_tenant_without_a_daemon_is_on_the_gpu_that_its_books_name() {
        let all = [(GPUS[0], Some(0)), (GPUS[1], Some(1))];
        // By a daemon, by the driver, by both.
        for (daemons, driver) in [(&all[..], &[][..]), (&all[..1], &all), (&all, &all)] {
            for (gpu, names) in [
                ("0", "kept files-0"),
                ("1", "files-1"),
                ("7", ""),
                ("GPU-0101", "kept files-0"),
                ("GPU-0202", "files-1"),
            ] {
                let (found, has_unknown, known) = kept(gpu, daemons, driver);
                assert_eq!((found.as_str(), has_unknown), (names, false), "{gpu}");
                assert!(known == 2 || gpu.starts_with("GPU-"), "each once");
            }
        }
    }

    #[test]
    fn one_whose_gpu_has_no_known_place_is_listed_at_each_and_said() {
        let first = [(GPUS[0], Some(0))];
        for (gpu, names) in [("0", "kept files-0 files-1"), ("7", "files-1")] {
            assert_eq!(kept(gpu, &first, &[]), (names.to_owned(), true, 1), "{gpu}");
        }
        let by_uuid = kept("GPU-0101", &first, &[]);
        assert_eq!(by_uuid, ("kept files-0".to_owned(), false, 1));
    }
}
