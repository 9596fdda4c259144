use super::*;
use gpushare_protocol::histogram::Histogram;
use gpushare_protocol::wire::*;

const MOST: u64 = u64::MAX;
const DEVICE: [u8; 16] = [0xff; 16];

/// A name as long as any is counted.
fn name() -> String {
    "n".repeat(128)
}

/// The bytes of a row in a reply, without so many names.
fn size<R: serde::Serialize>(row: &R, names: usize) -> usize {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    encode(0, row, &mut with).unwrap();
    encode(0, &(), &mut without).unwrap();
    with.len() - without.len() - names * name().len()
}

fn times() -> Histogram {
    let mut times = Histogram::default();
    times.counts.fill(MOST);
    times.sum_ns = MOST;
    times
}

#[test]
fn a_row_of_the_largest_numbers_is_no_longer_than_is_counted() {
    let residue = Residue {
        small: MOST,
        arrays: MOST,
        pools: MOST,
        handles: MOST,
        shared: MOST,
        managed: MOST,
    };
    let residency = ResidencyRow {
        name: name(),
        device: DEVICE,
        place: Place::Entering,
        for_ms: MOST,
        suspended: true,
        movable: MOST,
        away: MOST,
        host: MOST,
        residue,
        left: MOST,
        moved: MOST,
    };
    let share = ShareRow {
        name: name(),
        device: DEVICE,
        weight: u32::MAX,
        request: Some(u32::MAX),
        cap: Some(u32::MAX),
        held: u32::MAX,
        over_ms: MOST,
        state: ShareState::Held { for_us: MOST },
        turns: MOST,
        overruns: MOST,
        ungated: u32::MAX,
        alone: Some(Alone {
            part: u32::MAX,
            over_ms: MOST,
        }),
        steered: Some(Steered {
            cause: SteeredBy::Gang,
            tenant: Some(name()),
        }),
    };
    let tenant = TenantRow {
        name: name(),
        device: DEVICE,
        request: MOST,
        limit: MOST,
        grant: MOST,
        charged: MOST,
        overhead: MOST,
        limbo: MOST,
        processes: Vec::new(),
    };
    let device = DeviceRow {
        uuid: DEVICE,
        name: name(),
        capacity: MOST,
        reserve: MOST,
        granted: MOST,
        overhead: MOST,
        limbo: MOST,
        unmanaged: MOST,
        capabilities: Vec::new(),
    };
    let status = TenantStatusRow {
        name: name(),
        owner: Some(u32::MAX),
        for_ms: MOST,
        queued: Some(name()),
        asks: Vec::new(),
    };
    let pod = PodRow {
        name: name(),
        namespace: name(),
        pod: name(),
        container: name(),
    };
    for (kind, size) in [
        ("residency", size(&residency, 1)),
        ("share", size(&share, 2)),
        ("tenant", size(&tenant, 1)),
        ("device", size(&device, 1)),
        ("status", size(&status, 2)),
        ("pod", size(&pod, 4)),
    ] {
        assert!(size <= ROW, "{kind}: {size}");
    }
}

#[test]
fn a_part_of_a_row_is_no_longer_than_is_counted() {
    let process = ProcessRow {
        pid: u32::MAX,
        charged: MOST,
        overhead: MOST,
        state: ProcessState::Waiting(Want {
            bytes: MOST,
            since_ms: MOST,
        }),
    };
    assert!(size(&process, 0) <= PROCESS);
    let asked = AskedRow {
        device: DEVICE,
        request: MOST,
        limit: MOST,
    };
    assert!(size(&asked, 0) <= PROCESS);
    let change = LeaseChange {
        ago_us: MOST,
        was: LeaseWas::Gone,
    };
    assert!(size(&change, 0) <= CHANGE);
    let point = ([u32::MAX; 4], [u16::MAX; 3]);
    assert!(size(&point, 0) <= POINT);
}

#[test]
fn a_row_with_histograms_is_no_longer_than_is_counted() {
    let moves = SwapRow::Tenant(TenantSwaps {
        name: name(),
        device: DEVICE,
        out_bytes: MOST,
        in_bytes: MOST,
        out_times: times(),
        in_times: times(),
        in_files: MOST,
    });
    let measures = MetricsRow::Tenant(TenantMetrics {
        name: name(),
        device: DEVICE,
        peak: MOST,
        refused_limit: MOST,
        refused_wait_timeout: MOST,
        refused_no_room: MOST,
        refused_driver: MOST,
        allocation_waits: times(),
        gpu_ns: MOST,
        gate_waits: times(),
        waiting_ns: MOST,
        turns: MOST,
        overruns: MOST,
        busy_ns: Some(MOST),
    });
    for size in [size(&moves, 1), size(&measures, 1)] {
        assert!(size <= MEASURED, "{size}");
    }
}
