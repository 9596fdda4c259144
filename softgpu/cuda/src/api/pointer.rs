//! What an address is.
