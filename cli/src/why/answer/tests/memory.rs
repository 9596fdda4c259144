//! Tenants whose allocations wait, and who has the memory.

use super::*;

#[test]
fn a_waiting_tenant_is_told_who_has_the_memory() {
    let mut facts = facts();
    let want = Want {
        bytes: 3 * GIB,
        since_ms: 2_000,
    };
    facts.tenants = vec![
        row("web", 9 * GIB, ProcessState::Waiting(want)),
        row("small", 8 * GIB, ProcessState::Running),
        row("train", 28 * GIB, ProcessState::Running),
        TenantRow {
            request: 0,
            ..row("empty", 0, ProcessState::Running)
        },
    ];
    says(
        &facts,
        State::Waiting,
        &[
            "Process 42 of web has waited 2 s for 3 GiB on GPU 0",
            "charged 9 GiB, 1 GiB of it above the request",
            "train 28 GiB (20 GiB above its request), small 8 GiB.",
            "--wait-timeout",
        ],
        &["empty", "Promised", "nothing holds it up"],
    );
}

#[test]
fn a_waiting_tenant_is_told_what_is_promised_to_others() {
    let mut facts = facts();
    let want = Want {
        bytes: GIB,
        since_ms: 2_000,
    };
    facts.tenants = vec![
        row("web", 8 * GIB, ProcessState::Waiting(want)),
        row("small", 7 * GIB, ProcessState::Running),
        row("empty", 0, ProcessState::Running),
    ];
    says(
        &facts,
        State::Waiting,
        &[
            "not in use: 8 GiB to empty, 1 GiB to small.",
            "`gpushare set empty --mem-request SIZE`",
        ],
        &["to web"],
    );
}

/// A tenant that waits for 20 GiB, on a device of which a daemon tells this.
fn waits(of: impl FnOnce(&mut DeviceRow)) -> Facts {
    let want = Want {
        bytes: 20 * GIB,
        since_ms: 20_000,
    };
    let mut device = DeviceRow {
        uuid: GPU,
        name: "H100".to_owned(),
        capacity: 80 * GIB,
        reserve: 0,
        granted: 5 * GIB,
        overhead: 0,
        limbo: 0,
        unmanaged: 0,
        capabilities: Vec::new(),
    };
    of(&mut device);
    let mut facts = facts();
    facts.rows = vec![device];
    facts.tenants = vec![row("web", 5 * GIB, ProcessState::Waiting(want))];
    facts
}

#[test]
fn a_waiting_tenant_is_told_what_no_tenant_is_charged() {
    let besides = "Held there besides";
    says(&waits(|_| ()), State::Waiting, &["20 GiB"], &[besides]);
    let strangers = waits(|device| device.unmanaged = 60 * GIB);
    let words = [
        besides,
        "60 GiB by processes of no tenant",
        "--kind unmanaged",
    ];
    says(&strangers, State::Waiting, &words, &["dead", "contexts"]);
    let mut all = waits(|device| {
        (device.limbo, device.overhead, device.reserve) = (10 * GIB, 3 * GIB, 2 * GIB);
    });
    all.excess = vec![ExcessRow {
        name: "train".to_owned(),
        device: GPU,
        bytes: 4 * GIB,
    }];
    let words = [
        besides,
        "10 GiB by dead processes",
        "4 GiB by tenants beyond what they may",
        "3 GiB by contexts",
        "2 GiB by the node",
    ];
    says(&all, State::Waiting, &words, &["no tenant"]);
    // Another device's.
    let elsewhere = waits(|device| (device.uuid, device.unmanaged) = ([8; 16], GIB));
    says(&elsewhere, State::Waiting, &["20 GiB"], &[besides]);
}

#[test]
fn a_waiting_tenant_is_not_told_of_memory_off_the_device() {
    let of = |charged, away| {
        let mut facts = waits(|_| ());
        let train = row("train", charged, ProcessState::Running);
        facts.tenants.push(TenantRow {
            request: 0,
            ..train
        });
        facts.residency = vec![ResidencyRow {
            name: "train".to_owned(),
            away,
            ..moved::moved(Place::Out, false)
        }];
        facts
    };
    says(&of(40 * GIB, 40 * GIB), State::Waiting, &[], &["train"]);
    let part = ["train 10 GiB (10 GiB above its request)."];
    says(
        &of(40 * GIB, 30 * GIB),
        State::Waiting,
        &part,
        &["train 40 GiB"],
    );
    let all = ["train 40 GiB (40 GiB above its request)."];
    says(&of(40 * GIB, 0), State::Waiting, &all, &[]);
}

#[test]
fn a_waiting_tenant_is_not_told_of_a_dead_one_with_nothing() {
    let mut facts = waits(|device| device.limbo = 10 * GIB);
    let mut dead = row("train", 0, ProcessState::Running);
    (dead.request, dead.limbo) = (0, 10 * GIB);
    facts.tenants.push(dead);
    let words = ["10 GiB by dead processes"];
    says(&facts, State::Waiting, &words, &["train", "0 bytes"]);
}
