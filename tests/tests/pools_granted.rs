//! Pools of a tenant whose daemon has granted less than its limit: room that a pool has is used
//! before more is asked for, and only growth is asked for. The test plays the daemon.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};

use gpushare_protocol::page::UNIT;
use gpushare_protocol::wire::{Ask, Refusal, Reply, Request};
use gpushare_tests::guest::Guest;
use gpushare_tests::{Dealer, GIB, Gpu, MIB};

/// A daemon that grants 256 MiB of 1 GiB and refuses to grant more, the requests for it, and a
/// client whose pool keeps what is freed: 200 MiB are allocated in stream 1.
fn granting_less(gpu: &Gpu) -> (Dealer, Receiver<Ask>, Guest) {
    let dealer = Dealer::start(gpu);
    let device = &dealer.usage().devices[0];
    device.limit.store(GIB, Ordering::Relaxed);
    device.view_total.store(GIB, Ordering::Relaxed);
    dealer.page().devices[0]
        .grant
        .store(256 * MIB, Ordering::SeqCst);
    let (says, said) = channel();
    dealer.bank(move |asked| match asked {
        Request::Ask(ask) => {
            says.send(*ask).ok()?;
            Some(Reply::Refused(Refusal::NoMemory))
        }
        _ => Some(Reply::Granted { grant: 256 * MIB }),
    });
    let mut guest = dealer.client("ordered").started();
    guest.does("keep");
    guest.does(&format!("alloc {} 1", 200 * MIB));
    (dealer, said, guest)
}

/// Bytes that the tenant's processes are charged with, and their credit.
fn held(dealer: &Dealer) -> [u64; 2] {
    let lines = (0..8).filter_map(|slot| dealer.usage().line(slot, 0));
    let words = lines.map(|line| line.word.load());
    words.fold([0, 0], |[charged, credit], word| {
        let more = [word.charged, word.credit].map(|units| u64::from(units) * UNIT);
        [charged + more[0], credit + more[1]]
    })
}

/// The tenant never had more than was granted, and ends in order.
#[track_caller]
fn ends_within_the_grant(gpu: &Gpu, mut guest: Guest) {
    let truth = gpu.truth();
    assert!(truth.requested_peak <= 256 * MIB, "{truth:?}");
    for value in ["value 1", "value 2", "sync-all"] {
        guest.does(value);
    }
    guest.finish().silently();
}

#[test]
fn a_pool_that_has_room_asks_for_nothing_and_waits_for_nothing() {
    let gpu = Gpu::new("");
    let (dealer, said, mut guest) = granting_less(&gpu);
    // The free comes when value 1 does: after the allocation.
    guest.does("crowd 1 1");
    guest.does("free 0 1");
    guest.does(&format!("alloc {} 1", 200 * MIB));
    assert_eq!(said.try_iter().count(), 0);
    assert_eq!(guest.ask("reserved"), format!("reserved {}", 224 * MIB));
    let [charged, credit] = held(&dealer);
    assert_eq!(charged, 224 * MIB);
    assert!(credit <= 256 * MIB, "{credit} of credit");
    ends_within_the_grant(&gpu, guest);
}

#[test]
fn a_pool_without_room_asks_for_its_growth() {
    let gpu = Gpu::new("");
    let (_dealer, said, mut guest) = granting_less(&gpu);
    guest.answers(&format!("alloc {} 1", 64 * MIB), "2");
    assert!(said.try_iter().any(|ask| ask.bytes == 64 * MIB));
    ends_within_the_grant(&gpu, guest);
}

#[test]
fn for_what_another_stream_has_yet_to_free_more_is_asked_for() {
    let gpu = Gpu::new("");
    let (_dealer, said, mut guest) = granting_less(&gpu);
    guest.does("crowd 1 1");
    guest.does("free 0 1");
    guest.answers(&format!("alloc {} 2", 200 * MIB), "2");
    assert!(said.try_iter().any(|ask| ask.bytes == 224 * MIB));
    ends_within_the_grant(&gpu, guest);
}
