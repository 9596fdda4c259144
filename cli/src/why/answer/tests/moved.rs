//! Tenants whose memory is, or was, off the device.

use super::*;

/// 9 GiB of the tenant are at this place.
pub(super) fn moved(place: Place, suspended: bool) -> ResidencyRow {
    ResidencyRow {
        name: "web".to_owned(),
        device: GPU,
        place,
        for_ms: 3_000,
        suspended,
        movable: 9 * GIB,
        away: if place == Place::In { 0 } else { 9 * GIB },
        host: 9 * GIB,
        residue: Residue::default(),
        left: 2,
        moved: 27 * GIB,
    }
}

#[test]
fn a_tenant_off_the_device_is_told_where_its_memory_is_and_what_moved() {
    let mut times = Histogram::default();
    times.record(250_000_000);
    let swaps = TenantSwaps {
        name: "web".to_owned(),
        device: GPU,
        out_bytes: 18 * GIB,
        in_bytes: 9 * GIB,
        out_times: times,
        in_times: times,
        in_files: 2 * GIB,
    };
    let out = "left 2 times: 18 GiB out (p99 < 300 ms), 9 GiB back (p99 < 300 ms).";
    let on_host = "on the host (2 GiB of it in files) for 3 s";
    let cases = [
        (Place::Sealed, false, vec!["work is finished there first"]),
        (Place::Leaving, false, vec!["has been leaving GPU 0"]),
        (Place::Out, true, vec!["web is suspended: 9 GiB", on_host]),
        (
            Place::Out,
            false,
            vec!["9 GiB of web", on_host, "take turns"],
        ),
        (Place::Entering, false, vec!["coming back to GPU 0"]),
    ];
    for (place, suspended, words) in cases {
        let mut facts = facts();
        facts.tenants = vec![row("web", 9 * GIB, ProcessState::Running)];
        facts.residency = vec![moved(place, suspended)];
        facts.swaps = vec![swaps.clone()];
        let words: Vec<&str> = words.into_iter().chain([out]).collect();
        says(&facts, State::Out, &words, &["nothing holds it up"]);
    }
    let mut facts = facts();
    facts.tenants = vec![row("web", 9 * GIB, ProcessState::Running)];
    facts.residency = vec![moved(Place::In, false)];
    facts.swaps = vec![swaps];
    says(
        &facts,
        State::Running,
        &["nothing holds it up", out],
        &["in files"],
    );
    facts.swaps.clear();
    says(&facts, State::Running, &["nothing holds it up"], &["left"]);
    facts.residency = vec![moved(Place::In, true)];
    let stays = "by command, and has not: it is asked again";
    says(&facts, State::Running, &[stays, "resume web"], &[]);
}

#[test]
fn of_memory_off_several_gpus_none_is_said_to_be_in_files() {
    let mut facts = facts();
    facts.tenants = vec![row("web", 18 * GIB, ProcessState::Running)];
    let other = ResidencyRow {
        device: [8; 16],
        ..moved(Place::Out, false)
    };
    // That of one of them is in a file.
    facts.swaps = [GPU, [8; 16]]
        .map(|device| in_files(device, 9 * GIB))
        .into();
    facts.residency = vec![moved(Place::Out, false), other];
    let words = ["on the host or in files (9 GiB in files, of all its GPUs)"];
    says(&facts, State::Out, &words, &["have been in files"]);
    facts.residency.truncate(1);
    let words = ["have been in files"];
    says(&facts, State::Out, &words, &["on the host"]);
}

fn in_files(device: [u8; 16], in_files: u64) -> TenantSwaps {
    TenantSwaps {
        name: "web".to_owned(),
        device,
        out_bytes: 0,
        in_bytes: 0,
        out_times: Histogram::default(),
        in_times: Histogram::default(),
        in_files,
    }
}
