//! The software GPU's driver as C programs see it, one module per subject. A new file needs a line
//! here.

mod common;
mod driver;

mod conformance;
mod environment;
mod exec_again;
mod exec_asked;
mod exec_capture;
mod exec_faults;
mod exec_free;
mod exec_graph;
mod exec_graph_memory;
mod exec_graph_memory_updated;
mod exec_green;
mod exec_kernels;
mod exec_managed;
mod exec_objects;
mod exec_order;
mod exec_peers;
mod exec_random;
mod exec_reach;
mod exec_refused;
mod exec_reuse;
mod exec_room;
mod exec_shared;
mod exec_sharing;
mod exec_stamp;
mod exec_time;
mod memory;
mod mps;
mod procaddr;
mod ptx;
mod teardown;
