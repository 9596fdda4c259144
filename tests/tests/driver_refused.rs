//! The driver has no memory for what was granted: how much the daemon is asked to wait for. The
//! test plays the daemon.

use gpushare_protocol::wire::{Reply, Request};
use gpushare_tests::guest::Guest;
use gpushare_tests::{Dealer, GIB, Gpu, MIB, clients, gpu};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};

/// A program of a tenant that is granted 1 GiB. The driver's first answer to `call` is that it has
/// no memory.
fn failing(dealer: &Dealer, call: &str) -> (Guest, Receiver<Request>) {
    let mut command = dealer.command(&clients::compile("ordered", &[]));
    command
        .env("LD_LIBRARY_PATH", gpu::links())
        .env("SOFTGPU_FAIL", format!("{call}:1:CUDA_ERROR_OUT_OF_MEMORY"));
    let guest = Guest::start(command).started();
    dealer.page().devices[0].grant.store(GIB, Ordering::Relaxed);
    let (says, said) = channel();
    dealer.bank(move |asked| {
        says.send(asked.clone()).ok()?;
        Some(Reply::Granted { grant: GIB })
    });
    (guest, said)
}

/// The bytes that the driver had not, as the daemon hears it.
fn refused(said: &Receiver<Request>) -> Option<u64> {
    said.try_iter().find_map(|asked| match asked {
        Request::DriverRefused(ask) => Some(ask.bytes),
        _ => None,
    })
}

#[test]
fn a_pool_that_cannot_grow_waits_for_its_growth() {
    let gpu = Gpu::new("mem=16GiB");
    let dealer = Dealer::start(&gpu);
    let (mut guest, said) = failing(&dealer, "cuMemAllocAsync");
    guest.does(&format!("alloc {MIB} 1"));
    assert_eq!(refused(&said), Some(32 * MIB));
}

#[test]
fn an_allocation_beside_pools_waits_for_its_own_bytes() {
    let gpu = Gpu::new("mem=16GiB");
    let dealer = Dealer::start(&gpu);
    let (mut guest, said) = failing(&dealer, "cuMemAlloc_v2");
    guest.does(&format!("linear {MIB}"));
    assert_eq!(refused(&said), Some(MIB));
}
