//! `libnvidia-ml.so.1` of the simulated GPU.
#![deny(unsafe_code)]
