//! Bodies for functions that are not implemented, made by the build.
//!
//! # Safety
//! Exports names that only this library defines.
#![allow(unsafe_code, reason = "exports C names")]

include!(concat!(env!("OUT_DIR"), "/others.rs"));
