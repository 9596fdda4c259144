//! The executable graphs that have allocation nodes.

use std::sync::atomic::{AtomicUsize, Ordering};

use gpushare_cuda_abi::cuda::CUgraphExec;

use crate::holdings::objects::Map;
use crate::hooks::graph_held::Last;
use crate::hooks::graph_size::Sizes;

/// An executable graph that has allocation nodes.
#[derive(Clone, Debug)]
pub(super) struct Exec {
    /// The memory that it takes; none if all of it is the host's.
    pub(super) sizes: Sizes,
    /// The memory that its last launch was given.
    pub(super) last: Last,
}

static EXECS: Map<Exec> = Map::new();
/// Their number, so that launches of all other graphs cost one load.
static ALLOCATING: AtomicUsize = AtomicUsize::new(0);

fn key(exec: CUgraphExec) -> u64 {
    exec.0.addr() as u64
}

/// Whether a graph that is launched may allocate.
pub(super) fn may_allocate() -> bool {
    ALLOCATING.load(Ordering::Acquire) != 0
}

/// One of them.
pub(super) fn known(exec: CUgraphExec) -> Option<Exec> {
    may_allocate().then(|| EXECS.with(key(exec), |exec| exec.clone()))?
}

/// Enters one that takes these sizes from now on. It was made or updated: no launch has given it
/// anything.
pub(super) fn enter(exec: CUgraphExec, sizes: Sizes) {
    let last = Last::new();
    if EXECS.insert(key(exec), Exec { sizes, last }).is_none() {
        ALLOCATING.fetch_add(1, Ordering::AcqRel);
    }
}

/// Notes what its launch was given.
pub(super) fn given(exec: CUgraphExec, last: Last) {
    EXECS.with(key(exec), |exec| exec.last = last);
}

/// Forgets it, if it is one.
pub(super) fn forget(exec: CUgraphExec) {
    if take(exec).is_some() {
        gone();
    }
}

/// Takes it out before it is destroyed: its handle may be another one's afterwards. Then it is
/// [`gone`], or [`put_back`].
pub(super) fn take(exec: CUgraphExec) -> Option<Exec> {
    EXECS.take(key(exec))
}

/// An executable graph that was taken out is gone.
pub(super) fn gone() {
    ALLOCATING.fetch_sub(1, Ordering::AcqRel);
}

/// An executable graph that was taken out is not destroyed.
pub(super) fn put_back(exec: CUgraphExec, known: Exec) {
    EXECS.insert(key(exec), known);
}
