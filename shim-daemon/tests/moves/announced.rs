//! Each change of what a tenant's processes are to do with their memory wakes them: they sleep
//! until then.

use super::*;

impl Gated {
    /// The word of the page on which the processes of the tenant sleep.
    fn changes(&self) -> u32 {
        self.page().header.changes.load(Ordering::Acquire)
    }

    /// After `act` the page says something else of the device, and those that sleep are woken.
    fn is_woken(&mut self, daemon: &Daemon, act: impl FnOnce(&mut Self)) {
        let (changes, before) = (self.changes(), self.page().devices[0].order());
        act(self);
        until("nothing new is ordered", || {
            self.page().devices[0].order() != before
        });
        // The daemon wakes them before it serves another.
        let _other = daemon.command();
        let after = self.page().devices[0].order();
        assert_ne!(self.changes(), changes, "{after:?} after {before:?}");
    }
}

#[test]
fn each_order_wakes_the_processes_that_it_is_for() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 64);
    let (mut one, mut command) = mover(&daemon, "one", Hello::MOVABLE);
    one.client.grow(0, 4 * GIB);
    one.client.charge(4 * GIB);
    shows(&daemon, &[(&one, 4)]);
    let tenant = || "one".to_owned();
    one.is_woken(&daemon, |_| {
        command.ask(&Control::Suspend { tenant: tenant() });
    });
    one.is_woken(&daemon, Gated::is_sealed);
    one.is_woken(&daemon, |one| {
        one.is_away(4);
        shows(&daemon, &[]);
    });
    one.is_woken(&daemon, |_| {
        command.ask(&Control::Resume { tenant: tenant() });
    });
    one.is_woken(&daemon, |one| {
        let epoch = one.ordered(Order::Return);
        let device_index = 0;
        one.says(&Request::Back {
            device_index,
            epoch,
        });
    });
    one.ordered(Order::In);
}

#[test]
fn a_tenant_that_returns_by_parts_is_woken_for_each_part() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 64);
    let ((mut first, mut second), ask, _commands) = two(&daemon, Hello::MOVABLE);
    first.is_sealed();
    first.is_away(10);
    shows(&daemon, &[]);
    let granted: Reply = second.client.wire.answer(ask);
    assert!(matches!(granted, Reply::Granted { .. }), "{granted:?}");
    second.client.charge(10 * GIB);
    shows(&daemon, &[(&second, 10)]);
    first.ordered(Order::Out);
    first.says(&Request::WantIn { device_index: 0 });
    second.is_sealed();
    let epoch = second.ordered(Order::Leave);
    first.ordered(Order::Return);
    let withheld = |one: &Gated| one.page().devices[0].order().withheld / GIB;
    assert_eq!(withheld(&first), 4);
    for gib in [2, 3] {
        let away = gib * GIB;
        first.is_woken(&daemon, |_| {
            let device_index = 0;
            second.says(&Request::Moved {
                device_index,
                epoch,
                away,
            });
            shows(&daemon, &[(&second, 10 - gib)]);
        });
        assert_eq!(withheld(&first), 4 - gib);
    }
}

/// A tenant at work would seem idle until its library looks by itself.
#[test]
fn the_first_ask_that_waits_wakes_those_that_may_have_to_leave() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon_of(
        folder.path(),
        FakeDevices::without_ticks(),
        64,
        |settings| {
            settings.policy.swap.stays = (Nanos::secs(600), Nanos::secs(600));
        },
    );
    let names = ["holds", "asks", "asks-too"];
    let [mut holder, first, second] = names.map(|name| mover(&daemon, name, Hello::MOVABLE));
    let holder = &mut holder.0;
    holder.client.grow(0, 10 * GIB);
    holder.client.charge(10 * GIB);
    let before = holder.changes();
    let after = [first, second].map(|(mut asker, command)| {
        asker.client.ask(0, 10 * GIB);
        // The answer to this comes once the ask was taken in.
        asker.client.free(0);
        (holder.changes(), asker, command)
    });
    assert_ne!(after[0].0, before, "the first one");
    assert_eq!(after[1].0, after[0].0, "one more changes nothing for them");
    let waiters = &holder.page().devices[0].waiters;
    assert_eq!(waiters.load(Ordering::Relaxed), 2);
    let order = holder.page().devices[0].order().word;
    assert_eq!((order.order(), order.epoch()), (Order::In, 0));
}
