//! Graphs: capture, instantiation, launch.
