//! The journal: every event of a daemon, in bounded files that outlive it.
//!
//! The daemon appends, `gpushare events` and `gpushare why` read. A line is one event as JSON
//! (described by `docs/schema/event.json`). The newest lines are in `journal.jsonl`; when
//! that is full it becomes `journal.1.jsonl`, and the oldest file is dropped. Several daemons of
//! one user may share a folder. Why so: ADR 100.
#![forbid(unsafe_code)]

mod files;
mod line;
mod read;
mod write;

pub use files::{Bounds, last_written, remove};
pub use line::{json, write_json};
pub use read::{Past, in_order, merged, read};
pub use write::{Readers, Writer};
