//! The just-in-time linker.
