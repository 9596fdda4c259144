//! Devices: count, names, attributes, memory size.
