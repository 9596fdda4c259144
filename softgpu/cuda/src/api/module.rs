//! Modules.
