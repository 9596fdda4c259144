//! Functions and their attributes.
