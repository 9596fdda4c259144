//! Where a tenant's memory shall be on a device, as its processes read it from the control page.
//!
//! The daemon alone writes ([`ControlDevice::command`]): how long a drain may take, then one word
//! with the order and its epoch. Then [`changes`](super::control::ControlHeader::changes) rises and
//! its waiters are woken, as for a lease. Every order has a new epoch, also one that takes back the
//! order before. All-zero memory reads as *in*.

use std::sync::atomic::{Ordering, fence};

use super::control::{ControlDevice, ControlPage};

/// Whether a tenant's memory may leave the device. Chosen before its first process starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Movability {
    /// It stays.
    #[default]
    Fixed = 0,
    /// Allocations are made so that the library can move them to the host and back.
    Swap = 1,
    /// Allocations are the driver's managed memory.
    Managed = 2,
}

/// The order that a tenant's processes carry out on its memory on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Order {
    /// Nothing is asked. A sealed process opens; one whose memory is away brings it back first, as
    /// for [`Order::Return`].
    #[default]
    In = 0,
    /// Seal and drain, and keep the memory on the device.
    Seal = 1,
    /// Seal and drain, then move all movable memory to the host.
    Leave = 2,
    /// Bring all memory back, then open.
    Return = 3,
    /// Stay sealed; memory that is away stays away. Asks for no work that was not begun.
    Out = 4,
    /// The device is lost: nothing comes back, ever. What is away is given up, and the process
    /// opens: the driver answers its calls. The last order about a device.
    Lost = 5,
}

/// An order and its number in one word: `epoch << 32 | order`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderWord(u64);

impl OrderWord {
    /// The word for `order`, number `epoch` of this tenant and device.
    pub const fn new(epoch: u32, order: Order) -> Self {
        Self((epoch as u64) << 32 | order as u64)
    }

    /// The word with these bits. Any bits are one.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The number of the order.
    pub const fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The order. One of a later minor reads as [`Order::In`]: a library never stops its program
    /// for a word that it does not understand.
    #[expect(clippy::cast_possible_truncation, reason = "the low half of the word")]
    pub const fn order(self) -> Order {
        match self.0 as u32 {
            1 => Order::Seal,
            2 => Order::Leave,
            3 => Order::Return,
            4 => Order::Out,
            5 => Order::Lost,
            _ => Order::In,
        }
    }
}

/// An order and its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// The order.
    pub word: OrderWord,
    /// How long the process may take to drain after it has sealed, in milliseconds. A process that
    /// takes longer opens again and answers `SealBusy`.
    pub drain_ms: u32,
    /// While the memory returns: so many bytes of it stay on the host for now, because the device
    /// has no room for them yet. Each process of the tenant leaves that much of its own there. It
    /// falls while the return is under way, and is not part of the order.
    pub withheld: u64,
    /// Where memory is the driver's managed memory: so many bytes of the tenant's are booked on the
    /// device. A return brings no more of it; 0: that is not said.
    pub booked: u64,
}

impl ControlDevice {
    /// The order in force.
    pub fn order(&self) -> Orders {
        let word = OrderWord::from_bits(self.residency.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        Orders {
            word,
            drain_ms: self.drain_ms.load(Ordering::Relaxed),
            withheld: self.withheld.load(Ordering::Relaxed),
            booked: self.booked.load(Ordering::Relaxed),
        }
    }

    /// Stores how much of a return is withheld. For the daemon, before the order to return, and
    /// again whenever it is less; it raises `changes` and wakes afterwards.
    pub fn withhold(&self, bytes: u64) {
        self.withheld.store(bytes, Ordering::Relaxed);
    }

    /// Stores how much of managed memory is booked on the device. For the daemon, before the order
    /// to return.
    pub fn book(&self, bytes: u64) {
        self.booked.store(bytes, Ordering::Relaxed);
    }

    /// Stores an order, all but what is withheld and booked. For the daemon, which raises `changes`
    /// and wakes afterwards.
    pub fn command(&self, orders: Orders) {
        self.drain_ms.store(orders.drain_ms, Ordering::Relaxed);
        self.residency.store(orders.word.bits(), Ordering::Release);
    }
}

impl ControlPage {
    /// Whether the tenant's memory may leave the device. A value that a later minor adds reads as
    /// [`Movability::Fixed`].
    pub fn movability(&self) -> Movability {
        let movability = self.header.movability.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        match movability {
            1 => Movability::Swap,
            2 => Movability::Managed,
            _ => Movability::Fixed,
        }
    }

    /// Stores it. For the daemon, before the first process registers.
    pub fn set_movability(&self, movability: Movability) {
        self.header
            .movability
            .store(movability as u32, Ordering::Release);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::page::control::tests::blank;

    const ALL: [Order; 6] = [
        Order::In,
        Order::Seal,
        Order::Leave,
        Order::Return,
        Order::Out,
        Order::Lost,
    ];

    #[test]
    fn an_order_comes_back_as_it_was_packed() {
        for order in ALL {
            for epoch in [0, 1, 77, u32::MAX] {
                let word = OrderWord::new(epoch, order);
                assert_eq!((word.epoch(), word.order()), (epoch, order));
                assert_eq!(OrderWord::from_bits(word.bits()), word);
            }
        }
    }

    #[test]
    fn zero_and_an_unknown_order_read_as_in() {
        assert_eq!(OrderWord::default().order(), Order::In);
        let later = OrderWord::from_bits(9 << 32 | 77);
        assert_eq!((later.epoch(), later.order()), (9, Order::In));
    }

    /// The part of docs/PROTOCOL.md about orders.
    #[test]
    fn the_protocols_page_has_each_order_by_its_number_and_no_other() {
        let page = include_str!("../../../docs/PROTOCOL.md");
        let table = page.split("| order |").nth(1).expect("a table of orders");
        let rows = table
            .lines()
            .skip(2)
            .map_while(|row| row.split(" | ").next()?.strip_prefix("| "));
        let ours = ALL.map(|order| format!("`{order:?}` ({})", order as u32));
        assert_eq!(rows.collect::<Vec<_>>(), ours);
        let next = OrderWord::from_bits(ALL.len() as u64).order();
        assert_eq!(next, Order::In, "an order that this test does not know");
    }

    #[test]
    fn a_blank_page_moves_nothing() {
        assert_eq!(blank().devices[0].order(), Orders::default());
        assert_eq!(blank().movability(), Movability::Fixed);
    }

    #[test]
    fn orders_and_movability_are_read_as_they_were_stored() {
        let page = blank();
        let orders = Orders {
            word: OrderWord::new(7, Order::Leave),
            drain_ms: 300,
            withheld: 5,
            booked: 9,
        };
        page.devices[3].withhold(5);
        page.devices[3].book(9);
        page.devices[3].command(orders);
        assert_eq!(page.devices[3].order(), orders);
        page.devices[3].withhold(0);
        assert_eq!(page.devices[3].order().withheld, 0);
        assert_eq!(page.devices[2].order(), Orders::default());
        for movability in [Movability::Swap, Movability::Managed, Movability::Fixed] {
            page.set_movability(movability);
            assert_eq!(page.movability(), movability);
        }
    }
}
