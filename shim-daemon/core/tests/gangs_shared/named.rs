//! Gangs by name, and gangs where the settings say turns.

use super::*;

/// A pod of a job on each device, each beside a neighbour with 70 % of it.
fn pods(rig: Rig, owners: [Option<u32>; 2]) -> (Rig, [TenantId; 2]) {
    let mut rig = rig;
    let pods = [(ONE, owners[0]), (TWO, owners[1])]
        .map(|(device, owner)| rig.start(named(owner, on(&[(device, part(30))]))));
    for (device, own) in [(ONE, 70), (TWO, 60)] {
        rig.start(on(&[(device, part(own))]));
    }
    (rig, pods)
}

#[test]
fn tenants_of_one_name_are_closed_and_opened_as_one() {
    let (mut rig, [first, second]) = pods(Rig::new(), [Some(1000), Some(1000)]);
    rig.run(3_000);
    assert!(rig.turns_of(&[(first, ONE), (second, TWO)]).len() > 4);
    assert!(!rig.sliced.contains(&first) && !rig.sliced.contains(&second));
}

#[test]
fn a_name_of_another_user_is_another_gang() {
    let (mut rig, [first, second]) = pods(Rig::new(), [Some(1000), None]);
    rig.run(3_000);
    assert!(rig.sliced.contains(&first) && rig.sliced.contains(&second));
    let of = |rig: &Rig, pod| -> Vec<Nanos> {
        let own = rig.turned.iter().filter(|(_, tenant, ..)| *tenant == pod);
        own.map(|(at, ..)| *at).collect()
    };
    assert_ne!(of(&rig, first), of(&rig, second));
}

/// A pod of a job beside a neighbour with 70 % of the first device; two on the second, with this
/// tenant beside them. The pod's percent of the first device, and how often its gates moved.
fn two_on_the_second(other: Option<Compute>) -> (u64, usize) {
    let mut rig = Rig::new();
    let even = Compute::default();
    let first = rig.start(named(None, on(&[(ONE, part(30))])));
    let pods = [0, 1].map(|_| rig.start(named(None, on(&[(TWO, even)]))));
    let neighbour = rig.start(on(&[(ONE, part(70))]));
    if let Some(compute) = other {
        rig.start(on(&[(TWO, compute)]));
    }
    rig.run(5_000);
    let (own, other) = (rig.had(first, ONE), rig.had(neighbour, ONE));
    let turns = rig.turns_of(&[(first, ONE), (pods[0], TWO), (pods[1], TWO)]);
    (own * 100 / (own + other), turns.len())
}

#[test]
fn a_gangs_tenants_on_one_gpu_are_no_others_to_each_other() {
    let (share, turns) = two_on_the_second(None);
    assert!(turns > 10, "{turns}");
    assert!((28..=32).contains(&share), "{share} % are not its 30");
}

#[test]
fn two_tenants_of_a_gang_beside_another_are_not_held_unless_ahead() {
    // The two have two thirds of the second device, which are their part.
    let (_, turns) = two_on_the_second(Some(Compute::default()));
    assert_eq!(turns, 0);
}

/// What one of them is ahead of is another of them.
#[test]
fn no_gang_is_closed_for_the_sake_of_its_own_tenants() {
    for (priority, compute) in [(500, part(70)), (900, Compute::default())] {
        let mut rig = Rig::new();
        let even = Compute::default();
        let first = rig.start(named(None, on(&[(ONE, even)])));
        let second = rig.start(named(None, on(&[(TWO, part(30))])));
        let third = TenantSpec {
            priority,
            ..on(&[(TWO, compute)])
        };
        let third = rig.start(named(None, third));
        rig.run(3_000);
        let gang = [(first, ONE), (second, TWO), (third, TWO)];
        assert_eq!(rig.turns_of(&gang), []);
        // Nor beside one that is of no gang.
        if priority > 500 {
            rig.start(on(&[(TWO, even)]));
            rig.run(3_000);
            assert_eq!(rig.turns_of(&gang), []);
        }
    }
}

#[test]
fn a_name_of_another_namespace_is_another_gang() {
    let gang_of = |namespaces: [&str; 2]| {
        let mut rig = Rig::new();
        let pods = [(ONE, namespaces[0]), (TWO, namespaces[1])].map(|(device, namespace)| {
            let mut pod = named(None, on(&[(device, part(30))]));
            let gang = pod.gang.as_mut().expect("it names one");
            gang.namespace = Some(namespace.to_owned());
            rig.start(pod)
        });
        for (device, own) in [(ONE, 70), (TWO, 60)] {
            rig.start(on(&[(device, part(own))]));
        }
        rig.run(3_000);
        // One that is of a gang is never told to submit in slices.
        pods.map(|pod| !rig.sliced.contains(&pod))
    };
    assert_eq!(gang_of(["team-a", "team-b"]), [false, false]);
    assert_eq!(gang_of(["team-a", "team-a"]), [true, true]);
}

#[test]
fn what_a_killed_member_leaves_is_no_gang() {
    let (mut rig, [first, second]) = pods(Rig::new(), [None, None]);
    rig.run(1_000);
    rig.kill(first);
    rig.run(1_000);
    assert!(
        rig.sliced.contains(&second),
        "alone it may be told to submit in slices"
    );
}

#[test]
fn a_tenant_that_leaves_a_gang_is_steered_by_itself() {
    let (mut rig, [first, second]) = pods(Rig::new(), [None, None]);
    rig.run(1_000);
    assert!(rig.sliced.is_empty() || !rig.sliced.contains(&first));
    let spec = on(&[(ONE, part(30))]);
    rig.tell(Event::Set {
        tenant: first,
        spec,
    });
    rig.run(1_000);
    assert!(rig.sliced.contains(&first) && rig.sliced.contains(&second));
}

fn are_shared(rig: &Rig) -> [bool; 2] {
    [ONE, TWO].map(|device| {
        let sharing = rig.world.sharing(device).expect("a known device");
        sharing.mode.is_some()
    })
}

#[test]
fn where_turns_are_set_a_device_is_shared_while_a_gang_is_there() {
    let mut rig = Rig::in_turns();
    for device in [ONE, TWO] {
        rig.start(on(&[(device, part(70))]));
        rig.start(on(&[(device, Compute::default())]));
    }
    rig.run(100);
    assert_eq!(are_shared(&rig), [false; 2]);
    let gang = rig.start(on(&[(ONE, part(30)), (TWO, part(30))]));
    assert_eq!(are_shared(&rig), [true; 2]);
    rig.run(3_000);
    assert!(rig.turns_of(&[(gang, ONE), (gang, TWO)]).len() > 4);
    rig.kill(gang);
    rig.run(59_900);
    assert_eq!(are_shared(&rig), [true; 2], "another may come soon");
    rig.run(200);
    assert_eq!(are_shared(&rig), [false; 2]);
    let before: Vec<u64> = rig.workers.iter().map(|worker| worker.service).collect();
    rig.run(1_000);
    for (worker, before) in rig.workers.iter().zip(before) {
        assert!(worker.service > before + 100 * MS, "it has turns again");
    }
}

#[test]
fn where_turns_are_set_one_device_is_left_to_them() {
    let mut rig = Rig::in_turns();
    rig.start(on(&[(ONE, part(50))]));
    rig.start(on(&[(ONE, part(50))]));
    rig.run(1_000);
    assert_eq!(are_shared(&rig), [false; 2]);
}

#[test]
fn where_turns_are_set_a_named_gang_is_closed_and_opened_as_one() {
    let (mut rig, [first, second]) = pods(Rig::in_turns(), [Some(1000), Some(1000)]);
    rig.run(3_000);
    assert!(rig.turns_of(&[(first, ONE), (second, TWO)]).len() > 4);
    assert!(!rig.sliced.contains(&first) && !rig.sliced.contains(&second));
}

#[test]
fn who_comes_and_goes_as_a_gang_gains_nothing_under_its_cap() {
    let mut rig = Rig::in_turns();
    let capped = rig.start(on(&[(ONE, capped(20))]));
    rig.start(on(&[(ONE, Compute::default())]));
    rig.run(500);
    let had = rig.had(capped, ONE);
    // A second process of the same tenant opens the other device for a moment, again and again.
    for round in 0..20 {
        let process = ProcessId(100 + round);
        bare::join(&mut rig.world, capped, process);
        bare::open(&mut rig.world, process, TWO);
        rig.hear();
        rig.run(25);
        let charged = Vec::new();
        rig.tell(Event::ProcessGone { process, charged });
        rig.run(25);
    }
    let part = (rig.had(capped, ONE) - had) / MS;
    assert!(part <= 220, "{part} ms of a second under a cap of a fifth");
    let share = rig.world.share(capped, ONE).expect("it is here");
    assert!(share.held >= Nanos(had / 2), "its bill stays");
}
