//! The CUDA driver API and NVML as seen from below: types, constants and the one symbol table.
//!
//! [`cuda`] and [`nvml`] hold the types of the public headers, checked against them; [`symbols`] is
//! the table of every function the driver and NVML export, with what gpushare does about each.
#![no_std]
#![deny(unsafe_code)]

mod abi;
pub mod cuda;
pub mod nvml;
pub mod symbols;
