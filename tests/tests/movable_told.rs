//! The messages from a process with movable memory to its daemon. It reports the bytes that cannot
//! move, each with its reason; it asks for host memory in bounded pieces and gives back what it no
//! longer needs. And the access of a peer on another device to memory that has moved.

use gpushare_protocol::page::residency::Order;
use gpushare_protocol::wire::{Request, Residency, Residue};
use gpushare_tests::movable::{Outcome, Scene};
use gpushare_tests::{Guest, Home, MIB, clients, until};

/// The process's report after these lines. An allocation of movable memory makes it report.
fn residue_after(lines: &[&str]) -> Residency {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(lines);
    scene.does(&["alloc 15 134217728"]);
    let told = scene.tells(|told| told.movable == 128 * MIB);
    // The daemon is told the same when it comes anew.
    scene.dealer.come_back();
    let again = scene.tells(|_| true);
    assert_eq!(again.residue, told.residue);
    scene.guest.finish().silently();
    told
}

#[test]
fn what_cannot_move_is_told_by_its_reason() {
    let none = Residue::default();
    let cases: [(&[&str], Residue); 8] = [
        (&["alloc 0 4194304"], none),
        (
            // Made during a capture: by the driver.
            &["begin 2", "alloc 0 65536", "alloc 1 1000", "end"],
            Residue {
                small: 65_536 + 1024,
                ..none
            },
        ),
        (
            &["begin 2", "pitched 4194304", "end"],
            Residue {
                arrays: 4 * MIB,
                ..none
            },
        ),
        (
            &["array 4194304"],
            Residue {
                arrays: 4 * MIB,
                ..none
            },
        ),
        (
            &["pool 1 1 0", "from 0 4194304 1 1"],
            Residue {
                pools: 32 * MIB,
                ..none
            },
        ),
        (
            &["tiles 4194304"],
            Residue {
                handles: 4 * MIB,
                ..none
            },
        ),
        (
            &["handle 4194304", "share"],
            Residue {
                shared: 4 * MIB,
                ..none
            },
        ),
        (
            &["managed 4194304"],
            Residue {
                managed: 4 * MIB,
                ..none
            },
        ),
    ];
    for (lines, wanted) in cases {
        let mut told = {
            let movable = u64::from(lines[0] == "alloc 0 4194304") * 4 * MIB;
            let mut scene = Scene::new("mem=1GiB");
            scene.does(lines);
            scene.does(&["alloc 15 134217728"]);
            let told = scene.tells(|told| told.movable == 128 * MIB + movable);
            scene.guest.finish().silently();
            told.residue
        };
        if wanted.pools > 0 {
            // The driver chooses the size of a pool.
            assert!(told.pools >= 4 * MIB, "{told:?}");
            told.pools = wanted.pools;
        }
        assert_eq!(told, wanted, "{lines:?}");
    }
}

#[test]
fn the_next_daemon_is_told_the_reasons_too() {
    let told = residue_after(&["begin 2", "alloc 0 65536", "end", "array 4194304"]);
    assert_eq!((told.residue.small, told.residue.arrays), (65_536, 4 * MIB));
}

#[test]
fn memory_that_stays_is_told_when_it_has_changed_much() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304"]);
    let _ = scene.tells(|told| told.movable == 4 * MIB);
    scene.does(&["array 134217728"]);
    let told = scene.tells(|told| told.residue.arrays > 0);
    assert_eq!((told.movable, told.residue.arrays), (4 * MIB, 128 * MIB));
    scene.guest.finish().silently();
}

#[test]
fn host_memory_is_asked_for_in_bounded_pieces() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 300000000"]);
    scene.provided(300_000_000);
    let ranges = scene.dealer.store().ranges();
    assert!(ranges.iter().all(|bytes| *bytes <= 256 * MIB), "{ranges:?}");
    // A request that is not answered for a second is made again.
    assert!(ranges.len() >= 2, "{ranges:?}");
    scene.leaves();
    scene.returns();
    scene.guest.finish().silently();
}

#[test]
fn host_memory_that_is_too_much_is_given_back() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 200000000"]);
    scene.provided(200_000_000);
    scene.does(&["alloc 1 4194304", "fill 1 2"]);
    scene.leaves();
    scene.returns();
    let given = scene.dealer.store().given();
    scene.does(&["alloc 2 200000000"]);
    scene.provided(404 * 1_000_000);
    let more = scene.dealer.store().given() - given;
    scene.does(&["free 2"]);
    let dropped = scene.dealer.hears_some(|said| match *said {
        Request::HostDrop { bytes, .. } => Some(bytes),
        _ => None,
    });
    assert!(dropped <= more && dropped > 0, "{dropped} of {more}");
    // The host memory that is kept is enough.
    scene.leaves();
    scene.returns();
    scene.guest.answers("check 1 2", "0");
    scene.guest.finish().silently();
}

#[test]
fn a_peer_reaches_memory_that_has_moved_as_long_as_it_may() {
    let mut scene = Scene::on_two("mem=256MiB,count=2");
    scene.does(&[
        "alloc 0 4194304",
        "fill 0 1",
        "second",
        "reach",
        "across 0 5",
    ]);
    scene.provided(4 * MIB);
    scene.guest.answers("values 0 5", "0");
    scene.leaves();
    // A call on the other device waits: it may touch this one's memory.
    scene.guest.send("across 0 6");
    scene.dealer.hears(&Request::WantIn { device_index: 0 });
    scene.returns();
    assert_eq!(scene.guest.line(), "across 0");
    scene.guest.answers("values 0 6", "0");
    scene.does(&["alloc 1 4194304", "across 1 7"]);
    scene.guest.answers("values 1 7", "0");
    scene.does(&["unreach"]);
    assert!(matches!(scene.ordered(Order::Leave), Outcome::Away(_)));
    scene.returns();
    scene.guest.answers("values 0 6", "0");
    // An illegal address, which ends the second context.
    scene.guest.answers("across 0 9", "700");
    scene.guest.finish().silently();
}

/// The daemon may not have heard it before.
#[test]
fn a_call_that_waits_says_so_again_on_a_new_connection() {
    let mut scene = Scene::new("mem=256MiB");
    scene.does(&["alloc 0 4194304", "fill 0 1"]);
    scene.provided(4 * MIB);
    scene.leaves();
    scene.guest.send("check 0 1");
    let wants = Request::WantIn { device_index: 0 };
    scene.dealer.hears(&wants);
    scene.dealer.hangs_up();
    // While there is no connection the process may bring its memory back by itself. On the next one
    // it leaves again by the order in force, before or after the call was made.
    let mut waits = false;
    until("the call waits and says so, or is over", || {
        waits = scene.dealer.said().contains(&wants);
        waits || scene.guest.has_said()
    });
    if waits {
        scene.returns();
    }
    assert_eq!(scene.guest.line(), "check 0");
    scene.guest.finish().silently();
}

/// A process that leaves while it is sealed, by an order of which it does not see the one before:
/// to be in. Its messages since it was sealed, up to its return.
fn leaves_again(line: Option<&str>) -> Vec<Request> {
    let mut scene = Scene::new("mem=256MiB");
    scene.does(&["alloc 0 4194304", "fill 0 1"]);
    scene.provided(4 * MIB);
    scene.epoch += 1;
    let (device_index, epoch) = (0, scene.epoch);
    scene.dealer.order(epoch, Order::Seal);
    let sealed = Request::Sealed {
        device_index,
        epoch,
    };
    scene.dealer.hears(&sealed);
    if let Some(line) = line {
        scene.guest.send(line);
        scene.dealer.hears(&Request::WantIn { device_index });
    }
    scene.epoch += 2;
    scene.dealer.order(scene.epoch, Order::Leave);
    let mut said = Vec::new();
    let away = |said: &Request| matches!(said, Request::Away { .. });
    until("it is out", || {
        said.extend(scene.dealer.said());
        said.iter().any(away)
    });
    scene.epoch += 1;
    scene.dealer.order(scene.epoch, Order::Return);
    let back = |said: &Request| matches!(said, Request::Back { .. });
    until("it is back", || {
        said.extend(scene.dealer.said());
        said.iter().any(back)
    });
    if let Some(line) = line {
        let word = line.split(' ').next().expect("a word");
        assert_eq!(scene.guest.line(), format!("{word} 0"));
    }
    scene.guest.finish().silently();
    said
}

#[test]
fn a_call_that_waits_under_one_seal_for_two_orders_is_told_again() {
    let is_told = |said: &[Request]| said.contains(&Request::WantIn { device_index: 0 });
    assert!(is_told(&leaves_again(Some("check 0 1"))));
    assert!(!is_told(&leaves_again(None)), "no call waits");
}

/// The message that memory was not shared, and how many came.
fn unshared(said: &[Request]) -> usize {
    let is_it = |said: &&Request| matches!(said, Request::Unshared { .. });
    said.iter().filter(is_it).count()
}

#[test]
fn memory_that_is_refused_to_be_shared_is_told_once() {
    let mut scene = Scene::new("mem=1GiB");
    scene.does(&["alloc 0 4194304", "alloc 1 1000"]);
    // The first time there is no daemon to hear it.
    scene.dealer.leave();
    assert_eq!(scene.guest.ask("shares 0"), "shares 801 801");
    scene.dealer.come_back();
    scene.dealer.hears(&Request::Unshared { device_index: 0 });
    for slot in [0, 1] {
        assert_eq!(scene.guest.ask(&format!("shares {slot}")), "shares 801 801");
    }
    scene.dealer.come_back();
    let _ = scene.tells(|_| true);
    // What came before that was dropped: it comes behind it, if at all.
    scene.does(&["alloc 2 134217728"]);
    let _ = scene.tells(|told| told.movable > 128 * MIB);
    assert_eq!(unshared(&scene.dealer.said()), 0);
    scene.guest.finish().silently();
}

#[test]
fn plain_memory_that_is_shared_is_not_told() {
    let mut scene = Scene::new("mem=1GiB");
    // Made during a capture: by the driver, which shares it.
    scene.does(&["begin 2", "alloc 0 4194304", "end"]);
    let answer = scene.guest.ask("shares 0");
    assert!(answer.starts_with("shares 0 "), "{answer}");
    scene.does(&["alloc 1 134217728"]);
    let _ = scene.tells(|told| told.movable == 128 * MIB);
    assert_eq!(unshared(&scene.dealer.said()), 0);
    scene.guest.finish().silently();
}

/// Drivers bind what a pool without exports gave.
#[test]
fn a_pools_memory_that_moves_is_refused_to_be_bound_and_that_is_told() {
    let mut scene = Scene::new("mem=1GiB,driver=13050");
    scene.does(&["pool 1 0 0", "async 0 1000 1", "from 1 5000000 1 1"]);
    for slot in [0, 1] {
        assert_eq!(
            scene.guest.ask(&format!("binds {slot}")),
            "binds 801 801 801"
        );
    }
    scene.dealer.hears(&Request::Unshared { device_index: 0 });
    scene.guest.finish().silently();
}

#[test]
fn linear_memory_that_moves_is_refused_to_be_bound_as_by_the_driver() {
    let mut scene = Scene::new("mem=1GiB,driver=13050");
    scene.does(&[
        "alloc 0 4194304",
        "alloc 1 1000",
        "async 2 1000 1",
        "later 2",
    ]);
    for slot in [0, 1] {
        assert_eq!(scene.guest.ask(&format!("binds {slot}")), "binds 1 1 1");
    }
    scene.does(&["alloc 3 134217728"]);
    let _ = scene.tells(|told| told.movable > 128 * MIB);
    assert_eq!(unshared(&scene.dealer.said()), 0);
    scene.guest.finish().silently();
}

#[test]
fn an_operator_sees_once_that_a_program_could_not_share_its_memory() {
    let node = "first_context = \"4MiB\"\n[swap]\nhost = \"1GiB\"\n";
    let home = Home::with_config("mem=256MiB,ctx=2MiB", node);
    let mut command = home.run("one", &["--on-collision", "swap", "--mem-limit", "96MiB"]);
    command.arg(clients::compile("movable", &[]));
    let mut guest = Guest::start(command);
    for line in ["init", "alloc 0 4194304"] {
        guest.does(line);
    }
    for _ in 0..3 {
        assert_eq!(guest.ask("shares 0"), "shares 801 801");
    }
    let event = home.events().until("unshared", "one");
    gpushare_tests::schema::check("event.json", &event);
    assert!(event["facts"]["pid"].as_u64() > Some(0), "{event}");
    let said = home.gpushare(&["events"]).stdout;
    let said = String::from_utf8(said).expect("text");
    assert_eq!(said.matches(" unshared ").count(), 1, "{said}");
    guest.finish().silently();
}
