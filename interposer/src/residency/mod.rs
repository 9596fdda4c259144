//! Memory that moves: where the daemon says so, the process's allocations are made of pieces that
//! can be taken off the device and put back at the same addresses.
//!
//! One thread follows the daemon's orders ([`thread`]). It seals the process
//! ([`seal`](crate::gate::seal)), waits until its work has drained ([`drain`]), and moves. The
//! order of these steps is decided in `interposer/pacing/src/mover.rs`.

mod answers;
mod behind;
mod bits;
mod blocks;
mod copies;
mod copyable;
mod drain;
mod enter;
mod failed;
mod host;
pub(crate) mod kept_marks;
mod later;
mod leave;
pub(crate) mod managed;
mod marked;
pub(crate) mod memory;
mod needs;
mod newer;
mod ordered;
pub(crate) mod own;
mod own_moves;
pub(crate) mod peers;
pub(crate) mod pitch;
mod pool_books;
pub(crate) mod pool_facts;
pub(crate) mod pooled;
mod provide;
pub(crate) mod reach;
mod residue;
mod room;
mod slab;
pub(crate) mod slabs;
mod small;
mod spent;
mod stored;
mod thread;
pub(crate) mod unshared;

use core::sync::atomic::{AtomicBool, Ordering};

use gpushare_protocol::page::residency::Movability;

use crate::account;
use crate::gate::seal;
use crate::guest::fork::ForkLocal;
use crate::holdings::{frees, reclaim};

/// Whether there is a thread.
static STARTED: ForkLocal<AtomicBool> = ForkLocal::new();

/// The tenant is joined: follows the daemon's orders about its memory if there can be any. Before
/// the process has a context.
pub(crate) fn start() {
    let session = account::compute().and_then(|compute| compute.session);
    let movability = session.map(|session| session.movability());
    let Some(session) = session.filter(|_| movability != Some(Movability::Fixed)) else {
        return;
    };
    let started = STARTED.get_or(AtomicBool::default);
    if started.swap(true, Ordering::AcqRel) {
        return;
    }
    if let Err(error) = thread::start(session) {
        // Nothing is movable then, and the daemon hears nothing.
        tracing::warn!(%error, "no thread to move memory: it stays on the device");
        return;
    }
    if movability == Some(Movability::Managed) {
        managed::take_part();
    } else {
        newer::look();
    }
    seal::take_part();
    reclaim::spare_by(slabs::spare);
    frees::tell(frees::Told {
        over: pooled::over,
        parted: ordered::over,
        waited: || {
            ordered::give_back();
            pooled::synchronised();
            if later::hurry() {
                // The next wait looks again.
                frees::freed();
            }
        },
    });
}
