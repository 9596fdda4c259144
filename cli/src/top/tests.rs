//! The screen for a known node and known keys, against the files in `screens/`.

use super::keys::Key;
use super::model::{Action, Model, Stale};
use super::rows::Sort;
use super::{draw, lines, page};
use gpushare_exporter::Snapshot;
use gpushare_protocol::wire::{EventRecord, Place, ShareState};
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;
use std::time::Instant;

#[path = "../../../exporter/tests/sample.rs"]
#[allow(unreachable_pub, reason = "it is a module of the exporter's tests too")]
mod sample;

mod gpus;
mod shown;

const NOW: u64 = 1_800_000_000_000;

fn model() -> Model {
    let mut model = Model::new("node7".to_owned(), "1s".to_owned());
    model.users.insert(1000, "web".to_owned());
    model.commands.insert(11_058, "python train.py".to_owned());
    // One look has all there is to see.
    model.once = true;
    model.take(sample::node(), NOW);
    model.happened(EventRecord {
        instance: 1,
        number: 1,
        at_ms: NOW - 7_000,
        kind: "waiting".to_owned(),
        tenant: Some("train".to_owned()),
        device: None,
        text: "an allocation waits: 3 GiB are missing".to_owned(),
        facts: Vec::new(),
    });
    model
}

/// The screen of this size, by a terminal.
fn screen(model: &mut Model, (width, height): (u16, u16)) -> String {
    let backend = TestBackend::new(width, height);
    let mut terminal = Terminal::new(backend).expect("a test's terminal");
    let drawn = terminal.draw(|frame| {
        draw::draw(model, frame.buffer_mut());
    });
    drawn.expect("a test's terminal");
    lines(terminal.backend().buffer()).join("\n") + "\n"
}

fn press(model: &mut Model, keys: &str) -> Option<Action> {
    let mut last = None;
    for one in keys.chars() {
        let key = match one {
            '\n' => Key::Enter,
            '\u{1b}' => Key::Escape,
            '<' => Key::Backspace,
            '^' => Key::Up,
            'v' => Key::Down,
            one => Key::Char(one),
        };
        last = model.press(key, 10);
    }
    last
}

/// `GPUTEST_RENEW=1` writes the file anew, to be read before it is committed.
fn is_kept(name: &str, text: &str) {
    let path = format!("{}/src/top/screens/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("GPUTEST_RENEW").is_some() {
        std::fs::write(&path, text).expect("the tree is writable");
    }
    let kept = std::fs::read_to_string(&path).expect("the file is in the tree");
    assert!(kept == text, "{name} differs:\n{text}");
}

#[test]
fn a_node_fits_a_screen_of_100_columns_and_a_narrow_one() {
    is_kept("wide", &screen(&mut model(), (100, 24)));
    is_kept("narrow", &screen(&mut model(), (60, 16)));
}

#[test]
fn details_events_and_help_have_their_screens() {
    let mut all = model();
    press(&mut all, "v\n");
    is_kept("details", &screen(&mut all, (100, 24)));
    press(&mut all, "^");
    is_kept("moves", &screen(&mut all, (100, 24)));
    press(&mut all, "v");
    press(&mut all, "e");
    is_kept("events", &screen(&mut all, (100, 24)));
    press(&mut all, "?");
    is_kept("help", &screen(&mut all, (100, 24)));
    press(&mut all, "x");
    assert!(!screen(&mut all, (100, 24)).contains("leave this help"));
}

#[test]
fn a_tenant_over_its_lowered_limit_is_marked_in_its_details() {
    let mut all = model();
    press(&mut all, "v\n");
    assert!(!screen(&mut all, (100, 24)).contains("over its limit"));
    let mut rows = all.snapshot.tenants.iter_mut();
    let row = rows.find(|row| row.name == "train").expect("it is there");
    row.charged = row.limit + (7 << 30);
    let text = screen(&mut all, (100, 24));
    let told = "\n over its limit by 7 GiB: it gets no new memory\n";
    assert!(text.contains(told), "{text}");
}

#[test]
fn one_page_as_text_has_every_tenant() {
    let text = page(&mut model());
    for name in ["serve", "research", "big"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{text}");
    }
    assert!(!text.contains("q quit"), "{text}");
}

#[test]
fn any_size_is_drawn_without_a_panic() {
    let mut all = model();
    press(&mut all, "e\n");
    for (width, height) in [(1, 1), (3, 2), (20, 5), (40, 8), (300, 3), (8, 200)] {
        screen(&mut all, (width, height));
    }
}

#[test]
fn rows_are_sorted_and_filtered_by_keys() {
    let names = |model: &Model| {
        let (rows, _) = model.rows();
        rows.into_iter().map(|row| row.key.0).collect::<Vec<_>>()
    };
    let mut all = model();
    assert_eq!(names(&all), ["serve", "train", "big"]);
    // By time, by wait: what waits for admission waits the longest.
    press(&mut all, "oo");
    assert_eq!((all.sort, names(&all)[0].as_str()), (Sort::Wait, "big"));
    press(&mut all, "oo");
    assert_eq!(
        (all.sort, names(&all)),
        (
            Sort::Name,
            // By what is shown: train is the pod research/train-0.
            vec!["big".into(), "train".into(), "serve".into()]
        )
    );
    press(&mut all, "ftrai");
    assert_eq!(names(&all), ["train"]);
    press(&mut all, "<<<<<web\n");
    assert_eq!(names(&all), ["serve"], "by user");
    press(&mut all, "\u{1b}");
    assert_eq!(names(&all).len(), 3);
}

#[test]
fn a_tenant_is_ended_only_after_a_y() {
    let mut all = model();
    assert_eq!(press(&mut all, "vK"), None);
    assert!(screen(&mut all, (100, 24)).contains("ask tenant research/train-0/main to end?"));
    assert_eq!(press(&mut all, "n"), None);
    assert_eq!(press(&mut all, "y"), None, "it was answered");
    let ended = Action::End("train".to_owned(), false);
    assert_eq!(press(&mut all, "Ky"), Some(ended));
    let killed = Action::End("train".to_owned(), true);
    assert_eq!(press(&mut all, "Xy"), Some(killed));
}

#[test]
fn a_tenant_whose_memory_can_move_is_suspended_and_resumed() {
    let mut all = model();
    let order = |resume| Some(Action::Suspend("serve".to_owned(), resume));
    assert_eq!(press(&mut all, "s"), order(false));
    let mut node = sample::node();
    node.residency[0].suspended = true;
    // By command, and its programs do not let it go.
    for place in [Place::In, Place::Sealed] {
        node.residency[0].place = place;
        all.take(node.clone(), NOW);
        assert_eq!(all.rows().0[0].state, "is to leave", "{place:?}");
    }
    (node.residency[0].place, node.residency[0].away) = (Place::Out, 27 << 30);
    all.take(node, NOW);
    assert_eq!(all.rows().0[0].state, "suspended 27G 5s");
    assert_eq!(press(&mut all, "s"), order(true));
    // The memory of the next one stays where it is.
    assert_eq!(press(&mut all, "vs"), None);
    let said = all.message.as_deref().unwrap_or_default();
    assert!(
        said.contains("research/train-0/main cannot be suspended"),
        "{said}"
    );
}

#[test]
fn an_event_that_a_daemon_tells_again_is_shown_once() {
    let mut all = model();
    let first = all.events[0].clone();
    all.happened(first.clone());
    assert_eq!(all.events.len(), 1);
    // Another one, and one of another daemon with the same number.
    let next = EventRecord {
        number: 2,
        ..first.clone()
    };
    let other = EventRecord {
        instance: 2,
        ..first
    };
    for event in [next, other] {
        all.happened(event);
    }
    assert_eq!(all.events.len(), 3);
}

#[test]
fn a_tenant_whose_only_device_is_lost_keeps_a_row() {
    let mut node = sample::node();
    node.tenants.retain(|row| row.name != "serve");
    let mut all = model();
    let state = |all: &Model| {
        let rows = all.rows().0;
        let row = rows.into_iter().find(|row| row.key.0 == "serve");
        row.map(|row| row.state)
    };
    all.take(node.clone(), NOW);
    assert_eq!(state(&all), None, "it has left between two lists");
    let mut other = node.devices[0].clone();
    other.uuid = [9; 16];
    other.capabilities.push("lost".to_owned());
    node.devices.push(other);
    all.take(node.clone(), NOW);
    assert_eq!(state(&all), None, "the GPU that is lost was not its own");
    node.devices[0].capabilities.push("lost".to_owned());
    all.take(node, NOW);
    assert_eq!(state(&all).as_deref(), Some("its GPU is lost"));
}

/// The tenant that follows is not the one that was chosen.
#[test]
fn an_order_is_for_no_tenant_once_the_chosen_one_is_gone() {
    let mut all = model();
    press(&mut all, "v");
    let mut node = sample::node();
    node.tenants.retain(|row| row.name != "train");
    all.take(node, NOW);
    for keys in ["s", "Ky", "Xy", "L--mem-limit 1GiB\n"] {
        assert_eq!(press(&mut all, keys), None, "{keys}");
    }
    press(&mut all, "s");
    assert!(screen(&mut all, (100, 24)).contains("no tenant is chosen"));
    let serve = Some(Action::Suspend("serve".to_owned(), false));
    assert_eq!(press(&mut all, "vs"), serve, "by an arrow key");
    // Nor is the first row chosen because the order of the rows changed.
    let mut all = model();
    press(&mut all, "oo");
    assert_eq!(all.rows().0[0].key.0, "big");
    assert_eq!(press(&mut all, "s"), serve);
}

#[test]
fn an_order_that_is_typed_for_a_queued_tenant_outlives_its_admission() {
    let words = ["--mem-limit", "4GiB"].map(ToOwned::to_owned);
    let set = Some(Action::Set("big".to_owned(), words.to_vec()));
    // It is admitted between two looks, or between two lists of one: then its row is there first.
    for is_between_lists in [false, true] {
        let mut all = model();
        assert_eq!(all.rows().0[2].key.0, "big");
        press(&mut all, "vvL4GiB");
        let mut node = sample::node();
        node.queued.clear();
        if is_between_lists {
            let mut row = node.tenants[0].clone();
            row.name = "big".to_owned();
            node.tenants.push(row);
        } else {
            let mut identity = node.identities[0].clone();
            (identity.name, identity.age_ms) = ("big".to_owned(), 200);
            node.identities.push(identity);
        }
        all.take(node, NOW);
        assert_eq!(press(&mut all, "\n"), set, "{is_between_lists}");
    }
    // It has left the queue.
    let mut all = model();
    press(&mut all, "vvL4GiB");
    let mut node = sample::node();
    node.queued.clear();
    all.take(node, NOW);
    assert_eq!(press(&mut all, "\n"), None);
    // Another one of the name queues: that one has ended.
    let mut all = model();
    press(&mut all, "L4GiB");
    let mut node = sample::node();
    node.identities.retain(|one| one.name != "serve");
    node.tenants.retain(|one| one.name != "serve");
    let big = node.queued[0].clone();
    node.queued.push(gpushare_protocol::wire::QueuedTenant {
        name: "serve".to_owned(),
        for_ms: 90_000,
        ..big
    });
    all.take(node, NOW);
    assert_eq!(press(&mut all, "\n"), None);
}

#[test]
fn what_is_shown_is_old_until_a_look_succeeds() {
    let mut all = model();
    all.stale = Some(Stale {
        for_ms: 12_000,
        why: "lost".to_owned(),
    });
    let told = |all: &mut Model| {
        let text = screen(all, (100, 24));
        let title = text.lines().next().unwrap_or_default().to_owned();
        (
            title.contains("OLD: as it was 12s ago"),
            text.contains("what is shown is old: lost"),
        )
    };
    assert_eq!(told(&mut all), (true, true));
    press(&mut all, "v");
    assert_eq!(told(&mut all), (true, true));
    // The outcome of an order stands in the foot until a key is pressed: for ever on a wall.
    all.message = Some("web is suspended".to_owned());
    assert_eq!(told(&mut all), (true, false));
    let narrow = screen(&mut all, (40, 12));
    assert!(narrow.contains("OLD: as it was"), "{narrow}");
    all.stale = None;
    assert_eq!(told(&mut all), (false, false));
}

#[test]
fn limits_are_typed_as_flags_and_escape_leaves_them() {
    let mut all = model();
    let set = press(&mut all, "L4GiB --sm-limit 30\n");
    let words = ["--mem-limit", "4GiB", "--sm-limit", "30"].map(ToOwned::to_owned);
    assert_eq!(set, Some(Action::Set("serve".to_owned(), words.to_vec())));
    assert_eq!(press(&mut all, "L4GiB\u{1b}\n"), None);
    assert!(all.details, "the last key was Enter");
}

#[test]
fn the_selection_stays_with_its_tenant_and_on_the_screen() {
    let mut all = model();
    let mut many = sample::node();
    many.tenants = (0..200)
        .map(|at| {
            let mut row = many.tenants[0].clone();
            row.name = format!("tenant-{at:03}");
            row
        })
        .collect();
    all.take(many.clone(), NOW);
    for _ in 0..150 {
        press(&mut all, "v");
    }
    let chosen = |model: &Model| {
        let (rows, at) = model.rows();
        rows[at.expect("one is chosen")].key.0.clone()
    };
    let before = chosen(&all);
    assert!(screen(&mut all, (100, 30)).contains(&before));
    many.tenants.remove(3);
    all.take(many, NOW);
    assert_eq!(chosen(&all), before);
    assert!(screen(&mut all, (100, 30)).contains(&before));
}

#[test]
fn waits_are_those_of_the_last_minute() {
    let mut all = model();
    let wait = |model: &Model| model.rows().0[0].wait.clone();
    assert_eq!(wait(&all), "<30ms", "all there were, at the only look");
    all.take(sample::node(), NOW);
    assert_eq!(wait(&all), "-", "none since");
    let mut more = sample::node();
    more.measures[0].gate_waits.record(400_000);
    all.take(more, NOW);
    assert_eq!(wait(&all), "<1ms");
}

#[test]
fn a_capped_tenant_and_a_queued_one_stand_out() {
    let mut node: Snapshot = sample::node();
    node.shares[0].state = ShareState::Capped { for_us: 1 };
    let mut all = model();
    all.take(node, NOW);
    let (rows, _) = all.rows();
    let states: Vec<_> = rows
        .iter()
        .map(|row| (row.state.as_str(), row.alarms))
        .collect();
    let expected = [
        ("capped", true),
        ("waits 3G 2s ends 46m", true),
        ("queued 3m (46G short)", true),
    ];
    assert_eq!(states, expected);
    let plain = model();
    assert!(!plain.rows().0[0].alarms, "serve works");
}

/// Prints how long a screen of 200 tenants takes; nothing is asserted of the time.
#[test]
fn a_screen_of_200_tenants_is_drawn() {
    let mut node = sample::node();
    for list in 0..200 {
        let name = format!("t{list}");
        let (mut row, mut share, mut counts) = (
            node.tenants[0].clone(),
            node.shares[0].clone(),
            node.measures[0].clone(),
        );
        (row.name, share.name, counts.name) = (name.clone(), name.clone(), name);
        node.tenants.push(row);
        node.shares.push(share);
        node.measures.push(counts);
    }
    let mut all = model();
    let start = Instant::now();
    const FRAMES: u32 = 10;
    for _ in 0..FRAMES {
        all.take(node.clone(), NOW);
        assert!(screen(&mut all, (160, 50)).contains("t100"));
    }
    println!("a screen of 200 tenants: {:?}", start.elapsed() / FRAMES);
}
