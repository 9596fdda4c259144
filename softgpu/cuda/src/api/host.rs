//! Host memory the driver knows: pinned and registered.
