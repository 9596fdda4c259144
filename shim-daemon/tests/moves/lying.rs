//! A process says that its memory is away, and the device shows all of it still.

use super::*;

/// The tenant that the first event of a kind is about. It is waited for.
fn told(daemon: &Daemon, kind: &str) -> Option<String> {
    let mut wire = daemon.command();
    let id = wire.ask(&Control::Follow { past: 100 });
    loop {
        match wire.answer(id) {
            ControlReply::Event(row) if row.kind == kind => return row.tenant,
            ControlReply::Event(_) => (),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_victim_that_lies_lets_nobody_in_and_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon_with(folder.path(), 64, |swap| {
        swap.look_grace = Nanos::millis(500);
    });
    let ((mut first, mut second), ask, [mut command, _two]) =
        two_waiting(&daemon, Hello::MOVABLE, "1s");
    first.is_sealed();
    first.is_away(10);
    assert_eq!(told(&daemon, "left-less").as_deref(), Some("first"));
    // It runs on with what it has, and the next resolver, which is none, decides.
    first.is_back();
    assert_eq!(places(&mut command)[0], ("first".to_owned(), Place::In, 0));
    let refused: Reply = second.client.wire.answer(ask);
    assert!(matches!(refused, Reply::Refused(_)), "{refused:?}");
    // The daemon serves both as before: what fits beside it is granted.
    let granted = second.client.grow(0, 4 * GIB);
    assert!(matches!(granted, Reply::Granted { .. }), "{granted:?}");
}

#[test]
fn a_victim_whose_memory_the_device_shows_gone_is_no_liar() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon_with(folder.path(), 64, |swap| {
        swap.look_grace = Nanos::millis(500);
    });
    let ((mut first, mut second), ask, _commands) = two_waiting(&daemon, Hello::MOVABLE, "1s");
    first.is_sealed();
    // A look may show it gone before the report is read.
    shows(&daemon, &[]);
    first.is_away(10);
    assert_eq!(told(&daemon, "left").as_deref(), Some("first"));
    let granted: Reply = second.client.wire.answer(ask);
    assert!(matches!(granted, Reply::Granted { .. }), "{granted:?}");
    first.ordered(Order::Out);
}
