//! Tenants whose memory moves on two devices.

use super::*;

fn sealed(device_index: u8, epoch: u32) -> Request {
    Request::Sealed {
        device_index,
        epoch,
    }
}

fn away(device_index: u8, epoch: u32) -> Request {
    Request::Away {
        device_index,
        epoch,
        away: 512 * MIB,
        residue: 0,
    }
}

fn back(device_index: u8, epoch: u32) -> Request {
    Request::Back {
        device_index,
        epoch,
    }
}

impl Gated {
    /// Opens this device, and has so much on it.
    fn has(&mut self, device_index: u8, bytes: u64) {
        let opened: Reply = self.client.wire.call(&Request::Open { device_index });
        assert!(matches!(opened, Reply::Granted { .. }), "{opened:?}");
        self.says(&Request::ContextMade { device_index });
        let granted: Reply = self.client.wire.call(&Request::Ask(Ask {
            device_index,
            held: 0,
            bytes,
            patience_ms: None,
        }));
        assert!(matches!(granted, Reply::Granted { .. }), "{granted:?}");
        let (slot, units) = (self.client.slot, u32::try_from(bytes / 512).unwrap());
        let line = self.client.page().line(slot, usize::from(device_index));
        line.unwrap().word.charge_anyway(units);
    }

    /// Waits for this order on a device, and answers it.
    fn obeys(&mut self, device_index: u8, order: Order, answer: fn(u8, u32) -> Request) {
        let word = || {
            let orders = &self.page().devices[usize::from(device_index)];
            orders.order().word
        };
        until(&format!("no order {order:?} on {device_index}"), || {
            word().order() == order
        });
        let epoch = word().epoch();
        self.says(&answer(device_index, epoch));
    }

    fn is_in(&self, device_index: usize) {
        until("it is not in", || {
            self.page().devices[device_index].order().word.order() == Order::In
        });
    }

    /// The word by which the daemon asks for host memory.
    fn word(&self) -> u32 {
        self.page().header.spill.load(Ordering::Acquire)
    }
}

/// A process with 512 MiB on each of two devices, suspended, and on its way back to both; the host
/// has so many GiB, and another tenant has 768 MiB that may have to go there.
fn returning(folder: &Path, host_gib: u64) -> (Daemon, [Gated; 2], [Wire; 2]) {
    let devices = FakeDevices::two();
    let daemon = daemon_of(folder, devices, host_gib, |_| ());
    let (mut other, wire) = mover(&daemon, "other", Hello::MOVABLE);
    other.client.grow(0, 768 * MIB);
    other.client.charge(768 * MIB);
    let (mut command, socket) = daemon.tenant("one", &LIMITS);
    let client = Client::register_with(&socket, Hello::GATED | Hello::MOVABLE);
    let mut one = Gated::map(client);
    for device in [0, 1] {
        one.has(device, 512 * MIB);
    }
    let tenant = || "one".to_owned();
    let suspend = command.ask(&Control::Suspend { tenant: tenant() });
    for device in [0, 1] {
        one.obeys(device, Order::Seal, sealed);
    }
    for device in [0, 1] {
        one.obeys(device, Order::Leave, away);
    }
    assert_eq!(command.answer::<ControlReply>(suspend), ControlReply::Done);
    assert_eq!(one.word(), 0);
    command.ask(&Control::Resume { tenant: tenant() });
    (daemon, [one, other], [command, wire])
}

/// It gives it back once it is back on both: until then it cannot tell what it needs.
#[test]
fn one_that_returns_to_two_devices_is_asked_to_give_back_until_both_are() {
    for tight in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (_daemon, [mut one, _other], _wires) =
            returning(folder.path(), if tight { 1 } else { 8 });
        one.obeys(0, Order::Return, back);
        one.is_in(0);
        assert_eq!(one.word() != 0, tight);
        one.obeys(1, Order::Return, back);
        one.is_in(1);
        until("the word is not taken back", || one.word() == 0);
    }
}
