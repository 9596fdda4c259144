//! The library tells the daemon at once of freed memory that another tenant's ask waits for, and of
//! no other. The test plays the daemon.

use std::sync::atomic::Ordering;

use gpushare_protocol::wire::Request;
use gpushare_tests::{Dealer, Gpu, MIB, alloc};

const FREED: Request = Request::Freed { device_index: 0 };

#[test]
fn memory_that_an_ask_waits_for_is_reported_when_it_is_freed() {
    let dealer = Dealer::start(&Gpu::new(""));
    let mut guest = dealer.client("quota").started();
    let waiters = &dealer.page().devices[0].waiters;
    for _ in 0..3 {
        for _ in 0..20 {
            guest.does(&alloc(MIB));
            guest.does("free 1");
        }
        assert!(!dealer.said().contains(&FREED), "no ask waits");
        guest.does(&alloc(MIB));
        waiters.store(1, Ordering::Relaxed);
        guest.does("free 1");
        dealer.hears(&FREED);
        waiters.store(0, Ordering::Relaxed);
    }
    guest.finish().silently();
}
