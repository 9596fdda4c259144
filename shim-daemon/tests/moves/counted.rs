//! Moves are counted by direction, for metrics and commands.

use super::*;

/// The node's room, and the moves of the only tenant.
fn swaps(command: &mut Wire) -> (SwapRoom, TenantSwaps) {
    let page = command.call(&Control::Page {
        of: Listing::Swaps,
        from: Cursor::default(),
    });
    let ControlReply::Page {
        rows: Rows::Swaps(rows),
        next: None,
    } = page
    else {
        panic!("{page:?}")
    };
    match <[SwapRow; 2]>::try_from(rows).unwrap() {
        [SwapRow::Room(room), SwapRow::Tenant(tenant)] => (room, tenant),
        other => panic!("{other:?}"),
    }
}

/// The bytes granted on the only device.
fn granted(command: &mut Wire) -> u64 {
    match command.call(&Listing::Devices.first()) {
        ControlReply::Page {
            rows: Rows::Devices(rows),
            ..
        } => rows[0].granted,
        other => panic!("{other:?}"),
    }
}

/// The facts of the last event of a kind.
fn fact(daemon: &Daemon, kind: &str, name: &str) -> Option<u64> {
    let mut wire = daemon.command();
    let id = wire.ask(&Control::Follow { past: 100 });
    loop {
        match wire.answer(id) {
            ControlReply::Event(record) if record.kind == kind => return record.number_of(name),
            ControlReply::Event(_) => (),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn moves_are_counted_by_direction_with_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 64);
    let (mut one, mut command) = mover(&daemon, "one", Hello::MOVABLE);
    one.client.grow(0, 4 * GIB);
    one.client.charge(4 * GIB);
    shows(&daemon, &[(&one, 4)]);
    let (room, before) = swaps(&mut command);
    assert_eq!((room.host, room.host_used), (64 * GIB, 0));
    assert_eq!(
        (before.out_bytes, before.in_bytes, before.in_files),
        (0, 0, 0)
    );
    assert_eq!(granted(&mut command), 4 * GIB);
    let tenant = || "one".to_owned();
    let suspend = command.ask(&Control::Suspend { tenant: tenant() });
    one.is_sealed();
    one.is_away(4);
    shows(&daemon, &[]);
    assert_eq!(command.answer::<ControlReply>(suspend), ControlReply::Done);
    let (_, out) = swaps(&mut command);
    assert_eq!((out.out_bytes, out.in_bytes), (4 * GIB, 0));
    assert_eq!(granted(&mut command), 0, "nothing of it is on the device");
    assert_eq!((out.out_times.count(), out.in_times.count()), (1, 0));
    assert_eq!(fact(&daemon, "left", "bytes"), Some(4 * GIB));
    assert!(fact(&daemon, "left", "took_ms").is_some());
    let resume = command.ask(&Control::Resume { tenant: tenant() });
    one.is_back();
    assert_eq!(command.answer::<ControlReply>(resume), ControlReply::Done);
    let (_, back) = swaps(&mut command);
    assert_eq!((back.out_bytes, back.in_bytes), (4 * GIB, 4 * GIB));
    assert_eq!((back.out_times.count(), back.in_times.count()), (1, 1));
    assert_eq!(fact(&daemon, "returned", "bytes"), Some(4 * GIB));
}

#[test]
fn a_move_that_is_given_up_counts_the_part_that_left_and_no_time() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 64);
    let (mut one, mut command) = mover(&daemon, "one", Hello::MOVABLE);
    one.client.grow(0, 4 * GIB);
    one.client.charge(4 * GIB);
    shows(&daemon, &[(&one, 4)]);
    let tenant = "one".to_owned();
    command.ask(&Control::Suspend { tenant });
    one.is_sealed();
    let epoch = one.ordered(Order::Leave);
    one.says(&Request::Moved {
        device_index: 0,
        epoch,
        away: GIB,
    });
    one.says(&Request::SealBusy {
        device_index: 0,
        epoch,
        why: Obstacle::Driver,
        retry_ms: 60_000,
    });
    one.is_back();
    one.ordered(Order::In);
    let mut command = daemon.command();
    let (_, row) = swaps(&mut command);
    assert_eq!((row.out_bytes, row.in_bytes), (GIB, GIB));
    assert_eq!((row.out_times.count(), row.in_times.count()), (0, 1));
    assert_eq!(fact(&daemon, "did-not-leave", "bytes"), Some(GIB));
}

#[test]
fn a_node_whose_memory_does_not_move_lists_no_moves() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (mut command, _socket) = daemon.tenant("one", &LIMITS[..1]);
    let page: ControlReply = command.call(&Control::Page {
        of: Listing::Swaps,
        from: Cursor::default(),
    });
    let rows = Rows::Swaps(Vec::new());
    assert_eq!(page, ControlReply::Page { rows, next: None });
}

/// How often the host was full for moves from the only device, as metrics tell.
fn times_full(command: &mut Wire) -> u64 {
    let ControlReply::Page {
        rows: Rows::Metrics(rows),
        ..
    } = command.call(&Listing::Metrics.first())
    else {
        panic!("no counts")
    };
    let mut devices = rows.iter().filter_map(|row| match row {
        MetricsRow::Device(row) => Some(row.refused.host_full),
        _ => None,
    });
    devices.next().unwrap()
}

#[test]
fn a_move_that_the_host_has_no_room_for_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    // One tenant of 10 GiB has to leave, and as much room has to stay for another move.
    let daemon = daemon(folder.path(), 15);
    let (_tenants, _ask, [mut command, _two]) = two(&daemon, Hello::MOVABLE);
    let needed = fact(&daemon, "host-full", "needed_bytes");
    assert_eq!(needed, Some(20 << 30));
    assert_eq!(times_full(&mut command), 1);
}

#[test]
fn a_move_that_the_host_has_room_for_is_not_counted_as_refused() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 20);
    let ((mut first, _second), _ask, [mut command, _two]) = two(&daemon, Hello::MOVABLE);
    first.is_sealed();
    assert_eq!(times_full(&mut command), 0);
}

/// The driver has what the device has no room for on the host, and no order moved it there.
#[test]
fn managed_memory_above_the_device_is_told_as_off_it() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon_set(folder.path(), 0, |settings| {
        settings.capacity = Some(Bytes(2 * GIB));
    });
    let limits = [
        ("GPUSHARE_MEM_LIMIT", "5GiB"),
        ("GPUSHARE_OVERSUBSCRIBE", "uvm"),
    ];
    let (mut command, socket) = daemon.tenant("large", &limits);
    let capabilities = Hello::GATED | Hello::MOVABLE;
    let client = Client::register_with(&socket, capabilities);
    let mut large = Gated::map(client);
    assert!(matches!(large.client.open(), Reply::Granted { .. }));
    for (held, more, away) in [(0, 1, 0), (1, 2, 1)] {
        let granted = large.client.grow(held * GIB, more * GIB);
        assert!(matches!(granted, Reply::Granted { .. }), "{granted:?}");
        large.client.charge(more * GIB);
        shows(&daemon, &[(&large, (held + more).min(2))]);
        daemon.devices.until_looked_at();
        let told = places(&mut command);
        assert_eq!(told, [("large".to_owned(), Place::In, away)]);
    }
}
