//! A daemon's state for other programs and for browsers: Prometheus metrics in both text formats,
//! and one page. `gpushare` prints them, `gpushare-exporter` serves them.
#![forbid(unsafe_code)]

pub mod answers;
mod asking;
mod host;
pub mod http;
mod metrics;
mod names;
mod page;
mod places;
mod shared;
mod snapshot;
mod text;

pub use host::host;
pub use metrics::{Used, families};
pub use names::Names;
pub use page::{Report, page};
pub use snapshot::{Had, STRANDED, Snapshot, above_limit, device_name, due, without_use};
pub use text::{Family, Format, Kind, Sample, Value, encode};
