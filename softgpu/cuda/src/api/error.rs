//! Names and descriptions of results.
