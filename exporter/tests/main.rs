//! The exporter's texts and its server, one module a subject. A new file is a line here.

mod format;
mod named;
mod page;
mod sample;
mod served;
mod unused;
