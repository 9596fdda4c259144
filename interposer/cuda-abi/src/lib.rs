//! The CUDA driver API and NVML as seen from below: types, constants and the one symbol table.
#![no_std]
