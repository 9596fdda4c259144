//! Copies.
