//! Graphs: capture, instantiation, launch.

pub mod capture;
