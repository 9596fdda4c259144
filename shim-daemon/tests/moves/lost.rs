//! A device is lost while memory of a tenant is out of it, or on its way.

use super::*;

#[test]
fn a_tenant_is_told_that_its_device_is_lost_wherever_its_memory_is() {
    for away in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let daemon = daemon(folder.path(), 64);
        let (mut one, mut command) = mover(&daemon, "one", Hello::MOVABLE);
        one.client.grow(0, 4 * GIB);
        one.client.charge(4 * GIB);
        shows(&daemon, &[(&one, 4)]);
        let tenant = "one".to_owned();
        let suspend = command.ask(&Control::Suspend { tenant });
        let before = match away {
            false => one.ordered(Order::Seal),
            true => {
                one.is_sealed();
                one.is_away(4);
                shows(&daemon, &[(&one, 0)]);
                one.ordered(Order::Out)
            }
        };
        daemon.devices.0.lock().unwrap().lost = true;
        let last = one.ordered(Order::Lost);
        assert_ne!(last, before, "an order of its own");
        // No command waits for what never comes.
        let _: ControlReply = command.answer(suspend);
        // What a call wants back there changes nothing.
        one.says(&Request::WantIn { device_index: 0 });
        let _: ControlReply = command.call(&Listing::Tenants.first());
        assert_eq!(one.ordered(Order::Lost), last);
    }
}
