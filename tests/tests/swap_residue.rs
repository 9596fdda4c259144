//! What `gpushare ps` says of memory that cannot move: its reasons and figures, from the real
//! library by the real daemon, beside what the device really holds.

use gpushare_tests::{Guest, Home, MIB, clients, until};
use serde_json::{Value, json};
use softgpu::world::Kind;

const NODE: &str = "first_context = \"4MiB\"\n[swap]\nhost = \"1GiB\"\n";
const DEVICE: &str = "mem=512MiB,ctx=2MiB";

/// A tenant that swaps, after these lines.
fn after(home: &Home, lines: &[&str]) -> Guest {
    client_after(home, "movable", lines)
}

fn client_after(home: &Home, client: &str, lines: &[&str]) -> Guest {
    let mut command = home.run("one", &["--on-collision", "swap", "--mem-limit", "400MiB"]);
    command.arg(clients::compile(client, &[]));
    let mut guest = Guest::start(command);
    for line in ["init"].iter().chain(lines) {
        let word = line.split(' ').next().unwrap_or_default();
        assert_eq!(guest.ask(line), format!("{word} 0"), "{line}");
    }
    guest
}

/// The bytes of these kinds that the device really has of the process.
fn held(home: &Home, kinds: &[Kind]) -> u64 {
    let truth = home.gpu().truth();
    let alive = truth.processes.iter().filter(|process| process.alive);
    let held = alive.flat_map(|process| kinds.iter().map(|kind| process.requested[*kind as usize]));
    held.sum()
}

/// What `ps` says once it says that so much can move.
fn told(home: &Home, movable: u64) -> Value {
    let row = home.until("one", |row| row["residency"]["movable"] == movable);
    row["residency"].clone()
}

#[test]
fn ps_shows_what_cannot_move_by_its_reason_and_what_it_comes_to() {
    let home = Home::with_config(DEVICE, NODE);
    let lines = [
        "begin 2",
        "pitched 4194304",
        "alloc 0 65536",
        "end",
        "array 8388608",
        "pool 1 1 0",
        "from 1 4194304 1 1",
        "tiles 6291456",
        "handle 10485760",
        "share",
        "alloc 15 134217728",
    ];
    let mut guest = after(&home, &lines);
    let shown = told(&home, 128 * MIB);
    let pools = held(&home, &[Kind::Pool]);
    let wanted = json!({
        "small": 65_536,
        "arrays": (4 + 8) * MIB,
        "pools": pools,
        "handles": 6 * MIB,
        "shared": 10 * MIB,
        "managed": 0,
    });
    assert_eq!(shown["residue"], wanted);
    assert!(pools >= 4 * MIB, "{pools}");

    // Exactly that stays on the device.
    let fixed = [Kind::Linear, Kind::Array, Kind::Vmm, Kind::Pool];
    home.suspend("one");
    let stays = pools + 65_536 + (4 + 8 + 6 + 10) * MIB;
    until("the rest is off the device", || {
        held(&home, &fixed) == stays
    });
    let shown = told(&home, 128 * MIB);
    assert_eq!(shown["residue"], wanted);
    // What is away is what the device no longer shows: as exact as the context's size is known.
    let away = shown["away"].as_u64().expect("bytes");
    assert!(away.abs_diff(128 * MIB) <= 2 * MIB, "{away}");

    let text = home.gpushare(&["ps"]);
    let text = String::from_utf8(text.stdout).expect("text");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        " MiB on the host",
        "cannot (small 64 KiB, arrays 12 MiB, pools ",
        "handles 6 MiB, shared 10 MiB)",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(guest.ask("set 15 5"), "set 0", "it comes back");
}

/// What graphs allocate is the driver's: it stays, and is told with the pools' memory, until the
/// program gives it back.
#[test]
fn ps_shows_the_memory_of_graphs_with_that_of_pools() {
    let home = Home::with_config(DEVICE, NODE);
    for making in ["graph 100663296 1", "captured 100663296 1"] {
        let lines = [making, "launch 0 1", "sync 1", "linear 134217728"];
        let mut guest = client_after(&home, "ordered", &lines);
        let shown = told(&home, 128 * MIB);
        let stays = held(&home, &[Kind::Graph]);
        assert!(stays >= 96 * MIB, "{stays}");
        let wanted = json!({
            "small": 0, "arrays": 0, "pools": stays, "handles": 0, "shared": 0, "managed": 0,
        });
        assert_eq!(shown["residue"], wanted, "{making}");
        home.suspend("one");
        until("the rest is off the device", || {
            held(&home, &[Kind::Graph, Kind::Vmm]) == stays
        });
        let text = home.gpushare(&["ps"]);
        let text = String::from_utf8(text.stdout).expect("text");
        let words = format!("cannot (pools {} MiB)", stays / MIB);
        assert!(text.contains(&words), "{words}: {text}");

        for line in ["launch 0 1", "sync 1", "trim-graphs"] {
            guest.does(line);
        }
        let row = home.until("one", |row| row["residency"]["residue"]["pools"] == 0);
        assert_eq!(row["residency"]["movable"], 128 * MIB);
        assert!(guest.finish().silently().is_empty());
    }
}

#[test]
fn ps_names_managed_memory_which_the_driver_moves() {
    let home = Home::with_config(DEVICE, NODE);
    let _guest = after(&home, &["managed 12582912", "alloc 15 134217728"]);
    let shown = told(&home, 128 * MIB);
    assert_eq!(shown["residue"]["managed"], 12 * MIB, "{shown}");
    let text = home.gpushare(&["ps"]);
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(text.contains("managed 12 MiB"), "{text}");
}

#[test]
fn where_all_of_it_moves_ps_shows_no_reason() {
    let home = Home::with_config(DEVICE, NODE);
    // Served by the library: small ones, the device's pool, the program's own handles.
    let lines = [
        "alloc 0 65536",
        "async 1 4194304 1",
        "sync 1",
        "handle 4194304",
        "alloc 15 134217728",
        // A graph that allocates nothing.
        "graph 15 7",
        "launch",
    ];
    let _guest = after(&home, &lines);
    let row = home.until("one", |row| {
        row["residency"]["movable"].as_u64() >= Some(128 * MIB)
    });
    let residue = row["residency"]["residue"].as_object().expect("reasons");
    assert!(residue.values().all(|bytes| *bytes == json!(0)), "{row}");
    let text = home.gpushare(&["ps"]);
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(
        text.contains("can move") && !text.contains("cannot"),
        "{text}"
    );
}
