//! A command that suspends a tenant ends, also where the tenant does not leave.

use super::*;

/// A daemon that asks a tenant that did not leave again after a pause, and a tenant with 4 GiB.
fn scene(folder: &Path, pause: Nanos) -> (Daemon, Gated, Wire) {
    let daemon = daemon_with(folder, 64, |swap| swap.backoff = (pause, pause));
    let (mut one, command) = mover(&daemon, "one", Hello::MOVABLE);
    one.client.grow(0, 4 * GIB);
    one.client.charge(4 * GIB);
    shows(&daemon, &[(&one, 4)]);
    (daemon, one, command)
}

fn suspends(command: &mut Wire) -> u32 {
    let tenant = "one".to_owned();
    command.ask(&Control::Suspend { tenant })
}

fn error(command: &mut Wire, id: u32) -> String {
    match command.answer(id) {
        ControlReply::Error(error) => error.message,
        other => panic!("{other:?}"),
    }
}

fn is_busy(one: &mut Gated, why: Obstacle) {
    let epoch = one.ordered(Order::Seal);
    one.says(&Request::SealBusy {
        device_index: 0,
        epoch,
        why,
        retry_ms: 0,
    });
}

#[test]
fn a_suspend_that_fails_is_answered_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, mut one, mut command) = scene(folder.path(), Nanos::secs(60));
    for (why, words) in [
        (Obstacle::Work, "work that it submitted does not end"),
        (Obstacle::Capture, "one of its streams captures"),
    ] {
        let suspend = suspends(&mut command);
        is_busy(&mut one, why);
        let said = error(&mut command, suspend);
        assert!(said.contains(words), "{said}");
        assert!(said.contains("`gpushare resume one` ends that"), "{said}");
    }
}

#[test]
fn a_connection_that_suspends_a_tenant_over_and_over_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, mut one, mut command) = scene(folder.path(), Nanos::secs(60));
    let asked: Vec<u32> = (0..16).map(|_| suspends(&mut command)).collect();
    let tenant = "one".to_owned();
    let resume = command.ask(&Control::Resume { tenant });
    for id in [suspends(&mut command), resume] {
        let said = error(&mut command, id);
        assert!(said.contains("wait for the answers"), "{said}");
    }
    is_busy(&mut one, Obstacle::Work);
    for id in asked {
        let said = error(&mut command, id);
        assert!(said.contains("does not end"), "{said}");
    }
    // There is room again.
    let again = suspends(&mut command);
    is_busy(&mut one, Obstacle::Work);
    assert!(error(&mut command, again).contains("does not end"));
}

#[test]
fn a_suspend_that_failed_stands_and_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, mut one, mut command) = scene(folder.path(), Nanos::millis(1));
    let suspend = suspends(&mut command);
    is_busy(&mut one, Obstacle::Call);
    error(&mut command, suspend);
    one.is_sealed();
    one.is_away(4);
    shows(&daemon, &[]);
    one.ordered(Order::Out);
}

#[test]
fn a_suspend_whose_memory_finds_no_room_says_so_and_when_it_asks_again() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, mut one, mut command) = scene(folder.path(), Nanos::secs(60));
    let suspend = suspends(&mut command);
    one.is_sealed();
    let epoch = one.ordered(Order::Leave);
    one.says(&Request::NoRoom {
        device_index: 0,
        epoch,
        bytes: 4 * GIB,
    });
    let said = error(&mut command, suspend);
    assert!(said.contains("the host has 4 GiB too little"), "{said}");
    assert!(said.contains("asked again in 60 s"), "{said}");
    // A new command does not wait for that.
    suspends(&mut command);
    assert_ne!(one.ordered(Order::Seal), epoch);
}

#[test]
fn a_suspend_ends_where_the_tenant_has_nothing_on_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 64);
    let (mut command, _socket) = daemon.tenant("one", &LIMITS);
    let suspend = suspends(&mut command);
    assert_eq!(command.answer::<ControlReply>(suspend), ControlReply::Done);
}

/// The same, suspended and on its way back, by command.
fn returning(folder: &Path) -> (Daemon, Gated, Wire) {
    let (daemon, mut one, mut command) = scene(folder, Nanos::secs(60));
    let suspend = suspends(&mut command);
    one.is_sealed();
    shows(&daemon, &[]);
    one.is_away(4);
    assert_eq!(command.answer::<ControlReply>(suspend), ControlReply::Done);
    let tenant = "one".to_owned();
    command.ask(&Control::Resume { tenant });
    one.ordered(Order::Return);
    (daemon, one, command)
}

#[test]
fn a_suspend_of_a_tenant_whose_return_finds_no_room_takes_the_return_back() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, mut one, mut command) = returning(folder.path());
    let epoch = one.ordered(Order::Return);
    one.says(&Request::NoRoom {
        device_index: 0,
        epoch,
        bytes: GIB,
    });
    let suspend = suspends(&mut command);
    one.is_away(4);
    assert_eq!(command.answer::<ControlReply>(suspend), ControlReply::Done);
    one.ordered(Order::Out);
}

#[test]
fn a_suspend_of_a_tenant_that_stops_in_its_return_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, mut one, mut command) = returning(folder.path());
    let suspend = suspends(&mut command);
    let said = error(&mut command, suspend);
    assert!(said.contains("does not get there"), "{said}");
    assert!(said.contains("`gpushare resume one` ends that"), "{said}");
    // It is asked to leave once it is back.
    let epoch = one.ordered(Order::Return);
    one.says(&Request::Back {
        device_index: 0,
        epoch,
    });
    one.is_sealed();
    one.is_away(4);
    one.ordered(Order::Out);
}

#[test]
fn a_suspend_that_failed_stands_under_the_next_daemon() {
    for resumed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (daemon, mut one, mut command) = scene(folder.path(), Nanos::secs(60));
        let suspend = suspends(&mut command);
        is_busy(&mut one, Obstacle::Work);
        error(&mut command, suspend);
        if resumed {
            let tenant = "one".to_owned();
            let done: ControlReply = command.call(&Control::Resume { tenant });
            assert_eq!(done, ControlReply::Done);
        }
        drop(daemon);
        let daemon = daemon_set(folder.path(), 64, |settings| {
            settings.recovery = Nanos::millis(300);
        });
        let socket = folder.path().join("sockets/one/gpushare.sock");
        let mut client = one.client;
        let reply = client.reconnect_with(&socket, Hello::GATED | Hello::MOVABLE);
        assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
        client.wire.descriptors.pop();
        believed::claims(&mut client, 0);
        let mut one = Gated::map(client);
        shows(&daemon, &[(&one, 4)]);
        if resumed {
            one.ordered(Order::In);
            daemon.devices.until_looked_at();
            one.ordered(Order::In);
            continue;
        }
        one.is_sealed();
        one.is_away(4);
        shows(&daemon, &[]);
        one.ordered(Order::Out);
    }
}
