//! How programs get at the library: one binary, so that the packaged library passes it too.

mod support;

mod inert;
mod lookup;
mod next;
