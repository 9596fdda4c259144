//! Occupancy.
