//! The single truth about the program's contexts, streams and captures, and what keeps a mark of
//! ours out of their way.
//!
//! A stream or context is not destroyed while an event is recorded in it ([`marking`]): the hook of
//! its destruction removes it from here first, and waits. No capture begins while a mark is made,
//! and no mark is made in a capturing stream; its work is marked just before its capture begins.
//! All waits are bounded by the time of a few driver calls.
//!
//! The tracker answers questions. The hooks act on the answers, in the account and at the gate. Its
//! lock is held for moments, never while the driver is called.

pub(crate) mod captures;
pub(crate) mod contexts;
mod last;
pub(crate) mod marking;
mod place;
mod state;
pub(crate) mod streams;

pub(crate) use place::StreamId;
