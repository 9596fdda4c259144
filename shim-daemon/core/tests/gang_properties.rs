//! What holds after every event, for any gangs over any devices beside any tenants of one device, that come and die at any
//! time: nobody who waits is starved, every gang's collectives go on, and nothing that is decided breaks a schedule.

use crate::cases;
use crate::machine::{Length, Machine, Process, Program, Rig, request};
use gpushare_core::{Compute, ContainerId, Nanos};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A container: its devices, its weight, its kernels in microseconds, when it comes, and whether it is killed.
#[derive(Clone, Debug)]
struct Tenant {
    devices: BTreeSet<usize>,
    weight: u16,
    micros: u64,
    comes: u64,
    dies: bool,
    together: bool,
}

fn tenant() -> impl Strategy<Value = Tenant> {
    let devices = btree_set(0..4usize, 1..4);
    let program = (50..3_000u64, any::<bool>());
    (devices, 1..10u16, program, 0..300u64, any::<bool>()).prop_map(
        |(devices, weight, (micros, together), comes, dies)| Tenant {
            together: together && devices.len() > 1,
            devices,
            weight,
            micros,
            comes,
            dies,
        },
    )
}

impl Tenant {
    fn program(&self) -> Program {
        let length = Length::Fixed(Nanos::micros(self.micros));
        if self.together {
            Program::Collective(length)
        } else {
            Program::Deep(length)
        }
    }

    fn start(&self, rig: &mut Rig, container: u64) -> Process {
        let programs: Vec<(usize, Program)> = self
            .devices
            .iter()
            .map(|device| (*device, self.program()))
            .collect();
        rig.start(container, 500, request(self.weight), &programs)
    }
}

/// The longest anybody may wait: everybody's turn, several times over, for a gang that is not next where it is let in
/// elsewhere, and that of one whose weight is nine times as large.
fn patience(tenants: &[Tenant]) -> Nanos {
    let count = u64::try_from(tenants.len()).unwrap_or(0);
    Nanos::millis(200 + 200 * count)
}

fn nobody_starves(rig: &Rig, most: Nanos) {
    for client in rig
        .devices
        .iter()
        .flat_map(|machine: &Machine| &machine.clients)
    {
        if let (Some(since), false) = (client.waits_since, client.gone) {
            let waited = rig.now() - since;
            assert!(
                waited <= most,
                "{:?} waits for {waited:?}, {most:?} at most",
                client.container
            );
        }
    }
}

proptest! {
    #![proptest_config(cases::config(32))]

    #[test]
    fn nobody_starves_beside_gangs_and_no_gang_does(tenants in vec(tenant(), 2..7), seed: u64) {
        let mut tenants = tenants;
        tenants.sort_by_key(|tenant| tenant.comes);
        let most = patience(&tenants);
        let mut rig = Rig::new(4, seed);
        let mut dying = Vec::new();
        // With somebody else registered nobody is free, so that no queue is deeper than a window.
        for device in 0..4 {
            rig.start(90 + device as u64, 500, request(1), &[(device, Program::Sleeps)]);
        }
        for (container, tenant) in (1..).zip(&tenants) {
            let wait = Nanos::millis(tenant.comes) - rig.now();
            rig.watch(wait, |rig| nobody_starves(rig, most));
            let process = tenant.start(&mut rig, container);
            if tenant.dies {
                dying.push(process);
            }
        }
        rig.watch(Nanos::millis(700), |rig| nobody_starves(rig, most));
        for process in dying {
            rig.kill(&process);
            rig.watch(Nanos::millis(150), |rig| nobody_starves(rig, most));
        }
        let met = rig.met.clone();
        rig.watch(most, |rig| nobody_starves(rig, most));
        for (container, tenant) in (1..).map(ContainerId).zip(&tenants) {
            if tenant.together && !tenant.dies {
                prop_assert!(rig.met.get(&container) > met.get(&container), "{:?} stands still", container);
            }
        }
    }
}

/// A container that always wants its devices.
#[derive(Clone, Debug)]
struct Claimant {
    devices: BTreeSet<usize>,
    class: u16,
    /// Percent of each of its devices.
    request: Option<u16>,
    micros: u64,
}

fn claimant() -> impl Strategy<Value = Claimant> {
    let request = prop_oneof![Just(None), (5..24u16).prop_map(Some)];
    (btree_set(0..3usize, 1..3), 0..3u16, request, 50..1_000u64).prop_map(
        |(devices, class, request, micros)| Claimant {
            devices,
            class: 400 + 100 * class,
            request,
            micros,
        },
    )
}

impl Claimant {
    fn start(&self, rig: &mut Rig, container: u64) {
        let length = Length::Fixed(Nanos::micros(self.micros));
        let program = match self.devices.len() {
            1 => Program::Deep(length),
            _ => Program::Collective(length),
        };
        let programs: Vec<(usize, Program)> = self
            .devices
            .iter()
            .map(|device| (*device, program))
            .collect();
        let compute = self.request.map_or_else(Compute::default, request);
        rig.start(container, self.class, compute, &programs);
    }
}

/// What a container had of a device so far.
fn had(rig: &Rig, device: usize, container: u64) -> f64 {
    let had = &rig.devices[device].meter.had;
    had.get(&ContainerId(container)).copied().unwrap_or(0) as f64
}

proptest! {
    #![proptest_config(cases::config(12))]

    #[test]
    fn every_guarantee_is_kept_whatever_the_classes_of_gangs_and_of_others(claimants in vec(claimant(), 2..5), seed: u64) {
        let mut rig = Rig::new(3, seed);
        for device in 0..3 {
            rig.start(90 + device as u64, 1, Compute::default(), &[(device, Program::Sleeps)]);
        }
        for (container, claimant) in (1..).zip(&claimants) {
            claimant.start(&mut rig, container);
        }
        let places: Vec<(u64, usize, &Claimant)> = (1..)
            .zip(&claimants)
            .flat_map(|(container, claimant)| claimant.devices.iter().map(move |device| (container, *device, claimant)))
            .collect();
        let parts = |rig: &Rig| places.iter().map(|(container, device, _)| had(rig, *device, *container)).collect::<Vec<_>>();
        rig.run(Nanos::millis(300));
        let before = parts(&rig);
        rig.run(Nanos::millis(1_500));
        for ((container, device, claimant), (before, after)) in places.iter().zip(before.into_iter().zip(parts(&rig))) {
            let part = (after - before) / 1.5e9;
            let due = f64::from(claimant.request.unwrap_or(0)) / 100.0;
            prop_assert!(part >= due - 0.02, "{container} has {part} of {device}, and {due} is promised");
        }
    }
}
