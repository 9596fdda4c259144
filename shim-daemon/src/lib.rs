//! The node daemon's input and output: sockets, shared pages, processes, devices. The decisions are
//! made in `gpushare-core`.
#![deny(unsafe_code)]

mod cgroup;
mod clocks;
pub mod config;
pub mod connection;
pub mod containers;
pub mod devices;
pub mod foreign;
pub mod groups;
pub mod guard;
pub mod host_file;
pub mod host_room;
pub mod init;
pub mod journal;
pub mod limits;
pub mod log;
pub mod log_budget;
pub mod log_queue;
pub mod node;
mod notify;
pub mod pages;
pub mod peer;
pub mod server;
mod small_file;
pub mod spill;
