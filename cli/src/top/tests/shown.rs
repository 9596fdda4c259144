//! The rows of tenants that are alone, in containers, or on GPUs that they never used.

use super::*;
use gpushare_protocol::wire::Alone;

/// A node with one tenant of the sample, which is alone on its GPU and billed nothing.
fn alone(part: Option<u32>) -> Model {
    let mut node = sample::node();
    node.shares[0].state = ShareState::Free;
    (node.shares[0].held, node.shares[0].weight) = (0, 1000);
    node.shares[1].held = 40;
    let over_ms = 9_000;
    node.shares[0].alone = part.map(|part| Alone { part, over_ms });
    let mut all = model();
    all.take(node, NOW);
    all
}

#[test]
fn a_tenant_alone_shows_what_nvml_saw_and_comes_first_by_time() {
    let of = |all: &Model| {
        let row = all.rows().0.into_iter().find(|row| row.key.0 == "serve");
        row.map(|row| (row.time, row.state, row.details[0].clone()))
    };
    let mut all = alone(Some(930));
    let (time, state, said) = of(&all).expect("it is there");
    assert_eq!((&*time, &*state), ("93%/100%/-", "runs alone"));
    assert!(
        said.contains("nothing is billed") && said.contains("NVML saw"),
        "{said}"
    );
    press(&mut all, "o");
    assert_eq!((all.sort, &*all.rows().0[0].key.0), (Sort::Time, "serve"));
    // Where NVML does not tell.
    let mut all = alone(None);
    let (time, _, said) = of(&all).expect("it is there");
    assert_eq!(time, "alone/100%/-");
    assert!(said.contains("NVML does not say"), "{said}");
    press(&mut all, "o");
    assert_eq!(all.rows().0[0].key.0, "serve");
    // Beside another, what it had alone a moment ago counts, too.
    let mut all = alone(Some(300));
    all.snapshot.shares[0].state = ShareState::Sharing { for_us: 1 };
    all.snapshot.shares[0].held = 500;
    let (time, state, _) = of(&all).expect("it is there");
    assert_eq!((&*time, &*state), ("80%/100%/-", "running"));
}

/// Of what MPS shares nothing is steered, and nothing billed.
#[test]
fn a_tenant_with_mps_clients_has_a_cap_and_no_part_of_the_time() {
    let row = |all: &Model| {
        let row = all.rows().0.into_iter().find(|row| row.key.0 == "train");
        let row = row.expect("it is there");
        (row.time, row.details.join("\n"))
    };
    let mut all = model();
    all.snapshot.shares[1].state = ShareState::Free;
    let (time, said) = row(&all);
    assert_eq!(time, "mps/-/30%");
    assert!(!said.contains("alone on the GPU"), "{said}");
    press(&mut all, "o");
    assert_eq!((all.sort, &*all.rows().0[0].key.0), (Sort::Time, "serve"));
    all.snapshot.mps.clear();
    all.snapshot.shares[1].state = ShareState::Waiting { for_us: 800 };
    assert_eq!(row(&all).0, "69%/70%/30%");
}

#[test]
fn a_tenant_is_due_a_part_only_where_it_has_a_process() {
    let due = |(weight, over_ms): (u32, u64)| {
        let mut all = model();
        let share = &mut all.snapshot.shares[0];
        (share.weight, share.over_ms, share.state) = (weight, over_ms, ShareState::Idle);
        let row = all.rows().0.into_iter().find(|row| row.key.0 == "serve");
        row.map(|row| row.time)
    };
    assert_eq!(due((700, 9_000)).as_deref(), Some("69%/70%/-"));
    // A higher priority leaves it none.
    assert_eq!(due((0, 9_000)).as_deref(), Some("69%/0%/-"));
    // Its request is none of the time before its first context.
    assert_eq!(due((0, 0)).as_deref(), Some("-/-/-"));
}

#[test]
fn containers_are_shown_and_found_by_their_pods() {
    let id = "3f9c0d5512e1".to_owned() + &"ab".repeat(26);
    let mut node = sample::node();
    node.pods[0].name.clone_from(&id);
    for name in node
        .tenants
        .iter_mut()
        .map(|row| &mut row.name)
        .chain(node.shares.iter_mut().map(|row| &mut row.name))
    {
        if name == "train" {
            name.clone_from(&id);
        }
    }
    let mut all = model();
    all.take(node, NOW);
    let mut event = all.events[0].clone();
    (event.number, event.tenant) = (2, Some(id.clone()));
    event.text = format!("waits for {id}, and for {}", "c".repeat(64));
    all.happened(event);
    let text = screen(&mut all, (160, 24));
    assert!(!text.contains(&id), "{text}");
    assert!(text.contains("\nresearch/train-0/main "), "{text}");
    let told =
        "waiting research/train-0/main waits for research/train-0/main, and for cccccccccccc\n";
    assert!(text.contains(told), "{text}");
    // Where there is little room the pod's name stays, or its ends.
    let narrow = screen(&mut all, (60, 24));
    assert!(
        narrow.lines().any(|line| line.starts_with("train-0 ")),
        "{narrow}"
    );
    let mut long = sample::node();
    long.pods[0].pod = "web-7f9c5d7b9-x8k2v".to_owned();
    all.take(long, NOW);
    let narrow = screen(&mut all, (60, 24));
    assert!(
        narrow.lines().any(|line| line.starts_with("web…8k2v ")),
        "{narrow}"
    );
    let mut node = sample::node();
    node.pods[0].name.clone_from(&id);
    node.tenants[1].name.clone_from(&id);
    all.take(node, NOW);
    press(&mut all, "fresearch/\n");
    let found = all.rows().0;
    assert!(found.len() == 1 && found[0].key.0 == id, "{found:?}");
    press(&mut all, "vK");
    assert!(screen(&mut all, (100, 24)).contains("ask tenant research/train-0/main to end?"));
    assert_eq!(press(&mut all, "y"), Some(Action::End(id, false)));
}

#[test]
fn gpus_that_a_tenant_never_used_have_no_row() {
    let mut node = sample::node();
    let own = node.tenants[0].clone();
    let unused = (0..7).map(|at| {
        let mut row = own.clone();
        (row.device, row.charged, row.overhead) = ([100 + at; 16], 0, 0);
        row
    });
    node.tenants.splice(1..1, unused);
    let mut all = model();
    all.take(node, NOW);
    let rows = all.rows().0;
    let own: Vec<_> = rows.iter().filter(|row| row.key.0 == "serve").collect();
    assert_eq!(own.len(), 1, "{own:?}");
    let more =
        |row: &crate::top::rows::Row| row.details.iter().any(|line| line.contains("7 more GPUs"));
    assert!(more(own[0]), "{own:?}");
    assert!(
        rows.iter()
            .filter(|row| row.key.0 != "serve")
            .all(|row| !more(row))
    );
}

#[test]
fn processes_of_no_tenant_are_one_line_that_hides_no_event() {
    let mut node = sample::node();
    let row = node.devices[0].clone();
    let counted = node.counted[0].clone();
    for at in 3..6 {
        let mut device = row.clone();
        (device.uuid, device.unmanaged) = ([at; 16], 1 << 30);
        node.devices.push(device);
        let mut counts = counted.clone();
        (counts.device, counts.unmanaged) = ([at; 16], 2);
        node.counted.push(counts);
    }
    node.devices[0].unmanaged = 5 << 30;
    let mut all = model();
    all.take(node, NOW);
    let text = screen(&mut all, (100, 40));
    let told =
        "!unmanaged on GPUs 0, 2, 3, 4: 7 processes compute; 8G held by processes of no tenant";
    assert!(text.contains(told), "{text}");
    assert!(text.contains("7s ago waiting"), "{text}");
}

#[test]
fn an_order_for_a_tenant_that_ended_is_not_for_the_next_of_its_name() {
    let again = |age_ms: u64| {
        let mut next = sample::node();
        next.identities[0].age_ms = age_ms;
        next
    };
    for keys in ["K", "X", "L"] {
        let mut all = model();
        press(&mut all, keys);
        all.take(again(61_000), NOW + 1_000);
        assert!(all.ending.is_some() || all.typing.is_some(), "it lives on");
        all.take(again(500), NOW + 2_000);
        assert_eq!(press(&mut all, "y\n"), None, "{keys}");
        assert!(screen(&mut all, (100, 24)).contains("serve"));
        assert_eq!(all.rows().1, None, "nothing is chosen");
        press(&mut all, "K");
        assert_eq!(all.ending, None);
        // Chosen again it is the new one.
        press(&mut all, "^K");
        assert_eq!(all.ending, Some(("serve".to_owned(), false)));
    }
    let mut gone = model();
    press(&mut gone, "K");
    let mut without = sample::node();
    without.identities.remove(0);
    gone.take(without, NOW + 1_000);
    gone.take(again(500), NOW + 2_000);
    assert_eq!(press(&mut gone, "y"), None);
    assert_eq!(gone.rows().1, None);
}

/// What a tenant waited before `top` began is no part of the last 60 looks.
#[test]
fn waits_are_those_since_the_first_look_or_of_whole_lives_with_once() {
    let waits = |model: &Model| -> Vec<String> {
        let (rows, _) = model.rows();
        rows.into_iter().map(|row| row.wait).collect()
    };
    let mut all = model();
    assert_eq!(waits(&all), ["<30ms", "<30ms", "-"], "with --once");
    all.once = false;
    assert_eq!(waits(&all), ["-", "-", "-"]);
    let mut next = sample::node();
    next.measures[0].gate_waits.record(900_000);
    all.take(next, NOW + 1_000);
    assert_eq!(waits(&all), ["<1ms", "-", "-"]);
}

#[test]
fn no_more_is_used_of_a_gpu_than_it_has_where_memory_is_managed() {
    let mut all = model();
    all.snapshot.tenants[0].charged = 120 << 30;
    all.snapshot.residency[0].away = 0;
    let text = screen(&mut all, (100, 24));
    assert!(
        text.contains("used 67G") && !text.contains("used 1"),
        "{text}"
    );
}
