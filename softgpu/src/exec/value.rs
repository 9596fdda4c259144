//! Waiting in stream order for a value in memory (`cuStreamWaitValue32` and the like).

use std::fmt;
use std::sync::Arc;

/// A condition on memory, looked at until it holds.
#[derive(Clone)]
pub(crate) struct ValueWait(Arc<dyn Fn() -> bool + Send + Sync>);

impl ValueWait {
    /// A wait that ends when `come` says so; `come` is called often, on a thread of the driver, and must be quick.
    pub(crate) fn new(come: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(come))
    }

    pub(super) fn has_come(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for ValueWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueWait")
    }
}
